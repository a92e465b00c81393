//! Binds the tensors of an adapter to the matrices of a model, or refuses the file.
//!
//! A GGUF file has `NAME.lora_a`, `[rank, d_in]`, and `NAME.lora_b`, `[d_out, rank]`, for tensor
//! `NAME` of the model; of experts one after another. `NAME` may be the larger tensor that some
//! files have instead of several: each then has its rows of `B`, and all share `A`.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use atta_formats::{Directory, TensorInfo};
use atta_kernels::Matrix;
use atta_store::{Budget, Extent, ModelFiles, Reservation};

use super::{Adapter, Factor, LowRank};
use crate::{Error, Placement, Role, TensorReq, spec::ModelSpec};

/// Bytes that the matrices of an adapter begin at a multiple of.
const ALIGNED: usize = 64;

impl Adapter {
    /// Reads an adapter for a model of this spec and architecture (`general.architecture`).
    ///
    /// # Errors
    /// [`Error::Adapter`] for a file that is no LoRA adapter, one of another architecture, a tensor
    /// without a matrix that adapters may add to, or of another shape; an exceeded budget.
    pub fn load(
        spec: &ModelSpec,
        architecture: &str,
        files: &ModelFiles,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let alpha = check_metadata(files.directory(), architecture)?;
        let reqs = spec.tensors();
        let found = pairs(spec, &reqs, files.directory())?;
        let infos = found.iter().flat_map(|found| [found.a, found.b]);
        let read = ReadTensors::read(&infos.collect::<Vec<_>>(), files, budget)?;
        let mut pairs = HashMap::new();
        for found in &found {
            let starts = [found.a, found.b].map(|info| read.start(info));
            for part in &found.parts {
                let key = (part.req.role, part.req.layer);
                let pair = found.low_rank(part, starts, alpha);
                if pairs.insert(key, pair).is_some() {
                    return refuse(format!("tensor {}: adapted twice", part.req.name()));
                }
            }
        }
        Ok(Self {
            pairs,
            bytes: read.bytes,
            _memory: read.memory,
        })
    }
}

/// The bytes of all tensors of a file.
struct ReadTensors<'a> {
    bytes: Vec<u8>,
    /// Where tensors begin in `bytes`, by name.
    starts: HashMap<&'a str, usize>,
    memory: Reservation,
}

impl<'a> ReadTensors<'a> {
    fn read(infos: &[&'a TensorInfo], files: &ModelFiles, budget: &Budget) -> Result<Self, Error> {
        let n_bytes = infos.iter().map(|info| aligned_bytes(info)).sum();
        let memory = budget.reserve("adapters", n_bytes)?;
        let mut bytes = Vec::with_capacity(n_bytes as usize);
        let mut starts = HashMap::new();
        for info in infos {
            starts.insert(info.name.as_str(), bytes.len());
            bytes.extend_from_slice(&files.read(Extent {
                shard: info.shard,
                offset: info.offset,
                bytes: info.n_bytes,
            })?);
            bytes.resize(bytes.len().next_multiple_of(ALIGNED), 0);
        }
        Ok(Self {
            bytes,
            starts,
            memory,
        })
    }

    fn start(&self, info: &TensorInfo) -> usize {
        self.starts.get(info.name.as_str()).copied().unwrap_or(0)
    }
}

/// Bytes of a tensor with padding.
fn aligned_bytes(info: &TensorInfo) -> u64 {
    info.n_bytes.next_multiple_of(ALIGNED as u64)
}

fn refuse<T>(why: String) -> Result<T, Error> {
    Err(Error::Adapter(why))
}

/// Checks that the file is an adapter for the architecture; its alpha, 0 without one.
fn check_metadata(directory: &Directory, architecture: &str) -> Result<f32, Error> {
    let metadata = directory.metadata();
    for (key, expected) in [
        ("general.type", "adapter"),
        ("adapter.type", "lora"),
        ("general.architecture", architecture),
    ] {
        let found = metadata.shown(key);
        if found != expected {
            return refuse(format!("{key} is {found:?}, expected {expected:?}"));
        }
    }
    if metadata.get("adapter.alora.invocation_tokens").is_some() {
        return refuse(
            "adapter.alora.invocation_tokens: activated adapters (aLoRA) are not supported"
                .to_owned(),
        );
    }
    let alpha = metadata.f32("adapter.lora.alpha")?.unwrap_or(0.0);
    match alpha.is_finite() {
        true => Ok(alpha),
        false => refuse(format!(
            "adapter.lora.alpha is {alpha}, expected a finite number"
        )),
    }
}

/// The two tensors of an adapter for a tensor of a model's file.
struct FoundPair<'a> {
    a: &'a TensorInfo,
    b: &'a TensorInfo,
    parts: Vec<PairPart<'a>>,
}

/// A matrix of the model, and its rows of the tensor in files.
struct PairPart<'a> {
    req: &'a TensorReq,
    rows: Range<usize>,
}

impl FoundPair<'_> {
    /// The pair of one matrix; its tensors begin at `starts`.
    fn low_rank(&self, part: &PairPart<'_>, [a, b]: [usize; 2], alpha: f32) -> LowRank {
        let factor = |info: &TensorInfo, start| {
            let [n_rows, d_in] = [1, 0].map(|i| dim_from_end(info, i));
            Factor {
                ty: info.ty,
                n_rows,
                d_in,
                start,
                stride: n_rows * info.ty.row_bytes(d_in).unwrap_or(0),
            }
        };
        let b = factor(self.b, b);
        let row_bytes = b.ty.row_bytes(b.d_in).unwrap_or(0);
        let rank = b.d_in as f32;
        LowRank {
            a: factor(self.a, a),
            b: Factor {
                n_rows: part.rows.len(),
                start: b.start + part.rows.start * row_bytes,
                ..b
            },
            scale: if alpha == 0.0 { 1.0 } else { alpha / rank },
        }
    }
}

/// The tensors of the file by pairs, each with the matrices of the model that it adds to.
fn pairs<'a>(
    spec: &ModelSpec,
    reqs: &'a [TensorReq],
    directory: &'a Directory,
) -> Result<Vec<FoundPair<'a>>, Error> {
    let mut named: BTreeMap<&str, [Option<&'a TensorInfo>; 2]> = BTreeMap::new();
    for info in directory.tensors() {
        let [a, b] = [".lora_a", ".lora_b"].map(|end| info.name.strip_suffix(end));
        match a.or(b) {
            Some(name) => named.entry(name).or_default()[usize::from(b.is_some())] = Some(info),
            None => {
                return refuse(format!(
                    "tensor {}: expected NAME.lora_a or NAME.lora_b",
                    info.name
                ));
            }
        }
    }
    let used = named.into_iter().filter(|(name, _)| !spec.is_idle(name));
    used.map(|(name, halves)| match halves {
        [Some(a), Some(b)] => FoundPair::of(name, a, b, reqs),
        [Some(_), None] => refuse(format!("tensor {name}.lora_b is missing")),
        [None, _] => refuse(format!("tensor {name}.lora_a is missing")),
    })
    .collect()
}

impl<'a> FoundPair<'a> {
    /// The pair for the tensor `name` of a model's file.
    fn of(
        name: &str,
        a: &'a TensorInfo,
        b: &'a TensorInfo,
        reqs: &'a [TensorReq],
    ) -> Result<Self, Error> {
        let of_name =
            |req: &&TensorReq| req.name() == name || req.fused_name().as_deref() == Some(name);
        let of_name: Vec<&TensorReq> = reqs.iter().filter(of_name).collect();
        let Some(first) = of_name.first() else {
            return refuse(format!("tensor {name}: the model has no such tensor"));
        };
        check_roles(&of_name)?;
        check_types([a, b])?;
        let [n_rows, rank] = [1, 0].map(|i| dim_from_end(b, i));
        let part = |&req: &&'a TensorReq| PairPart::of(name, n_rows, req);
        let parts: Vec<_> = of_name.iter().filter_map(part).collect();
        let n_expected = match parts.is_empty() {
            true => b_rows(first),
            false => n_rows,
        };
        let expected = expected_shapes(first, n_expected, rank);
        for (info, expected) in [a, b].into_iter().zip(expected) {
            check_shape(info, &expected)?;
        }
        Ok(Self { a, b, parts })
    }
}

impl<'a> PairPart<'a> {
    /// The matrix of a requirement with this name, if a tensor of the file with `n_rows` is it or
    /// has it.
    fn of(name: &str, n_rows: usize, req: &'a TensorReq) -> Option<Self> {
        let fused = req
            .fused_in
            .as_ref()
            .filter(|fused| fused.n_rows == n_rows && req.fused_name().as_deref() == Some(name));
        let is_whole = req.name() == name && n_rows == b_rows(req);
        let rows = match fused {
            Some(fused) => Some(fused.rows.clone()),
            None => is_whole.then_some(0..n_rows),
        };
        rows.map(|rows| Self { req, rows })
    }
}

fn check_roles(reqs: &[&TensorReq]) -> Result<(), Error> {
    match reqs.iter().find(|req| !req.role.is_adaptable()) {
        Some(req) => refuse(format!(
            "tensor {}: adapters of it are not supported",
            req.name()
        )),
        None => Ok(()),
    }
}

fn check_types(infos: [&TensorInfo; 2]) -> Result<(), Error> {
    match infos.into_iter().find(|info| !Matrix::supports(info.ty)) {
        Some(info) => refuse(format!("tensor {}: type {}", info.name, info.ty)),
        None => Ok(()),
    }
}

/// Dimension `i` from the end, the innermost being 0; 1 beyond the first.
fn dim_from_end(info: &TensorInfo, i: usize) -> usize {
    info.shape
        .dims()
        .iter()
        .rev()
        .nth(i)
        .map_or(1, |&d| d as usize)
}

/// Rows of `B`: those of the matrix, but of the embedding its width.
fn b_rows(req: &TensorReq) -> usize {
    match req.role.placement() {
        Placement::Embed => req.shape[1],
        _ => req.shape[req.rows_dim()],
    }
}

/// The shapes of `A` and `B` for a matrix, or a larger one of `n_rows`.
fn expected_shapes(req: &TensorReq, n_rows: usize, rank: usize) -> [Vec<usize>; 2] {
    let d_in = req.shape.last().copied().unwrap_or(0);
    match req.role.placement() {
        Placement::Embed => [vec![req.shape[0], rank], vec![n_rows, rank]],
        Placement::Experts => {
            let n = req.shape[0];
            [vec![n, rank, d_in], vec![n, n_rows, rank]]
        }
        _ => [vec![rank, d_in], vec![n_rows, rank]],
    }
}

/// Refuses another shape; outermost dimensions of 1 may be left out.
fn check_shape(info: &TensorInfo, expected: &[usize]) -> Result<(), Error> {
    let got = info.shape.dims().iter().copied().skip_while(|&d| d == 1);
    let wanted = expected.iter().map(|&d| d as u64).skip_while(|&d| d == 1);
    match got.eq(wanted) && !expected.contains(&0) {
        true => Ok(()),
        false => Err(Error::Shape {
            name: info.name.clone(),
            expected: expected.to_vec(),
            got: info.shape.to_string(),
        }),
    }
}

impl Role {
    /// Whether adapters may add to the products of this matrix.
    pub fn is_adaptable(self) -> bool {
        use Role::*;
        matches!(
            self,
            TokenEmbd
                | Output
                | AttnQ
                | AttnK
                | AttnV
                | AttnGate
                | AttnQA
                | AttnQB
                | AttnKvA
                | AttnOutput
                | ShortconvInProj
                | ShortconvOutProj
                | SsmIn
                | SsmQkv
                | SsmBeta
                | SsmAlpha
                | SsmBetaAlpha
                | SsmOut
                | FfnGate
                | FfnUp
                | FfnDown
                | FfnGateInp
                | FfnGateExps
                | FfnUpExps
                | FfnDownExps
                | FfnGateShexp
                | FfnUpShexp
                | FfnDownShexp
                | FfnGateInpShexp
        )
    }
}
