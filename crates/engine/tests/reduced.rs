//! Models in part: chosen by quality, smaller in memory, and with states of their own.

use std::{fs, num::NonZeroUsize, path::PathBuf, sync::Arc};

use atta_engine::{
    Engine, Error, Kernels, LoadOptions, MeasuredStep, MemoryPlan, ModelFiles, Omission, Pool,
    PromptCache, Reduction, ReductionCost, Sensitivity, SessionOptions, Threads, WeightsAt,
};
use atta_formats::Writer;
use atta_model::CpuBackend;

/// Seven layers; two at either end stay.
fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../cli/assets/home.gguf")
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models")
        .join(name)
}

fn options(layers: Omission, n_experts: Option<usize>) -> LoadOptions {
    LoadOptions {
        threads: Threads::Count(NonZeroUsize::MIN),
        session: SessionOptions {
            n_ctx: Some(64),
            ..SessionOptions::default()
        },
        reduction: Reduction { layers, n_experts },
        ..LoadOptions::default()
    }
}

fn step(to: usize, kld: f32) -> MeasuredStep {
    let cost = ReductionCost {
        kld,
        ppl_ratio: 1.0 + kld,
        same_top: 0.5,
    };
    MeasuredStep { to, cost }
}

/// Measurements as a file of seven layers may have them.
fn measured() -> Sensitivity {
    Sensitivity {
        n_tokens: 100,
        skip: vec![
            f32::INFINITY,
            f32::INFINITY,
            0.5,
            0.1,
            0.3,
            f32::INFINITY,
            f32::INFINITY,
        ],
        layers: vec![step(3, 0.1), step(4, 0.25), step(2, 0.2)],
        experts: Vec::new(),
    }
}

/// The little model with these keys.
fn home_with(set: impl Fn(&mut Writer)) -> ModelFiles {
    let files = ModelFiles::open(&home()).unwrap();
    let directory = files.directory();
    let mut w = Writer::new();
    directory
        .metadata()
        .iter()
        .for_each(|(key, value)| w.set_value(key, value));
    set(&mut w);
    for t in directory.tensors() {
        w.add_tensor(&t.name, t.shape.dims(), t.ty).unwrap();
    }
    let layout = w.finish().unwrap();
    let old = fs::read(home()).unwrap();
    let mut bytes = layout.header.clone();
    bytes.resize(layout.file_bytes as usize, 0);
    for (new, t) in layout.tensors.iter().zip(directory.tensors()) {
        let n = t.n_bytes as usize;
        bytes[new.offset as usize..][..n].copy_from_slice(&old[t.offset as usize..][..n]);
    }
    ModelFiles::from_static("measured", bytes.leak()).unwrap()
}

fn open_measured(layers: Omission) -> Result<Engine, Error> {
    Engine::from_files(
        "measured",
        home_with(|w| measured().write(w)),
        &options(layers, None),
    )
}

fn logits(engine: &Engine) -> Vec<u32> {
    let mut session = engine
        .session(&options(Omission::Nothing, None).session)
        .unwrap();
    let n_vocab = engine.spec().n_vocab as u32;
    let ids: Vec<u32> = (0..40).map(|i| (3 + i * 7) % n_vocab).collect();
    session.append(&ids).unwrap();
    session
        .logits()
        .unwrap()
        .iter()
        .map(|z| z.to_bits())
        .collect()
}

#[test]
fn quality_1_is_the_whole_model_bit_for_bit_and_needs_no_measurements() {
    let whole = Engine::open(&home(), &options(Omission::Nothing, None)).unwrap();
    let best = Engine::open(&home(), &options(Omission::Quality(1.0), None)).unwrap();
    assert_eq!(best.reduced(), None);
    assert!(logits(&whole) == logits(&best));
}

#[test]
fn a_quality_leaves_out_the_most_layers_whose_measured_cost_it_allows() {
    for (quality, layers, kld) in [
        (0.95, vec![], None),
        (0.89, vec![3], Some(0.1)),
        // Without layers 3 and 4 alone it costs more than with layer 2 left out, too.
        (0.79, vec![2, 3, 4], Some(0.2)),
        (0.01, vec![2, 3, 4], Some(0.2)),
    ] {
        let engine = open_measured(Omission::Quality(quality)).unwrap();
        let reduced = engine.reduced().unwrap();
        assert_eq!(reduced.layers, layers, "{quality}");
        assert_eq!(reduced.layers_cost.map(|cost| cost.kld), kld, "{quality}");
        assert_eq!(engine.spec().left_out().collect::<Vec<_>>(), layers);
        assert_eq!(reduced.bytes_ratio < 1.0, !layers.is_empty(), "{quality}");
        let same = Engine::open(&home(), &options(Omission::Layers(layers), None)).unwrap();
        assert!(logits(&engine) == logits(&same), "{quality}");
    }
}

#[test]
fn a_quality_without_measurements_or_out_of_range_is_refused() {
    let error = Engine::open(&home(), &options(Omission::Quality(0.9), None)).unwrap_err();
    assert!(matches!(error, Error::Unmeasured { .. }), "{error}");
    assert!(error.to_string().contains("no measurements"), "{error}");
    for quality in [0.0, -1.0, 1.5, f32::NAN] {
        let error = open_measured(Omission::Quality(quality)).unwrap_err();
        assert!(matches!(error, Error::Quality(_)), "{error}");
    }
}

#[test]
fn measurements_that_do_not_fit_the_model_are_refused() {
    let refused = |change: fn(&mut Sensitivity), key: &str| {
        let mut wrong = measured();
        change(&mut wrong);
        let files = home_with(|w| wrong.write(w));
        let error = Engine::from_files("m", files, &options(Omission::Quality(0.9), None));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    };
    refused(|m| m.skip.truncate(6), "atta.sensitivity.skip is 6");
    refused(|m| m.layers[1].to = 3, "atta.sensitivity.layers is 3");
    refused(|m| m.layers[1].to = 1, "atta.sensitivity.layers is 1");
    refused(|m| m.layers[1].to = 700, "atta.sensitivity.layers is 700");
    refused(
        |m| m.layers[2].cost.kld = f32::NAN,
        "atta.sensitivity.layers.kld is NaN",
    );
    refused(
        |m| m.layers[2].cost.ppl_ratio = -1.0,
        "layers.ppl_ratio is -1",
    );
    refused(
        |m| m.experts = vec![step(1, 0.1)],
        "atta.sensitivity.experts",
    );
    let files = home_with(|w| {
        measured().write(w);
        w.remove("atta.sensitivity.layers.kld");
    });
    let error = Engine::from_files("m", files, &options(Omission::Quality(0.9), None));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("atta.sensitivity.layers.kld is missing"),
        "{error}"
    );
}

#[test]
fn measurements_are_read_as_they_were_written_and_can_be_removed() {
    let of = |files: &ModelFiles| {
        let metadata = files.directory().metadata();
        let spec = atta_engine::arch::lower(metadata).unwrap();
        Sensitivity::read(metadata, &spec).unwrap()
    };
    let files = home_with(|w| {
        measured().write(w);
        measured().write(w);
    });
    assert_eq!(of(&files), Some(measured()));
    let files = home_with(|w| {
        measured().write(w);
        Sensitivity::remove(w);
    });
    assert_eq!(of(&files), None);
    let mut keys = files.directory().metadata().iter().map(|(key, _)| key);
    assert!(keys.all(|key| !key.starts_with("atta.")));
}

#[test]
fn wherever_its_weights_are_a_model_in_part_gives_the_same_logits_and_takes_less() {
    let at = |layers: &[usize], weights| LoadOptions {
        weights: Some(weights),
        ram_budget: Some(256 << 20),
        ..options(Omission::Layers(layers.to_vec()), None)
    };
    let expected = logits(&Engine::open(&home(), &at(&[2, 4], WeightsAt::Mapped)).unwrap());
    for weights in [WeightsAt::Mapped, WeightsAt::Resident, WeightsAt::Streamed] {
        let options = at(&[2, 4], weights);
        let engine = Engine::open(&home(), &options).unwrap();
        assert!(logits(&engine) == expected, "{weights:?}");
        let part = MemoryPlan::of(&home(), &options).unwrap();
        let whole = MemoryPlan::of(&home(), &at(&[], weights)).unwrap();
        let bytes = |plan: &MemoryPlan, name| {
            let item = plan.items.iter().find(|item| item.name == name);
            item.map_or(0, |item| item.bytes)
        };
        assert_eq!(bytes(&part, "kv cache") * 7, bytes(&whole, "kv cache") * 5);
        assert!(part.token_bytes < whole.token_bytes);
        let weights_of = |plan| plan_weights(plan, bytes(plan, "pinned weights"));
        assert!(weights_of(&part) < weights_of(&whole), "{weights:?}");
    }
}

/// Bytes of weights, in memory or mapped.
fn plan_weights(plan: &MemoryPlan, pinned_bytes: u64) -> u64 {
    pinned_bytes + plan.mapped_bytes
}

#[test]
fn a_state_is_not_restored_where_other_layers_are_left_out() {
    let path = std::env::temp_dir().join(format!("atta-reduced-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    let cache = PromptCache::open(&path, u64::MAX).unwrap();
    let ids: Vec<u32> = (0..50).map(|i| 3 + i * 5).collect();
    let open = |layers: &[usize]| {
        Engine::open(&home(), &options(Omission::Layers(layers.to_vec()), None)).unwrap()
    };
    let saved = open(&[2]);
    let mut session = saved
        .session(&options(Omission::Nothing, None).session)
        .unwrap();
    session.append(&ids).unwrap();
    session.save(&cache).unwrap();
    for (layers, n) in [(&[2][..], 49), (&[3], 0), (&[], 0), (&[2, 3], 0)] {
        let engine = open(layers);
        let mut session = engine
            .session(&options(Omission::Nothing, None).session)
            .unwrap();
        let hit = session.restore(&cache, &ids).unwrap();
        assert_eq!(hit.n_tokens, n, "{layers:?}");
    }
    fs::remove_file(&path).unwrap();
}

#[test]
fn fewer_experts_have_their_measured_cost_or_none() {
    let path = golden("mixtral.gguf");
    let engine = Engine::open(&path, &options(Omission::Nothing, Some(1))).unwrap();
    let reduced = engine.reduced().unwrap();
    assert_eq!((reduced.n_experts, reduced.experts_cost), (Some(1), None));
    assert!(reduced.bytes_ratio < 1.0);
    let whole = Engine::open(&path, &options(Omission::Nothing, None)).unwrap();
    assert!(logits(&engine) != logits(&whole));
    for (path, n, what) in [
        (path, 3, "the number of experts is 3, expected 1 to 2"),
        (
            home(),
            1,
            "the number of experts is 1, but the model has no experts",
        ),
    ] {
        let error = Engine::open(&path, &options(Omission::Nothing, Some(n))).unwrap_err();
        assert!(error.to_string().ends_with(what), "{error}");
    }
}

#[test]
fn another_backend_runs_models_whole() {
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let elsewhere = |layers| LoadOptions {
        backend: Some(Arc::new(CpuBackend::new(Kernels::detect(), pool.clone()))),
        ..options(layers, None)
    };
    let error = Engine::open(&home(), &elsewhere(Omission::Layers(vec![3]))).unwrap_err();
    assert!(matches!(error, Error::ReducedElsewhere), "{error}");
    assert!(Engine::open(&home(), &elsewhere(Omission::Quality(1.0))).is_ok());
}
