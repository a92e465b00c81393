//! A vocabulary for llguidance: the bytes of every token.
//!
//! The end of a text is an extra token after the vocabulary, so that it does not matter how many
//! end-of-generation tokens there are, or whether there is one. End-of-generation tokens become
//! named tokens, whatever text they have.

use std::sync::Arc;

use atta_tokenizer::{Special, TokenKind, Tokenizer};
use llguidance::toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::ConstraintError;

/// Longer tokens are never chosen: a trie is at most 1,024 deep.
const MAX_TOKEN_BYTES: usize = 1000;

/// A trie has at most 2²² nodes.
const MAX_NODES: usize = 4_000_000;

/// The bytes of a model's tokens, and the size of their trie.
pub(super) struct Words {
    words: Vec<Vec<u8>>,
    n_nodes: usize,
}

impl Words {
    /// The bytes of every token and of the end. Of tokens with the same bytes one is kept,
    /// preferring whole tokens to byte tokens.
    pub(super) fn new(tokenizer: &Tokenizer) -> Self {
        let mut words: Vec<Vec<u8>> = (0..tokenizer.n_vocab() as u32)
            .map(|id| word(tokenizer, id))
            .collect();
        words.push(marked(b"<end>"));
        let is_byte = |id: u32| tokenizer.kind(id) == TokenKind::Byte;
        // Nearly all tokens differ in their first 8 bytes: comparing those first takes a third of
        // the time.
        let mut order: Vec<(u64, u32)> = words
            .iter()
            .map(|word| first_bytes(word))
            .zip(0..)
            .collect();
        let key = |id: u32| (&words[id as usize], is_byte(id), id);
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(&key(b.1))));
        let mut n_nodes = 1;
        let mut before: Option<u32> = None;
        for (_, id) in order {
            let last = before.map_or(&[][..], |last| &words[last as usize]);
            let word = &words[id as usize];
            n_nodes += word.len() - common(last, word);
            match before.is_some() && last == word {
                true => words[id as usize] = Vec::new(),
                false => before = Some(id),
            }
        }
        Self { words, n_nodes }
    }

    /// Heap size of a trie: 8 bytes per node, in a vector that may have doubled; 12 bytes per
    /// token, and its bytes.
    pub(super) fn trie_bytes(&self) -> u64 {
        let n_bytes: usize = self.words.iter().map(Vec::len).sum();
        (8 * self.n_nodes.next_power_of_two() + 12 * self.words.len() + n_bytes) as u64
    }

    /// Additional heap while the trie is built: the token bytes, and nodes of 20 bytes.
    pub(super) fn making_bytes(&self) -> u64 {
        let words: usize = self
            .words
            .iter()
            .map(|word| size_of::<Vec<u8>>() + word.len().next_multiple_of(16) + 8)
            .sum();
        let n_nodes = (3 * self.words.len()).max(self.n_nodes.next_power_of_two());
        (words + 20 * n_nodes) as u64
    }
}

/// The first 8 bytes of a token, padded with zeros.
fn first_bytes(word: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let n = word.len().min(8);
    bytes[..n].copy_from_slice(&word[..n]);
    u64::from_be_bytes(bytes)
}

/// Length of the common prefix.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The tokens of a model, as llguidance asks for them.
pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

impl Vocabulary {
    pub(super) fn new(tokenizer: Arc<Tokenizer>, words: &Words) -> Result<Self, ConstraintError> {
        if words.n_nodes > MAX_NODES {
            let what = format!(
                "its tokens make a trie of {} nodes, expected at most {MAX_NODES}",
                words.n_nodes
            );
            return Err(ConstraintError::Vocabulary(what));
        }
        Ok(Self {
            trie: trie(&words.words, tokenizer.n_vocab()),
            tokenizer,
        })
    }
}

/// Builds the trie of some tokens; `end` is the end of text.
pub(super) fn trie(words: &[Vec<u8>], end: usize) -> TokTrie {
    TokTrie::from(&TokRxInfo::new(words.len() as u32, end as u32), words)
}

/// A token for a grammar: bytes, a name that only a grammar can ask for, or nothing.
pub(super) fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let word = match tokenizer.kind(id) {
        TokenKind::Control | TokenKind::Unknown => marked(tokenizer.token_text(id)),
        _ if tokenizer.is_eog(id) => marked(tokenizer.token_text(id)),
        _ => tokenizer.token_bytes(id).into_owned(),
    };
    // No text contains the marker byte.
    let is_text = !word.contains(&MARK);
    if word.len() <= MAX_TOKEN_BYTES && (is_name(&word) || is_text) {
        word
    } else {
        Vec::new()
    }
}

/// Whether these bytes are a name.
pub(super) fn is_name(word: &[u8]) -> bool {
    word.len() > 1 && word[0] == MARK
}

const MARK: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

fn marked(name: &[u8]) -> Vec<u8> {
    [&[MARK], name].concat()
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// Tokenizes bytes in the middle of a text; by the trie alone where the tokenizer would change
    /// them, as it does with half a character.
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let ids = str::from_utf8(bytes)
            .map(|text| self.tokenizer.encode_after(text, Special::Plain))
            .unwrap_or_default();
        let spelled = ids.iter().flat_map(|&id| self.trie.token(id));
        if spelled.eq(bytes) {
            ids
        } else {
            self.trie.greedy_tokenize(bytes)
        }
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.tokenizer.is_lossless()
    }
}
