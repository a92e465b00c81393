//! Checks that the GGUF metadata means the same as config.json: the spec that the metadata lowers
//! to is compared with the configuration, field by field.
//!
//! GGUF has no keys for some fields of configurations; an architecture implies their values. A
//! model with other values is refused here instead of being computed wrongly.

use atta_model::spec::{
    Activation, LayerSpec, Mask, ModelSpec, Presence, QkNorm, RampEnds, RopeScaling, Wiring,
};
use serde_json::Value;

use super::{
    config::Config,
    family::{Family, Window},
    rope::{Rope, RopeType},
};
use crate::Error;

/// Relative tolerance for numbers that were rounded to f32.
const NEAR: f64 = 1e-5;

/// Compares a configuration with the spec of its metadata.
pub(super) fn check(
    c: &Config,
    family: &Family,
    rope: &Rope<'_>,
    spec: &ModelSpec,
) -> Result<(), Error> {
    activation(c, family, spec)?;
    scores(c, spec)?;
    windows(c, family, spec)?;
    routing(c, spec)?;
    qk_norm(c, spec)?;
    unrotated(c, spec)?;
    wiring(c, spec)?;
    match family.is_rotated {
        true => rotation(c, family, rope, spec),
        false => Ok(()),
    }
}

fn activation(c: &Config, family: &Family, spec: &ModelSpec) -> Result<(), Error> {
    let Some((field, value)) = c.any(&["hidden_activation", "hidden_act", "activation_function"])
    else {
        return Ok(());
    };
    let Some(mlp) = spec.layers.iter().find_map(LayerSpec::mlp) else {
        return Ok(());
    };
    let computed = mlp.activation;
    let agrees = match computed {
        Activation::Silu | Activation::Clamped { .. } => {
            matches!(value.as_str(), Some("silu" | "swish" | "swiglu"))
        }
        Activation::Gelu => value == "gelu",
        // Gemma's first configurations have "gelu" for its tanh approximation.
        Activation::GeluTanh if value == "gelu" => family.arch == "gemma",
        Activation::GeluTanh => matches!(
            value.as_str(),
            Some("gelu_pytorch_tanh" | "gelu_new" | "gelu_fast")
        ),
        Activation::Relu2 => matches!(value.as_str(), Some("relu2")),
        Activation::Xielu(_) => value == "xielu",
    };
    if !agrees {
        return Err(c.unsupported(field, value));
    }
    let Activation::Clamped { alpha, limit } = computed else {
        return Ok(());
    };
    same(c, "swiglu_alpha", alpha.into())?;
    same(c, "swiglu_limit", limit.into())
}

/// Checks that a field, if it is present, has the value that is computed with.
fn same(c: &Config, field: &str, computed: f64) -> Result<(), Error> {
    match c.number_opt(&[field])? {
        Some(x) if !is_near(x, computed) => Err(c.unsupported(field, &x.into())),
        _ => Ok(()),
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= NEAR * b.abs()
}

fn scores(c: &Config, spec: &ModelSpec) -> Result<(), Error> {
    let Some(a) = spec.attentions().next() else {
        return Ok(());
    };
    same(c, "query_pre_attn_scalar", f64::from(a.scale).powi(-2))?;
    cap(c, "attn_logit_softcapping", a.softcap)?;
    cap(c, "final_logit_softcapping", spec.head.softcap)
}

/// Checks the softcap of a field. It must be present if the architecture computes with one.
fn cap(c: &Config, field: &str, computed: Option<f32>) -> Result<(), Error> {
    match computed {
        Some(cap) if c.get(field).is_none() => Err(c.wrong(format!(
            "{field} is missing; this architecture is computed with {cap}"
        ))),
        cap => same(c, field, cap.unwrap_or(0.0).into()),
    }
}

fn windows(c: &Config, family: &Family, spec: &ModelSpec) -> Result<(), Error> {
    if family.window == Window::None {
        return Ok(());
    }
    for (l, (layer, window)) in spec.layers.iter().zip(family.windows(c)?).enumerate() {
        let computed = match layer.attention().map(|a| a.mask) {
            Some(Mask::Window(n) | Mask::Chunk(n)) => Some(n as u64),
            // Configurations say the reach of both sides together.
            Some(Mask::Around(n)) => Some(2 * n as u64),
            Some(Mask::Causal | Mask::Full) | None => None,
        };
        if computed != window {
            let shown = |window: Option<u64>| window.map_or("none".to_owned(), |n| n.to_string());
            let meant = shown(window);
            let computed = shown(computed);
            return Err(c.wrong(format!(
                "layer {l} has a window of {meant}; this architecture is computed with {computed}"
            )));
        }
    }
    Ok(())
}

fn routing(c: &Config, spec: &ModelSpec) -> Result<(), Error> {
    let moe = spec.layers.iter().find_map(LayerSpec::moe);
    match (c.flag_opt("norm_topk_prob")?, moe) {
        (Some(meant), Some(moe)) if meant != moe.renormalize => {
            Err(c.unsupported("norm_topk_prob", &meant.into()))
        }
        _ => Ok(()),
    }
}

/// Checks whether queries and keys are normalized, where the tensors do not say it.
fn qk_norm(c: &Config, spec: &ModelSpec) -> Result<(), Error> {
    let meant = c.flag_opt("use_qk_norm")?;
    let computed = match spec.attentions().next().map(|a| a.qk_norm) {
        None | Some(QkNorm::PerHeadIfThere { .. }) => return Ok(()),
        Some(norm) => norm != QkNorm::None,
    };
    match meant {
        Some(meant) if meant != computed => Err(c.unsupported("use_qk_norm", &meant.into())),
        _ => Ok(()),
    }
}

/// Checks which layers have no rope.
fn unrotated(c: &Config, spec: &ModelSpec) -> Result<(), Error> {
    let Some(list) = c.list_opt("no_rope_layers")? else {
        return Ok(());
    };
    let rotates = |layer: &LayerSpec| layer.attention().is_some_and(|a| a.rope.is_some());
    // Despite its name, the list has 1 for layers with rope.
    let computed: Vec<Value> = spec
        .layers
        .iter()
        .map(|layer| u64::from(rotates(layer)).into())
        .collect();
    match list.is_empty() || list == computed {
        true => Ok(()),
        false => Err(c.wrong("no_rope_layers is not the pattern of every fourth layer")),
    }
}

/// Checks whether attention and MLP are parallel.
fn wiring(c: &Config, spec: &ModelSpec) -> Result<(), Error> {
    let computed = matches!(spec.layers[0].wiring, Wiring::Parallel { .. });
    match c.flag_opt("use_parallel_residual")? {
        Some(meant) if meant != computed => {
            Err(c.unsupported("use_parallel_residual", &meant.into()))
        }
        _ => Ok(()),
    }
}

fn rotation(c: &Config, family: &Family, rope: &Rope<'_>, spec: &ModelSpec) -> Result<(), Error> {
    let theta = rope.theta()?;
    let partial = rope.partial()?;
    // Rows of q and k are permuted per whole head, which would mix rotated and other elements.
    if family.is_paired && partial != 1.0 {
        return Err(c.unsupported("partial_rotary_factor", &partial.into()));
    }
    let theta_swa = rope.theta_swa()?.unwrap_or(theta);
    for a in spec.attentions() {
        let Some(computed) = &a.rope else { continue };
        let meant = if matches!(a.mask, Mask::Window(_) | Mask::Around(_)) {
            theta_swa
        } else {
            theta
        };
        if !is_near(computed.base.into(), meant) {
            return Err(c.unsupported("rope_theta", &meant.into()));
        }
        if computed.d_rope as u64 != (a.d_rotatable() as f64 * partial) as u64 {
            return Err(c.unsupported("partial_rotary_factor", &partial.into()));
        }
        let is_stretched = !matches!(computed.scaling, RopeScaling::None);
        if is_stretched && !is_near(computed.magnitude.into(), rope.magnitude()?) {
            return Err(c.wrong(format!(
                "the rope is multiplied by {}, which is not supported",
                rope.magnitude()?
            )));
        }
        if let RopeScaling::Yarn(yarn) = computed.scaling
            && (yarn.ends == RampEnds::Whole) != rope.is_truncated()
        {
            return Err(c.unsupported("truncate", &rope.is_truncated().into()));
        }
    }
    stretching(c, rope, spec)
}

/// Checks that some layer has the rope scaling of the configuration.
fn stretching(c: &Config, rope: &Rope<'_>, spec: &ModelSpec) -> Result<(), Error> {
    let kind = rope.kind()?;
    let factors = spec
        .tensors()
        .iter()
        .any(|req| req.role == atta_model::Role::RopeFreqs);
    let is = |scaling: RopeScaling| match (kind, scaling) {
        (RopeType::Default | RopeType::NtkAlpha, RopeScaling::None) => true,
        (RopeType::Llama3 | RopeType::Proportional, RopeScaling::None) => factors,
        // Scaling by a factor of 1 lowers to no scaling.
        (RopeType::Linear, RopeScaling::Linear { .. } | RopeScaling::None) => true,
        (RopeType::Dynamic, RopeScaling::Dynamic { .. }) => true,
        (RopeType::Yarn, RopeScaling::Yarn(_)) => true,
        (RopeType::LongRope, RopeScaling::Long { .. }) => true,
        (RopeType::Default, RopeScaling::Long { factors, .. }) => factors != Presence::Required,
        _ => false,
    };
    let ropes = spec.attentions().filter_map(|a| a.rope.as_ref());
    match ropes.map(|rope| rope.scaling).any(is) {
        true => Ok(()),
        false => Err(c.wrong(format!(
            "rope_type is {kind:?}, which is not supported for this architecture"
        ))),
    }
}
