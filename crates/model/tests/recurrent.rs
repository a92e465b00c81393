//! Recurrent layers: sequences return to checkpoints, and are never continued from a wrong state.

mod support;

use std::{num::NonZeroUsize, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Batch, CpuBackend, Error, Executor, ExecutorSize, KvType, Model, Output, SeqId, Want,
    oracle, seqs::CHECKPOINT_LEN,
};
use atta_store::Budget;
use support::{
    Golden, bits, forward,
    hybrid::{hybrid_with_windows, hybrids},
    nmse, tokens,
};

const N_CTX: usize = 640;

fn open(model: &Arc<Model>, n_threads: usize, n_batch: usize) -> Box<dyn Executor> {
    let size = ExecutorSize {
        n_ctx: N_CTX,
        n_seqs: 6,
        n_batch,
        kv: KvType::F32,
        ..ExecutorSize::default()
    };
    let pool = Arc::new(Pool::new(NonZeroUsize::new(n_threads).unwrap()));
    let backend: Box<dyn Backend> = Box::new(CpuBackend::new(Kernels::detect(), pool));
    backend
        .open(Arc::clone(model), &size, &Budget::unlimited())
        .unwrap()
}

/// A batch of tokens that go on with a sequence, with a checkpoint behind `asked` positions.
fn batch_of(executor: &dyn Executor, seq: SeqId, ids: &[u32], asked: Option<usize>) -> Batch {
    let mut batch = Batch::default();
    let pos = executor.seqs().len(seq).unwrap();
    for (&id, pos) in ids.iter().zip(pos..) {
        batch.push_token(seq, pos, id, Want::Logits);
        if asked == Some(pos + 1) {
            batch.mark_checkpoint();
        }
    }
    batch
}

/// Appends tokens in chunks; the bits of the logits of all of them.
fn append(executor: &mut dyn Executor, seq: SeqId, ids: &[u32], n_batch: usize) -> Vec<u32> {
    let mut out = Output::default();
    let mut logits = Vec::new();
    for chunk in ids.chunks(n_batch) {
        let batch = batch_of(executor, seq, chunk, None);
        let ticket = executor.submit(&batch).unwrap();
        executor.collect(ticket, &mut out).unwrap();
        (0..chunk.len()).for_each(|i| logits.extend_from_slice(out.logits(i)));
    }
    bits(&logits)
}

/// The bits of the logits of a text, each row of them.
struct Expected {
    bits: Vec<u32>,
    n_vocab: usize,
}

impl Expected {
    fn of(model: &Arc<Model>, ids: &[u32]) -> Self {
        let mut executor = open(model, 1, N_CTX);
        let seq = executor.new_seq().unwrap();
        Self {
            bits: append(executor.as_mut(), seq, ids, N_CTX),
            n_vocab: model.spec().n_vocab,
        }
    }

    fn from(&self, pos: usize) -> &[u32] {
        &self.bits[pos * self.n_vocab..]
    }
}

#[test]
fn the_forward_pass_agrees_with_the_oracle() {
    for g in hybrids() {
        let model = g.model();
        let expected = oracle::logits(&model, &g.tokens).unwrap();
        let nmse = nmse(&forward(&model, &g.tokens), &expected);
        assert!(nmse <= 1e-10, "{}: nmse {nmse:e}", g.name);
    }
}

#[test]
fn every_part_of_a_short_convolution_is_computed() {
    use atta_model::spec::Mixer;
    let g = hybrid_with_windows();
    let expected = forward(&g.model(), &g.tokens);
    for l in [0, 2, 4] {
        let mut spec = g.model().spec().clone();
        let Mixer::ShortConv(conv) = &mut spec.layers[l].mixer else {
            panic!("layer {l} is recurrent");
        };
        conv.n_taps += 1;
        assert!(g.with_spec(spec.clone()).is_err(), "the taps have a shape");
        conv_to_attention(&mut spec, l);
        assert!(g.with_spec(spec).is_err(), "layer {l} is no attention");
    }
    // An earlier token reaches a later one through the convolutions alone.
    let model = hybrids().pop().unwrap().model();
    let mut other = g.tokens[..4].to_vec();
    other[0] ^= 1;
    let [a, b] = [&g.tokens[..4], &other].map(|ids| forward(&model, ids));
    assert_ne!(a[3 * model.spec().n_vocab..], b[3 * model.spec().n_vocab..]);
    assert!(expected.iter().all(|z| z.is_finite()));
}

/// Replaces the mixer of a layer by the attention of another.
fn conv_to_attention(spec: &mut atta_model::spec::ModelSpec, l: usize) {
    spec.layers[l].mixer = spec.layers[1].mixer.clone();
}

#[test]
fn ragged_chunks_and_threads_do_not_change_a_bit() {
    for g in hybrids() {
        let model = g.model();
        let ids = tokens(&model, 300);
        let expected = Expected::of(&model, &ids);
        for (n_threads, n_batch) in [(1, 1), (2, 127), (3, 129), (1, 100), (2, 300)] {
            let mut executor = open(&model, n_threads, n_batch);
            let seq = executor.new_seq().unwrap();
            let got = append(executor.as_mut(), seq, &ids, n_batch);
            assert!(
                got == expected.bits,
                "{}: -j {n_threads} --batch {n_batch}",
                g.name
            );
        }
    }
}

#[test]
fn a_truncated_sequence_goes_on_from_the_nearest_checkpoint() {
    for g in hybrids() {
        let model = g.model();
        let ids = tokens(&model, 400);
        let expected = Expected::of(&model, &ids);
        let mut executor = open(&model, 2, 512);
        let trunk = executor.new_seq().unwrap();
        let prompt = batch_of(executor.as_ref(), trunk, &ids[..300], Some(299));
        let mut out = Output::default();
        executor.step(&prompt, &mut out).unwrap();
        append(executor.as_mut(), trunk, &ids[300..], 1);
        // The end, the batch before it, the checkpoint that was asked for, the multiples of 128.
        for (n, left) in [
            (400, 400),
            (399, 399),
            (398, 384),
            (310, 299),
            (298, 256),
            (140, 128),
        ] {
            assert_eq!(executor.seqs().keeps(trunk, n).unwrap(), left);
            let fork = executor.fork(trunk).unwrap();
            assert_eq!(executor.truncate(fork, n).unwrap(), left, "{}", g.name);
            let got = append(executor.as_mut(), fork, &ids[left..], 33);
            assert!(got == expected.from(left), "{}: behind {left}", g.name);
            executor.drop_seq(fork).unwrap();
        }
        assert_eq!(executor.truncate(trunk, 100).unwrap(), 0);
        assert!(append(executor.as_mut(), trunk, &ids, 77) == expected.bits);
    }
}

#[test]
fn checkpoints_are_limited_and_spread_over_the_text() {
    let model = hybrids().pop().unwrap().model();
    let ids = tokens(&model, N_CTX);
    let mut executor = open(&model, 1, 64);
    let seq = executor.new_seq().unwrap();
    append(executor.as_mut(), seq, &ids, 64);
    let kept: Vec<usize> = (1..N_CTX)
        .filter(|&n| executor.seqs().keeps(seq, n).unwrap() == n)
        .collect();
    // All four multiples of 128, and the end of the batch before the last.
    assert_eq!(kept, [128, 256, 384, 512, 576]);
    assert_eq!(kept.len(), 1 + ExecutorSize::default().n_checkpoints);
    assert_eq!(kept[0], CHECKPOINT_LEN);
}

#[test]
fn forks_share_states_and_go_their_own_ways() {
    let g = hybrid_with_windows();
    let model = g.model();
    let ids = tokens(&model, 200);
    let expected = Expected::of(&model, &ids);
    let mut executor = open(&model, 2, 200);
    let trunk = executor.new_seq().unwrap();
    append(executor.as_mut(), trunk, &ids[..150], 64);
    let forks: Vec<SeqId> = (0..5).map(|_| executor.fork(trunk).unwrap()).collect();
    for (i, &fork) in forks.iter().enumerate() {
        let other: Vec<u32> = ids.iter().rev().copied().take(40).collect();
        append(executor.as_mut(), fork, &other, 1 + 8 * i);
    }
    let got = append(executor.as_mut(), trunk, &ids[150..], 7);
    assert!(got == expected.from(150));
    // What the forks dropped is still there for the trunk, and the other way round.
    forks
        .iter()
        .for_each(|&fork| executor.drop_seq(fork).unwrap());
    assert_eq!(executor.truncate(trunk, 130).unwrap(), 128);
    assert!(append(executor.as_mut(), trunk, &ids[128..], 19) == expected.from(128));
}

fn export(executor: &dyn Executor, seq: SeqId, start: usize, end: usize) -> Vec<u8> {
    let mut state = Vec::new();
    executor.export(seq, start..end, &mut state).unwrap();
    state
}

#[test]
fn an_exported_state_has_its_checkpoints() {
    for g in hybrids() {
        let model = g.model();
        let ids = tokens(&model, 320);
        let expected = Expected::of(&model, &ids);
        let mut here = open(&model, 1, 512);
        let seq = here.new_seq().unwrap();
        append(here.as_mut(), seq, &ids[..300], 300);
        let parts = [(0, 128), (128, 200), (200, 300)];
        let states = parts.map(|(start, end)| export(here.as_ref(), seq, start, end));
        let mut there = open(&model, 1, 512);
        let moved = there.new_seq().unwrap();
        there.append_state(moved, &states[0], 128).unwrap();
        assert_eq!(there.seqs().keeps(moved, 128).unwrap(), 128);
        there.append_state(moved, &states[1], 72).unwrap();
        // No batch ended at position 200.
        let batch = batch_of(there.as_ref(), moved, &ids[200..201], None);
        assert!(matches!(there.submit(&batch), Err(Error::State(_))));
        there.append_state(moved, &states[2], 100).unwrap();
        for left in [300, 256, 128] {
            assert_eq!(
                there.truncate(moved, left + 20).unwrap(),
                left,
                "{}",
                g.name
            );
            let got = append(there.as_mut(), moved, &ids[left..], 11);
            assert!(got == expected.from(left), "{}: behind {left}", g.name);
        }
        let in_part = there.new_seq().unwrap();
        let whole = export(here.as_ref(), seq, 0, 300);
        there.append_state(in_part, &whole, 290).unwrap();
        assert_eq!(there.truncate(in_part, 290).unwrap(), 256);
        assert!(append(there.as_mut(), in_part, &ids[256..], 64) == expected.from(256));
    }
}

#[test]
fn a_damaged_state_with_checkpoints_is_refused() {
    let model = hybrid_with_windows().model();
    let mut executor = open(&model, 1, 512);
    let seq = executor.new_seq().unwrap();
    append(executor.as_mut(), seq, &tokens(&model, 150), 150);
    let state = export(executor.as_ref(), seq, 0, 150);
    let n_header = 28 + 20 * model.spec().layers.len() + 4 + 2 * 4;
    let other = executor.new_seq().unwrap();
    for cut in (0..n_header).chain([state.len() - 1]) {
        let refused = executor.append_state(other, &state[..cut], 0);
        assert!(matches!(refused, Err(Error::State(_))), "cut to {cut}");
    }
    for byte in 0..n_header - 8 {
        let mut bad = state.clone();
        bad[byte] ^= 1;
        assert!(executor.append_state(other, &bad, 150).is_err(), "{byte}");
    }
    for position in [0, 128, 151, u32::MAX] {
        let mut bad = state.clone();
        bad[n_header - 4..n_header].copy_from_slice(&position.to_le_bytes());
        assert!(executor.append_state(other, &bad, 150).is_err());
    }
    assert_eq!(executor.seqs().len(other).unwrap(), 0);
}

#[test]
fn a_refused_batch_leaves_the_state_as_it_was() {
    for g in hybrids() {
        let model = g.model();
        let ids = tokens(&model, 60);
        let expected = Expected::of(&model, &ids);
        let mut executor = open(&model, 1, 64);
        let seq = executor.new_seq().unwrap();
        append(executor.as_mut(), seq, &ids[..40], 40);
        let mut batch = batch_of(executor.as_ref(), seq, &ids[40..50], None);
        batch.push_token(seq, 50, u32::MAX, Want::Nothing);
        assert!(matches!(executor.submit(&batch), Err(Error::Token { .. })));
        assert_eq!(executor.seqs().len(seq).unwrap(), 40);
        assert!(append(executor.as_mut(), seq, &ids[40..], 3) == expected.from(40));
    }
}

#[test]
fn a_context_of_recurrent_layers_is_never_shifted() {
    let model = hybrid_with_windows().model();
    let size = ExecutorSize {
        n_recent: Some(32),
        ..ExecutorSize::default()
    };
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let backend = CpuBackend::new(Kernels::detect(), pool);
    let opened = backend.open(Arc::clone(&model), &size, &Budget::unlimited());
    assert!(matches!(opened.err(), Some(Error::NoShift(_))));
    let mut executor = open(&model, 1, 64);
    let seq = executor.new_seq().unwrap();
    append(executor.as_mut(), seq, &tokens(&model, 64), 64);
    assert!(matches!(executor.shift(seq, 0..32), Err(Error::NoShift(_))));
}

#[test]
fn an_embedding_takes_the_place_of_a_token() {
    for name in ["gemma", "gpt2", "qwen3"] {
        let g = support::golden(name);
        let model = g.model();
        let embedded = embeddings(&g);
        let mut executor = support::cpu(&model, 1, KvType::F32);
        let [tokens, mixed] = [executor.new_seq().unwrap(), executor.new_seq().unwrap()];
        let expected = append(&mut executor, tokens, &g.tokens, 64);
        let mut batch = Batch::default();
        let mut out = Output::default();
        for (pos, &id) in g.tokens.iter().enumerate() {
            match pos % 3 {
                0 => batch.push_token(mixed, pos, id, Want::Logits),
                _ => batch.push_embedding(mixed, pos, &embedded[pos], Want::Logits),
            }
        }
        executor.step(&batch, &mut out).unwrap();
        let rows = 0..g.tokens.len();
        let got: Vec<f32> = rows.flat_map(|i| out.logits(i).to_vec()).collect();
        assert!(bits(&got) == expected, "{name}");
    }
}

/// The scaled embeddings of the tokens of a tiny model, which are in f32.
fn embeddings(g: &Golden) -> Vec<Vec<f32>> {
    let files = g.files();
    let model = g.model();
    let info = files.directory().tensor("token_embd.weight").unwrap();
    let bytes = g.bytes();
    let d = model.spec().d_model;
    let row = |id: u32| {
        let at = info.offset as usize + 4 * d * id as usize;
        let floats = bytes[at..at + 4 * d].as_chunks().0.iter();
        floats
            .map(|&x| f32::from_le_bytes(x) * model.spec().embed_scale)
            .collect()
    };
    g.tokens.iter().map(|&id| row(id)).collect()
}
