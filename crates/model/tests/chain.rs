//! Chains: executors of layers that follow each other answer as one executor of all layers.

mod support;

use std::sync::Arc;

use atta_model::{
    Batch, Chain, Error, Executor, ExecutorSize, KvType, Model, Output, SeqId, Share, Want,
};
use atta_store::Budget;
use support::{Golden, bits, cpu_with, golden, some_goldens, tokens};

fn size() -> ExecutorSize {
    ExecutorSize {
        n_ctx: 128,
        n_seqs: 4,
        n_batch: 16,
        kv: KvType::F16,
        ..ExecutorSize::default()
    }
}

/// Executors of the embedding and the layers before `cut`, and of the rest.
fn chain(model: &Arc<Model>, cut: usize, size: &ExecutorSize) -> Chain {
    let spec = model.spec();
    let n_layers = spec.layers.len();
    let first = Share {
        layers: 0..cut,
        embed: true,
        head: false,
    };
    let last = Share {
        layers: cut..n_layers,
        embed: false,
        head: true,
    };
    let part = |share| -> Box<dyn Executor> {
        let size = ExecutorSize {
            part: Some(share),
            ..size.clone()
        };
        Box::new(cpu_with(model, 1, size))
    };
    let parts = [first, last].map(part).into();
    let spec = Arc::new(spec.clone());
    Chain::new(spec, size, parts, &Budget::unlimited()).unwrap()
}

fn append(executor: &mut dyn Executor, seq: SeqId, ids: &[u32], n_batch: usize) -> Vec<u32> {
    let mut batch = Batch::default();
    let mut out = Output::default();
    let mut logits = Vec::new();
    for chunk in ids.chunks(n_batch) {
        batch.clear();
        let pos = executor.seqs().len(seq).unwrap();
        let rows = chunk.iter().zip(pos..);
        rows.for_each(|(&id, pos)| batch.push_token(seq, pos, id, Want::Logits));
        executor.step(&batch, &mut out).unwrap();
        (0..chunk.len()).for_each(|i| logits.extend(bits(out.logits(i))));
    }
    logits
}

fn export(executor: &dyn Executor, seq: SeqId, n: usize) -> Vec<u8> {
    let mut state = Vec::new();
    executor.export(seq, 0..n, &mut state).unwrap();
    state
}

/// The goldens whose layers can be cut anywhere.
fn separable_goldens() -> impl Iterator<Item = Golden> {
    some_goldens().into_iter().filter(Golden::is_separable)
}

#[test]
fn a_chain_computes_the_bits_of_one_executor_at_every_cut() {
    for g in separable_goldens() {
        let model = g.model();
        let ids = &g.tokens[..g.tokens.len().min(8)];
        let mut whole = cpu_with(&model, 1, size());
        let seq = whole.new_seq().unwrap();
        let expected = append(&mut whole, seq, ids, 16);
        for cut in 0..model.spec().layers.len() {
            let mut chain = chain(&model, cut, &size());
            let seq = chain.new_seq().unwrap();
            let got = append(&mut chain, seq, ids, 3);
            assert!(got == expected, "{} cut at {cut}", g.name);
        }
    }
}

#[test]
fn embeddings_in_every_layer_pass_from_part_to_part() {
    let model = golden("gemma4").model();
    let spec = model.spec();
    let ids = tokens(&model, 20);
    let mut whole = cpu_with(&model, 1, size());
    let seq = whole.new_seq().unwrap();
    let expected = append(&mut whole, seq, &ids, 16);
    // Layers that read keys and values of earlier ones stay with them.
    let cuts: Vec<usize> = (0..spec.layers.len())
        .filter(|&l| spec.may_cut_before(l))
        .collect();
    assert!(cuts.starts_with(&[0, 1]), "{cuts:?}");
    for cut in cuts {
        let mut chain = chain(&model, cut, &size());
        let seq = chain.new_seq().unwrap();
        let got = append(&mut chain, seq, &ids, 3);
        assert!(got == expected, "cut at {cut}");
    }
}

#[test]
fn states_are_those_of_one_executor_and_move_both_ways() {
    let names = [
        "llama-plain",
        "gemma3",
        "qwen3",
        "jamba",
        "mamba",
        "falcon-h1",
        "qwen35",
    ];
    for name in names {
        let model = golden(name).model();
        for cut in 0..model.spec().layers.len() {
            move_both_ways(&model, cut, &format!("{name} cut at {cut}"));
        }
    }
}

fn move_both_ways(model: &Arc<Model>, cut: usize, what: &str) {
    let ids = tokens(model, 40);
    let mut whole = cpu_with(model, 1, size());
    let mut parts = chain(model, cut, &size());
    let [a, b] = [whole.new_seq().unwrap(), parts.new_seq().unwrap()];
    append(&mut whole, a, &ids, 16);
    append(&mut parts, b, &ids, 16);
    let state = export(&whole, a, 40);
    assert!(state == export(&parts, b, 40), "{what}");
    let [c, d] = [whole.new_seq().unwrap(), parts.new_seq().unwrap()];
    whole.append_state(c, &state, 40).unwrap();
    parts.append_state(d, &state, 40).unwrap();
    let more = tokens(model, 5);
    let expected = append(&mut whole, c, &more, 16);
    assert!(append(&mut parts, d, &more, 16) == expected, "{what}");
    let kept = whole.truncate(c, 36).unwrap();
    assert_eq!(parts.truncate(d, 36).unwrap(), kept, "{what}");
    let expected = append(&mut whole, c, &more, 16);
    assert!(append(&mut parts, d, &more, 16) == expected, "{what}");
}

#[test]
fn a_state_that_is_cut_anywhere_is_refused_and_changes_nothing() {
    for name in ["llama-plain", "jamba"] {
        let model = golden(name).model();
        let mut chain = chain(&model, 1, &size());
        let seq = chain.new_seq().unwrap();
        append(&mut chain, seq, &tokens(&model, 20), 16);
        let state = export(&chain, seq, 20);
        let other = chain.new_seq().unwrap();
        for n in (0..200).chain((200..state.len()).step_by(37)) {
            let refused = chain.append_state(other, &state[..n], 20);
            assert!(matches!(refused, Err(Error::State(_))), "{n}");
            assert_eq!(chain.seqs().len(other).unwrap(), 0);
        }
        chain.append_state(other, &state, 20).unwrap();
    }
}

#[test]
fn forks_shifts_and_truncations_are_those_of_one_executor() {
    let model = golden("llama-plain").model();
    let size = ExecutorSize {
        n_recent: Some(32),
        ..size()
    };
    let mut whole: Box<dyn Executor> = Box::new(cpu_with(&model, 1, size.clone()));
    let mut parts: Box<dyn Executor> = Box::new(chain(&model, 1, &size));
    let [one, two] = [&mut whole, &mut parts].map(|executor| {
        let ids = tokens(&model, 100);
        let seq = executor.new_seq().unwrap();
        append(executor.as_mut(), seq, &ids, 16);
        let fork = executor.fork(seq).unwrap();
        executor.shift(seq, 5..37).unwrap();
        assert_eq!(executor.truncate(fork, 70).unwrap(), 70);
        let mut all = append(executor.as_mut(), seq, &ids[..9], 4);
        all.extend(append(executor.as_mut(), fork, &ids[..3], 4));
        let moved = executor.new_seq().unwrap();
        append(executor.as_mut(), moved, &ids[..3], 4);
        executor.append_moved(fork, 10..60, moved).unwrap();
        executor.drop_seq(seq).unwrap();
        all.extend(append(executor.as_mut(), moved, &ids[..2], 4));
        all
    });
    assert!(one == two);
}

#[test]
fn a_batch_that_the_last_part_refuses_is_taken_back_in_all() {
    let model = golden("llama-plain").model();
    let mut chain = chain(&model, 1, &size());
    let seq = chain.new_seq().unwrap();
    let ids = tokens(&model, 4);
    append(&mut chain, seq, &ids, 4);
    let mut batch = Batch::default();
    batch.push_token(seq, 4, u32::MAX, Want::Logits);
    assert!(chain.submit(&batch).is_err());
    assert_eq!(chain.seqs().len(seq).unwrap(), 4);
    append(&mut chain, seq, &ids, 4);
}
