//! Encoders: their families, and what their checkpoints have beside layers: types of tokens,
//! labels, the pooling of sentence-transformers, and heads of other tasks, which are left out.
//!
//! Sources: the configuration classes of transformers 5, sentence-transformers' `modules.json`, and
//! llama.cpp's `conversion/bert.py`.

use std::path::Path;

use atta_model::Role;
use serde_json::Value;

use super::{
    config::Config,
    families::{GEMMA3, HALVES},
    family::{Experts, Family, GateUpLayout, Window},
    keys::Keys,
};
use crate::{
    Error,
    raw::RawTensors,
    safetensors::{self, read_capped},
};

/// What an encoder has that a decoder has not.
pub(super) struct Encoder {
    /// Prefixes that wrappers of other tasks give to the names of tensors.
    wrappers: &'static [&'static str],
    /// Prefixes of tensors of other tasks.
    unused: &'static [&'static str],
    /// Prefixes of tensors that only a classifier uses.
    of_classifier: &'static [&'static str],
    /// Whether the first rows of the table of positions belong to no position: those up to the one
    /// of the padding token.
    skips_padding: bool,
    /// The default of `type_vocab_size`, if tokens have types.
    n_types: Option<u64>,
    /// Whether a classifier reads the mean of a text or its first token, by `classifier_pooling`;
    /// else it is the first token.
    names_classifier_pooling: bool,
    /// Whether GGUF has two dense modules of sentence-transformers.
    has_dense: bool,
}

const BERT_ENCODER: Encoder = Encoder {
    wrappers: &["bert.", "roberta."],
    unused: &["cls.", "lm_head.", "embeddings.position_ids"],
    of_classifier: &["pooler.", "classifier."],
    skips_padding: false,
    n_types: Some(2),
    names_classifier_pooling: false,
    has_dense: false,
};

const BERT: Family = Family {
    classes: &[
        "BertModel",
        "BertForMaskedLM",
        "BertForSequenceClassification",
    ],
    arch: "bert",
    defaults: r#"{"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0}"#,
    fixed: &[
        ("position_embedding_type", "\"absolute\""),
        ("is_decoder", "false"),
        ("add_cross_attention", "false"),
    ],
    is_rotated: false,
    prefix: "encoder.layer.{l}.",
    names: &[
        (Role::TokenEmbd, "embeddings.word_embeddings.weight"),
        (Role::PositionEmbd, "embeddings.position_embeddings.weight"),
        (Role::AttnQ, "attention.self.query.weight"),
        (Role::AttnQBias, "attention.self.query.bias"),
        (Role::AttnK, "attention.self.key.weight"),
        (Role::AttnKBias, "attention.self.key.bias"),
        (Role::AttnV, "attention.self.value.weight"),
        (Role::AttnVBias, "attention.self.value.bias"),
        (Role::AttnOutput, "attention.output.dense.weight"),
        (Role::AttnOutputBias, "attention.output.dense.bias"),
        (Role::FfnUp, "intermediate.dense.weight"),
        (Role::FfnUpBias, "intermediate.dense.bias"),
        (Role::FfnDown, "output.dense.weight"),
        (Role::FfnDownBias, "output.dense.bias"),
        (Role::Cls, "pooler.dense.weight"),
        (Role::ClsBias, "pooler.dense.bias"),
        (Role::ClsOutput, "classifier.weight"),
        (Role::ClsOutputBias, "classifier.bias"),
    ],
    encoder: Some(BERT_ENCODER),
    ..HALVES
};

pub(super) const ENCODERS: &[Family] = &[
    BERT,
    Family {
        classes: &[
            "RobertaModel",
            "RobertaForMaskedLM",
            "RobertaForSequenceClassification",
            "XLMRobertaModel",
            "XLMRobertaForMaskedLM",
            "XLMRobertaForSequenceClassification",
            "CamembertModel",
        ],
        defaults: r#"{"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
            "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
            "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 1}"#,
        // All but those of the classifier.
        names: BERT.names.split_at(BERT.names.len() - 4).0,
        encoder: Some(Encoder {
            skips_padding: true,
            ..BERT_ENCODER
        }),
        ..BERT
    },
    Family {
        classes: &["NomicBertModel"],
        arch: "nomic-bert",
        defaults: r#"{"vocab_size": 30528, "hidden_size": 768, "num_hidden_layers": 12,
            "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 2048,
            "layer_norm_eps": 1e-12, "hidden_act": "silu", "rope_theta": 1000.0}"#,
        fixed: &[
            ("causal", "false"),
            ("prenorm", "false"),
            ("qkv_proj_bias", "false"),
            ("mlp_fc1_bias", "false"),
            ("mlp_fc2_bias", "false"),
            ("rotary_emb_fraction", "1.0"),
            ("rotary_emb_interleaved", "false"),
            ("rotary_emb_scale_base", "null"),
            ("use_rms_norm", "false"),
            ("moe_every_n_layers", "0"),
        ],
        is_rotated: true,
        prefix: "encoder.layers.{l}.",
        names: &[
            (Role::TokenEmbd, "embeddings.word_embeddings.weight"),
            (Role::TokenEmbdNorm, "emb_ln.weight"),
            (Role::TokenEmbdNormBias, "emb_ln.bias"),
            (Role::AttnOutput, "attn.out_proj.weight"),
            (Role::AttnOutputNorm, "norm1.weight"),
            (Role::AttnOutputNormBias, "norm1.bias"),
            (Role::FfnUp, "mlp.fc11.weight"),
            (Role::FfnGate, "mlp.fc12.weight"),
            (Role::FfnDown, "mlp.fc2.weight"),
            (Role::LayerOutputNorm, "norm2.weight"),
            (Role::LayerOutputNormBias, "norm2.bias"),
        ],
        fused: &[("attn_qkv.weight", "attn.Wqkv.weight")],
        ..BERT
    },
    Family {
        classes: &[NOMIC_EXPERTS],
        arch: "nomic-bert-moe",
        defaults: r#"{"vocab_size": 250048, "n_embd": 768, "n_layer": 12, "n_head": 12,
            "n_inner": 3072, "max_position_embeddings": 512, "layer_norm_epsilon": 1e-5,
            "activation_function": "gelu", "num_experts": 8, "moe_top_k": 2,
            "type_vocab_size": 1}"#,
        fixed: &[
            ("causal", "false"),
            ("prenorm", "false"),
            ("qkv_proj_bias", "true"),
            ("mlp_fc1_bias", "true"),
            ("mlp_fc2_bias", "true"),
            ("rotary_emb_fraction", "1.0"),
            ("rotary_emb_interleaved", "false"),
            ("rotary_emb_scale_base", "null"),
            ("use_rms_norm", "false"),
            ("num_shared_experts", "0"),
            ("expert_choice_router", "false"),
            ("moe_normalize_expert_weights", "false"),
        ],
        is_rotated: true,
        prefix: "encoder.layers.{l}.",
        names: &[
            (Role::TokenEmbd, "embeddings.word_embeddings.weight"),
            (Role::TokenEmbdNorm, "emb_ln.weight"),
            (Role::TokenEmbdNormBias, "emb_ln.bias"),
            (Role::AttnOutput, "attn.out_proj.weight"),
            (Role::AttnOutputBias, "attn.out_proj.bias"),
            (Role::AttnOutputNorm, "norm1.weight"),
            (Role::AttnOutputNormBias, "norm1.bias"),
            (Role::FfnGateInp, "mlp.router.layer.weight"),
            (Role::FfnUp, "mlp.fc1.weight"),
            (Role::FfnUpBias, "mlp.fc1.bias"),
            (Role::FfnDown, "mlp.fc2.weight"),
            (Role::FfnDownBias, "mlp.fc2.bias"),
            (Role::LayerOutputNorm, "norm2.weight"),
            (Role::LayerOutputNormBias, "norm2.bias"),
        ],
        fused: &[
            ("attn_qkv.weight", "attn.Wqkv.weight"),
            ("attn_qkv.bias", "attn.Wqkv.bias"),
        ],
        experts: Some(Experts {
            prefix: "mlp.experts.mlp.",
            parts: ["", "w1", "w2"],
            joined: ["mlp.experts.mlp.w1", "mlp.experts.mlp.w2"],
            gate_up: GateUpLayout::PlainRows,
            keeps_gate_up: false,
            widths: &[],
            gating: None,
        }),
        own_keys: Some(write_nomic_experts),
        ..BERT
    },
    Family {
        classes: &["JinaBertModel", "JinaBertForMaskedLM"],
        arch: "jina-bert-v2",
        defaults: r#"{"vocab_size": 30528, "hidden_size": 768, "num_hidden_layers": 12,
            "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 8192,
            "layer_norm_eps": 1e-12, "hidden_act": "gelu", "position_embedding_type": "absolute",
            "feed_forward_type": "original"}"#,
        fixed: &[
            ("position_embedding_type", "\"alibi\""),
            ("feed_forward_type", "\"geglu\""),
            ("is_decoder", "false"),
            ("add_cross_attention", "false"),
        ],
        names: &[
            (Role::TokenEmbd, "embeddings.word_embeddings.weight"),
            (Role::AttnQ, "attention.self.query.weight"),
            (Role::AttnQBias, "attention.self.query.bias"),
            (Role::AttnK, "attention.self.key.weight"),
            (Role::AttnKBias, "attention.self.key.bias"),
            (Role::AttnV, "attention.self.value.weight"),
            (Role::AttnVBias, "attention.self.value.bias"),
            (Role::AttnOutput, "attention.output.dense.weight"),
            (Role::AttnOutputBias, "attention.output.dense.bias"),
            (Role::FfnDown, "mlp.wo.weight"),
            (Role::FfnDownBias, "mlp.wo.bias"),
            (Role::LayerOutputNorm, "mlp.layernorm.weight"),
            (Role::LayerOutputNormBias, "mlp.layernorm.bias"),
        ],
        fused: &[("ffn_up.weight", "mlp.gated_layers.weight")],
        own_keys: Some(write_emb_pooler),
        ..BERT
    },
    Family {
        classes: &[
            "ModernBertModel",
            "ModernBertForMaskedLM",
            "ModernBertForSequenceClassification",
        ],
        arch: "modern-bert",
        defaults: r#"{"vocab_size": 50368, "hidden_size": 768, "num_hidden_layers": 22,
            "num_attention_heads": 12, "intermediate_size": 1152, "max_position_embeddings": 8192,
            "norm_eps": 1e-5, "hidden_activation": "gelu", "local_attention": 128,
            "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}"#,
        fixed: &[
            ("norm_bias", "false"),
            ("mlp_bias", "false"),
            ("attention_bias", "false"),
            ("classifier_bias", "false"),
            ("classifier_activation", "\"gelu\""),
        ],
        window: Window::AllButFirstOf(3),
        is_rotated: true,
        prefix: "layers.{l}.",
        names: &[
            (Role::TokenEmbd, "embeddings.tok_embeddings.weight"),
            (Role::TokenEmbdNorm, "embeddings.norm.weight"),
            (Role::AttnNorm, "attn_norm.weight"),
            (Role::AttnOutput, "attn.Wo.weight"),
            (Role::FfnNorm, "mlp_norm.weight"),
            (Role::FfnDown, "mlp.Wo.weight"),
            (Role::OutputNorm, "final_norm.weight"),
            (Role::Cls, "head.dense.weight"),
            (Role::ClsNorm, "head.norm.weight"),
            (Role::ClsOutput, "classifier.weight"),
            (Role::ClsOutputBias, "classifier.bias"),
        ],
        fused: &[
            ("attn_qkv.weight", "attn.Wqkv.weight"),
            ("ffn_up.weight", "mlp.Wi.weight"),
        ],
        encoder: Some(Encoder {
            wrappers: &["model."],
            unused: &["decoder."],
            of_classifier: &["head.", "classifier."],
            n_types: None,
            names_classifier_pooling: true,
            ..BERT_ENCODER
        }),
        ..BERT
    },
    Family {
        classes: &["Gemma3TextModel"],
        arch: "gemma-embedding",
        fixed: &[("use_bidirectional_attention", "true")],
        encoder: Some(Encoder {
            wrappers: &[],
            unused: &[],
            of_classifier: &[],
            n_types: None,
            has_dense: true,
            ..BERT_ENCODER
        }),
        ..GEMMA3
    },
];

/// Writes the pooling that a configuration of JinaBERT names.
fn write_emb_pooler(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    match c.text_opt("emb_pooler")? {
        None => {}
        Some("mean") => keys.count("pooling_type", 1),
        Some("cls") => keys.count("pooling_type", 2),
        Some(other) => return Err(c.unsupported("emb_pooler", &other.into())),
    }
    Ok(())
}

/// The class of Nomic BERTs with experts, which have that of those without.
pub(super) const NOMIC_EXPERTS: &str = "NomicBertModel with experts";

/// Whether a Nomic BERT has experts.
pub(super) fn has_experts(c: &Config) -> Result<bool, Error> {
    Ok(c.count_opt(&["moe_every_n_layers"])?.unwrap_or(0) > 0)
}

/// Writes which layers have experts, and how many a token uses. Nomic Embed 2 was trained on texts
/// of 512 tokens, where its configuration says 2048 twice.
fn write_nomic_experts(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let n_positions = c.count_opt(&["n_positions"])?;
    if n_positions == Some(2048) && c.count_opt(&["max_trained_positions"])? == n_positions {
        keys.count("context_length", 512);
    }
    keys.count("moe_every_n_layers", c.count(&["moe_every_n_layers"])?);
    keys.count("expert_used_count", c.count(&["moe_top_k"])?);
    Ok(())
}

impl Family {
    /// Rows at the start of the table of positions that no position uses.
    pub(super) fn n_skipped_positions(&self, c: &Config) -> Result<u64, Error> {
        match &self.encoder {
            Some(encoder) if encoder.skips_padding => {
                Ok(c.count(&["pad_token_id"])?.saturating_add(1))
            }
            _ => Ok(0),
        }
    }
}

/// Whether the checkpoint is one of a classifier.
fn is_classifier(c: &Config) -> Result<bool, Error> {
    let class = c.list_opt("architectures")?.and_then(|all| all.first());
    let class = class.and_then(Value::as_str).unwrap_or_default();
    Ok(class.ends_with("ForSequenceClassification"))
}

/// Writes the keys of an encoder.
pub(super) fn write(c: &Config, family: &Family, keys: &mut Keys) -> Result<(), Error> {
    let Some(encoder) = &family.encoder else {
        return Ok(());
    };
    keys.flag("attention.causal", false);
    if let Some(default) = encoder.n_types {
        let n = c.count_opt(&["type_vocab_size"])?.unwrap_or(default);
        keys.writer.set_u32(
            "tokenizer.ggml.token_type_count",
            u32::try_from(n).unwrap_or(u32::MAX),
        );
    }
    if !is_classifier(c)? {
        return Ok(());
    }
    let labels = labels(c)?;
    let key = format!("{}.classifier.output_labels", family.arch);
    keys.writer.set_strs(&key, &labels);
    keys.count("pooling_type", RANK);
    if encoder.names_classifier_pooling {
        let kind = match c.text_opt("classifier_pooling")? {
            Some("mean") => 1,
            // The default of transformers.
            None | Some("cls") => 2,
            Some(other) => return Err(c.unsupported("classifier_pooling", &other.into())),
        };
        keys.count("classifier.pooling_type", kind);
    }
    Ok(())
}

/// `pooling_type` of a classifier (llama.cpp, `enum llama_pooling_type`).
const RANK: u64 = 4;

/// More labels are refused.
const MAX_LABELS: u64 = 1 << 16;

/// The labels of a classifier, in the order of their numbers.
fn labels(c: &Config) -> Result<Vec<String>, Error> {
    let named = c.object_opt("id2label")?;
    let n = match named {
        Some(named) => named.len() as u64,
        // The default of transformers.
        None => c.count_opt(&["num_labels"])?.unwrap_or(2),
    };
    if n == 0 || n > MAX_LABELS {
        return Err(c.wrong(format!("{n} labels, expected 1 to {MAX_LABELS}")));
    }
    let label = |i: u64| {
        let name = named.and_then(|named| named.get(&i.to_string())?.as_str());
        name.map_or_else(|| format!("LABEL_{i}"), str::to_owned)
    };
    Ok((0..n).map(label).collect())
}

/// Removes the prefixes of wrappers from the names of tensors, and leaves out those of other tasks.
pub(super) fn trim(
    c: &Config,
    family: &Family,
    raw: &mut RawTensors,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let Some(encoder) = &family.encoder else {
        return Ok(());
    };
    raw.rename(|name| {
        let bare = encoder
            .wrappers
            .iter()
            .find_map(|wrapper| name.strip_prefix(wrapper));
        // Checkpoints of 2019 have the names of TensorFlow.
        let bare = bare.unwrap_or(name);
        bare.replace("LayerNorm.gamma", "LayerNorm.weight")
            .replace("LayerNorm.beta", "LayerNorm.bias")
            // The bias behind the sum of experts: in those layers it is the only one.
            .replace("mlp.experts.bias", "mlp.fc2.bias")
    })?;
    if family.arch == "nomic-bert-moe" {
        let kept = "the biases behind sums of experts are kept: llama.cpp leaves them out, and \
                    does not open this file";
        notes.push(kept.to_owned());
    }
    let is_classifier = is_classifier(c)?;
    let of_classifier = encoder.of_classifier.iter().filter(|_| !is_classifier);
    let unused: Vec<&str> = encoder
        .unused
        .iter()
        .chain(of_classifier)
        .copied()
        .collect();
    let n = raw.retain(|name| !unused.iter().any(|prefix| name.starts_with(prefix)));
    if n > 0 {
        notes.push(format!("{n} tensors of other tasks are left out"));
    }
    Ok(())
}

/// Longer files of sentence-transformers are refused.
const MAX_BYTES: u64 = 1 << 20;

/// Writes the pooling that sentence-transformers' files beside the checkpoint name, and adds the
/// tensors of its dense modules.
pub(super) fn write_modules(
    folder: &Path,
    family: &Family,
    keys: &mut Keys,
    raw: &mut RawTensors,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let Some(Value::Array(modules)) = json(&folder.join("modules.json"))? else {
        return Ok(());
    };
    let text = |module: &Value, key: &str| {
        let text = module.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let dense = modules
        .iter()
        .filter(|module| text(module, "type").ends_with("Dense"));
    let dense: Vec<String> = dense.map(|module| text(module, "path")).collect();
    add_dense(folder, family, &dense, keys, raw, notes)?;
    for module in &modules {
        let text = |key: &str| text(module, key);
        if text("type").ends_with("Pooling") {
            let path = folder.join(text("path")).join("config.json");
            let config = json(&path)?.unwrap_or(Value::Null);
            match pooling_type(&config) {
                Some(kind) => keys.count("pooling_type", kind),
                None => notes.push(format!(
                    "{}: its pooling has no name in GGUF",
                    path.display()
                )),
            }
        }
    }
    Ok(())
}

/// Writes the widths of two dense modules and adds their tensors as `dense_2.weight` and
/// `dense_3.weight`; notes that modules are left out, where GGUF has no such modules.
fn add_dense(
    folder: &Path,
    family: &Family,
    paths: &[String],
    keys: &mut Keys,
    raw: &mut RawTensors,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let has_dense = family.encoder.as_ref().is_some_and(|e| e.has_dense);
    if !has_dense || paths.len() != 2 {
        notes.extend(paths.iter().map(|path| {
            format!("the module {path} of modules.json is left out: vectors are those before it")
        }));
        return Ok(());
    }
    for (path, i) in paths.iter().zip(2..) {
        let module = folder.join(path);
        let file = module.join("config.json");
        let config = json(&file)?.unwrap_or(Value::Null);
        let activation = config.get("activation_function").and_then(Value::as_str);
        let is_linear = activation.is_none_or(|name| name.ends_with(".Identity"));
        if !is_linear || config.get("bias") == Some(&Value::Bool(true)) {
            return Err(Error::File {
                path: file,
                why: "a dense module with a bias or a nonlinearity".to_owned(),
            });
        }
        let mut tensors = safetensors::open(&module.join("model.safetensors"))?;
        tensors.rename(|name| name.replace("linear.weight", &format!("dense_{i}.weight")))?;
        if let Some(&[d_out, d_in]) = tensors
            .get(&format!("dense_{i}.weight"))
            .map(|tensor| tensor.dims())
        {
            keys.count(&format!("dense_{i}_feat_in"), d_in);
            keys.count(&format!("dense_{i}_feat_out"), d_out);
        }
        raw.append(tensors)?;
    }
    Ok(())
}

/// GGUF's number of a pooling: by a flag for each in older files, by name in newer ones.
fn pooling_type(config: &Value) -> Option<u64> {
    let is = |key: &str| config.get(key).and_then(Value::as_bool) == Some(true);
    match config.get("pooling_mode").and_then(Value::as_str) {
        Some("mean") => Some(1),
        Some("cls") => Some(2),
        Some("lasttoken") => Some(3),
        Some(_) => None,
        None if is("pooling_mode_mean_tokens") => Some(1),
        None if is("pooling_mode_cls_token") => Some(2),
        None if is("pooling_mode_lasttoken") => Some(3),
        None => None,
    }
}

/// A small JSON file; `None` if there is none.
fn json(path: &Path) -> Result<Option<Value>, Error> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = read_capped(path, MAX_BYTES)?;
    let value = serde_json::from_slice(&bytes).map_err(|error| Error::File {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooling_is_named_or_flagged() {
        let of = |json: &str| pooling_type(&serde_json::from_str(json).unwrap());
        assert_eq!(of(r#"{"pooling_mode_mean_tokens": true}"#), Some(1));
        assert_eq!(
            of(r#"{"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true}"#),
            Some(2)
        );
        assert_eq!(of(r#"{"pooling_mode": "lasttoken"}"#), Some(3));
        assert_eq!(
            of(r#"{"pooling_mode": "max", "pooling_mode_cls_token": true}"#),
            None
        );
        assert_eq!(of("{}"), None);
    }
}
