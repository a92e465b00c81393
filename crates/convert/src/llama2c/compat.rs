//! Checks that llama2.c would compute a model correctly: its files have sizes and weights only,
//! everything else is constant.
//!
//! The one idea: the spec of a llama2.c file with the model's sizes is compared with the spec of
//! the model, so that no field is forgotten. Optional tensors are not in the spec; the writer fails
//! if one is left over.

use atta_model::spec::{Ffn, LayerSpec, Mask, ModelSpec, Norm, QkNorm, Rope, RopeScaling, Wiring};

use super::{header::Sizes, metadata::metadata};
use crate::{Error, metadata::parsed};

/// The sizes of a model, if llama2.c computes it correctly.
pub(super) fn sizes(spec: &ModelSpec) -> Result<Sizes, Error> {
    let first = spec
        .layers
        .first()
        .ok_or_else(|| refused("it has no layers".into()))?;
    let attention = first
        .attention()
        .ok_or_else(|| refused("its first layer has no attention".into()))?;
    let mlp = first
        .mlp()
        .ok_or_else(|| refused("its first layer has no MLP".into()))?;
    let sizes = Sizes {
        d_model: spec.d_model as u64,
        d_ff: mlp.d_ff as u64,
        n_layers: spec.layers.len() as u64,
        n_heads: attention.n_heads as u64,
        n_kv_heads: attention.n_kv_heads as u64,
        n_vocab: spec.n_vocab as u64,
        n_ctx: spec.n_ctx_train as u64,
    };
    sizes.check_heads().map_err(refused)?;
    let theirs = atta_model::arch::lower(&parsed(&metadata(&sizes))?)?;
    match difference(spec, &theirs) {
        Some(why) => Err(refused(why)),
        None => Ok(sizes),
    }
}

/// The error for a model that does not fit.
pub(super) fn refused(why: String) -> Error {
    Error::NotLlama2c(why)
}

/// Describes the first difference of two specs.
fn difference(ours: &ModelSpec, theirs: &ModelSpec) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let first = &ours.layers[0];
    let plain = &theirs.layers[0];
    if ours.layers.iter().any(|layer| layer != first) {
        return Some("its layers are not all alike".into());
    }
    in_layer(first, plain)
        .or_else(|| around(ours, theirs))
        .or_else(|| Some("it computes something else".into()))
}

fn in_layer(ours: &LayerSpec, theirs: &LayerSpec) -> Option<String> {
    let (Some(a), Some(b)) = (ours.attention(), theirs.attention()) else {
        return Some("it has layers without attention".into());
    };
    let eps = |layer: &LayerSpec| match layer.wiring {
        Wiring::Sequential {
            pre: [Some(Norm::Rms { eps }), _],
            ..
        } => Some(eps),
        _ => None,
    };
    let ropes = a.rope.as_ref().zip(b.rope.as_ref());
    match ours {
        _ if matches!(ours.ffn, Ffn::Moe(_)) => Some("it has experts".into()),
        _ if eps(ours).is_some_and(|eps_| Some(eps_) != eps(theirs)) => Some(format!(
            "its norms have an epsilon of {:e}, there it is 1e-5",
            eps(ours).unwrap_or_default()
        )),
        _ if ours.wiring != theirs.wiring => Some("its norms are others or elsewhere".into()),
        _ if a.d_head != b.d_head => Some(format!(
            "its heads are {} wide, there they are {}",
            a.d_head, b.d_head
        )),
        _ if a.mask.sees_ahead() => Some("it is an encoder".into()),
        _ if a.mask != Mask::Causal => Some("its attention has a window".into()),
        _ if a.qk_norm != QkNorm::None => Some("its queries and keys are normalized".into()),
        _ if ropes.is_none() => Some("its queries and keys are not rotated".into()),
        _ => ropes
            .and_then(|(a, b)| in_rope(a, b))
            .or_else(|| a.ne(b).then(|| "its attention is another".into())),
    }
    .or_else(|| {
        ours.ffn
            .ne(&theirs.ffn)
            .then(|| "its MLP is another".into())
    })
}

fn in_rope(ours: &Rope, theirs: &Rope) -> Option<String> {
    match ours {
        _ if ours.base != theirs.base => Some(format!(
            "its rope has a base of {}, there it is {} (10000 in llama2.c, 500000 in LEAP, which \
         is for Llama 3)",
            ours.base, theirs.base
        )),
        _ if ours.scaling != RopeScaling::None => Some("its rope is scaled".into()),
        _ if ours.d_rope != theirs.d_rope => Some(format!(
            "only {} elements of a head are rotated",
            ours.d_rope
        )),
        _ if ours.pairing != theirs.pairing => {
            Some("it rotates halves of heads, not neighbours".into())
        }
        _ => None,
    }
}

fn around(ours: &ModelSpec, theirs: &ModelSpec) -> Option<String> {
    match ours {
        _ if ours.positions != theirs.positions => Some("its positions are learned".into()),
        _ if ours.embed_scale != theirs.embed_scale => {
            Some("its embedding is multiplied by a number".into())
        }
        _ if ours.head != theirs.head => Some("its head is another".into()),
        _ => None,
    }
}
