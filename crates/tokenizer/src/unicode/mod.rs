//! General categories of characters, as far as pre-tokenizers ask for them.
//!
//! Knows nothing of text or regular expressions. The one idea: a category is a letter whose low four bits are distinct,
//! so that a set of categories is a `u16` and membership is one shift.
//!
//! The tables are those of Unicode 15.1, the version that llama.cpp uses: an unassigned code point that a later version
//! calls a letter must keep splitting as it did.

mod table;

/// A set of categories, one bit per category letter of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Categories(u16);

impl Categories {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const UPPER: Self = Self::of(b"U");
    pub(crate) const LOWER: Self = Self::of(b"L");
    pub(crate) const TITLE: Self = Self::of(b"T");
    /// `Lm` and `Lo`; no pre-tokenizer names one without the other.
    pub(crate) const OTHER_LETTER: Self = Self::of(b"O");
    pub(crate) const LETTER: Self = Self::of(b"ULTO");
    pub(crate) const MARK: Self = Self::of(b"M");
    pub(crate) const NUMBER: Self = Self::of(b"N");
    pub(crate) const PUNCTUATION: Self = Self::of(b"P");
    pub(crate) const SYMBOL: Self = Self::of(b"S");
    pub(crate) const SPACE: Self = Self::of(b"W");
    pub(crate) const NOT_SPACE: Self = Self::of(b"ULTOMNPSx");

    const fn of(letters: &[u8]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < letters.len() {
            bits |= 1 << (letters[i] & 15);
            i += 1;
        }
        Self(bits)
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the category of `c` is in the set.
    pub(crate) fn contain(self, c: char) -> bool {
        self.0 >> (letter_of(c) & 15) & 1 == 1
    }
}

fn letter_of(c: char) -> u8 {
    let code = c as usize;
    match table::BLOCK_OF.get(code / 128) {
        Some(&block) => table::BLOCKS[usize::from(block)][code % 128],
        None if (0xE0100..0xE01F0).contains(&code) => b'M',
        None => b'x',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_category_letter_has_a_bit_of_its_own() {
        assert_eq!(Categories::of(b"ULTOMNPSWx").0.count_ones(), 10);
    }

    #[test]
    fn letters_of_several_scripts_are_letters() {
        for c in ['a', 'Z', 'é', 'ß', 'Я', '中', 'あ', '가', 'ǅ', 'ʰ', '\u{20000}'] {
            assert!(Categories::LETTER.contain(c), "{c:?}");
        }
    }

    #[test]
    fn planes_past_the_table_are_known() {
        assert!(Categories::MARK.contain('\u{E0100}'));
        assert!(Categories::NOT_SPACE.contain('\u{10FFFF}'));
        assert!(!Categories::LETTER.contain('\u{32400}'));
    }

    #[test]
    fn white_space_is_the_unicode_property() {
        for c in (0..=0x10FFFF).filter_map(char::from_u32) {
            assert_eq!(Categories::SPACE.contain(c), c.is_whitespace(), "{c:?}");
        }
    }
}
