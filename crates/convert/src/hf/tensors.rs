//! Builds the tensors of a model from a checkpoint: finds each one and applies its transformations.
//!
//! `ModelSpec::tensors` is the only list of tensors. Each listed tensor is taken out of the
//! checkpoint; the caller reports those left over.

use atta_formats::TensorType;
use atta_model::{
    Placement, Role, TensorReq,
    spec::{Attention, DeltaNet, ModelSpec, Presence},
};

use super::{
    delta_net, factors,
    family::{Experts, Family, GateUpLayout},
    gemma3n, gemma4,
    heads::RowOrder,
    latent,
    multipliers::Multipliers,
    mxfp4::Mxfp4,
    names::usual_name,
    ngrams,
    quantized::Quantization,
    rope::{Rope, RopeType},
    rows::{Change, ConstantRows, GatheredRows, ReorderedColumns, RowMap, TransposedRows},
    source_tensor::SourceTensor,
};
use crate::{
    Error, MappedRows, RowSource, Tensor,
    raw::{RawTensor, RawTensors},
};

/// Builds tensors from those of a checkpoint.
pub(super) struct TensorBuilder<'a> {
    pub(super) family: &'a Family,
    pub(super) rope: &'a Rope<'a>,
    pub(super) quantization: &'a Quantization,
    /// Whether the head is tied to the embedding.
    pub(super) is_tied: bool,
    /// The width of a head.
    pub(super) d_head: u64,
    /// Rows at the start of the table of positions that no position uses.
    pub(super) n_skipped_positions: u64,
    /// The gated delta nets of the model, which are all alike.
    pub(super) net: Option<&'a DeltaNet>,
    /// The first attention of the model.
    pub(super) attention: Option<&'a Attention>,
    /// Factors of the configuration that are in weights.
    pub(super) multipliers: Multipliers,
    pub(super) raw: &'a mut RawTensors,
    /// Of matrices that were built last.
    pub(super) factors: Vec<Tensor>,
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
    pub(super) fn all(&mut self, reqs: &[TensorReq]) -> Result<Vec<Tensor>, Error> {
        let mut tensors = Vec::new();
        for req in reqs {
            tensors.extend(self.tensor(req)?);
            tensors.append(&mut self.factors);
            if req.role == Role::FfnDownExps {
                tensors.extend(self.expert_scale(req)?);
            }
        }
        Ok(tensors)
    }

    /// A note on the matrices of `tensors` in F32, because no smaller type holds their integers and
    /// scales exactly.
    pub(super) fn widened(&self, spec: &ModelSpec, tensors: &[Tensor]) -> Option<String> {
        let is_wide = |req: &TensorReq| {
            let name = req.name();
            let is_f32 = |tensor: &Tensor| tensor.name == name && tensor.ty == TensorType::F32;
            !is_kept_in_f32(req.role, &shape_of(req)) && tensors.iter().any(is_f32)
        };
        let n = match self.quantization {
            Quantization::Grouped(_) | Quantization::Nvfp4 => {
                spec.tensors().iter().filter(|req| is_wide(req)).count()
            }
            _ => 0,
        };
        let note =
            || format!("{n} quantized matrices become F32: no block type holds them exactly");
        (n > 0).then(note)
    }

    /// An error for each tensor that is missing or cannot be used.
    pub(super) fn problems(&mut self, reqs: &[TensorReq]) -> Vec<Error> {
        let errors = reqs.iter().filter_map(|req| self.tensor(req).err());
        errors.collect()
    }

    fn tensor(&mut self, req: &TensorReq) -> Result<Option<Tensor>, Error> {
        match req.role {
            Role::Output if self.is_tied => Ok(None),
            Role::TokenEmbdMean | Role::OutputMean => Ok(None),
            Role::RopeFreqs => self.rope_freqs(req),
            Role::RopeFactorsShort => self.long_factors(req, "short_factor"),
            Role::RopeFactorsLong => self.long_factors(req, "long_factor"),
            Role::AltupProj | Role::AltupUnembdProj => {
                let from = usual_name(req.role);
                self.stack(req, |i| format!("{from}.{i}.weight")).map(Some)
            }
            Role::PerLayerTokenEmbd if req.is_padded => ngrams::table(self.raw, req).map(Some),
            Role::PerLayerTokenEmbd => self.layer_table(req).map(Some),
            Role::IndexerQ | Role::IndexerK => self.index_part(req).map(Some),
            role if latent::is_part(role) => self.latent_part(req).map(Some),
            Role::FfnGateExps | Role::FfnUpExps | Role::FfnDownExps => self.experts(req),
            Role::FfnGateExpsBias | Role::FfnUpExpsBias => self.joined_bias(req).map(Some),
            Role::AttnQNorm | Role::AttnKNorm => match self.norms_of_heads(req)? {
                None => self.single(req),
                norms => Ok(norms),
            },
            Role::FfnGate | Role::FfnUp | Role::FfnGateShexp | Role::FfnUpShexp => {
                match self.family.gate_up {
                    Some(joined) => self.half(req, joined).map(Some),
                    None => self.single(req),
                }
            }
            _ => match self
                .net
                .filter(|net| delta_net::is_in_joined(net, req.role))
            {
                Some(net) => self.of_heads(net, req).map(Some),
                None => self.single(req),
            },
        }
    }

    /// Gate or up of an MLP that are one tensor in the checkpoint.
    fn half(&mut self, req: &TensorReq, joined: &str) -> Result<Tensor, Error> {
        let part = usize::from(matches!(req.role, Role::FfnUp | Role::FfnUpShexp));
        let from = self.family.in_layer(joined, req.layer);
        let source = SourceTensor::Plain(self.share(&from, part == 1)?);
        let shape = shape_of(req);
        source.expect(&[shape[0].saturating_mul(2), shape[1]])?;
        let order = order_in(GateUpLayout::Halves, part, shape[0]);
        Ok(Tensor {
            name: req.name(),
            ty: source.tensor_type(),
            rows: Box::new(moved(source, &shape, order)?),
            dims: shape,
        })
    }

    /// A part of the projections of a gated delta net that are one tensor in the checkpoint.
    fn of_heads(&mut self, net: &DeltaNet, req: &TensorReq) -> Result<Tensor, Error> {
        let from = self.family.in_layer(delta_net::JOINED, req.layer);
        let source = SourceTensor::Plain(self.share(&from, req.role == Role::AttnGate)?);
        let shape = shape_of(req);
        source.expect(&[delta_net::n_joined(net), shape[1]])?;
        Ok(Tensor {
            name: req.name(),
            ty: source.tensor_type(),
            rows: Box::new(moved(
                source,
                &shape,
                delta_net::order_in_joined(net, req.role),
            )?),
            dims: shape,
        })
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

    /// Factors of longrope; `None` if the architecture does without, and so does the model.
    fn long_factors(&self, req: &TensorReq, name: &str) -> Result<Option<Tensor>, Error> {
        match (self.rope.kind()?, req.presence) {
            (RopeType::LongRope, _) | (_, Presence::Required) => {
                self.values(req, self.rope.long_factors(name)?).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The projection of keys or of values from a latent vector.
    fn latent_part(&mut self, req: &TensorReq) -> Result<Tensor, Error> {
        let from = self.name(req);
        let source = match req.role {
            Role::AttnKB => SourceTensor::copy(self.raw, self.quantization, &from, req.role)?,
            _ => SourceTensor::take(self.raw, self.quantization, &from, req.role)?,
        };
        let source = source.ok_or_else(|| Error::Missing.of(&from))?;
        let attention = self.attention.ok_or_else(|| Error::Missing.of(&from))?;
        Ok(Tensor {
            name: req.name(),
            dims: shape_of(req),
            ty: match req.role {
                // Transposed.
                Role::AttnKB => source.float_type(),
                _ => source.tensor_type(),
            },
            rows: latent::part(source, req.role, attention)?,
        })
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
        let keeps_name = fused.is_some() || self.family.otherwise_named.contains(&req.role);
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
    fn make(&mut self, target: Target, mut source: SourceTensor) -> Result<Tensor, Error> {
        let Target {
            name,
            role,
            layer,
            shape,
        } = target;
        let is_transposed = self.family.is_transposed && layer.is_some() && shape.len() == 2;
        let stored = self.stored_shape(role, &shape, &source, is_transposed);
        source.expect(&stored)?;
        let is_multiplied = self.multipliers.change(role);
        if !is_multiplied {
            let parts = std::slice::from_mut(&mut source);
            self.factors.extend(factors::split(role, &name, parts));
        }
        let columns_of = self
            .net
            .map_or(RowMap::Same, |net| delta_net::column_order(net, role));
        let change = self.change(role);
        let keeps_columns = !is_transposed && columns_of == RowMap::Same;
        let keeps_rows = keeps_columns && change == Change::None && !is_multiplied;
        let ty = match is_kept_in_f32(role, &shape) {
            true => TensorType::F32,
            false if keeps_rows => source.tensor_type(),
            false => source.float_type(),
        };
        // The gate of the shared expert, a matrix of one row, is written as a vector.
        let dims = shape
            .iter()
            .copied()
            .skip(usize::from(role == Role::FfnGateInpShexp))
            .collect();
        let rows: Box<dyn RowSource> = match (self.order(role, shape[0]), change) {
            _ if is_transposed => Box::new(columns(source, &shape, RowMap::Same)?),
            _ if columns_of != RowMap::Same => Box::new(ReorderedColumns {
                source,
                d_row: to_usize(shape[1])?,
                order: columns_of,
            }),
            (RowMap::Same, Change::None) if stored.last() == shape.last() => {
                whole(source, &shape, ty)?
            }
            (order, change) => Box::new(GatheredRows {
                change,
                ty,
                ..moved(source, &shape, order)?
            }),
        };
        let d_row = to_usize(shape[shape.len() - 1])?;
        let rows = self.multipliers.apply(role, d_row, rows);
        Ok(Tensor {
            name,
            dims,
            ty,
            rows,
        })
    }

    /// The shape of a tensor in the checkpoint.
    fn stored_shape(
        &self,
        role: Role,
        shape: &[u64],
        source: &SourceTensor,
        is_transposed: bool,
    ) -> Vec<u64> {
        match role {
            // Some have it in a matrix of one row.
            Role::ExpProbsBias if source.dims().len() == 2 => vec![1, shape[0]],
            // A convolution of each channel by itself.
            Role::SsmConv | Role::ShortconvConv | Role::PleConv1d => {
                vec![shape[0], 1, shape[1]]
            }
            Role::SsmConvQ | Role::SsmConvK | Role::SsmConvV if source.dims().len() == 2 => {
                vec![shape[0], shape[2]]
            }
            Role::SsmA if source.dims().len() == 4 => vec![1, 1, shape[0], 1],
            Role::SsmA | Role::SsmD if shape.last() == Some(&1) => vec![shape[0]],
            Role::SsmNorm => vec![shape.iter().product()],
            Role::PositionEmbd => {
                vec![shape[0].saturating_add(self.n_skipped_positions), shape[1]]
            }
            _ if is_transposed => shape.iter().rev().copied().collect(),
            _ => shape.to_vec(),
        }
    }

    /// The rows of the source for `n_rows` rows of the result.
    fn order(&self, role: Role, n_rows: u64) -> RowMap {
        match role {
            Role::PositionEmbd if self.n_skipped_positions > 0 => RowMap::Part {
                take: n_rows,
                of: n_rows.saturating_add(self.n_skipped_positions),
                first: self.n_skipped_positions,
                step: 1,
            },
            _ => RowOrder {
                family: self.family,
                net: self.net,
                d_head: self.d_head,
            }
            .of(role, n_rows),
        }
    }

    fn change(&self, role: Role) -> Change {
        use Role::*;
        let is_norm = matches!(
            role,
            AttnNorm
                | AttnPostNorm
                | AttnQNorm
                | AttnKNorm
                | FfnNorm
                | FfnPostNorm
                | OutputNorm
                | HcAttnNorm
                | HcFfnNorm
                | OutputHcNorm
                | PleNormKey
                | PleNormQuery
                | PleNormConv
                | IndexerQNorm
                | IndexerKNorm
                | NextnEnorm
                | NextnHnorm
                | NextnSharedHeadNorm
        );
        match self.family.norm_offset {
            // The factor of a gated delta net's decays.
            _ if role == Role::SsmA => Change::NegExp,
            offset if is_norm && offset != 0.0 => Change::Add(offset),
            // Adding 0 would turn -0 into 0.
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
        let joined = self.joined_name(req, e);
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
        if *self.quantization == Quantization::Mxfp4 {
            return self.blocks(req, &joined, e.gate_up).map(Some);
        }
        if e.gate_up == GateUpLayout::PlainRows {
            return self.plain_rows(req, &joined).map(Some);
        }
        if self.raw.get(&joined).is_some() {
            return self.joined(req, &joined, e.gate_up).map(Some);
        }
        self.stacked(req, e).map(Some)
    }

    /// The name of a matrix of all experts that are one tensor, with gate and up joined.
    fn joined_name(&self, req: &TensorReq, e: &Experts) -> String {
        let both = part_of(req.role) / 2;
        let own = format!("{}{}", e.prefix, ["gate_up_proj", "down_proj"][both]);
        let names = [&own, e.joined[both]].map(|name| self.family.in_layer(name, req.layer));
        let [own, usual] = names;
        match self.raw.get(&own) {
            Some(_) => own,
            None => usual,
        }
    }

    /// Stacks experts that are separate tensors.
    fn stacked(&mut self, req: &TensorReq, e: &Experts) -> Result<Tensor, Error> {
        let family = self.family;
        let part = e.parts[part_of(req.role)];
        self.stack(req, |x| {
            family.in_layer(&format!("{}{x}.{part}", e.prefix), req.layer)
        })
    }

    /// The table of embeddings per layer.
    fn layer_table(&mut self, req: &TensorReq) -> Result<Tensor, Error> {
        let from = self.name(req);
        let source = SourceTensor::take(self.raw, self.quantization, &from, req.role)?
            .ok_or_else(|| Error::Missing.of(&from))?;
        match source.dims().first() == Some(&(req.shape[0] as u64)) {
            true => self.make(target_of(req), source),
            false => gemma3n::table(req, source),
        }
    }

    /// Stacks matrices that are separate tensors.
    fn stack(&mut self, req: &TensorReq, name: impl Fn(u64) -> String) -> Result<Tensor, Error> {
        let shape = shape_of(req);
        let mut parts = Vec::new();
        for x in 0..shape[0] {
            let from = name(x);
            let source = SourceTensor::take(self.raw, self.quantization, &from, req.role)?
                .ok_or_else(|| Error::Missing.of(&from))?;
            source.expect(&shape[1..])?;
            parts.push(source);
        }
        let factors = factors::split(req.role, &req.name(), &mut parts);
        self.factors.extend(factors);
        let ty = common_type(&parts)?;
        let d = to_usize(shape[2])?;
        let rows = GatheredRows {
            parts,
            n_each: shape[1],
            width: d,
            d_row: d,
            order: RowMap::Same,
            change: Change::None,
            ty,
        };
        Ok(Tensor {
            name: req.name(),
            dims: shape,
            ty,
            rows: Box::new(rows),
        })
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
        let stored = match layout {
            GateUpLayout::Halves | GateUpLayout::PlainRows => [n, n_columns, d_in],
            GateUpLayout::Columns | GateUpLayout::ColumnHalves => [n, d_in, n_columns],
        };
        source.expect(&stored)?;
        let ty = source.tensor_type();
        let order = order_in(layout, part, d_out);
        let rows: Box<dyn RowSource> = match layout {
            GateUpLayout::Columns | GateUpLayout::ColumnHalves => Box::new(TransposedRows {
                n_columns,
                ..columns(source, &[d_out, d_in], order)?
            }),
            GateUpLayout::Halves | GateUpLayout::PlainRows => {
                let d = to_usize(d_in)?;
                let n_each = n.saturating_mul(d_out);
                Box::new(GatheredRows {
                    parts: vec![source],
                    n_each,
                    width: d,
                    d_row: d,
                    order,
                    change: Change::None,
                    ty,
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
            ty: TensorType::F32,
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

    /// A tensor that is used twice. It is taken out the second time.
    pub(super) fn share(&mut self, name: &str, is_last: bool) -> Result<RawTensor, Error> {
        let tensor = if is_last {
            self.raw.take(name)
        } else {
            self.raw.get(name).cloned()
        };
        tensor.ok_or_else(|| Error::Missing.of(name))
    }
}

/// The type of all parts of a tensor; a type of floats, if integers in some of them need one.
pub(super) fn common_type(parts: &[SourceTensor]) -> Result<TensorType, Error> {
    let first = parts[0].tensor_type();
    if parts.iter().all(|part| part.tensor_type() == first) {
        return Ok(first);
    }
    let ty = parts[0].float_type();
    let Some(other) = parts.iter().find(|part| part.float_type() != ty) else {
        return Ok(ty);
    };
    let others = ty;
    let ty = other.tensor_type();
    Err(Error::Mixed { ty, others }.of(other.name()))
}

/// A tensor of the requested name and shape.
fn target_of(req: &TensorReq) -> Target {
    Target {
        name: req.name(),
        role: req.role,
        layer: req.layer,
        shape: shape_of(req),
    }
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
    let part = part as u64;
    let (first, step) = match layout {
        GateUpLayout::Columns => (part, 2),
        _ => (part * n, 1),
    };
    let of = n.saturating_mul(2);
    match part {
        2.. => RowMap::Same,
        _ => RowMap::Part {
            take: n,
            of,
            first,
            step,
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
pub(super) fn whole(
    source: SourceTensor,
    shape: &[u64],
    ty: TensorType,
) -> Result<Box<dyn RowSource>, Error> {
    if let Some(raw) = source
        .plain()
        .filter(|raw| raw.dtype().tensor_type() == Some(ty))
    {
        return Ok(Box::new(
            MappedRows::new(raw.file(), raw.at(), raw.dims(), ty).map_err(|e| e.of(raw.name()))?,
        ));
    }
    Ok(Box::new(GatheredRows {
        ty,
        ..moved(source, shape, RowMap::Same)?
    }))
}

pub(super) fn moved(
    source: SourceTensor,
    shape: &[u64],
    order: RowMap,
) -> Result<GatheredRows, Error> {
    let d_row = to_usize(shape[shape.len() - 1])?;
    let n = shape.iter().fold(1, |n: u64, &d| n.saturating_mul(d));
    // In a permuted vector, the unit is an element.
    let width = if shape.len() == 1 && order != RowMap::Same {
        1
    } else {
        d_row
    };
    Ok(GatheredRows {
        ty: source.tensor_type(),
        parts: vec![source],
        n_each: n / width as u64,
        width,
        d_row,
        order,
        change: Change::None,
    })
}

/// Transposes `[d_in, d_out]` to `[d_out, d_in]`.
pub(super) fn columns(
    source: SourceTensor,
    shape: &[u64],
    order: RowMap,
) -> Result<TransposedRows, Error> {
    Ok(TransposedRows {
        source,
        d_row: to_usize(shape[1])?,
        n_rows: shape[1],
        n_columns: shape[0],
        n_each: shape[0],
        order,
    })
}

pub(super) fn shape_of(req: &TensorReq) -> Vec<u64> {
    req.shape.iter().map(|&d| d as u64).collect()
}

pub(super) fn to_usize(d: u64) -> Result<usize, Error> {
    usize::try_from(d).map_err(|_| Error::NoRow { row: d })
}

fn expect_dims(name: &str, got: &[u64], expected: &[u64]) -> Result<(), Error> {
    if got == expected {
        return Ok(());
    }
    let [expected, got] = [expected, got].map(<[u64]>::to_vec);
    Err(Error::Dims { expected, got }.of(name))
}
