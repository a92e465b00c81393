//! Added tokens: what stands beside the learned vocabulary, in up to three files that repeat each
//! other.
//!
//! Knows no algorithm. The one idea: later files win, as in llama.cpp's converter:
//! added_tokens.json, then tokenizer_config.json, then tokenizer.json.

use std::collections::BTreeSet;

use serde_json::Value;

use super::GgufVocab;
use super::files::{VocabFile, VocabFiles};
use super::table::{TokenEntry, TokenType};
use crate::Error;

/// What llama.cpp's converter gives tokens that no merge makes.
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
    /// As they are, in added tokens.
    Plain,
    /// As U+2581, which a token that is cut out of plain text must not have.
    Marked,
}

/// The `added_tokens` of a tokenizer.json: a list of objects.
pub(super) fn listed(file: &VocabFile<'_>, list: &Value) -> Result<Vec<AddedToken>, Error> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .map(|token| one(file, token.get("id").and_then(Value::as_u64), token))
        .collect()
}

/// The `added_tokens_decoder` of a tokenizer_config.json: objects by id.
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

/// added_tokens.json: ids by text, nothing said about what they are for.
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

/// The tokens of the files beside the vocabulary proper.
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

/// Puts added tokens in their places. Those that the embedding has no row for are left out, which
/// is said.
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
            "{n} added tokens are left out: the embedding has {n_vocab} rows only"
        ));
    }
}

/// Marks that some tokenizers forget to declare as such: `<|...|>` and what llama.cpp's converter
/// has beside it.
fn looks_special(text: &str) -> bool {
    let between = |start, end| text.len() > 3 && text.starts_with(start) && text.ends_with(end);
    matches!(text, "<pad>" | "<mask>" | "<2mass>" | "[@BOS@]")
        || between("<|", "|>")
        || between("<｜", "｜>")
        || between("<unused", ">")
}
