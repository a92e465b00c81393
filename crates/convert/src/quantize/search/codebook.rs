//! Codebooks: several codes are stored as one entry, so rounded codes that are not on the grid are
//! replaced by a nearby entry.
//!
//! Code `l` stands for the odd number `2l + 1`. For each tuple of codes that is not on the grid,
//! the entries at the few smallest distances are precomputed as candidates.

use std::ops::Range;

use super::lanes::nearest;

/// A codebook of entries of `N` codes.
pub(crate) struct Codebook<const N: usize> {
    /// The numbers of each entry.
    entries: Vec<[f32; N]>,
    /// Codes are 0 to `levels` − 1.
    levels: i32,
    /// The entry or candidates of each tuple of codes; the codes are digits of the index, lowest
    /// first.
    near: Vec<Neighbours>,
    /// Lists of candidates, for [`Neighbours::Some`].
    candidates: Vec<u16>,
}

/// The entry of a tuple of codes, or the candidates for it.
#[derive(Clone)]
enum Neighbours {
    /// The codes are on the grid.
    Entry(u16),
    /// The codes are not on the grid; range in `candidates`, nearest first.
    Some(Range<usize>),
}

/// The result of a search.
#[derive(Clone, Copy)]
pub(crate) struct NearestEntry {
    /// The entry.
    pub(crate) entry: u16,
    /// Whether the rounded codes were on the grid.
    pub(crate) rounded: bool,
}

impl<const N: usize> Codebook<N> {
    /// Builds a codebook. `values` are the values of the codes in `grid`, ascending. Candidates are
    /// the entries at the `distances` smallest distances.
    pub(crate) fn new(grid: &[[i8; N]], values: &[i8], distances: usize) -> Self {
        let code = |value| values.iter().position(|&v| v == value).unwrap_or(0);
        let codes: Vec<[usize; N]> = grid.iter().map(|entry| entry.map(code)).collect();
        let levels = values.len();
        let entries = codes
            .iter()
            .map(|codes| codes.map(|code| 2.0 * code as f32 + 1.0))
            .collect();
        let n_places = levels.pow(N as u32);
        let near = vec![Neighbours::Some(0..0); n_places];
        let candidates = Vec::new();
        let mut book = Self {
            entries,
            levels: levels as i32,
            near,
            candidates,
        };
        for (entry, codes) in codes.iter().enumerate() {
            let place = codes
                .iter()
                .rev()
                .fold(0, |place, code| place * levels + code);
            book.near[place] = Neighbours::Entry(entry as u16);
        }
        for place in 0..n_places {
            if let Neighbours::Some(_) = book.near[place] {
                let at = std::array::from_fn(|i| place / levels.pow(i as u32) % levels);
                book.near[place] = Neighbours::Some(book.push_nearest(&codes, at, distances));
            }
        }
        book
    }

    /// Appends the candidates for codes that are not on the grid.
    fn push_nearest(
        &mut self,
        codes: &[[usize; N]],
        at: [usize; N],
        distances: usize,
    ) -> Range<usize> {
        let squares: Vec<usize> = codes
            .iter()
            .map(|codes| square_distance(codes, &at))
            .collect();
        let first = self.candidates.len();
        let mut below = 0;
        for _ in 0..distances {
            let Some(&least) = squares.iter().filter(|&&square| square > below).min() else {
                break;
            };
            let same = squares
                .iter()
                .enumerate()
                .filter(|&(_, &square)| square == least);
            self.candidates.extend(same.map(|(entry, _)| entry as u16));
            below = least;
        }
        first..self.candidates.len()
    }

    /// The highest code.
    pub(crate) fn highest(&self) -> f32 {
        (self.levels - 1) as f32
    }

    /// The numbers of an entry.
    pub(crate) fn numbers(&self, entry: u16) -> &[f32; N] {
        &self.entries[usize::from(entry)]
    }

    /// The entry of the rounded codes of `x` if they are on the grid, else the candidate with the
    /// least `Σ w·(scale·number − x)²`.
    pub(crate) fn choose(
        &self,
        x: &[f32; N],
        weights: &[f32; N],
        scale: f32,
        per_weight: f32,
    ) -> NearestEntry {
        let place = x.iter().rev().fold(0, |place, &x| {
            let code = nearest(0.5 * (per_weight * x - 1.0)).clamp(0, self.levels - 1);
            place * self.levels as usize + code as usize
        });
        let candidates = match &self.near[place] {
            &Neighbours::Entry(entry) => {
                return NearestEntry {
                    entry,
                    rounded: true,
                };
            }
            Neighbours::Some(range) => &self.candidates[range.clone()],
        };
        let mut entry = candidates[0];
        let mut least = f32::MAX;
        for &candidate in candidates {
            let error = self.error(candidate, x, weights, scale);
            if error < least {
                (entry, least) = (candidate, error);
            }
        }
        NearestEntry {
            entry,
            rounded: false,
        }
    }

    fn error(&self, entry: u16, x: &[f32; N], weights: &[f32; N], scale: f32) -> f32 {
        let mut sum = 0.0;
        for ((&number, &x), &w) in self.numbers(entry).iter().zip(x).zip(weights) {
            let difference = scale * number - x;
            sum += w * difference * difference;
        }
        sum
    }
}

fn square_distance<const N: usize>(a: &[usize; N], b: &[usize; N]) -> usize {
    a.iter().zip(b).map(|(a, b)| a.abs_diff(*b).pow(2)).sum()
}
