//! Unigram: of all divisions of a text into tokens, the one with the largest sum of scores.
//!
//! Knows nothing of special tokens. The one idea: the best division of a text extends the best
//! division of a shorter one, so one pass from left to right finds it (Viterbi 1967).
//!
//! Source: Kudo 2018, "Subword regularization", section 3.2, and `unigram_model.cc` of
//! google/sentencepiece.

use atta_formats::Metadata;

use crate::Error;
use crate::characters::{characters, joins_words};
use crate::charsmap::CharsMap;
use crate::vocab::{SPACE_MARK, TokenKind, Vocab};

/// How much less a character without a token scores than the worst token.
const UNKNOWN_PENALTY: f64 = 10.0;

pub(crate) struct Unigram {
    charsmap: CharsMap,
    /// Whether a space is added in front of a text.
    pub(crate) add_space_prefix: bool,
    /// Whether several spaces count as one, and spaces at the end as none.
    merge_spaces: bool,
    /// Whether some token spans two words; if none does, words are divided one by one.
    join_words: bool,
    unknown: Option<u32>,
    unknown_score: f64,
}

/// The best division of a text up to some byte: its score, and its last token.
#[derive(Clone, Copy)]
struct Division {
    score: f64,
    /// First byte of the last token.
    start: usize,
    /// The last token; `None`: a character without one.
    id: Option<u32>,
}

impl Division {
    const NONE: Self = Self {
        score: f64::NEG_INFINITY,
        start: 0,
        id: None,
    };
}

impl Unigram {
    /// `unknown` is the token of characters that tokens do not cover.
    pub(crate) fn new(
        metadata: &Metadata,
        vocab: &Vocab,
        unknown: Option<u32>,
    ) -> Result<Self, Error> {
        let flag = |key: &str| metadata.bool(key).map(|flag| flag.unwrap_or(true));
        let scores = vocab
            .texts()
            .filter(|&(id, _)| vocab.kind(id) == TokenKind::Normal)
            .map(|(id, _)| f64::from(vocab.score(id)));
        Ok(Self {
            charsmap: CharsMap::new(metadata)?,
            add_space_prefix: flag("tokenizer.ggml.add_space_prefix")?,
            merge_spaces: flag("tokenizer.ggml.remove_extra_whitespaces")?,
            join_words: vocab.texts().any(|(_, text)| joins_words(text)),
            unknown,
            unknown_score: scores.fold(0.0, f64::min) - UNKNOWN_PENALTY,
        })
    }

    /// Appends the tokens of a text without special tokens. Each byte that is no UTF-8 counts as
    /// U+FFFD.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &[u8], begins: bool, out: &mut Vec<u32>) {
        let text = self.normalized(text, begins);
        let mut best = Vec::new();
        let mut rest = &text[..];
        while !rest.is_empty() {
            let n = if self.join_words {
                rest.len()
            } else {
                word_bytes(rest)
            };
            self.divide(vocab, &rest[..n], &mut best, out);
            rest = &rest[n..];
        }
    }

    /// The text with replacements made and spaces marked.
    fn normalized(&self, text: &[u8], begins: bool) -> Vec<u8> {
        let mut spaces = Spaces {
            merges: self.merge_spaces,
            is_pending: begins && self.add_space_prefix,
            is_after: !begins,
            out: Vec::with_capacity(text.len() + text.len() / 4 + 4),
        };
        let mut rest = text;
        while !rest.is_empty() {
            let (replacement, n) = match self.charsmap.longest(rest) {
                Some(found) => found,
                None => first_character(rest),
            };
            replacement.iter().for_each(|&byte| spaces.push(byte));
            rest = &rest[n..];
        }
        spaces.out
    }

    /// Appends the tokens of the best division of `text`. `best` is scratch memory.
    fn divide(&self, vocab: &Vocab, text: &[u8], best: &mut Vec<Division>, out: &mut Vec<u32>) {
        best.clear();
        best.resize(text.len() + 1, Division::NONE);
        best[0].score = 0.0;
        for character in characters(text) {
            self.extend(vocab, text, character.start, character.len(), best);
        }
        let n_before = out.len();
        let mut end = text.len();
        let mut was_unknown = false;
        while end > 0 {
            let Division { start, id, .. } = best[end];
            // Unknown characters behind one another are one token.
            if id.is_some() || !was_unknown {
                out.extend(id.or(self.unknown));
            }
            was_unknown = id.is_none();
            end = start;
        }
        out[n_before..].reverse();
    }

    /// Extends the best division up to `start` by each token that may follow, and by the character
    /// of `n_bytes` there where no token is that character.
    fn extend(
        &self,
        vocab: &Vocab,
        text: &[u8],
        start: usize,
        n_bytes: usize,
        best: &mut [Division],
    ) {
        let before = best[start].score;
        let mut offer = |end: usize, score: f64, id: Option<u32>| {
            if before + score > best[end].score {
                best[end] = Division {
                    score: before + score,
                    start,
                    id,
                };
            }
        };
        let mut has_character = false;
        let ends = characters(&text[start..]).map(|character| character.end);
        for n in ends.take_while(|&n| n <= vocab.max_bytes()) {
            if let Some((id, score)) = token(vocab, &text[start..start + n]) {
                has_character |= n == n_bytes;
                offer(start + n, score, Some(id));
            }
        }
        if !has_character {
            offer(start + n_bytes, self.unknown_score, None);
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.charsmap.heap_bytes()
    }
}

/// The token of a text and its score, if it takes part in divisions.
fn token(vocab: &Vocab, text: &[u8]) -> Option<(u32, f64)> {
    let id = vocab.id(text)?;
    match vocab.kind(id) {
        TokenKind::UserDefined => Some((id, 0.0)),
        TokenKind::Normal | TokenKind::Unused => Some((id, vocab.score(id).into())),
        _ => None,
    }
}

/// The first character of a text, and its length; U+FFFD for a byte that is no UTF-8.
fn first_character(text: &[u8]) -> (&[u8], usize) {
    let valid = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    match valid.chars().next() {
        Some(c) => (&text[..c.len_utf8()], c.len_utf8()),
        None => ("\u{FFFD}".as_bytes(), 1),
    }
}

/// Bytes of the first word: up to the next space mark behind other characters.
fn word_bytes(text: &[u8]) -> usize {
    let is_border =
        |&at: &usize| text[at..].starts_with(SPACE_MARK) && !text[..at].ends_with(SPACE_MARK);
    (1..text.len()).find(is_border).unwrap_or(text.len())
}

/// Marks spaces, each or once for several.
struct Spaces {
    merges: bool,
    /// Whether a mark is written before the next character.
    is_pending: bool,
    /// Whether there is text before, so that spaces count.
    is_after: bool,
    out: Vec<u8>,
}

impl Spaces {
    fn push(&mut self, byte: u8) {
        let is_space = byte == b' ';
        if is_space && self.merges {
            self.is_pending |= self.is_after;
            return;
        }
        self.is_after = true;
        if std::mem::take(&mut self.is_pending) {
            self.out.extend_from_slice(SPACE_MARK);
        }
        match is_space {
            true => self.out.extend_from_slice(SPACE_MARK),
            false => self.out.push(byte),
        }
    }
}
