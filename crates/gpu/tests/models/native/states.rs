//! Sequences: forks, shifts, and states as bytes.

use super::{append, cpu, gpu, lacks, same, size};
use crate::support::{golden, stories, tokens};
use atta_gpu::SharedHost;
use atta_model::{Executor, ExecutorSize, KvType, Model, SeqId};
use std::sync::Arc;

/// The same on the CPU, and on the GPU but for the first layers.
fn both(
    host: &SharedHost,
    model: &Arc<Model>,
    n_layers: usize,
    size: &ExecutorSize,
) -> [Box<dyn Executor>; 2] {
    [cpu(model, size), gpu(host, model, n_layers, size)]
}

fn n_layers(model: &Model) -> usize {
    model.spec().layers.len()
}

pub(super) fn forks(host: &SharedHost) {
    for kv in [KvType::F16, KvType::F32, KvType::Q8, KvType::Q4] {
        let model = golden("gemma3").model();
        if lacks(&model, kv).is_some() {
            continue;
        }
        let [expected, got] = both(host, &model, n_layers(&model), &size(kv)).map(|mut e| {
            let e = e.as_mut();
            let ids = tokens(&model, 50);
            let seq = e.new_seq().unwrap();
            append(e, seq, &ids[..45], 96);
            let fork = e.fork(seq).unwrap();
            let mut all = append(e, fork, &ids[..4], 96);
            all.extend(append(e, seq, &ids[45..], 96));
            assert_eq!(e.truncate(fork, 46).unwrap(), 46);
            all.extend(append(e, fork, &ids[9..20], 3));
            e.drop_seq(seq).unwrap();
            let other = e.new_seq().unwrap();
            all.extend(append(e, other, &ids[..33], 96));
            all
        });
        same(&format!("forks, {kv:?}"), &got, &expected);
    }
}

/// The logits behind a fork, and behind the positions that both sequences return to.
fn fork_and_return(e: &mut dyn Executor, ids: &[u32]) -> Vec<u32> {
    let seq = e.new_seq().unwrap();
    append(e, seq, &ids[..45], 7);
    let fork = e.fork(seq).unwrap();
    let mut all = append(e, fork, &ids[20..29], 4);
    all.extend(append(e, seq, &ids[45..], 96));
    for (seq, n) in [(fork, 50), (seq, 41)] {
        let n = e.truncate(seq, n).unwrap();
        all.push(n as u32);
        all.extend(append(e, seq, &ids[n..n + 9], 96));
    }
    all
}

pub(super) fn recurrent_forks(host: &SharedHost) {
    for name in ["jamba", "mamba", "nemotron_h", "qwen3next", "lfm2"] {
        let model = golden(name).model();
        let ids = tokens(&model, 60);
        let executors = both(host, &model, 1, &size(KvType::F16));
        let [expected, got] = executors.map(|mut e| fork_and_return(e.as_mut(), &ids));
        same(&format!("forks of {name}"), &got, &expected);
    }
}

pub(super) fn shifts(host: &SharedHost) {
    for kv in [KvType::F16, KvType::F32, KvType::Q8, KvType::Q4] {
        for name in ["llama-plain", "qwen2", "mistral", "deepseek3"] {
            let model = golden(name).model();
            if lacks(&model, kv).is_some() {
                continue;
            }
            let size = ExecutorSize {
                n_ctx: 160,
                n_recent: Some(64),
                ..size(kv)
            };
            let [expected, got] = both(host, &model, 1, &size).map(|mut e| {
                let e = e.as_mut();
                let ids = tokens(&model, 150);
                let seq = e.new_seq().unwrap();
                append(e, seq, &ids, 96);
                let mut all = Vec::new();
                for evicted in [5..37, 32..64] {
                    e.shift(seq, evicted).unwrap();
                    all.extend(append(e, seq, &ids[..9], 4));
                }
                let moved = e.new_seq().unwrap();
                append(e, moved, &ids[..3], 96);
                if e.append_moved(seq, 20..80, moved).is_ok() {
                    all.extend(append(e, moved, &ids[..5], 4));
                }
                all
            });
            same(&format!("shifts, {name}, {kv:?}"), &got, &expected);
        }
    }
}

fn export(executor: &dyn Executor, seq: SeqId, n: usize) -> Vec<u8> {
    let mut state = Vec::new();
    executor.export(seq, 0..n, &mut state).unwrap();
    state
}

pub(super) fn moves(host: &SharedHost) {
    let names = [
        "gemma3",
        "qwen3",
        "jamba",
        "mamba",
        "falcon-h1",
        "qwen35",
        "deepseek2",
    ];
    let goldens = names.map(|name| (name, golden(name).model()));
    for (name, model) in goldens.into_iter().chain([("stories", stories())]) {
        for n_on_gpu in [1, n_layers(&model)] {
            let [mut here, mut there] = both(host, &model, n_on_gpu, &size(KvType::F16));
            let ids = tokens(&model, 75);
            let seqs = [&mut here, &mut there].map(|e| {
                let seq = e.new_seq().unwrap();
                append(e.as_mut(), seq, &ids[..70], 96);
                seq
            });
            let state = export(here.as_ref(), seqs[0], 70);
            let what = format!("{name}, {n_on_gpu} layers");
            let got = export(there.as_ref(), seqs[1], 70);
            assert!(got == state, "{what}");
            let [expected, got] = [&mut here, &mut there].map(|e| {
                let seq = e.new_seq().unwrap();
                e.append_state(seq, &state, 70).unwrap();
                append(e.as_mut(), seq, &ids[70..], 3)
            });
            same(&format!("behind a state, {what}"), &got, &expected);
        }
    }
}

pub(super) fn fills(host: &SharedHost) {
    let model = golden("gemma3").model();
    let [expected, got] = both(host, &model, 1, &size(KvType::F16)).map(|mut e| {
        let e = e.as_mut();
        let ids = tokens(&model, 20);
        let seq = e.new_seq().unwrap();
        append(e, seq, &ids[..7], 96);
        e.fill(seq, 90).unwrap();
        append(e, seq, &ids[7..], 96)
    });
    same("behind positions of no text", &got, &expected);
}
