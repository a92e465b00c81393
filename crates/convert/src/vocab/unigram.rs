//! A tokenizer.json with a unigram model: a SentencePiece model that was converted to Hugging
//! Face's format (`t5` in GGUF).
//!
//! Knows no other kind. The one idea: such a file has the pieces with their scores and the compiled
//! normalizer of the model, which GGUF keeps as they are.

use serde_json::Value;

use super::added_tokens::{self, SpaceSpelling};
use super::hugging_face::TokenizerJson;
use super::pre::{chain, kind};
use super::table::{TokenEntry, TokenTable, TokenType};
use super::tiktoken::base64;
use super::{GgufVocab, VocabSource};
use crate::Error;

/// Reads the vocabulary of a tokenizer.json with a unigram model.
pub(super) fn vocabulary(
    json: &TokenizerJson<'_>,
    source: &VocabSource<'_>,
    mut table: TokenTable,
) -> Result<GgufVocab, Error> {
    if json.flag("byte_fallback")? {
        return Err(json.wrong("model: byte_fallback of a unigram model is not supported"));
    }
    let unknown = json.unknown_id()?;
    fill(json, unknown, &mut table)?;
    let steps = Steps::of(json)?;
    let mut found = GgufVocab::new(table, "t5", "default");
    let unknown = unknown.and_then(|id| u32::try_from(id).ok());
    found.ids = unknown.map(|id| ("unk", id)).into_iter().collect();
    found.charsmap = steps.charsmap;
    found.add_space_prefix = Some(steps.adds_space);
    found.remove_extra_whitespaces = Some(steps.merges_spaces);
    added_tokens::put(&mut found, source.added()?, SpaceSpelling::Plain);
    Ok(found)
}

fn fill(
    json: &TokenizerJson<'_>,
    unknown: Option<u64>,
    table: &mut TokenTable,
) -> Result<(), Error> {
    table.has_scores = true;
    for (id, (text, score)) in (0..).zip(json.pieces()?) {
        let kind = match unknown {
            Some(unknown) if unknown == id => TokenType::Unknown,
            _ => TokenType::Normal,
        };
        let token = TokenEntry {
            score: score as f32,
            ..TokenEntry::new(text, kind)
        };
        table.fill(id, token).map_err(|why| json.wrong(why))?;
    }
    Ok(())
}

/// What happens to a text before it is divided.
struct Steps {
    charsmap: Option<Vec<u8>>,
    adds_space: bool,
    merges_spaces: bool,
}

impl Steps {
    fn of(json: &TokenizerJson<'_>) -> Result<Self, Error> {
        let mut steps = Self {
            charsmap: None,
            adds_space: false,
            merges_spaces: false,
        };
        for step in chain(&json.normalizer, "normalizers") {
            match kind(step) {
                "Precompiled" => steps.charsmap = Some(charsmap(json, step)?),
                "Replace" if merges_spaces(step) => steps.merges_spaces = true,
                // Spaces at the ends of a text.
                "Strip" => {}
                other => {
                    return Err(json.wrong(format!("the normalizer {other} is not supported")));
                }
            }
        }
        for step in chain(&json.pre_tokenizer, "pretokenizers") {
            match kind(step) {
                "WhitespaceSplit" => steps.merges_spaces = true,
                "Metaspace" => steps.adds_space = adds_space(step),
                other => {
                    return Err(json.wrong(format!("the pre-tokenizer {other} is not supported")));
                }
            }
        }
        Ok(steps)
    }
}

fn charsmap(json: &TokenizerJson<'_>, step: &Value) -> Result<Vec<u8>, Error> {
    let text = step.get("precompiled_charsmap").and_then(Value::as_str);
    let text = text.ok_or_else(|| json.wrong("normalizer: no precompiled_charsmap"))?;
    base64::decode(text.as_bytes()).map_err(|why| json.wrong(format!("normalizer: {why}")))
}

/// Whether a step replaces several spaces by one.
fn merges_spaces(step: &Value) -> bool {
    let regex = step.get("pattern").and_then(|pattern| pattern.get("Regex"));
    let content = step.get("content").and_then(Value::as_str);
    regex.and_then(Value::as_str) == Some(" {2,}") && matches!(content, Some(" " | "▁"))
}

fn adds_space(metaspace: &Value) -> bool {
    match metaspace.get("prepend_scheme").and_then(Value::as_str) {
        Some(scheme) => scheme != "never",
        None => metaspace.get("add_prefix_space") != Some(&Value::Bool(false)),
    }
}
