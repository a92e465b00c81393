//! Qwen3.8-Flash-Next: a Qwen3.5 with experts whose residual has several streams, joined by gated
//! hyper-connections in place of norms.
//!
//! The gates of its delta nets are sigmoids, which no key says. Its attention sees the best blocks
//! of positions, within a budget. One layer adds embeddings of n-grams. Source: the model's code in
//! Hugging Face transformers (`qwen4_exp`).

use super::{
    llama_like::Builder, meta::Meta, ngrams::ngrams, qwen35::hybrid, qwen35moe::with_experts,
};
use crate::{
    Error,
    spec::{
        GateRows, Indexer, KeySharing, Mixer, ModelSpec, NetGate, Norm, StreamKind, Streams, Wiring,
    },
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let layers = with_experts(m)?;
    let streams = streams(m, &layers)?;
    let ratios = m.counts_opt("attention.compress_ratios")?;
    let mut spec = hybrid(m, layers, KeySharing::InTurn, GateRows::Apart)?;
    spec.streams = Some(streams);
    let StreamKind::HyperConnections { eps, .. } = streams.kind;
    if let Some((l, embed)) = ngrams(m, eps)? {
        spec.layers[l].ngrams = Some(embed);
    }
    spec.head.norm = None;
    for (l, layer) in spec.layers.iter_mut().enumerate() {
        layer.wiring = Wiring::Streams;
        match &mut layer.mixer {
            Mixer::DeltaNet(net) => net.gate = NetGate::Sigmoid,
            _ => {
                let ratio = ratios.as_ref().map_or(0, |ratios| ratios[l]);
                layer.attention_mut().indexer = indexer(m, ratio, eps)?;
            }
        }
    }
    Ok(spec)
}

fn streams(m: &Meta<'_>, layers: &Builder) -> Result<Streams, Error> {
    let Norm::Rms { eps } = layers.norm() else {
        unreachable!("a backbone has RMS norms")
    };
    let rank = m.size("hyper_connection.low_rank")?;
    Ok(Streams {
        n: m.size("hyper_connection.count")?,
        kind: StreamKind::HyperConnections { rank, eps },
    })
}

/// A query sees the best blocks of `ratio` positions, as many as the budget allows; 0: all.
fn indexer(m: &Meta<'_>, ratio: usize, eps: f32) -> Result<Option<Indexer>, Error> {
    if ratio == 0 {
        return Ok(None);
    }
    let key = "attention.indexer.top_k";
    let budget = m.size(key)?;
    if budget < ratio {
        return Err(m.unsupported(key, budget));
    }
    Ok(Some(Indexer {
        n_heads: m.size("attention.indexer.head_count")?,
        d_head: m.size("attention.indexer.key_length")?,
        block_len: ratio,
        n_blocks: budget / ratio,
        eps,
    }))
}
