//! A tokenizer.json with WordPiece, the vocabulary of BERT (`bert` in GGUF).
//!
//! Knows no other kind. The one idea: WordPiece marks what continues a word, with `##`; GGUF marks
//! what begins one, with U+2581.

use serde_json::Value;

use super::added_tokens::{self, SpaceSpelling};
use super::hugging_face::TokenizerJson;
use super::pre::kind;
use super::table::{TokenTable, TokenType};
use super::{GgufVocab, VocabSource};
use crate::Error;

/// What tokens begin with that continue a word.
const CONTINUED: &str = "##";

/// The longest word that GGUF's readers look up.
const MAX_CHARS: u64 = 100;

/// Reads the vocabulary of a tokenizer.json with WordPiece.
pub(super) fn vocabulary(
    json: &TokenizerJson<'_>,
    source: &VocabSource<'_>,
    mut table: TokenTable,
) -> Result<GgufVocab, Error> {
    let normalizer = Normalizer::of(json)?;
    json.check_word_piece(CONTINUED, MAX_CHARS)?;
    json.fill(&mut table)?;
    mark(&mut table);
    let mut found = GgufVocab::new(table, "bert", "default");
    found.lowercase = Some(normalizer.lowercase);
    found.strip_accents = normalizer.strip_accents;
    added_tokens::put(&mut found, source.added()?, SpaceSpelling::Plain);
    Ok(found)
}

/// From `##` in front of what continues a word to U+2581 in front of what begins one.
fn mark(table: &mut TokenTable) {
    for id in 0..table.len() as u64 {
        let Some(token) = table.get_mut(id).filter(|t| t.kind == TokenType::Normal) else {
            continue;
        };
        token.text = match token.text.strip_prefix(CONTINUED.as_bytes()) {
            Some(rest) => rest.to_vec(),
            None => ["\u{2581}".as_bytes(), &token.text].concat(),
        };
    }
}

/// The steps before words are looked up.
struct Normalizer {
    lowercase: bool,
    /// `None`: as `lowercase`.
    strip_accents: Option<bool>,
}

impl Normalizer {
    fn of(json: &TokenizerJson<'_>) -> Result<Self, Error> {
        let normalizer = &json.normalizer;
        if kind(normalizer) != "BertNormalizer" || kind(&json.pre_tokenizer) != "BertPreTokenizer" {
            return Err(json.wrong(
                "a WordPiece vocabulary is supported with BertNormalizer and BertPreTokenizer only",
            ));
        }
        let flag = |key: &str| normalizer.get(key).and_then(Value::as_bool);
        for key in ["clean_text", "handle_chinese_chars"] {
            if flag(key) == Some(false) {
                return Err(json.wrong(format!(
                    "normalizer: {key} is false, which is not supported"
                )));
            }
        }
        Ok(Self {
            lowercase: flag("lowercase").unwrap_or(true),
            strip_accents: flag("strip_accents"),
        })
    }
}
