//! Quantizers: f32 rows to blocks of every type that files are written with.
//!
//! The blocks of ggml's types are those of ggml's `ggml_quantize_chunk`, bit for bit, so that
//! files have the quality that is known from llama.cpp. Source: `ggml-quants.c` of the ggml
//! project. T2, T3 and T4 are atta's own; QSF's types are searched from its plan's rule on.
//!
//! A call uses one thread and allocates nothing per row. Rows are independent, so a caller may
//! split a tensor at any row.
//!
//! One difference is deliberate: in IQ3_S, llama.cpp (as of ggml 0.25.3) shifts all entries and
//! signs behind a sub-block of zeros by one sub-block, so that the rest of the block decodes to
//! wrong weights.

mod codebook;
mod float;
mod k_minimum;
mod k_signed;
mod nonlinear;
pub(crate) mod pack;
mod plain;
mod qsf;
mod search;
mod ternary;
mod trellis;
mod weighted;

use std::{
    iter::Sum,
    sync::{Mutex, MutexGuard, PoisonError},
};

use atta_formats::{TensorType, layout::Trellis};
use atta_kernels::Kernels;

use crate::Error;
use search::Codebook;
use trellis::TrellisQuantizer;

/// Whether [`quantize`] supports a type.
pub fn supports(ty: TensorType) -> bool {
    use TensorType::*;
    match ty {
        F32 | F16 | BF16 | Q8_0 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q2_K | Q3_K | Q4_K | Q5_K | Q6_K => {
            true
        }
        IQ4_NL | IQ4_XS | TQ1_0 | TQ2_0 | MXFP4 | IQ2_S | IQ3_XXS | IQ3_S | T2 | T3 | T4 => true,
        QSF2S | QSF2 | QSF3 | QSF4 | QSFT => true,
        _ => needs_importance(ty),
    }
}

/// Whether [`quantize`] requires importance for a type, because its quality without is useless.
pub fn needs_importance(ty: TensorType) -> bool {
    matches!(ty, TensorType::IQ2_XXS | TensorType::IQ2_XS)
}

/// Quantizes whole rows of `x`, `[n_rows, d_row]`, into blocks of `ty`. `importance`, `[d_row]`, is
/// the mean square of the inputs of each column (see
/// [`ImatrixEntry::weights`](crate::ImatrixEntry::weights)). Without it, errors are weighted by the
/// weights themselves, as in llama.cpp. Floats, Q8_0, MXFP4 and the ternary types ignore it.
///
/// IQ2 and IQ3 build a codebook first, which takes longer than many rows. [`Quantizer`] keeps it.
///
/// # Errors
/// Those of [`Quantizer::new`] and [`Quantizer::rows`].
pub fn quantize(
    ty: TensorType,
    x: &[f32],
    d_row: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<(), Error> {
    Quantizer::new(ty)?.rows(x, d_row, importance, out)
}

/// A quantizer of one type, with its codebook. Threads may share it.
pub struct Quantizer {
    ty: TensorType,
    kernels: Kernels,
    book: OptionalCodebook,
    small_scales: Mutex<SmallScales>,
}

/// Sub-blocks of T2, T3 and T4 whose wanted scale is less than half of the least one of their
/// block: its weights are far smaller than the largest ones beside them, and become mostly noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmallScales {
    /// Their number.
    pub n: u64,
    /// Sub-blocks in all, without those of blocks of zeros.
    pub of: u64,
}

impl Sum for SmallScales {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            n: sum.n + one.n,
            of: sum.of + one.of,
        })
    }
}

impl std::fmt::Debug for Quantizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quantizer")
            .field("ty", &self.ty)
            .finish_non_exhaustive()
    }
}

/// The codebook of a type.
enum OptionalCodebook {
    None,
    Eight(Codebook<8>),
    Four(Codebook<4>),
}

impl Quantizer {
    /// Builds the quantizer of a type.
    ///
    /// # Errors
    /// [`Error::NoQuantizer`].
    pub fn new(ty: TensorType) -> Result<Self, Error> {
        let book = match ty {
            _ if !supports(ty) => {
                return Err(Error::NoQuantizer {
                    ty,
                    needs_importance: false,
                });
            }
            TensorType::IQ2_XXS => OptionalCodebook::Eight(codebook::iq2_xxs_book()),
            TensorType::IQ2_XS => OptionalCodebook::Eight(codebook::iq2_xs_book()),
            TensorType::IQ2_S => OptionalCodebook::Eight(codebook::iq2_s_book()),
            TensorType::IQ3_XXS => OptionalCodebook::Four(codebook::iq3_xxs_book()),
            TensorType::IQ3_S => OptionalCodebook::Four(codebook::iq3_s_book()),
            _ => OptionalCodebook::None,
        };
        Ok(Self {
            ty,
            kernels: Kernels::detect(),
            book,
            small_scales: Mutex::default(),
        })
    }

    /// The scales so far that were too small.
    pub fn small_scales(&self) -> SmallScales {
        *self.counted()
    }

    fn count(&self, more: SmallScales) {
        let mut counted = self.counted();
        *counted = [*counted, more].into_iter().sum();
    }

    fn counted(&self) -> MutexGuard<'_, SmallScales> {
        self.small_scales
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The same on another instruction set, which T2, T3 and T4 are searched with. The bytes are
    /// the same on all of them.
    pub fn with_kernels(self, kernels: Kernels) -> Self {
        Self { kernels, ..self }
    }

    /// Quantizes whole rows of `x`, `[n_rows, d_row]`; see [`quantize`].
    ///
    /// # Errors
    /// [`Error::NoQuantizer`] if the type requires importance, [`Error::NotFinite`], and
    /// [`Error::Shape`] if rows are not whole blocks or lengths do not match.
    pub fn rows(
        &self,
        x: &[f32],
        d_row: usize,
        importance: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let ty = self.ty;
        if needs_importance(ty) && importance.is_none() {
            return Err(Error::NoQuantizer {
                ty,
                needs_importance: true,
            });
        }
        let shape = || Error::Shape {
            dims: vec![x.len() as u64, d_row as u64],
            ty,
        };
        let row_bytes = ty
            .row_bytes(d_row)
            .filter(|_| d_row > 0)
            .ok_or_else(shape)?;
        let n_rows = x.len() / d_row;
        let fits = n_rows * d_row == x.len() && n_rows.checked_mul(row_bytes) == Some(out.len());
        if !fits || importance.is_some_and(|importance| importance.len() != d_row) {
            return Err(shape());
        }
        let layout = Trellis::of(ty);
        let mut trellis = layout.map(|of| TrellisQuantizer::new(of, self.kernels, importance));
        for (x, out) in x.chunks_exact(d_row).zip(out.chunks_exact_mut(row_bytes)) {
            check_finite(x)?;
            if let Some(trellis) = &mut trellis {
                trellis.row(x, out);
                continue;
            }
            let row = WeightedRow { x, importance };
            match &self.book {
                OptionalCodebook::None => row.encode(ty, out),
                OptionalCodebook::Eight(book) => row.encode_by_eight(ty, book, out),
                OptionalCodebook::Four(book) => row.encode_by_four(ty, book, out),
            }
        }
        if let Some(trellis) = trellis {
            self.count(trellis.small_scales());
        }
        Ok(())
    }
}

/// Fails if a weight is NaN or infinite. The first loop only tests exponents, so that it
/// vectorizes; the second one runs only to find the index.
fn check_finite(x: &[f32]) -> Result<(), Error> {
    const EXPONENT: u32 = f32::INFINITY.to_bits();
    let any = x
        .iter()
        .fold(false, |any, x| any | (x.to_bits() & EXPONENT == EXPONENT));
    match x.iter().position(|x| any && !x.is_finite()) {
        Some(at) => Err(Error::NotFinite { at, value: x[at] }),
        None => Ok(()),
    }
}

/// A row with the importance of its columns.
#[derive(Clone, Copy)]
struct WeightedRow<'a> {
    /// Weights, `[d_row]`.
    x: &'a [f32],
    /// `[d_row]`.
    importance: Option<&'a [f32]>,
}

impl WeightedRow<'_> {
    /// Types without a codebook.
    fn encode(self, ty: TensorType, out: &mut [u8]) {
        let Self { x, importance } = self;
        match (ty, importance) {
            (TensorType::F32, _) => self.plain(out, float::f32),
            (TensorType::F16, _) => self.plain(out, float::f16),
            (TensorType::BF16, _) => self.plain(out, float::bf16),
            (TensorType::Q8_0, _) => self.plain(out, plain::q8_0),
            (TensorType::MXFP4, _) => self.plain(out, nonlinear::mxfp4),
            (TensorType::TQ1_0, _) => self.plain(out, ternary::tq1_0),
            (TensorType::TQ2_0, _) => self.plain(out, ternary::tq2_0),
            (TensorType::Q4_0, None) => self.plain(out, plain::q4_0),
            (TensorType::Q4_1, None) => self.plain(out, plain::q4_1),
            (TensorType::Q5_0, None) => self.plain(out, plain::q5_0),
            (TensorType::Q5_1, None) => self.plain(out, plain::q5_1),
            (TensorType::Q4_0, Some(importance)) => weighted::q4_0(x, importance, out),
            (TensorType::Q4_1, Some(importance)) => weighted::q4_1(x, importance, out),
            (TensorType::Q5_0, Some(importance)) => weighted::q5_0(x, importance, out),
            (TensorType::Q5_1, Some(importance)) => weighted::q5_1(x, importance, out),
            (TensorType::Q2_K, _) => self.weighed(out, k_minimum::q2_k),
            (TensorType::Q3_K, _) => self.weighed(out, k_signed::q3_k),
            (TensorType::Q4_K, _) => self.weighed(out, k_minimum::q4_k),
            (TensorType::Q5_K, _) => self.weighed(out, k_minimum::q5_k),
            (TensorType::Q6_K, _) => self.weighed(out, k_signed::q6_k),
            (TensorType::IQ4_NL, _) => nonlinear::iq4_nl(x, importance, out),
            (TensorType::QSF2S, _) => self.blocks_of_64(out, qsf::qsf2s),
            (TensorType::QSF2, _) => self.blocks_of_64(out, qsf::qsf2),
            (TensorType::QSF3, _) => self.blocks_of_64(out, qsf::qsf3),
            (TensorType::QSF4, _) => self.blocks_of_64(out, qsf::qsf4),
            (TensorType::QSFT, _) => self.blocks_of_64(out, qsf::qsft),
            (TensorType::IQ4_XS, _) => self.weighed(out, nonlinear::iq4_xs),
            _ => unreachable!("the type is supported"),
        }
    }

    /// Types with a codebook for 8 weights.
    fn encode_by_eight(self, ty: TensorType, book: &Codebook<8>, out: &mut [u8]) {
        match ty {
            TensorType::IQ2_S => self.weighed(out, |x, importance, out| {
                codebook::iq2_s(book, x, importance, out)
            }),
            TensorType::IQ2_XS => self.weighed_by_importance(out, |x, importance, out| {
                codebook::iq2_xs(book, x, importance, out)
            }),
            _ => self.weighed_by_importance(out, |x, importance, out| {
                codebook::iq2_xxs(book, x, importance, out)
            }),
        }
    }

    /// Types with a codebook for 4 weights.
    fn encode_by_four(self, ty: TensorType, book: &Codebook<4>, out: &mut [u8]) {
        match ty {
            TensorType::IQ3_S => self.weighed(out, |x, importance, out| {
                codebook::iq3_s(book, x, importance, out)
            }),
            _ => self.weighed(out, |x, importance, out| {
                codebook::iq3_xxs(book, x, importance, out)
            }),
        }
    }

    /// As [`weighed`](Self::weighed), for types that require importance.
    #[inline(always)]
    fn weighed_by_importance<const BYTES: usize>(
        self,
        out: &mut [u8],
        encode: impl Fn(&[f32; 256], &[f32; 256], &mut [u8; BYTES]),
    ) {
        self.weighed(out, |x, importance, block| {
            encode(x, importance.expect("Quantizer::rows checked it"), block)
        });
    }

    /// Encodes blocks of 64 with the weight of each error; the last one may have 32 weights.
    fn blocks_of_64<const BYTES: usize>(
        self,
        out: &mut [u8],
        encode: impl Fn(qsf::Weighted<'_>, &mut [u8; BYTES]),
    ) {
        let mean_square = weighted::sum_of_squares(self.x) / self.x.len() as f32;
        for (b, (part, block)) in self.x.chunks(64).zip(out.as_chunks_mut().0).enumerate() {
            let n = part.len();
            let mut x = [0.0; 64];
            x[..n].copy_from_slice(part);
            let mut weights = [0.0; 64];
            weights[..n].fill(1.0);
            let importance = self.importance.map(|all| &all[64 * b..][..n]);
            for (i, importance) in importance.into_iter().flatten().enumerate() {
                weights[i] = importance * (mean_square + x[i] * x[i]).sqrt();
            }
            let weighted = qsf::Weighted {
                x: &x,
                weights: &weights,
                n,
            };
            encode(weighted, block);
        }
    }

    /// Encodes each block from its `LEN` weights.
    #[inline(always)]
    fn plain<const LEN: usize, const BYTES: usize>(
        self,
        out: &mut [u8],
        encode: impl Fn(&[f32; LEN], &mut [u8; BYTES]),
    ) {
        for (x, block) in self.x.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
            encode(x, block);
        }
    }

    /// Encodes each block from its `LEN` weights and their importance.
    #[inline(always)]
    fn weighed<const LEN: usize, const BYTES: usize>(
        self,
        out: &mut [u8],
        encode: impl Fn(&[f32; LEN], Option<&[f32; LEN]>, &mut [u8; BYTES]),
    ) {
        for (b, (x, block)) in self
            .x
            .as_chunks()
            .0
            .iter()
            .zip(out.as_chunks_mut().0)
            .enumerate()
        {
            encode(
                x,
                self.importance
                    .map(|importance| &importance.as_chunks().0[b]),
                block,
            );
        }
    }
}
