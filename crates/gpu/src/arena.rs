//! Where the weights of a model lie: buffers that are planned first and then filled.
//!
//! It knows rows and words, and no model. The one idea: a matrix is cut by rows where a buffer
//! ends, each part with its part of the bias behind it, so that a product sees one buffer and a
//! head of any size fits a GPU that binds little at once.

use crate::{BufferId, Error, Host, WeightFormat};
use std::ops::Range;

/// Bytes that are packed before they are written.
const BATCH: usize = 1 << 20;

/// Some rows of a matrix, and of its bias, in one buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The buffer, by its place in the plan.
    pub arena: usize,
    /// First word of the rows.
    pub w: u32,
    /// First word of their bias, if there is one.
    pub bias: Option<u32>,
    /// Which rows of the matrix.
    pub rows: Range<usize>,
}

/// The matrices of some experts in one buffer, behind the words of all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpertSlice {
    /// The buffer, by its place in the plan.
    pub arena: usize,
    /// First word of the table of all experts: [`ExpertProduct`](crate::ExpertProduct).
    pub table: u32,
    /// First word of the biases of all experts, if there are some.
    pub bias: Option<u32>,
    /// First word of the first of these matrices.
    pub w: u32,
    /// Whose matrices are here.
    pub experts: Range<usize>,
}

impl ExpertSlice {
    /// Words of the table for each expert.
    pub const TABLE_WORDS: usize = 2;
}

/// A matrix that is to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatrixShape {
    /// Its format.
    pub format: WeightFormat,
    /// Its rows.
    pub d_out: usize,
    /// Weights of a row.
    pub d_in: usize,
    /// Whether a bias comes with it.
    pub has_bias: bool,
}

/// The sizes of buffers, as matrices and vectors are added.
#[derive(Clone, Debug)]
pub struct ArenaPlan {
    most_words: usize,
    /// Words of each buffer so far.
    words: Vec<usize>,
}

impl ArenaPlan {
    /// Buffers of at most `bytes` each.
    pub fn new(bytes: u64) -> Self {
        let most_words = usize::try_from(bytes / 4).unwrap_or(usize::MAX);
        Self {
            most_words: most_words.min(1 << 30),
            words: vec![0],
        }
    }

    /// Bytes of each buffer.
    pub fn bytes(&self) -> impl Iterator<Item = u64> {
        self.words.iter().map(|&words| 4 * words as u64)
    }

    /// Words left in the last buffer.
    fn left(&self) -> usize {
        self.most_words - self.words.last().copied().unwrap_or(self.most_words)
    }

    /// Takes words of the last buffer and returns the first of them.
    fn take(&mut self, n: usize) -> u32 {
        let last = self.words.last_mut().expect("there is always a buffer");
        let first = *last;
        *last += n;
        first as u32
    }

    /// Places a matrix and returns its parts.
    ///
    /// # Errors
    /// [`Error::BufferSize`] if a row is larger than a buffer.
    pub fn matrix(&mut self, shape: MatrixShape) -> Result<Vec<Slice>, Error> {
        self.in_runs(shape, 1)
    }

    /// Places a matrix whose runs of `n_run` rows stay whole, and returns its parts.
    ///
    /// # Errors
    /// [`Error::BufferSize`] if a run is larger than a buffer.
    pub fn in_runs(&mut self, shape: MatrixShape, n_run: usize) -> Result<Vec<Slice>, Error> {
        let of_row = shape.format.row_words(shape.d_in);
        let with_bias = of_row + usize::from(shape.has_bias);
        let of_run = with_bias.saturating_mul(n_run);
        self.check(of_run)?;
        let mut slices = Vec::new();
        let mut first = 0;
        while first < shape.d_out {
            let n_runs = self.left() / of_run.max(1);
            let n = n_runs.saturating_mul(n_run).min(shape.d_out - first);
            if n == 0 {
                self.words.push(0);
                continue;
            }
            slices.push(Slice {
                arena: self.words.len() - 1,
                w: self.take(n * of_row),
                bias: shape.has_bias.then(|| self.take(n)),
                rows: first..first + n,
            });
            first += n;
        }
        Ok(slices)
    }

    /// Places the matrices of `n` experts, each of this shape and whole, and returns the parts.
    ///
    /// # Errors
    /// [`Error::BufferSize`] if an expert is larger than a buffer.
    pub fn experts(&mut self, n: usize, shape: MatrixShape) -> Result<Vec<ExpertSlice>, Error> {
        let of_expert = shape
            .d_out
            .saturating_mul(shape.format.row_words(shape.d_in));
        let n_biases = if shape.has_bias { n * shape.d_out } else { 0 };
        let before = ExpertSlice::TABLE_WORDS * n + n_biases;
        self.check(before.saturating_add(of_expert))?;
        let mut slices = Vec::new();
        let mut first = 0;
        while first < n {
            let n_here = self.left().saturating_sub(before) / of_expert.max(1);
            let n_here = n_here.min(n - first);
            if n_here == 0 {
                self.words.push(0);
                continue;
            }
            slices.push(ExpertSlice {
                arena: self.words.len() - 1,
                table: self.take(ExpertSlice::TABLE_WORDS * n),
                bias: shape.has_bias.then(|| self.take(n_biases)),
                w: self.take(n_here * of_expert),
                experts: first..first + n_here,
            });
            first += n_here;
        }
        Ok(slices)
    }

    /// Places a vector of `n` f32, whole, and returns its buffer and first word.
    ///
    /// # Errors
    /// [`Error::BufferSize`] if it is larger than a buffer.
    pub fn vector(&mut self, n: usize) -> Result<[usize; 2], Error> {
        self.check(n)?;
        if self.left() < n {
            self.words.push(0);
        }
        Ok([self.words.len() - 1, self.take(n) as usize])
    }

    fn check(&self, words: usize) -> Result<(), Error> {
        match words <= self.most_words {
            true => Ok(()),
            false => Err(Error::BufferSize {
                bytes: 4 * words as u64,
                most: 4 * self.most_words as u64,
            }),
        }
    }
}

/// Writes rows of a matrix, given as in a file, to their place.
///
/// # Errors
/// Those of [`Host::write`].
pub fn upload_rows(
    host: &mut dyn Host,
    buffer: BufferId,
    format: WeightFormat,
    first_word: u32,
    rows: impl Iterator<Item = impl AsRef<[u8]>>,
) -> Result<(), Error> {
    let mut at = 4 * u64::from(first_word);
    let mut batch = Vec::new();
    for row in rows {
        format.pack_row(row.as_ref(), &mut batch);
        if batch.len() >= BATCH {
            host.write(buffer, at, &batch)?;
            at += batch.len() as u64;
            batch.clear();
        }
    }
    host.write(buffer, at, &batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: MatrixShape = MatrixShape {
        format: WeightFormat::Q4_0,
        d_out: 70_000,
        d_in: 64,
        has_bias: true,
    };

    #[test]
    fn a_head_is_cut_where_buffers_end() {
        let mut plan = ArenaPlan::new(1 << 20);
        let slices = plan.matrix(HEAD).unwrap();
        assert_eq!(slices.len(), 3);
        let mut end = 0;
        for (slice, i) in slices.iter().zip(0..) {
            assert_eq!((slice.rows.start, slice.arena, slice.w), (end, i, 0));
            assert_eq!(slice.bias, Some(slice.rows.len() as u32 * 9));
            end = slice.rows.end;
        }
        assert_eq!(end, HEAD.d_out);
        assert!(plan.bytes().all(|bytes| bytes <= 1 << 20));
        assert_eq!(plan.bytes().sum::<u64>(), 4 * 10 * HEAD.d_out as u64);
    }

    #[test]
    fn runs_of_rows_stay_whole() {
        let shape = MatrixShape {
            d_out: 24,
            has_bias: false,
            ..HEAD
        };
        // Nine words a row; a buffer has room for nineteen.
        let mut plan = ArenaPlan::new(4 * 9 * 19);
        let slices = plan.in_runs(shape, 8).unwrap();
        let rows: Vec<_> = slices.iter().map(|slice| slice.rows.clone()).collect();
        assert_eq!(rows, [0..16, 16..24]);
        assert!(plan.in_runs(shape, 20).is_err());
    }

    #[test]
    fn experts_stay_whole_behind_a_table_of_all() {
        let shape = MatrixShape {
            format: WeightFormat::Q4_0,
            d_out: 10,
            d_in: 64,
            has_bias: true,
        };
        // Nine words a row; a buffer has room for three experts behind table and biases.
        let mut plan = ArenaPlan::new(4 * (2 * 5 + 50 + 3 * 90));
        let slices = plan.experts(5, shape).unwrap();
        assert_eq!(slices.len(), 2);
        for (slice, experts) in slices.iter().zip([0..3, 3..5]) {
            assert_eq!((slice.table, slice.bias, slice.w), (0, Some(10), 60));
            assert_eq!(slice.experts, experts);
        }
        assert_eq!([slices[0].arena, slices[1].arena], [0, 1]);
        let wide = MatrixShape { d_out: 40, ..shape };
        let refused = plan.experts(5, wide);
        assert!(matches!(refused, Err(Error::BufferSize { .. })));
    }

    #[test]
    fn small_tensors_share_a_buffer_and_vectors_stay_whole() {
        let mut plan = ArenaPlan::new(400);
        assert_eq!(plan.vector(60).unwrap(), [0, 0]);
        assert_eq!(plan.vector(30).unwrap(), [0, 60]);
        assert_eq!(plan.vector(30).unwrap(), [1, 0]);
        assert_eq!(plan.bytes().collect::<Vec<_>>(), [360, 120]);
        assert!(matches!(plan.vector(101), Err(Error::BufferSize { .. })));
    }
}
