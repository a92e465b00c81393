//! tiktoken files: a token and its rank per line, as published with Meta's Llama 3, the first Qwen
//! and Kimi.
//!
//! Such a file has neither a pre-tokenizer nor special tokens; both follow from the number of its
//! tokens, or from other files and options. The one idea: the merge of a token is the last of those
//! that build it from its bytes with lower ranks.

pub(super) mod base64;
pub(super) mod tekken;

use std::collections::HashMap;
use std::ops::Range;

use super::added_tokens::{self, SpaceSpelling};
use super::byte_level;
use super::expressions::NAMES;
use super::files::VocabFile;
use super::table::{TokenEntry, TokenTable, TokenType};
use super::{GgufVocab, VocabSource};
use crate::Error;

/// The longest token: four times the longest known one, which is 128 spaces. Finding merges takes
/// quadratic time in this.
const MAX_BYTES: usize = 512;

/// A published vocabulary, recognized by the number of its tokens.
struct KnownVocab {
    n_tokens: usize,
    pre: &'static str,
    add_bos: bool,
    /// The special token at index `n_tokens + i`.
    special: fn(usize) -> Option<String>,
    roles: &'static [(&'static str, u32)],
}

const KNOWN: &[KnownVocab] = &[
    KnownVocab {
        n_tokens: 128_000,
        pre: "llama-bpe",
        add_bos: true,
        special: llama3,
        roles: &[
            ("bos", 128_000),
            ("eos", 128_001),
            ("eot", 128_009),
            ("eom", 128_008),
            ("pad", 128_004),
        ],
    },
    KnownVocab {
        n_tokens: 151_643,
        pre: "qwen2",
        add_bos: false,
        special: qwen,
        roles: &[("bos", 151_643), ("eos", 151_643)],
    },
    KnownVocab {
        n_tokens: 163_584,
        pre: "kimi-k2",
        add_bos: false,
        special: kimi,
        roles: &[
            ("bos", 163_584),
            ("eos", 163_585),
            ("eot", 163_586),
            ("pad", 163_839),
        ],
    },
];

/// The 256 special tokens of Kimi K2 and Kimi Linear, as far as no other file names them.
fn kimi(i: usize) -> Option<String> {
    match i {
        0 => Some("[BOS]".to_owned()),
        1 => Some("[EOS]".to_owned()),
        2 => Some("<|im_end|>".to_owned()),
        3..256 => Some(format!("<|reserved_token_{}|>", 163_584 + i)),
        _ => None,
    }
}

/// The 256 special tokens of Llama 3. Llama 3.1 uses some that 3.0 had reserved; the others are the
/// same.
fn llama3(i: usize) -> Option<String> {
    let reserved = |n| Some(format!("<|reserved_special_token_{n}|>"));
    let mark = |name| Some(format!("<|{name}|>"));
    match i {
        0 => mark("begin_of_text"),
        1 => mark("end_of_text"),
        2 | 3 => reserved(i - 2),
        4 => mark("finetune_right_pad_id"),
        5 => reserved(2),
        6 => mark("start_header_id"),
        7 => mark("end_header_id"),
        8 => mark("eom_id"),
        9 => mark("eot_id"),
        10 => mark("python_tag"),
        11..256 => reserved(i - 8),
        _ => None,
    }
}

fn qwen(i: usize) -> Option<String> {
    match i {
        0 => Some("<|endoftext|>".to_owned()),
        1 => Some("<|im_start|>".to_owned()),
        2 => Some("<|im_end|>".to_owned()),
        3..208 => Some(format!("<|extra_{}|>", i - 3)),
        _ => None,
    }
}

/// Reads the vocabulary of a file of ranks.
pub(super) fn vocabulary(
    file: &VocabFile<'_>,
    source: &VocabSource<'_>,
    mut table: TokenTable,
) -> Result<GgufVocab, Error> {
    let ranks = Ranks::parse(file)?;
    ranks.fill(&mut table).map_err(|why| file.wrong(why))?;
    let pre = match (&source.options.pre, ranks.known()) {
        (Some(pre), _) => pre.clone(),
        (None, Some(known)) => known.pre.to_owned(),
        (None, None) => {
            let n = ranks.of.len();
            return Err(file.unknown_pre_tokenizer(format!(
                "a vocabulary of {n} tokens is unknown: name its pre-tokenizer"
            )));
        }
    };
    let mut found = ranks.vocabulary(table, pre);
    added_tokens::put(&mut found, source.added()?, SpaceSpelling::Plain);
    Ok(found)
}

/// The vocabulary of Llama 3, from all its tokens in order, special ones included.
pub(super) fn llama3_vocabulary(
    tokens: &[&[u8]],
    mut table: TokenTable,
) -> Result<GgufVocab, String> {
    let n_ranks = KNOWN[0].n_tokens;
    let mut ranks = Ranks::default();
    for (token, rank) in tokens.iter().zip(0..).take(n_ranks) {
        ranks
            .insert(token.to_vec(), rank)
            .map_err(|why| format!("token {rank}: {why}"))?;
    }
    ranks.fill(&mut table)?;
    let mut found = ranks.vocabulary(table, KNOWN[0].pre.to_owned());
    for (token, id) in tokens
        .iter()
        .zip(0..)
        .skip(n_ranks)
        .filter(|(token, _)| !token.is_empty())
    {
        found
            .table
            .replace(id, TokenEntry::new(*token, TokenType::Control));
    }
    Ok(found)
}

/// Whether a pre-tokenizer implies `ignore_merges`, which is what tiktoken does.
fn takes_whole_words(pre: &str) -> bool {
    NAMES.iter().any(|named| named.name == pre && named.whole)
}

impl KnownVocab {
    fn apply(&self, found: &mut GgufVocab) {
        for i in 0..found.table.len() {
            let Some(text) = (self.special)(i) else { break };
            found.table.replace(
                (self.n_tokens + i) as u64,
                TokenEntry::new(text, TokenType::Control),
            );
        }
        let held = self
            .roles
            .iter()
            .filter(|(_, id)| found.table.holds((*id).into()));
        found.ids = held.copied().collect();
        found.add_bos = Some(self.add_bos);
    }
}

/// The ranks of tokens, by their bytes.
#[derive(Default)]
struct Ranks {
    of: HashMap<Vec<u8>, u64>,
}

impl Ranks {
    fn parse(file: &VocabFile<'_>) -> Result<Self, Error> {
        let mut ranks = Self::default();
        for (line, n) in file.bytes.split(|&byte| byte == b'\n').zip(1..) {
            let line = line.trim_ascii();
            if !line.is_empty() {
                ranks
                    .add(line)
                    .map_err(|why| file.wrong(format!("line {n}: {why}")))?;
            }
        }
        if ranks.of.is_empty() {
            return Err(file.wrong("no tokens"));
        }
        Ok(ranks)
    }

    /// The published vocabulary with this number of tokens.
    fn known(&self) -> Option<&'static KnownVocab> {
        KNOWN.iter().find(|known| known.n_tokens == self.of.len())
    }

    /// Inserts the tokens into the table.
    fn fill(&self, table: &mut TokenTable) -> Result<(), String> {
        for (token, &rank) in &self.of {
            let text = byte_level::spell(token);
            table.fill(rank, TokenEntry::new(text, TokenType::Normal))?;
        }
        Ok(())
    }

    /// The vocabulary of a filled table, with special tokens if it is a known one.
    fn vocabulary(&self, table: TokenTable, pre: String) -> GgufVocab {
        let mut found = GgufVocab::new(table, "gpt2", pre);
        let (merges, n_unmade) = self.merges();
        found.merges = Some(merges);
        if n_unmade > 0 && !takes_whole_words(&found.pre) {
            found.warnings.push(format!(
                "{n_unmade} tokens cannot be merged from others and will not be found"
            ));
        }
        if let Some(known) = self.known() {
            known.apply(&mut found);
        }
        found
    }

    /// Parses a line: a token in base64, a space, its rank.
    fn add(&mut self, line: &[u8]) -> Result<(), String> {
        let space = line
            .iter()
            .position(|&byte| byte == b' ')
            .ok_or("expected a token in base64 and its rank")?;
        let token = base64::decode(&line[..space])?;
        let rank = str::from_utf8(line[space..].trim_ascii())
            .ok()
            .and_then(|rank| rank.parse().ok());
        self.insert(token, rank.ok_or("the rank is no number")?)
    }

    fn insert(&mut self, token: Vec<u8>, rank: u64) -> Result<(), String> {
        if token.is_empty() || token.len() > MAX_BYTES {
            return Err(format!(
                "expected a token of 1 to {MAX_BYTES} bytes, got {}",
                token.len()
            ));
        }
        match self.of.insert(token, rank) {
            Some(other) => Err(format!("the token has the rank {other} already")),
            None => Ok(()),
        }
    }

    /// One merge per token, best rank first, and the number of tokens without a merge.
    fn merges(&self) -> (Vec<String>, usize) {
        let mut tokens: Vec<(u64, &[u8])> = self
            .of
            .iter()
            .map(|(token, &rank)| (rank, &token[..]))
            .collect();
        tokens.retain(|(_, token)| token.len() > 1);
        tokens.sort_unstable();
        let joined = |(rank, token): &(u64, &[u8])| {
            let at = self.last_join(token, *rank)?;
            Some(
                [
                    byte_level::spell(&token[..at]),
                    byte_level::spell(&token[at..]),
                ]
                .join(" "),
            )
        };
        let merges: Vec<String> = tokens.iter().filter_map(joined).collect();
        let n_unmade = tokens.len() - merges.len();
        (merges, n_unmade)
    }

    /// The offset between the two halves that a token is merged from, using only lower ranks.
    fn last_join(&self, token: &[u8], rank: u64) -> Option<usize> {
        let mut parts: Vec<Range<usize>> = (0..token.len()).map(|i| i..i + 1).collect();
        while parts.len() > 2 {
            let pairs = parts
                .windows(2)
                .map(|pair| self.of.get(&token[pair[0].start..pair[1].end]));
            let best = pairs
                .zip(0..)
                .filter_map(|(pair, i)| Some((pair.copied().filter(|&pair| pair < rank)?, i)))
                .min();
            let (_, i): (u64, usize) = best?;
            parts[i].end = parts[i + 1].end;
            parts.remove(i + 1);
        }
        parts.first().map(|first| first.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(tokens: &[&str]) -> Ranks {
        Ranks {
            of: tokens
                .iter()
                .map(|token| token.as_bytes().to_vec())
                .zip(0..)
                .collect(),
        }
    }

    #[test]
    fn a_merge_is_the_last_one_that_makes_a_token() {
        let ranks = ranks(&["a", "b", "c", " ", "bc", "ab", "abc", " abc", "xyz"]);
        let merges = ["b c", "a b", "a bc", "Ġ abc"].map(str::to_owned);
        assert_eq!(ranks.merges(), (merges.to_vec(), 1), "xyz is no two tokens");
    }

    #[test]
    fn special_tokens_of_llama3_have_their_published_ids() {
        let at = |i| llama3(i).unwrap();
        assert_eq!(
            (at(0), at(6), at(9)),
            (
                "<|begin_of_text|>".into(),
                "<|start_header_id|>".into(),
                "<|eot_id|>".into()
            )
        );
        let reserved = [2, 3, 5, 11, 255].map(at);
        assert_eq!(
            reserved,
            [0, 1, 2, 3, 247].map(|i| format!("<|reserved_special_token_{i}|>"))
        );
        assert_eq!(
            (llama3(256), qwen(207).unwrap(), qwen(208)),
            (None, "<|extra_204|>".into(), None)
        );
    }
}
