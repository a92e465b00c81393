//! The trellis search as a value: the levels of a type, an instruction set, and room to work in.
//!
//! It refuses to know blocks, bytes and the order of weights in them. The one idea: sub-blocks are
//! closed paths, so a quantizer searches one after the other, each at a few scales at once.

use crate::Kernels;
use crate::algo::trellis::{Found, Levels, SCALES_MAX, SYMBOLS, Scratch, SubBlockScales};
use std::ops::Range;

/// A search with the levels of one type; for one thread.
pub struct TrellisSearch {
    kernels: Kernels,
    levels: Levels,
    scratch: Box<Scratch>,
}

/// The best path of a sub-block at the best of some scales.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrellisPath {
    /// The code of the scale.
    pub code: u8,
    /// `Σ importance·(weight − level)²`, in f32, in order of time.
    pub error: f32,
    /// Index of the level of each weight, in order of time; bits 0 and 1 are the symbol, bits 4
    /// and 5 the table.
    pub levels: [u8; SYMBOLS],
}

impl std::fmt::Debug for TrellisSearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrellisSearch")
            .field("isa", &self.kernels.isa())
            .finish_non_exhaustive()
    }
}

impl TrellisSearch {
    /// A search with one, two or four tables of 16 levels, by label.
    ///
    /// # Panics
    /// If there is another number of levels.
    pub fn new(kernels: Kernels, levels: &[i8]) -> Self {
        Self {
            kernels,
            levels: Levels::new(levels),
            scratch: Box::default(),
        }
    }

    /// Finds the levels of 32 weights, in order of time, at scales `step·(code + 1)`, by errors
    /// times `importance`. All instruction sets find the same.
    ///
    /// # Panics
    /// If there is no code, or more than nine, or a number is NaN.
    pub fn best(
        &mut self,
        x: &[f32; SYMBOLS],
        importance: &[f32; SYMBOLS],
        step: f32,
        codes: Range<u8>,
    ) -> TrellisPath {
        let n = codes.len();
        assert!((1..=SCALES_MAX).contains(&n), "{n} scales");
        let scales = SubBlockScales {
            x,
            importance,
            levels: &self.levels,
            step,
            first: codes.start,
            n,
        };
        let Found {
            code,
            error,
            levels,
        } = self.kernels.search(&scales, &mut self.scratch);
        TrellisPath {
            code,
            error,
            levels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    const LEVELS: [i8; 16] = [
        -62, -41, -31, -27, -15, -12, -6, -4, 5, 6, 13, 15, 27, 32, 41, 63,
    ];

    fn label(window: u32) -> u32 {
        let bit = |i: u32| window >> i & 1;
        bit(0) | bit(1) << 1 | (bit(0) ^ bit(1) ^ bit(4)) << 2 | (bit(1) ^ bit(2) ^ bit(5)) << 3
    }

    /// The levels of the path with these symbols, in order of time.
    fn levels_of(symbols: &[u8; SYMBOLS]) -> [u8; SYMBOLS] {
        std::array::from_fn(|t| {
            let symbol = |back: usize| u32::from(symbols[(t + SYMBOLS - back) % SYMBOLS]);
            label(symbol(0) | symbol(1) << 2 | symbol(2) << 4) as u8
        })
    }

    fn weights(seed: u64) -> [f32; SYMBOLS] {
        let mut random = Random(seed);
        std::array::from_fn(|_| random.float() + random.float() + random.float())
    }

    fn searches(levels: &[i8]) -> Vec<TrellisSearch> {
        let kernels = crate::table::names().into_iter().map(Kernels::named);
        kernels
            .map(|kernels| TrellisSearch::new(kernels.unwrap(), levels))
            .collect()
    }

    #[test]
    fn levels_along_a_path_are_found_again() {
        let mut random = Random(3);
        for _ in 0..50 {
            let symbols = std::array::from_fn(|_| (random.next() & 3) as u8);
            let levels = levels_of(&symbols);
            let x = levels.map(|level| 0.5 * 3.0 * f32::from(LEVELS[usize::from(level)]));
            for search in &mut searches(&LEVELS) {
                let path = search.best(&x, &[1.0; SYMBOLS], 0.5, 0..8);
                assert_eq!((path.code, path.error, path.levels), (2, 0.0, levels));
            }
        }
    }

    #[test]
    fn a_path_is_closed_and_its_error_is_that_of_its_levels() {
        for seed in 1..200 {
            let x = weights(seed);
            let importance = weights(seed + 1000).map(|x| x * x + 0.01);
            let mut search = TrellisSearch::new(Kernels::detect(), &LEVELS);
            let path = search.best(&x, &importance, 0.002, 3..12);
            assert_eq!(levels_of(&path.levels.map(|level| level & 3)), path.levels);
            let scale = 0.002 * f32::from(path.code + 1);
            let error = (0..SYMBOLS).fold(0.0, |sum, t| {
                let e = x[t] - scale * f32::from(LEVELS[usize::from(path.levels[t])]);
                sum + importance[t] * (e * e)
            });
            assert_eq!(error, path.error);
        }
    }

    #[test]
    fn all_instruction_sets_and_numbers_of_scales_find_the_same() {
        let wide: Vec<i8> = (0..64).map(|i| (2 * i - 63) as i8).collect();
        for (seed, n) in (1..100).zip((1..=9).cycle()) {
            let x = weights(seed);
            let importance = weights(seed + 1000).map(|x| x * x + 0.01);
            for levels in [&LEVELS[..], &wide[..32], &wide] {
                let paths = searches(levels)
                    .into_iter()
                    .map(|mut search| search.best(&x, &importance, 0.002, 3..3 + n));
                let paths: Vec<_> = paths.collect();
                assert!(paths.iter().all(|path| *path == paths[0]), "{paths:?}");
            }
        }
    }

    #[test]
    fn more_scales_are_never_worse_and_the_lower_one_of_equals_wins() {
        let mut search = TrellisSearch::new(Kernels::detect(), &LEVELS);
        for seed in 1..50 {
            let (x, ones) = (weights(seed), [1.0; SYMBOLS]);
            let one_by_one = (4..13).map(|code| search.best(&x, &ones, 0.002, code..code + 1));
            let best = one_by_one
                .min_by(|a, b| a.error.total_cmp(&b.error))
                .unwrap();
            assert_eq!(search.best(&x, &ones, 0.002, 4..13), best);
        }
    }
}
