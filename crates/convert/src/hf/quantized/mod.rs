//! How the weights of a checkpoint are quantized: its configuration, and the tensors of a matrix.

mod codes;
mod grouped;
mod nvfp4;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use self::{
    codes::{Codes, Packing},
    grouped::{Groups, Levels, Offsets, PerGroup},
};
use super::{config::Config, family::Family};
use crate::{
    Error,
    raw::{Dtype, RawTensor, RawTensors},
};

pub(super) use grouped::GroupedMatrix;
pub(super) use nvfp4::Nvfp4Matrix;

/// The quantization of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Quantization {
    /// None.
    None,
    /// gpt-oss: experts in MXFP4.
    Mxfp4,
    /// BitNet: ternary matrices, each divided by a scale.
    Divided,
    /// BitNet: ternary matrices, each multiplied by a scale.
    Multiplied,
    /// BitNet: matrices are rounded to ternary values times their mean magnitude when used.
    Online,
    /// Floats of 8 bits with a scale for a block of `[rows, columns]`, for a row, or for a matrix.
    Scaled(Option<[u64; 2]>),
    /// modelopt: `weight` of bytes, `weight_scale` and `weight_scale_2` in NVFP4, and matrices as
    /// those of `Scaled`.
    Nvfp4,
    /// Integers with a scale for each group of columns.
    Grouped(Grouping),
}

/// How integers, scales and offsets of a matrix are stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Grouping {
    /// `qweight`, `qzeros`, `scales` and `g_idx` (Frantar et al. 2023; GPTQModel's documentation).
    Gptq {
        /// Of an integer.
        bits: u32,
        /// Is added to the stored zeros: 1, or 0 in files of the second version.
        more: i32,
    },
    /// `qweight`, `qzeros` and `scales` of four bits (Lin et al. 2024; AutoAWQ's `WQLinear_GEMM`).
    Awq,
    /// compressed-tensors: `weight_packed`, `weight_scale`, `weight_shape`, `weight_zero_point`,
    /// and matrices of 8 bits beside their `weight_scale`; in NVFP4 with `weight_global_scale`.
    Compressed {
        /// Blocks of `[rows, columns]` with a scale, of floats of 8 bits.
        block: Option<[u64; 2]>,
    },
    /// MLX: `weight`, `scales` and `biases`.
    Mlx(MlxSizes),
}

/// Bits and group sizes of a checkpoint of MLX.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MlxSizes {
    usual: MlxSize,
    /// Of matrices that differ, by their names without `.weight`.
    others: BTreeMap<String, MlxSize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct MlxSize {
    bits: u32,
    d_group: u64,
}

impl Quantization {
    pub(super) fn of(c: &Config, family: &Family) -> Result<Self, Error> {
        // MLX writes both, with the same value.
        let mlx = c.object_opt("quantization")?;
        match c.object_opt("quantization_config")?.or(mlx) {
            Some(q) => Self::by_method(c, q),
            None => {
                let rounds = match family.ternary {
                    Some((field, value)) => c.count_opt(&[field])? == Some(value),
                    None => false,
                };
                Ok(if rounds { Self::Online } else { Self::None })
            }
        }
    }

    fn by_method(c: &Config, q: &Map<String, Value>) -> Result<Self, Error> {
        let text = |key: &str| q.get(key).and_then(Value::as_str);
        match text("quant_method") {
            Some("mxfp4") => Ok(Self::Mxfp4),
            Some("bitnet") => bitnet(c, q),
            Some("fp8") => Ok(Self::Scaled(block(c, q.get("weight_block_size"))?)),
            Some("fbgemm_fp8") => Ok(Self::Scaled(None)),
            Some("modelopt" | "modelopt_fp4") => modelopt(c, q),
            Some("gptq") => gptq(c, q),
            Some("awq") => awq(c, q),
            Some("compressed-tensors") => compressed(c, q),
            Some(other) => Err(c.wrong(format!("is quantized by {other}, which is not supported"))),
            None if q.contains_key("group_size") && q.contains_key("bits") => mlx_sizes(c, q),
            None => Err(c.wrong("quantization_config does not say quant_method")),
        }
    }

    /// Takes a matrix of integers out of a checkpoint, if it is one.
    pub(super) fn grouped(
        &self,
        all: &mut RawTensors,
        name: &str,
    ) -> Result<Option<GroupedMatrix>, Error> {
        let (Self::Grouped(grouping), Some(stem)) = (self, name.strip_suffix("weight")) else {
            return Ok(None);
        };
        let parts = Parts { all, stem };
        match grouping {
            Grouping::Gptq { bits, more } => parts.gptq(*bits, *more),
            Grouping::Awq => parts.awq(),
            Grouping::Compressed { .. } => parts.compressed(),
            Grouping::Mlx(sizes) => parts.mlx(sizes),
        }
    }

    /// Takes a matrix in NVFP4 out of a checkpoint, if it is one.
    pub(super) fn nvfp4(
        &self,
        all: &mut RawTensors,
        name: &str,
    ) -> Result<Option<Nvfp4Matrix>, Error> {
        let Some(stem) = name.strip_suffix("weight") else {
            return Ok(None);
        };
        let Some([codes, factor]) = self.nvfp4_parts() else {
            return Ok(None);
        };
        let is_it = |raw: &RawTensor| raw.dtype() == Dtype::U8;
        if !all.get(&format!("{stem}{codes}")).is_some_and(is_it) {
            return Ok(None);
        }
        let mut parts = Parts { all, stem };
        let [codes, scales] = [parts.need(codes)?, parts.need("weight_scale")?];
        let factor = one_number(&parts.need(factor)?)?;
        // compressed-tensors divides by it.
        let factor = if *self == Self::Nvfp4 {
            factor
        } else {
            1.0 / factor
        };
        Nvfp4Matrix::new(codes, scales, factor).map(Some)
    }

    /// The names of the codes and of the factor of a matrix in NVFP4.
    fn nvfp4_parts(&self) -> Option<[&'static str; 2]> {
        match self {
            Self::Nvfp4 => Some(["weight", "weight_scale_2"]),
            Self::Grouped(Grouping::Compressed { .. }) => {
                Some(["weight_packed", "weight_global_scale"])
            }
            _ => None,
        }
    }

    /// Blocks of 8-bit floats that have a scale each; `None`: no such floats; `Some(None)`: a row
    /// or a matrix has one.
    pub(super) fn scaled(&self) -> Option<Option<[u64; 2]>> {
        match self {
            Self::Scaled(block) | Self::Grouped(Grouping::Compressed { block }) => Some(*block),
            Self::Nvfp4 => Some(None),
            _ => None,
        }
    }
}

/// Drops what a quantized checkpoint has beside weights: scales of activations and of KV caches,
/// which are not quantized here, and biases of zeros, which some quantizers add to every matrix.
/// Tensors of all experts become one of each, as in other checkpoints.
pub(super) fn trim(raw: &mut RawTensors, notes: &mut Vec<String>) -> Result<(), Error> {
    split_experts(raw)?;
    let n = raw.retain(|name| !is_of_activations(name));
    if n > 0 {
        notes.push(format!(
            "{n} scales of activations are left out: activations are quantized otherwise"
        ));
    }
    let is_zero = |raw: &RawTensor| raw.bytes().iter().all(|&byte| byte == 0);
    let quantized = |name: &str| {
        let stem = name.strip_suffix("bias")?;
        let words = raw.get(&format!("{stem}qweight"));
        words.and(raw.get(name)).filter(|bias| is_zero(bias))
    };
    let zeros: Vec<String> = raw
        .names()
        .filter(|name| quantized(name).is_some())
        .map(str::to_owned)
        .collect();
    raw.retain(|name| !zeros.iter().any(|zero| zero == name));
    Ok(())
}

/// Whether a tensor is a scale of activations or of a KV cache.
fn is_of_activations(name: &str) -> bool {
    [
        "activation_scale",
        ".input_scale",
        ".input_global_scale",
        ".input_zero_point",
        ".output_scale",
        ".k_scale",
        ".v_scale",
    ]
    .iter()
    .any(|end| name.ends_with(end))
}

/// The experts of MLX, `switch_mlp`, are one tensor for all.
fn split_experts(raw: &mut RawTensors) -> Result<(), Error> {
    let joined: Vec<String> = raw
        .names()
        .filter(|name| name.contains(".switch_mlp."))
        .map(str::to_owned)
        .collect();
    for name in joined {
        for (x, expert) in raw
            .take(&name)
            .iter()
            .flat_map(RawTensor::outermost)
            .enumerate()
        {
            let own = name.replace(".switch_mlp.", &format!(".experts.{x}."));
            raw.add(expert.named(own))?;
        }
    }
    Ok(())
}

fn bitnet(c: &Config, q: &Map<String, Value>) -> Result<Quantization, Error> {
    if q.get("use_rms_norm") == Some(&Value::Bool(true)) {
        return Err(c.wrong("use_rms_norm of the quantization is true, which is not supported"));
    }
    let text = |key: &str| q.get(key).and_then(Value::as_str);
    match (
        text("linear_class").unwrap_or("bitlinear"),
        text("quantization_mode"),
    ) {
        ("bitlinear", _) => Ok(Quantization::Divided),
        ("autobitlinear", None | Some("offline")) => Ok(Quantization::Multiplied),
        ("autobitlinear", Some("online")) => Ok(Quantization::Online),
        (class, _) => Err(c.wrong(format!("linear_class is {class:?}, which is not supported"))),
    }
}

/// Rows and columns of a block.
fn block(c: &Config, pair: Option<&Value>) -> Result<Option<[u64; 2]>, Error> {
    let Some(pair) = pair.filter(|pair| !pair.is_null()) else {
        return Ok(None);
    };
    match pair.as_array().map(Vec::as_slice) {
        Some([rows, columns]) => match (rows.as_u64(), columns.as_u64()) {
            (Some(rows @ 1..), Some(columns @ 1..)) => Ok(Some([rows, columns])),
            _ => Err(c.wrong("the block size of the quantization is no pair of counts")),
        },
        _ => Err(c.wrong("the block size of the quantization is no pair of counts")),
    }
}

/// FP8, NVFP4, or both in one model.
fn modelopt(c: &Config, q: &Map<String, Value>) -> Result<Quantization, Error> {
    let algos = algos_of_modelopt(q);
    let is_known = |algo: &&&str| matches!(**algo, "FP8" | "NVFP4" | "W4A16_NVFP4");
    match algos.iter().find(|algo| !is_known(algo)) {
        _ if algos.is_empty() => Err(c.wrong("quantization_config does not say quant_algo")),
        Some(other) => Err(c.wrong(format!(
            "is quantized by modelopt as {other}, which is not supported"
        ))),
        None if algos.iter().all(|algo| *algo == "FP8") => Ok(Quantization::Scaled(None)),
        None => Ok(Quantization::Nvfp4),
    }
}

/// How matrices are quantized: all of them, or each as it says.
fn algos_of_modelopt(q: &Map<String, Value>) -> Vec<&str> {
    let layers = q.get("quantized_layers").and_then(Value::as_object);
    let layers = layers.into_iter().flat_map(Map::values);
    let own = layers.filter_map(|layer| layer.get("quant_algo")?.as_str());
    let of_all = q.get("quant_algo").and_then(Value::as_str);
    let of_all = of_all.filter(|algo| *algo != "MIXED_PRECISION");
    own.chain(of_all).collect()
}

fn gptq(c: &Config, q: &Map<String, Value>) -> Result<Quantization, Error> {
    let bits = q.get("bits").and_then(Value::as_u64);
    let bits = bits.and_then(|bits| u32::try_from(bits).ok());
    let format = q.get("checkpoint_format").and_then(Value::as_str);
    let more = match format.unwrap_or("gptq") {
        "gptq" => 1,
        "gptq_v2" => 0,
        other => {
            return Err(c.wrong(format!(
                "checkpoint_format is {other:?}, which is not supported"
            )));
        }
    };
    match bits {
        Some(bits @ (2 | 3 | 4 | 8)) => Ok(Quantization::Grouped(Grouping::Gptq { bits, more })),
        _ => Err(c.wrong("bits of the quantization are not 2, 3, 4 or 8")),
    }
}

fn awq(c: &Config, q: &Map<String, Value>) -> Result<Quantization, Error> {
    let bits = q.get("bits").or_else(|| q.get("w_bit"));
    let version = q.get("version").and_then(Value::as_str).unwrap_or("gemm");
    match (
        bits.and_then(Value::as_u64),
        version.to_lowercase().as_str(),
    ) {
        (Some(4), "gemm") => Ok(Quantization::Grouped(Grouping::Awq)),
        _ => Err(c.wrong(format!(
            "is quantized by AWQ as {version}, and only gemm of 4 bits is supported"
        ))),
    }
}

fn compressed(c: &Config, q: &Map<String, Value>) -> Result<Quantization, Error> {
    let groups = q.get("config_groups").and_then(Value::as_object);
    let groups: Vec<&Value> = groups.into_iter().flat_map(Map::values).collect();
    refuse_transforms(c, q)?;
    if let Some(format) = unknown_format(q, &groups) {
        return Err(c.wrong(format!(
            "is quantized by compressed-tensors as {format}, which is not supported"
        )));
    }
    let structures = groups
        .iter()
        .filter_map(|group| group.get("weights")?.get("block_structure"));
    let structure = structures.into_iter().find(|value| !value.is_null());
    let block = block(c, structure)?;
    Ok(Quantization::Grouped(Grouping::Compressed { block }))
}

/// Refuses rotated and sparse matrices.
fn refuse_transforms(c: &Config, q: &Map<String, Value>) -> Result<(), Error> {
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
    for field in ["transform_config", "sparsity_config"] {
        if q.get(field).is_some_and(|value| !is_empty(value)) {
            return Err(c.wrong(format!("{field} of the quantization is not supported")));
        }
    }
    Ok(())
}

/// A format of compressed-tensors, of all matrices or of a group, that is not read.
fn unknown_format<'a>(q: &'a Map<String, Value>, groups: &[&'a Value]) -> Option<&'a str> {
    const KNOWN: [&str; 7] = [
        "dense",
        "pack-quantized",
        "int-quantized",
        "float-quantized",
        "naive-quantized",
        "nvfp4-pack-quantized",
        // Then each group says its own.
        "mixed-precision",
    ];
    let of_all = q.get("format").and_then(Value::as_str);
    let own = groups
        .iter()
        .filter_map(|group| group.get("format")?.as_str());
    own.chain(of_all).find(|format| !KNOWN.contains(format))
}

fn mlx_sizes(c: &Config, q: &Map<String, Value>) -> Result<Quantization, Error> {
    let usual = mlx_size(c, q)?;
    let mut others = BTreeMap::new();
    for (name, value) in q {
        if let Value::Object(own) = value {
            others.insert(name.clone(), mlx_size(c, own)?);
        }
    }
    Ok(Quantization::Grouped(Grouping::Mlx(MlxSizes {
        usual,
        others,
    })))
}

fn mlx_size(c: &Config, q: &Map<String, Value>) -> Result<MlxSize, Error> {
    let count = |key: &str| q.get(key).and_then(Value::as_u64);
    match q.get("mode").and_then(Value::as_str).unwrap_or("affine") {
        "affine" => {}
        other => {
            return Err(c.wrong(format!(
                "is quantized by MLX as {other}, which is not supported"
            )));
        }
    }
    match (count("bits"), count("group_size")) {
        (Some(bits @ 2..=8), Some(d_group @ 1..)) => Ok(MlxSize {
            bits: bits as u32,
            d_group,
        }),
        _ => Err(c.wrong("bits and group_size of the quantization are no counts")),
    }
}

impl MlxSizes {
    /// Those of a matrix; `name` may lack the prefixes of wrappers.
    fn of(&self, name: &str) -> MlxSize {
        let is_it = |other: &str| {
            other == name
                || other
                    .strip_suffix(name)
                    .is_some_and(|rest| rest.ends_with('.'))
        };
        let own = self.others.iter().find(|(other, _)| is_it(other));
        own.map_or(self.usual, |(_, size)| *size)
    }
}

/// The tensors of a matrix in a checkpoint.
struct Parts<'a> {
    all: &'a mut RawTensors,
    /// Their name up to the last point, with it.
    stem: &'a str,
}

impl Parts<'_> {
    fn take(&mut self, part: &str) -> Option<RawTensor> {
        self.all.take(&format!("{}{part}", self.stem))
    }

    fn need(&mut self, part: &str) -> Result<RawTensor, Error> {
        let name = format!("{}{part}", self.stem);
        self.all.take(&name).ok_or_else(|| Error::Missing.of(&name))
    }

    fn gptq(mut self, bits: u32, more: i32) -> Result<Option<GroupedMatrix>, Error> {
        let Some(words) = self.take("qweight") else {
            return Ok(None);
        };
        let scales = self.need("scales")?;
        let zeros = self.need("qzeros")?;
        let listed = self.take("g_idx");
        let [n_words, n_rows] = two_dims(&words)?;
        let [n_groups, _] = two_dims(&scales)?;
        let n_columns = n_words.saturating_mul(32) / u64::from(bits);
        expect(&scales, &[n_groups, n_rows])?;
        let groups = groups_of(listed.as_ref(), &scales, [n_columns, n_groups])?;
        let codes = Codes::new(words, bits, Packing::Columns, [n_rows, n_columns])?;
        let zeros = Codes::new(zeros, bits, Packing::Lines, [n_groups, n_rows])?;
        GroupedMatrix::new(
            Levels::ByRow(codes),
            by_group(scales),
            Offsets::Zeros { codes: zeros, more },
            groups,
            [n_rows, n_columns],
        )
        .map(Some)
    }

    fn awq(mut self) -> Result<Option<GroupedMatrix>, Error> {
        let Some(words) = self.take("qweight") else {
            return Ok(None);
        };
        let scales = self.need("scales")?;
        let zeros = self.need("qzeros")?;
        let [n_columns, n_words] = two_dims(&words)?;
        let [n_groups, _] = two_dims(&scales)?;
        let n_rows = n_words.saturating_mul(8);
        expect(&scales, &[n_groups, n_rows])?;
        let groups = even(&scales, n_columns, n_groups)?;
        let codes = Codes::new(words, 4, Packing::Interleaved, [n_columns, n_rows])?;
        let zeros = Codes::new(zeros, 4, Packing::Interleaved, [n_groups, n_rows])?;
        GroupedMatrix::new(
            Levels::ByColumn(codes),
            by_group(scales),
            Offsets::Zeros {
                codes: zeros,
                more: 0,
            },
            groups,
            [n_rows, n_columns],
        )
        .map(Some)
    }

    fn compressed(mut self) -> Result<Option<GroupedMatrix>, Error> {
        let whole = format!("{}weight", self.stem);
        if self
            .all
            .get(&whole)
            .is_some_and(|raw| raw.dtype() == Dtype::I8)
        {
            return self.signed().map(Some);
        }
        let Some(words) = self.take("weight_packed") else {
            return Ok(None);
        };
        let [n_rows, n_columns] = matrix_shape(&self.need("weight_shape")?)?;
        let scales = self.need("weight_scale")?;
        let zeros = self.take("weight_zero_point");
        let listed = self.take("weight_g_idx");
        let [_, n_groups] = two_dims(&scales)?;
        expect(&scales, &[n_rows, n_groups])?;
        let groups = groups_of(listed.as_ref(), &scales, [n_columns, n_groups])?;
        let bits = bits_of(&words, n_columns)?;
        let offsets = zeros_of_groups(zeros, bits, [n_groups, n_rows])?;
        let codes = Codes::new(words, bits, Packing::Lines, [n_rows, n_columns])?;
        GroupedMatrix::new(
            Levels::ByRow(codes),
            by_row(scales),
            offsets,
            groups,
            [n_rows, n_columns],
        )
        .map(Some)
    }

    /// Integers of 8 bits with a scale for each row.
    fn signed(mut self) -> Result<GroupedMatrix, Error> {
        let raw = self.need("weight")?;
        let scales = self.need("weight_scale")?;
        let [n_rows, n_columns] = two_dims(&raw)?;
        let [_, n_groups] = two_dims(&scales)?;
        expect(&scales, &[n_rows, n_groups])?;
        if let Some(zeros) = self.take("weight_zero_point")
            && zeros.bytes().iter().any(|&byte| byte != 0)
        {
            return Err(Error::NotSupported.of(zeros.name()));
        }
        let groups = even(&scales, n_columns, n_groups)?;
        GroupedMatrix::new(
            Levels::Signed(raw),
            by_row(scales),
            Offsets::Zero(0),
            groups,
            [n_rows, n_columns],
        )
    }

    fn mlx(mut self, sizes: &MlxSizes) -> Result<Option<GroupedMatrix>, Error> {
        let Some(scales) = self.take("scales") else {
            return Ok(None);
        };
        let words = self.need("weight")?;
        let biases = self.need("biases")?;
        let MlxSize { bits, d_group } = sizes.of(self.stem.trim_end_matches('.'));
        let [n_rows, n_groups] = two_dims(&scales)?;
        let n_columns = n_groups.saturating_mul(d_group);
        expect(&biases, &[n_rows, n_groups])?;
        let codes = Codes::new(words, bits, Packing::Lines, [n_rows, n_columns])?;
        GroupedMatrix::new(
            Levels::ByRow(codes),
            by_row(scales),
            Offsets::Biases(by_row(biases)),
            Groups::Even(d_group),
            [n_rows, n_columns],
        )
        .map(Some)
    }
}

fn by_group(raw: RawTensor) -> PerGroup {
    PerGroup {
        raw,
        is_by_group: true,
    }
}

fn by_row(raw: RawTensor) -> PerGroup {
    PerGroup {
        raw,
        is_by_group: false,
    }
}

/// The only number of a tensor.
fn one_number(raw: &RawTensor) -> Result<f32, Error> {
    let mut number = [0.0];
    match raw.dims() {
        [] | [1] => raw.floats(0, &mut number).map(|()| number[0]),
        dims => Err(Error::Dims {
            expected: vec![1],
            got: dims.to_vec(),
        }
        .of(raw.name())),
    }
}

fn two_dims(raw: &RawTensor) -> Result<[u64; 2], Error> {
    match raw.dims() {
        [rows, columns] => Ok([*rows, *columns]),
        dims => Err(Error::Dims {
            expected: vec![0, 0],
            got: dims.to_vec(),
        }
        .of(raw.name())),
    }
}

fn expect(raw: &RawTensor, dims: &[u64]) -> Result<(), Error> {
    match raw.dims() == dims {
        true => Ok(()),
        false => Err(Error::Dims {
            expected: dims.to_vec(),
            got: raw.dims().to_vec(),
        }
        .of(raw.name())),
    }
}

/// Groups of equal size; `scales` is named in the error.
fn even(scales: &RawTensor, n_columns: u64, n_groups: u64) -> Result<Groups, Error> {
    match n_columns.checked_rem(n_groups) {
        Some(0) if n_columns > 0 => Ok(Groups::Even(n_columns / n_groups)),
        _ => Err(Error::Groups {
            n_groups,
            n_columns,
        }
        .of(scales.name())),
    }
}

/// The groups of columns: as listed, one for each column, or of equal size where the list is
/// missing or says nothing but -1.
fn groups_of(
    listed: Option<&RawTensor>,
    scales: &RawTensor,
    [n_columns, n_groups]: [u64; 2],
) -> Result<Groups, Error> {
    let Some(listed) = listed else {
        return even(scales, n_columns, n_groups);
    };
    expect(listed, &[n_columns])?;
    let all = integers(listed)?;
    if all.iter().all(|&group| group == -1) {
        return even(listed, n_columns, n_groups);
    }
    let group = |group: i64| u64::try_from(group).ok().filter(|&group| group < n_groups);
    let all: Option<Vec<u64>> = all.into_iter().map(group).collect();
    let all = all.ok_or_else(|| {
        Error::Groups {
            n_groups,
            n_columns,
        }
        .of(listed.name())
    })?;
    match even(listed, n_columns, n_groups) {
        Ok(Groups::Even(n)) if all.iter().zip(0..).all(|(&group, c)| group == c / n) => {
            Ok(Groups::Even(n))
        }
        _ => Ok(Groups::Listed(all)),
    }
}

/// Rows and columns that a checkpoint says in a tensor.
fn matrix_shape(raw: &RawTensor) -> Result<[u64; 2], Error> {
    let all: Vec<u64> = integers(raw)?
        .into_iter()
        .filter_map(|n| u64::try_from(n).ok())
        .collect();
    match all[..] {
        [rows, columns] if rows > 0 && columns > 0 => Ok([rows, columns]),
        _ => Err(Error::NotSupported.of(raw.name())),
    }
}

fn integers(raw: &RawTensor) -> Result<Vec<i64>, Error> {
    match raw.dtype() {
        Dtype::I64 => Ok(raw
            .bytes()
            .as_chunks()
            .0
            .iter()
            .map(|&b| i64::from_le_bytes(b))
            .collect()),
        Dtype::I32 => Ok(raw
            .bytes()
            .as_chunks()
            .0
            .iter()
            .map(|&b| i32::from_le_bytes(b).into())
            .collect()),
        dtype => Err(Error::Words { dtype }.of(raw.name())),
    }
}

/// The zeros of compressed-tensors; the middle of all codes where it has none.
fn zeros_of_groups(zeros: Option<RawTensor>, bits: u32, dims: [u64; 2]) -> Result<Offsets, Error> {
    match zeros {
        None => Ok(Offsets::Zero(1 << (bits - 1))),
        Some(zeros) => Ok(Offsets::Zeros {
            codes: Codes::new(zeros, bits, Packing::Columns, dims)?,
            more: 0,
        }),
    }
}

/// The bits of a code in words of `n_columns` a row, a whole number of words for each bit.
fn bits_of(words: &RawTensor, n_columns: u64) -> Result<u32, Error> {
    let [_, n_words] = two_dims(words)?;
    (1..=8)
        .find(|&bits| n_columns / 32 * u64::from(bits) == n_words)
        .filter(|_| n_columns.is_multiple_of(32))
        .ok_or_else(|| {
            Error::Dims {
                expected: vec![n_columns],
                got: words.dims().to_vec(),
            }
            .of(words.name())
        })
}
