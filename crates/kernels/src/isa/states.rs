//! The states of the trellis search (`algo/trellis.rs`): sixteen costs, and the step from one
//! symbol to the next.
//!
//! It refuses to know weights and scales. The one idea: state 4j + t comes from state 4q + j for
//! some q, at the cost of element t of a quarter of the metrics, so a step is four broadcasts, four
//! sums and their minimum. Decisions are not kept: the way back adds the same numbers again.
//!
//! The functions at the end compile the search for an instruction set. They are reached by the name
//! of a table, as the files of the tables have no room for them.

use super::scalar::Scalar;
use crate::Kernels;
use crate::algo::trellis::{self, Found, Scratch, SubBlockScales};

/// Costs of sixteen states, or metrics of a symbol.
pub(crate) type Sixteen = [f32; 16];

/// The step of the search.
pub(crate) trait States: Copy {
    /// 16 f32.
    type C: Copy;

    fn costs(self, x: &Sixteen) -> Self::C;
    fn store_costs(self, costs: Self::C, out: &mut Sixteen);
    fn times(self, x: Self::C, factor: f32) -> Self::C;
    /// `(x − y)²`.
    fn squares(self, x: f32, y: Self::C) -> Self::C;
    /// The lesser of both; no number is NaN.
    fn least(self, x: Self::C, y: Self::C) -> Self::C;
    /// `out[4j + t] = min over q of costs[4q + j] + metrics[8(q & 1) + 4((j ^ (q / 2)) & 1) + t]`.
    fn step(self, costs: Self::C, metrics: &Sixteen) -> Self::C;
}

impl States for Scalar {
    type C = Sixteen;

    #[inline(always)]
    fn costs(self, x: &Sixteen) -> Sixteen {
        *x
    }

    #[inline(always)]
    fn store_costs(self, costs: Sixteen, out: &mut Sixteen) {
        *out = costs;
    }

    #[inline(always)]
    fn times(self, x: Sixteen, factor: f32) -> Sixteen {
        let mut out = x;
        for x in &mut out {
            *x *= factor;
        }
        out
    }

    #[inline(always)]
    fn squares(self, x: f32, y: Sixteen) -> Sixteen {
        let mut out = y;
        for y in &mut out {
            let e = x - *y;
            *y = e * e;
        }
        out
    }

    #[inline(always)]
    fn least(self, x: Sixteen, y: Sixteen) -> Sixteen {
        least(x, y)
    }

    #[inline(always)]
    fn step(self, costs: Sixteen, metrics: &Sixteen) -> Sixteen {
        let mut out = [0.0; 16];
        let quarters = metrics.as_chunks::<4>().0;
        for (j, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let mut best = sums(costs[j], &quarters[j & 1]);
            for q in 1..4 {
                let next = sums(
                    costs[4 * q + j],
                    &quarters[2 * (q & 1) + ((j ^ (q >> 1)) & 1)],
                );
                best = least(best, next);
            }
            *out = best;
        }
        out
    }
}

#[inline(always)]
fn sums(cost: f32, metrics: &[f32; 4]) -> [f32; 4] {
    let mut out = *metrics;
    for x in &mut out {
        *x += cost;
    }
    out
}

#[inline(always)]
fn least<const N: usize>(a: [f32; N], b: [f32; N]) -> [f32; N] {
    let mut out = a;
    for (out, b) in out.iter_mut().zip(b) {
        *out = if b < *out { b } else { *out };
    }
    out
}

/// A compiled search.
type SearchFn = unsafe fn(&SubBlockScales<'_>, &mut Scratch) -> Found;

/// A search as a function of an instruction set.
macro_rules! entry {
    ([$($feature:literal)?] $name:ident, $isa:expr) => {
        $(#[target_feature(enable = $feature)])?
        pub(super) unsafe fn $name(scales: &SubBlockScales<'_>, scratch: &mut Scratch) -> Found {
            trellis::search($isa, scales, scratch)
        }
    };
}

entry!([] plain, Scalar);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use crate::isa::avx2::{Avx2, proven};
    use crate::isa::memory::{load, store};
    use std::arch::x86_64::*;

    /// Elements `4·half + j` and `4·half + j + 1`, four times each.
    const fn spread(half: i32, j: i32) -> [i32; 8] {
        let a = 4 * half + j;
        let b = a + 1;
        [a, a, a, a, b, b, b, b]
    }

    impl States for Avx2 {
        type C = [__m256; 2];

        #[inline(always)]
        fn costs(self, x: &Sixteen) -> [__m256; 2] {
            load(x)
        }

        #[inline(always)]
        fn store_costs(self, costs: [__m256; 2], out: &mut Sixteen) {
            store(costs, out);
        }

        proven! {
            fn times(self, x: [__m256; 2], factor: f32) -> [__m256; 2] {
                let factor = _mm256_set1_ps(factor);
                [_mm256_mul_ps(x[0], factor), _mm256_mul_ps(x[1], factor)]
            }
            fn squares(self, x: f32, y: [__m256; 2]) -> [__m256; 2] {
                let x = _mm256_set1_ps(x);
                let e = [_mm256_sub_ps(x, y[0]), _mm256_sub_ps(x, y[1])];
                [_mm256_mul_ps(e[0], e[0]), _mm256_mul_ps(e[1], e[1])]
            }
            fn least(self, x: [__m256; 2], y: [__m256; 2]) -> [__m256; 2] {
                [_mm256_min_ps(x[0], y[0]), _mm256_min_ps(x[1], y[1])]
            }
        }

        #[inline(always)]
        fn step(self, costs: [__m256; 2], metrics: &Sixteen) -> [__m256; 2] {
            // SAFETY: the token proves AVX2; none of the intrinsics takes a pointer.
            unsafe {
                let [even, odd]: [__m256; 2] = load(metrics);
                let metrics = [
                    even,
                    odd,
                    _mm256_permute2f128_ps::<1>(even, even),
                    _mm256_permute2f128_ps::<1>(odd, odd),
                ];
                let mut out = costs;
                for (pair, out) in out.iter_mut().enumerate() {
                    let mut sums = [even; 4];
                    for q in 0..4 {
                        let index = load(
                            &const { [[spread(0, 0), spread(1, 0)], [spread(0, 2), spread(1, 2)]] }
                                [pair][q & 1],
                        );
                        let before = _mm256_permutevar8x32_ps(costs[q >> 1], index);
                        sums[q] = _mm256_add_ps(before, metrics[q]);
                    }
                    *out = _mm256_min_ps(
                        _mm256_min_ps(sums[0], sums[1]),
                        _mm256_min_ps(sums[2], sums[3]),
                    );
                }
                out
            }
        }
    }

    entry!(
        ["avx2,fma,f16c"]
        avx2,
        // SAFETY: the caller has seen the features.
        unsafe { Avx2::assume() }
    );
    #[cfg(feature = "avx512")]
    entry!(["ssse3,sse4.1"] sse41, Scalar);
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod wide {
    use super::*;
    use crate::isa::avx2::proven;
    use crate::isa::avx512::Avx512;
    use crate::isa::memory::{load, store};
    use std::arch::x86_64::*;

    /// Elements 4q to 4q + 3, four times each.
    const fn spread(q: i32) -> [i32; 16] {
        let mut index = [0; 16];
        let mut i = 0;
        while i < 16 {
            index[i] = 4 * q + i as i32 / 4;
            i += 1;
        }
        index
    }

    impl States for Avx512 {
        type C = __m512;

        #[inline(always)]
        fn costs(self, x: &Sixteen) -> __m512 {
            load(x)
        }

        #[inline(always)]
        fn store_costs(self, costs: __m512, out: &mut Sixteen) {
            store(costs, out);
        }

        proven! {
            fn times(self, x: __m512, factor: f32) -> __m512 {
                _mm512_mul_ps(x, _mm512_set1_ps(factor))
            }
            fn squares(self, x: f32, y: __m512) -> __m512 {
                let e = _mm512_sub_ps(_mm512_set1_ps(x), y);
                _mm512_mul_ps(e, e)
            }
            fn least(self, x: __m512, y: __m512) -> __m512 { _mm512_min_ps(x, y) }
        }

        #[inline(always)]
        fn step(self, costs: __m512, metrics: &Sixteen) -> __m512 {
            // SAFETY: the token proves AVX-512 F and DQ; none of the intrinsics takes a pointer.
            unsafe {
                let [even, odd]: [__m256; 2] = load(metrics);
                let [even, odd] = [_mm512_broadcast_f32x8(even), _mm512_broadcast_f32x8(odd)];
                let metrics = [
                    even,
                    odd,
                    _mm512_shuffle_f32x4::<0b1011_0001>(even, even),
                    _mm512_shuffle_f32x4::<0b1011_0001>(odd, odd),
                ];
                let mut sums = [costs; 4];
                for q in 0..4 {
                    let index = load(&const { [spread(0), spread(1), spread(2), spread(3)] }[q]);
                    sums[q] = _mm512_add_ps(_mm512_permutexvar_ps(index, costs), metrics[q]);
                }
                _mm512_min_ps(
                    _mm512_min_ps(sums[0], sums[1]),
                    _mm512_min_ps(sums[2], sums[3]),
                )
            }
        }
    }

    entry!(
        ["avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"]
        avx512,
        // SAFETY: the caller has seen the features.
        unsafe { Avx512::assume() }
    );
}

/// The search as compiled for the table with this name.
fn search_of(name: &str) -> SearchFn {
    match name {
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        "amx" | "avx512" | "avx512seq" => wide::avx512,
        #[cfg(target_arch = "x86_64")]
        "avx2" | "avxvnni" => x86::avx2,
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        "sse41" => x86::sse41,
        _ => plain,
    }
}

impl Kernels {
    /// The search of the best path for a sub-block, at some scales.
    pub(crate) fn search(self, scales: &SubBlockScales<'_>, scratch: &mut Scratch) -> Found {
        // SAFETY: `Kernels` only holds tables whose features this CPU has, and the function needs
        // no others than its table.
        unsafe { search_of(self.isa())(scales, scratch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The equation of [`States::step`], element by element.
    fn by_equation(costs: &Sixteen, metrics: &Sixteen) -> Sixteen {
        std::array::from_fn(|s| {
            let (j, t) = (s / 4, s % 4);
            let sum =
                |q: usize| costs[4 * q + j] + metrics[8 * (q & 1) + 4 * ((j ^ (q / 2)) & 1) + t];
            (0..4).map(sum).fold(f32::INFINITY, f32::min)
        })
    }

    fn assert_steps(isa: impl States) {
        let mut random = crate::testing::Random(7);
        for _ in 0..100 {
            let [costs, metrics]: [Sixteen; 2] =
                std::array::from_fn(|_| std::array::from_fn(|_| random.float().abs()));
            let mut out = [0.0; 16];
            isa.store_costs(isa.step(isa.costs(&costs), &metrics), &mut out);
            assert_eq!(out, by_equation(&costs, &metrics));
        }
    }

    #[test]
    fn a_step_is_its_equation_on_every_instruction_set() {
        assert_steps(Scalar);
        #[cfg(target_arch = "x86_64")]
        if Kernels::named("avx2").is_ok() {
            // SAFETY: the table was handed out, so the CPU has the features.
            assert_steps(unsafe { crate::isa::avx2::Avx2::assume() });
        }
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if Kernels::named("avx512").is_ok() {
            // SAFETY: as above.
            assert_steps(unsafe { crate::isa::avx512::Avx512::assume() });
        }
    }
}
