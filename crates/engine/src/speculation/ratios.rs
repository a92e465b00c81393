//! Times of steps by rows, as ratios to the time of one row: what a run tells later ones.
//!
//! Knows no file and no seconds. The one idea: a ratio is a property of the machine and its
//! kernels, while seconds are also those of the hour, so a later run needs its own time of one row
//! only.

use super::costs::MAX_ROWS;

/// Runs after which a ratio that none of them has measured is forgotten.
const MAX_AGE: u8 = 16;

/// No step takes more times as long as one of a single row; more rows than it has are no reason to.
const MAX_RATIO: f32 = MAX_ROWS as f32;

const MAGIC: &[u8; 8] = b"attacost";

/// Bytes of a number of rows: the ratio in f32, and its age.
const ENTRY_BYTES: usize = 5;

/// Times of steps of 2 rows and more, in times of a step of one row, from earlier runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepRatios(Vec<Ratio>);

/// A ratio; 0 if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ratio {
    ratio: f32,
    /// Runs since it was measured.
    age: u8,
}

impl StepRatios {
    /// The ratio of `n` rows.
    pub(super) fn get(&self, n: usize) -> Option<f64> {
        let of_rows = self.0.get(n.checked_sub(2)?)?;
        (of_rows.ratio > 0.0).then_some(of_rows.ratio.into())
    }

    /// Those that are known after one more run, which has measured some. A new one counts half.
    #[cfg(feature = "cache")]
    pub(super) fn followed_by(&self, measured: impl Fn(usize) -> Option<f64>) -> Self {
        let after = |n: usize| {
            let old = self.0.get(n - 2).copied().unwrap_or_default();
            old.followed_by(measured(n))
        };
        Self((2..=MAX_ROWS).map(after).collect())
    }

    /// Writes bytes for [`from_bytes`](Self::from_bytes).
    pub fn to_bytes(&self) -> Vec<u8> {
        let of_rows = |n: usize| self.0.get(n - 2).copied().unwrap_or_default();
        let entries = (2..=MAX_ROWS).map(of_rows).flat_map(Ratio::to_bytes);
        MAGIC.iter().copied().chain(entries).collect()
    }

    /// Reads such bytes, which may be hostile; `None` if they are no others.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (entries, rest) = bytes.strip_prefix(MAGIC)?.as_chunks::<ENTRY_BYTES>();
        let is_whole = rest.is_empty() && entries.len() == MAX_ROWS - 1;
        let ratios = entries.iter().map(Ratio::from_bytes);
        ratios.collect::<Option<_>>().filter(|_| is_whole).map(Self)
    }
}

impl Ratio {
    #[cfg(feature = "cache")]
    fn followed_by(self, measured: Option<f64>) -> Self {
        let is_known = self.ratio > 0.0;
        match measured.map(|new| (new as f32).clamp(f32::MIN_POSITIVE, MAX_RATIO)) {
            Some(new) => Self {
                ratio: if is_known {
                    (self.ratio + new) / 2.0
                } else {
                    new
                },
                age: 0,
            },
            None if is_known && self.age < MAX_AGE => Self {
                age: self.age + 1,
                ..self
            },
            None => Self::default(),
        }
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let [a, b, c, d] = self.ratio.to_le_bytes();
        [a, b, c, d, self.age]
    }

    fn from_bytes(&[a, b, c, d, age]: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let ratio = f32::from_le_bytes([a, b, c, d]);
        let is_none = [a, b, c, d, age] == [0; ENTRY_BYTES];
        let is_some = ratio > 0.0 && ratio <= MAX_RATIO && age <= MAX_AGE;
        (is_none || is_some).then_some(Self { ratio, age })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "cache")]
    fn measured(ratio: f64) -> StepRatios {
        StepRatios::default().followed_by(|n| (n == 3).then_some(ratio))
    }

    #[test]
    #[cfg(feature = "cache")]
    fn a_new_ratio_counts_half_and_one_that_is_not_measured_again_is_forgotten() {
        let mut ratios = measured(2.0);
        assert_eq!((ratios.get(2), ratios.get(3)), (None, Some(2.0)));
        ratios = ratios.followed_by(|n| (n == 3).then_some(1.0));
        assert_eq!(ratios.get(3), Some(1.5));
        for _ in 0..MAX_AGE {
            assert_eq!(ratios.get(3), Some(1.5));
            ratios = ratios.followed_by(|_| None);
        }
        ratios = ratios.followed_by(|_| None);
        assert_eq!(ratios.get(3), None);
    }

    #[test]
    #[cfg(feature = "cache")]
    fn bytes_come_back_as_they_were_and_others_are_refused() {
        let ratios = measured(1.25).followed_by(|n| (n == 64).then_some(1e9));
        let right = ratios.to_bytes();
        assert_eq!(StepRatios::from_bytes(&right), Some(ratios));
        for n in 0..right.len() {
            assert_eq!(StepRatios::from_bytes(&right[..n]), None);
        }
        let more = [&right[..], &[0]].concat();
        assert_eq!(StepRatios::from_bytes(&more), None);
        for wrong in [f32::NAN, f32::INFINITY, -1.0, 65.0] {
            let mut bytes = right.clone();
            bytes[8..12].copy_from_slice(&wrong.to_le_bytes());
            assert_eq!(StepRatios::from_bytes(&bytes), None, "{wrong}");
        }
    }
}
