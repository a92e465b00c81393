//! A vocabulary as llguidance wants it: the bytes of every token.
//!
//! The one idea: the end of a text is a token of its own behind the vocabulary, so that it does not matter how many
//! tokens end a generation, or whether there is one.

use std::sync::Arc;

use atta_tokenizer::{TokenKind, Tokenizer};
use llguidance::toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::ConstraintError;

/// Longer tokens are never chosen: a trie is at most 1,024 deep.
const MAX_TOKEN_BYTES: usize = 1000;

/// A trie has at most 2²² nodes, of which each byte may become one.
const MAX_BYTES: usize = 4_000_000;

/// The tokens of a model.
pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

impl Vocabulary {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, ConstraintError> {
        let mut words: Vec<Vec<u8>> = (0..tokenizer.n_vocab() as u32).map(|id| word(&tokenizer, id)).collect();
        words.push(marked(b"<end>"));
        Ok(Self { trie: trie(&words, tokenizer.n_vocab())?, tokenizer })
    }
}

/// The trie of some words, of which one is the end.
pub(super) fn trie(words: &[Vec<u8>], end: usize) -> Result<TokTrie, ConstraintError> {
    let n_bytes: usize = words.iter().map(Vec::len).sum();
    if n_bytes > MAX_BYTES {
        let what = format!("its tokens have {n_bytes} bytes, expected at most {MAX_BYTES}");
        return Err(ConstraintError::Vocabulary(what));
    }
    Ok(TokTrie::from(&TokRxInfo::new(words.len() as u32, end as u32), words))
}

/// What a token is to a grammar: bytes, a name that only a grammar writes, or nothing.
pub(super) fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let word = match tokenizer.kind(id) {
        TokenKind::Control | TokenKind::Unknown => marked(tokenizer.token_text(id)),
        _ => tokenizer.token_bytes(id).into_owned(),
    };
    // No text has a byte that is the mark.
    let is_name = word.first() == Some(&MARK) && word.len() > 1;
    let is_text = !word.contains(&MARK);
    if word.len() <= MAX_TOKEN_BYTES && (is_name || is_text) { word } else { Vec::new() }
}

const MARK: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

fn marked(name: &[u8]) -> Vec<u8> {
    [&[MARK], name].concat()
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// The tokens of bytes in the middle of a text. Half a character at the end is no text, so it goes by the trie.
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let mut ids = Vec::new();
        for chunk in bytes.utf8_chunks() {
            ids.extend(self.tokenizer.encode_after(chunk.valid()));
            ids.extend(self.trie.greedy_tokenize(chunk.invalid()));
        }
        ids
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.tokenizer.is_lossless()
    }
}
