//! The tokens by id, one for each row of the embedding.
//!
//! Knows no format. The one idea: the table has `n_vocab` slots from the beginning, and empty ones
//! become padding tokens.

use atta_formats::Writer;

use super::files::VocabFiles;
use crate::Error;

/// The most tokens: four times the largest known vocabulary.
const MAX_TOKENS: u64 = 1 << 20;

/// The type of a token, with the numbers of `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenType {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct TokenEntry {
    pub(super) text: Vec<u8>,
    pub(super) kind: TokenType,
    /// The score, for SentencePiece only.
    pub(super) score: f32,
}

impl TokenEntry {
    pub(super) fn new(text: impl Into<Vec<u8>>, kind: TokenType) -> Self {
        Self {
            text: text.into(),
            kind,
            score: 0.0,
        }
    }
}

pub(super) struct TokenTable {
    /// `[n_vocab]`.
    slots: Vec<Option<TokenEntry>>,
    /// Whether scores are written.
    pub(super) has_scores: bool,
}

impl TokenTable {
    pub(super) fn new(files: &VocabFiles, n_vocab: u64) -> Result<Self, Error> {
        if n_vocab == 0 || n_vocab > MAX_TOKENS {
            return Err(files.wrong(format!(
                "expected a vocabulary of 1 to {MAX_TOKENS} tokens, got {n_vocab}"
            )));
        }
        Ok(Self {
            slots: vec![None; n_vocab as usize],
            has_scores: false,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the embedding has a row for this id.
    pub(super) fn holds(&self, id: u64) -> bool {
        id < self.slots.len() as u64
    }

    pub(super) fn get(&self, id: u64) -> Option<&TokenEntry> {
        self.slots.get(usize::try_from(id).ok()?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut TokenEntry> {
        self.slots.get_mut(usize::try_from(id).ok()?)?.as_mut()
    }

    /// Inserts a token. Fails with a message if the id is taken or has no row.
    pub(super) fn fill(&mut self, id: u64, token: TokenEntry) -> Result<(), String> {
        let n_vocab = self.slots.len();
        let slot = usize::try_from(id)
            .ok()
            .and_then(|id| self.slots.get_mut(id));
        match slot {
            None => Err(format!("token {id}: the embedding has {n_vocab} rows")),
            Some(Some(other)) => {
                let texts = [&other.text, &token.text]
                    .map(|text| String::from_utf8_lossy(text).into_owned());
                Err(format!("token {id} is {:?} and {:?}", texts[0], texts[1]))
            }
            Some(slot) => {
                *slot = Some(token);
                Ok(())
            }
        }
    }

    /// Inserts or replaces a token. Returns false if the id has no row.
    pub(super) fn replace(&mut self, id: u64, token: TokenEntry) -> bool {
        let slot = usize::try_from(id)
            .ok()
            .and_then(|id| self.slots.get_mut(id));
        slot.map(|slot| *slot = Some(token)).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &TokenEntry)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(id, token)| Some((id, token.as_ref()?)))
    }

    /// The token with this text. Tokens of other types than `Normal` are preferred.
    pub(super) fn find(&self, text: &str) -> Option<u32> {
        let same = || {
            self.iter()
                .filter(|(_, token)| token.text == text.as_bytes())
        };
        same()
            .find(|(_, token)| token.kind != TokenType::Normal)
            .or_else(|| same().next())
            .map(|(id, _)| id)
    }

    pub(super) fn write(&self, out: &mut Writer) {
        let padding = |id| TokenEntry {
            score: -10000.0,
            ..TokenEntry::new(format!("[PAD{id}]"), TokenType::Unused)
        };
        let tokens = self
            .slots
            .iter()
            .enumerate()
            .map(|(id, token)| token.clone().unwrap_or_else(|| padding(id)));
        let mut texts = Vec::new();
        let mut kinds = Vec::new();
        let mut scores = Vec::new();
        for token in tokens {
            texts.push(token.text);
            kinds.push(token.kind as i32);
            scores.push(token.score);
        }
        out.set_strs("tokenizer.ggml.tokens", &texts);
        if self.has_scores {
            out.set_f32s("tokenizer.ggml.scores", &scores);
        }
        out.set_i32s("tokenizer.ggml.token_type", &kinds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_inserted_once_and_only_with_a_row_in_the_embedding() {
        let mut table = TokenTable::new(&VocabFiles::default(), 2).unwrap();
        let token = |text: &str| TokenEntry::new(text, TokenType::Normal);
        table.fill(1, token("a")).unwrap();
        assert_eq!(
            table.fill(1, token("b")).unwrap_err(),
            "token 1 is \"a\" and \"b\""
        );
        assert_eq!(
            table.fill(2, token("b")).unwrap_err(),
            "token 2: the embedding has 2 rows"
        );
        assert!(table.fill(u64::MAX, token("b")).is_err() && !table.replace(1 << 40, token("b")));
        assert!(table.replace(1, TokenEntry::new("b", TokenType::Control)));
        assert_eq!(table.find("b"), Some(1));
    }

    #[test]
    fn an_invalid_size_is_refused_before_slots_are_allocated() {
        let error = |n_vocab| {
            TokenTable::new(&VocabFiles::default(), n_vocab)
                .err()
                .unwrap()
                .to_string()
        };
        assert!(error(0).contains("got 0") && error(u64::MAX).contains("1048576"));
    }
}
