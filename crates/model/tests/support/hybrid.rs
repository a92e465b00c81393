//! Models with recurrent layers, made from the specs of tiny models: no architecture of the
//! registry has such layers yet. Their weights are random.

use atta_formats::{TensorType, Writer};
use atta_model::{
    TensorReq,
    spec::{LayerSpec, Mask, Mixer, ModelSpec, ShortConv},
};

use super::{Golden, GoldenFile, golden};

/// Recurrent layers with and without attention beside them, with and without windows, in several
/// wirings.
pub(crate) fn hybrids() -> Vec<Golden> {
    let windowed = |l: &LayerSpec| l.attention().is_some_and(|a| a.mask != Mask::Causal);
    let global = |l: &LayerSpec| !windowed(l);
    vec![
        hybrid("gemma3", |layers| {
            let window = layers.iter().find(|l| windowed(l)).unwrap();
            let global = layers.iter().find(|l| global(l)).unwrap();
            let conv = |n_taps| with_conv(window, n_taps);
            vec![conv(3), window.clone(), conv(4), global.clone(), conv(2)]
        }),
        hybrid("qwen3", |layers| {
            let attention = layers[0].clone();
            vec![attention.clone(), with_conv(&layers[0], 3), attention]
        }),
        hybrid("phi2", |layers| {
            vec![
                with_conv(&layers[0], 3),
                layers[0].clone(),
                with_conv(&layers[0], 7),
            ]
        }),
        hybrid("llama-plain", |layers| {
            vec![with_conv(&layers[0], 3), with_conv(&layers[0], 5)]
        }),
    ]
}

/// The model that has attention with and without a window, and recurrent layers.
pub(crate) fn hybrid_with_windows() -> Golden {
    hybrids().swap_remove(0)
}

fn with_conv(layer: &LayerSpec, n_taps: usize) -> LayerSpec {
    LayerSpec {
        mixer: Mixer::ShortConv(ShortConv { n_taps }),
        ..layer.clone()
    }
}

/// A tiny model with other layers and random weights.
fn hybrid(name: &str, layers: impl FnOnce(&[LayerSpec]) -> Vec<LayerSpec>) -> Golden {
    let base = golden(name);
    let mut spec = base.model().spec().clone();
    spec.layers = layers(&spec.layers);
    let bytes = random_file(&spec).leak();
    Golden {
        name: format!("{name}-hybrid"),
        file: GoldenFile::Made(Box::new(spec), bytes),
        ..base
    }
}

/// A file with the tensors of a spec, all in f32.
fn random_file(spec: &ModelSpec) -> Vec<u8> {
    let reqs = spec.tensors();
    let mut writer = Writer::new();
    for req in &reqs {
        let dims: Vec<u64> = req.shape.iter().map(|&d| d as u64).collect();
        writer
            .add_tensor(&req.name(), &dims, TensorType::F32)
            .unwrap();
    }
    let layout = writer.finish().unwrap();
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut bytes = layout.header;
    for (req, info) in reqs.iter().zip(&layout.tensors) {
        bytes.resize(info.offset as usize, 0);
        let n: usize = req.shape.iter().product();
        (0..n).for_each(|_| bytes.extend(weight(req, random()).to_le_bytes()));
    }
    bytes.resize(layout.file_bytes as usize, 0);
    bytes
}

/// A weight from a number between -1 and 1: around 1 for norms, and such that products of matrices
/// are as large as their inputs.
fn weight(req: &TensorReq, x: f32) -> f32 {
    match req.shape[..] {
        [_] if req.role.name().ends_with("bias") => 0.1 * x,
        [_] => 1.0 + 0.25 * x,
        _ => x * (3.0 / *req.shape.last().unwrap() as f32).sqrt(),
    }
}
