//! BERT's normalizer and pre-tokenizer: clean the text, remove case and accents, split it into
//! words and punctuation marks.
//!
//! Knows no vocabulary. The one idea: one pass, character by character, whose only state is the
//! current word.
//!
//! Source: `tokenization.py` of BERT (`BasicTokenizer`), and the normalizer and pre-tokenizer of
//! that name in Hugging Face `tokenizers`, which this follows. llama.cpp differs: it keeps only the
//! first letter of a Hangul syllable, drops spacing marks together with accents, treats U+000B,
//! U+000C and U+0085 as spaces where BERT drops them, does not limit the length of a word, and
//! starts a new word at a U+2581 in the text. On 1.6 MB of text without these they agree.

use crate::unicode::{Categories, without_accents};

/// Longer words become the unknown token (`max_input_chars_per_word`).
const MAX_CHARS: usize = 100;

/// How letters are normalized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Normalizer {
    pub(crate) lowercase: bool,
    pub(crate) strip_accents: bool,
}

/// A word of a text.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Word<'a> {
    /// A word or a punctuation mark, normalized.
    Normalized(&'a str),
    /// A word of more than [`MAX_CHARS`] characters.
    TooLong,
}

impl Normalizer {
    /// Passes the words of a text to `emit`, in order.
    pub(crate) fn split(self, text: &str, emit: impl FnMut(Word<'_>)) {
        let mut words = Splitter {
            word: String::new(),
            n_chars: 0,
            emit,
        };
        for c in text.chars().filter(|&c| !is_dropped(c)) {
            if Categories::SPACE.contain(c) {
                words.end();
            } else if is_ideograph(c) {
                words.end();
                self.normalize(c, |c| words.push(c));
                words.end();
            } else {
                self.normalize(c, |c| words.push_or_cut(c));
            }
        }
        words.end();
    }

    fn normalize(self, c: char, mut emit: impl FnMut(char)) {
        let mut lowercased = |c: char| match self.lowercase {
            true => c.to_lowercase().for_each(&mut emit),
            false => emit(c),
        };
        match self.strip_accents {
            true => without_accents(c, lowercased),
            false => lowercased(c),
        }
    }
}

/// Collects the characters of the current word.
struct Splitter<F> {
    word: String,
    n_chars: usize,
    emit: F,
}

impl<F: FnMut(Word<'_>)> Splitter<F> {
    fn push_or_cut(&mut self, c: char) {
        if !is_punctuation(c) {
            return self.push(c);
        }
        self.end();
        self.push(c);
        self.end();
    }

    /// Appends a character; those beyond the limit are only counted.
    fn push(&mut self, c: char) {
        self.n_chars += 1;
        if self.n_chars <= MAX_CHARS {
            self.word.push(c);
        }
    }

    fn end(&mut self) {
        match self.n_chars {
            0 => return,
            1..=MAX_CHARS => (self.emit)(Word::Normalized(&self.word)),
            _ => (self.emit)(Word::TooLong),
        }
        self.word.clear();
        self.n_chars = 0;
    }
}

/// Whether BERT drops a character. Of the control characters it keeps tab, newline and carriage
/// return, as white space.
fn is_dropped(c: char) -> bool {
    matches!(
        c,
        '\u{B}' | '\u{C}' | '\u{85}' | char::REPLACEMENT_CHARACTER
    ) || Categories::CONTROL.contain(c)
}

/// Unicode punctuation and all ASCII symbols.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || Categories::PUNCTUATION.contain(c)
}

/// CJK ideographs; each is a word. The gap from U+2B820 to U+2B91F is a mistake in BERT's code that
/// vocabularies were made with.
fn is_ideograph(c: char) -> bool {
    matches!(
        u32::from(c),
        0x3400..=0x4DBF
            | 0x4E00..=0x9FFF
            | 0xF900..=0xFAFF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0x2F800..=0x2FA1F
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCASED: Normalizer = Normalizer {
        lowercase: true,
        strip_accents: true,
    };
    const CASED: Normalizer = Normalizer {
        lowercase: false,
        strip_accents: false,
    };

    fn parts(normalizer: Normalizer, text: &str) -> Vec<String> {
        let mut parts = Vec::new();
        normalizer.split(text, |word| match word {
            Word::Normalized(word) => parts.push(word.to_owned()),
            Word::TooLong => parts.push("too long".to_owned()),
        });
        parts
    }

    #[test]
    fn punctuation_marks_and_ideographs_are_words() {
        assert_eq!(
            parts(UNCASED, "  Don't,\tstop… "),
            ["don", "'", "t", ",", "stop", "…"]
        );
        assert_eq!(
            parts(UNCASED, "a中文b ¥5 $5"),
            ["a", "中", "文", "b", "¥5", "$", "5"]
        );
        assert_eq!(parts(UNCASED, ""), [""; 0]);
    }

    #[test]
    fn case_and_accents_go_only_if_asked() {
        assert_eq!(
            parts(UNCASED, "ÉTÉ e\u{301} İ ΑΣ"),
            ["ete", "e", "i", "ας".replace('ς', "σ").as_str()]
        );
        assert_eq!(parts(CASED, "ÉTÉ e\u{301}"), ["ÉTÉ", "e\u{301}"]);
        let lowercase = Normalizer {
            lowercase: true,
            strip_accents: false,
        };
        assert_eq!(parts(lowercase, "ÉTÉ"), ["été"]);
    }

    #[test]
    fn controls_vanish_and_join_what_they_were_between() {
        assert_eq!(
            parts(
                UNCASED,
                "a\0b\u{200B}c\u{FFFD}d\u{B}e\u{85}f\u{E000}g\u{F0000}h"
            ),
            ["abcdefgh"]
        );
        assert_eq!(
            parts(UNCASED, "a\tb\nc\rd\u{A0}e\u{2028}f\u{3000}g"),
            ["a", "b", "c", "d", "e", "f", "g"]
        );
        assert_eq!(parts(UNCASED, "a\u{378}b"), ["a\u{378}b"]);
    }

    #[test]
    fn a_mark_that_decomposes_to_punctuation_is_punctuation() {
        assert_eq!(parts(UNCASED, "α\u{37E}β"), ["α", ";", "β"]);
    }

    #[test]
    fn a_word_of_more_than_a_hundred_characters_is_too_long() {
        assert_eq!(parts(UNCASED, &"é".repeat(100)), ["e".repeat(100)]);
        assert_eq!(
            parts(UNCASED, &format!("{} b", "é".repeat(101))),
            ["too long", "b"]
        );
    }
}
