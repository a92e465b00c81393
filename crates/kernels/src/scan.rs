//! Scans of linear attention as one region of the pool.

use std::ops::Range;

use crate::algo::scan::{Decay, ROWS, ScanPart, Strided};
use crate::tiles::{self, Columns, Rows};
use crate::{Kernels, Pool};

/// Widest key of a scan.
pub const D_KEY_MAX: usize = 256;

/// The state of linear attention, taken through a run of positions:
///
/// ```text
/// S = decay S + gain (v − decay S k) kᵀ;  y = S q        with the delta rule
/// S = decay S + gain v kᵀ;                y = S q        without it; + skip v  if there is one
/// ```
/// for each head. Delta rule: Yang et al. 2025, eq. 10; decays of channels: Kimi Team 2025, eq. 1;
/// decays of elements: Gu & Dao 2023, eq. 4.
pub struct Scan<'a> {
    /// Heads of values; each has a state, `[d_value, d_key]`.
    pub n_heads: usize,
    /// The head of queries and keys of each head.
    pub key_head: &'a (dyn Fn(usize) -> usize + Sync),
    /// Width of a query or key, at most [`D_KEY_MAX`].
    pub d_key: usize,
    /// Width of a value.
    pub d_value: usize,
    /// Whether what the state tells for a key is taken from its value.
    pub is_delta: bool,
    /// How much of a value is added to its result, `[n_heads]` or as [`Decay`] says; `None`:
    /// nothing.
    pub skip: Option<&'a [f32]>,
    /// The positions of the run in order, as rows of the inputs and of `out`.
    pub rows: &'a [u32],
    /// Queries, `[n_key_heads, d_key]` of a row.
    pub q: Strided<'a>,
    /// Keys, as queries.
    pub k: Strided<'a>,
    /// Values, `[n_heads, d_value]` of a row.
    pub v: Strided<'a>,
    /// What remains of the state. The delta rule needs one of heads or of channels.
    pub decay: Decay<'a>,
    /// How much is written, `[n_heads]` of a row or as [`Decay`] says.
    pub gain: Strided<'a>,
    /// The state before the run, `[n_heads, d_value, d_key]`; `None`: zeros.
    pub before: Option<&'a [f32]>,
    /// The state after it.
    pub after: &'a mut [f32],
    /// Results, `[n_rows, n_heads, d_value]`; only `rows` are written.
    pub out: &'a mut [f32],
}

impl std::fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").finish_non_exhaustive()
    }
}

impl Kernels {
    /// Takes a state through a run of positions.
    ///
    /// # Panics
    /// If the shapes do not fit each other.
    pub fn scan(self, pool: &Pool, scan: Scan<'_>) {
        let Scan {
            n_heads,
            d_key,
            d_value,
            rows,
            before,
            ..
        } = scan;
        assert!(
            (1..=D_KEY_MAX).contains(&d_key) && n_heads * d_value > 0,
            "{n_heads} heads of {d_value}, keys of {d_key}"
        );
        let d_out = n_heads * d_value;
        assert_eq!(scan.after.len(), d_out * d_key, "the state after a run");
        assert!(
            before.is_none_or(|s| s.len() == d_out * d_key),
            "the state before a run"
        );
        if let Decay::OfElements(rates) = scan.decay {
            assert!(!scan.is_delta, "a delta rule with decays of elements");
            assert_eq!(rates.len(), d_out * d_key, "rates of decay");
        }
        // A part has rows of one head only.
        let strip = (1..=ROWS)
            .rev()
            .find(|&n| d_value.is_multiple_of(n))
            .unwrap_or(1);
        let n_rows = scan.out.len() / d_out;
        let states = Rows::new(scan.after, strip * d_key);
        let columns = Columns::new(scan.out, n_rows, strip);
        let key_head = scan.key_head;
        tiles::deal(pool, &mut (states, columns), |i, (after, mut out)| {
            let first_row = i * strip;
            let head = first_row / d_value;
            let part = ScanPart {
                rows,
                q: scan.q,
                k: scan.k,
                v: scan.v,
                decay: scan
                    .decay
                    .of_rows(first_row * d_key..(first_row + strip) * d_key),
                gain: scan.gain,
                d_key,
                head,
                key_head: key_head(head),
                first_row,
                is_delta: scan.is_delta,
                skip: scan.skip.map(|skip| match scan.decay {
                    Decay::OfHeads(_) | Decay::OfChannels(_) => &skip[head..=head],
                    Decay::OfElements(_) => &skip[first_row..first_row + strip],
                }),
                before: before.map(|s| &s[first_row * d_key..][..strip * d_key]),
            };
            self.scan_part(&part, after, &mut out)
        });
    }
}

impl Decay<'_> {
    /// With the rates of some elements only.
    fn of_rows(self, elements: Range<usize>) -> Self {
        match self {
            Self::OfHeads(_) | Self::OfChannels(_) => self,
            Self::OfElements(rates) => Self::OfElements(&rates[elements]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::num::NonZeroUsize;

    /// A scan in the order of the equations, with sums in f64.
    struct Case {
        n_heads: usize,
        n_key_heads: usize,
        d_key: usize,
        d_value: usize,
        is_delta: bool,
        /// Whether decays are of channels.
        by_channel: bool,
        n: usize,
        inputs: Vec<f32>,
        before: Vec<f32>,
    }

    impl Case {
        fn new(
            seed: u64,
            [n_heads, n_key_heads, d_key, d_value]: [usize; 4],
            [is_delta, by_channel]: [bool; 2],
        ) -> Self {
            let n = 7;
            let n_decays = if by_channel { n_heads * d_key } else { n_heads };
            let n_gates = n_decays + n_heads;
            let stride = 2 * n_key_heads * d_key + n_heads * d_value + n_gates;
            let mut random = Random(seed);
            let mut inputs = random.floats(n * stride);
            for row in inputs.chunks_exact_mut(stride) {
                for x in row.iter_mut().rev().take(n_gates) {
                    *x = x.abs();
                }
                for k in row[..2 * n_key_heads * d_key].chunks_exact_mut(d_key) {
                    let norm = k.iter().map(|x| x * x).sum::<f32>().sqrt();
                    k.iter_mut().for_each(|x| *x /= norm);
                }
            }
            let before = random.floats(n_heads * d_value * d_key);
            Self {
                n_heads,
                n_key_heads,
                d_key,
                d_value,
                is_delta,
                by_channel,
                n,
                inputs,
                before,
            }
        }

        fn n_decays(&self) -> usize {
            match self.by_channel {
                true => self.n_heads * self.d_key,
                false => self.n_heads,
            }
        }

        fn at(&self) -> [usize; 6] {
            let d_k = self.n_key_heads * self.d_key;
            let d_v = self.n_heads * self.d_value;
            let v = 2 * d_k;
            [
                0,
                d_k,
                v,
                v + d_v,
                v + d_v + self.n_decays(),
                v + d_v + self.n_decays() + self.n_heads,
            ]
        }

        fn run(&self, kernels: Kernels, n_threads: usize, runs: &[&[u32]]) -> (Vec<f32>, Vec<f32>) {
            let pool = Pool::new(NonZeroUsize::new(n_threads).unwrap());
            let [q, k, v, decay, gain, stride] = self.at();
            let part = |at| Strided {
                data: &self.inputs,
                stride,
                at,
            };
            let mut state = self.before.clone();
            let mut out = vec![0.0; self.n * self.n_heads * self.d_value];
            for rows in runs {
                let before = state.clone();
                kernels.scan(
                    &pool,
                    Scan {
                        n_heads: self.n_heads,
                        key_head: &|h| h % self.n_key_heads,
                        d_key: self.d_key,
                        d_value: self.d_value,
                        is_delta: self.is_delta,
                        skip: self.skip(),
                        rows,
                        q: part(q),
                        k: part(k),
                        v: part(v),
                        decay: match self.by_channel {
                            true => Decay::OfChannels(part(decay)),
                            false => Decay::OfHeads(part(decay)),
                        },
                        gain: part(gain),
                        before: Some(&before),
                        after: &mut state,
                        out: &mut out,
                    },
                );
            }
            (out, state)
        }

        /// Of the cases without a delta rule.
        fn skip(&self) -> Option<&[f32]> {
            let skip = &self.before[..self.n_heads];
            (!self.is_delta).then_some(skip)
        }

        fn expected(&self, rows: &[u32]) -> Vec<f64> {
            let [q, k, v, decay, gain, stride] = self.at();
            let mut out = vec![0.0; self.n * self.n_heads * self.d_value];
            let mut state: Vec<f64> = self.before.iter().map(|&x| x.into()).collect();
            for &row in rows {
                let x = |i: usize| f64::from(self.inputs[row as usize * stride + i]);
                for h in 0..self.n_heads {
                    let g = h % self.n_key_heads * self.d_key;
                    for j in h * self.d_value..(h + 1) * self.d_value {
                        let s = &mut state[j * self.d_key..(j + 1) * self.d_key];
                        for (i, s) in s.iter_mut().enumerate() {
                            *s *= match self.by_channel {
                                true => x(decay + h * self.d_key + i),
                                false => x(decay + h),
                            };
                        }
                        let told: f64 = s.iter().enumerate().map(|(i, s)| s * x(k + g + i)).sum();
                        let told = if self.is_delta { told } else { 0.0 };
                        let update = x(gain + h) * (x(v + j) - told);
                        s.iter_mut()
                            .enumerate()
                            .for_each(|(i, s)| *s += update * x(k + g + i));
                        let y: f64 = s.iter().enumerate().map(|(i, s)| s * x(q + g + i)).sum();
                        let skip = self.skip().map_or(0.0, |skip| f64::from(skip[h]));
                        out[row as usize * self.n_heads * self.d_value + j] = y + skip * x(v + j);
                    }
                }
            }
            out
        }
    }

    #[test]
    fn scans_are_what_their_equations_say_on_all_instruction_sets() {
        let rows = [2, 0, 1, 5, 4, 3, 6];
        let kinds = [[true, false], [false, false], [true, true], [false, true]];
        for (seed, kind) in (1..9).zip(kinds.into_iter().cycle()) {
            for shape in [
                [4, 2, 128, 32],
                [3, 3, 20, 12],
                [2, 1, 16, 7],
                [2, 1, 256, 16],
            ] {
                let case = Case::new(seed, shape, kind);
                let want = case.expected(&rows);
                let scalar = case.run(Kernels::named("scalar").unwrap(), 1, &[&rows]);
                let error: f64 = want
                    .iter()
                    .zip(&scalar.0)
                    .map(|(w, &g)| (w - f64::from(g)).powi(2))
                    .sum();
                let power: f64 = want.iter().map(|w| w * w).sum();
                assert!(error < 1e-11 * power, "{shape:?}: {}", error / power);
                for name in Kernels::available() {
                    let kernels = Kernels::named(name).unwrap();
                    assert!(case.run(kernels, 2, &[&rows]) == scalar, "{name} {shape:?}");
                    let (head, tail) = rows.split_at(3);
                    assert!(
                        case.run(kernels, 1, &[head, tail]) == scalar,
                        "{name} in two runs"
                    );
                }
            }
        }
    }

    /// Channels with decays of elements, in the order of the equations, with sums in f64.
    fn by_elements(x: &Elements, rows: &[u32]) -> Vec<f64> {
        let Elements { d, n, .. } = *x;
        let at = |row: u32, i: usize| f64::from(x.inputs[row as usize * x.stride() + i]);
        let mut state = vec![0.0; d * n];
        let mut out = vec![0.0; rows.len() * d];
        for &row in rows {
            for j in 0..d {
                let gain = at(row, 2 * n + d + j);
                let v = at(row, 2 * n + j);
                let mut y = f64::from(x.skips[j]) * v;
                for i in 0..n {
                    let s = &mut state[j * n + i];
                    *s = (f64::from(x.rates[j * n + i]) * gain).exp() * *s
                        + gain * v * at(row, n + i);
                    y += *s * at(row, i);
                }
                out[row as usize * d + j] = y;
            }
        }
        out
    }

    /// `d` values with states of `n`, with q, k, v and gains of 7 rows.
    struct Elements {
        d: usize,
        n: usize,
        inputs: Vec<f32>,
        rates: Vec<f32>,
        skips: Vec<f32>,
    }

    impl Elements {
        fn new(seed: u64, d: usize, n: usize) -> Self {
            let mut random = Random(seed);
            let stride = 2 * (n + d);
            let mut inputs = random.floats(7 * stride);
            for row in inputs.chunks_exact_mut(stride) {
                row[2 * n + d..].iter_mut().for_each(|x| *x = x.abs());
            }
            let rates = random.floats(d * n).iter().map(|x| -x.abs()).collect();
            let skips = random.floats(d);
            Self {
                d,
                n,
                inputs,
                rates,
                skips,
            }
        }

        fn stride(&self) -> usize {
            2 * (self.n + self.d)
        }

        fn run(&self, kernels: Kernels, n_threads: usize, runs: &[&[u32]]) -> (Vec<f32>, Vec<f32>) {
            let pool = Pool::new(NonZeroUsize::new(n_threads).unwrap());
            let (d, n) = (self.d, self.n);
            let part = |at| Strided {
                data: &self.inputs,
                stride: self.stride(),
                at,
            };
            let mut state = vec![0.0; d * n];
            let mut out = vec![0.0; 7 * d];
            for rows in runs {
                let before = state.clone();
                let scan = Scan {
                    n_heads: 1,
                    key_head: &|_| 0,
                    d_key: n,
                    d_value: d,
                    is_delta: false,
                    skip: Some(&self.skips),
                    rows,
                    q: part(0),
                    k: part(n),
                    v: part(2 * n),
                    decay: Decay::OfElements(&self.rates),
                    gain: part(2 * n + d),
                    before: Some(&before),
                    after: &mut state,
                    out: &mut out,
                };
                kernels.scan(&pool, scan);
            }
            (out, state)
        }
    }

    #[test]
    fn decays_of_elements_are_what_their_equations_say_on_all_instruction_sets() {
        let rows = [2, 0, 1, 5, 4, 3, 6];
        for (seed, (d, n)) in (1..).zip([(32, 16), (20, 5), (7, 40), (1, 128), (48, 256)]) {
            let case = Elements::new(seed, d, n);
            let want = by_elements(&case, &rows);
            let scalar = case.run(Kernels::named("scalar").unwrap(), 1, &[&rows]);
            let pairs = || want.iter().zip(&scalar.0);
            let error: f64 = pairs().map(|(w, &g)| (w - f64::from(g)).powi(2)).sum();
            let power: f64 = want.iter().map(|w| w * w).sum();
            assert!(error < 1e-11 * power, "{d} {n}: {}", error / power);
            for name in Kernels::available() {
                let kernels = Kernels::named(name).unwrap();
                assert!(case.run(kernels, 2, &[&rows]) == scalar, "{name} {d} {n}");
                let (head, tail) = rows.split_at(3);
                assert!(
                    case.run(kernels, 1, &[head, tail]) == scalar,
                    "{name} in two runs"
                );
            }
        }
    }
}
