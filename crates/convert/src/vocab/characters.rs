//! A tokenizer.json with byte fallback: a SentencePiece model that was converted to Hugging Face's
//! format (`llama` in GGUF).
//!
//! Knows no expressions. The one idea: the merges of such a file are all pairs that spell a token,
//! in the order of the tokens' scores. So the order in which merges first make a token gives its
//! score, and the merges are not needed. This property is checked, because other merges would
//! tokenize differently.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::added_tokens::{self, SpaceSpelling};
use super::hugging_face::TokenizerJson;
use super::pre::{chain, kind};
use super::table::{TokenTable, TokenType};
use super::{GgufVocab, VocabSource};
use crate::Error;

/// Reads the vocabulary of a tokenizer.json with byte fallback.
pub(super) fn vocabulary(
    json: &TokenizerJson<'_>,
    source: &VocabSource<'_>,
    mut table: TokenTable,
) -> Result<GgufVocab, Error> {
    json.fill(&mut table)?;
    let prefix = TextPrefix::of(json)?;
    let merges = json.merges()?;
    set_kinds(&mut table, json.unknown()?.as_deref());
    let order = MergeOrder::of(&merges);
    let n_odd = order.n_odd(&table, &merges);
    order.set_scores(&mut table);
    table.has_scores = true;
    let mut found = GgufVocab::new(table, "llama", "default");
    found.warnings = prefix.ignored;
    if n_odd > 0 {
        let why = "GGUF has no merges for such a vocabulary";
        found.warnings.push(format!(
            "{n_odd} tokens are not merged in the order of scores, so text may be tokenized \
             differently: {why}"
        ));
    }
    found.add_space_prefix = Some(prefix.adds_space);
    added_tokens::put(&mut found, source.added()?, SpaceSpelling::Marked);
    Ok(found)
}

fn set_kinds(table: &mut TokenTable, unknown: Option<&str>) {
    for id in 0..table.len() as u64 {
        let Some(token) = table.get_mut(id) else {
            continue;
        };
        if unknown.is_some_and(|text| text.as_bytes() == token.text) {
            token.kind = TokenType::Unknown;
        } else if is_byte(&token.text) {
            token.kind = TokenType::Byte;
        }
    }
}

/// Whether a text is `<0xXX>`.
fn is_byte(text: &[u8]) -> bool {
    let digits = text
        .strip_prefix(b"<0x")
        .and_then(|rest| rest.strip_suffix(b">"));
    digits.is_some_and(|digits| digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// The normalizer and pre-tokenizer of the file.
struct TextPrefix {
    adds_space: bool,
    /// Warnings about steps that GGUF cannot express.
    ignored: Vec<String>,
}

impl TextPrefix {
    fn of(json: &TokenizerJson<'_>) -> Result<Self, Error> {
        let mut prefix = Self {
            adds_space: false,
            ignored: Vec::new(),
        };
        for step in chain(&json.normalizer, "normalizers") {
            match kind(step) {
                "Prepend" => {
                    prefix.adds_space |= step.get("prepend").and_then(Value::as_str) == Some("▁")
                }
                "Replace" if is_space(step) => {}
                other => prefix
                    .ignored
                    .push(format!("the normalizer {other} will not be applied")),
            }
        }
        for step in chain(&json.pre_tokenizer, "pretokenizers") {
            match kind(step) {
                "Metaspace" => prefix.adds_space |= metaspace_adds(step),
                "Split" if is_space(step) => {}
                other => {
                    return Err(json.wrong(format!(
                        "a pre-tokenizer {other} is not supported for a SentencePiece vocabulary"
                    )));
                }
            }
        }
        Ok(prefix)
    }
}

/// Whether a step matches plain spaces. Such a step changes nothing: SentencePiece repositions
/// spaces by U+2581 anyway, after which a split at spaces matches nothing.
fn is_space(step: &Value) -> bool {
    step.get("pattern")
        .and_then(|pattern| pattern.get("String"))
        .and_then(Value::as_str)
        == Some(" ")
}

/// Whether a Metaspace step adds a space. Newer files have a scheme, older ones a flag.
fn metaspace_adds(step: &Value) -> bool {
    match step.get("prepend_scheme").and_then(Value::as_str) {
        Some(scheme) => scheme != "never",
        None => step
            .get("add_prefix_space")
            .and_then(Value::as_bool)
            .unwrap_or(true),
    }
}

/// Longer tokens are not checked, because that takes quadratic time.
const MAX_BYTES: usize = 512;

/// The order in which merges make tokens.
struct MergeOrder<'m> {
    /// Position of each token in the order in which merges first make tokens.
    positions: HashMap<String, usize>,
    /// The merges.
    pairs: HashSet<(&'m str, &'m str)>,
}

impl<'m> MergeOrder<'m> {
    fn of(merges: &'m [String]) -> Self {
        let mut order = Self {
            positions: HashMap::new(),
            pairs: HashSet::new(),
        };
        for (left, right) in merges.iter().filter_map(|merge| merge.split_once(' ')) {
            let next = order.positions.len();
            order
                .positions
                .entry([left, right].concat())
                .or_insert(next);
            order.pairs.insert((left, right));
        }
        order
    }

    /// The number of tokens that scores would merge in another order than the merges, or from
    /// halves that no merge has.
    fn n_odd(&self, table: &TokenTable, merges: &[String]) -> usize {
        let mut odd: HashSet<String> = self.late(merges);
        let texts: HashSet<&[u8]> = table.iter().map(|(_, token)| &token.text[..]).collect();
        for (_, token) in table
            .iter()
            .filter(|(_, token)| token.kind == TokenType::Normal && token.text.len() <= MAX_BYTES)
        {
            let Ok(text) = str::from_utf8(&token.text) else {
                continue;
            };
            let halves = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
            let mut joined = halves
                .filter(|(l, r)| texts.contains(l.as_bytes()) && texts.contains(r.as_bytes()));
            if !joined.all(|pair| self.pairs.contains(&pair)) {
                odd.insert(text.to_owned());
            }
        }
        odd.len()
    }

    /// Tokens with a merge that comes after merges of a later token.
    fn late(&self, merges: &[String]) -> HashSet<String> {
        let mut late = HashSet::new();
        let mut last = 0;
        for (left, right) in merges.iter().filter_map(|merge| merge.split_once(' ')) {
            let text = [left, right].concat();
            let position = self.positions.get(&text).copied().unwrap_or_default();
            if position < last {
                late.insert(text);
            }
            last = last.max(position);
        }
        late
    }

    fn set_scores(&self, table: &mut TokenTable) {
        for id in 0..table.len() as u64 {
            let Some(token) = table
                .get_mut(id)
                .filter(|token| token.kind == TokenType::Normal)
            else {
                continue;
            };
            let position = str::from_utf8(&token.text)
                .ok()
                .and_then(|text| self.positions.get(text));
            token.score = -(position.copied().unwrap_or(self.positions.len()) as f32);
        }
    }
}
