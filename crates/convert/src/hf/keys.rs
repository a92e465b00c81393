//! GGUF metadata from a configuration, as llama.cpp's converter writes it.

use atta_formats::Writer;
use serde_json::Value;

use super::{
    config::Config,
    delta_net, experts,
    family::{Family, LongRope, Recurrent, Window},
    rope::{Rope, RopeType},
    short_conv, state_space,
};
use crate::Error;

/// Writes keys of one architecture: `count("block_count", 2)` sets `llama.block_count`.
pub(super) struct Keys {
    arch: &'static str,
    pub(super) writer: Writer,
}

impl Keys {
    pub(super) fn new(arch: &'static str, name: &str) -> Self {
        let mut writer = Writer::new();
        writer.set_str("general.architecture", arch);
        writer.set_str("general.type", "model");
        writer.set_str("general.name", name);
        Self { arch, writer }
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    /// Sets a count. One that overflows becomes `u32::MAX`, which `arch::lower` refuses.
    pub(super) fn count(&mut self, key: &str, n: u64) {
        self.writer
            .set_u32(&self.key(key), u32::try_from(n).unwrap_or(u32::MAX));
    }

    /// Sets the counts of all layers. One that overflows becomes -1, which `arch::lower` refuses.
    pub(super) fn counts(&mut self, key: &str, all: &[u64]) {
        let all: Vec<i32> = all
            .iter()
            .map(|&n| i32::try_from(n).unwrap_or(-1))
            .collect();
        self.array(key, &all);
    }

    pub(super) fn number(&mut self, key: &str, x: f64) {
        self.writer.set_f32(&self.key(key), x as f32);
    }

    /// Sets the numbers of all layers.
    pub(super) fn numbers(&mut self, key: &str, all: &[f32]) {
        self.writer.set_f32s(&self.key(key), all);
    }

    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.writer.set_str(&self.key(key), text);
    }

    pub(super) fn flags(&mut self, key: &str, flags: &[bool]) {
        self.writer.set_bools(&self.key(key), flags);
    }

    /// Sets an array of numbers.
    pub(super) fn array(&mut self, key: &str, all: &[i32]) {
        self.writer.set_i32s(&self.key(key), all);
    }

    /// Sets an array of large whole numbers.
    pub(super) fn integers(&mut self, key: &str, all: &[u64]) {
        self.writer.set_u64s(&self.key(key), all);
    }

    pub(super) fn flag(&mut self, key: &str, flag: bool) {
        self.writer.set_bool(&self.key(key), flag);
    }
}

/// Writes all keys of a model except those of its vocabulary.
pub(super) fn write(c: &Config, family: &Family, keys: &mut Keys) -> Result<(), Error> {
    sizes(c, family, keys)?;
    for (field, key) in family.multipliers {
        if let Some(x) = c.number_opt(&[field])? {
            keys.number(key, x);
        }
    }
    if family.is_rotated {
        rotation(c, family, keys)?;
    }
    windows(c, family, keys)?;
    if family.names_deepstack {
        let vision = c.object_opt("vision_config")?;
        let layers = vision.and_then(|v| v.get("deepstack_visual_indexes")?.as_array());
        keys.count("n_deepstack_layers", layers.map_or(0, |l| l.len() as u64));
    }
    match family.recurrent {
        Recurrent::None => {}
        Recurrent::DeltaNet => delta_net::write_keys(c, keys)?,
        Recurrent::ShortConv => short_conv::write_keys(c, keys)?,
        Recurrent::StateSpacesAlone => state_space::write_alone(c, keys)?,
    }
    if let Some(write) = family.own_keys {
        write(c, keys)?;
    }
    experts::write_keys(c, family, keys)
}

/// Writes the widths and counts of every model.
fn sizes(c: &Config, family: &Family, keys: &mut Keys) -> Result<(), Error> {
    let d_model = c.count(&["hidden_size", "n_embd"])?;
    keys.count("vocab_size", c.count(&["vocab_size"])?);
    keys.count(
        "block_count",
        c.count(&["num_hidden_layers", "n_layer", "num_layers"])?,
    );
    keys.count("embedding_length", d_model);
    if family.recurrent == Recurrent::StateSpacesAlone {
        keys.count("context_length", state_space::N_POSITIONS);
        // Programs ask for these.
        keys.count("feed_forward_length", 0);
        keys.count("attention.head_count", 0);
        return Ok(());
    }
    let n_heads = c.count(&["num_attention_heads", "n_head"])?;
    // A list of all layers is written by the family that may have it.
    let widths = c.get("intermediate_size").and_then(Value::as_array);
    let d_ff = match widths {
        Some(_) => None,
        None => c.count_opt(&["shared_intermediate_size", "intermediate_size", "n_inner"])?,
    };
    let n_positions = c.count(&[
        "max_trained_positions",
        "max_position_embeddings",
        "n_positions",
        "n_ctx",
        "model_max_length",
    ])?;
    keys.count(
        "context_length",
        n_positions.saturating_sub(family.n_skipped_positions(c)?),
    );
    // Models whose layers all have experts may have no other width.
    match d_ff {
        Some(d_ff) => keys.count("feed_forward_length", d_ff),
        None if family.experts.is_some() || widths.is_some() => {}
        None => keys.count("feed_forward_length", d_model.saturating_mul(4)),
    }
    keys.count("attention.head_count", n_heads);
    keys.count(
        "attention.head_count_kv",
        c.count_opt(&["num_key_value_heads"])?.unwrap_or(n_heads),
    );
    if let Some(eps) = c.number_opt(&["rms_norm_eps", "norm_eps"])? {
        keys.number("attention.layer_norm_rms_epsilon", eps);
    }
    if let Some(eps) = c.number_opt(&[
        "layer_norm_eps",
        "layer_norm_epsilon",
        "norm_epsilon",
        "norm_eps",
    ])? {
        keys.number("attention.layer_norm_epsilon", eps);
    }
    if let Some(d_head) = c.count_opt(&["head_dim"])? {
        keys.count("attention.key_length", d_head);
        keys.count("attention.value_length", d_head);
    }
    Ok(())
}

/// Writes the epsilon of RMS norms that the configuration calls that of layer norms.
pub(super) fn write_rms_epsilon(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    if let Some(eps) = c.number_opt(&["layer_norm_epsilon"])? {
        keys.number("attention.layer_norm_rms_epsilon", eps);
    }
    Ok(())
}

fn rotation(c: &Config, family: &Family, keys: &mut Keys) -> Result<(), Error> {
    let rope = Rope::new(c)?;
    rope.write(keys)?;
    if let Some(usual) = family.sections {
        keys.array("rope.dimension_sections", &rope.sections(usual)?);
    }
    if family.names_d_rope {
        keys.count(
            "rope.dimension_count",
            (d_head(c)? as f64 * rope.partial()?) as u64,
        );
    }
    match (family.long, rope.kind()?) {
        (LongRope::Unsupported, RopeType::LongRope) => {
            Err(c.wrong("rope_type is longrope, which is not supported for this architecture"))
        }
        (LongRope::Type, RopeType::LongRope) => {
            keys.text("rope.scaling.type", "longrope");
            keys.count("rope.scaling.original_context_length", rope.n_ctx_orig()?);
            Ok(())
        }
        (LongRope::Unsupported | LongRope::Type, _) => Ok(()),
        (LongRope::AttnFactor, kind) => {
            keys.count("rope.scaling.original_context_length", rope.n_ctx_orig()?);
            if kind == RopeType::LongRope {
                keys.number("rope.scaling.attn_factor", rope.magnitude()?);
            }
            Ok(())
        }
    }
}

/// The width of a head.
fn d_head(c: &Config) -> Result<u64, Error> {
    match c.count_opt(&["head_dim"])? {
        Some(d) => Ok(d),
        None => Ok(c.count(&["hidden_size"])? / c.count(&["num_attention_heads"])?.max(1)),
    }
}

fn windows(c: &Config, family: &Family, keys: &mut Keys) -> Result<(), Error> {
    let windows = family.windows(c)?;
    match (family.window, windows.iter().flatten().next()) {
        (Window::All, window) => {
            keys.count("attention.sliding_window", window.copied().unwrap_or(0))
        }
        (Window::Every(_) | Window::Listed(_) | Window::AllButFirstOf(_), Some(&window)) => {
            keys.count("attention.sliding_window", window)
        }
        _ => {}
    }
    if let Window::AllButFirstOf(n) = family.window {
        let every = c.count_opt(&["global_attn_every_n_layers"])?.unwrap_or(n);
        keys.count("attention.sliding_window_pattern", every);
        if let Some(activation) = c.text_opt("hidden_activation")? {
            keys.text("hidden_activation", activation);
        }
    }
    if matches!(family.window, Window::Listed(_)) && windows.iter().any(Option::is_some) {
        let listed: Vec<bool> = windows.iter().map(Option::is_some).collect();
        keys.flags("attention.sliding_window_pattern", &listed);
    }
    Ok(())
}
