//! A ring computes the bits of one machine: of every tiny model that can be cut, whatever the cut.

mod own_types;
#[path = "../../model/tests/support/mod.rs"]
mod support;

use std::{num::NonZeroUsize, sync::Arc};

use atta_cluster::{Cut, RingBackend, RingPlan};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Batch, Error, Executor, ExecutorSize, KvType, Model, Output, SeqId, Want,
};
use atta_store::{Budget, ModelFiles};
use own_types::OwnTypes;
use support::{
    Golden, append, bits, cpu_with, encoders, golden, goldens,
    hybrid::{deep, hybrids},
};

const N_CTX: usize = 128;

fn size(kv: KvType, n_batch: usize) -> ExecutorSize {
    ExecutorSize {
        n_ctx: N_CTX,
        n_seqs: 4,
        n_batch,
        kv,
        ..ExecutorSize::default()
    }
}

fn backend(cut: Cut) -> RingBackend {
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    RingBackend::new(Kernels::detect(), pool, NonZeroUsize::MIN, cut)
}

fn open(model: &Arc<Model>, cut: Cut, size: &ExecutorSize) -> Result<Box<dyn Executor>, Error> {
    backend(cut).open(model.clone(), size, &Budget::unlimited())
}

fn even(n: usize) -> Cut {
    Cut::Even(NonZeroUsize::new(n).unwrap())
}

/// The first `n_local` layers at the coordinator, the others in so many stages.
fn behind(n_local: usize, n_stages: usize, n_layers: usize) -> Cut {
    let rest = n_layers - n_local;
    let at = |i: usize| n_local + i * rest / n_stages;
    Cut::At(RingPlan {
        n_local,
        stages: (0..n_stages).map(|i| at(i)..at(i + 1)).collect(),
    })
}

/// Appends tokens of a sequence in chunks of ragged sizes, as many in flight as may be; the logits
/// of all of them.
fn append_ragged(ring: &mut dyn Executor, seq: SeqId, tokens: &[u32], first: usize) -> Vec<f32> {
    let n_batch = ring.info().n_batch;
    let mut flights = std::collections::VecDeque::new();
    let mut logits = Vec::new();
    let mut out = Output::default();
    let mut rest = tokens;
    let mut n = first;
    while !rest.is_empty() || !flights.is_empty() {
        if !rest.is_empty() && flights.len() < ring.depth() {
            let (chunk, after) = rest.split_at(n.min(rest.len()).min(n_batch));
            let pos = ring.seqs().len(seq).unwrap();
            let mut batch = Batch::default();
            for (i, &id) in chunk.iter().enumerate() {
                batch.push_token(seq, pos + i, id, Want::Logits);
            }
            flights.push_back((ring.submit(&batch).unwrap(), chunk.len()));
            (rest, n) = (after, n % 4 + 2);
            continue;
        }
        let (ticket, n_rows) = flights.pop_front().unwrap();
        ring.collect(ticket, &mut out).unwrap();
        (0..n_rows).for_each(|i| logits.extend_from_slice(out.logits(i)));
    }
    logits
}

/// Ragged chunks in flight, a fork, both in one batch, a truncation, a dropped sequence.
fn check(g: &Golden, model: &Arc<Model>, kv: KvType, cut: &Cut) {
    let n_vocab = model.spec().n_vocab;
    let half = g.tokens.len() / 2;
    let other = [&g.tokens[..half], &g.tokens[..half]].concat();
    let alone = |tokens: &[u32]| {
        let mut cpu = cpu_with(model, 1, size(kv, N_CTX));
        let seq = cpu.new_seq().unwrap();
        bits(&append(&mut cpu, seq, tokens, tokens.len()))
    };
    let [expected, forked] = [alone(&g.tokens), alone(&other)];
    let what = format!("{} {kv:?} {cut:?}", g.name);
    let mut ring = open(model, cut.clone(), &size(kv, 32)).unwrap();
    let trunk = ring.new_seq().unwrap();
    let got = append_ragged(ring.as_mut(), trunk, &g.tokens[..half], 1);
    assert!(bits(&got) == expected[..half * n_vocab], "{what}");
    let fork = ring.fork(trunk).unwrap();
    let mut batch = Batch::default();
    for (i, &id) in g.tokens[half..].iter().take(8).enumerate() {
        batch.push_token(trunk, half + i, id, Want::Logits);
        batch.push_token(fork, half + i, other[half + i], Want::Nothing);
    }
    let mut out = Output::default();
    ring.step(&batch, &mut out).unwrap();
    for i in 0..batch.rows.len() / 2 {
        let at = (half + i) * n_vocab;
        assert!(
            bits(out.logits(2 * i)) == expected[at..at + n_vocab],
            "{what}: {i} beside the fork"
        );
    }
    let n = ring.seqs().len(fork).unwrap();
    let got = append_ragged(ring.as_mut(), fork, &other[n..], 3);
    assert!(bits(&got) == forked[n * n_vocab..], "{what}: the fork");
    ring.drop_seq(fork).unwrap();
    let left = ring.truncate(trunk, half - 1).unwrap();
    let got = append_ragged(ring.as_mut(), trunk, &g.tokens[left..], 2);
    assert!(
        bits(&got) == expected[left * n_vocab..],
        "{what}: behind {left}"
    );
}

/// Whether layers look up tokens, so that they cannot be apart from the embedding.
fn has_ngrams(model: &Model) -> bool {
    model.spec().ngrams().is_some()
}

#[test]
fn every_model_that_can_be_cut_has_the_bits_of_one_machine() {
    for g in goldens()
        .into_iter()
        .chain(hybrids())
        .filter(Golden::is_separable)
    {
        let model = g.model();
        let n = model.spec().layers.len();
        let first = usize::from(has_ngrams(&model));
        for n_stages in [1, 2, 3, 5, 6].into_iter().filter(|i| first + i <= n) {
            check(&g, &model, KvType::F32, &behind(first, n_stages, n));
        }
        if n > 1 {
            check(&g, &model, KvType::F16, &behind(1, 1, n));
        }
    }
}

#[test]
fn sixteen_stages_and_quantized_states() {
    for g in deep() {
        let model = g.model();
        let n = model.spec().layers.len();
        for kv in [KvType::F16, KvType::Q8, KvType::Q4] {
            check(&g, &model, kv, &even(16));
            check(&g, &model, kv, &behind(3, 5, n));
        }
    }
}

#[test]
fn experts_windows_and_recurrent_states_with_quantized_keys() {
    for name in ["qwen3moe", "gpt-oss", "gemma3", "qwen35", "falcon-h1"] {
        let g = golden(name);
        let model = g.model();
        let n = model.spec().layers.len();
        for kv in [KvType::Q8, KvType::Q4] {
            check(&g, &model, kv, &even(2));
            check(&g, &model, kv, &even(n));
        }
    }
}

#[test]
fn models_that_cannot_be_cut_say_why() {
    let mut n_refused = 0;
    for g in goldens() {
        let model = g.model();
        let n = model.spec().layers.len();
        if n == 1 {
            continue;
        }
        let cut = open(&model, even(2), &size(KvType::F32, 16));
        let can = g.is_separable() && !has_ngrams(&model);
        assert_eq!(cut.is_ok(), can, "{}", g.name);
        if let Err(error) = cut {
            n_refused += 1;
            let error = error.to_string();
            assert!(error.contains("of a model"), "{}: {error}", g.name);
        }
    }
    assert!(n_refused > 2, "{n_refused}");
    for g in encoders() {
        let error = open(&g.model(), even(1), &size(KvType::F32, 16))
            .err()
            .unwrap();
        assert!(error.to_string().contains("encoder"), "{}: {error}", g.name);
    }
    let model = golden("llama-plain").model();
    let n = model.spec().layers.len();
    for cut in [even(n + 1), behind(0, 1, n + 1), behind(n, 1, n)] {
        let error = open(&model, cut, &size(KvType::F32, 16)).err().unwrap();
        assert!(error.to_string().contains("stages of a model"), "{error}");
    }
}

#[test]
fn a_shifted_context_has_the_bits_of_one_machine() {
    let g = golden("llama3-rope");
    let model = g.model();
    let n = model.spec().layers.len();
    let shifting = ExecutorSize {
        n_recent: Some(32),
        n_ctx: 96,
        ..size(KvType::F16, 32)
    };
    let tokens: Vec<u32> = g.tokens.iter().cycle().take(120).copied().collect();
    let run = |executor: &mut dyn Executor| {
        let seq = executor.new_seq().unwrap();
        let mut logits = append_ragged(executor, seq, &tokens[..90], 5);
        executor.shift(seq, 4..36).unwrap();
        logits.extend(append_ragged(executor, seq, &tokens[90..], 3));
        bits(&logits)
    };
    let expected = run(&mut cpu_with(&model, 1, shifting.clone()));
    let mut ring = open(&model, even(n), &shifting).unwrap();
    assert!(run(ring.as_mut()) == expected);
}

#[test]
fn refusals_change_nothing() {
    let g = golden("qwen3");
    let model = g.model();
    let mut ring = open(&model, even(2), &size(KvType::F32, 16)).unwrap();
    let seq = ring.new_seq().unwrap();
    append_ragged(ring.as_mut(), seq, &g.tokens[..3], 1);
    let batch = |rows: &[(usize, u32)]| {
        let mut batch = Batch::default();
        rows.iter()
            .for_each(|&(pos, id)| batch.push_token(seq, pos, id, Want::Logits));
        batch
    };
    let mut hidden = Batch::default();
    hidden.push_hidden(seq, 3, &vec![0.0; model.spec().d_model], Want::Logits);
    let too_many: Vec<_> = (3..20).map(|pos| (pos, 1)).collect();
    for refused in [
        batch(&[(3, 1), (5, 1)]),
        batch(&[(2, 1)]),
        batch(&[(3, 1), (4, u32::MAX)]),
        batch(&too_many),
        hidden,
    ] {
        assert!(ring.submit(&refused).is_err());
        assert_eq!(ring.seqs().len(seq).unwrap(), 3);
    }
    let both = [(3, g.tokens[3]), (4, g.tokens[4])];
    let ticket = ring.submit(&batch(&both)).unwrap();
    assert!(matches!(ring.truncate(seq, 4), Err(Error::Busy)));
    assert!(matches!(ring.drop_seq(seq), Err(Error::Busy)));
    let second = ring.submit(&batch(&[(5, g.tokens[5])])).unwrap();
    assert!(matches!(ring.submit(&batch(&[(6, 1)])), Err(Error::Busy)));
    let mut out = Output::default();
    assert!(matches!(
        ring.collect(second, &mut out),
        Err(Error::Ticket(_))
    ));
    ring.collect(ticket, &mut out).unwrap();
    assert!(ring.export(seq, 0..1, &mut Vec::new()).is_err());
}

#[test]
fn models_in_t3_with_mean_rows_apart_have_the_bits_of_one_machine() {
    let both = ["token_embd.mean", "output.mean"];
    for (name, means) in [("llama-yarn", &both[..]), ("smollm3", &both[..1])] {
        let file = OwnTypes::new(name, means);
        let files = ModelFiles::open(file.path()).unwrap();
        let model = Arc::new(Model::load(files, &Budget::unlimited()).unwrap());
        let n = model.spec().layers.len();
        let g = golden(name);
        for cut in [even(1), even(n), behind(1, n - 1, n)] {
            check(&g, &model, KvType::F16, &cut);
        }
    }
}
