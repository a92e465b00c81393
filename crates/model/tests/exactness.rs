//! Logits are a function of the sequence alone, to the last bit: not of threads, chunks, neighbours, or where the weights
//! and the layers are.

mod support;

use atta_model::{Batch, CpuOptions, Error, Executor, KvType, Output, Want};
use support::{append, bits, cpu, cpu_with, forward, golden, goldens};

/// Of kinds of keys and values; where tests run by emulation fewer, in which every type has its place.
const KINDS: &[KvType] = if cfg!(target_arch = "x86_64") {
    &[KvType::F32, KvType::F16, KvType::Q8, KvType { n_edge_layers: 0, ..KvType::Q4 }]
} else {
    &[KvType::F16, KvType { v: KvType::Q4.v, n_edge_layers: 0, ..KvType::Q8 }]
};

#[test]
fn threads_and_chunks_do_not_change_a_bit() {
    for g in goldens() {
        let model = g.model();
        for &kv in KINDS {
            let run = |n_threads, n_batch| {
                let mut cpu = cpu(&model, n_threads, kv);
                let seq = cpu.new_seq().unwrap();
                bits(&append(&mut cpu, seq, &g.tokens, n_batch))
            };
            let expected = run(1, g.tokens.len());
            for (n_threads, n_batch) in [(1, 1), (1, 7), (2, 13), (3, 1), (4, g.tokens.len())] {
                assert!(run(n_threads, n_batch) == expected, "{} {kv:?}: -j {n_threads} --batch {n_batch}", g.name);
            }
        }
    }
}

#[test]
fn neighbours_do_not_change_a_bit() {
    for g in goldens() {
        let model = g.model();
        let expected = bits(&forward(&model, &g.tokens));
        let mut cpu = cpu(&model, 2, KvType::F32);
        let (a, b) = (cpu.new_seq().unwrap(), cpu.new_seq().unwrap());
        let (mut batch, mut out, mut logits) = (Batch::default(), Output::default(), Vec::new());
        // Sequence b holds the same tokens backwards, and runs ahead by three positions a step.
        let backwards: Vec<u32> = g.tokens.iter().rev().copied().collect();
        for (pos, &id) in g.tokens.iter().enumerate() {
            batch.clear();
            for ahead in (3 * pos..3 * pos + 3).filter(|&p| p < backwards.len()) {
                batch.push_token(b, ahead, backwards[ahead], Want::Nothing);
            }
            batch.push_token(a, pos, id, Want::Logits);
            cpu.step(&batch, &mut out).unwrap();
            logits.extend_from_slice(out.logits(batch.rows.len() - 1));
        }
        assert!(bits(&logits) == expected, "{}", g.name);
    }
}

#[test]
fn a_layer_range_on_two_executors_equals_the_whole() {
    for g in goldens() {
        let model = g.model();
        let expected = bits(&forward(&model, &g.tokens));
        let half = |layers| {
            let options = CpuOptions { n_ctx: 128, kv: KvType::F32, layers: Some(layers), ..CpuOptions::default() };
            cpu_with(&model, 1, options)
        };
        let n_layers = model.spec().layers.len();
        let (mut first, mut second) = (half(0..1), half(1..n_layers));
        let (a, b) = (first.new_seq().unwrap(), second.new_seq().unwrap());
        let (mut batch, mut out) = (Batch::default(), Output::default());
        g.tokens.iter().enumerate().for_each(|(pos, &id)| batch.push_token(a, pos, id, Want::Hidden));
        first.step(&batch, &mut out).unwrap();
        let mut onward = Batch::default();
        (0..g.tokens.len()).for_each(|pos| onward.push_hidden(b, pos, out.hidden(pos), Want::Logits));
        let mut logits = Output::default();
        second.step(&onward, &mut logits).unwrap();
        let got: Vec<f32> = (0..g.tokens.len()).flat_map(|i| logits.logits(i).to_vec()).collect();
        assert!(bits(&got) == expected, "{}", g.name);
    }
}

#[test]
fn a_fork_shares_its_past_and_goes_its_own_way() {
    let g = golden("qwen3");
    let model = g.model();
    for &kv in KINDS {
        let mut cpu = cpu(&model, 1, kv);
        let alone = cpu.new_seq().unwrap();
        let expected = append(&mut cpu, alone, &g.tokens, 128);
        let n_vocab = model.spec().n_vocab;
        // 20 positions: the fork happens in the middle of a block, which both then write to.
        let trunk = cpu.new_seq().unwrap();
        append(&mut cpu, trunk, &g.tokens[..20], 128);
        let fork = cpu.fork(trunk).unwrap();
        let other: Vec<u32> = g.tokens[20..].iter().rev().copied().collect();
        append(&mut cpu, trunk, &other, 5);
        let got = append(&mut cpu, fork, &g.tokens[20..], 3);
        assert!(bits(&got) == bits(&expected[20 * n_vocab..]), "{kv:?}");
    }
}

#[test]
fn truncating_takes_back_exactly_what_came_after() {
    let g = golden("llama3-rope");
    let model = g.model();
    let expected = bits(&forward(&model, &g.tokens));
    let mut cpu = cpu(&model, 2, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    append(&mut cpu, seq, &g.tokens.iter().rev().copied().collect::<Vec<_>>(), 64);
    for keep in [0, 1, 31, 32, 33] {
        cpu.truncate(seq, 0).unwrap();
        append(&mut cpu, seq, &g.tokens[..keep], 64);
        append(&mut cpu, seq, &g.tokens[..5], 64);
        cpu.truncate(seq, keep).unwrap();
        let got = append(&mut cpu, seq, &g.tokens[keep..], 64);
        assert!(bits(&got) == expected[keep * model.spec().n_vocab..], "{keep}");
    }
}

#[test]
fn a_refused_batch_changes_nothing() {
    let g = golden("llama-plain");
    let model = g.model();
    let mut cpu = cpu(&model, 1, KvType::F32);
    let (seq, n_vocab) = (cpu.new_seq().unwrap(), model.spec().n_vocab as u32);
    append(&mut cpu, seq, &g.tokens[..3], 64);
    let mut out = Output::default();
    let refused = |rows: &[(usize, u32)]| {
        let mut batch = Batch::default();
        rows.iter().for_each(|&(pos, id)| batch.push_token(seq, pos, id, Want::Logits));
        batch
    };
    let too_many: Vec<_> = (3..200).map(|pos| (pos, 1)).collect();
    let overfull: Vec<_> = (3..130).map(|pos| (pos, 1)).collect();
    for rows in [&[(3, 1), (5, 1)][..], &[(2, 1)], &[(3, 1), (4, n_vocab)], &too_many, &overfull] {
        assert!(cpu.step(&refused(rows), &mut out).is_err());
        assert_eq!(cpu.len(seq).unwrap(), 3);
    }
    let got = append(&mut cpu, seq, &g.tokens[3..], 64);
    assert!(bits(&got) == bits(&forward(&model, &g.tokens)[3 * n_vocab as usize..]));
}

#[test]
fn sequences_that_are_gone_are_not_found_and_their_room_is_free_again() {
    let model = golden("llama-plain").model();
    let mut cpu = cpu(&model, 1, KvType::F16);
    for _ in 0..10 {
        let seqs: Vec<_> = (0..4).map(|_| cpu.new_seq().unwrap()).collect();
        assert!(matches!(cpu.new_seq(), Err(Error::NoRoomForSequence(4))));
        for &seq in &seqs {
            append(&mut cpu, seq, &[1; 128], 64);
        }
        seqs.iter().for_each(|&seq| cpu.drop_seq(seq).unwrap());
        assert!(matches!(cpu.len(seqs[0]), Err(Error::NoSequence(_))));
    }
}
