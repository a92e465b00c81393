//! The supported model families: defaults of their configurations, names of their tensors, and what
//! llama.cpp's converter does to the tensors. One entry per model class of transformers; a new
//! architecture is a new entry.
//!
//! Sources: the configuration classes of transformers 5 (defaults), and llama.cpp's
//! `convert_hf_to_gguf.py` (transformations of tensors).

use atta_model::Role;
use serde_json::Value;

use super::{
    config::Config,
    encoders::{ENCODERS, Encoder},
    gemma4,
    keys::Keys,
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
}

/// How longrope is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LongRope {
    /// GGUF has no key for it.
    Unsupported,
    /// As `rope.scaling.attn_factor`, which multiplies rotated elements.
    AttnFactor,
}

/// The experts of a family.
pub(super) struct Experts {
    /// The prefix of the names of experts.
    pub(super) prefix: &'static str,
    /// Names of gate, up and down of one expert.
    pub(super) parts: [&'static str; 3],
    /// The layout of gate and up if they are one tensor for all experts.
    pub(super) gate_up: GateUpLayout,
    /// Whether gate and up are one tensor in GGUF too.
    pub(super) keeps_gate_up: bool,
    /// Fields of widths, with their GGUF keys.
    pub(super) widths: &'static [(&'static str, &'static str)],
    /// Whether the router's weights are renormalized if GGUF does not say.
    pub(super) are_renormalized: bool,
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
}

/// Llama. The other families are described by their differences from it.
const LLAMA: Family = Family {
    classes: &["LlamaForCausalLM", "LLaMAForCausalLM"],
    arch: "llama",
    defaults: "{}",
    fixed: &[],
    multipliers: &[],
    window: Window::None,
    recurrent: Recurrent::None,
    is_rotated: true,
    names_d_rope: true,
    long: LongRope::Unsupported,
    sections: None,
    names_deepstack: false,
    prefix: "model.layers.{l}.",
    names: &[],
    fused: &[],
    gate_up: None,
    experts: None,
    is_paired: true,
    is_transposed: false,
    otherwise_named: &[],
    norm_offset: 0.0,
    encoder: None,
    own_keys: None,
    ternary: None,
};

/// Llama with rope on halves of heads.
pub(super) const HALVES: Family = Family {
    names_d_rope: false,
    is_paired: false,
    ..LLAMA
};

const GRANITE: Family = Family {
    classes: &["GraniteForCausalLM"],
    arch: "granite",
    defaults: r#"{"attention_multiplier": 1.0, "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0, "logits_scaling": 1.0}"#,
    multipliers: &[
        ("attention_multiplier", "attention.scale"),
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"),
    ],
    ..LLAMA
};

const QWEN_EXPERTS: Experts = Experts {
    prefix: "mlp.experts.",
    parts: ["gate_proj.weight", "up_proj.weight", "down_proj.weight"],
    gate_up: GateUpLayout::Halves,
    keeps_gate_up: false,
    widths: &[
        ("moe_intermediate_size", "expert_feed_forward_length"),
        (
            "shared_expert_intermediate_size",
            "expert_shared_feed_forward_length",
        ),
    ],
    are_renormalized: false,
    gating: None,
};

/// Qwen3.5: gated delta nets, and attention with an output gate in every fourth layer.
const QWEN35: Family = Family {
    classes: &["Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"],
    arch: "qwen35",
    defaults: r#"{"head_dim": 256, "num_key_value_heads": 4, "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-6, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32}"#,
    fixed: &[("attn_output_gate", "true")],
    recurrent: Recurrent::DeltaNet,
    names_d_rope: true,
    sections: Some([11, 11, 10]),
    otherwise_named: &[Role::FfnNorm],
    norm_offset: 1.0,
    ..HALVES
};

/// LFM2: gated short convolutions, and attention in some layers.
const LFM2: Family = Family {
    classes: &["Lfm2ForCausalLM", "LFM2ForCausalLM"],
    arch: "lfm2",
    defaults: r#"{"tie_word_embeddings": true, "num_key_value_heads": 8, "rope_theta": 1e6,
        "norm_eps": 1e-5, "conv_L_cache": 3, "block_auto_adjust_ff_dim": true,
        "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256}"#,
    fixed: &[("conv_bias", "false")],
    recurrent: Recurrent::ShortConv,
    names: &[
        (Role::OutputNorm, "model.embedding_norm.weight"),
        (Role::AttnNorm, "operator_norm.weight"),
        (Role::AttnQNorm, "self_attn.q_layernorm.weight"),
        (Role::AttnKNorm, "self_attn.k_layernorm.weight"),
        (Role::AttnOutput, "self_attn.out_proj.weight"),
        (Role::FfnNorm, "ffn_norm.weight"),
        (Role::FfnGate, "feed_forward.w1.weight"),
        (Role::FfnUp, "feed_forward.w3.weight"),
        (Role::FfnDown, "feed_forward.w2.weight"),
        (Role::FfnGateInp, "feed_forward.gate.weight"),
        (Role::ExpProbsBias, "feed_forward.expert_bias"),
    ],
    otherwise_named: &[Role::OutputNorm],
    ..HALVES
};

const GEMMA_NORMS: &[(Role, &str)] = &[(Role::FfnNorm, "pre_feedforward_layernorm.weight")];

/// Gemma 3.
pub(super) const GEMMA3: Family = Family {
    classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    arch: "gemma3",
    defaults: r#"{"tie_word_embeddings": true, "vocab_size": 262208, "hidden_size": 2304,
        "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256,
        "sliding_window": 4096, "rope_theta": 1e6, "rope_local_base_freq": 1e4}"#,
    fixed: &[("use_bidirectional_attention", "false")],
    multipliers: &[("final_logit_softcapping", "final_logit_softcapping")],
    window: Window::Every(6),
    names: GEMMA_NORMS,
    norm_offset: 1.0,
    ..HALVES
};

const FAMILIES: &[Family] = &[
    LLAMA,
    Family {
        classes: &["MistralForCausalLM"],
        defaults: r#"{"num_key_value_heads": 8}"#,
        window: Window::Dropped,
        ..LLAMA
    },
    Family {
        classes: &["MixtralForCausalLM"],
        defaults: r#"{"rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2,
            "num_key_value_heads": 8}"#,
        window: Window::Dropped,
        names: &[(Role::FfnGateInp, "block_sparse_moe.gate.weight")],
        experts: Some(Experts {
            prefix: "block_sparse_moe.experts.",
            parts: ["w1.weight", "w3.weight", "w2.weight"],
            widths: &[],
            are_renormalized: true,
            ..QWEN_EXPERTS
        }),
        ..LLAMA
    },
    Family {
        classes: &["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"],
        arch: "mistral3",
        window: Window::Dropped,
        ..LLAMA
    },
    GRANITE,
    Family {
        // Those without mamba layers and experts, such as Granite 4.0 micro.
        classes: &["GraniteMoeHybridForCausalLM"],
        defaults: r#"{"attention_multiplier": 1.0, "embedding_multiplier": 1.0,
            "residual_multiplier": 1.0, "logits_scaling": 1.0, "num_local_experts": 8,
            "position_embedding_type": "nope"}"#,
        fixed: &[
            ("num_local_experts", "0"),
            ("position_embedding_type", "\"rope\""),
        ],
        names: &[(Role::FfnDown, "shared_mlp.output_linear.weight")],
        gate_up: Some("shared_mlp.input_linear.weight"),
        ..GRANITE
    },
    Family {
        classes: &["SmolLM3ForCausalLM"],
        arch: "smollm3",
        defaults: r#"{"rope_theta": 2e6, "tie_word_embeddings": true, "num_key_value_heads": 4}"#,
        fixed: &[("no_rope_layer_interval", "4")],
        window: Window::Last,
        ..LLAMA
    },
    Family {
        classes: &["Qwen2ForCausalLM"],
        arch: "qwen2",
        window: Window::Last,
        ..HALVES
    },
    Family {
        classes: &["Qwen3ForCausalLM"],
        arch: "qwen3",
        defaults: r#"{"head_dim": 128}"#,
        window: Window::Last,
        ..HALVES
    },
    Family {
        classes: &[
            "Qwen2VLForConditionalGeneration",
            "Qwen2_5_VLForConditionalGeneration",
        ],
        arch: "qwen2vl",
        sections: Some([16, 24, 24]),
        window: Window::Last,
        ..HALVES
    },
    Family {
        classes: &["Qwen3VLForConditionalGeneration"],
        arch: "qwen3vl",
        defaults: r#"{"head_dim": 128}"#,
        sections: Some([24, 20, 20]),
        names_deepstack: true,
        window: Window::Last,
        ..HALVES
    },
    Family {
        classes: &["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
        arch: "ernie4_5",
        defaults: r#"{"tie_word_embeddings": true, "head_dim": 128, "rope_theta": 500000.0}"#,
        ..HALVES
    },
    Family {
        classes: &["SeedOssForCausalLM"],
        arch: "seed_oss",
        defaults: r#"{"head_dim": 128, "num_key_value_heads": 8}"#,
        otherwise_named: &[Role::FfnNorm],
        ..HALVES
    },
    Family {
        classes: &["Qwen2MoeForCausalLM"],
        arch: "qwen2moe",
        defaults: r#"{"norm_topk_prob": false}"#,
        fixed: &[("decoder_sparse_step", "1"), ("mlp_only_layers", "[]")],
        window: Window::Last,
        experts: Some(QWEN_EXPERTS),
        ..HALVES
    },
    Family {
        classes: &["Qwen3MoeForCausalLM"],
        arch: "qwen3moe",
        defaults: r#"{"norm_topk_prob": false, "head_dim": 128}"#,
        fixed: &[("decoder_sparse_step", "1"), ("mlp_only_layers", "[]")],
        window: Window::Last,
        experts: Some(Experts {
            are_renormalized: true,
            ..QWEN_EXPERTS
        }),
        ..HALVES
    },
    QWEN35,
    Family {
        classes: &[
            "Qwen3_5MoeForCausalLM",
            "Qwen3_5MoeForConditionalGeneration",
        ],
        arch: "qwen35moe",
        experts: Some(Experts {
            are_renormalized: true,
            ..QWEN_EXPERTS
        }),
        ..QWEN35
    },
    Family {
        classes: &["Qwen3NextForCausalLM"],
        arch: "qwen3next",
        defaults: r#"{"head_dim": 256, "num_key_value_heads": 2, "partial_rotary_factor": 0.25,
            "rms_norm_eps": 1e-6, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "norm_topk_prob": true}"#,
        fixed: &[("decoder_sparse_step", "1"), ("mlp_only_layers", "[]")],
        sections: None,
        experts: Some(Experts {
            are_renormalized: true,
            ..QWEN_EXPERTS
        }),
        ..QWEN35
    },
    LFM2,
    Family {
        classes: &["Lfm2MoeForCausalLM"],
        arch: "lfm2moe",
        defaults: r#"{"tie_word_embeddings": true, "num_key_value_heads": 8, "rope_theta": 1e6,
            "norm_eps": 1e-5, "conv_L_cache": 3, "num_dense_layers": 2,
            "moe_intermediate_size": 1792, "num_experts_per_tok": 4, "num_experts": 32,
            "norm_topk_prob": true}"#,
        fixed: &[("conv_bias", "false"), ("use_expert_bias", "true")],
        experts: Some(Experts {
            prefix: "feed_forward.experts.",
            parts: ["w1.weight", "w3.weight", "w2.weight"],
            are_renormalized: true,
            gating: Some(2),
            ..QWEN_EXPERTS
        }),
        ..LFM2
    },
    Family {
        classes: &["GemmaForCausalLM"],
        arch: "gemma",
        defaults: r#"{"tie_word_embeddings": true, "head_dim": 256}"#,
        fixed: &[("use_bidirectional_attention", "false")],
        norm_offset: 1.0,
        ..HALVES
    },
    Family {
        classes: &["Gemma2ForCausalLM"],
        arch: "gemma2",
        defaults: r#"{"tie_word_embeddings": true, "head_dim": 256, "sliding_window": 4096,
            "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0}"#,
        fixed: &[("use_bidirectional_attention", "false")],
        multipliers: &[
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ],
        window: Window::Every(2),
        names: GEMMA_NORMS,
        norm_offset: 1.0,
        ..HALVES
    },
    GEMMA3,
    Family {
        classes: &["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"],
        arch: "gemma4",
        defaults: r#"{"tie_word_embeddings": true, "vocab_size": 262144, "hidden_size": 2304,
            "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "sliding_window": 512,
            "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
            "enable_moe_block": false}"#,
        fixed: &[("attention_bias", "false")],
        multipliers: &[("final_logit_softcapping", "final_logit_softcapping")],
        window: Window::Listed(6),
        names: gemma4::NAMES,
        experts: Some(Experts {
            prefix: "experts.",
            keeps_gate_up: true,
            widths: &[("moe_intermediate_size", "expert_feed_forward_length")],
            are_renormalized: true,
            ..QWEN_EXPERTS
        }),
        own_keys: Some(gemma4::write_keys),
        ..HALVES
    },
    Family {
        classes: &["Olmo2ForCausalLM", "Olmo3ForCausalLM"],
        arch: "olmo2",
        window: Window::Listed(4),
        ..HALVES
    },
    Family {
        classes: &["PhiForCausalLM"],
        arch: "phi2",
        defaults: r#"{"partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5}"#,
        fixed: &[("qk_layernorm", "false")],
        names_d_rope: true,
        names: &[
            (Role::OutputNorm, "model.final_layernorm.weight"),
            (Role::OutputNormBias, "model.final_layernorm.bias"),
            (Role::AttnOutput, "self_attn.dense.weight"),
            (Role::AttnOutputBias, "self_attn.dense.bias"),
            (Role::FfnUp, "mlp.fc1.weight"),
            (Role::FfnUpBias, "mlp.fc1.bias"),
            (Role::FfnDown, "mlp.fc2.weight"),
            (Role::FfnDownBias, "mlp.fc2.bias"),
        ],
        ..HALVES
    },
    Family {
        classes: &["Phi3ForCausalLM"],
        arch: "phi3",
        defaults: r#"{"original_max_position_embeddings": 4096}"#,
        window: Window::All,
        names_d_rope: true,
        long: LongRope::AttnFactor,
        fused: &[
            ("attn_qkv.weight", "self_attn.qkv_proj.weight"),
            ("ffn_up.weight", "mlp.gate_up_proj.weight"),
        ],
        ..HALVES
    },
    Family {
        classes: &["GPT2LMHeadModel"],
        arch: "gpt2",
        defaults: r#"{"tie_word_embeddings": true, "layer_norm_epsilon": 1e-5}"#,
        fixed: &[
            ("scale_attn_weights", "true"),
            ("scale_attn_by_inverse_layer_idx", "false"),
            ("add_cross_attention", "false"),
        ],
        is_rotated: false,
        prefix: "h.{l}.",
        names: &[
            (Role::TokenEmbd, "wte.weight"),
            (Role::PositionEmbd, "wpe.weight"),
            (Role::OutputNorm, "ln_f.weight"),
            (Role::OutputNormBias, "ln_f.bias"),
            (Role::AttnNorm, "ln_1.weight"),
            (Role::AttnNormBias, "ln_1.bias"),
            (Role::AttnOutput, "attn.c_proj.weight"),
            (Role::AttnOutputBias, "attn.c_proj.bias"),
            (Role::FfnNorm, "ln_2.weight"),
            (Role::FfnNormBias, "ln_2.bias"),
            (Role::FfnUp, "mlp.c_fc.weight"),
            (Role::FfnUpBias, "mlp.c_fc.bias"),
            (Role::FfnDown, "mlp.c_proj.weight"),
            (Role::FfnDownBias, "mlp.c_proj.bias"),
        ],
        fused: &[
            ("attn_qkv.weight", "attn.c_attn.weight"),
            ("attn_qkv.bias", "attn.c_attn.bias"),
        ],
        is_transposed: true,
        ..HALVES
    },
    Family {
        classes: &["GptOssForCausalLM"],
        arch: "gpt-oss",
        defaults: r#"{"rope_theta": 150000.0, "head_dim": 64, "sliding_window": 128,
            "num_local_experts": 128, "num_experts_per_tok": 4}"#,
        window: Window::Every(2),
        names: &[
            (Role::FfnGateInp, "mlp.router.weight"),
            (Role::FfnGateInpBias, "mlp.router.bias"),
            (Role::FfnGateExpsBias, "mlp.experts.gate_up_proj_bias"),
            (Role::FfnUpExpsBias, "mlp.experts.gate_up_proj_bias"),
            (Role::FfnDownExpsBias, "mlp.experts.down_proj_bias"),
        ],
        experts: Some(Experts {
            gate_up: GateUpLayout::Columns,
            widths: &[("intermediate_size", "expert_feed_forward_length")],
            are_renormalized: true,
            ..QWEN_EXPERTS
        }),
        otherwise_named: &[Role::FfnNorm],
        ..HALVES
    },
    Family {
        classes: &["BitNetForCausalLM"],
        arch: "bitnet",
        defaults: r#"{"rope_theta": 500000.0, "num_key_value_heads": 5}"#,
        ..HALVES
    },
    Family {
        // Models of 1bitLLM, which have their own code instead of a class in transformers.
        classes: &["BitnetForCausalLM"],
        arch: "bitnet",
        names: &[
            (Role::AttnSubNorm, "self_attn.inner_attn_ln.weight"),
            (Role::FfnSubNorm, "mlp.ffn_layernorm.weight"),
        ],
        ternary: Some(("weight_bits", 1)),
        ..HALVES
    },
];

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
        let family = FAMILIES
            .iter()
            .chain(ENCODERS)
            .find(|family| family.classes.contains(&class));
        family.ok_or_else(|| {
            c.wrong(format!(
                "architectures is {class:?}, which is not supported"
            ))
        })
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
        let n_layers = c.count(&["num_hidden_layers", "n_layer"])?;
        if n_layers > MAX_LAYERS {
            return Err(c.wrong(format!(
                "num_hidden_layers is {n_layers}, expected at most {MAX_LAYERS}"
            )));
        }
        let window = c.count_opt(&["sliding_window", "local_attention"])?;
        let every = c.count_opt(&["global_attn_every_n_layers"])?;
        let listed = c.list_opt("layer_types")?;
        let pattern = c.count_opt(&["sliding_window_pattern", "_sliding_window_pattern"])?;
        let is_used = c.flag_opt("use_sliding_window")?.unwrap_or(false);
        let first = c.count_opt(&["max_window_layers"])?.unwrap_or(0);
        let slides = |l: u64| match (self.window, listed) {
            (Window::None | Window::Dropped, _) => Ok(false),
            (Window::All, _) => Ok(true),
            (_, Some(listed)) => match listed.get(l as usize).and_then(Value::as_str) {
                Some("sliding_attention") => Ok(true),
                Some("full_attention") => Ok(false),
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

/// Llama's name of a tensor, or the usual name of a tensor that Llama does not have.
pub(super) fn usual_name(role: Role) -> &'static str {
    match role {
        Role::TokenEmbd => "model.embed_tokens.weight",
        Role::PositionEmbd => "model.embed_positions.weight",
        Role::TokenTypes => "embeddings.token_type_embeddings.weight",
        Role::TokenEmbdNorm => "embeddings.LayerNorm.weight",
        Role::TokenEmbdNormBias => "embeddings.LayerNorm.bias",
        Role::OutputNorm => "model.norm.weight",
        Role::OutputNormBias => "model.norm.bias",
        Role::Output => "lm_head.weight",
        Role::OutputBias => "lm_head.bias",
        Role::Cls => "classifier.dense.weight",
        Role::ClsBias => "classifier.dense.bias",
        Role::ClsOutput => "classifier.out_proj.weight",
        Role::ClsOutputBias => "classifier.out_proj.bias",
        Role::AttnNorm => "input_layernorm.weight",
        Role::AttnNormBias => "input_layernorm.bias",
        Role::AttnQ => "self_attn.q_proj.weight",
        Role::AttnQBias => "self_attn.q_proj.bias",
        Role::AttnK => "self_attn.k_proj.weight",
        Role::AttnKBias => "self_attn.k_proj.bias",
        Role::AttnV => "self_attn.v_proj.weight",
        Role::AttnVBias => "self_attn.v_proj.bias",
        Role::AttnQNorm => "self_attn.q_norm.weight",
        Role::AttnKNorm => "self_attn.k_norm.weight",
        Role::AttnSubNorm => "self_attn.attn_sub_norm.weight",
        Role::AttnOutput => "self_attn.o_proj.weight",
        Role::AttnOutputBias => "self_attn.o_proj.bias",
        Role::AttnOutputNorm => "attention.output.LayerNorm.weight",
        Role::AttnOutputNormBias => "attention.output.LayerNorm.bias",
        Role::AttnSinks => "self_attn.sinks",
        Role::AttnPostNorm | Role::FfnNorm => "post_attention_layernorm.weight",
        Role::SsmQkv => "linear_attn.in_proj_qkv.weight",
        Role::SsmGate => "linear_attn.in_proj_z.weight",
        Role::SsmBeta => "linear_attn.in_proj_b.weight",
        Role::SsmAlpha => "linear_attn.in_proj_a.weight",
        Role::SsmBetaAlpha => "linear_attn.in_proj_ba.weight",
        Role::SsmConv => "linear_attn.conv1d.weight",
        Role::SsmDtBias => "linear_attn.dt_bias",
        Role::SsmA => "linear_attn.A_log",
        Role::SsmNorm => "linear_attn.norm.weight",
        Role::SsmOut => "linear_attn.out_proj.weight",
        Role::PerLayerTokenEmbd => "model.embed_tokens_per_layer.weight",
        Role::PerLayerModelProj => "model.per_layer_model_projection.weight",
        Role::PerLayerProjNorm => "model.per_layer_projection_norm.weight",
        Role::InpGate => "per_layer_input_gate.weight",
        Role::Proj => "per_layer_projection.weight",
        Role::PostNorm => "post_per_layer_input_norm.weight",
        Role::LayerOutputScale => "layer_scalar",
        Role::FfnGateInpScale => "router.scale",
        Role::PreFfwNorm2 => "pre_feedforward_layernorm_2.weight",
        Role::PostFfwNorm1 => "post_feedforward_layernorm_1.weight",
        Role::PostFfwNorm2 => "post_feedforward_layernorm_2.weight",
        Role::ShortconvInProj => "conv.in_proj.weight",
        Role::ShortconvConv => "conv.conv.weight",
        Role::ShortconvOutProj => "conv.out_proj.weight",
        Role::FfnNormBias => "post_attention_layernorm.bias",
        Role::FfnPostNorm => "post_feedforward_layernorm.weight",
        Role::FfnGate => "mlp.gate_proj.weight",
        Role::FfnGateBias => "mlp.gate_proj.bias",
        Role::FfnUp => "mlp.up_proj.weight",
        Role::FfnUpBias => "mlp.up_proj.bias",
        Role::FfnSubNorm => "mlp.ffn_sub_norm.weight",
        Role::FfnDown => "mlp.down_proj.weight",
        Role::FfnDownBias => "mlp.down_proj.bias",
        Role::LayerOutputNorm => "output.LayerNorm.weight",
        Role::LayerOutputNormBias => "output.LayerNorm.bias",
        Role::FfnGateInp => "mlp.gate.weight",
        Role::FfnGateInpBias => "mlp.gate.bias",
        Role::FfnGateInpShexp => "mlp.shared_expert_gate.weight",
        Role::FfnGateShexp => "mlp.shared_expert.gate_proj.weight",
        Role::FfnUpShexp => "mlp.shared_expert.up_proj.weight",
        Role::FfnDownShexp => "mlp.shared_expert.down_proj.weight",
        Role::ExpProbsBias => "mlp.gate.e_score_correction_bias",
        Role::FfnGateExps => "mlp.experts.gate_proj.weight",
        Role::FfnUpExps => "mlp.experts.up_proj.weight",
        Role::FfnDownExps => "mlp.experts.down_proj.weight",
        Role::FfnGateExpsBias => "mlp.experts.gate_proj.bias",
        Role::FfnUpExpsBias => "mlp.experts.up_proj.bias",
        Role::FfnDownExpsBias => "mlp.experts.down_proj.bias",
        // These are computed from the configuration.
        Role::RopeFreqs | Role::RopeFactorsShort | Role::RopeFactorsLong => "",
    }
}
