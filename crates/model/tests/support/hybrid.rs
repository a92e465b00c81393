//! Models with recurrent layers: those of the registry, and others made from the specs of tiny
//! models, with random weights.

use atta_model::spec::{Indexer, LayerSpec, Mask, Mixer, NgramEmbed, NgramTable, ShortConv};

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
        golden("kimi-linear"),
        golden("qwen4exp-streams"),
        hybrid("qwen3", |layers| {
            let attention = with_indexer(&layers[0]);
            vec![attention.clone(), with_conv(&layers[0], 3), attention]
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
        hybrid("qwen3", |layers| {
            let mut layers = vec![with_conv(&layers[0], 3), layers[0].clone()];
            layers[0].ngrams = Some(ngrams(&[3, 9, 20]));
            layers
        }),
        hybrid("qwen3", |layers| {
            let mut layers = layers.to_vec();
            layers[0].ngrams = Some(ngrams(&[11, 7, 13]));
            layers
        }),
        hybrid("llama-plain", |layers| {
            vec![with_conv(&layers[0], 3), with_conv(&layers[0], 5)]
        }),
    ]
}

/// Models of 17 layers: attention alone, experts, and windows with recurrent layers.
pub(crate) fn deep() -> Vec<Golden> {
    let cycled = |layers: &[LayerSpec]| layers.iter().cycle().take(17).cloned().collect();
    vec![
        hybrid("qwen3", cycled),
        hybrid("qwen3moe", cycled),
        hybrid("gemma3", |layers| {
            let mut layers: Vec<LayerSpec> = cycled(layers);
            let conv = with_conv(&layers[0], 3);
            layers
                .iter_mut()
                .skip(2)
                .step_by(5)
                .for_each(|layer| *layer = conv.clone());
            layers
        }),
    ]
}

/// A model whose attention chooses positions, without recurrent layers.
pub(crate) fn sparse() -> Golden {
    hybrid("qwen3", |layers| layers.iter().map(with_indexer).collect())
}

/// The layer with an indexer whose blocks end within those of the cache.
fn with_indexer(layer: &LayerSpec) -> LayerSpec {
    let mut layer = layer.clone();
    layer.attention_mut().indexer = Some(Indexer {
        n_heads: 3,
        d_head: 18,
        block_len: 5,
        n_blocks: 2,
        eps: 1e-2,
    });
    layer
}

/// The model that has attention with and without a window, and recurrent layers.
pub(crate) fn hybrid_with_windows() -> Golden {
    hybrids().swap_remove(0)
}

/// N-grams of up to four tokens.
fn ngrams(sizes: &[u32; 3]) -> NgramEmbed {
    let mut first = 0;
    let table = |&n_rows: &u32| {
        first += n_rows;
        NgramTable {
            first: first - n_rows,
            n_rows,
        }
    };
    NgramEmbed {
        n_tokens: 4,
        tables: sizes.iter().map(table).collect(),
        multipliers: vec![17, 101, 1009, 10007],
        d_row: 5,
        eos: 40,
        media: None,
        n_taps: 3,
        dilation: 4,
        eps: 1e-2,
    }
}

/// The recurrent layers of a tiny model alone, with their weights.
pub(crate) fn recurrent_part(name: &str) -> Golden {
    let base = golden(name);
    let mut spec = base.model().spec().clone();
    let layers = spec.layers.iter().enumerate();
    let kept: Vec<usize> = layers
        .filter(|(_, layer)| layer.attention().is_none())
        .map(|(l, _)| l)
        .collect();
    let bytes = base.altered_bytes(
        |_| {},
        |tensor| {
            let of_layer = tensor.name.strip_prefix("blk.");
            let name = match of_layer.and_then(|name| name.split_once('.')) {
                Some((l, rest)) => {
                    let l = kept.iter().position(|kept| l == kept.to_string())?;
                    format!("blk.{l}.{rest}")
                }
                None => tensor.name.to_string(),
            };
            Some((name, tensor.shape.dims().to_vec()))
        },
    );
    spec.layers = kept.iter().map(|&l| spec.layers[l].clone()).collect();
    Golden {
        name: format!("{name}-recurrent"),
        file: GoldenFile::Made(Box::new(spec), bytes.leak()),
        ..base
    }
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
