//! Reads tensors of a checkpoint as floats: plain ones, and quantized ones in formats that GGUF
//! does not have.

use std::sync::OnceLock;

use atta_formats::TensorType;
use atta_model::Role;

use super::quantized::{GroupedMatrix, Nvfp4Matrix, Quantization};
use crate::{
    Error,
    raw::{Dtype, RawTensor, RawTensors},
};

/// A tensor with the way to decode it.
pub(super) enum SourceTensor {
    /// Stored as floats.
    Plain(RawTensor),
    /// Ternary values times a scale. A row of bytes holds four rows, the first in the lowest bits.
    Ternary { packed: RawTensor, scale: f32 },
    /// Floats times a scale.
    Scaled { raw: RawTensor, scale: f32 },
    /// Rounded to ternary values times the mean magnitude.
    Rounded {
        raw: RawTensor,
        magnitude: OnceLock<f32>,
    },
    /// Floats times a scale per block.
    Blocks {
        raw: RawTensor,
        scales: RawTensor,
        block: [u64; 2],
    },
    /// Integers with a scale for each group of columns.
    Grouped(GroupedMatrix),
    /// Floats of four bits with a scale for every 16, and a factor.
    Nvfp4(Nvfp4Matrix),
}

/// Whether a matrix is quantized; embeddings, heads and norms are not.
fn is_linear(role: Role) -> bool {
    use Role::*;
    matches!(
        role,
        AttnQ | AttnK | AttnV | AttnOutput | FfnGate | FfnUp | FfnDown
    )
}

impl SourceTensor {
    /// Takes a tensor, with its scales, out of a checkpoint.
    pub(super) fn take(
        raw: &mut RawTensors,
        quantization: &Quantization,
        name: &str,
        role: Role,
    ) -> Result<Option<Self>, Error> {
        if let Some(matrix) = quantization.nvfp4(raw, name)? {
            return Ok(Some(Self::Nvfp4(matrix)));
        }
        if let Some(grouped) = quantization.grouped(raw, name)? {
            return Ok(Some(Self::Grouped(grouped)));
        }
        let Some(weight) = raw.take(name) else {
            return Ok(None);
        };
        match quantization {
            Quantization::Divided if is_linear(role) => {
                Ok(Some(Self::ternary(weight, 1.0 / scale_of(raw, name)?)))
            }
            Quantization::Multiplied if is_linear(role) => {
                Ok(Some(Self::ternary(weight, scale_of(raw, name)?)))
            }
            Quantization::Online if is_linear(role) => Ok(Some(Self::Rounded {
                raw: weight,
                magnitude: OnceLock::new(),
            })),
            _ => match quantization.scaled() {
                Some(block) => Self::scaled(raw, weight, block).map(Some),
                None => Ok(Some(Self::Plain(weight))),
            },
        }
    }

    /// As [`take`](Self::take), of a tensor that is taken out later.
    pub(super) fn copy(
        raw: &RawTensors,
        quantization: &Quantization,
        name: &str,
        role: Role,
    ) -> Result<Option<Self>, Error> {
        let stem = name.strip_suffix("weight").unwrap_or(name);
        let mut copies = RawTensors::default();
        for part in raw.names().filter(|part| part.starts_with(stem)) {
            copies.add(raw.get(part).expect("it is one of the names").clone())?;
        }
        Self::take(&mut copies, quantization, name, role)
    }

    fn ternary(weight: RawTensor, scale: f32) -> Self {
        match weight.dtype() {
            Dtype::U8 => Self::Ternary {
                packed: weight,
                scale,
            },
            _ => Self::Scaled { raw: weight, scale },
        }
    }

    /// In such checkpoints only 8-bit floats have scales.
    fn scaled(
        all: &mut RawTensors,
        raw: RawTensor,
        block: Option<[u64; 2]>,
    ) -> Result<Self, Error> {
        if raw.dtype() != Dtype::F8E4M3 {
            return Ok(Self::Plain(raw));
        }
        let names = ["_scale_inv", "_scale"].map(|end| format!("{}{end}", raw.name()));
        let scales = names.iter().find_map(|name| all.take(name));
        let scales = scales.ok_or_else(|| Error::Missing.of(&names[0]))?;
        match block_of(&raw, &scales, block) {
            Some(block) => Ok(Self::Blocks { raw, scales, block }),
            None => Err(Error::Dims {
                expected: raw.dims().to_vec(),
                got: scales.dims().to_vec(),
            }
            .of(scales.name())),
        }
    }

    /// The tensor with the weights; `None` of [`Grouped`](Self::Grouped) and
    /// [`Nvfp4`](Self::Nvfp4), which check their own.
    fn raw(&self) -> Option<&RawTensor> {
        match self {
            Self::Plain(raw) | Self::Ternary { packed: raw, .. } | Self::Scaled { raw, .. } => {
                Some(raw)
            }
            Self::Rounded { raw, .. } | Self::Blocks { raw, .. } => Some(raw),
            Self::Grouped(_) | Self::Nvfp4(_) => None,
        }
    }

    /// Checks shape and element type.
    pub(super) fn expect(&self, dims: &[u64]) -> Result<(), Error> {
        let got = self.dims();
        let name = self.name();
        if got != dims {
            return Err(Error::Dims {
                expected: dims.to_vec(),
                got,
            }
            .of(name));
        }
        match self {
            Self::Ternary { packed, .. } => packed.expect_bytes(),
            Self::Blocks { raw, scales, .. } => {
                raw.expect_floats().and_then(|()| scales.expect_floats())
            }
            _ => self.raw().map_or(Ok(()), RawTensor::expect_floats),
        }
    }

    /// The dimensions of the decoded tensor, outermost first.
    pub(super) fn dims(&self) -> Vec<u64> {
        let mut dims = match self {
            Self::Grouped(matrix) => matrix.dims().to_vec(),
            Self::Nvfp4(matrix) => matrix.dims().to_vec(),
            _ => self.raw().map_or(Vec::new(), |raw| raw.dims().to_vec()),
        };
        if let (Self::Ternary { .. }, Some(rows)) = (self, dims.first_mut()) {
            *rows = rows.saturating_mul(4);
        }
        dims
    }

    /// The name in the checkpoint.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Grouped(matrix) => matrix.name(),
            Self::Nvfp4(matrix) => matrix.name(),
            _ => self.raw().map_or("", RawTensor::name),
        }
    }

    /// The stored tensor, if its weights are stored as floats.
    pub(super) fn plain(&self) -> Option<&RawTensor> {
        match self {
            Self::Plain(raw) => Some(raw),
            _ => None,
        }
    }

    /// The GGUF type of a matrix before any quantization.
    pub(super) fn tensor_type(&self) -> TensorType {
        match self {
            // TQ2_0 holds ternary values with a scale exactly.
            Self::Ternary { packed: raw, .. } | Self::Rounded { raw, .. }
                if raw.d_row().is_multiple_of(256) =>
            {
                TensorType::TQ2_0
            }
            // FP8 times a scale; as in llama.cpp's converter.
            Self::Blocks { .. } => TensorType::BF16,
            Self::Grouped(matrix) => matrix.tensor_type(),
            Self::Nvfp4(matrix) => matrix.tensor_type(),
            _ => self
                .raw()
                .and_then(|raw| raw.dtype().tensor_type())
                .unwrap_or(TensorType::F32),
        }
    }

    /// Takes the factor of the whole matrix out of the weights, if it has one.
    pub(super) fn split_factor(&mut self) -> Option<f32> {
        match self {
            Self::Nvfp4(matrix) => Some(matrix.split_factor()),
            _ => None,
        }
    }

    /// The type for weights that are read as floats only, because they change their places.
    pub(super) fn float_type(&self) -> TensorType {
        match self {
            Self::Grouped(_) | Self::Nvfp4(_) => TensorType::F32,
            _ => self.tensor_type(),
        }
    }

    /// Reads a row into `out` in the blocks of [`tensor_type`](Self::tensor_type). Returns false if
    /// it can only be read as floats.
    pub(super) fn packed(&self, row: u64, out: &mut [u8]) -> Result<bool, Error> {
        match self {
            Self::Grouped(matrix) if matrix.tensor_type() != TensorType::F32 => {
                matrix.packed(row, out).map(|()| true)
            }
            Self::Nvfp4(matrix) if matrix.tensor_type() == TensorType::NVFP4 => {
                matrix.packed(row, out).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Reads weights, from `first` on, into `out`.
    pub(super) fn floats(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        match self {
            Self::Plain(raw) => raw.floats(first, out),
            Self::Scaled { raw, scale } => {
                raw.floats(first, out)?;
                out.iter_mut().for_each(|x| *x *= scale);
                Ok(())
            }
            Self::Rounded { raw, magnitude } => {
                raw.floats(first, out)?;
                round_to_ternary(mean_magnitude(raw, magnitude)?, out);
                Ok(())
            }
            Self::Ternary { packed, scale } => unpack(packed, *scale, first, out),
            Self::Blocks { raw, scales, block } => {
                raw.floats(first, out)?;
                by_blocks(raw, scales, *block, first, out)
            }
            Self::Grouped(matrix) => matrix.floats(first, out),
            Self::Nvfp4(matrix) => matrix.floats(first, out),
        }
    }
}

fn round_to_ternary(magnitude: f32, out: &mut [f32]) {
    let rounded = |x: f32| (x / magnitude).round_ties_even().clamp(-1.0, 1.0) * magnitude;
    out.iter_mut().for_each(|x| *x = rounded(*x));
}

/// The one scale of a matrix, beside it in the checkpoint.
fn scale_of(raw: &mut RawTensors, matrix: &str) -> Result<f32, Error> {
    let name = format!("{matrix}_scale");
    let tensor = raw.take(&name).ok_or_else(|| Error::Missing.of(&name))?;
    let mut scale = [0.0];
    match tensor.dims() {
        [] | [1] => tensor.floats(0, &mut scale).map(|()| scale[0]),
        dims => Err(Error::Dims {
            expected: vec![1],
            got: dims.to_vec(),
        }
        .of(&name)),
    }
}

/// The mean magnitude, computed on first use because it needs all weights.
fn mean_magnitude(raw: &RawTensor, known: &OnceLock<f32>) -> Result<f32, Error> {
    const CHUNK: u64 = 1 << 14;
    if let Some(&magnitude) = known.get() {
        return Ok(magnitude);
    }
    let n: u64 = raw.dims().iter().product();
    let mut sum = 0.0;
    let mut chunk = Vec::new();
    for first in (0..n).step_by(CHUNK as usize) {
        chunk.resize(CHUNK.min(n - first) as usize, 0.0);
        raw.floats(first, &mut chunk)?;
        sum += chunk.iter().map(|&x| f64::from(x).abs()).sum::<f64>();
    }
    // The lower bound is that of BitNet's training code.
    Ok(*known.get_or_init(|| ((sum / n.max(1) as f64) as f32).max(1e-5)))
}

/// Unpacks ternary weights. Row `r` of `[4 n, d]` is in the bits from `2 (r / n)` on of row `r % n`
/// of `[n, d]`. Source: `pack_weights` of transformers.
fn unpack(packed: &RawTensor, scale: f32, first: u64, out: &mut [f32]) -> Result<(), Error> {
    let n = packed.bytes().len() as u64;
    for (i, x) in (first..=u64::MAX).zip(out) {
        let byte = packed
            .bytes()
            .get((i % n.max(1)) as usize)
            .filter(|_| i / n.max(1) < 4);
        let byte = byte.ok_or_else(|| {
            Error::NoRow {
                row: i / packed.d_row().max(1),
            }
            .of(packed.name())
        })?;
        *x = match byte >> (2 * (i / n)) & 3 {
            3 => return Err(Error::Code { at: i, code: 3 }.of(packed.name())),
            code => (f32::from(code) - 1.0) * scale,
        };
    }
    Ok(())
}

/// The block `[rows, columns]` of a matrix that has a scale: as configured, a row, or all of it.
/// `None` if the scales have another shape.
fn block_of(raw: &RawTensor, scales: &RawTensor, block: Option<[u64; 2]>) -> Option<[u64; 2]> {
    let [rows, columns] = *raw.dims() else {
        return None;
    };
    match (scales.dims(), block) {
        (dims, Some([r, c])) if dims == [rows.div_ceil(r), columns.div_ceil(c)] => Some([r, c]),
        ([] | [1] | [1, 1], _) => Some([rows.max(1), columns.max(1)]),
        ([n] | [n, 1], _) if *n == rows => Some([1, columns.max(1)]),
        _ => None,
    }
}

/// Multiplies weights by the scales of their blocks.
fn by_blocks(
    raw: &RawTensor,
    scales: &RawTensor,
    block: [u64; 2],
    first: u64,
    out: &mut [f32],
) -> Result<(), Error> {
    let d = raw.d_row();
    let n_blocks = d.div_ceil(block[1]);
    let mut row = vec![0.0; usize::try_from(n_blocks).unwrap_or(0)];
    let mut at = None;
    for (i, x) in (first..=u64::MAX).zip(out) {
        let r = i / d / block[0];
        let c = i % d / block[1];
        if at != Some(r) {
            scales.floats(r * n_blocks, &mut row)?;
            at = Some(r);
        }
        *x *= row[c as usize];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn tensor(name: &str, dtype: Dtype, dims: &[u64], bytes: Vec<u8>) -> RawTensor {
        RawTensor::new(name, dtype, dims, Arc::new(bytes), 0).unwrap()
    }

    fn f32s(name: &str, dims: &[u64], values: &[f32]) -> RawTensor {
        tensor(
            name,
            Dtype::F32,
            dims,
            values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        )
    }

    fn taken(quantization: &Quantization, tensors: Vec<RawTensor>) -> Result<SourceTensor, Error> {
        let mut all = RawTensors::default();
        tensors.into_iter().for_each(|t| all.add(t).unwrap());
        let source = SourceTensor::take(&mut all, quantization, "w", Role::AttnQ)?.unwrap();
        assert_eq!(all.names().count(), 0);
        Ok(source)
    }

    fn all(source: &SourceTensor) -> Vec<f32> {
        let mut out = vec![0.0; source.dims().iter().product::<u64>() as usize];
        source.floats(0, &mut out).unwrap();
        let mut last = [0.0];
        source.floats(out.len() as u64 - 1, &mut last).unwrap();
        assert_eq!(last[0], out[out.len() - 1]);
        assert!(source.floats(out.len() as u64, &mut last).is_err());
        out
    }

    /// The example in the documentation of `unpack_weights` in transformers.
    #[test]
    fn a_row_of_bytes_holds_four_ternary_rows() {
        let packed = || {
            tensor(
                "w",
                Dtype::U8,
                &[2, 2],
                vec![0b1010_0001, 0b0001_1000, 0b1001_0000, 0b0000_1010],
            )
        };
        let scale = || f32s("w_scale", &[1], &[0.5]);
        let signs = [
            0.0, -1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 0.0, 0.0, -1.0, 1.0, -1.0, 1.0, -1.0,
        ];
        let times = |scale: f32| signs.map(|s| s * scale).to_vec();
        assert_eq!(
            all(&taken(&Quantization::Multiplied, vec![packed(), scale()]).unwrap()),
            times(0.5)
        );
        assert_eq!(
            all(&taken(&Quantization::Divided, vec![packed(), scale()]).unwrap()),
            times(2.0)
        );
        let error = taken(&Quantization::Divided, vec![packed()]).err().unwrap();
        assert_eq!(error.to_string(), "w_scale: is missing");
    }

    #[test]
    fn an_invalid_code_is_refused() {
        let source = taken(
            &Quantization::Divided,
            vec![
                tensor("w", Dtype::U8, &[1, 1], vec![3]),
                f32s("w_scale", &[1], &[1.0]),
            ],
        );
        assert_eq!(
            source
                .unwrap()
                .floats(0, &mut [0.0])
                .unwrap_err()
                .to_string(),
            "w: weight 0 has the invalid code 3"
        );
    }

    #[test]
    fn weights_are_rounded_to_their_mean_magnitude() {
        let source = taken(
            &Quantization::Online,
            vec![f32s("w", &[1, 4], &[0.1, -3.0, 1.5, 1.4])],
        )
        .unwrap();
        assert_eq!(all(&source), [0.0, -1.5, 1.5, 1.5]);
    }

    #[test]
    fn eight_bit_floats_have_scales_by_blocks() {
        let w = || tensor("w", Dtype::F8E4M3, &[3, 3], vec![0x38; 9]);
        let scales = f32s("w_scale_inv", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let source = taken(&Quantization::Scaled(Some([2, 2])), vec![w(), scales]).unwrap();
        assert_eq!(all(&source), [1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 3.0, 4.0]);
        assert!(
            taken(
                &Quantization::Scaled(Some([2, 2])),
                vec![w(), f32s("w_scale_inv", &[1, 2], &[1.0; 2])]
            )
            .is_err()
        );
    }
}
