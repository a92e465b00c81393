//! Models with recurrent layers: those of the registry, and others made from the specs of tiny
//! models, with random weights.

use atta_model::spec::{LayerSpec, Mask, Mixer, ShortConv};

use super::{Golden, GoldenFile, golden, random_file::random_file};

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
        golden("qwen35"),
        golden("qwen35-tied"),
        golden("mamba2"),
        golden("granitehybrid"),
        golden("falcon-h1"),
        golden("nemotron_h"),
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
