//! From metadata to a spec: one small file per architecture, and the registry of them.
//!
//! This folder is the only place where the name of an architecture may appear. A `lower` function
//! reads metadata and returns plain data; it sees no tensors, and nothing that it knows leaks out
//! but the spec.

mod apertus;
mod arcee;
mod bert;
mod bert_like;
mod bitnet;
mod chatglm;
mod cohere2;
mod command_r;
mod deepseek2;
mod dots1;
mod eagle3;
mod ernie4_5;
mod ernie4_5_moe;
mod exaone;
mod exaone4;
mod exaone_moe;
mod experts;
mod falcon_h1;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma3n;
mod gemma4;
mod gemma_embedding;
mod glm4;
mod glm4moe;
mod gpt2;
mod gpt_oss;
mod gptneox;
mod granite;
mod granite_swa;
mod granitehybrid;
mod granitemoe;
mod hunyuan_dense;
mod hunyuan_moe;
mod jais2;
mod jamba;
mod jina_bert_v2;
mod kimi_linear;
mod latent;
mod lfm2;
mod lfm2moe;
mod lfm3;
mod llama;
mod llama4;
mod llama_like;
mod mamba;
mod mamba2;
mod meta;
mod minicpm;
mod minicpm3;
mod mistral3;
mod modern_bert;
mod nemotron;
mod nemotron_h;
mod nemotron_h_moe;
mod nextn;
mod ngrams;
mod nomic_bert;
mod nomic_bert_moe;
mod olmo2;
mod olmoe;
mod phi2;
mod phi3;
mod phimoe;
mod qwen2;
mod qwen2moe;
mod qwen2vl;
mod qwen3;
mod qwen35;
mod qwen35moe;
mod qwen3moe;
mod qwen3next;
mod qwen3vl;
mod qwen4exp;
mod rope;
mod seed_oss;
mod smollm3;
mod ssm;
mod stablelm;
mod starcoder2;

use atta_formats::Metadata;

use crate::{Error, spec::ModelSpec};
use meta::Meta;

/// One architecture that we run.
pub struct Row {
    /// `general.architecture` of its files.
    pub name: &'static str,
    /// Metadata to spec.
    lower: fn(&Meta<'_>) -> Result<ModelSpec, Error>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

const fn row(name: &'static str, lower: fn(&Meta<'_>) -> Result<ModelSpec, Error>) -> Row {
    Row { name, lower }
}

/// Every architecture that we run.
pub const REGISTRY: &[Row] = &[
    row("apertus", apertus::lower),
    row("arcee", arcee::lower),
    row("bert", bert::lower),
    row("bitnet", bitnet::lower),
    row("chatglm", chatglm::lower),
    row("cohere2", cohere2::lower),
    row("command-r", command_r::lower),
    row("deepseek2", deepseek2::lower),
    row("dots1", dots1::lower),
    row("ernie4_5", ernie4_5::lower),
    row("ernie4_5-moe", ernie4_5_moe::lower),
    row("exaone", exaone::lower),
    row("exaone-moe", exaone_moe::lower),
    row("exaone4", exaone4::lower),
    row("falcon-h1", falcon_h1::lower),
    row("gemma", gemma::lower),
    row("gemma-embedding", gemma_embedding::lower),
    row("gemma2", gemma2::lower),
    row("gemma3", gemma3::lower),
    row("gemma3n", gemma3n::lower),
    row("gemma4", gemma4::lower),
    row("glm4", glm4::lower),
    row("glm4moe", glm4moe::lower),
    row("gpt-oss", gpt_oss::lower),
    row("gpt2", gpt2::lower),
    row("gptneox", gptneox::lower),
    row("granite", granite::lower),
    row("granite_swa", granite_swa::lower),
    row("granitehybrid", granitehybrid::lower),
    row("granitemoe", granitemoe::lower),
    row("hunyuan-dense", hunyuan_dense::lower),
    row("hunyuan-moe", hunyuan_moe::lower),
    row("jais2", jais2::lower),
    row("jamba", jamba::lower),
    row("jina-bert-v2", jina_bert_v2::lower),
    row("kimi-linear", kimi_linear::lower),
    row("lfm2", lfm2::lower),
    row("lfm2moe", lfm2moe::lower),
    row("lfm3", lfm3::lower),
    row("llama", llama::lower),
    row("llama4", llama4::lower),
    row("mamba", mamba::lower),
    row("mamba2", mamba2::lower),
    row("minicpm", minicpm::lower),
    row("minicpm3", minicpm3::lower),
    row("mistral3", mistral3::lower),
    row("modern-bert", modern_bert::lower),
    row("nemotron", nemotron::lower),
    row("nemotron_h", nemotron_h::lower),
    row("nemotron_h_moe", nemotron_h_moe::lower),
    row("nomic-bert", nomic_bert::lower),
    row("nomic-bert-moe", nomic_bert_moe::lower),
    row("olmo2", olmo2::lower),
    row("olmoe", olmoe::lower),
    row("phi2", phi2::lower),
    row("phi3", phi3::lower),
    row("phimoe", phimoe::lower),
    row("qwen2", qwen2::lower),
    row("qwen2moe", qwen2moe::lower),
    row("qwen2vl", qwen2vl::lower),
    row("qwen3", qwen3::lower),
    row("qwen35", qwen35::lower),
    row("qwen35moe", qwen35moe::lower),
    row("qwen3moe", qwen3moe::lower),
    row("qwen3next", qwen3next::lower),
    row("qwen3vl", qwen3vl::lower),
    row("qwen4exp", qwen4exp::lower),
    row("seed_oss", seed_oss::lower),
    row("smollm3", smollm3::lower),
    row("stablelm", stablelm::lower),
    row("starcoder2", starcoder2::lower),
];

/// The spec that a file's metadata describes.
///
/// # Errors
/// An architecture that is not in [`REGISTRY`], a key that is missing, of the wrong type or out of
/// range, or a feature that we do not have; each is named.
pub fn lower(metadata: &Metadata) -> Result<ModelSpec, Error> {
    let name = architecture(metadata)?;
    let spec = (row_of(name)?.lower)(&Meta::new(metadata, name))?;
    spec.check()?;
    let empty = spec.left_out().next();
    match empty {
        Some(l) => Err(Error::Spec(format!("layer {l}: no sublayer"))),
        None => Ok(spec),
    }
}

/// The spec of a draft head that has a file of its own (EAGLE-3) and guesses `n_guessed` tokens;
/// `None`: all of the vocabulary.
///
/// # Errors
/// As [`lower`], and a file of another architecture.
pub fn lower_draft_head(metadata: &Metadata, n_guessed: Option<usize>) -> Result<ModelSpec, Error> {
    let name = architecture(metadata)?;
    if name != eagle3::NAME {
        return Err(Error::UnknownArchitecture {
            name: name.to_owned(),
            known: eagle3::NAME.to_owned(),
        });
    }
    let spec = eagle3::lower(&Meta::new(metadata, name), n_guessed)?;
    spec.check()?;
    Ok(spec)
}

/// The spec of the first layer behind the last one of a model, which predicts further tokens from
/// its result (multi-token prediction).
///
/// # Errors
/// As [`lower`], [`Error::NoDraftHead`] of a file without such a layer, and a model whose layers do
/// not stand alone.
pub fn lower_nextn(metadata: &Metadata) -> Result<ModelSpec, Error> {
    let name = architecture(metadata)?;
    let row = row_of(name)?;
    let plain = Meta::new(metadata, name);
    if plain.n_nextn_layers()? == 0 {
        return Err(Error::NoDraftHead);
    }
    let n_layers = plain.n_layers()?;
    let spec = nextn::last_layer((row.lower)(&plain.with_nextn())?, n_layers)?;
    spec.check()?;
    Ok(spec)
}

fn architecture(metadata: &Metadata) -> Result<&str, Error> {
    metadata
        .str("general.architecture")?
        .ok_or(Error::MissingKey("general.architecture".into()))
}

fn row_of(name: &str) -> Result<&'static Row, Error> {
    let known = || {
        REGISTRY
            .iter()
            .map(|r| r.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let row = REGISTRY.iter().find(|r| r.name == name);
    row.ok_or_else(|| Error::UnknownArchitecture {
        name: name.to_owned(),
        known: known(),
    })
}
