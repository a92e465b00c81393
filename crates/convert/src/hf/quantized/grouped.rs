//! Matrices of small integers with a scale for each group of columns.
//!
//! Where a block type of GGUF holds exactly these weights, the codes move there; otherwise they
//! become floats.

use atta_formats::{
    TensorType,
    f16::{f16_to_f32, f32_to_f16},
};

use super::codes::Codes;
use crate::{
    Error,
    quantize::pack::{fifth_bits, nibbles},
    raw::RawTensor,
};

/// Weights of a block of every type that integers become.
const BLOCK: usize = 32;

/// `w[r, c] = scale[r, g] (code[r, c] - zero[r, g])`, or `scale[r, g] code[r, c] + bias[r, g]`,
/// with the group g of column c.
pub(crate) struct GroupedMatrix {
    codes: Levels,
    scales: PerGroup,
    offsets: Offsets,
    groups: Groups,
    n_rows: u64,
    n_columns: u64,
    ty: TensorType,
}

/// The integers of a matrix.
pub(super) enum Levels {
    /// A line of codes for each row.
    ByRow(Codes),
    /// A line of codes for each column.
    ByColumn(Codes),
    /// Bytes with a sign, `[n_rows, n_columns]`.
    Signed(RawTensor),
}

/// A number for each row and group.
pub(super) struct PerGroup {
    pub(super) raw: RawTensor,
    /// Whether it is stored as `[n_groups, n_rows]`, not as `[n_rows, n_groups]`.
    pub(super) is_by_group: bool,
}

/// What brings the integers to their place.
pub(super) enum Offsets {
    /// This is subtracted from all.
    Zero(i32),
    /// A code is subtracted, and `more`; a line of codes for each group, a code for each row.
    Zeros {
        /// The codes.
        codes: Codes,
        /// Is added to each, without carry.
        more: i32,
    },
    /// These are added to the products.
    Biases(PerGroup),
}

/// The group of a column.
pub(super) enum Groups {
    /// Groups of this many neighbours.
    Even(u64),
    /// As listed, for each column.
    Listed(Vec<u64>),
}

/// Scale and offset of a group in a row.
#[derive(Clone, Copy)]
struct Factors {
    scale: f32,
    zero: i32,
    bias: f32,
}

impl GroupedMatrix {
    /// A matrix `[n_rows, n_columns]` whose parts have the shapes that belong to it.
    ///
    /// # Errors
    /// Scales that are no numbers.
    pub(super) fn new(
        codes: Levels,
        scales: PerGroup,
        offsets: Offsets,
        groups: Groups,
        [n_rows, n_columns]: [u64; 2],
    ) -> Result<Self, Error> {
        scales.raw.expect_floats()?;
        if let Offsets::Biases(biases) = &offsets {
            biases.raw.expect_floats()?;
        }
        let mut matrix = Self {
            codes,
            scales,
            offsets,
            groups,
            n_rows,
            n_columns,
            ty: TensorType::F32,
        };
        if let Some(ty) = matrix.exact_type()? {
            matrix.ty = ty;
        }
        Ok(matrix)
    }

    /// Rows and columns.
    pub(crate) fn dims(&self) -> [u64; 2] {
        [self.n_rows, self.n_columns]
    }

    /// The name of the tensor with the integers.
    pub(crate) fn name(&self) -> &str {
        match &self.codes {
            Levels::ByRow(codes) | Levels::ByColumn(codes) => codes.name(),
            Levels::Signed(raw) => raw.name(),
        }
    }

    /// The type that holds exactly these weights.
    pub(crate) fn tensor_type(&self) -> TensorType {
        self.ty
    }

    /// Reads weights, from `first` on, into `out`.
    pub(crate) fn floats(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let mut first = first;
        let mut out = out;
        while !out.is_empty() {
            let c = first % self.n_columns.max(1);
            let n = ((self.n_columns - c) as usize).min(out.len());
            let (now, rest) = out.split_at_mut(n);
            self.part_of_row(first / self.n_columns.max(1), c, now)?;
            (first, out) = (first + n as u64, rest);
        }
        Ok(())
    }

    /// Reads a row into `out` in the blocks of [`tensor_type`](Self::tensor_type).
    pub(crate) fn packed(&self, row: u64, out: &mut [u8]) -> Result<(), Error> {
        let factors = self.factors(row)?;
        let n_blocks = (self.n_columns as usize / BLOCK).max(1);
        let n_bytes = (out.len() / n_blocks).max(1);
        for (b, block) in (0..).zip(out.chunks_mut(n_bytes)) {
            let first = b * BLOCK as u64;
            let levels = std::array::from_fn(|i| self.level(row, first + i as u64));
            write_block(self.ty, factors[self.group(first)], &levels, block);
        }
        Ok(())
    }

    fn part_of_row(&self, row: u64, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let factors = self.factors(row)?;
        for (c, x) in (first..).zip(out) {
            let Factors { scale, zero, bias } = factors[self.group(c)];
            *x = scale * (self.level(row, c) - zero) as f32 + bias;
        }
        Ok(())
    }

    fn level(&self, row: u64, column: u64) -> i32 {
        match &self.codes {
            Levels::ByRow(codes) => codes.at(row, column),
            Levels::ByColumn(codes) => codes.at(column, row),
            Levels::Signed(raw) => {
                let at = (row * self.n_columns + column) as usize;
                i32::from(raw.bytes()[at] as i8)
            }
        }
    }

    fn group(&self, column: u64) -> usize {
        let group = match &self.groups {
            Groups::Even(n) => column / n,
            Groups::Listed(all) => all[column as usize],
        };
        group as usize
    }

    fn n_groups(&self) -> u64 {
        match self.scales.raw.dims() {
            [n, _] if self.scales.is_by_group => *n,
            [_, n] => *n,
            _ => 1,
        }
    }

    /// Scale and offset of each group of a row.
    fn factors(&self, row: u64) -> Result<Vec<Factors>, Error> {
        if row >= self.n_rows {
            return Err(Error::NoRow { row }.of(self.name()));
        }
        let groups = 0..self.n_groups();
        groups.map(|g| self.factors_of(row, g)).collect()
    }

    fn factors_of(&self, row: u64, g: u64) -> Result<Factors, Error> {
        let dims = [self.n_rows, self.n_groups()];
        let mut factors = Factors {
            scale: self.scales.at(row, g, dims)?,
            zero: 0,
            bias: 0.0,
        };
        match &self.offsets {
            Offsets::Zero(zero) => factors.zero = *zero,
            Offsets::Zeros { codes, more } => {
                factors.zero = (codes.at(g, row) + more) & codes.largest();
            }
            Offsets::Biases(biases) => factors.bias = biases.at(row, g, dims)?,
        }
        Ok(factors)
    }

    /// The least and the largest integer that a code may be.
    fn range(&self) -> [i32; 2] {
        match &self.codes {
            Levels::ByRow(codes) | Levels::ByColumn(codes) => [0, codes.largest()],
            Levels::Signed(_) => [-128, 127],
        }
    }

    /// The block type whose integers and scales hold exactly these weights.
    fn exact_type(&self) -> Result<Option<TensorType>, Error> {
        let zeros = match self.groups_are_blocks() {
            true => self.zeros_beside_f16()?,
            false => None,
        };
        let Some([least_zero, largest_zero]) = zeros else {
            return Ok(None);
        };
        let [least, largest] = self.range();
        let from = least.saturating_sub(largest_zero);
        let to = largest.saturating_sub(least_zero);
        let has_biases = matches!(self.offsets, Offsets::Biases(_));
        Ok(match largest {
            ..=15 if has_biases => Some(TensorType::Q4_1),
            ..=31 if has_biases => Some(TensorType::Q5_1),
            _ if has_biases => None,
            _ if from >= -8 && to <= 7 => Some(TensorType::Q4_0),
            _ if from >= -16 && to <= 15 => Some(TensorType::Q5_0),
            _ if from >= -128 && to <= 127 => Some(TensorType::Q8_0),
            _ => None,
        })
    }

    /// Whether groups, and rows, are whole blocks.
    fn groups_are_blocks(&self) -> bool {
        let is_whole = |n: u64| n.is_multiple_of(BLOCK as u64);
        matches!(self.groups, Groups::Even(n) if is_whole(n)) && is_whole(self.n_columns)
    }

    /// The least and the largest zero, if f16 holds all scales and biases.
    fn zeros_beside_f16(&self) -> Result<Option<[i32; 2]>, Error> {
        let mut zeros = [i32::MAX, i32::MIN];
        for row in 0..self.n_rows {
            for Factors { scale, zero, bias } in self.factors(row)? {
                if !is_f16(scale) || !is_f16(bias) {
                    return Ok(None);
                }
                zeros = [zeros[0].min(zero), zeros[1].max(zero)];
            }
        }
        Ok(Some(zeros))
    }
}

impl PerGroup {
    fn at(&self, row: u64, group: u64, [n_rows, n_groups]: [u64; 2]) -> Result<f32, Error> {
        let at = match self.is_by_group {
            true => group * n_rows + row,
            false => row * n_groups + group,
        };
        let mut value = [0.0];
        self.raw.floats(at, &mut value)?;
        Ok(value[0])
    }
}

/// Whether f16 holds a number.
fn is_f16(x: f32) -> bool {
    f16_to_f32(f32_to_f16(x)) == x
}

/// Writes the integers `levels` of a group as a block.
fn write_block(ty: TensorType, f: Factors, levels: &[i32; BLOCK], block: &mut [u8]) {
    let [scale, bias] = [f.scale, f.bias].map(|x| f32_to_f16(x).to_le_bytes());
    let codes = |centre: i32| levels.map(|level| (level - f.zero + centre) as u8);
    block[..2].copy_from_slice(&scale);
    match ty {
        TensorType::Q4_0 => block[2..].copy_from_slice(&nibbles(&codes(8))),
        TensorType::Q5_0 => {
            block[2..6].copy_from_slice(&fifth_bits(&codes(16)));
            block[6..].copy_from_slice(&nibbles(&codes(16)));
        }
        TensorType::Q4_1 => {
            block[2..4].copy_from_slice(&bias);
            block[4..].copy_from_slice(&nibbles(&codes(0)));
        }
        TensorType::Q5_1 => {
            block[2..4].copy_from_slice(&bias);
            block[4..8].copy_from_slice(&fifth_bits(&codes(0)));
            block[8..].copy_from_slice(&nibbles(&codes(0)));
        }
        _ => block[2..].copy_from_slice(&codes(0)),
    }
}
