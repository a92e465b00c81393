//! Unicode general categories, as far as pre-tokenizers use them, and removal of accents.
//!
//! Knows nothing of text or regular expressions. The one idea: a category is a letter whose low
//! four bits are distinct, so that a set of categories is a `u16` and membership is one shift.
//!
//! The tables are those of Unicode 15.1, the version that llama.cpp uses: a code point that a later
//! version assigns must keep splitting as it did.

mod bases;
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
    pub(crate) const MARK: Self = Self::of(b"MK");
    pub(crate) const NONSPACING_MARK: Self = Self::of(b"M");
    pub(crate) const NUMBER: Self = Self::of(b"N");
    pub(crate) const PUNCTUATION: Self = Self::of(b"P");
    pub(crate) const SYMBOL: Self = Self::of(b"S");
    pub(crate) const SPACE: Self = Self::of(b"W");
    /// Control, format and private-use characters, except white space.
    pub(crate) const CONTROL: Self = Self::of(b"F");
    pub(crate) const NOT_SPACE: Self = Self::of(b"ULTOMKNPSFx");

    const fn of(letters: &[u8]) -> Self {
        let mut bits = 0;
        let mut i = 0;
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
        self.0 >> low_bits_of(c) & 1 == 1
    }
}

/// The low four bits of the letters of [`table::BLOCKS`], two in a byte: half the size.
static BLOCKS: [[u8; 64]; table::BLOCKS.len()] = packed(&table::BLOCKS);

const fn packed<const N: usize>(blocks: &[[u8; 128]; N]) -> [[u8; 64]; N] {
    let mut out = [[0; 64]; N];
    let mut i = 0;
    while i < 64 * N {
        let [block, pair] = [i / 64, i % 64];
        let [low, high] = [blocks[block][2 * pair], blocks[block][2 * pair + 1]];
        out[block][pair] = low & 15 | high << 4;
        i += 1;
    }
    out
}

/// The low four bits of the category letter of `c`.
fn low_bits_of(c: char) -> u8 {
    let code = c as usize;
    let letter = match table::BLOCK_OF.get(code / 128) {
        Some(&block) => BLOCKS[usize::from(block)][code % 128 / 2] >> (4 * (code % 2)),
        None => match code {
            0xE0100..0xE01F0 => b'M',
            0xE0001 | 0xE0020..0xE0080 | 0xF0000..0xFFFFE | 0x100000..0x10FFFE => b'F',
            _ => b'x',
        },
    };
    letter & 15
}

/// [`bases::ONE`], three bytes for each code point.
static ONE: [[[u8; 3]; 2]; bases::ONE.len()] = in_bytes(&bases::ONE);

const fn in_bytes<const N: usize>(pairs: &[(u32, u32); N]) -> [[[u8; 3]; 2]; N] {
    let mut out = [[[0; 3]; 2]; N];
    let mut i = 0;
    while i < N {
        let [_, a, b, c] = pairs[i].0.to_be_bytes();
        let [_, x, y, z] = pairs[i].1.to_be_bytes();
        out[i] = [[a, b, c], [x, y, z]];
        i += 1;
    }
    out
}

/// Decomposes a character canonically (NFD) and drops nonspacing marks: an accented letter gives
/// its letter, a Hangul syllable its parts, a nonspacing mark nothing.
pub(crate) fn without_accents(c: char, mut emit: impl FnMut(char)) {
    let code = u32::from(c);
    let mut emit_code = |code| emit(char::from_u32(code).expect("decompositions are characters"));
    if code < 0xC0 {
        emit_code(code);
    } else if let Some(syllable) = code
        .checked_sub(0xAC00)
        .filter(|&syllable| syllable < 11172)
    {
        hangul_parts(syllable).for_each(emit_code);
    } else if let Ok(at) = ONE.binary_search_by_key(&code, |&[c, _]| code_of(c)) {
        emit_code(code_of(ONE[at][1]));
    } else if let Ok(at) = bases::MORE.binary_search_by_key(&code, |&(c, _)| c) {
        bases::MORE[at].1.iter().copied().for_each(emit_code);
    } else if !Categories::NONSPACING_MARK.contain(c) {
        emit_code(code);
    }
}

fn code_of([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

/// Source: the Unicode standard, section 3.12.
fn hangul_parts(syllable: u32) -> impl Iterator<Item = u32> {
    let lead = syllable / 588;
    let vowel = syllable % 588 / 28;
    let tail = syllable % 28;
    [0x1100 + lead, 0x1161 + vowel]
        .into_iter()
        .chain((tail > 0).then_some(0x11A7 + tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_category_letter_has_a_bit_of_its_own() {
        assert_eq!(Categories::of(b"ULTOMKNPSWFx").0.count_ones(), 12);
    }

    #[test]
    fn packed_tables_say_what_the_tables_say() {
        for (i, letter) in table::BLOCKS.as_flattened().iter().enumerate() {
            let pair = BLOCKS.as_flattened()[i / 2];
            assert_eq!(pair >> (4 * (i % 2)) & 15, letter & 15, "{i}");
        }
        for ([from, to], pair) in ONE.iter().zip(&bases::ONE) {
            assert_eq!((code_of(*from), code_of(*to)), *pair);
        }
    }

    #[test]
    fn letters_of_several_scripts_are_letters() {
        for c in [
            'a',
            'Z',
            'é',
            'ß',
            'Я',
            '中',
            'あ',
            '가',
            'ǅ',
            'ʰ',
            '\u{20000}',
        ] {
            assert!(Categories::LETTER.contain(c), "{c:?}");
        }
    }

    #[test]
    fn planes_past_the_table_are_known() {
        assert!(Categories::MARK.contain('\u{E0100}'));
        assert!(
            Categories::NOT_SPACE.contain('\u{10FFFF}')
                && !Categories::CONTROL.contain('\u{10FFFF}')
        );
        assert!(
            ['\u{E0001}', '\u{E007F}', '\u{F0000}', '\u{10FFFD}']
                .iter()
                .all(|&c| Categories::CONTROL.contain(c))
        );
        assert!(!Categories::LETTER.contain('\u{32400}'));
    }

    #[test]
    fn white_space_is_the_unicode_property() {
        for c in (0..=0x10FFFF).filter_map(char::from_u32) {
            assert_eq!(Categories::SPACE.contain(c), c.is_whitespace(), "{c:?}");
        }
    }

    #[test]
    fn accents_are_taken_away_and_letters_stay() {
        let bare = |text: &str| {
            let mut left = String::new();
            text.chars()
                .for_each(|c| without_accents(c, |c| left.push(c)));
            left
        };
        assert_eq!(bare("aéÅşế Ω ß"), "aeAse Ω ß");
        assert_eq!(bare("e\u{301}\u{344}"), "e");
        assert_eq!(bare("각가"), "\u{1100}\u{1161}\u{11A8}\u{1100}\u{1161}");
        // The vowel sign O decomposes into two spacing marks, which stay.
        assert_eq!(bare("क\u{9CB}का"), "क\u{9C7}\u{9BE}का");
    }

    #[test]
    fn the_tables_of_decompositions_are_sorted() {
        assert!(
            bases::ONE.is_sorted_by_key(|&(c, _)| c) && bases::MORE.is_sorted_by_key(|&(c, _)| c)
        );
        let codes = bases::MORE
            .iter()
            .flat_map(|&(_, left)| left)
            .chain(bases::ONE.iter().map(|(_, left)| left));
        assert!(codes.copied().all(|code| char::from_u32(code).is_some()));
    }
}
