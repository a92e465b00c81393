//! Reads tensors of a checkpoint as floats: plain ones, and quantized ones in formats that GGUF
//! does not have.

use std::sync::OnceLock;

use atta_formats::TensorType;
use atta_model::Role;
use serde_json::Value;

use super::{config::Config, family::Family};
use crate::{
    Error,
    raw::{Dtype, RawTensor, RawTensors},
};

/// The quantization of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Quantization {
    None,
    /// gpt-oss: experts in MXFP4.
    Mxfp4,
    /// BitNet: ternary matrices, each divided by a scale.
    Divided,
    /// BitNet: ternary matrices, each multiplied by a scale.
    Multiplied,
    /// BitNet: matrices are rounded to ternary values times their mean magnitude when used.
    Online,
    /// FP8: 8-bit floats with a scale per block of `[rows, columns]`.
    Blocks([u64; 2]),
}

impl Quantization {
    pub(super) fn of(c: &Config, family: &Family) -> Result<Self, Error> {
        let Some(q) = c.object_opt("quantization_config")? else {
            let rounds = match family.ternary {
                Some((field, value)) => c.count_opt(&[field])? == Some(value),
                None => false,
            };
            return Ok(if rounds { Self::Online } else { Self::None });
        };
        let text = |key: &str| q.get(key).and_then(Value::as_str);
        match text("quant_method") {
            Some("mxfp4") => Ok(Self::Mxfp4),
            Some("bitnet")
                if q.get("use_rms_norm")
                    .is_some_and(|on| *on == Value::Bool(true)) =>
            {
                Err(c.wrong("use_rms_norm of the quantization is true, which is not supported"))
            }
            Some("bitnet") => match (
                text("linear_class").unwrap_or("bitlinear"),
                text("quantization_mode"),
            ) {
                ("bitlinear", _) => Ok(Self::Divided),
                ("autobitlinear", None | Some("offline")) => Ok(Self::Multiplied),
                ("autobitlinear", Some("online")) => Ok(Self::Online),
                (class, _) => {
                    Err(c.wrong(format!("linear_class is {class:?}, which is not supported")))
                }
            },
            Some("fp8") => match q
                .get("weight_block_size")
                .and_then(Value::as_array)
                .map(Vec::as_slice)
            {
                Some([rows, columns]) => match (rows.as_u64(), columns.as_u64()) {
                    (Some(rows @ 1..), Some(columns @ 1..)) => Ok(Self::Blocks([rows, columns])),
                    _ => Err(c.wrong("weight_block_size is no pair of counts")),
                },
                _ => Err(c.wrong("is quantized by fp8 without blocks, which is not supported")),
            },
            Some(other) => Err(c.wrong(format!("is quantized by {other}, which is not supported"))),
            None => Err(c.wrong("quantization_config does not say quant_method")),
        }
    }
}

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
        quantization: Quantization,
        name: &str,
        role: Role,
    ) -> Result<Option<Self>, Error> {
        let Some(weight) = raw.take(name) else {
            return Ok(None);
        };
        let scale = |raw: &mut RawTensors| -> Result<f32, Error> {
            let of = format!("{name}_scale");
            let tensor = raw.take(&of).ok_or_else(|| Error::Missing.of(&of))?;
            let mut scale = [0.0];
            match tensor.dims() {
                [] | [1] => tensor.floats(0, &mut scale).map(|()| scale[0]),
                dims => Err(Error::Dims {
                    expected: vec![1],
                    got: dims.to_vec(),
                }
                .of(&of)),
            }
        };
        match quantization {
            Quantization::Divided if is_linear(role) => {
                Ok(Some(Self::ternary(weight, 1.0 / scale(raw)?)))
            }
            Quantization::Multiplied if is_linear(role) => {
                Ok(Some(Self::ternary(weight, scale(raw)?)))
            }
            Quantization::Online if is_linear(role) => Ok(Some(Self::Rounded {
                raw: weight,
                magnitude: OnceLock::new(),
            })),
            Quantization::Blocks(block) => Self::blocks(raw, weight, block).map(Some),
            _ => Ok(Some(Self::Plain(weight))),
        }
    }

    /// As [`take`](Self::take), of a tensor that is taken out later.
    pub(super) fn copy(
        raw: &RawTensors,
        quantization: Quantization,
        name: &str,
        role: Role,
    ) -> Result<Option<Self>, Error> {
        let mut copies = RawTensors::default();
        let scales = format!("{name}_scale_inv");
        for tensor in [name, &scales].iter().filter_map(|name| raw.get(name)) {
            copies.add(tensor.clone())?;
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

    /// In an FP8 checkpoint, only 8-bit floats have scales.
    fn blocks(all: &mut RawTensors, raw: RawTensor, block: [u64; 2]) -> Result<Self, Error> {
        let name = format!("{}_scale_inv", raw.name());
        let Some(scales) = all.take(&name) else {
            return if raw.dtype() == Dtype::F8E4M3 {
                Err(Error::Missing.of(&name))
            } else {
                Ok(Self::Plain(raw))
            };
        };
        match raw.dims() {
            [rows, columns]
                if scales.dims() == [rows.div_ceil(block[0]), columns.div_ceil(block[1])] =>
            {
                Ok(Self::Blocks { raw, scales, block })
            }
            dims => Err(Error::Dims {
                expected: dims.to_vec(),
                got: scales.dims().to_vec(),
            }
            .of(scales.name())),
        }
    }

    fn raw(&self) -> &RawTensor {
        match self {
            Self::Plain(raw) | Self::Ternary { packed: raw, .. } | Self::Scaled { raw, .. } => raw,
            Self::Rounded { raw, .. } | Self::Blocks { raw, .. } => raw,
        }
    }

    /// Checks shape and element type.
    pub(super) fn expect(&self, dims: &[u64]) -> Result<(), Error> {
        let got = self.dims();
        let name = self.raw().name();
        if got != dims {
            return Err(Error::Dims {
                expected: dims.to_vec(),
                got,
            }
            .of(name));
        }
        match self {
            Self::Ternary { packed, .. } => packed.expect_bytes(),
            Self::Blocks { scales, .. } => self
                .raw()
                .expect_floats()
                .and_then(|()| scales.expect_floats()),
            _ => self.raw().expect_floats(),
        }
    }

    /// The dimensions of the decoded tensor, outermost first.
    fn dims(&self) -> Vec<u64> {
        let mut dims = self.raw().dims().to_vec();
        if let (Self::Ternary { .. }, Some(rows)) = (self, dims.first_mut()) {
            *rows = rows.saturating_mul(4);
        }
        dims
    }

    /// The name in the checkpoint.
    pub(super) fn name(&self) -> &str {
        self.raw().name()
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
        let raw = self.raw();
        match self {
            // TQ2_0 holds ternary values with a scale exactly.
            Self::Ternary { .. } | Self::Rounded { .. } if raw.d_row().is_multiple_of(256) => {
                TensorType::TQ2_0
            }
            // FP8 times a scale; as in llama.cpp's converter.
            Self::Blocks { .. } => TensorType::BF16,
            _ => raw.dtype().tensor_type().unwrap_or(TensorType::F32),
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
                let magnitude = mean_magnitude(raw, magnitude)?;
                raw.floats(first, out)?;
                out.iter_mut().for_each(|x| {
                    *x = (*x / magnitude).round_ties_even().clamp(-1.0, 1.0) * magnitude
                });
                Ok(())
            }
            Self::Ternary { packed, scale } => unpack(packed, *scale, first, out),
            Self::Blocks { raw, scales, block } => {
                raw.floats(first, out)?;
                by_blocks(raw, scales, *block, first, out)
            }
        }
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

/// Multiplies weights by the scales of their blocks.
fn by_blocks(
    raw: &RawTensor,
    scales: &RawTensor,
    block: [u64; 2],
    first: u64,
    out: &mut [f32],
) -> Result<(), Error> {
    let d = raw.d_row();
    let mut row = vec![0.0; usize::try_from(scales.d_row()).unwrap_or(0)];
    let mut at = None;
    for (i, x) in (first..=u64::MAX).zip(out) {
        let r = i / d / block[0];
        let c = i % d / block[1];
        if at != Some(r) {
            scales.floats(r * scales.d_row(), &mut row)?;
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

    fn taken(quantization: Quantization, tensors: Vec<RawTensor>) -> Result<SourceTensor, Error> {
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
            all(&taken(Quantization::Multiplied, vec![packed(), scale()]).unwrap()),
            times(0.5)
        );
        assert_eq!(
            all(&taken(Quantization::Divided, vec![packed(), scale()]).unwrap()),
            times(2.0)
        );
        let error = taken(Quantization::Divided, vec![packed()]).err().unwrap();
        assert_eq!(error.to_string(), "w_scale: is missing");
    }

    #[test]
    fn an_invalid_code_is_refused() {
        let source = taken(
            Quantization::Divided,
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
            Quantization::Online,
            vec![f32s("w", &[1, 4], &[0.1, -3.0, 1.5, 1.4])],
        )
        .unwrap();
        assert_eq!(all(&source), [0.0, -1.5, 1.5, 1.5]);
    }

    #[test]
    fn eight_bit_floats_have_scales_by_blocks() {
        let w = || tensor("w", Dtype::F8E4M3, &[3, 3], vec![0x38; 9]);
        let scales = f32s("w_scale_inv", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let source = taken(Quantization::Blocks([2, 2]), vec![w(), scales]).unwrap();
        assert_eq!(all(&source), [1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 3.0, 4.0]);
        assert!(
            taken(
                Quantization::Blocks([2, 2]),
                vec![w(), f32s("w_scale_inv", &[1, 2], &[1.0; 2])]
            )
            .is_err()
        );
    }
}
