//! Byte-level byte pair encoding (`gpt2` in GGUF) from a tokenizer.json.
//!
//! Knows no expressions. The one idea: in GGUF the name of the pre-tokenizer implies
//! `ignore_merges`. If the name and the file disagree about it, the merges decide whether it makes
//! a difference.

use std::collections::HashMap;

use atta_tokenizer::bytes::{from_char, to_char};

use super::added_tokens::{self, SpaceSpelling};
use super::hugging_face::TokenizerJson;
use super::pre::{PreTokenizerSteps, chain, kind};
use super::table::{TokenTable, TokenType};
use super::{GgufVocab, VocabSource};
use crate::Error;

/// Reads the vocabulary of a byte-level tokenizer.json.
pub(super) fn vocabulary(
    json: &TokenizerJson<'_>,
    source: &VocabSource<'_>,
    mut table: TokenTable,
) -> Result<GgufVocab, Error> {
    json.fill(&mut table)?;
    let merges = json.merges()?;
    let name = match &source.options.pre {
        Some(name) => name.clone(),
        None => name(json, &table, &merges)?.to_owned(),
    };
    let mut found = GgufVocab {
        merges: Some(merges),
        ..GgufVocab::new(table, "gpt2", name)
    };
    found.warnings.extend(ignored(json));
    added_tokens::put(&mut found, source.added()?, SpaceSpelling::Plain);
    Ok(found)
}

/// The value of `tokenizer.ggml.pre`.
fn name(
    json: &TokenizerJson<'_>,
    table: &TokenTable,
    merges: &[String],
) -> Result<&'static str, Error> {
    let steps = json.steps()?;
    if !steps.byte_level {
        return Err(json
            .wrong("byte pair encoding, but neither of bytes (ByteLevel) nor with byte_fallback"));
    }
    let whole = json.flag("ignore_merges")?;
    let unknown = || json.unknown_pre_tokenizer(unknown(&steps));
    let (name, is_whole) = steps.name(whole).ok_or_else(unknown)?;
    if is_whole != whole && !merges_make_every_token(table, merges) {
        let why = format!(
            "ignore_merges is {whole}, unlike that of the pre-tokenizer {name}; name {name} to \
             use it nevertheless"
        );
        return Err(json.unknown_pre_tokenizer(why));
    }
    Ok(name)
}

fn unknown(steps: &PreTokenizerSteps) -> String {
    let splits: Vec<String> = steps
        .splits
        .iter()
        .map(|split| format!("`{split}`"))
        .collect();
    format!(
        "no known pre-tokenizer splits by {}; name an equivalent one",
        splits.join(", then ")
    )
}

/// Warnings about steps that GGUF cannot express.
fn ignored(json: &TokenizerJson<'_>) -> Vec<String> {
    let normalizers = chain(&json.normalizer, "normalizers").into_iter();
    let mut warnings: Vec<String> = normalizers
        .map(|step| format!("the normalizer {} will not be applied", kind(step)))
        .collect();
    if json.steps().is_ok_and(|steps| steps.add_prefix_space) {
        warnings.push(
            "no space will be added in front of a text, although add_prefix_space is set"
                .to_owned(),
        );
    }
    warnings
}

/// Spells bytes in the byte-level alphabet (`bytes_to_unicode` of GPT-2).
pub(super) fn spell(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| to_char(byte)).collect()
}

/// The bytes of a text in the byte-level alphabet; `None` if it has other characters.
pub(crate) fn unspell(text: &str) -> Option<Vec<u8>> {
    text.chars().map(from_char).collect()
}

/// Longer tokens are assumed not to be made by merges.
const MAX_CHARS: usize = 256;

/// Whether merging the characters of every token gives that token. Then `ignore_merges` makes no
/// difference.
fn merges_make_every_token(table: &TokenTable, merges: &[String]) -> bool {
    let ids: HashMap<&[u8], u32> = table
        .iter()
        .map(|(id, token)| (&token.text[..], id))
        .collect();
    let mut joins = HashMap::new();
    for (rank, merge) in merges.iter().enumerate() {
        let Some((left, right)) = merge.split_once(' ') else {
            continue;
        };
        let joined = [left, right].concat();
        let found = |text: &str| ids.get(text.as_bytes()).copied();
        if let (Some(left), Some(right), Some(joined)) = (found(left), found(right), found(&joined))
        {
            joins.entry((left, right)).or_insert((rank, joined));
        }
    }
    let is_made = |text: &[u8]| {
        let text = str::from_utf8(text)
            .ok()
            .filter(|text| text.len() <= 2 * MAX_CHARS)?;
        let symbols: Option<Vec<u32>> = text
            .split_inclusive(|_| true)
            .map(|c| ids.get(c.as_bytes()).copied())
            .collect();
        Some(merged(symbols?, &joins).len() == 1)
    };
    table
        .iter()
        .filter(|(_, token)| token.kind == TokenType::Normal)
        .all(|(_, token)| is_made(&token.text) == Some(true))
}

/// Merges the pair of the best rank, until no pair merges.
fn merged(mut symbols: Vec<u32>, joins: &HashMap<(u32, u32), (usize, u32)>) -> Vec<u32> {
    loop {
        let pairs = symbols.windows(2).enumerate();
        let best = pairs
            .filter_map(|(at, pair)| Some((*joins.get(&(pair[0], pair[1]))?, at)))
            .min();
        let Some(((_, joined), at)) = best else {
            return symbols;
        };
        symbols[at] = joined;
        symbols.remove(at + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_spelled_by_a_visible_character_of_its_own() {
        let all: Vec<u8> = (0..=255).collect();
        let mut chars: Vec<char> = spell(&all).chars().collect();
        assert_eq!(spell(b" \nA\xAD\x7F\xA0"), "ĠĊAŃġł");
        chars.sort_unstable();
        chars.dedup();
        assert!(chars.len() == 256 && chars.iter().all(|c| !c.is_whitespace() && !c.is_control()));
    }

    fn table(texts: &[&str]) -> TokenTable {
        let mut table = TokenTable::new(&Default::default(), texts.len() as u64).unwrap();
        let tokens = texts
            .iter()
            .map(|text| super::super::table::TokenEntry::new(*text, TokenType::Normal));
        tokens
            .zip(0..)
            .for_each(|(token, id)| table.fill(id, token).unwrap());
        table
    }

    #[test]
    fn a_token_that_merges_do_not_make_is_found() {
        let made = |texts, merges: &[&str]| {
            merges_make_every_token(
                &table(texts),
                &merges
                    .iter()
                    .map(|&merge| merge.to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert!(made(&["a", "b", "c", "ab", "abc"], &["a b", "ab c"]));
        assert!(!made(
            &["a", "b", "c", "bc", "abc", "ab"],
            &["b c", "a b", "ab c"]
        ));
        assert!(!made(&["a", "b", "ab"], &[]));
    }
}
