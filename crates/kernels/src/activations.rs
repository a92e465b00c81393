//! The inputs of matmuls: rows of f32, quantized once and read by every matrix that has the same
//! input.
//!
//! Quantized rows lie as `[block of 256][row]`, so that a kernel which keeps a block of weights in
//! registers or L1 streams the activations linearly. Widths that are no multiple of 256 end in a
//! block padded with zeros.

use crate::tiles::{self, Blocks, RowBlocks, Rows};
use crate::{Kernels, Layouts, Pool};

/// 256 int8 codes, on cache lines of their own.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Codes(pub(crate) [i8; 256]);

/// Sums of the codes of groups. A sum is also `256·high + low`, for byte dot products with minima.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct GroupSums {
    pub(crate) whole: [i16; 16],
    pub(crate) high: [i8; 16],
    pub(crate) low: [i8; 16],
}

/// Sums of 256 codes in groups of 16, and in groups of 32: the first eight, then zeros.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Sums {
    pub(crate) of_16: GroupSums,
    pub(crate) of_32: GroupSums,
    /// Of groups of 16: the first two codes of each four, the last two. For AVX2, which adds
    /// products in pairs.
    pub(crate) halves: [[i16; 2]; 16],
}

impl Sums {
    /// The sums of 8 or 16 groups.
    #[inline(always)]
    pub(crate) fn of(&self, n_groups: usize) -> &GroupSums {
        if n_groups == 8 {
            &self.of_32
        } else {
            &self.of_16
        }
    }

    /// The halves of group `g` of 8 or 16.
    #[inline(always)]
    pub(crate) fn halves(&self, n_groups: usize, g: usize) -> [i16; 2] {
        if n_groups == 16 {
            return self.halves[g];
        }
        let [a, b] = [self.halves[2 * g], self.halves[2 * g + 1]];
        [a[0] + b[0], a[1] + b[1]]
    }
}

/// Rows as int8. `S` are the scales and `M` the sums of codes that belong to 256 codes.
pub(crate) struct Quants<S, M> {
    /// `[n_blocks, n_rows]`.
    pub(crate) codes: Vec<Codes>,
    /// `[n_blocks, n_rows]`.
    pub(crate) scales: Vec<S>,
    /// `[n_blocks, n_rows]`.
    pub(crate) sums: Vec<M>,
    n_rows: usize,
}

/// The parts of a [`Quants`] that belong to one row.
pub(crate) type QuantRow<'p, S, M> = (RowBlocks<'p, Codes>, (RowBlocks<'p, S>, RowBlocks<'p, M>));
type QuantRows<'a, S, M> = (Blocks<'a, Codes>, (Blocks<'a, S>, Blocks<'a, M>));

impl<S: Copy + Send, M: Copy + Send> Quants<S, M> {
    const BLOCK_BYTES: u64 = (size_of::<Codes>() + size_of::<S>() + size_of::<M>()) as u64;

    fn new(n: usize, scale: S, sum: M) -> Self {
        Self {
            codes: vec![Codes([0; 256]); n],
            scales: vec![scale; n],
            sums: vec![sum; n],
            n_rows: 0,
        }
    }

    /// Index of block `b` of row `t`.
    #[inline(always)]
    pub(crate) fn at(&self, b: usize, t: usize) -> usize {
        b * self.n_rows + t
    }

    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.codes) + size_of_val(&*self.scales) + size_of_val(&*self.sums)
    }

    fn rows(&mut self, n_blocks: usize, n_rows: usize) -> QuantRows<'_, S, M> {
        self.n_rows = n_rows;
        (
            Blocks::new(&mut self.codes, n_blocks, n_rows),
            (
                Blocks::new(&mut self.scales, n_blocks, n_rows),
                Blocks::new(&mut self.sums, n_blocks, n_rows),
            ),
        )
    }
}

/// Bytes that rows begin at a multiple of: a cache line for machines whose vectors are as long as
/// one, where a load that lies in two lines takes twice the time; for others nothing, so that a
/// program for boards stays small.
const ALIGNED: usize = if cfg!(feature = "avx512") { 64 } else { 4 };
/// Floats in front of that, at most.
const SLACK: usize = ALIGNED / 4 - 1;

/// Inputs of matmuls, `[n_rows, d]`, in the layouts that the kernels read.
pub struct Activations {
    n_rows: usize,
    d: usize,
    layouts: Layouts,
    /// `[n_rows, d]` from `start` on.
    values: Vec<f32>,
    start: usize,
    q8_256: Quants<f32, Sums>,
    q8_32: Quants<[f32; 8], [i16; 8]>,
}

impl std::fmt::Debug for Activations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Activations")
            .field("n_rows", &self.n_rows)
            .field("d", &self.d)
            .field("layouts", &self.layouts)
            .finish_non_exhaustive()
    }
}

impl Activations {
    /// Buffers for up to `n_rows_max` rows of up to `d_max` values. Memory that is never filled is
    /// never touched.
    pub fn new(n_rows_max: usize, d_max: usize) -> Self {
        let n_blocks = n_rows_max * d_max.div_ceil(256);
        let values = vec![0.0; n_rows_max * d_max + SLACK];
        Self {
            n_rows: 0,
            d: 0,
            layouts: Layouts::EMPTY,
            start: Some(values.as_ptr().align_offset(ALIGNED))
                .filter(|at| (0..=SLACK).contains(at))
                .unwrap_or(0),
            values,
            q8_256: Quants::new(n_blocks, 0.0, Sums::default()),
            q8_32: Quants::new(n_blocks, [0.0; 8], [0; 8]),
        }
    }

    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.values) + self.q8_256.heap_bytes() + self.q8_32.heap_bytes()
    }

    /// Bytes of the buffers that [`new`](Self::new) would make.
    pub fn bytes(n_rows_max: usize, d_max: usize) -> u64 {
        let n_blocks = (n_rows_max as u64).saturating_mul(d_max.div_ceil(256) as u64);
        let of_block = Quants::<f32, Sums>::BLOCK_BYTES + Quants::<[f32; 8], [i16; 8]>::BLOCK_BYTES;
        let values = (4 * n_rows_max as u64).saturating_mul(d_max as u64);
        values
            .saturating_add(4 * SLACK as u64)
            .saturating_add(n_blocks.saturating_mul(of_block))
    }

    #[inline(always)]
    fn start(&self) -> usize {
        if cfg!(feature = "avx512") {
            self.start
        } else {
            0
        }
    }

    /// The most rows of width `d` that fit the buffers.
    pub fn n_rows_max(&self, d: usize) -> usize {
        let n_blocks = self.q8_256.codes.len();
        (n_blocks / d.div_ceil(256).max(1)).min((self.values.len() - SLACK) / d.max(1))
    }

    /// Rows filled last.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Width of the rows filled last.
    pub fn d(&self) -> usize {
        self.d
    }

    /// The layouts that can be read now.
    pub fn layouts(&self) -> Layouts {
        self.layouts
    }

    /// Fills `shape = (n_rows, d)`: `row(t, out)` writes row t, `[d]`, as f32; then it is put into
    /// every layout of `layouts`. One region of the pool, or none for a single row: the caller
    /// does that itself.
    ///
    /// # Panics
    /// If the shape is empty or larger than the buffers.
    pub fn fill(
        &mut self,
        k: Kernels,
        pool: &Pool,
        shape: (usize, usize),
        layouts: Layouts,
        row: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let (n_rows, d) = shape;
        assert!(n_rows > 0 && d > 0, "activations of shape [{n_rows}, {d}]");
        assert!(
            n_rows * d <= self.values.len() - SLACK,
            "activations [{n_rows}, {d}] are larger than their buffers"
        );
        (self.n_rows, self.d, self.layouts) = (n_rows, d, layouts);
        let start = self.start();
        let n_blocks = |layout| {
            if layouts.contains(layout) {
                d.div_ceil(256)
            } else {
                0
            }
        };
        let mut parts = (
            Rows::new(&mut self.values[start..start + n_rows * d], d),
            (
                self.q8_256.rows(n_blocks(Layouts::Q8_256), n_rows),
                self.q8_32.rows(n_blocks(Layouts::Q8_32), n_rows),
            ),
        );
        tiles::deal(pool, &mut parts, |t, (x, (q8_256, q8_32))| {
            row(t, x);
            if layouts.contains(Layouts::Q8_256) {
                k.quantize_256(x, q8_256);
            }
            if layouts.contains(Layouts::Q8_32) {
                k.quantize_32(x, q8_32);
            }
        });
    }

    /// All rows, `[n_rows, d]`; exact whatever the layouts.
    pub fn rows(&self) -> &[f32] {
        &self.values[self.start()..self.start() + self.n_rows * self.d]
    }

    /// Row `t`, `[d]`; exact whatever the layouts.
    #[inline(always)]
    pub(crate) fn f32_row(&self, t: usize) -> &[f32] {
        &self.values[self.start() + t * self.d..self.start() + (t + 1) * self.d]
    }

    #[inline(always)]
    pub(crate) fn q8_256(&self) -> &Quants<f32, Sums> {
        &self.q8_256
    }

    #[inline(always)]
    pub(crate) fn q8_32(&self) -> &Quants<[f32; 8], [i16; 8]> {
        &self.q8_32
    }
}

/// Calls `f(b, block)` for each 256 values of `x`; the last block is padded with zeros.
#[inline(always)]
pub(crate) fn for_each_block(x: &[f32], mut f: impl FnMut(usize, &[f32; 256])) {
    let (blocks, rest) = x.as_chunks::<256>();
    blocks.iter().enumerate().for_each(|(b, block)| f(b, block));
    if !rest.is_empty() {
        let mut padded = [0.0; 256];
        padded[..rest.len()].copy_from_slice(rest);
        f(blocks.len(), &padded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, pool};

    /// The definition: amax/127, nearest even.
    fn naive(x: &[f32]) -> (Vec<i8>, f32) {
        let amax = x.iter().fold(0f32, |amax, x| amax.max(x.abs()));
        if amax < 1e-35 {
            return (vec![0; x.len()], 0.0);
        }
        let scale = amax / 127.0;
        (
            x.iter()
                .map(|x| (x * (1.0 / scale)).round_ties_even() as i8)
                .collect(),
            scale,
        )
    }

    fn check(n_rows: usize, d: usize, x: &[f32]) {
        let mut a = Activations::new(n_rows, d);
        let both = Layouts::Q8_32 | Layouts::Q8_256;
        a.fill(Kernels::detect(), &pool(3), (n_rows, d), both, |t, row| {
            row.copy_from_slice(&x[t * d..(t + 1) * d])
        });
        assert_eq!(a.rows().as_ptr().addr() % ALIGNED, 0);
        for (t, row) in x.chunks(d).enumerate() {
            assert_eq!(a.f32_row(t), row);
            for (b, block) in row.chunks(256).enumerate() {
                check_block(&a, (b, t), block);
            }
        }
    }

    fn check_block(a: &Activations, (b, t): (usize, usize), x: &[f32]) {
        let mut x = x.to_vec();
        x.resize(256, 0.0);
        let (q, at) = (a.q8_256(), a.q8_256().at(b, t));
        let (codes, scale) = naive(&x);
        assert_eq!(
            (&q.codes[at].0[..], q.scales[at].to_bits()),
            (&codes[..], scale.to_bits())
        );
        for (groups, len) in [(&q.sums[at].of_16, 16), (&q.sums[at].of_32, 32)] {
            for (g, codes) in codes.chunks(len).enumerate() {
                assert_eq!(
                    groups.whole[g],
                    codes.iter().map(|&code| i16::from(code)).sum()
                );
                assert_eq!(
                    groups.whole[g],
                    256 * i16::from(groups.high[g]) + i16::from(groups.low[g])
                );
            }
        }
        assert_eq!(q.sums[at].of_32.whole[8..], [0; 8]);
        for (g, codes) in codes.chunks(16).enumerate() {
            let half = |at: usize| {
                codes
                    .chunks(4)
                    .map(|word| i16::from(word[at]) + i16::from(word[at + 1]))
                    .sum()
            };
            assert_eq!(q.sums[at].halves[g], [half(0), half(2)]);
        }
        let (q, at) = (a.q8_32(), a.q8_32().at(b, t));
        for (j, x) in x.chunks(32).enumerate() {
            let (codes, scale) = naive(x);
            assert_eq!(q.codes[at].0[32 * j..32 * j + 32], codes);
            assert_eq!(q.scales[at][j].to_bits(), scale.to_bits());
            assert_eq!(
                q.sums[at][j],
                codes.iter().map(|&code| i16::from(code)).sum()
            );
        }
    }

    #[test]
    fn codes_scales_and_sums_follow_the_definition() {
        let mut random = Random(1);
        for d in [32, 256, 288, 1000, 1024] {
            for n_rows in [1, 2, 5] {
                check(n_rows, d, &random.floats(n_rows * d));
            }
        }
    }

    #[test]
    fn extreme_and_zero_blocks_are_exact_too() {
        let mut random = Random(2);
        for factor in [0.0, 1e-45, 1e-38, 1e-36, 1e-30, 1e30, 3e38] {
            let x: Vec<f32> = random.floats(512).iter().map(|x| x * factor).collect();
            check(1, 512, &x);
        }
    }

    #[test]
    fn halves_round_to_even() {
        let mut x = [0f32; 256];
        x[..6].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]);
        let mut a = Activations::new(1, 256);
        a.fill(
            Kernels::detect(),
            &pool(1),
            (1, 256),
            Layouts::Q8_256,
            |_, row| row.copy_from_slice(&x),
        );
        assert_eq!(a.q8_256().codes[0].0[..6], [127, 0, 2, 2, 0, -2]);
    }

    #[test]
    fn no_code_is_less_than_minus_127() {
        let mut x = [1f32; 256];
        (x[3], x[40], x[80]) = (f32::from_bits(0x7fc0_0080), f32::INFINITY, -f32::INFINITY);
        for k in Kernels::available()
            .into_iter()
            .map(|name| Kernels::named(name).unwrap())
        {
            let mut a = Activations::new(1, 256);
            let both = Layouts::Q8_32 | Layouts::Q8_256;
            a.fill(k, &pool(1), (1, 256), both, |_, row| {
                row.copy_from_slice(&x)
            });
            assert!(
                a.q8_256().codes[0]
                    .0
                    .iter()
                    .chain(&a.q8_32().codes[0].0)
                    .all(|&code| code >= -127),
                "{}",
                k.isa()
            );
        }
    }

    #[test]
    fn what_is_not_finite_makes_the_scale_not_finite() {
        for strange in [f32::NAN, -f32::NAN, f32::INFINITY, -f32::INFINITY] {
            for k in Kernels::available()
                .into_iter()
                .map(|name| Kernels::named(name).unwrap())
            {
                let mut x = [1f32; 512];
                x[300] = strange;
                let mut a = Activations::new(1, 512);
                let both = Layouts::Q8_32 | Layouts::Q8_256;
                a.fill(k, &pool(1), (1, 512), both, |_, row| {
                    row.copy_from_slice(&x)
                });
                assert_eq!(
                    [0, 1].map(|b| a.q8_256().scales[b].is_finite()),
                    [true, false],
                    "{}",
                    k.isa()
                );
                let of_32 = a.q8_32().scales[1].map(f32::is_finite);
                assert_eq!(of_32, std::array::from_fn(|j| j != 1), "{}", k.isa());
            }
        }
    }

    #[test]
    fn buffers_are_reused_for_smaller_shapes() {
        let mut a = Activations::new(4, 512);
        let bytes = a.heap_bytes();
        assert_eq!(bytes as u64, Activations::bytes(4, 512));
        for shape in [(4, 512), (1, 300), (3, 32), (4, 512)] {
            a.fill(
                Kernels::detect(),
                &pool(2),
                shape,
                Layouts::Q8_32,
                |t, row| row.fill(t as f32),
            );
            assert_eq!(
                (a.n_rows(), a.d(), a.heap_bytes()),
                (shape.0, shape.1, bytes)
            );
            assert!(!a.layouts().contains(Layouts::Q8_256));
        }
    }
}
