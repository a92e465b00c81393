//! From metadata to a spec: one small file per architecture, and the registry of them.
//!
//! This folder is the only place where the name of an architecture may appear. A `lower` function
//! reads metadata and returns plain data; it sees no tensors, and nothing that it knows leaks out
//! but the spec.

mod bert;
mod bert_like;
mod bitnet;
mod ernie4_5;
mod experts;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma4;
mod gemma_embedding;
mod gpt2;
mod gpt_oss;
mod granite;
mod lfm2;
mod lfm2moe;
mod llama;
mod llama_like;
mod meta;
mod mistral3;
mod modern_bert;
mod nomic_bert;
mod olmo2;
mod phi2;
mod phi3;
mod qwen2;
mod qwen2moe;
mod qwen2vl;
mod qwen3;
mod qwen35;
mod qwen35moe;
mod qwen3moe;
mod qwen3next;
mod qwen3vl;
mod rope;
mod seed_oss;
mod smollm3;

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

/// Every architecture that we run.
pub const REGISTRY: &[Row] = &[
    Row {
        name: "bert",
        lower: bert::lower,
    },
    Row {
        name: "bitnet",
        lower: bitnet::lower,
    },
    Row {
        name: "ernie4_5",
        lower: ernie4_5::lower,
    },
    Row {
        name: "gemma",
        lower: gemma::lower,
    },
    Row {
        name: "gemma-embedding",
        lower: gemma_embedding::lower,
    },
    Row {
        name: "gemma2",
        lower: gemma2::lower,
    },
    Row {
        name: "gemma3",
        lower: gemma3::lower,
    },
    Row {
        name: "gemma4",
        lower: gemma4::lower,
    },
    Row {
        name: "gpt-oss",
        lower: gpt_oss::lower,
    },
    Row {
        name: "gpt2",
        lower: gpt2::lower,
    },
    Row {
        name: "granite",
        lower: granite::lower,
    },
    Row {
        name: "lfm2",
        lower: lfm2::lower,
    },
    Row {
        name: "lfm2moe",
        lower: lfm2moe::lower,
    },
    Row {
        name: "llama",
        lower: llama::lower,
    },
    Row {
        name: "mistral3",
        lower: mistral3::lower,
    },
    Row {
        name: "modern-bert",
        lower: modern_bert::lower,
    },
    Row {
        name: "nomic-bert",
        lower: nomic_bert::lower,
    },
    Row {
        name: "olmo2",
        lower: olmo2::lower,
    },
    Row {
        name: "phi2",
        lower: phi2::lower,
    },
    Row {
        name: "phi3",
        lower: phi3::lower,
    },
    Row {
        name: "qwen2",
        lower: qwen2::lower,
    },
    Row {
        name: "qwen2moe",
        lower: qwen2moe::lower,
    },
    Row {
        name: "qwen2vl",
        lower: qwen2vl::lower,
    },
    Row {
        name: "qwen3",
        lower: qwen3::lower,
    },
    Row {
        name: "qwen35",
        lower: qwen35::lower,
    },
    Row {
        name: "qwen35moe",
        lower: qwen35moe::lower,
    },
    Row {
        name: "qwen3moe",
        lower: qwen3moe::lower,
    },
    Row {
        name: "qwen3next",
        lower: qwen3next::lower,
    },
    Row {
        name: "qwen3vl",
        lower: qwen3vl::lower,
    },
    Row {
        name: "seed_oss",
        lower: seed_oss::lower,
    },
    Row {
        name: "smollm3",
        lower: smollm3::lower,
    },
];

/// The spec that a file's metadata describes.
///
/// # Errors
/// An architecture that is not in [`REGISTRY`], a key that is missing, of the wrong type or out of
/// range, or a feature that we do not have; each is named.
pub fn lower(metadata: &Metadata) -> Result<ModelSpec, Error> {
    let name = metadata
        .str("general.architecture")?
        .ok_or(Error::MissingKey("general.architecture".into()))?;
    let row =
        REGISTRY
            .iter()
            .find(|r| r.name == name)
            .ok_or_else(|| Error::UnknownArchitecture {
                name: name.to_owned(),
                known: REGISTRY
                    .iter()
                    .map(|r| r.name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })?;
    let spec = (row.lower)(&Meta::new(metadata, name))?;
    spec.check()?;
    Ok(spec)
}
