//! A weight matrix where it lies: type, shape and bytes in the plain GGUF layout, checked once.

use crate::Error;
use crate::registry::Format;
use atta_formats::{Encoding, TensorType};
use std::ops::{BitOr, Range};

/// Weights `[d_out, d_in]`, rows of whole blocks, plain GGUF layout. `y = W x`. They may be some
/// rows of a larger matrix ([`rows_of`](Self::rows_of)), and then make that part of its product.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    encoding: Encoding,
    format: Format,
    d_out: usize,
    /// Which row of the whole matrix the first one is.
    first: usize,
    /// Rows of the whole matrix.
    n_whole: usize,
    d_in: usize,
    row_bytes: usize,
    bytes: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// Weights `[d_out, d_in]` in `bytes`, of a type or of an encoding with parameters.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`] if there is no kernel for the type, [`Error::RowLength`] unless
    /// `d_in` is a whole number of blocks, [`Error::MatrixBytes`] unless `bytes` has exactly
    /// the length of the shape.
    pub fn new(
        encoding: impl Into<Encoding>,
        d_out: usize,
        d_in: usize,
        bytes: &'a [u8],
    ) -> Result<Self, Error> {
        let encoding = encoding.into();
        let ty = encoding.ty;
        let format = Format::of(ty).ok_or(Error::UnsupportedType { ty })?;
        let row_bytes = ty.row_bytes(d_in).ok_or(Error::RowLength { ty, d_in })?;
        let expected = row_bytes.saturating_mul(d_out);
        if expected != bytes.len() {
            return Err(Error::MatrixBytes {
                ty,
                d_out,
                d_in,
                expected,
                got: bytes.len(),
            });
        }
        Ok(Self {
            encoding,
            format,
            d_out,
            first: 0,
            n_whole: d_out,
            d_in,
            row_bytes,
            bytes,
        })
    }

    /// The same weights as the rows from `first` on of a matrix of `n_whole` rows.
    ///
    /// # Panics
    /// If that has fewer rows.
    pub fn rows_of(self, n_whole: usize, first: usize) -> Self {
        assert!(
            first <= n_whole && self.d_out <= n_whole - first,
            "rows {first}+{} of {n_whole}",
            self.d_out
        );
        Self {
            first,
            n_whole,
            ..self
        }
    }

    /// Whether there are kernels for weights of this type.
    pub fn supports(ty: TensorType) -> bool {
        Format::of(ty).is_some()
    }

    /// Type of the weights.
    pub fn tensor_type(self) -> TensorType {
        self.encoding.ty
    }

    /// What multiplies the weights of the blocks.
    pub fn scale(self) -> f32 {
        self.encoding.scale
    }

    /// Rows at hand.
    pub fn d_out(self) -> usize {
        self.d_out
    }

    /// Rows of the whole matrix.
    pub fn n_whole(self) -> usize {
        self.n_whole
    }

    /// Which rows of the whole matrix are at hand.
    pub fn rows(self) -> Range<usize> {
        self.first..self.first + self.d_out
    }

    /// Weights per row.
    pub fn d_in(self) -> usize {
        self.d_in
    }

    /// The bytes of the rows at hand.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes of one of the rows at hand.
    ///
    /// # Panics
    /// If `row >= d_out`.
    pub fn row(self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.row_bytes..(row + 1) * self.row_bytes]
    }

    /// Fewer rows: `rows` of the whole matrix, `[rows.len(), d_in]`.
    ///
    /// # Panics
    /// If they are not at hand.
    pub fn row_range(self, rows: Range<usize>) -> Self {
        let (start, end) = (rows.start - self.first, rows.end - self.first);
        let bytes = &self.bytes[start * self.row_bytes..end * self.row_bytes];
        Self {
            d_out: rows.len(),
            first: rows.start,
            bytes,
            ..self
        }
    }

    /// The layout of activations that this matrix is multiplied with.
    pub fn layout(self) -> Layouts {
        self.format.layout()
    }

    /// The same of weights that are not at hand.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`] if there is no kernel for `ty`.
    pub fn layout_of(ty: TensorType) -> Result<Layouts, Error> {
        Format::of(ty)
            .map(Format::layout)
            .ok_or(Error::UnsupportedType { ty })
    }

    pub(crate) fn format(self) -> Format {
        self.format
    }
}

/// A set of layouts of activations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Layouts(u8);

impl Layouts {
    /// No layout.
    pub const EMPTY: Self = Self(0);
    /// The f32 values themselves; for F32, F16 and BF16 weights.
    pub const F32: Self = Self(1);
    /// int8 with one f32 scale per 32; for formats with blocks of 32.
    pub const Q8_32: Self = Self(2);
    /// int8 with one f32 scale per 256 and a sum per 16; for formats with blocks of 256.
    pub const Q8_256: Self = Self(4);

    /// Whether all of `other` are in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Layouts {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_must_be_those_of_the_shape() {
        assert!(Matrix::new(TensorType::Q4_K, 3, 512, &[0; 3 * 288]).is_ok());
        let error = Matrix::new(TensorType::Q4_K, 3, 512, &[0; 3 * 288 - 1]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Q4_K weights [3, 512]: expected 864 bytes, got 863"
        );
    }

    #[test]
    fn rows_must_be_whole_blocks() {
        assert!(matches!(
            Matrix::new(TensorType::Q8_0, 1, 33, &[0; 34]),
            Err(Error::RowLength { d_in: 33, .. })
        ));
        assert!(Matrix::new(TensorType::F16, 1, 33, &[0; 66]).is_ok());
    }

    #[test]
    fn overflowing_shapes_are_errors() {
        let huge = Matrix::new(TensorType::F32, usize::MAX, 8, &[]);
        assert!(matches!(
            huge,
            Err(Error::MatrixBytes {
                expected: usize::MAX,
                ..
            })
        ));
        assert!(matches!(
            Matrix::new(TensorType::F32, 1, usize::MAX, &[]),
            Err(Error::RowLength { .. })
        ));
    }

    #[test]
    fn whatever_can_be_decoded_can_be_multiplied() {
        for &ty in TensorType::ALL {
            assert_eq!(Matrix::supports(ty), ty.has_codec(), "{ty}");
        }
    }

    #[test]
    fn types_without_a_kernel_are_errors() {
        assert!(matches!(
            Matrix::new(TensorType::I32, 1, 1, &[0; 4]),
            Err(Error::UnsupportedType { .. })
        ));
    }

    #[test]
    fn a_row_range_is_a_matrix_of_those_rows() {
        let bytes: Vec<u8> = (0..24).collect();
        let w = Matrix::new(TensorType::F16, 4, 3, &bytes).unwrap();
        let part = w.row_range(1..3);
        assert_eq!(
            (part.d_out(), part.d_in(), part.bytes()),
            (2, 3, &bytes[6..18])
        );
        assert_eq!(part.row(1), &bytes[12..18]);
        assert_eq!((part.rows(), part.n_whole()), (1..3, 4));
    }

    #[test]
    fn rows_of_a_larger_matrix_are_called_by_their_numbers_there() {
        let bytes: Vec<u8> = (0..24).collect();
        let part = Matrix::new(TensorType::F16, 4, 3, &bytes)
            .unwrap()
            .rows_of(10, 5);
        assert_eq!(part.row_range(6..8).bytes(), &bytes[6..18]);
        assert_eq!(part.row_range(6..8).row_range(7..8).bytes(), &bytes[12..18]);
    }

    #[test]
    #[should_panic(expected = "rows 7+4 of 10")]
    fn a_part_does_not_reach_over_its_whole() {
        let _ = Matrix::new(TensorType::F16, 4, 3, &[0; 24])
            .unwrap()
            .rows_of(10, 7);
    }
}
