//! Command R7B and Command A: a Command R in which of four layers three have a window and rotate,
//! and the fourth does neither.
//!
//! Source: the model's code in Hugging Face transformers (`cohere2`); Yang et al. 2025.

use super::{command_r::parallel, meta::Meta};
use crate::{
    Error,
    spec::{Mask, ModelSpec},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let window = m.size("attention.sliding_window")?;
    let pattern = m.window_pattern(4)?;
    parallel(m)?.build_each(|l, layer| {
        let a = layer.attention_mut();
        match pattern[l] {
            true => a.mask = Mask::Window(window),
            false => a.rope = None,
        }
    })
}
