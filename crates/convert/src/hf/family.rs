//! What a model family is to the converter: how the checkpoints of some model classes of
//! transformers become the metadata and tensors of a GGUF file. `families` has all of them.

use atta_model::Role;
use serde_json::Value;

use super::{
    config::Config,
    encoders::{self, Encoder},
    families,
    keys::Keys,
    multipliers::Multipliers,
    names::usual_name,
    state_space,
};
use crate::Error;

/// The properties of the models of some classes.
pub(super) struct Family {
    /// The class names in `architectures`.
    pub(super) classes: &'static [&'static str],
    /// GGUF's `general.architecture`.
    pub(super) arch: &'static str,
    /// Defaults of absent fields, as a JSON object.
    pub(super) defaults: &'static str,
    /// Fields that change the computation, with the only supported value, as JSON. Null is allowed
    /// too.
    pub(super) fixed: &'static [(&'static str, &'static str)],
    /// Fields of multipliers and softcaps, with their GGUF keys.
    pub(super) multipliers: &'static [(&'static str, &'static str)],
    /// Whether multipliers of the configuration are in the weights of GGUF.
    pub(super) folds_multipliers: bool,
    /// Which layers have a sliding window.
    pub(super) window: Window,
    /// The layers that are no attention.
    pub(super) recurrent: Recurrent,
    /// Whether positions are encoded by rope.
    pub(super) is_rotated: bool,
    /// Whether `rope.dimension_count` is written.
    pub(super) names_d_rope: bool,
    /// How longrope is written.
    pub(super) long: LongRope,
    /// `rope.dimension_sections` where the configuration does not say them; `None`: the
    /// architecture has no such key.
    pub(super) sections: Option<[i32; 3]>,
    /// Whether the number of layers that read images (`n_deepstack_layers`) is written.
    pub(super) names_deepstack: bool,
    /// The prefix of the tensor names of a layer; `{l}` is the layer.
    pub(super) prefix: &'static str,
    /// Tensors with names other than Llama's.
    pub(super) names: &'static [(Role, &'static str)],
    /// Tensors that are fused in the checkpoint and in GGUF: GGUF's name and the checkpoint's.
    pub(super) fused: &'static [(&'static str, &'static str)],
    /// Whether the fused tensor of q, k and v has all rows of the first head, then all rows of the
    /// next one, and so on.
    pub(super) is_qkv_by_head: bool,
    /// Numbers that are tensors of each layer in the checkpoint and arrays in GGUF: the tensor's
    /// name, and the key without prefix.
    pub(super) numbers: &'static [(&'static str, &'static str)],
    /// The one tensor of a layer's gate and up, if GGUF has two.
    pub(super) gate_up: Option<&'static str>,
    /// The experts, for MoE models.
    pub(super) experts: Option<Experts>,
    /// Whether rows of q and k are permuted from rotated halves to adjacent pairs (llama.cpp's
    /// `permute`).
    pub(super) is_paired: bool,
    /// Whether matrices of layers are stored as `[d_in, d_out]`.
    pub(super) is_transposed: bool,
    /// Norms whose names in GGUF are not the usual ones, but those of the request's `fused_in`:
    /// `post_attention_norm` for the one before the MLP, `token_embd_norm` for the last one.
    pub(super) otherwise_named: &'static [Role],
    /// Added to the weights of norms.
    pub(super) norm_offset: f32,
    /// What an encoder has beside layers; `None` of decoders.
    pub(super) encoder: Option<Encoder>,
    /// Writes this architecture's own keys.
    pub(super) own_keys: Option<WriteKeys>,
    /// The field, and its value, for matrices that are rounded to ternary values when used.
    pub(super) ternary: Option<(&'static str, u64)>,
}

pub(super) type WriteKeys = fn(&Config, &mut Keys) -> Result<(), Error>;

/// Which layers have a sliding window, if the configuration does not list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// No layer. GGUF has no key for windows of this architecture.
    None,
    /// All layers in transformers, none in GGUF.
    Dropped,
    /// All layers, if `sliding_window` is set.
    All,
    /// All layers but every `n`th.
    Every(u64),
    /// All layers but the first of each `n`; written as a number.
    AllButFirstOf(u64),
    /// All layers but every `n`th; written as `sliding_window_pattern`.
    Listed(u64),
    /// Layers from `max_window_layers` on, if `use_sliding_window`; GGUF has no key for it.
    Last,
}

/// The layers of a family that are no attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recurrent {
    /// No layer.
    None,
    /// Gated delta nets.
    DeltaNet,
    /// Gated short convolutions.
    ShortConv,
    /// All of them: state spaces, with nothing between them.
    StateSpacesAlone,
}

/// How longrope is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LongRope {
    /// GGUF has no key for it.
    Unsupported,
    /// As `rope.scaling.attn_factor`, which multiplies rotated elements.
    AttnFactor,
    /// As `rope.scaling.type`. Rotated elements are multiplied by 1.
    Type,
}

/// The experts of a family.
pub(super) struct Experts {
    /// The prefix of the names of experts.
    pub(super) prefix: &'static str,
    /// Names of gate, up and down of one expert.
    pub(super) parts: [&'static str; 3],
    /// Names of the tensors of all experts, gate with up and down, where a checkpoint has those.
    pub(super) joined: [&'static str; 2],
    /// The layout of gate and up if they are one tensor for all experts.
    pub(super) gate_up: GateUpLayout,
    /// Whether gate and up are one tensor in GGUF too.
    pub(super) keeps_gate_up: bool,
    /// Fields of widths, with their GGUF keys.
    pub(super) widths: &'static [(&'static str, &'static str)],
    /// `expert_gating_func`, if the architecture has this key.
    pub(super) gating: Option<u64>,
}

/// How gate and up of all experts lie in one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateUpLayout {
    /// `[n_experts, 2 d_ff, d_model]`: gate, then up.
    Halves,
    /// `[n_experts, d_model, 2 d_ff]`: columns of gate and up alternate.
    Columns,
    /// `[n_experts, d_model, 2 d_ff]`: columns of gate, then those of up.
    ColumnHalves,
    /// Without gates: `[n_experts d_ff, d_model]` of up, and of down transposed.
    PlainRows,
}

impl Family {
    /// The family of a configuration.
    pub(super) fn of(c: &Config) -> Result<&'static Self, Error> {
        let class = c.list_opt("architectures")?.and_then(|all| all.first());
        let class = class
            .and_then(Value::as_str)
            .ok_or_else(|| c.wrong("architectures is missing"))?;
        let class = match WRAPPERS.contains(&class) {
            true => text_class(c)?,
            false => class,
        };
        let class = match class {
            "GraniteMoeHybridForCausalLM" if state_space::is_hybrid(c)? => families::GRANITE_MAMBA,
            "NemotronHForCausalLM" if state_space::has_experts(c)? => families::NEMOTRON_EXPERTS,
            "NomicBertModel" if encoders::has_experts(c)? => encoders::NOMIC_EXPERTS,
            other => other,
        };
        let family = families::all().find(|family| family.classes.contains(&class));
        family.ok_or_else(|| {
            c.wrong(format!(
                "architectures is {class:?}, which is not supported"
            ))
        })
    }

    /// The multipliers of a configuration that are in the weights.
    pub(super) fn multipliers_of(&self, c: &Config) -> Result<Multipliers, Error> {
        match self.folds_multipliers {
            true => Multipliers::read(c),
            false => Ok(Multipliers::default()),
        }
    }

    /// An error for each field that has a value that would be computed differently.
    pub(super) fn unsupported_fields(&self, c: &Config) -> impl Iterator<Item = Error> {
        const OF_ALL: [(&str, &str); 2] = [("rope_interleaved", "false"), ("is_causal", "true")];
        let unsupported = |(field, only): (&str, &str)| {
            let only: Value = serde_json::from_str(only).expect("the values of a family are JSON");
            let value = c.get(field).filter(|value| **value != only)?;
            Some(c.unsupported(field, value))
        };
        // Encoders see later positions.
        let n = if self.encoder.is_none() { 2 } else { 1 };
        let fields = self.fixed.iter().copied().chain(OF_ALL.into_iter().take(n));
        fields.filter_map(unsupported)
    }

    /// The sliding window of each layer.
    pub(super) fn windows(&self, c: &Config) -> Result<Vec<Option<u64>>, Error> {
        let n_layers = c.count(&["num_hidden_layers", "n_layer", "num_layers"])?;
        if n_layers > MAX_LAYERS {
            return Err(c.wrong(format!(
                "num_hidden_layers is {n_layers}, expected at most {MAX_LAYERS}"
            )));
        }
        const PATTERN: [&str; 2] = ["sliding_window_pattern", "_sliding_window_pattern"];
        let window = c.count_opt(&["sliding_window", "local_attention"])?;
        let every = c.count_opt(&["global_attn_every_n_layers"])?;
        let listed = c.list_opt("layer_types")?;
        let pattern = match listed {
            // EXAONE 4 has letters there.
            Some(_) => c.any(&PATTERN).and(None),
            None => c.count_opt(&PATTERN)?,
        };
        let is_used = c.flag_opt("use_sliding_window")?.unwrap_or(false);
        let first = c.count_opt(&["max_window_layers"])?.unwrap_or(0);
        let slides = |l: u64| match (self.window, listed) {
            (Window::None | Window::Dropped, _) => Ok(false),
            (Window::All, _) => Ok(true),
            (_, Some(listed)) => match listed.get(l as usize).and_then(Value::as_str) {
                Some("sliding_attention") => Ok(true),
                Some("full_attention" | "conv") => Ok(false),
                _ => Err(c.wrong(format!("layer_types does not say what layer {l} is"))),
            },
            (Window::AllButFirstOf(n), None) => Ok(!l.is_multiple_of(every.unwrap_or(n).max(1))),
            (Window::Every(n) | Window::Listed(n), None) => {
                Ok(!(l + 1).is_multiple_of(pattern.unwrap_or(n).max(1)))
            }
            (Window::Last, None) => Ok(is_used && l >= first),
        };
        (0..n_layers)
            .map(|l| slides(l).map(|slides| window.filter(|_| slides)))
            .collect()
    }

    /// The checkpoint's name of a tensor that is fused in GGUF too.
    pub(super) fn fused(&self, within: &str) -> Option<&'static str> {
        self.fused
            .iter()
            .find(|(name, _)| *name == within)
            .map(|(_, from)| *from)
    }

    /// The name of a tensor in a checkpoint.
    pub(super) fn name(&self, role: Role, layer: Option<usize>) -> String {
        let own = self
            .names
            .iter()
            .find(|(of, _)| *of == role)
            .map(|(_, name)| *name);
        self.in_layer(own.unwrap_or_else(|| usual_name(role)), layer)
    }

    /// A name with the prefix of its layer.
    pub(super) fn in_layer(&self, name: &str, layer: Option<usize>) -> String {
        match layer {
            Some(l) => format!("{}{name}", self.prefix.replace("{l}", &l.to_string())),
            None => name.to_owned(),
        }
    }
}

/// Classes of models whose text part is a model of any class, which `model_type` names.
const WRAPPERS: &[&str] = &[
    "Idefics3ForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
];

/// The class of the text part of a wrapper.
fn text_class(c: &Config) -> Result<&'static str, Error> {
    match c.text_opt("model_type")? {
        Some("llama") => Ok("LlamaForCausalLM"),
        Some("mistral") => Ok("MistralForCausalLM"),
        Some("qwen2") => Ok("Qwen2ForCausalLM"),
        Some("qwen3") => Ok("Qwen3ForCausalLM"),
        other => Err(c.wrong(format!(
            "model_type of the text part is {}, which is not supported",
            other.unwrap_or("missing")
        ))),
    }
}

/// More layers are refused.
pub(super) const MAX_LAYERS: u64 = 4096;
