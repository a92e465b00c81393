//! Byte pair encoding: text is split into words, and neighbouring symbols of a word merge in the
//! order of learned ranks.
//!
//! Knows nothing of special tokens. The one idea: symbols are token ids from the first byte on; no
//! string is built while merging.

use crate::Error;
use crate::bytes;
use crate::characters::Characters;
use crate::merge::{Merger, NO_TOKEN, Symbol};
use crate::merges::Merges;
use crate::pre::{Alphabet, PreTokenizer, Scheme, Whole};
use crate::vocab::Vocab;
use atta_formats::Metadata;
use std::borrow::Cow;

pub(crate) struct Bpe {
    pre: PreTokenizer,
    scheme: Scheme,
    pub(crate) merges: Merges,
    /// The token id of each byte, or `NO_TOKEN`.
    byte_ids: Box<[u32; 256]>,
}

impl Bpe {
    pub(crate) fn new(metadata: &Metadata, vocab: &Vocab, scheme: Scheme) -> Result<Self, Error> {
        let mut byte_ids = Box::new([NO_TOKEN; 256]);
        for (byte, id) in (0..=255).zip(byte_ids.iter_mut()) {
            *id = vocab
                .id(bytes::to_char(byte).encode_utf8(&mut [0; 4]).as_bytes())
                .unwrap_or(NO_TOKEN);
        }
        Ok(Self {
            pre: PreTokenizer::new(&scheme),
            scheme,
            merges: Merges::new(metadata, vocab)?,
            byte_ids,
        })
    }

    pub(crate) fn alphabet(&self) -> Alphabet {
        self.scheme.alphabet
    }

    /// Appends the tokens of a text without special tokens. Each byte of invalid UTF-8 becomes
    /// U+FFFD.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &[u8], out: &mut Vec<u32>) {
        let text = replace_invalid(text);
        let text = match self.scheme.alphabet {
            Alphabet::Bytes => text,
            Alphabet::Characters => text.replace(' ', "▁").into(),
        };
        let mut words = WordEncoder {
            bpe: self,
            vocab,
            merger: Merger::default(),
            spelling: Vec::new(),
            out,
        };
        self.pre
            .split(&text, &mut |word| words.encode(word.as_bytes()));
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.merges.heap_bytes() + size_of_val(&*self.byte_ids)
    }
}

/// Encodes words one by one.
struct WordEncoder<'a> {
    bpe: &'a Bpe,
    vocab: &'a Vocab,
    merger: Merger,
    /// The word in the byte-level alphabet of the vocabulary.
    spelling: Vec<u8>,
    out: &'a mut Vec<u32>,
}

impl WordEncoder<'_> {
    fn encode(&mut self, word: &[u8]) {
        match self.whole(word) {
            Some(id) => self.out.push(id),
            None => {
                word.chunks(Merger::MAX_BYTES)
                    .for_each(|part| match self.bpe.scheme.alphabet {
                        Alphabet::Bytes => self.encode_bytes(part),
                        Alphabet::Characters => self.encode_characters(part),
                    })
            }
        }
    }

    /// The token of the whole word, if the scheme looks words up before merging.
    fn whole(&mut self, word: &[u8]) -> Option<u32> {
        match (self.bpe.scheme.whole, self.bpe.scheme.alphabet) {
            (Whole::None, _) => None,
            (Whole::Newlines, _) if word.iter().any(|&byte| byte != b'\n') => None,
            (_, Alphabet::Characters) => self.vocab.id(word),
            (_, Alphabet::Bytes) => {
                self.spelling.clear();
                for &byte in word {
                    self.spelling.extend_from_slice(
                        bytes::to_char(byte).encode_utf8(&mut [0; 4]).as_bytes(),
                    );
                }
                self.vocab.id(&self.spelling)
            }
        }
    }

    /// A byte without a token is dropped, as llama.cpp does.
    fn encode_bytes(&mut self, word: &[u8]) {
        for (i, &byte) in word.iter().enumerate() {
            self.merger
                .push(self.bpe.byte_ids[usize::from(byte)], i..i + 1);
        }
        let join = |left: &Symbol, right: &Symbol| self.bpe.merges.join(left, right);
        self.merger.finish(join, |symbol| {
            self.out
                .extend((symbol.id != NO_TOKEN).then_some(symbol.id))
        });
    }

    /// A character without a token becomes byte tokens; a byte without a token is dropped, as
    /// llama.cpp does.
    fn encode_characters(&mut self, text: &[u8]) {
        let join = |left: &Symbol, right: &Symbol| self.bpe.merges.join(left, right);
        let characters = Characters {
            vocab: self.vocab,
            text,
            join_words: self.bpe.merges.join_words,
        };
        characters.merge(&mut self.merger, join, |symbol| match symbol.id {
            NO_TOKEN => self.out.extend(
                text[symbol.range()]
                    .iter()
                    .filter_map(|&byte| self.vocab.byte_id(byte)),
            ),
            id => self.out.push(id),
        });
    }
}

/// Replaces each byte of invalid UTF-8 by U+FFFD. So does llama.cpp, except that it accepts
/// surrogates and overlong forms.
fn replace_invalid(text: &[u8]) -> Cow<'_, str> {
    if let Ok(valid) = str::from_utf8(text) {
        return Cow::Borrowed(valid);
    }
    let mut replaced = String::with_capacity(text.len() + 2);
    for chunk in text.utf8_chunks() {
        replaced.push_str(chunk.valid());
        replaced.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_invalid_byte_becomes_one_replacement_character() {
        assert_eq!(
            replace_invalid(b"a\xE2\x96b\xFF\xED\xA0\x80"),
            "a\u{FFFD}\u{FFFD}b\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}"
        );
        assert!(matches!(
            replace_invalid("é".as_bytes()),
            Cow::Borrowed("é")
        ));
    }
}
