//! A budget holds: plans, refusals and their messages, and that no budget changes a logit.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use atta_engine::{
    Budget, Engine, Error, Fit, KvType, LoadOptions, MemoryPlan, ModelFiles, ModelSource, ReadAt,
    Session, SessionOptions, WeightsAt, system,
};

/// A budget is for the whole program, so tests that have one take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A budget of so many bytes beyond what this program has.
fn beyond(bytes: u64) -> u64 {
    system::Usage::now().map_or(4 << 20, |usage| usage.private()) + bytes
}

/// The program itself may take a little more in another moment.
const LEEWAY: u64 = 400 << 10;

fn model(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

fn stories() -> PathBuf {
    model("tests/golden/stories.gguf")
}

fn session_of(n_ctx: usize) -> SessionOptions {
    SessionOptions {
        n_ctx: Some(n_ctx),
        ..SessionOptions::default()
    }
}

fn open(path: &Path, budget: Option<u64>, weights: Option<WeightsAt>) -> Result<Engine, Error> {
    let session = session_of(128);
    Engine::open(
        path,
        &LoadOptions {
            ram_budget: budget,
            weights,
            session,
            ..LoadOptions::default()
        },
    )
}

/// The logits of some steps, and a text that follows.
fn logits(session: &mut Session) -> Vec<u32> {
    let ids: Vec<u32> = (0..50).map(|i| 3 + i * 7 % 90).collect();
    session.append(&ids[..40]).unwrap();
    let mut bits: Vec<u32> = session
        .logits()
        .unwrap()
        .iter()
        .map(|z| z.to_bits())
        .collect();
    for id in &ids[40..] {
        session.append(&[*id]).unwrap();
        bits.extend(session.logits().unwrap().iter().map(|z| z.to_bits()));
    }
    bits
}

/// The smallest budget that the error names.
fn smallest(path: &Path, weights: WeightsAt, session: SessionOptions, fit: Fit) -> u64 {
    let options = LoadOptions {
        ram_budget: Some(1),
        weights: Some(weights),
        session,
        fit,
        ..LoadOptions::default()
    };
    match Engine::open(path, &options).err() {
        Some(Error::TooLittleMemory { smallest, .. }) => smallest,
        other => panic!("{other:?}"),
    }
}

#[test]
fn at_any_budget_the_logits_are_those_of_mapped_weights() {
    let _alone = alone();
    for path in [
        stories(),
        model("tests/golden/models/qwen3moe.gguf"),
        model("tests/golden/models/gemma2.gguf"),
    ] {
        let engine = open(&path, None, Some(WeightsAt::Mapped)).unwrap();
        let expected = logits(&mut engine.session(&session_of(128)).unwrap());
        for more in [None, Some(64 << 20), Some(1 << 20), Some(300_000), Some(0)] {
            for weights in [WeightsAt::Streamed, WeightsAt::Resident] {
                let budget = more.map(|more| {
                    more + LEEWAY + smallest(&path, weights, session_of(128), Fit::Strict)
                });
                let engine = open(&path, budget, Some(weights)).unwrap();
                let mut session = engine.session(&session_of(128)).unwrap();
                assert!(
                    logits(&mut session) == expected,
                    "{} {budget:?} {weights:?}",
                    path.display()
                );
                assert!(budget.is_none_or(|budget| engine.budget().used() <= budget));
            }
        }
    }
}

#[test]
fn a_file_that_does_not_fit_into_the_budget_is_streamed_and_one_that_fits_is_mapped() {
    let _alone = alone();
    let path = stories();
    assert_eq!(
        open(&path, None, None).unwrap().weights_at(),
        WeightsAt::Mapped
    );
    assert_eq!(
        open(&path, Some(beyond(64 << 20)), None)
            .unwrap()
            .weights_at(),
        WeightsAt::Mapped
    );
    let tight = LEEWAY + smallest(&path, WeightsAt::Streamed, session_of(128), Fit::Strict);
    let engine = open(&path, Some(tight), None).unwrap();
    assert_eq!(engine.weights_at(), WeightsAt::Streamed);
    let io = engine.model().weights().io();
    assert!(io.pinned_bytes > 0 || io.pass_bytes > 0);
    assert!(engine.prediction().unwrap().decode_tok_s > 0.0);
    assert!(
        open(&path, None, Some(WeightsAt::Mapped))
            .unwrap()
            .prediction()
            .is_none()
    );
}

#[test]
fn less_memory_holds_fewer_weights_and_never_fewer_positions() {
    let _alone = alone();
    let path = stories();
    let mut last = u64::MAX;
    for more in [3 << 20, 1 << 20, 0] {
        let budget =
            more + LEEWAY + smallest(&path, WeightsAt::Streamed, session_of(128), Fit::Strict);
        let engine = open(&path, Some(budget), Some(WeightsAt::Streamed)).unwrap();
        let pinned = engine.model().weights().io().pinned_bytes;
        assert!(pinned < last, "{budget}");
        last = pinned;
        assert_eq!(engine.session(&session_of(128)).unwrap().n_ctx(), 128);
    }
}

#[test]
fn a_budget_that_is_too_small_names_one_that_is_not() {
    let _alone = alone();
    let path = stories();
    for weights in [WeightsAt::Streamed, WeightsAt::Resident, WeightsAt::Mapped] {
        let least = smallest(&path, weights, session_of(200), Fit::Strict);
        let open = |budget| {
            let options = LoadOptions {
                ram_budget: Some(budget),
                weights: Some(weights),
                session: session_of(200),
                ..LoadOptions::default()
            };
            Engine::open(&path, &options).map(|_| ())
        };
        open(least + LEEWAY).unwrap();
        let error = open(least - 2 * LEEWAY).unwrap_err().to_string();
        assert!(error.contains("at least"), "{error}");
    }
}

#[test]
fn what_does_not_fit_shrinks_only_if_it_may() {
    let _alone = alone();
    let path = stories();
    let session = SessionOptions {
        n_ctx: Some(512),
        kv: KvType::F32,
        ..SessionOptions::default()
    };
    let [least, shrunk] = [Fit::Strict, Fit::Shrink]
        .map(|fit| smallest(&path, WeightsAt::Streamed, session.clone(), fit));
    assert!(shrunk + 3 * LEEWAY < least, "{shrunk} {least}");
    let options = |fit| LoadOptions {
        ram_budget: Some(shrunk + LEEWAY),
        weights: Some(WeightsAt::Streamed),
        session: session.clone(),
        fit,
        ..LoadOptions::default()
    };
    let error = Engine::open(&path, &options(Fit::Strict))
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("the context length below 512")
            && error.contains("the KV cache type q8")
            && error.contains("automatic fitting"),
        "{error}"
    );
    let engine = Engine::open(&path, &options(Fit::Shrink)).unwrap();
    let session = engine.session(&session).unwrap();
    assert!((128..=512).contains(&session.n_ctx()));
}

/// Context length, KV type and batch size, so that a stage of giving way is less than the one
/// before.
fn stage(plan: &MemoryPlan) -> (usize, usize, usize) {
    let types = [KvType::Q8, KvType::F16, KvType::F32];
    let kv = types.iter().position(|&kv| kv == plan.kv);
    (plan.n_ctx, kv.unwrap(), plan.n_batch)
}

/// Stages at budgets from 32 MB more than the session needs down to the least.
fn stages(session: &SessionOptions) -> Vec<(usize, usize, usize)> {
    let path = stories();
    let [most, least] = [Fit::Strict, Fit::Shrink]
        .map(|fit| smallest(&path, WeightsAt::Streamed, session.clone(), fit));
    let plan = |budget| {
        let options = LoadOptions {
            ram_budget: Some(budget),
            weights: Some(WeightsAt::Streamed),
            session: session.clone(),
            fit: Fit::Shrink,
            ..LoadOptions::default()
        };
        stage(&MemoryPlan::of(&path, &options).unwrap())
    };
    let budgets = (least + LEEWAY..most + (32 << 20)).step_by(100 << 10);
    let mut stages: Vec<_> = budgets.map(plan).collect();
    stages.reverse();
    stages
}

#[test]
fn short_budgets_take_the_batch_then_the_kv_type_then_the_context() {
    let _alone = alone();
    let stages = stages(&SessionOptions {
        n_ctx: Some(512),
        kv: KvType::F32,
        ..SessionOptions::default()
    });
    assert!(stages.is_sorted_by(|one, next| one >= next), "{stages:?}");
    let first = stages[0];
    let last = stages[stages.len() - 1];
    assert_eq!((first.0, first.1), (512, 2));
    let has = |is: fn(&(usize, usize, usize)) -> bool| stages.iter().any(is);
    assert!(has(|s| s.1 == 2 && s.2 < 512), "{stages:?}");
    assert!(has(|s| s.0 == 512 && s.1 == 0), "{stages:?}");
    assert!(last.0 < 512 && last.1 == 0, "{stages:?}");
}

/// The bytes of a model on another device.
struct Remote(Vec<u8>);

impl ReadAt for Remote {
    fn n_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let found = rest.get(..buf.len());
        buf.copy_from_slice(found.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[test]
fn a_model_of_another_source_gives_the_same_logits() {
    let _alone = alone();
    let files = || {
        let source = ModelSource {
            name: "remote".to_owned(),
            bytes: std::sync::Arc::new(Remote(std::fs::read(stories()).unwrap())),
        };
        ModelFiles::from_sources(vec![source], &Budget::unlimited()).unwrap()
    };
    let logits = |engine: &Engine| {
        let mut session = engine.session(&session_of(64)).unwrap();
        session.append(&[1, 5, 9, 70]).unwrap();
        session.logits().unwrap().to_vec()
    };
    let of_file = logits(&Engine::open(&stories(), &LoadOptions::default()).unwrap());
    for weights in [None, Some(WeightsAt::Resident), Some(WeightsAt::Streamed)] {
        let options = LoadOptions {
            weights,
            ..LoadOptions::default()
        };
        let engine = Engine::from_files("remote", files(), &options).unwrap();
        assert_eq!(logits(&engine), of_file, "{weights:?}");
    }
    let mapped = LoadOptions {
        weights: Some(WeightsAt::Mapped),
        ..LoadOptions::default()
    };
    let error = Engine::from_files("remote", files(), &mapped)
        .err()
        .unwrap();
    assert!(error.to_string().contains("not addressable"), "{error}");
}
