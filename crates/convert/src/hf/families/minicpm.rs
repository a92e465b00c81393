//! MiniCPM, whose classes are not in transformers.

use super::{LLAMA, LongRope};
use crate::{
    Error,
    hf::{config::Config, family::Family, keys::Keys},
};

pub(super) const ALL: &[Family] = &[Family {
    classes: &["MiniCPMForCausalLM"],
    arch: "minicpm",
    defaults: r#"{"scale_emb": 1, "scale_depth": 1, "dim_model_base": 1, "rms_norm_eps": 1e-6}"#,
    multipliers: &[("scale_emb", "embedding_scale")],
    long: LongRope::Type,
    own_keys: Some(multipliers),
    ..LLAMA
}];

/// Writes the multipliers that follow from sizes.
fn multipliers(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let n_layers = c.count(&["num_hidden_layers"])?.max(1) as f64;
    let d_model = c.count(&["hidden_size"])? as f64;
    let depth = c.number_opt(&["scale_depth"])?.unwrap_or(1.0);
    let base = c.number_opt(&["dim_model_base"])?.unwrap_or(1.0);
    keys.number("residual_scale", depth / n_layers.sqrt());
    keys.number("logit_scale", d_model / base);
    Ok(())
}
