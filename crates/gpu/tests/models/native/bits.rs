//! Logits, bit by bit.

use super::{cpu, gpu, lacks, lacks_in, logits, same, size};
use crate::support::hybrid::{hybrids, recurrent_part};
use crate::support::quantized::Blocks;
use crate::support::{Golden, golden, goldens, stories, tokens};
use atta_gpu::SharedHost;
use atta_model::{Batch, KvType, Model, Output, Want};

/// Goldens that GPUs run, at least.
const MIN_GOLDENS: usize = 104;
/// Those of them with experts, at least.
const MIN_WITH_EXPERTS: usize = 29;
/// Those with recurrent layers, at least.
const MIN_RECURRENT: usize = 25;
/// Goldens whose last layers GPUs run, and not all, at least.
const MIN_PARTS: usize = 2;
/// Quantized models that GPUs run, at least.
const MIN_QUANTIZED: usize = 40;
/// Tokens of a golden that are compared.
const N_TOKENS: usize = 24;

/// How many of the last layers of a model may lie on a GPU.
fn cuts(model: &Model, kv: KvType) -> Vec<usize> {
    let all = 1..model.spec().layers.len() + 1;
    all.filter(|&n| lacks_in(model, n, kv).is_none()).collect()
}

/// What the runs of goldens had.
#[derive(Debug, Default)]
struct GoldenRuns {
    n_whole: usize,
    n_parts: usize,
    n_with_experts: usize,
    n_recurrent: usize,
}

/// A part of the names of goldens that are compared; of all, if there is no second argument.
fn wanted_name() -> String {
    std::env::args().nth(2).unwrap_or_default()
}

/// The tiny models, and some that tests made of them.
fn wanted_goldens() -> impl Iterator<Item = Golden> {
    let name = wanted_name();
    let mut all = goldens();
    let made = hybrids().into_iter().filter(Golden::is_made);
    all.extend(made.map(Golden::without_means));
    all.push(recurrent_part("kimi-linear"));
    let all = all.into_iter();
    all.filter(move |golden| golden.name.contains(&name))
}

fn goldens_run(host: &SharedHost, kv: KvType) -> GoldenRuns {
    let mut runs = GoldenRuns::default();
    for golden in wanted_goldens() {
        let model = golden.model();
        let cuts = cuts(&model, kv);
        let n_layers = model.spec().layers.len();
        if let Some(why) = lacks(&model, kv).filter(|_| kv == KvType::F16) {
            println!("{}: {why}; {cuts:?} of {n_layers} layers", golden.name);
        }
        if cuts.is_empty() {
            continue;
        }
        let ids = &golden.tokens[..golden.tokens.len().min(N_TOKENS)];
        let expected = logits(cpu(&model, &size(kv)).as_mut(), ids, 96);
        for &n_on_gpu in &cuts {
            let mut both = gpu(host, &model, n_on_gpu, &size(kv));
            let what = format!("{}, {kv:?}, {n_on_gpu} of {n_layers} layers", golden.name);
            same(&what, &logits(both.as_mut(), ids, 96), &expected);
        }
        let is_whole = cuts.contains(&n_layers);
        runs.n_whole += usize::from(is_whole);
        runs.n_parts += usize::from(!is_whole);
        let (n_experts, _) = model.spec().max_experts();
        runs.n_with_experts += usize::from(is_whole && n_experts > 0);
        runs.n_recurrent += usize::from(is_whole && model.spec().is_recurrent());
    }
    runs
}

pub(super) fn all_goldens(host: &SharedHost) {
    let runs = goldens_run(host, KvType::F16);
    println!("{runs:?}");
    if wanted_name().is_empty() {
        assert!(runs.n_whole >= MIN_GOLDENS, "{runs:?}");
        assert!(runs.n_with_experts >= MIN_WITH_EXPERTS, "{runs:?}");
        assert!(runs.n_recurrent >= MIN_RECURRENT, "{runs:?}");
        assert!(runs.n_parts >= MIN_PARTS, "{runs:?}");
    }
    for kv in [KvType::F32, KvType::Q8, KvType::Q4] {
        println!("with {kv:?}: {:?}", goldens_run(host, kv));
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

/// Of a head of its own, and of one that is the embedding.
pub(super) fn means(host: &SharedHost) {
    for name in ["llama-plain", "llama-tied-mha", "gemma2"] {
        let model = golden(name).with_separate_means().unwrap();
        let size = size(KvType::F16);
        let ids = tokens(&model, 20);
        let expected = logits(cpu(&model, &size).as_mut(), &ids, 96);
        let mut both = gpu(host, &model, 1, &size);
        let what = format!("{name} with a mean row");
        same(&what, &logits(both.as_mut(), &ids, 96), &expected);
    }
}

/// Every third of the goldens that are files, and those with experts or recurrent layers.
fn some_goldens() -> Vec<Golden> {
    let all = goldens().into_iter();
    let files = all.filter(|golden| !golden.is_made()).enumerate();
    let is_rare = |golden: &Golden| {
        let model = golden.model();
        model.spec().max_experts().0 > 0 || model.spec().is_recurrent()
    };
    let some = files.filter(|(i, golden)| i % 3 == 0 || is_rare(golden));
    some.map(|(_, golden)| golden).collect()
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
