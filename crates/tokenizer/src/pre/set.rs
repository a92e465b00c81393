//! A character set: the element of a pre-tokenizer's pattern that matches one character.
//!
//! Knows nothing of repetition or alternatives. The one idea: ASCII is one bitmap with the negation
//! applied, so that the common case is a shift; other characters are tested against a category mask
//! and a sorted list of ranges.

use crate::unicode::Categories;

/// A set of characters.
#[derive(Debug)]
pub(super) struct Set {
    ascii: u128,
    categories: Categories,
    /// Sorted, inclusive.
    ranges: Vec<(char, char)>,
    negated: bool,
    /// Characters that do not belong to it in any case, sorted, inclusive; none of them is ASCII.
    except: Vec<(char, char)>,
}

impl Set {
    pub(super) fn new(
        categories: Categories,
        mut ranges: Vec<(char, char)>,
        negated: bool,
    ) -> Self {
        ranges.sort_unstable();
        let mut set = Self {
            ascii: 0,
            categories,
            ranges,
            negated,
            except: Vec::new(),
        };
        set.ascii = ('\0'..='\x7F')
            .filter(|&c| set.search(c))
            .fold(0, |bits, c| bits | 1 << c as u32);
        set
    }

    /// The set without these characters beyond ASCII.
    pub(super) fn without(mut self, mut except: Vec<(char, char)>) -> Self {
        assert!(except.iter().all(|(first, _)| !first.is_ascii()));
        except.sort_unstable();
        self.except = except;
        self
    }

    pub(super) fn contains(&self, c: char) -> bool {
        if c.is_ascii() {
            self.ascii >> c as u32 & 1 == 1
        } else {
            self.search(c) && !in_ranges(&self.except, c)
        }
    }

    fn search(&self, c: char) -> bool {
        (self.categories.contain(c) || self.in_ranges(c)) != self.negated
    }

    /// White space beyond ASCII is never in a range, only in `\s`: llama.cpp folds it to one
    /// character before it matches, so its `[ࠀ-一]` does not match U+3000.
    fn in_ranges(&self, c: char) -> bool {
        in_ranges(&self.ranges, c) && (c.is_ascii() || !Categories::SPACE.contain(c))
    }
}

/// Whether a character is in one of these ranges, which are sorted.
fn in_ranges(ranges: &[(char, char)], c: char) -> bool {
    let after = ranges.partition_point(|&(first, _)| first <= c);
    after > 0 && c <= ranges[after - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negated_set_is_the_complement_within_and_beyond_ascii() {
        let ranges = vec![('一', '龥'), ('a', 'c')];
        let plain = Set::new(Categories::NUMBER, ranges.clone(), false);
        let negated = Set::new(Categories::NUMBER, ranges, true);
        for c in ['a', 'd', '0', '中', 'é', '٣', ' ', '\u{10FFFF}'] {
            assert_ne!(plain.contains(c), negated.contains(c), "{c:?}");
        }
        assert!(
            plain.contains('b')
                && plain.contains('٣')
                && plain.contains('中')
                && !plain.contains('é')
        );
    }

    #[test]
    fn ranges_leave_out_white_space_beyond_ascii() {
        let set = Set::new(
            Categories::NONE,
            vec![('\u{800}', '一'), ('\t', ' ')],
            false,
        );
        assert!(!set.contains('\u{3000}') && set.contains('\u{3001}') && set.contains(' '));
    }
}
