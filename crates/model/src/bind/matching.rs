//! Which tensor of a file, or which of its rows, is each tensor of a model.

use std::{collections::HashSet, ops::Range};

use atta_formats::{Directory, TensorInfo};
use atta_kernels::Matrix;
use atta_store::Extent;

use crate::{
    Error, Placement, Role, TensorReq,
    spec::{LayerSpec, ModelSpec, Presence},
};

impl ModelSpec {
    /// Whether a tensor of this name that the model may have is not computed with: it belongs to a
    /// layer behind the last one, to one that is left out or to all such layers, or to the keys and
    /// values of a layer that attends to another's.
    pub(crate) fn is_idle(&self, tensor: &str) -> bool {
        let layer = tensor
            .strip_prefix("blk.")
            .and_then(|name| name.split_once('.'));
        let Some((l, name)) = layer.and_then(|(l, name)| Some((l.parse().ok()?, name))) else {
            let has_name = |role: &Role| role.name() == tensor;
            let is_rope = ROPE_ROLES.iter().any(has_name) && self.left_out().next().is_some();
            return is_rope || self.join.is_some() && tensor == GUESSED;
        };
        if let Some(join) = &self.join {
            let own = join.first_block..join.first_block + self.layers.len();
            return !own.contains(&l) && join.first_block > 0;
        }
        let n_layers = self.layers.len();
        let is_beyond = (n_layers..n_layers + self.n_nextn).contains(&l);
        is_beyond || self.layers.get(l).is_some_and(|layer| layer.is_idle(name))
    }

    /// Whether a file has exactly the tensors of this model.
    ///
    /// # Errors
    /// A tensor that is missing, has another shape, is of a type that we do not run, or that the
    /// model has no use for.
    pub fn check_tensors(&self, directory: &Directory) -> Result<(), Error> {
        match_tensors(self, &self.tensors(), directory).map(|_| ())
    }
}

impl LayerSpec {
    /// Whether it computes nothing with a tensor of that name.
    fn is_idle(&self, name: &str) -> bool {
        let shares = self.attention().is_some_and(|a| a.kv_layer().is_some());
        let is_kv = || KV_ROLES.iter().any(|role| role.name() == name);
        self.is_left_out() || shares && is_kv()
    }
}

/// The tensor with the tokens that a draft head can guess.
pub(crate) const GUESSED: &str = "d2t";

/// The tensors that all layers with rope factors share.
const ROPE_ROLES: [Role; 3] = [
    Role::RopeFreqs,
    Role::RopeFactorsShort,
    Role::RopeFactorsLong,
];

/// The tensors of keys and values, which some files have in layers that do not compute any.
const KV_ROLES: [Role; 5] = [
    Role::AttnK,
    Role::AttnKBias,
    Role::AttnV,
    Role::AttnVBias,
    Role::AttnKNorm,
];

/// Optional tensors that belong together: a file has all of them, in every layer that may have
/// them, or none.
const TOGETHER: [&[Role]; 3] = [
    &[Role::AttnQNorm, Role::AttnKNorm],
    &[Role::RopeFactorsShort, Role::RopeFactorsLong],
    &[Role::SsmNorm],
];

/// A tensor of the model, and the rows of a tensor of the file that it is; mostly all of them.
pub(super) struct TensorMatch<'a> {
    pub(super) req: &'a TensorReq,
    pub(super) info: &'a TensorInfo,
    pub(super) rows: Range<usize>,
    /// Rows of the tensor of the file; a matrix of one row may be stored as a vector, so its
    /// dimensions do not tell.
    pub(super) n_rows: usize,
    /// The tensor with its scale, or those of all experts.
    pub(super) scale: Option<&'a TensorInfo>,
}

/// Matches every required and every present optional tensor with a tensor of the file. Refuses a
/// file with tensors that are not used.
pub(super) fn match_tensors<'a>(
    spec: &ModelSpec,
    reqs: &'a [TensorReq],
    directory: &'a Directory,
) -> Result<Vec<TensorMatch<'a>>, Error> {
    let mut unused: HashSet<&str> = directory
        .tensors()
        .iter()
        .map(|t| t.name.as_str())
        .collect();
    let mut all = Vec::with_capacity(reqs.len());
    for req in reqs {
        match find(req, directory)? {
            Some(found) => {
                unused.remove(found.info.name.as_str());
                found.scale.map(|scale| unused.remove(scale.name.as_str()));
                // The scale of inputs that are quantized to four bits, which atta does not do.
                if let Some(name) = parameter(found.info, "input_scale") {
                    unused.remove(name.as_str());
                }
                all.push(found);
            }
            None if req.presence == Presence::Optional => {}
            None => return Err(missing(req, directory)),
        }
    }
    check_together(reqs, &all, directory)?;
    let unused = |t: &&TensorInfo| unused.contains(t.name.as_str());
    for left in directory.tensors().iter().filter(unused) {
        if !spec.is_idle(&left.name) {
            return Err(Error::UnusedTensor(left.name.clone()));
        }
    }
    Ok(all)
}

/// Refuses a file with some of the tensors that belong together.
fn check_together(
    reqs: &[TensorReq],
    found: &[TensorMatch<'_>],
    directory: &Directory,
) -> Result<(), Error> {
    let present: HashSet<_> = found.iter().map(|m| (m.req.role, m.req.layer)).collect();
    for roles in TOGETHER {
        let of_roles = reqs.iter().filter(|req| roles.contains(&req.role));
        let (found, lacking): (Vec<_>, Vec<_>) =
            of_roles.partition(|req| present.contains(&(req.role, req.layer)));
        if let (Some(_), Some(req)) = (found.first(), lacking.first()) {
            return Err(missing(req, directory));
        }
    }
    Ok(())
}

/// The tensor under its own name, or as rows of a larger one.
fn find<'a>(
    req: &'a TensorReq,
    directory: &'a Directory,
) -> Result<Option<TensorMatch<'a>>, Error> {
    if let (Some(fused_in), Some(name)) = (&req.fused_in, req.fused_name())
        && let Some(info) = directory.tensor(&name)
        && info.shape.dims().get(req.rows_dim()) == Some(&(fused_in.n_rows as u64))
    {
        let shape = req.shape_of_rows(fused_in.n_rows);
        return Ok(Some(TensorMatch {
            req,
            info: checked(name, shape, info)?,
            rows: fused_in.rows.clone(),
            n_rows: fused_in.n_rows,
            scale: scale(req, info, directory)?,
        }));
    }
    let Some(info) = directory.tensor(&req.name()) else {
        return Ok(None);
    };
    let least = req.shape[req.rows_dim()];
    let n_rows = match info.shape.dims().get(req.rows_dim()) {
        Some(&n) if req.is_padded && n > least as u64 => n as usize,
        _ => least,
    };
    let info = checked(req.name(), req.shape_of_rows(n_rows), info)?;
    Ok(Some(TensorMatch {
        req,
        info,
        rows: 0..least,
        n_rows,
        scale: scale(req, info, directory)?,
    }))
}

/// The name of a parameter of a matrix, `blk.0.ffn_up.scale` of `blk.0.ffn_up.weight`.
fn parameter(matrix: &TensorInfo, name: &str) -> Option<String> {
    let stem = matrix.name.strip_suffix("weight")?;
    Some(format!("{stem}{name}"))
}

/// What multiplies the products of a matrix, or of each expert's; the file may have it for any but
/// the embedding. That of a router is a tensor of its own in the spec: it multiplies the input.
fn scale<'a>(
    req: &TensorReq,
    matrix: &TensorInfo,
    directory: &'a Directory,
) -> Result<Option<&'a TensorInfo>, Error> {
    let n_scales = match req.role.placement() {
        Placement::Resident | Placement::Embed | Placement::LayerEmbed => return Ok(None),
        Placement::Experts => req.shape[0],
        Placement::Layer(_) if req.role == Role::FfnGateInp && !is_one(directory, matrix) => {
            return Ok(None);
        }
        Placement::Layer(_) | Placement::LastLayer(_) | Placement::Head => 1,
    };
    let Some(name) = parameter(matrix, "scale") else {
        return Ok(None);
    };
    directory
        .tensor(&name)
        .map(|info| checked(name.clone(), vec![n_scales], info))
        .transpose()
}

/// Whether the scale of a matrix is one number.
fn is_one(directory: &Directory, matrix: &TensorInfo) -> bool {
    parameter(matrix, "scale")
        .and_then(|name| directory.tensor(&name))
        .is_some_and(|info| info.shape.n_elements() == 1)
}

/// The error of a tensor that was not found: it is missing, or the tensor that it should be fused
/// in has another shape.
fn missing(req: &TensorReq, directory: &Directory) -> Error {
    let held = req.fused_in.as_ref().zip(req.fused_name());
    let held = held.and_then(|(fused_in, name)| Some((fused_in, directory.tensor(&name)?)));
    // A tensor that is as large as the missing one is its neighbour, stored alone.
    match held.filter(|(fused_in, info)| {
        info.shape.dims().get(req.rows_dim()) != Some(&(fused_in.rows.len() as u64))
    }) {
        Some((fused_in, info)) => Error::Shape {
            name: info.name.clone(),
            expected: req.shape_of_rows(fused_in.n_rows),
            got: info.shape.to_string(),
        },
        None => Error::MissingTensor {
            name: req.name(),
            shape: req.shape.clone(),
        },
    }
}

/// A tensor of the expected shape and of a type that there are kernels for. Outermost dimensions of
/// 1 are written or left out: a matrix of one row may be stored as a vector.
fn checked(name: String, expected: Vec<usize>, info: &TensorInfo) -> Result<&TensorInfo, Error> {
    let dims = expected.iter().map(|&d| d as u64).skip_while(|&d| d == 1);
    if !info
        .shape
        .dims()
        .iter()
        .copied()
        .skip_while(|&d| d == 1)
        .eq(dims)
    {
        return Err(Error::Shape {
            name,
            expected,
            got: info.shape.to_string(),
        });
    }
    if !Matrix::supports(info.ty) {
        return Err(atta_formats::Error::UnsupportedType {
            tensor: name,
            ty: info.ty,
        }
        .into());
    }
    Ok(info)
}

impl TensorMatch<'_> {
    /// The bytes of its rows, which are whole blocks in matrices; of experts all bytes of the
    /// tensor that has their rows.
    pub(super) fn extent(&self) -> Extent {
        if self.req.role.placement() == Placement::Experts {
            return Extent {
                shard: self.info.shard,
                offset: self.info.offset,
                bytes: self.info.n_bytes,
            };
        }
        let row_bytes = self.info.n_bytes / self.n_rows as u64;
        let offset = self.rows.start as u64 * row_bytes;
        let bytes = self.rows.len() as u64 * row_bytes;
        Extent {
            shard: self.info.shard,
            offset: self.info.offset + offset,
            bytes,
        }
    }
}
