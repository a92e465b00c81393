//! Parses tokenizer.json, the format of Hugging Face `tokenizers`, and dispatches by its kind of
//! model.
//!
//! Knows no other format. The one idea: only the small fields become trees of JSON values; tokens
//! and merges (hundreds of thousands) are parsed directly into strings and numbers.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use serde_json::value::RawValue;

use super::added_tokens::{self, AddedToken};
use super::files::VocabFile;
use super::pre::PreTokenizerSteps;
use super::table::{TokenEntry, TokenTable, TokenType};
use super::{GgufVocab, VocabSource, byte_level, characters, unigram, word_piece};
use crate::Error;

type RawObject<'a> = HashMap<String, &'a RawValue>;

/// A tokenizer.json with the fields of its model unparsed.
pub(super) struct TokenizerJson<'a> {
    file: &'a VocabFile<'a>,
    model: RawObject<'a>,
    pub(super) added: Vec<AddedToken>,
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
    pub(super) post_processor: Value,
}

impl<'a> TokenizerJson<'a> {
    pub(super) fn parse(file: &'a VocabFile<'a>) -> Result<Self, Error> {
        let root: RawObject<'_> =
            serde_json::from_str(file.text()?).map_err(|error| file.wrong(error.to_string()))?;
        let value = |key| value_of(file, &root, key);
        let model = root.get("model").ok_or_else(|| file.wrong("no model"))?;
        Ok(Self {
            file,
            model: serde_json::from_str(model.get()).map_err(wrong_in(file, "model"))?,
            added: added_tokens::listed(file, &value("added_tokens")?)?,
            normalizer: value("normalizer")?,
            pre_tokenizer: value("pre_tokenizer")?,
            post_processor: value("post_processor")?,
        })
    }

    pub(super) fn vocabulary(
        &self,
        source: &VocabSource<'_>,
        table: TokenTable,
    ) -> Result<GgufVocab, Error> {
        let kind = self.kind()?;
        match kind.as_str() {
            "BPE" => {}
            "WordPiece" => return word_piece::vocabulary(self, source, table),
            "Unigram" => return unigram::vocabulary(self, source, table),
            _ => {
                return Err(self.file.wrong(format!(
                    "a vocabulary of the kind {kind} is not supported: expected BPE, Unigram or \
                     WordPiece"
                )));
            }
        }
        self.refuse_affixes()?;
        if self.flag("byte_fallback")? {
            return characters::vocabulary(self, source, table);
        }
        byte_level::vocabulary(self, source, table)
    }

    /// The type of the model. Files of 2020 do not have the field.
    fn kind(&self) -> Result<String, Error> {
        match self.model_value("type")? {
            Value::String(kind) => Ok(kind),
            _ if self.model.contains_key("merges") => Ok("BPE".to_owned()),
            _ => Err(self.file.wrong("model: no type")),
        }
    }

    /// Fails for affixes of subwords, which GGUF cannot express.
    fn refuse_affixes(&self) -> Result<(), Error> {
        for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
            if self
                .model_value(key)?
                .as_str()
                .is_some_and(|affix| !affix.is_empty())
            {
                return Err(self
                    .file
                    .wrong(format!("model: {key} cannot be expressed in GGUF")));
            }
        }
        Ok(())
    }

    /// Fails for a WordPiece model with another mark of what continues a word, or another length of
    /// the longest word.
    pub(super) fn check_word_piece(&self, continued: &str, max_chars: u64) -> Result<(), Error> {
        let expected = [
            ("continuing_subword_prefix", Value::from(continued)),
            ("max_input_chars_per_word", Value::from(max_chars)),
        ];
        for (key, expected) in expected {
            let value = self.model_value(key)?;
            if !value.is_null() && value != expected {
                let why = format!("model: {key} is {value}, expected {expected}");
                return Err(self.file.wrong(why));
            }
        }
        Ok(())
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, Error> {
        Ok(self.model_value(key)?.as_bool().unwrap_or(false))
    }

    /// The text of the unknown token.
    pub(super) fn unknown(&self) -> Result<Option<String>, Error> {
        Ok(self.model_value("unk_token")?.as_str().map(str::to_owned))
    }

    /// The id of the unknown token, of a unigram model.
    pub(super) fn unknown_id(&self) -> Result<Option<u64>, Error> {
        Ok(self.model_value("unk_id")?.as_u64())
    }

    /// The pieces of a unigram model with their scores, by id.
    pub(super) fn pieces(&self) -> Result<Vec<(String, f64)>, Error> {
        let raw = self
            .model
            .get("vocab")
            .ok_or_else(|| self.file.wrong("model: no vocab"))?;
        serde_json::from_str(raw.get()).map_err(wrong_in(self.file, "vocab"))
    }

    fn model_value(&self, key: &str) -> Result<Value, Error> {
        value_of(self.file, &self.model, key)
    }

    /// Inserts the learned tokens, all of type `Normal`.
    pub(super) fn fill(&self, table: &mut TokenTable) -> Result<(), Error> {
        let raw = self
            .model
            .get("vocab")
            .ok_or_else(|| self.file.wrong("model: no vocab"))?;
        let ids: HashMap<String, u64> =
            serde_json::from_str(raw.get()).map_err(wrong_in(self.file, "vocab"))?;
        fill(table, ids, &self.added).map_err(|why| self.file.wrong(why))
    }

    /// The merges as `left right`, best first.
    pub(super) fn merges(&self) -> Result<Vec<String>, Error> {
        let raw = self
            .model
            .get("merges")
            .ok_or_else(|| self.file.wrong("model: no merges"))?;
        let is_pairs = raw
            .get()
            .strip_prefix('[')
            .is_some_and(|rest| rest.trim_start().starts_with('['));
        if !is_pairs {
            return serde_json::from_str(raw.get()).map_err(wrong_in(self.file, "merges"));
        }
        let pairs: Vec<(String, String)> =
            serde_json::from_str(raw.get()).map_err(wrong_in(self.file, "merges"))?;
        Ok(pairs
            .into_iter()
            .map(|(left, right)| joined(&left, &right))
            .collect())
    }

    pub(super) fn steps(&self) -> Result<PreTokenizerSteps, Error> {
        PreTokenizerSteps::of(&self.pre_tokenizer)
            .map_err(|why| self.file.wrong(format!("pre_tokenizer: {why}")))
    }

    pub(super) fn wrong(&self, why: impl Into<String>) -> Error {
        self.file.wrong(why)
    }

    pub(super) fn unknown_pre_tokenizer(&self, why: impl Into<String>) -> Error {
        self.file.unknown_pre_tokenizer(why)
    }
}

/// Inserts learned tokens. A token without a row in the embedding is an error, unless it is an
/// added one, about which `added_tokens::put` warns.
pub(super) fn fill(
    table: &mut TokenTable,
    ids: HashMap<String, u64>,
    added: &[AddedToken],
) -> Result<(), String> {
    let added: HashSet<u64> = added.iter().map(|token| token.id).collect();
    let mut ids: Vec<(u64, String)> = ids.into_iter().map(|(text, id)| (id, text)).collect();
    ids.sort_unstable();
    for (id, text) in ids {
        if !table.holds(id) && added.contains(&id) {
            continue;
        }
        table.fill(id, TokenEntry::new(text, TokenType::Normal))?;
    }
    Ok(())
}

/// A merge as one text. Spaces in the halves are spelled `Ġ`, as in llama.cpp, because the halves
/// are separated by a space.
fn joined(left: &str, right: &str) -> String {
    [left.replace(' ', "Ġ"), right.replace(' ', "Ġ")].join(" ")
}

fn value_of(file: &VocabFile<'_>, object: &RawObject<'_>, key: &str) -> Result<Value, Error> {
    object.get(key).map_or(Ok(Value::Null), |raw| {
        serde_json::from_str(raw.get()).map_err(wrong_in(file, key))
    })
}

/// Converts JSON errors in a part of the file; lines and columns are relative to the part.
fn wrong_in(file: &VocabFile<'_>, key: &str) -> impl Fn(serde_json::Error) -> Error {
    move |error| file.wrong(format!("{key}: {error}"))
}
