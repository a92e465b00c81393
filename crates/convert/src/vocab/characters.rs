//! tokenizer.json with words of characters and byte fallback: a SentencePiece model after its
//! conversion, `llama` in GGUF.
//!
//! Knows no expression. The one idea: the merges of such a file are all pairs that spell a token,
//! the tokens in the order of their scores; so the order in which merges first make a token is its
//! score, and the merges themselves are not needed. Whether that is so is checked, because a file
//! whose merges were learned otherwise would cut text otherwise.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::added_tokens::{self, SpaceSpelling};
use super::hugging_face::TokenizerJson;
use super::pre::{chain, kind};
use super::table::{TokenTable, TokenType};
use super::{GgufVocab, VocabSource};
use crate::Error;

/// The vocabulary of a tokenizer.json with byte fallback.
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
        let why = "GGUF has no place for merges of such a vocabulary";
        found
            .warnings
            .push(format!("{n_odd} tokens are not merged as scores would do it, so text may be cut otherwise: {why}"));
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

/// What is done to a text before it is merged.
struct TextPrefix {
    adds_space: bool,
    /// Steps that readers of GGUF do not do.
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
                        "a pre-tokenizer {other} has no place in a SentencePiece vocabulary"
                    )));
                }
            }
        }
        Ok(prefix)
    }
}

/// Whether a step looks for plain spaces: replacing them by U+2581 is what SentencePiece does
/// anyway, and after that a split at them does nothing.
fn is_space(step: &Value) -> bool {
    step.get("pattern")
        .and_then(|pattern| pattern.get("String"))
        .and_then(Value::as_str)
        == Some(" ")
}

/// Newer files have a scheme, older ones a flag.
fn metaspace_adds(step: &Value) -> bool {
    match step.get("prepend_scheme").and_then(Value::as_str) {
        Some(scheme) => scheme != "never",
        None => step
            .get("add_prefix_space")
            .and_then(Value::as_bool)
            .unwrap_or(true),
    }
}

/// Longer tokens are not looked at: a check of all their halves would take quadratic time.
const MAX_BYTES: usize = 512;

/// Which token is made when.
struct MergeOrder<'m> {
    /// The place of each token among those that merges make, best first.
    places: HashMap<String, usize>,
    pairs: HashSet<(&'m str, &'m str)>,
}

impl<'m> MergeOrder<'m> {
    fn of(merges: &'m [String]) -> Self {
        let mut order = Self {
            places: HashMap::new(),
            pairs: HashSet::new(),
        };
        for (left, right) in merges.iter().filter_map(|merge| merge.split_once(' ')) {
            let next = order.places.len();
            order.places.entry([left, right].concat()).or_insert(next);
            order.pairs.insert((left, right));
        }
        order
    }

    /// Tokens that scores would merge at another time than the merges do, or from halves that no
    /// merge joins.
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

    /// Tokens of which a merge comes after merges of the next token.
    fn late(&self, merges: &[String]) -> HashSet<String> {
        let mut late = HashSet::new();
        let mut last = 0;
        for (left, right) in merges.iter().filter_map(|merge| merge.split_once(' ')) {
            let text = [left, right].concat();
            let place = self.places.get(&text).copied().unwrap_or_default();
            if place < last {
                late.insert(text);
            }
            last = last.max(place);
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
            let place = str::from_utf8(&token.text)
                .ok()
                .and_then(|text| self.places.get(text));
            token.score = -(place.copied().unwrap_or(self.places.len()) as f32);
        }
    }
}
