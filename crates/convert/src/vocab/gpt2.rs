//! `vocab.json` and `merges.txt`: byte-level vocabularies in GPT-2's format, from before
//! tokenizer.json.
//!
//! The one idea: the two files have the same contents as the model of a tokenizer.json, and the
//! tokenizer class implies the pre-tokenizer.

use std::collections::HashMap;

use serde_json::Value;

use super::added_tokens::{self, SpaceSpelling};
use super::files::VocabFile;
use super::hugging_face;
use super::table::TokenTable;
use super::{GgufVocab, VocabSource};
use crate::Error;

/// Tokenizer classes with the pre-tokenizers that their code implements.
const CLASSES: &[(&str, &str)] = &[("GPT2Tokenizer", "gpt-2"), ("Qwen2Tokenizer", "qwen2")];

/// Reads the vocabulary of the two files.
pub(super) fn vocabulary(
    vocab: &VocabFile<'_>,
    merges: &VocabFile<'_>,
    source: &VocabSource<'_>,
    mut table: TokenTable,
) -> Result<GgufVocab, Error> {
    let name = match &source.options.pre {
        Some(name) => name.clone(),
        None => name(source)?,
    };
    let added = source.added()?;
    let ids: HashMap<String, u64> =
        serde_json::from_slice(vocab.bytes).map_err(|error| vocab.wrong(error.to_string()))?;
    hugging_face::fill(&mut table, ids, &added).map_err(|why| vocab.wrong(why))?;
    let mut found = GgufVocab {
        merges: Some(lines(merges)?),
        ..GgufVocab::new(table, "gpt2", name)
    };
    added_tokens::put(&mut found, added, SpaceSpelling::Plain);
    Ok(found)
}

/// The pre-tokenizer of the class in tokenizer_config.json; GPT-2's without a class.
fn name(source: &VocabSource<'_>) -> Result<String, Error> {
    let Some(file) = source.files.get("tokenizer_config.json") else {
        return Ok("gpt-2".to_owned());
    };
    let config = file.json()?;
    let class = config
        .get("tokenizer_class")
        .and_then(Value::as_str)
        .unwrap_or("GPT2Tokenizer");
    let known = CLASSES
        .iter()
        .find(|(name, _)| class.strip_suffix("Fast").unwrap_or(class) == *name);
    let why = || format!("tokenizer_class {class} is unknown: name its pre-tokenizer");
    known
        .map(|(_, pre)| (*pre).to_owned())
        .ok_or_else(|| file.unknown_pre_tokenizer(why()))
}

/// The merges: lines of two halves, after an optional version line.
fn lines(file: &VocabFile<'_>) -> Result<Vec<String>, Error> {
    let mut merges = Vec::new();
    for (line, n) in file.text()?.lines().zip(1..) {
        let is_head = n == 1 && line.starts_with("#version");
        if is_head || line.trim().is_empty() {
            continue;
        }
        let mut halves = line.split_ascii_whitespace();
        let (Some(left), Some(right), None) = (halves.next(), halves.next(), halves.next()) else {
            return Err(file.wrong(format!("line {n}: expected two halves of a merge")));
        };
        merges.push([left, right].join(" "));
    }
    Ok(merges)
}
