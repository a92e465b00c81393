//! What a model needs and kernels lack, before anything is read.
//!
//! It knows descriptions and no bytes. A missing thing is an error that names it: nothing is
//! computed on the CPU instead, unnoticed.

use crate::{Error, GpuKv, RowActivation, WeightFormat};
use atta_formats::Directory;
use atta_model::spec::{
    Activation, Attention, Ffn, KvSource, LayerSpec, Mixer, Mlp, ModelSpec, OutputGate, Outputs,
    Presence, QkNorm, Wiring,
};
use atta_model::{KvType, Role, Share};

/// The widest head of the kernels.
const D_HEAD_MAX: usize = 1024;

/// Checks that GPUs can run a part of a model, with keys and values of a type.
///
/// # Errors
/// [`Error::Unsupported`] with the first thing that is missing.
pub fn check_support(
    spec: &ModelSpec,
    part: &Share,
    kv: KvType,
    directory: &Directory,
) -> Result<(), Error> {
    check_spec(spec).map_err(|what| Error::Unsupported(what.to_owned()))?;
    let is_tied = directory.tensor(Role::Output.name()).is_none();
    let mean = if is_tied {
        Role::TokenEmbdMean
    } else {
        Role::OutputMean
    };
    if part.head && directory.tensor(mean.name()).is_some() {
        return Err(Error::Unsupported(
            "its head has a mean row apart".to_owned(),
        ));
    }
    for l in part.layers.clone() {
        let layer = |what: &str| Error::Unsupported(format!("layer {l} has {what}"));
        let has = |role: Role| {
            let name = format!("blk.{l}.{}", role.name());
            directory.tensor(&name).is_some()
        };
        check_layer(&spec.layers[l], &has).map_err(layer)?;
        let [k, v] = kv.of_layer(l, spec.layers.len());
        if GpuKv::of(k).is_none() || k != v {
            let what = "keys and values of this type; f16 and f32 are there";
            return Err(Error::Unsupported(what.to_owned()));
        }
    }
    let tensors = part.tensors(spec, directory)?;
    let is_matrix = |dims: &[u64]| dims.len() > 1;
    let matrices = tensors.iter().filter(|t| is_matrix(t.shape.dims()));
    for tensor in matrices {
        if WeightFormat::of(tensor.ty).is_none() {
            let what = format!("{} is of type {:?}", tensor.name, tensor.ty);
            return Err(Error::Unsupported(what));
        }
    }
    Ok(())
}

fn check_spec(spec: &ModelSpec) -> Result<(), &'static str> {
    let lacks = [
        (spec.streams.is_some(), "it has several residual streams"),
        (spec.alt_up.is_some(), "it has several residual streams"),
        (
            spec.layer_embed.is_some(),
            "it has embeddings in every layer",
        ),
        (spec.join.is_some(), "it is a draft head"),
        (spec.is_encoder(), "it is an encoder"),
        (spec.head.outputs != Outputs::Logits, "it has no logits"),
    ];
    first_of(&lacks)
}

/// The first of the things that are there.
fn first_of(lacks: &[(bool, &'static str)]) -> Result<(), &'static str> {
    match lacks.iter().find(|(is_there, _)| *is_there) {
        Some((_, what)) => Err(what),
        None => Ok(()),
    }
}

/// `has` tells which optional tensors the layer has.
fn check_layer(layer: &LayerSpec, has: &dyn Fn(Role) -> bool) -> Result<(), &'static str> {
    let has_factor = layer.out_scale != Presence::Absent && has(Role::LayerOutputScale);
    first_of(&[
        (layer.ngrams.is_some(), "embeddings of n-grams"),
        (layer.laurel.is_some(), "a low-rank layer beside it"),
        (has_factor, "a factor of its result"),
        (layer.wiring == Wiring::Streams, "several residual streams"),
    ])?;
    match &layer.mixer {
        Mixer::None => {}
        Mixer::Attention(a) => check_attention(a, has(Role::AttnQNorm))?,
        _ => return Err("a recurrent mixer"),
    }
    match &layer.ffn {
        Ffn::None => {}
        Ffn::Gated(mlp) | Ffn::Plain(mlp) => check_mlp(mlp)?,
        Ffn::Sparse(_) => return Err("a sparse MLP"),
        Ffn::Moe(_) | Ffn::MlpAndMoe(_) => return Err("a mixture of experts"),
    }
    let has_both = layer.mixer != Mixer::None && layer.ffn != Ffn::None;
    let is_parallel = matches!(layer.wiring, Wiring::Parallel { .. });
    let is_half = is_parallel && !has_both && !layer.is_left_out();
    first_of(&[(is_half, "one sublayer, wired as two")])
}

fn check_attention(a: &Attention, has_norm: bool) -> Result<(), &'static str> {
    let norm = matches!(
        a.qk_norm,
        QkNorm::LayerPerHead { .. } | QkNorm::Whole { .. }
    );
    let norm = norm && has_norm;
    let width = a.d_head > D_HEAD_MAX || !a.d_head.is_multiple_of(2);
    first_of(&[
        (matches!(a.kv, KvSource::Latent(_)), "latent attention"),
        (a.gate != OutputGate::None, "gates of heads"),
        (a.indexer.is_some(), "an indexer"),
        (norm, "norms of queries and keys of this kind"),
        (width, "heads of this width"),
    ])
}

fn check_mlp(mlp: &Mlp) -> Result<(), &'static str> {
    first_of(&[
        (mlp.sub_norm.is_some(), "a norm within the MLP"),
        (activation(mlp.activation).is_none(), "this activation"),
    ])
}

/// The kernels' enumerator of a nonlinearity, if they have it.
pub(crate) fn activation(activation: Activation) -> Option<RowActivation> {
    match activation {
        Activation::Silu => Some(RowActivation::Silu),
        Activation::Gelu => Some(RowActivation::Gelu),
        Activation::GeluTanh => Some(RowActivation::GeluTanh),
        Activation::Relu2 => Some(RowActivation::Relu2),
        Activation::Xielu(_) | Activation::Clamped { .. } => None,
    }
}
