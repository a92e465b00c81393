//! Adapters of rows (LoRA), bit by bit.

use super::host::Narrow;
use super::{cpu, gpu, gpu_by, lacks, opened, same, size};
use crate::support::adapters::{load_adapter, set};
use crate::support::{bits, golden};
use atta_formats::TensorType;
use atta_gpu::SharedHost;
use atta_model::{AdapterSet, Batch, Executor, KvType, Model, Output, Want};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Models with every kind of matrix that adapters may add to and GPUs run.
const KINDS: [&str; 12] = [
    "llama-plain",
    "qwen2-untied",
    "gemma3",
    "phi2",
    "granite",
    "qwen2moe",
    "gpt-oss",
    "llama4",
    "gemma4-moe",
    "jamba",
    "falcon-h1",
    "qwen35",
];
const N_TOKENS: usize = 17;

/// A golden with four adapters of different ranks, each of another type.
fn adapted(name: &str) -> Arc<Model> {
    let golden = golden(name);
    let model = golden.model();
    let types = [
        TensorType::F32,
        TensorType::F16,
        TensorType::BF16,
        TensorType::Q8_0,
    ];
    let adapters = types.into_iter().zip(0..).map(|(ty, i)| {
        let made = golden.adapter([1, 3, 4, 32][i as usize], i);
        load_adapter(&model, &golden.arch, made.file(ty, |_| {})).unwrap()
    });
    let adapters: Vec<_> = adapters.collect();
    Arc::new(Arc::into_inner(model).unwrap().with_adapters(adapters))
}

fn sets() -> [AdapterSet; 4] {
    [
        set(&[(0, 0.3)]),
        set(&[]),
        set(&[(2, -0.5), (1, 0.25), (0, 0.1)]),
        set(&[(3, 0.2), (2, 0.4)]),
    ]
}

/// The bits of the logits of four texts in the same batches, each with its adapters.
fn logits(executor: &mut dyn Executor, ids: &[u32]) -> Vec<u32> {
    let seqs = sets().map(|_| executor.new_seq().unwrap());
    let mut batch = Batch::default();
    let mut out = Output::default();
    let mut all = Vec::new();
    for first in (0..ids.len()).step_by(5) {
        batch.clear();
        for (pos, &id) in ids.iter().enumerate().skip(first).take(5) {
            for (seq, adapters) in seqs.into_iter().zip(sets()) {
                // Some rows want none.
                let want = if pos % 3 == 1 {
                    Want::Nothing
                } else {
                    Want::Logits
                };
                batch.push_token(seq, pos, id, want);
                batch.set_adapters(adapters);
            }
        }
        executor.step(&batch, &mut out).unwrap();
        let wanted = (0..batch.rows.len()).filter(|&t| batch.rows[t].want == Want::Logits);
        wanted.for_each(|row| all.extend(bits(out.logits(row))));
    }
    for seq in seqs {
        executor.drop_seq(seq).unwrap();
    }
    all
}

pub(super) fn rows(host: &SharedHost) {
    let mut n = 0;
    for name in KINDS {
        let model = adapted(name);
        let size = size(KvType::F16);
        if let Some(why) = lacks(&model, KvType::F16) {
            println!("{name}: {why}");
            continue;
        }
        let ids = &golden(name).tokens[..N_TOKENS];
        let expected = logits(cpu(&model, &size).as_mut(), ids);
        let n_layers = model.spec().layers.len();
        let least = if golden(name).is_separable() {
            1
        } else {
            n_layers
        };
        for n_on_gpu in [least, n_layers] {
            let mut both = gpu(host, &model, n_on_gpu, &size);
            let what = format!("adapters of {name}, {n_on_gpu} layers");
            same(&what, &logits(both.as_mut(), ids), &expected);
        }
        n += 1;
    }
    assert!(n >= 11, "{n} models with adapters");
}

pub(super) fn loss(host: &SharedHost) {
    let model = adapted("llama-plain");
    let size = size(KvType::F16);
    let ids = &golden("llama-plain").tokens[..N_TOKENS];
    let expected = logits(cpu(&model, &size).as_mut(), ids);
    let (narrow, faults) = Narrow::before(host, u64::MAX);
    let n_calls_left = &faults.n_calls_left;
    let open = move || Ok(opened(&narrow));
    let mut both = gpu_by(Box::new(open), &model, 1, &size);
    n_calls_left.store(9, Ordering::Relaxed);
    let got = logits(both.as_mut(), ids);
    assert!(n_calls_left.load(Ordering::Relaxed) < 0);
    same("a loss beside adapters", &got, &expected);
}
