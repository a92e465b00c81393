//! Sets of Unicode scalar values, as sorted ranges that do not touch.

/// A set of characters; surrogates are never in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CharSet {
    /// Inclusive, ascending, at least one value apart.
    ranges: Vec<(u32, u32)>,
}

const SURROGATES: (u32, u32) = (0xD800, 0xDFFF);
const LAST: u32 = char::MAX as u32;

impl CharSet {
    /// The union of inclusive ranges in any order; a range that runs backwards is empty.
    pub(super) fn new(ranges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut pieces: Vec<(u32, u32)> = ranges
            .into_iter()
            .flat_map(|(low, high)| without_surrogates(low, high))
            .collect();
        pieces.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(pieces.len());
        for (low, high) in pieces {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self { ranges: merged }
    }

    pub(super) fn any() -> Self {
        Self::new([(0, LAST)])
    }

    pub(super) fn negated(&self) -> Self {
        let mut gaps = Vec::with_capacity(self.ranges.len() + 1);
        let mut next = 0;
        for &(low, high) in &self.ranges {
            if low > next {
                gaps.push((next, low - 1));
            }
            next = high + 1;
        }
        if next <= LAST {
            gaps.push((next, LAST));
        }
        Self::new(gaps)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    pub(super) fn intersects(&self, other: &Self) -> bool {
        let mut i = 0;
        let mut j = 0;
        while let (Some(a), Some(b)) = (self.ranges.get(i), other.ranges.get(j)) {
            if a.0 <= b.1 && b.0 <= a.1 {
                return true;
            }
            if a.1 < b.1 { i += 1 } else { j += 1 }
        }
        false
    }

    /// The bytes with which characters of the set begin in UTF-8.
    pub(super) fn lead_bytes(&self) -> ByteSet {
        let mut bytes = ByteSet::default();
        for &(low, high) in &self.ranges {
            for byte in lead_byte(low)..=lead_byte(high) {
                bytes.insert(byte);
            }
        }
        bytes
    }
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(ours, theirs)| *ours |= theirs);
    }

    pub(super) fn intersects(self, other: Self) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .any(|(ours, theirs)| ours & theirs != 0)
    }
}

fn without_surrogates(low: u32, high: u32) -> impl Iterator<Item = (u32, u32)> {
    let below = (low, high.min(SURROGATES.0 - 1));
    let above = (low.max(SURROGATES.1 + 1), high.min(LAST));
    [below, above].into_iter().filter(|(low, high)| low <= high)
}

fn lead_byte(scalar: u32) -> u8 {
    let mut bytes = [0; 4];
    let character = char::from_u32(scalar)
        .expect("sets hold no surrogates and nothing above the last character");
    character.encode_utf8(&mut bytes).as_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_or_touch_become_one() {
        let set = CharSet::new([(5, 9), (1, 2), (3, 4), (20, 10)]);
        assert_eq!(set.ranges(), [(1, 9)]);
    }

    #[test]
    fn a_negation_is_what_is_left_without_surrogates() {
        assert!(CharSet::any().negated().is_empty());
        let set = CharSet::new([(0, 0x40), (0x42, 0xFFFF)]);
        assert_eq!(set.negated().ranges(), [(0x41, 0x41), (0x10000, LAST)]);
        assert_eq!(set.negated().negated(), set);
    }

    #[test]
    fn characters_of_one_block_share_their_first_byte() {
        let hiragana = CharSet::new([(0x3041, 0x3096)]);
        let katakana = CharSet::new([(0x30A1, 0x30FA)]);
        assert!(!hiragana.intersects(&katakana));
        assert!(hiragana.lead_bytes().intersects(katakana.lead_bytes()));
        assert!(
            !hiragana
                .lead_bytes()
                .intersects(CharSet::new([(0, 0x7F)]).lead_bytes())
        );
    }
}
