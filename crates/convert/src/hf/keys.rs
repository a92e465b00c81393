//! GGUF metadata from a configuration, as llama.cpp's converter writes it.

use atta_formats::Writer;

use super::{
    config::Config,
    family::{Family, LongRope, Window},
    rope::{Rope, RopeType},
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

    /// Sets the counts of all layers.
    pub(super) fn counts(&mut self, key: &str, all: &[u64]) {
        let all: Vec<u32> = all
            .iter()
            .map(|&n| u32::try_from(n).unwrap_or(u32::MAX))
            .collect();
        self.writer.set_u32s(&self.key(key), &all);
    }

    pub(super) fn number(&mut self, key: &str, x: f64) {
        self.writer.set_f32(&self.key(key), x as f32);
    }

    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.writer.set_str(&self.key(key), text);
    }

    fn flags(&mut self, key: &str, flags: &[bool]) {
        self.writer.set_bools(&self.key(key), flags);
    }

    fn flag(&mut self, key: &str, flag: bool) {
        self.writer.set_bool(&self.key(key), flag);
    }
}

/// Writes all keys of a model except those of its vocabulary.
pub(super) fn write(c: &Config, family: &Family, keys: &mut Keys) -> Result<(), Error> {
    sizes(c, keys)?;
    for (field, key) in family.multipliers {
        if let Some(x) = c.number_opt(&[field])? {
            keys.number(key, x);
        }
    }
    if family.is_rotated {
        rotation(c, family, keys)?;
    }
    windows(c, family, keys)?;
    if family.delta.is_some() {
        delta_nets(c, keys)?;
    }
    if let Some(write) = family.own_keys {
        write(c, keys)?;
    }
    experts(c, family, keys)
}

/// Writes the widths and counts of every model.
fn sizes(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let d_model = c.count(&["hidden_size", "n_embd"])?;
    let n_heads = c.count(&["num_attention_heads", "n_head"])?;
    let d_ff = c
        .count_opt(&["intermediate_size", "n_inner"])?
        .unwrap_or(d_model.saturating_mul(4));
    keys.count("vocab_size", c.count(&["vocab_size"])?);
    keys.count("block_count", c.count(&["num_hidden_layers", "n_layer"])?);
    keys.count(
        "context_length",
        c.count(&["max_position_embeddings", "n_positions", "n_ctx"])?,
    );
    keys.count("embedding_length", d_model);
    keys.count("feed_forward_length", d_ff);
    keys.count("attention.head_count", n_heads);
    keys.count(
        "attention.head_count_kv",
        c.count_opt(&["num_key_value_heads"])?.unwrap_or(n_heads),
    );
    if let Some(eps) = c.number_opt(&["rms_norm_eps"])? {
        keys.number("attention.layer_norm_rms_epsilon", eps);
    }
    if let Some(eps) = c.number_opt(&["layer_norm_eps", "layer_norm_epsilon"])? {
        keys.number("attention.layer_norm_epsilon", eps);
    }
    if let Some(d_head) = c.count_opt(&["head_dim"])? {
        keys.count("attention.key_length", d_head);
        keys.count("attention.value_length", d_head);
    }
    Ok(())
}

fn rotation(c: &Config, family: &Family, keys: &mut Keys) -> Result<(), Error> {
    let rope = Rope::new(c)?;
    rope.write(keys)?;
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
        (LongRope::Unsupported, _) => Ok(()),
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
        (Window::Every(_) | Window::Listed(_), Some(&window)) => {
            keys.count("attention.sliding_window", window)
        }
        _ => {}
    }
    if matches!(family.window, Window::Listed(_)) && windows.iter().any(Option::is_some) {
        let listed: Vec<bool> = windows.iter().map(Option::is_some).collect();
        keys.flags("attention.sliding_window_pattern", &listed);
    }
    Ok(())
}

/// Writes the sizes of delta nets, and which layers have one.
fn delta_nets(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let n_heads = c.count(&["linear_num_value_heads"])?;
    let d_value = c.count(&["linear_value_head_dim"])?;
    keys.count("ssm.conv_kernel", c.count(&["linear_conv_kernel_dim"])?);
    keys.count("ssm.state_size", c.count(&["linear_key_head_dim"])?);
    keys.count("ssm.group_count", c.count(&["linear_num_key_heads"])?);
    keys.count("ssm.time_step_rank", n_heads);
    keys.count("ssm.inner_size", n_heads.saturating_mul(d_value));
    let interval = c.count_opt(&["full_attention_interval"])?.unwrap_or(4);
    keys.count("full_attention_interval", interval);
    if let Some(listed) = c.list_opt("layer_types")? {
        let recurrent: Vec<bool> = listed
            .iter()
            .map(|kind| kind == "linear_attention")
            .collect();
        keys.flags("attention.recurrent_layers", &recurrent);
    }
    Ok(())
}

fn experts(c: &Config, family: &Family, keys: &mut Keys) -> Result<(), Error> {
    let Some(experts) = &family.experts else {
        return Ok(());
    };
    if c.flag_opt("enable_moe_block")? == Some(false) {
        // The fields of experts say nothing then.
        c.any(&["num_experts", "top_k_experts", "moe_intermediate_size"]);
        return Ok(());
    }
    keys.count(
        "expert_count",
        c.count(&["num_local_experts", "num_experts"])?,
    );
    keys.count(
        "expert_used_count",
        c.count(&["num_experts_per_tok", "top_k_experts"])?,
    );
    for (field, key) in experts.widths {
        if let Some(d_ff) = c.count_opt(&[field])? {
            keys.count(key, d_ff);
        }
    }
    // The key is written only if it differs from the default of the architecture.
    match c.flag_opt("norm_topk_prob")? {
        Some(other) if other != experts.are_renormalized => keys.flag("expert_weights_norm", other),
        _ => {}
    }
    Ok(())
}
