//! Logits, bit by bit.

use super::{cpu, gpu, lacks, logits, same, size};
use crate::support::quantized::Blocks;
use crate::support::{Golden, stories, tokens};
use atta_gpu::SharedHost;
use atta_model::{Batch, KvType, Model, Output, Want};
use std::sync::Arc;

/// Goldens that GPUs run, at least.
const MIN_GOLDENS: usize = 30;
/// Quantized models that GPUs run, at least.
const MIN_QUANTIZED: usize = 10;
/// Tokens of a golden that are compared.
const N_TOKENS: usize = 24;

pub(super) fn goldens_of(kv: KvType) -> impl Iterator<Item = (Golden, Arc<Model>)> {
    let all = crate::support::goldens().into_iter().map(|golden| {
        let model = golden.model();
        (golden, model)
    });
    all.filter(move |(_, model)| lacks(model, kv).is_none())
}

pub(super) fn goldens_run(host: &SharedHost, kv: KvType) -> usize {
    let mut n = 0;
    for (golden, model) in goldens_of(kv) {
        let ids = &golden.tokens[..golden.tokens.len().min(N_TOKENS)];
        let expected = logits(cpu(&model, &size(kv)).as_mut(), ids, 96);
        let n_layers = model.spec().layers.len();
        let cuts = if golden.is_separable() {
            1..n_layers + 1
        } else {
            n_layers..n_layers + 1
        };
        for n_on_gpu in cuts {
            let mut both = gpu(host, &model, n_on_gpu, &size(kv));
            let what = format!("{}, {kv:?}, {n_on_gpu} of {n_layers} layers", golden.name);
            same(&what, &logits(both.as_mut(), ids, 96), &expected);
        }
        n += 1;
    }
    n
}

pub(super) fn goldens(host: &SharedHost) {
    let n = goldens_run(host, KvType::F16);
    assert!(n >= MIN_GOLDENS, "{n} goldens");
    for kv in [KvType::F32, KvType::Q8, KvType::Q4] {
        println!("{n} goldens, and {} with {kv:?}", goldens_run(host, kv));
    }
}

pub(super) fn quantized(host: &SharedHost) {
    let mut n = 0;
    for golden in some_goldens() {
        for blocks in [Blocks::Common, Blocks::Of32, Blocks::Of256] {
            let model = golden.quantized(blocks);
            if lacks(&model, KvType::F16).is_some() {
                continue;
            }
            let size = size(KvType::F16);
            let ids = tokens(&model, 20);
            let expected = logits(cpu(&model, &size).as_mut(), &ids, 96);
            let n_layers = model.spec().layers.len();
            let mut both = gpu(host, &model, n_layers, &size);
            let what = format!("{} of {blocks:?}", golden.name);
            same(&what, &logits(both.as_mut(), &ids, 96), &expected);
            n += 1;
        }
    }
    println!("{n} quantized models");
    assert!(n >= MIN_QUANTIZED, "{n} quantized models");
}

/// Every third of the goldens that are files.
fn some_goldens() -> Vec<Golden> {
    let all = crate::support::goldens().into_iter();
    all.filter(|golden| !golden.is_made()).step_by(3).collect()
}

pub(super) fn chunks(host: &SharedHost) {
    let model = stories();
    let size = size(KvType::F16);
    let ids = tokens(&model, 70);
    let expected = logits(cpu(&model, &size).as_mut(), &ids, 96);
    let n_layers = model.spec().layers.len();
    let mut both = gpu(host, &model, n_layers, &size);
    for n_batch in [96, 33, 9, 1] {
        let got = logits(both.as_mut(), &ids, n_batch);
        same(&format!("chunks of {n_batch}"), &got, &expected);
    }
}

pub(super) fn neighbours(host: &SharedHost) {
    let model = stories();
    let size = size(KvType::F16);
    let n_layers = model.spec().layers.len();
    let mut both = gpu(host, &model, n_layers, &size);
    let texts = [tokens(&model, 40), tokens(&model, 61)[21..].to_vec()];
    let mut whole = cpu(&model, &size);
    let expected = texts.each_ref().map(|ids| logits(whole.as_mut(), ids, 96));
    let seqs = [both.new_seq().unwrap(), both.new_seq().unwrap()];
    let mut batch = Batch::default();
    let mut out = Output::default();
    let mut got = [Vec::new(), Vec::new()];
    for first in (0..40).step_by(8) {
        batch.clear();
        for pos in first..first + 8 {
            for (seq, ids) in seqs.iter().zip(&texts) {
                batch.push_token(*seq, pos, ids[pos], Want::Logits);
            }
        }
        both.step(&batch, &mut out).unwrap();
        (0..16).for_each(|row| {
            got[row % 2].extend(crate::support::bits(out.logits(row)));
        });
    }
    for (got, expected) in got.iter().zip(&expected) {
        same("two texts in a batch", got, expected);
    }
}
