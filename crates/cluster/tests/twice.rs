//! Texts that are computed a second time, and states that come from disks, of models with windows,
//! experts and recurrent states: the bits are those of one machine, and an audit of honest stages
//! finds nothing.

#[allow(dead_code, reason = "shared with other tests")]
mod disturbed;
mod scratch;
#[path = "../../model/tests/support/mod.rs"]
mod support;

use std::{fs, num::NonZeroUsize, sync::Arc};

use atta_cluster::{
    AuditLayers, AuditOptions, Cut, Ring, RingBackend, RingParts, RingPlan, StatesFolder,
    ThreadLane,
};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Batch, Cpu, Error, Executor, ExecutorSize, KvType, Model, Output, SeqId, Share, Want,
};
use atta_store::Budget;
use disturbed::{Flip, FlipAt};
use scratch::Scratch;
use support::{Golden, bits, cpu_with, golden, hybrid::hybrid_with_windows};

fn models() -> Vec<Golden> {
    let names = ["qwen3", "gemma3", "gpt-oss", "qwen35"];
    let models = names.into_iter().map(golden);
    models.chain([hybrid_with_windows()]).collect()
}

fn size() -> ExecutorSize {
    ExecutorSize {
        n_ctx: 128,
        n_seqs: 4,
        n_batch: 8,
        kv: KvType::F16,
        ..ExecutorSize::default()
    }
}

fn pool() -> Arc<Pool> {
    Arc::new(Pool::new(NonZeroUsize::MIN))
}

/// The first layer here, the others on at most two stages.
fn cut(model: &Model) -> RingPlan {
    let n = model.spec().layers.len();
    let middle = (n / 2).max(1);
    let stages = [1..middle, middle..n].into_iter().filter(|s| !s.is_empty());
    RingPlan {
        n_local: 1,
        stages: stages.collect(),
    }
}

/// The first layer here, the others on one stage.
fn other_cut(model: &Model) -> RingPlan {
    RingPlan {
        n_local: 1,
        stages: std::iter::once(1..model.spec().layers.len()).collect(),
    }
}

fn backend(model: &Model) -> RingBackend {
    backend_of(cut(model))
}

fn backend_of(plan: RingPlan) -> RingBackend {
    RingBackend::new(Kernels::detect(), pool(), NonZeroUsize::MIN, Cut::At(plan))
}

fn parts(model: &Arc<Model>) -> (ThreadLane, RingParts) {
    let opened = backend(model).parts(model, &size(), &Budget::unlimited());
    opened.unwrap()
}

/// All layers once more, for few sequences.
fn second(model: &Arc<Model>, n_seqs: usize) -> AuditLayers {
    let plan = cut(model);
    let executor = |layers: std::ops::Range<usize>, embed: bool| {
        let part = Some(Share {
            layers,
            embed,
            head: false,
        });
        let size = ExecutorSize {
            part,
            n_seqs,
            ..size()
        };
        let budget = Budget::unlimited();
        let cpu = Cpu::new(model.clone(), Kernels::detect(), pool(), &budget, size);
        Box::new(cpu.unwrap()) as Box<dyn Executor>
    };
    let stages = plan
        .stages
        .iter()
        .map(|layers| executor(layers.clone(), false));
    AuditLayers {
        executors: std::iter::once(executor(0..1, true))
            .chain(stages)
            .collect(),
        starts: (1..=plan.stages.len()).collect(),
        n_seqs,
    }
}

fn audited(model: &Arc<Model>, second: AuditLayers) -> Ring {
    let (lane, parts) = parts(model);
    let mut ring = Ring::new(parts, Box::new(lane)).unwrap();
    let options = AuditOptions {
        probability: 1.0,
        seed: 0,
        weights_bytes: 0,
    };
    ring.audit(options, Some(second));
    ring
}

/// Appends tokens in chunks; the logits of all of them.
fn append(executor: &mut dyn Executor, seq: SeqId, tokens: &[u32]) -> Result<Vec<u32>, Error> {
    let mut all = Vec::new();
    let mut out = Output::default();
    for chunk in tokens.chunks(5) {
        let pos = executor.seqs().len(seq)?;
        let mut batch = Batch::default();
        for (i, id) in chunk.iter().enumerate() {
            batch.push_token(seq, pos + i, *id, Want::Logits);
        }
        executor.step(&batch, &mut out)?;
        (0..chunk.len()).for_each(|i| all.extend(bits(out.logits(i))));
    }
    Ok(all)
}

/// Texts of several sequences in turn, with forks and cut ends.
fn texts(executor: &mut dyn Executor, tokens: &[u32]) -> Result<Vec<u32>, Error> {
    let half = tokens.len() / 2;
    let mut all = Vec::new();
    let seq = executor.new_seq()?;
    all.extend(append(executor, seq, &tokens[..half])?);
    let fork = executor.fork(seq)?;
    all.extend(append(executor, seq, &tokens[half..])?);
    let left = executor.truncate(fork, half - 2)?;
    all.extend(append(executor, fork, &tokens[left..half])?);
    let other = executor.new_seq()?;
    all.extend(append(executor, other, &tokens[1..half])?);
    executor.drop_seq(fork)?;
    all.extend(append(executor, seq, &tokens[..3])?);
    all.extend(append(executor, other, &tokens[..4])?);
    Ok(all)
}

#[test]
fn audits_of_every_kind_of_layer_find_nothing_and_change_no_bit() {
    for g in models() {
        let model = g.model();
        let tokens = &g.tokens[..g.tokens.len().min(24)];
        let mut cpu = cpu_with(&model, 1, size());
        let expected = texts(&mut cpu, tokens).unwrap();
        // With room for one sequence it is computed from its beginning again and again.
        for n_seqs in [4, 1] {
            let mut ring = audited(&model, second(&model, n_seqs));
            let got = texts(&mut ring, tokens).unwrap();
            let counts = ring.audit_counts();
            assert!(got == expected, "{}", g.name);
            assert_eq!((counts.n_drawn, counts.n_faults), (3, 0), "{}", g.name);
            assert!(counts.n_rows as usize > tokens.len(), "{counts:?}");
        }
    }
}

#[test]
fn without_other_machines_a_fault_is_an_error_that_names_the_stage_or_this_machine() {
    let g = golden("qwen3");
    let model = g.model();
    let n_stages = cut(&model).stages.len();
    let last = format!("stage {n_stages} computed other rows");
    // The second computation is wrong in its last stage, or in its first layer.
    for (at, said) in [(n_stages, &last[..]), (0, "its own layers twice")] {
        let mut layers = second(&model, 4);
        let inner = layers.executors.remove(at);
        let flip = FlipAt::once(1);
        layers.executors.insert(at, Box::new(Flip { inner, flip }));
        let mut ring = audited(&model, layers);
        let error = texts(&mut ring, &g.tokens).unwrap_err();
        let is_named = matches!(&error, Error::Lost(why) if why.contains(said));
        assert!(is_named, "{error}");
    }
}

#[test]
fn states_of_every_kind_of_layer_are_saved_and_loaded() {
    let scratch = Scratch::new("states");
    for (id, g) in models().into_iter().enumerate() {
        let model = g.model();
        let folder = StatesFolder {
            directory: scratch.path().to_owned(),
            budget_bytes: 1 << 30,
        };
        let ring = |plan: RingPlan| {
            let backend = backend_of(plan).keep_states(folder.clone(), [id as u8; 32]);
            let opened = backend.parts(&model, &size(), &Budget::unlimited());
            let (lane, parts) = opened.unwrap();
            let mut ring = Ring::new(parts, Box::new(lane)).unwrap();
            ring.keep_states_in(folder.clone(), [id as u8; 32]);
            ring
        };
        let tokens: Vec<u32> = g.tokens.iter().cycle().take(70).copied().collect();
        let (before, after) = tokens.split_at(50);
        let mut cpu = cpu_with(&model, 1, size());
        let seq = cpu.new_seq().unwrap();
        append(&mut cpu, seq, before).unwrap();
        let expected = append(&mut cpu, seq, after).unwrap();

        let mut first = ring(cut(&model));
        let seq = first.new_seq().unwrap();
        let mut receipts = Vec::new();
        append(&mut first, seq, &before[..20]).unwrap();
        let mut receipt = Vec::new();
        first.export(seq, 0..20, &mut receipt).unwrap();
        receipts.push((receipt, 20));
        append(&mut first, seq, &before[20..]).unwrap();
        let mut receipt = Vec::new();
        first.export(seq, 20..50, &mut receipt).unwrap();
        receipts.push((receipt, 30));
        // All that callers asked for is saved before the ring ends.
        drop(first);

        // Other places have other layers.
        let mut second = ring(other_cut(&model));
        let seq = second.new_seq().unwrap();
        for (receipt, n) in &receipts {
            second.append_state(seq, receipt, *n).unwrap();
        }
        let left = second.truncate(seq, 50).unwrap();
        let rest = append(&mut second, seq, &tokens[left..]).unwrap();
        assert!(rest.ends_with(&expected), "{}: {left} left", g.name);
        assert!(left == 50, "{}: {left} left", g.name);
        assert_eq!(second.counts().n_rebuilds, 0, "{}", g.name);

        // Without their files the state is refused, and the sequence is as before.
        fs::remove_dir_all(scratch.path()).unwrap();
        let seq = second.new_seq().unwrap();
        let error = second.append_state(seq, &receipts[0].0, 20).unwrap_err();
        assert!(matches!(error, Error::State(_)), "{error}");
        assert_eq!(second.seqs().len(seq).unwrap(), 0);
        let again = append(&mut second, seq, &tokens).unwrap();
        assert!(again.ends_with(&expected), "{}", g.name);
    }
}
