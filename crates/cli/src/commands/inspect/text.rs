//! The view as text in columns.

use atta::{
    KvType, TensorInfo, Value,
    spec::{Attention, Ffn, LayerSpec, Mamba2, Mask, Mixer, ModelSpec, Moe},
};

use super::{Total, View};
use crate::{
    failure::one_line,
    report::{bytes, grouped},
};

pub(super) fn render(view: &View<'_>) -> String {
    let mut lines = vec![format!(
        "{}: {} in {} file{}",
        one_line(&view.path.display().to_string()),
        bytes(view.file_bytes),
        view.directory.n_shards(),
        if view.directory.n_shards() == 1 {
            ""
        } else {
            "s"
        },
    )];
    lines.push(String::new());
    lines.extend(metadata(view));
    lines.push(String::new());
    lines.extend(totals(view));
    lines.push(String::new());
    lines.extend(model(view));
    lines.join("\n") + "\n"
}

/// The list of tensors, if asked for.
pub(super) fn tensors(view: &View<'_>) -> String {
    let lines = view.tensors.map(list).unwrap_or_default();
    if lines.is_empty() {
        String::new()
    } else {
        format!("\n{}\n", lines.join("\n"))
    }
}

fn metadata(view: &View<'_>) -> Vec<String> {
    let entries = view.metadata();
    let width = entries
        .iter()
        .map(|(key, _)| key.chars().count())
        .max()
        .unwrap_or(0)
        .min(48);
    let mut lines = vec![format!("metadata: {} keys", entries.len())];
    lines.extend(entries.iter().map(|(key, value)| {
        format!(
            "  {:<width$}  {:<10}  {}",
            one_line(key),
            value_type(value),
            one_line(&value.to_string())
        )
    }));
    lines
}

/// `u32`, `[str]`.
fn value_type(value: &Value<'_>) -> String {
    match value {
        Value::Array(array) => format!("[{}]", array.elem().name()),
        other => other.ty().name().to_owned(),
    }
}

fn totals(view: &View<'_>) -> Vec<String> {
    let line = |name: &str, total: &Total| {
        let Total {
            n_tensors,
            n_weights,
            n_bytes,
        } = *total;
        let n_weights = grouped(n_weights as i128);
        let n_bytes = grouped(n_bytes as i128);
        format!("  {name:<8}  {n_tensors:>5} tensors  {n_weights:>16} weights  {n_bytes:>16} bytes")
    };
    let mut lines = vec!["tensors".to_owned()];
    lines.extend(view.types.iter().map(|(name, total)| line(name, total)));
    if view.types.len() != 1 {
        lines.push(line("all", &view.all));
    }
    lines
}

fn model(view: &View<'_>) -> Vec<String> {
    match &view.spec {
        Err(why) => vec![format!("model: cannot be run here: {}", one_line(why))],
        Ok(spec) => spec_lines(spec),
    }
}

fn spec_lines(spec: &ModelSpec) -> Vec<String> {
    let per_position: u64 = spec.state_bytes(KvType::F16, 1).iter().sum();
    let mut lines = vec![
        "model".to_owned(),
        format!(
            "  d_model {}, {} tokens, trained for {} positions",
            spec.d_model, spec.n_vocab, spec.n_ctx_train
        ),
        format!(
            "  keys and values: {} bytes per position in f16",
            grouped(per_position.into())
        ),
    ];
    let mut first = 0;
    for run in spec.layers.chunk_by(|a, b| a == b) {
        lines.push(format!("  {}", layers_line(first, run)));
        first += run.len();
    }
    lines
}

/// One line for a run of equal layers.
fn layers_line(first: usize, run: &[LayerSpec]) -> String {
    let name = match run.len() {
        1 => format!("layer {first}"),
        n => format!("layers {first}-{}", first + n - 1),
    };
    format!("{name}: {}, {}", mixer(&run[0]), ffn(&run[0]))
}

/// The widths of the feed-forward block of a layer.
fn ffn(layer: &LayerSpec) -> String {
    let experts = layer.moe().map(|moe| {
        let Moe {
            n_experts, n_used, ..
        } = moe;
        let d_ff = moe.expert.d_ff;
        format!("d_ff {d_ff} of each of {n_experts} experts, {n_used} per token")
    });
    match (&layer.ffn, experts) {
        (Ffn::MlpAndMoe(both), Some(experts)) => format!("d_ff {} beside {experts}", both.mlp.d_ff),
        (_, Some(experts)) => experts,
        (_, None) => match layer.mlp() {
            Some(mlp) => format!("d_ff {}", mlp.d_ff),
            None => "no MLP".to_owned(),
        },
    }
}

/// The mixer of a layer.
fn mixer(layer: &LayerSpec) -> String {
    match &layer.mixer {
        Mixer::None => "no mixer".to_owned(),
        Mixer::Attention(a) => attention(a),
        Mixer::ShortConv(conv) => format!("short convolution of {} positions", conv.n_taps),
        Mixer::DeltaNet(net) => format!(
            "gated delta net, {} heads ({} of keys) of {}",
            net.n_heads, net.n_key_heads, net.d_value
        ),
        Mixer::Mamba(mamba) => {
            format!("mamba, {} channels, state {}", mamba.d_inner, mamba.d_state)
        }
        Mixer::Mamba2(mamba) => mamba2(mamba),
        Mixer::AttentionAndMamba2(both) => {
            format!(
                "{} beside {}",
                attention(&both.attention),
                mamba2(&both.mamba)
            )
        }
    }
}

fn mamba2(mamba: &Mamba2) -> String {
    format!(
        "mamba 2, {} heads ({} groups) of {}, state {}",
        mamba.n_heads, mamba.n_groups, mamba.d_head, mamba.d_state
    )
}

fn attention(a: &Attention) -> String {
    let mask = match a.mask {
        Mask::Causal => String::new(),
        Mask::Window(n) => format!(", window {n}"),
        Mask::Chunk(n) => format!(", chunks of {n}"),
        Mask::Full => ", both ways".to_owned(),
        Mask::Around(n) => format!(", {n} positions both ways"),
    };
    let keys = match a.kv_layer() {
        Some(l) => format!("{} of keys and values, of layer {l}", a.n_kv_heads),
        None => format!("{} of keys and values", a.n_kv_heads),
    };
    let chosen = a.indexer.map_or(String::new(), |i| {
        format!(
            ", at most {} blocks of {} positions",
            i.n_blocks, i.block_len
        )
    });
    format!("{} heads ({keys}) of {}{mask}{chosen}", a.n_heads, a.d_head)
}

fn list(tensors: &[TensorInfo]) -> Vec<String> {
    let width = tensors
        .iter()
        .map(|t| t.name.chars().count())
        .max()
        .unwrap_or(0)
        .min(48);
    let line = |t: &TensorInfo| {
        format!(
            "  {:<width$}  {:<8}  {:<20}  {:>14} bytes at {}:{}",
            one_line(&t.name),
            t.ty.name(),
            t.shape.to_string(),
            grouped(t.n_bytes.into()),
            t.shard,
            t.offset
        )
    };
    tensors.iter().map(line).collect()
}
