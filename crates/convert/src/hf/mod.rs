//! Models in directories as Hugging Face keeps them: `config.json`, safetensors, and files of the
//! vocabulary.
//!
//! The configuration becomes metadata, the metadata a spec, and the spec says which tensors there
//! are; each is looked for by the name that its family gives it. Nothing is written before all of
//! it fits: every tensor is there, none is left, and what the file will say is what the
//! configuration said.
//!
//! The vocabulary is not read here: [`open`](crate::open) gives it to the metadata of the
//! checkpoint.

mod agree;
mod config;
mod family;
mod keys;
mod mxfp4;
mod rope;
mod rows;
mod source;
mod tensors;

use std::path::Path;

use atta_formats::Directory;
use atta_model::arch;

use crate::{Checkpoint, Error, metadata::parsed, pickle, raw::RawTensors, safetensors};
use config::Config;
use family::{Family, Window};
use keys::Keys;
use rope::Rope;
use source::Quantization;
use tensors::Assembly;

/// A directory as a checkpoint without a vocabulary. What a user should know of what was left out
/// comes into `notes`.
///
/// # Errors
/// A file that cannot be read or is not what it should be; a model that we do not run, or a field
/// of the configuration that says something which files of its architecture cannot say; a tensor
/// that is missing, left over or misshapen. Each is named.
pub fn open(folder: &Path, notes: &mut Vec<String>) -> Result<Checkpoint, Error> {
    from_raw(folder, weights(folder)?, notes)
}

/// The model that the configuration says, of these tensors.
fn from_raw(
    folder: &Path,
    mut raw: RawTensors,
    notes: &mut Vec<String>,
) -> Result<Checkpoint, Error> {
    let mut config = Config::read(&folder.join("config.json"))?;
    let family = Family::of(&config)?;
    config.set_defaults(family.defaults);
    family.check_fixed(&config)?;
    let how = Quantization::of(&config, family)?;
    let mut keys = Keys::new(family.arch, &named(family, name_of(folder, &config)));
    keys::write(&config, family, &mut keys)?;
    let rope = Rope::new(&config)?;
    let spec = arch::lower(&parsed(&keys.writer)?)?;
    agree::check(&config, family, &rope, &spec)?;
    text_part(&mut raw, notes)?;
    let is_tied = tied(&config, &mut raw, notes)?;
    let d_head = spec.attentions().next().map_or(0, |a| a.d_head as u64);
    let tensors = Assembly {
        family,
        rope: &rope,
        how,
        is_tied,
        d_head,
        raw: &mut raw,
    }
    .all(&spec)?;
    raw.retain(|name| !is_harmless(name));
    if let Some(left) = raw.names().next() {
        return Err(Error::Unused.of(left));
    }
    let checkpoint = Checkpoint {
        metadata: keys.writer,
        tensors,
        files: raw.files,
    };
    spec.check_tensors(&Directory::single(checkpoint.describe()?))?;
    note(&config, family, notes)?;
    Ok(checkpoint)
}

/// The tensors of a directory; safetensors if there are both.
fn weights(folder: &Path) -> Result<RawTensors, Error> {
    type Reader = fn(&Path) -> Result<RawTensors, Error>;
    const FILES: [(&str, Reader); 4] = [
        ("model.safetensors.index.json", safetensors::open_sharded),
        ("model.safetensors", safetensors::open),
        ("pytorch_model.bin.index.json", pickle::open_sharded),
        ("pytorch_model.bin", pickle::open),
    ];
    match FILES
        .iter()
        .map(|(name, read)| (folder.join(name), read))
        .find(|(path, _)| path.exists())
    {
        Some((path, read)) => read(&path),
        None => {
            let why =
                "holds no model.safetensors and no pytorch_model.bin, single or with an index"
                    .into();
            Err(Error::File {
                path: folder.to_owned(),
                why,
            })
        }
    }
}

/// The name of the directory; where that is the hash of a revision in a cache, what the
/// configuration says.
fn name_of(folder: &Path, config: &Config) -> String {
    let own = folder
        .canonicalize()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let is_hash = |name: &String| name.len() == 40 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let said = config
        .text_opt("_name_or_path")
        .ok()
        .flatten()
        .and_then(|name| name.rsplit('/').next());
    match own.filter(|name| !is_hash(name)) {
        Some(own) => own,
        None => said
            .filter(|name| !name.is_empty())
            .unwrap_or("model")
            .to_owned(),
    }
}

/// The name, which for Phi-3 has to say so: that its marks swallow the white space behind them,
/// readers of GGUF know by it.
fn named(family: &Family, name: String) -> String {
    let lower = name.to_lowercase();
    match family.arch == "phi3" && !["phi-3", "phi3"].iter().any(|part| lower.contains(part)) {
        true => format!("{name} (Phi-3)"),
        false => name,
    }
}

/// Drops what belongs to other modalities, and takes the names of the text part for those of the
/// model.
fn text_part(raw: &mut RawTensors, notes: &mut Vec<String>) -> Result<(), Error> {
    const OTHERS: [&str; 2] = ["vision_tower.", "multi_modal_projector."];
    if raw.names().any(|name| name.contains("language_model.")) {
        let is_other = |name: &str| {
            OTHERS.iter().any(|other| {
                name.strip_prefix("model.")
                    .unwrap_or(name)
                    .starts_with(other)
            })
        };
        let n = raw.retain(|name| !is_other(name));
        if n > 0 {
            notes.push(format!(
                "{n} tensors that are not of the text part are left out ({})",
                OTHERS.join(" ")
            ));
        }
    }
    // A model that was saved without its head has no prefix.
    let is_bare = raw.get("embed_tokens.weight").is_some()
        && !raw.names().any(|name| name.starts_with("model."));
    raw.rename(|name| {
        if is_bare {
            return format!("model.{name}");
        }
        let name = name.replacen("language_model.", "", 1);
        name.strip_prefix("transformer.")
            .unwrap_or(&name)
            .to_owned()
    })
}

/// Whether the head is the embedding. Then a head of its own means nothing and is dropped.
fn tied(config: &Config, raw: &mut RawTensors, notes: &mut Vec<String>) -> Result<bool, Error> {
    const HEAD: &str = "lm_head.weight";
    let is_tied = config
        .flag_opt("tie_word_embeddings")?
        .unwrap_or(raw.get(HEAD).is_none());
    let embedding = ["model.embed_tokens.weight", "wte.weight"]
        .iter()
        .find_map(|name| raw.get(name))
        .cloned();
    if let Some(head) = if is_tied { raw.take(HEAD) } else { None }
        && !embedding.is_some_and(|embedding| embedding.is_same(&head))
    {
        let why = "tie_word_embeddings says that the head is the embedding, but it is another";
        notes.push(format!(
            "{HEAD} is left out: {why}; set tie_word_embeddings to false in config.json if it is trained"
        ));
    }
    Ok(is_tied)
}

/// Tensors that are computed, and that some programs save nevertheless.
fn is_harmless(name: &str) -> bool {
    [".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// What a user should know.
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
        .filter(|field| !means_nothing(field))
        .collect();
    if !unread.is_empty() {
        notes.push(format!(
            "fields of config.json that were not looked at: {}",
            unread.join(", ")
        ));
    }
    Ok(())
}

/// Fields that change nothing of what is computed for a text.
fn means_nothing(field: &str) -> bool {
    const KNOWN: &[&str] = &[
        "_name_or_path",
        "attention_bias",
        "attention_dropout",
        "auto_map",
        "cache_implementation",
        "dtype",
        "embd_pdrop",
        "attn_pdrop",
        "initializer_range",
        "mlp_bias",
        "model_type",
        "output_router_logits",
        "pretraining_tp",
        "qkv_bias",
        "reorder_and_upcast_attn",
        "resid_pdrop",
        "router_aux_loss_coef",
        "router_jitter_noise",
        "task_specific_params",
        "torch_dtype",
        "transformers_version",
        "use_cache",
        "vision_config",
        "experts_implementation",
        "full_attn_mod",
        "interpolate_factor",
        "is_llama_config",
        "lm_head_bias",
        "mm_tokens_per_image",
        "multimodal_projector_bias",
        "projector_hidden_act",
        "spatial_merge_size",
        "transformers.js_config",
        "vision_feature_layer",
        "experts_per_token",
        "initial_context_length",
    ];
    KNOWN.contains(&field)
        || field.ends_with("_token_id")
        || field.ends_with("_token_index")
        || field.starts_with("summary_")
}
