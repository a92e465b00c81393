//! Builds the tensors of a model from a checkpoint: finds each one and applies its transformations.
//!
//! `ModelSpec::tensors` is the only list of tensors. Each listed tensor is taken out of the
//! checkpoint; the caller reports those left over.

use atta_formats::TensorType;
use atta_model::{
    Placement, Role, TensorReq,
    spec::{DeltaNet, KeySharing, ModelSpec, Presence},
};

use super::{
    family::{DeltaLayout, Experts, Family, GateUpLayout, usual_name},
    gemma4,
    mxfp4::Mxfp4,
    rope::{Rope, RopeType},
    rows::{Change, ConstantRows, GatheredRows, RowMap, TransposedRows},
    source_tensor::{Quantization, SourceTensor},
};
use crate::{
    Error, MappedRows, RowSource, Tensor,
    raw::{RawTensor, RawTensors},
};

/// Builds tensors from those of a checkpoint.
pub(super) struct TensorBuilder<'a> {
    pub(super) family: &'a Family,
    pub(super) rope: &'a Rope<'a>,
    pub(super) quantization: Quantization,
    /// Whether the head is tied to the embedding.
    pub(super) is_tied: bool,
    /// The width of a head.
    pub(super) d_head: u64,
    /// The delta nets of a model, which are alike.
    pub(super) delta: Option<&'a DeltaNet>,
    pub(super) raw: &'a mut RawTensors,
}

/// A tensor to be built.
struct Target {
    name: String,
    role: Role,
    layer: Option<usize>,
    shape: Vec<u64>,
}

impl TensorBuilder<'_> {
    /// All tensors of a model.
    pub(super) fn all(&mut self, spec: &ModelSpec) -> Result<Vec<Tensor>, Error> {
        let mut tensors = Vec::new();
        for req in spec.tensors() {
            tensors.extend(self.tensor(&req)?);
            if req.role == Role::FfnDownExps {
                tensors.extend(self.expert_scale(&req)?);
            }
        }
        Ok(tensors)
    }

    fn tensor(&mut self, req: &TensorReq) -> Result<Option<Tensor>, Error> {
        match req.role {
            Role::Output if self.is_tied => Ok(None),
            Role::RopeFreqs => self.rope_freqs(req),
            Role::RopeFactorsShort => self
                .values(req, self.rope.long_factors("short_factor")?)
                .map(Some),
            Role::RopeFactorsLong => self
                .values(req, self.rope.long_factors("long_factor")?)
                .map(Some),
            Role::FfnGateExps | Role::FfnUpExps | Role::FfnDownExps => self.experts(req),
            Role::FfnGateExpsBias | Role::FfnUpExpsBias => self.joined_bias(req).map(Some),
            Role::SsmQkv | Role::SsmGate if self.family.delta == Some(DeltaLayout::Grouped) => {
                self.grouped(req).map(Some)
            }
            _ => self.single(req),
        }
    }

    /// The factors of experts' results, if the checkpoint has them.
    fn expert_scale(&mut self, req: &TensorReq) -> Result<Option<Tensor>, Error> {
        let from = self.family.in_layer(gemma4::EXPERT_SCALE, req.layer);
        let source = SourceTensor::take(self.raw, self.quantization, &from, req.role)?;
        let Some(source) = source else {
            return Ok(None);
        };
        let dims = vec![req.shape[0] as u64];
        source.expect(&dims)?;
        Ok(Some(Tensor {
            name: req.name().replace(".weight", ".scale"),
            rows: whole(source, &dims, TensorType::F32)?,
            dims,
            ty: TensorType::F32,
        }))
    }

    fn rope_freqs(&self, req: &TensorReq) -> Result<Option<Tensor>, Error> {
        match self.rope.kind()? {
            RopeType::Llama3 => self
                .values(req, self.rope.llama3_factors(2 * req.shape[0])?)
                .map(Some),
            RopeType::Proportional => self
                .values(req, self.rope.proportional_factors(2 * req.shape[0])?)
                .map(Some),
            _ => Ok(None),
        }
    }

    fn values(&self, req: &TensorReq, values: Vec<f32>) -> Result<Tensor, Error> {
        let dims = vec![values.len() as u64];
        expect_dims(&req.name(), &dims, &shape_of(req))?;
        Ok(Tensor {
            name: req.name(),
            dims,
            ty: TensorType::F32,
            rows: Box::new(ConstantRows(values)),
        })
    }

    /// A tensor that is a single one in the checkpoint, or that is fused with others in the
    /// checkpoint and in GGUF.
    fn single(&mut self, req: &TensorReq) -> Result<Option<Tensor>, Error> {
        let fused_in = req.fused_in.as_ref().zip(req.fused_name());
        let fused = fused_in
            .as_ref()
            .and_then(|(fused_in, _)| Some((fused_in, self.family.fused(fused_in.name)?)));
        let mut name = req.name();
        let mut shape = shape_of(req);
        let from = match fused {
            Some((fused_in, _)) if fused_in.rows.start > 0 => return Ok(None),
            Some((fused_in, from)) => {
                shape[0] = fused_in.n_rows as u64;
                self.family.in_layer(from, req.layer)
            }
            None => self.name(req),
        };
        let keeps_name =
            fused.is_some() || (self.family.keeps_post_norm_name && req.role == Role::FfnNorm);
        if let Some((_, fused_name)) = fused_in.filter(|_| keeps_name) {
            name = fused_name;
        }
        match SourceTensor::take(self.raw, self.quantization, &from, req.role)? {
            Some(source) => {
                let target = Target {
                    name,
                    role: req.role,
                    layer: req.layer,
                    shape,
                };
                self.make(target, source).map(Some)
            }
            None if req.presence == Presence::Optional && req.role != Role::Output => Ok(None),
            None => Err(Error::Missing.of(&from)),
        }
    }

    /// The checkpoint's name of a tensor. If the experts are one tensor, the router has the usual
    /// name.
    fn name(&self, req: &TensorReq) -> String {
        let own = self.family.name(req.role, req.layer);
        let usual = self.family.in_layer(usual_name(req.role), req.layer);
        let is_usual = req.role == Role::FfnGateInp
            && self.raw.get(&own).is_none()
            && self.raw.get(&usual).is_some();
        if is_usual { usual } else { own }
    }

    /// Builds a tensor with its transformations.
    fn make(&self, target: Target, source: SourceTensor) -> Result<Tensor, Error> {
        let Target {
            name,
            role,
            layer,
            shape,
        } = target;
        let is_transposed = self.family.is_transposed && layer.is_some() && shape.len() == 2;
        let stored: Vec<u64> = if is_transposed {
            shape.iter().rev().copied().collect()
        } else {
            stored_shape(role, &shape)
        };
        source.expect(&stored)?;
        let ty = if is_kept_in_f32(role, &shape) {
            TensorType::F32
        } else {
            source.tensor_type()
        };
        // The gate of the shared expert, a matrix of one row, is written as a vector.
        let dims = shape
            .iter()
            .copied()
            .skip(usize::from(role == Role::FfnGateInpShexp))
            .collect();
        let rows: Box<dyn RowSource> = match (self.order(role), self.change(role)) {
            _ if is_transposed => Box::new(columns(source, &shape, RowMap::Same)?),
            (RowMap::Same, Change::None) => whole(source, &shape, ty)?,
            (order, change) if role == Role::SsmOut => Box::new(GatheredRows {
                change,
                ..self.value_columns(source, &shape, order)?
            }),
            (order, change) => Box::new(GatheredRows {
                change,
                ..moved(source, &shape, order)?
            }),
        };
        Ok(Tensor {
            name,
            dims,
            ty,
            rows,
        })
    }

    /// A matrix whose columns are permuted by heads of values.
    fn value_columns(
        &self,
        source: SourceTensor,
        shape: &[u64],
        order: RowMap,
    ) -> Result<GatheredRows, Error> {
        let width = self.delta.map_or(1, |net| net.d_value);
        Ok(GatheredRows {
            n_each: shape[0].saturating_mul(shape[1] / width as u64),
            width,
            ..moved(source, shape, order)?
        })
    }

    fn order(&self, role: Role) -> RowMap {
        match role {
            role if self.delta.is_some_and(|net| is_of_values(role, net)) => self.value_heads(role),
            Role::AttnQ | Role::AttnQBias | Role::AttnK | Role::AttnKBias
                if self.family.is_paired =>
            {
                RowMap::Pairs {
                    d_head: self.d_head,
                }
            }
            _ => RowMap::Same,
        }
    }

    /// Whether heads of values are in another order in GGUF, and the order.
    fn value_heads(&self, role: Role) -> RowMap {
        let Some(net) = self.delta else {
            return RowMap::Same;
        };
        let n = net.n_heads as u64;
        let [before, d] = match role {
            Role::SsmQkv | Role::SsmConv => [2 * net.d_keys() as u64, net.d_value as u64],
            Role::SsmGate => [0, net.d_value as u64],
            _ => [0, 1],
        };
        RowMap::ValueHeads {
            of: before + n * d,
            before,
            d,
            n_key_heads: net.n_key_heads as u64,
            n_per_key: n / net.n_key_heads as u64,
        }
    }

    fn change(&self, role: Role) -> Change {
        use Role::*;
        if role == SsmA {
            return Change::MinusExp;
        }
        let is_norm = matches!(
            role,
            AttnNorm | AttnPostNorm | AttnQNorm | AttnKNorm | FfnNorm | FfnPostNorm | OutputNorm
        );
        match self.family.norm_offset {
            offset if is_norm && offset != 0.0 => Change::Add(offset),
            _ => Change::None,
        }
    }

    /// A matrix of all experts, which are separate tensors, one tensor, or one tensor in MXFP4.
    /// `None` for up where it is in one tensor with gate.
    fn experts(&mut self, req: &TensorReq) -> Result<Option<Tensor>, Error> {
        let family = self.family;
        let Some(e) = &family.experts else {
            return Err(Error::Missing.of(&req.name()));
        };
        let part = part_of(req.role);
        let both = if part < 2 {
            "gate_up_proj"
        } else {
            "down_proj"
        };
        // Transformers 5 calls the experts of most classes so, whatever they were called before.
        let prefixes = ["mlp.experts.", e.prefix];
        let [usual, own] = prefixes.map(|p| family.in_layer(&format!("{p}{both}"), req.layer));
        let joined = match self.raw.get(&own) {
            Some(_) => own,
            None => usual,
        };
        let fused_in = req.fused_in.as_ref().zip(req.fused_name());
        if let Some((fused_in, name)) = fused_in.filter(|_| e.keeps_gate_up) {
            if part == 1 {
                return Ok(None);
            }
            let mut shape = shape_of(req);
            shape[1] = fused_in.n_rows as u64;
            let source = SourceTensor::Plain(self.share(&joined, true)?);
            let target = Target {
                name,
                role: req.role,
                layer: req.layer,
                shape,
            };
            return self.make(target, source).map(Some);
        }
        if self.quantization == Quantization::Mxfp4 {
            return self.blocks(req, &joined, e.gate_up).map(Some);
        }
        if self.raw.get(&joined).is_some() {
            return self.joined(req, &joined, e.gate_up).map(Some);
        }
        self.stacked(req, e).map(Some)
    }

    /// Stacks experts that are separate tensors.
    fn stacked(&mut self, req: &TensorReq, e: &Experts) -> Result<Tensor, Error> {
        let shape = shape_of(req);
        let mut parts = Vec::new();
        for x in 0..shape[0] {
            let from = self.family.in_layer(
                &format!("{}{x}.{}", e.prefix, e.parts[part_of(req.role)]),
                req.layer,
            );
            let source = SourceTensor::take(self.raw, self.quantization, &from, req.role)?
                .ok_or_else(|| Error::Missing.of(&from))?;
            source.expect(&shape[1..])?;
            parts.push(source);
        }
        let ty = parts[0].tensor_type();
        match parts.iter().find(|part| part.tensor_type() != ty) {
            Some(other) => Err(Error::Mixed {
                ty: other.tensor_type(),
                others: ty,
            }
            .of(other.name())),
            None => {
                let d = to_usize(shape[2])?;
                let rows = GatheredRows {
                    parts,
                    n_each: shape[1],
                    width: d,
                    d_row: d,
                    order: RowMap::Same,
                    change: Change::None,
                };
                Ok(Tensor {
                    name: req.name(),
                    dims: shape,
                    ty,
                    rows: Box::new(rows),
                })
            }
        }
    }

    /// A matrix of all experts that are one tensor, with gate and up joined.
    fn joined(
        &mut self,
        req: &TensorReq,
        from: &str,
        layout: GateUpLayout,
    ) -> Result<Tensor, Error> {
        let shape = shape_of(req);
        let part = part_of(req.role);
        let source = SourceTensor::Plain(self.share(from, part != 0)?);
        let [n, d_out, d_in] = shape[..] else {
            unreachable!("matrices of experts have three dimensions")
        };
        let n_columns = if part < 2 {
            d_out.saturating_mul(2)
        } else {
            d_out
        };
        let stored = if layout == GateUpLayout::Columns {
            [n, d_in, n_columns]
        } else {
            [n, n_columns, d_in]
        };
        source.expect(&stored)?;
        let ty = source.tensor_type();
        let order = order_in(layout, part, d_out);
        let rows: Box<dyn RowSource> = match layout {
            GateUpLayout::Columns => Box::new(TransposedRows {
                n_columns,
                ..columns(source, &[d_out, d_in], order)?
            }),
            GateUpLayout::Halves => {
                let d = to_usize(d_in)?;
                let n_each = n.saturating_mul(d_out);
                Box::new(GatheredRows {
                    parts: vec![source],
                    n_each,
                    width: d,
                    d_row: d,
                    order,
                    change: Change::None,
                })
            }
        };
        Ok(Tensor {
            name: req.name(),
            dims: shape,
            ty,
            rows,
        })
    }

    fn joined_bias(&mut self, req: &TensorReq) -> Result<Tensor, Error> {
        let from = self.family.name(req.role, req.layer);
        let part = part_of(req.role);
        let layout = self
            .family
            .experts
            .as_ref()
            .map_or(GateUpLayout::Halves, |e| e.gate_up);
        let source = SourceTensor::Plain(self.share(&from, part != 0)?);
        let shape = shape_of(req);
        let [n, d_ff] = shape[..] else {
            unreachable!("biases of experts have two dimensions")
        };
        source.expect(&[n, d_ff.saturating_mul(2)])?;
        let rows = GatheredRows {
            parts: vec![source],
            n_each: n.saturating_mul(d_ff),
            width: 1,
            d_row: to_usize(d_ff)?,
            order: order_in(layout, part, d_ff),
            change: Change::None,
        };
        Ok(Tensor {
            name: req.name(),
            dims: shape,
            ty: TensorType::F32,
            rows: Box::new(rows),
        })
    }

    fn blocks(
        &mut self,
        req: &TensorReq,
        from: &str,
        layout: GateUpLayout,
    ) -> Result<Tensor, Error> {
        let shape = shape_of(req);
        let part = part_of(req.role);
        let [n, d_out, d_in] = shape[..] else {
            unreachable!("matrices of experts have three dimensions")
        };
        let [blocks, scales] = [format!("{from}_blocks"), format!("{from}_scales")];
        let blocks = self.share(&blocks, part != 0)?;
        let scales = self.share(&scales, part != 0)?;
        let n_rows = if part < 2 {
            d_out.saturating_mul(2)
        } else {
            d_out
        };
        expect_dims(blocks.name(), blocks.dims(), &[n, n_rows, d_in / 32, 16])?;
        expect_dims(scales.name(), scales.dims(), &[n, n_rows, d_in / 32])?;
        for bytes in [&blocks, &scales] {
            bytes.expect_bytes()?;
        }
        let rows = Mxfp4 {
            blocks,
            scales,
            n_blocks: to_usize(d_in / 32)?,
            order: order_in(layout, part, d_out),
        };
        Ok(Tensor {
            name: req.name(),
            dims: shape,
            ty: TensorType::MXFP4,
            rows: Box::new(rows),
        })
    }

    /// Queries, keys and values of a delta net, or its gates, from a tensor of groups of them.
    fn grouped(&mut self, req: &TensorReq) -> Result<Tensor, Error> {
        let Some(net) = self.delta else {
            return Err(Error::Missing.of(&req.name()));
        };
        let from = self
            .family
            .in_layer("linear_attn.in_proj_qkvz.weight", req.layer);
        let is_gate = req.role == Role::SsmGate;
        let source = SourceTensor::Plain(self.share(&from, is_gate)?);
        let shape = shape_of(req);
        let n_stored = (net.d_conv() + net.d_values()) as u64;
        source.expect(&[n_stored, shape[1]])?;
        let order = RowMap::Grouped {
            n_key_heads: net.n_key_heads as u64,
            d_key: net.d_key as u64,
            d_values: (net.d_values() / net.n_key_heads) as u64,
            is_gate,
        };
        let ty = source.tensor_type();
        let rows = GatheredRows {
            n_each: n_stored,
            ..moved(source, &shape, order)?
        };
        Ok(Tensor {
            name: req.name(),
            dims: shape,
            ty,
            rows: Box::new(rows),
        })
    }

    /// A tensor that is used twice. It is taken out the second time.
    fn share(&mut self, name: &str, is_last: bool) -> Result<RawTensor, Error> {
        let tensor = if is_last {
            self.raw.take(name)
        } else {
            self.raw.get(name).cloned()
        };
        tensor.ok_or_else(|| Error::Missing.of(name))
    }
}

/// Whether a tensor of a delta net has heads of values whose order differs.
fn is_of_values(role: Role, net: &DeltaNet) -> bool {
    use Role::*;
    let is_of_values = matches!(
        role,
        SsmQkv | SsmGate | SsmBeta | SsmAlpha | SsmConv | SsmDtBias | SsmA | SsmOut
    );
    is_of_values && net.sharing == KeySharing::InTurn
}

/// The part of a role: 0 for gate, 1 for up, 2 for down.
fn part_of(role: Role) -> usize {
    match role {
        Role::FfnGateExps | Role::FfnGateExpsBias => 0,
        Role::FfnUpExps | Role::FfnUpExpsBias => 1,
        _ => 2,
    }
}

/// Maps rows of gate or up to those of the joined tensor; down is not joined.
fn order_in(layout: GateUpLayout, part: usize, n: u64) -> RowMap {
    let of = n.saturating_mul(2);
    let part = part as u64;
    match (layout, part) {
        (_, 2..) => RowMap::Same,
        (GateUpLayout::Halves, _) => RowMap::Part {
            take: n,
            of,
            first: part * n,
            step: 1,
        },
        (GateUpLayout::Columns, _) => RowMap::Part {
            take: n,
            of,
            first: part,
            step: 2,
        },
    }
}

/// Whether llama.cpp expects a tensor in F32: vectors, routers, and positions.
fn is_kept_in_f32(role: Role, shape: &[u64]) -> bool {
    let is_small = matches!(role, Role::FfnGateInp | Role::FfnGateInpShexp)
        || role.placement() == Placement::Resident;
    is_small || shape.len() < 2
}

/// The rows of a source without transformation.
fn whole(source: SourceTensor, shape: &[u64], ty: TensorType) -> Result<Box<dyn RowSource>, Error> {
    if let Some(raw) = source
        .plain()
        .filter(|raw| raw.dtype().tensor_type() == Some(ty))
    {
        return Ok(Box::new(
            MappedRows::new(raw.file(), raw.at(), raw.dims(), ty).map_err(|e| e.of(raw.name()))?,
        ));
    }
    Ok(Box::new(moved(source, shape, RowMap::Same)?))
}

fn moved(source: SourceTensor, shape: &[u64], order: RowMap) -> Result<GatheredRows, Error> {
    let d_row = to_usize(shape[shape.len() - 1])?;
    let n = shape.iter().fold(1, |n: u64, &d| n.saturating_mul(d));
    // In a permuted vector, the unit is an element.
    let width = if shape.len() == 1 && order != RowMap::Same {
        1
    } else {
        d_row
    };
    Ok(GatheredRows {
        parts: vec![source],
        n_each: n / width as u64,
        width,
        d_row,
        order,
        change: Change::None,
    })
}

/// Transposes `[d_in, d_out]` to `[d_out, d_in]`.
fn columns(source: SourceTensor, shape: &[u64], order: RowMap) -> Result<TransposedRows, Error> {
    Ok(TransposedRows {
        source,
        d_row: to_usize(shape[1])?,
        n_columns: shape[0],
        n_each: shape[0],
        order,
    })
}

/// The shape of a tensor in checkpoints: taps of convolutions have a dimension of 1 more.
fn stored_shape(role: Role, shape: &[u64]) -> Vec<u64> {
    match (role, shape) {
        (Role::SsmConv | Role::ShortconvConv, &[d, n]) => vec![d, 1, n],
        _ => shape.to_vec(),
    }
}

fn shape_of(req: &TensorReq) -> Vec<u64> {
    req.shape.iter().map(|&d| d as u64).collect()
}

fn to_usize(d: u64) -> Result<usize, Error> {
    usize::try_from(d).map_err(|_| Error::NoRow { row: d })
}

fn expect_dims(name: &str, got: &[u64], expected: &[u64]) -> Result<(), Error> {
    match got == expected {
        true => Ok(()),
        false => Err(Error::Dims {
            expected: expected.to_vec(),
            got: got.to_vec(),
        }
        .of(name)),
    }
}
