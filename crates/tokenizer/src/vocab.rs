//! The vocabulary: texts, types and scores of tokens, and the index from text to id.
//!
//! Knows no algorithm. The one idea: texts and scores stay in the mapped file; the heap holds one
//! byte per token for its type, and the index.

use crate::Error;
use crate::index::Index;
use atta_formats::{Metadata, NumArray, StrArray};

/// U+2581, which SentencePiece writes for a space.
pub(crate) const SPACE_MARK: &[u8] = "▁".as_bytes();

/// Larger than any token id. The largest known vocabularies have 262,144 tokens.
pub(crate) const MAX_TOKENS: usize = 1 << 21;

const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";

/// The type of a token, `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TokenKind {
    /// Text.
    Normal,
    /// The token of text that no other token covers.
    Unknown,
    /// A control token: recognised in input only on request, hidden in output.
    Control,
    /// Text that is always recognised as this token, before any other step of encoding.
    UserDefined,
    /// An unused id.
    Unused,
    /// One byte, spelled `<0xXX>`.
    Byte,
    /// No type, or an unknown number.
    Undefined,
}

impl TokenKind {
    fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Undefined,
        }
    }

    /// Whether the token is matched in the input as a whole, always or if special tokens are
    /// parsed.
    pub(crate) fn is_special(self) -> bool {
        matches!(self, Self::Unknown | Self::Control | Self::UserDefined)
    }

    /// Whether the token is left out of decoded text.
    pub fn is_hidden(self) -> bool {
        matches!(self, Self::Unknown | Self::Control)
    }
}

pub(crate) struct Vocab {
    texts: StrArray,
    index: Index,
    /// `[n_vocab]`.
    kinds: Vec<TokenKind>,
    scores: Option<NumArray<f32>>,
    max_bytes: usize,
}

impl Vocab {
    pub(crate) fn new(metadata: &Metadata) -> Result<Self, Error> {
        let texts = metadata
            .strs(TOKENS)?
            .ok_or(Error::Missing { key: TOKENS })?;
        let n_vocab = texts.len();
        if n_vocab == 0 || n_vocab >= MAX_TOKENS {
            return Err(Error::Count {
                key: TOKENS,
                max: MAX_TOKENS - 1,
                got: n_vocab,
            });
        }
        let index = Index::new(&texts)?;
        let max_bytes = texts.iter().map(<[u8]>::len).max().unwrap_or(0);
        Ok(Self {
            kinds: kinds(metadata, n_vocab)?,
            texts,
            index,
            scores: None,
            max_bytes,
        })
    }

    /// Reads the scores, which only SentencePiece needs. An empty array counts as absent.
    ///
    /// # Errors
    /// If there are fewer scores than tokens, or if they are not f32.
    pub(crate) fn with_scores(self, metadata: &Metadata) -> Result<Self, Error> {
        let scores = metadata.f32s(SCORES)?.filter(|scores| !scores.is_empty());
        if let Some(scores) = &scores {
            check_length(SCORES, self.len(), scores.len())?;
        }
        Ok(Self { scores, ..self })
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The length of the longest token text.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    pub(crate) fn id(&self, text: &[u8]) -> Option<u32> {
        if text.len() > self.max_bytes {
            None
        } else {
            self.index.get(&self.texts, text)
        }
    }

    /// The text of a token as the file spells it; empty for ids from `len` on.
    pub(crate) fn text(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize).unwrap_or_default()
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (0..).zip(self.texts.iter())
    }

    pub(crate) fn kind(&self, id: u32) -> TokenKind {
        self.kinds
            .get(id as usize)
            .copied()
            .unwrap_or(TokenKind::Undefined)
    }

    pub(crate) fn set_kind(&mut self, id: u32, kind: TokenKind) {
        if let Some(old) = self.kinds.get_mut(id as usize) {
            *old = kind;
        }
    }

    pub(crate) fn score(&self, id: u32) -> f32 {
        self.scores
            .as_ref()
            .and_then(|scores| scores.get(id as usize))
            .unwrap_or(0.0)
    }

    /// The token `<0xXX>` of a byte.
    pub(crate) fn byte_id(&self, byte: u8) -> Option<u32> {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        self.id(&[b'<', b'0', b'x', digits[0], digits[1], b'>'])
    }

    /// Whether `id` is a token of the vocabulary.
    pub(crate) fn holds(&self, id: u32) -> bool {
        (id as usize) < self.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.texts.heap_bytes() + self.index.heap_bytes() + self.kinds.capacity()
    }
}

fn kinds(metadata: &Metadata, n_vocab: usize) -> Result<Vec<TokenKind>, Error> {
    let Some(numbers) = metadata.i32s(KINDS)?.filter(|numbers| !numbers.is_empty()) else {
        return Ok(vec![TokenKind::Normal; n_vocab]);
    };
    check_length(KINDS, n_vocab, numbers.len())?;
    Ok(numbers
        .iter()
        .take(n_vocab)
        .map(TokenKind::from_number)
        .collect())
}

fn check_length(key: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if got < expected {
        Err(Error::Length { key, expected, got })
    } else {
        Ok(())
    }
}

/// The byte of a byte token `<0xXX>`.
pub(crate) fn spelled_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens_are_spelled_in_hexadecimal() {
        assert_eq!(spelled_byte(b"<0x0A>"), Some(10));
        assert_eq!(
            (
                spelled_byte(b"<0x>"),
                spelled_byte(b"<0xZZ>"),
                spelled_byte(b"0x41")
            ),
            (None, None, None)
        );
    }
}
