//! Reads Hugging Face checkpoints: directories with `config.json`, and safetensors or pickles.
//!
//! The configuration becomes GGUF metadata, the metadata a spec, and the spec lists the tensors;
//! each is looked up by its name in the model family. Before anything is written, it is checked
//! that no tensor is missing or left over, and that the metadata means the same as the
//! configuration.
//!
//! The vocabulary is not read here: [`open`](crate::open) adds it to the metadata of the
//! checkpoint.

mod config;
mod delta_net;
mod encoders;
mod experts;
mod factors;
mod families;
mod family;
mod gemma3n;
mod gemma4;
mod heads;
mod indexers;
mod keys;
mod latent;
mod llama4;
pub mod lora;
mod multipliers;
mod mxfp4;
mod names;
mod nextn;
mod ngrams;
mod numbers;
mod plain_experts;
mod quantized;
mod qwen4exp;
mod rope;
mod rows;
mod short_conv;
mod source_tensor;
mod state_space;
mod tensors;
mod verify;
mod weights;

use std::path::Path;

use atta_formats::Directory;
use atta_model::{
    Role, arch,
    spec::{DeltaNet, LayerSpec, Mixer, ModelSpec},
};

use crate::{Checkpoint, Error, metadata::parsed, raw::RawTensors};
use config::Config;
use family::{Family, Window};
use keys::Keys;
use quantized::Quantization;
use rope::Rope;
use tensors::TensorBuilder;

/// Opens a directory as a checkpoint without vocabulary. Adds warnings for the user to `notes`.
///
/// # Errors
/// A file that cannot be read or is invalid; an unsupported architecture, or a field whose value
/// GGUF cannot express for the architecture; a tensor that is missing, left over or of the wrong
/// shape. The message names it.
pub fn open(folder: &Path, notes: &mut Vec<String>) -> Result<Checkpoint, Error> {
    from_raw(folder, weights::open(folder)?, notes)
}

/// What keeps a directory from being converted: an error for each field and each tensor, where
/// [`open`] names the first one only. Nothing is known of the tensors of an unsupported class.
pub fn problems(folder: &Path) -> Vec<Error> {
    let mut found = Vec::new();
    if let Err(last) = find_problems(folder, &mut found) {
        found.push(last);
    }
    found
}

fn find_problems(folder: &Path, found: &mut Vec<Error>) -> Result<(), Error> {
    let mut notes = Vec::new();
    let (config, family) = configuration(folder)?;
    found.extend(family.unsupported_fields(&config));
    let quantization = Quantization::of(&config, family).unwrap_or_else(|error| {
        found.push(error);
        Quantization::None
    });
    let mut raw = weights::open(folder)?;
    let keys = keys_of(folder, &config, family, &mut raw, &mut notes)?;
    let rope = Rope::new(&config)?;
    let spec = spec_of(&config, &keys)?;
    found.extend(verify::check(&config, family, &rope, &spec).err());
    let source = Source {
        config: &config,
        family,
        rope: &rope,
        quantization: &quantization,
    };
    let mut builder = source.builder(&spec, &mut raw, &mut notes)?;
    found.extend(builder.problems(&nextn::tensors(&config, &spec, &keys)?));
    raw.retain(|name| !is_buffer(name));
    found.extend(raw.names().map(|left| Error::Unused.of(left)));
    Ok(())
}

/// The configuration of a directory, with the defaults of its family.
fn configuration(folder: &Path) -> Result<(Config, &'static Family), Error> {
    let mut config = Config::read(&folder.join("config.json"))?;
    config.read_quantization(&folder.join("hf_quant_config.json"))?;
    let family = Family::of(&config)?;
    config.set_defaults(family.defaults);
    Ok((config, family))
}

/// The spec of a directory with this metadata.
fn spec_of(config: &Config, keys: &Keys) -> Result<ModelSpec, Error> {
    let mut spec = arch::lower(&parsed(&keys.writer)?)?;
    heads::settle_qk_norm(config, &mut spec)?;
    Ok(spec)
}

/// The metadata of a directory; some of it is in tensors.
fn keys_of(
    folder: &Path,
    config: &Config,
    family: &Family,
    raw: &mut RawTensors,
    notes: &mut Vec<String>,
) -> Result<Keys, Error> {
    let mut keys = Keys::new(family.arch, &named(family, name_of(folder, config)));
    keys::write(config, family, &mut keys)?;
    numbers::write(config, family, raw, &mut keys)?;
    ngrams::write(config, raw, &mut keys)?;
    encoders::write_modules(folder, family, &mut keys, raw, notes)?;
    encoders::write(config, family, &mut keys)?;
    nextn::write(config, family, raw, &mut keys)?;
    Ok(keys)
}

/// How the tensors of a directory are read.
struct Source<'a> {
    config: &'a Config,
    family: &'a Family,
    rope: &'a Rope<'a>,
    quantization: &'a Quantization,
}

impl<'a> Source<'a> {
    /// Builds tensors of a model, from tensors without those that it does not use.
    fn builder<'b>(
        &self,
        spec: &'b ModelSpec,
        raw: &'b mut RawTensors,
        notes: &mut Vec<String>,
    ) -> Result<TensorBuilder<'b>, Error>
    where
        'a: 'b,
    {
        text_part(self.config, spec.n_nextn, raw, notes)?;
        if *self.quantization != Quantization::None {
            quantized::trim(raw, notes)?;
        }
        encoders::trim(self.config, self.family, raw, notes)?;
        drop_shared_kv(raw, self.family, spec);
        let is_tied = tied(self.config, raw, notes)?;
        Ok(TensorBuilder {
            family: self.family,
            rope: self.rope,
            quantization: self.quantization,
            is_tied,
            d_head: spec.attentions().next().map_or(0, |a| a.d_head as u64),
            n_skipped_positions: self.family.n_skipped_positions(self.config)?,
            net: delta_net_of(spec),
            attention: spec.attentions().next(),
            multipliers: self.family.multipliers_of(self.config)?,
            raw,
            factors: Vec::new(),
        })
    }
}

/// The gated delta nets of a model, which are all alike.
fn delta_net_of(spec: &ModelSpec) -> Option<&DeltaNet> {
    spec.layers.iter().find_map(|layer| match &layer.mixer {
        Mixer::DeltaNet(net) => Some(net),
        _ => None,
    })
}

/// The checkpoint of a directory with these tensors.
fn from_raw(
    folder: &Path,
    mut raw: RawTensors,
    notes: &mut Vec<String>,
) -> Result<Checkpoint, Error> {
    let (config, family) = configuration(folder)?;
    if let Some(error) = family.unsupported_fields(&config).next() {
        return Err(error);
    }
    let quantization = Quantization::of(&config, family)?;
    let keys = keys_of(folder, &config, family, &mut raw, notes)?;
    let rope = Rope::new(&config)?;
    let spec = spec_of(&config, &keys)?;
    verify::check(&config, family, &rope, &spec)?;
    let source = Source {
        config: &config,
        family,
        rope: &rope,
        quantization: &quantization,
    };
    let mut builder = source.builder(&spec, &mut raw, notes)?;
    let tensors = builder.all(&nextn::tensors(&config, &spec, &keys)?)?;
    notes.extend(builder.widened(&spec, &tensors));
    raw.retain(|name| !is_buffer(name));
    if let Some(left) = raw.names().next() {
        return Err(Error::Unused.of(left));
    }
    let checkpoint = Checkpoint {
        metadata: keys.writer.clone(),
        tensors,
        files: raw.files,
    };
    let directory = Directory::single(checkpoint.describe()?);
    nextn::check(&config, &spec, &keys, &directory)?;
    note(&config, family, notes)?;
    Ok(checkpoint)
}

/// The name of the directory. If that is a commit hash, as in a Hugging Face cache, the name in the
/// configuration.
fn name_of(folder: &Path, config: &Config) -> String {
    let own = folder
        .canonicalize()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let is_hash = |name: &String| name.len() == 40 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let configured = config
        .text_opt("_name_or_path")
        .ok()
        .flatten()
        .and_then(|name| name.rsplit('/').next());
    match own.filter(|name| !is_hash(name)) {
        Some(own) => own,
        None => configured
            .filter(|name| !name.is_empty())
            .unwrap_or("model")
            .to_owned(),
    }
}

/// The value of `general.name`. For Phi-3 models it must contain "phi-3", because tokenizers detect
/// the `rstrip` special tokens of Phi-3 by this name.
fn named(family: &Family, name: String) -> String {
    let lower = name.to_lowercase();
    let is_phi = matches!(family.arch, "phi3" | "phimoe");
    match is_phi && !["phi-3", "phi3"].iter().any(|part| lower.contains(part)) {
        true => format!("{name} (Phi-3)"),
        false => name,
    }
}

/// Prefixes of the tensors of other modalities.
const OTHERS: [&str; 10] = [
    "audio_tower.",
    "connector.",
    "embed_audio.",
    "embed_vision.",
    "image_newline",
    "multi_modal_projector.",
    "vision_embed_tokens.",
    "vision_model.",
    "vision_tower.",
    "visual.",
];

/// Parts of Mamba 2 that Codestral Mamba has behind a prefix.
const CODESTRAL: [&str; 2] = ["backbone.", "lm_head."];

/// Drops the tensors of other modalities and of multi-token prediction, but for `n_nextn` layers,
/// and removes the prefix of the text model from names.
fn text_part(
    config: &Config,
    n_nextn: usize,
    raw: &mut RawTensors,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let is_part = config.get("vision_config").is_some()
        || raw
            .names()
            .any(|name| TEXT.iter().any(|text| name.contains(text)));
    if is_part {
        leave_out(raw, notes, "other modalities", &OTHERS);
    }
    nextn::trim(config, n_nextn, raw, notes)?;
    // A model that was saved without its head (`AutoModel`) has no prefix.
    let is_bare = raw.get("embed_tokens.weight").is_some()
        && !raw.names().any(|name| name.starts_with("model."));
    raw.rename(|name| {
        // Dense modules stand beside the model.
        if is_bare && !name.starts_with("dense_") {
            return format!("model.{name}");
        }
        without_prefixes(name)
    })
}

/// Prefixes of a model of texts within another one.
const TEXT: [&str; 2] = ["language_model.", "text_model."];

/// The name of a tensor behind the prefixes of wrappers.
fn without_prefixes(name: &str) -> String {
    let replaced = |name: String, text: &&str| name.replacen(text, "", 1);
    let name = TEXT.iter().fold(name.to_owned(), replaced);
    let name = name.strip_prefix("transformer.").unwrap_or(&name);
    match name.strip_prefix("model.") {
        Some(rest) if CODESTRAL.iter().any(|part| rest.starts_with(part)) => rest.to_owned(),
        _ => name.to_owned(),
    }
}

/// Drops the tensors whose names begin, behind `model.`, with one of `prefixes`.
fn leave_out(raw: &mut RawTensors, notes: &mut Vec<String>, what: &str, prefixes: &[&str]) {
    let prefix_of = |name: &str| {
        let name = name.strip_prefix("model.").unwrap_or(name);
        prefixes.iter().find(|prefix| name.starts_with(**prefix))
    };
    let mut found: Vec<&str> = raw.names().filter_map(prefix_of).copied().collect();
    found.dedup();
    let n = raw.retain(|name| prefix_of(name).is_none());
    if n > 0 {
        notes.push(format!(
            "{n} tensors of {what} are left out ({})",
            found.join(" ")
        ));
    }
}

/// Drops projections of keys and values of layers that attend to another's, which some checkpoints
/// have.
fn drop_shared_kv(raw: &mut RawTensors, family: &Family, spec: &ModelSpec) {
    let shares = |layer: &LayerSpec| layer.attention().is_some_and(|a| a.kv_layer().is_some());
    for (l, _) in spec
        .layers
        .iter()
        .enumerate()
        .filter(|(_, layer)| shares(layer))
    {
        for role in [Role::AttnK, Role::AttnV, Role::AttnKNorm] {
            raw.take(&family.name(role, Some(l)));
        }
    }
}

/// Whether the head is tied to the embedding. If so, a separate head is dropped.
fn tied(config: &Config, raw: &mut RawTensors, notes: &mut Vec<String>) -> Result<bool, Error> {
    const HEAD: &str = "lm_head.weight";
    let is_tied = config
        .flag_opt("tie_word_embeddings")?
        .unwrap_or(raw.get(HEAD).is_none());
    const EMBEDDINGS: [&str; 3] = [
        "model.embed_tokens.weight",
        "backbone.embeddings.weight",
        "wte.weight",
    ];
    let embedding = EMBEDDINGS.iter().find_map(|name| raw.get(name)).cloned();
    if let Some(head) = if is_tied { raw.take(HEAD) } else { None }
        && !embedding.is_some_and(|embedding| embedding.is_same(&head))
    {
        let why = "tie_word_embeddings is true, but the head differs from the embedding";
        notes.push(format!(
            "{HEAD} is left out: {why}; set tie_word_embeddings to false in config.json if it \
         is trained"
        ));
    }
    Ok(is_tied)
}

/// Buffers that are computed from the configuration, which some programs save.
fn is_buffer(name: &str) -> bool {
    const BUFFERS: [&str; 5] = [
        ".rotary_emb.inv_freq",
        ".attn.bias",
        ".attn.masked_bias",
        ".attention.bias",
        ".attention.masked_bias",
    ];
    BUFFERS.iter().any(|end| name.ends_with(end))
}

/// Adds warnings about a window that is left out and about unread fields.
fn note(config: &Config, family: &Family, notes: &mut Vec<String>) -> Result<(), Error> {
    let window = config.count_opt(&["sliding_window"])?;
    let n_ctx = config.count_opt(&["max_position_embeddings"])?;
    if let (Window::Dropped, Some(window)) = (family.window, window)
        && n_ctx.is_some_and(|n| n > window)
    {
        notes.push(format!(
            "the window of {window} positions is left out, as in every file of this architecture"
        ));
    }
    let unread: Vec<&str> = config
        .unread()
        .into_iter()
        .filter(|field| !is_irrelevant(field))
        .collect();
    if !unread.is_empty() {
        notes.push(format!(
            "fields of config.json that were not read: {}",
            unread.join(", ")
        ));
    }
    Ok(())
}

/// Fields that change no result.
const IRRELEVANT: &[&str] = &[
    "_name_or_path",
    "attention_bias",
    "attention_dropout",
    "attention_out_bias",
    "auto_map",
    "cache_implementation",
    "chunk_size",
    "hidden_dropout",
    "block_dim",
    "block_mlp_init_scale",
    "block_norm_eps",
    "block_out_init_scale",
    "block_use_swiglu",
    "block_use_xavier_init",
    "conv_dim",
    "conv_dim_out",
    "conv_use_xavier_init",
    "dtype",
    "embd_pdrop",
    "attn_pdrop",
    "hidden_dropout",
    "init_method",
    "input_jitter_noise",
    "initializer_range",
    "mlp_bias",
    "model_type",
    "moe_norm_min",
    "normalization_function",
    "num_logits_to_keep",
    "num_experts_per_tok",
    "output_router_logits",
    "pretraining_tp",
    "qk_head_dim",
    "qkv_bias",
    "reorder_and_upcast_attn",
    "rescale_prenorm_residual",
    "resid_pdrop",
    "residual_in_fp32",
    "residual_dropout",
    "seq_aux",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "task_specific_params",
    "torch_dtype",
    "transformers_version",
    "use_bias",
    "use_cache",
    "use_qkv_bias",
    "use_conv_bias",
    "use_associative_scan",
    "use_mamba_kernels",
    "use_mambapy",
    "time_step_init_scheme",
    "time_step_scale",
    "vision_config",
    "aux_loss_alpha",
    "embedding_initializer_range",
    "ep_size",
    "experts_implementation",
    "full_attn_mod",
    "interpolate_factor",
    "is_decoder",
    "is_llama_config",
    "lm_head_bias",
    "mm_tokens_per_image",
    "multimodal_projector_bias",
    "projector_hidden_act",
    "spatial_merge_size",
    "transformers.js_config",
    "vision_feature_layer",
    "attention_probs_dropout_prob",
    "gradient_checkpointing",
    "hidden_dropout_prob",
    "label2id",
    "output_past",
    "decoder_bias",
    "deterministic_flash_attn",
    "embedding_dropout",
    "expand",
    "initializer_cutoff_factor",
    "mlp_dropout",
    "sparse_pred_ignore_index",
    "sparse_prediction",
    "experts_per_token",
    "initial_context_length",
    "make_ngram_vocab_size_divisible_by",
    "moe_shared_expert_overlap",
    "ngram_vocab_size_base",
    "number_of_conv_states",
    "seed",
    "split_ngram_parts",
];

/// Whether a field changes no result.
fn is_irrelevant(field: &str) -> bool {
    IRRELEVANT.contains(&field)
        || field.starts_with("mamba_")
        || field.starts_with("time_step_")
        || field.starts_with("mtp_")
        || field.ends_with("_token_id")
        || field.ends_with("_token_index")
        || field.starts_with("summary_")
        // Of classifiers, whose families read what they need.
        || field.starts_with("classifier_")
}
