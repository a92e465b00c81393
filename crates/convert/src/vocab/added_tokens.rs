//! Added tokens: tokens beside the learned vocabulary, in up to three files that repeat each other.
//!
//! Knows no algorithm. The one idea: later files win, as in llama.cpp's converter:
//! added_tokens.json, then tokenizer_config.json, then tokenizer.json.

use std::collections::BTreeSet;

use serde_json::Value;

use super::GgufVocab;
use super::files::{VocabFile, VocabFiles};
use super::table::{TokenEntry, TokenType};
use crate::Error;

/// The score of added tokens in llama.cpp's converter.
const SCORE: f32 = -1000.0;

#[derive(Clone)]
pub(super) struct AddedToken {
    pub(super) id: u64,
    pub(super) content: String,
    pub(super) special: bool,
}

/// How the vocabulary spells spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SpaceSpelling {
    /// Added tokens have plain spaces.
    Plain,
    /// Spaces are U+2581. User-defined tokens are matched in plain text, so theirs are replaced by
    /// spaces.
    Marked,
}

/// Reads the `added_tokens` of a tokenizer.json, a list of objects.
pub(super) fn listed(file: &VocabFile<'_>, list: &Value) -> Result<Vec<AddedToken>, Error> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .map(|token| one(file, token.get("id").and_then(Value::as_u64), token))
        .collect()
}

/// Reads the `added_tokens_decoder` of a tokenizer_config.json, objects by id.
pub(super) fn decoder(file: &VocabFile<'_>, config: &Value) -> Result<Vec<AddedToken>, Error> {
    let Some(objects) = config
        .get("added_tokens_decoder")
        .and_then(Value::as_object)
    else {
        return Ok(Vec::new());
    };
    objects
        .iter()
        .map(|(id, token)| one(file, id.parse().ok(), token))
        .collect()
}

fn one(file: &VocabFile<'_>, id: Option<u64>, token: &Value) -> Result<AddedToken, Error> {
    let content = token.get("content").and_then(Value::as_str);
    let wrong = || file.wrong("an added token has no id or no content");
    let (id, content) = id.zip(content).ok_or_else(wrong)?;
    let special = token
        .get("special")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    Ok(AddedToken {
        id,
        content: content.to_owned(),
        special,
    })
}

/// Reads added_tokens.json, which has ids by text but no types.
fn by_text(file: &VocabFile<'_>) -> Result<Vec<AddedToken>, Error> {
    let json = file.json()?;
    let one = |(content, id): (&String, &Value)| {
        let id = id
            .as_u64()
            .ok_or_else(|| file.wrong(format!("{content:?} has no id")))?;
        Ok(AddedToken {
            id,
            content: content.clone(),
            special: false,
        })
    };
    json.as_object().into_iter().flatten().map(one).collect()
}

/// The added tokens of added_tokens.json and tokenizer_config.json.
pub(super) fn beside(files: &VocabFiles) -> Result<Vec<AddedToken>, Error> {
    let mut added = Vec::new();
    if let Some(file) = files.get("added_tokens.json") {
        added.extend(by_text(&file)?);
    }
    if let Some(file) = files.get("tokenizer_config.json") {
        added.extend(decoder(&file, &file.json()?)?);
    }
    Ok(added)
}

/// Inserts added tokens. Those without a row in the embedding are left out with a warning.
pub(super) fn put(found: &mut GgufVocab, added: Vec<AddedToken>, spelling: SpaceSpelling) {
    let mut beyond = BTreeSet::new();
    for AddedToken {
        id,
        content,
        special,
    } in added
    {
        let known = found.table.get(id);
        let kind = match known {
            Some(known) if known.kind == TokenType::Unknown && known.text == content.as_bytes() => {
                TokenType::Unknown
            }
            _ if special || looks_special(&content) => TokenType::Control,
            _ => TokenType::UserDefined,
        };
        let text = match (kind, spelling) {
            (TokenType::UserDefined, SpaceSpelling::Marked) => content.replace('▁', " "),
            _ => content,
        };
        let token = TokenEntry {
            score: SCORE,
            ..TokenEntry::new(text, kind)
        };
        if !found.table.replace(id, token) {
            beyond.insert(id);
        }
    }
    if !beyond.is_empty() {
        let n = beyond.len();
        let n_vocab = found.table.len();
        found.warnings.push(format!(
            "{n} added tokens are left out: the embedding has only {n_vocab} rows"
        ));
    }
}

/// Whether a text looks like a control token that the file does not declare special, by the rules
/// of llama.cpp's converter.
fn looks_special(text: &str) -> bool {
    let between = |start, end| text.len() > 3 && text.starts_with(start) && text.ends_with(end);
    matches!(text, "<pad>" | "<mask>" | "<2mass>" | "[@BOS@]")
        || between("<|", "|>")
        || between("<｜", "｜>")
        || between("<unused", ">")
}
