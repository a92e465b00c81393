//! What a model needs and kernels lack, before anything is read.
//!
//! It knows descriptions and no bytes. A missing thing is an error that names it: nothing is
//! computed on the CPU instead, unnoticed.

use crate::executor::kv_of;
use crate::{EXPERTS_MAX, Error, GpuShare, ROUTES_MAX, RowActivation, SCAN_KEY_MAX, WeightFormat};
use atta_formats::Directory;
use atta_model::spec::{
    Activation, Attention, Ffn, LayerSpec, Mixer, ModelSpec, Moe, Outputs, Wiring,
};
use atta_model::{KvType, Share};

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
    for l in part.layers.clone() {
        let layer = |what: &str| Error::Unsupported(format!("layer {l} has {what}"));
        check_layer(spec, l, kv).map_err(&layer)?;
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

/// The last layers of a model that GPUs can run with its head.
#[derive(Debug)]
pub(crate) struct Runnable {
    pub(crate) n_layers: usize,
    /// Why no more, if the model has more.
    pub(crate) why: Option<Error>,
}

/// How many of the last layers of a model GPUs can run, with keys and values of a type.
pub(crate) fn runnable(spec: &ModelSpec, kv: KvType, directory: &Directory) -> Runnable {
    let n_all = spec.layers.len();
    let refusal = |n_layers| {
        let share = GpuShare { n_layers };
        share.check(spec, kv, directory).err()
    };
    let Some(of_all) = refusal(n_all) else {
        return Runnable {
            n_layers: n_all,
            why: None,
        };
    };
    let last = (0..n_all).rev();
    let n_known = last
        .take_while(|&l| check_layer(spec, l, kv).is_ok())
        .count();
    let n_layers = (1..=n_known).rev().find(|&n| refusal(n).is_none());
    let n_layers = n_layers.unwrap_or(0);
    let why = match n_layers {
        0 => of_all,
        _ => refusal(n_layers + 1).unwrap_or(of_all),
    };
    Runnable {
        n_layers,
        why: Some(why),
    }
}

fn check_spec(spec: &ModelSpec) -> Result<(), &'static str> {
    let lacks = [
        (spec.streams.is_some(), "it has several residual streams"),
        (spec.alt_up.is_some(), "it has several residual streams"),
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

fn check_layer(spec: &ModelSpec, l: usize, kv: KvType) -> Result<(), &'static str> {
    let layer = &spec.layers[l];
    check_sublayers(layer)?;
    let elems = kv.of_layer(l, spec.layers.len());
    let is_unknown = |a: &Attention| kv_of(a, elems).is_none();
    let what = "keys or values of a width that kernels lack";
    first_of(&[(layer.attention().is_some_and(is_unknown), what)])
}

fn check_sublayers(layer: &LayerSpec) -> Result<(), &'static str> {
    first_of(&[
        (layer.ngrams.is_some(), "embeddings of n-grams"),
        (layer.laurel.is_some(), "a low-rank layer beside it"),
        (layer.wiring == Wiring::Streams, "several residual streams"),
    ])?;
    match &layer.mixer {
        Mixer::None => {}
        Mixer::Attention(a) => check_attention(a)?,
        Mixer::ShortConv(_) => {}
        Mixer::DeltaNet(net) => check_width(net.d_key)?,
        Mixer::Mamba2(mamba) => check_width(mamba.d_state)?,
        Mixer::AttentionAndMamba2(both) => {
            check_attention(&both.attention)?;
            check_width(both.mamba.d_state)?;
        }
        Mixer::Mamba(mamba) => check_width(mamba.d_state)?,
    }
    match &layer.ffn {
        Ffn::None => {}
        Ffn::Gated(_) | Ffn::Plain(_) => {}
        Ffn::Sparse(_) => return Err("a sparse MLP"),
        Ffn::Moe(m) => check_experts(m)?,
        Ffn::MlpAndMoe(both) => check_experts(&both.moe)?,
    }
    let has_both = layer.mixer != Mixer::None && layer.ffn != Ffn::None;
    let is_parallel = matches!(layer.wiring, Wiring::Parallel { .. });
    let is_half = is_parallel && !has_both && !layer.is_left_out();
    let is_double = matches!(layer.mixer, Mixer::AttentionAndMamba2(_));
    first_of(&[
        (is_half, "one sublayer, wired as two"),
        (is_parallel && is_double, "two mixers beside its MLP"),
    ])
}

/// Checks the width of the queries and keys of a scan.
fn check_width(d_key: usize) -> Result<(), &'static str> {
    first_of(&[(d_key > SCAN_KEY_MAX as usize, "keys of this width")])
}

fn check_experts(m: &Moe) -> Result<(), &'static str> {
    let n_groups = m.groups.map_or(0, |groups| groups.n_groups);
    first_of(&[
        (m.n_experts > EXPERTS_MAX, "more than 1024 experts"),
        (m.n_used > ROUTES_MAX, "more than 64 experts of a position"),
        (n_groups > ROUTES_MAX, "more than 64 groups of experts"),
    ])
}

fn check_attention(a: &Attention) -> Result<(), &'static str> {
    let width = a.d_head > D_HEAD_MAX || !a.d_head.is_multiple_of(2);
    first_of(&[
        (a.indexer.is_some(), "an indexer"),
        (width, "heads of this width"),
    ])
}

/// The kernels' enumerator of a nonlinearity.
pub(crate) fn activation(activation: Activation) -> RowActivation {
    match activation {
        Activation::Silu => RowActivation::Silu,
        Activation::Gelu => RowActivation::Gelu,
        Activation::GeluTanh => RowActivation::GeluTanh,
        Activation::Relu2 => RowActivation::Relu2,
        Activation::Xielu(x) => RowActivation::Xielu([x.alpha_p, x.alpha_n, x.beta, x.eps]),
        Activation::Clamped { alpha, limit } => RowActivation::Clamped { alpha, limit },
    }
}
