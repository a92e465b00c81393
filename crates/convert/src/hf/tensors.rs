//! From the list of a model's tensors to each of them: where it is in the checkpoint, and what is
//! done to it.
//!
//! The list is `ModelSpec::tensors`, and there is no other. What it asks for is taken out of the
//! checkpoint; what is left is an error of the caller's.

use atta_formats::TensorType;
use atta_model::{
    Home, Role, TensorReq,
    spec::{ModelSpec, Presence},
};

use super::{
    family::{Experts, Family, Joined, usual_name},
    mxfp4::Mxfp4,
    rope::{Kind, Rope},
    rows::{Moved, Order, Transposed, Values},
    source::{Quantization, Source},
};
use crate::{
    Error, Rows, Stored, Tensor,
    raw::{RawTensor, RawTensors},
};

/// What tensors are made from.
pub(super) struct Assembly<'a> {
    pub(super) family: &'a Family,
    pub(super) rope: &'a Rope<'a>,
    pub(super) how: Quantization,
    /// Whether the head is the embedding.
    pub(super) is_tied: bool,
    /// Width of a head.
    pub(super) d_head: u64,
    pub(super) raw: &'a mut RawTensors,
}

/// A tensor to be made.
struct Wanted {
    name: String,
    role: Role,
    layer: Option<usize>,
    shape: Vec<u64>,
}

impl Assembly<'_> {
    /// All tensors of a model.
    pub(super) fn all(&mut self, spec: &ModelSpec) -> Result<Vec<Tensor>, Error> {
        let mut tensors = Vec::new();
        for req in spec.tensors() {
            tensors.extend(self.tensor(&req)?);
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
            Role::FfnGateExps | Role::FfnUpExps | Role::FfnDownExps => self.experts(req).map(Some),
            Role::FfnGateExpsBias | Role::FfnUpExpsBias => self.joined_bias(req).map(Some),
            _ => self.single(req),
        }
    }

    fn rope_freqs(&self, req: &TensorReq) -> Result<Option<Tensor>, Error> {
        match self.rope.kind()? {
            Kind::Llama3 => self
                .values(req, self.rope.llama3_factors(2 * req.shape[0])?)
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
            rows: Box::new(Values(values)),
        })
    }

    /// A tensor that is one in the checkpoint, too, or is fused with others there and in files.
    fn single(&mut self, req: &TensorReq) -> Result<Option<Tensor>, Error> {
        let within = req.within.as_ref().zip(req.within_name());
        let fused = within
            .as_ref()
            .and_then(|(within, _)| Some((within, self.family.fused(within.name)?)));
        let mut name = req.name();
        let mut shape = shape_of(req);
        let from = match fused {
            Some((within, _)) if within.rows.start > 0 => return Ok(None),
            Some((within, from)) => {
                shape[0] = within.n_rows as u64;
                self.family.in_layer(from, req.layer)
            }
            None => self.name(req),
        };
        let keeps_name =
            fused.is_some() || (self.family.keeps_post_norm_name && req.role == Role::FfnNorm);
        if let Some((_, within_name)) = within.filter(|_| keeps_name) {
            name = within_name;
        }
        match Source::take(self.raw, self.how, &from, req.role)? {
            Some(source) => {
                let wanted = Wanted {
                    name,
                    role: req.role,
                    layer: req.layer,
                    shape,
                };
                self.make(wanted, source).map(Some)
            }
            None if req.presence == Presence::Optional && req.role != Role::Output => Ok(None),
            None => Err(Error::Missing.of(&from)),
        }
    }

    /// What the checkpoint calls a tensor. Where experts are one tensor, their router has the usual
    /// name.
    fn name(&self, req: &TensorReq) -> String {
        let own = self.family.name(req.role, req.layer);
        let usual = self.family.in_layer(usual_name(req.role), req.layer);
        let is_usual = req.role == Role::FfnGateInp
            && self.raw.get(&own).is_none()
            && self.raw.get(&usual).is_some();
        if is_usual { usual } else { own }
    }

    /// What is done to the weights of a tensor.
    fn make(&self, wanted: Wanted, source: Source) -> Result<Tensor, Error> {
        let Wanted {
            name,
            role,
            layer,
            shape,
        } = wanted;
        let is_transposed = self.family.is_transposed && layer.is_some() && shape.len() == 2;
        let stored: Vec<u64> = if is_transposed {
            shape.iter().rev().copied().collect()
        } else {
            shape.clone()
        };
        source.expect(&stored)?;
        let ty = if is_kept_in_f32(role, &shape) {
            TensorType::F32
        } else {
            source.tensor_type()
        };
        // A matrix of one row is written as a vector.
        let dims = shape
            .iter()
            .copied()
            .skip(usize::from(role == Role::FfnGateInpShexp))
            .collect();
        let rows: Box<dyn Rows> = match (self.order(role), self.offset(role)) {
            _ if is_transposed => Box::new(columns(source, &shape, Order::Same)?),
            (Order::Same, 0.0) => whole(source, &shape, ty)?,
            (order, offset) => Box::new(Moved {
                offset,
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

    fn order(&self, role: Role) -> Order {
        match role {
            Role::AttnQ | Role::AttnQBias | Role::AttnK | Role::AttnKBias
                if self.family.is_paired =>
            {
                Order::Pairs {
                    d_head: self.d_head,
                }
            }
            _ => Order::Same,
        }
    }

    fn offset(&self, role: Role) -> f32 {
        use Role::*;
        let is_norm = matches!(
            role,
            AttnNorm | AttnPostNorm | AttnQNorm | AttnKNorm | FfnNorm | FfnPostNorm | OutputNorm
        );
        if is_norm {
            self.family.norm_offset
        } else {
            0.0
        }
    }

    /// A matrix of all experts: each a tensor of its own, or all in one, with or without blocks.
    fn experts(&mut self, req: &TensorReq) -> Result<Tensor, Error> {
        let family = self.family;
        let Some(e) = &family.experts else {
            return Err(Error::Missing.of(&req.name()));
        };
        let part = part_of(req.role);
        let joined = family.in_layer(
            &format!(
                "mlp.experts.{}",
                if part < 2 {
                    "gate_up_proj"
                } else {
                    "down_proj"
                }
            ),
            req.layer,
        );
        if self.how == Quantization::Mxfp4 {
            return self.blocks(req, &joined, e.joined);
        }
        if self.raw.get(&joined).is_some() {
            return self.joined(req, &joined, e.joined);
        }
        self.stacked(req, e)
    }

    fn stacked(&mut self, req: &TensorReq, e: &Experts) -> Result<Tensor, Error> {
        let shape = shape_of(req);
        let mut parts = Vec::new();
        for x in 0..shape[0] {
            let from = self.family.in_layer(
                &format!("{}{x}.{}", e.prefix, e.parts[part_of(req.role)]),
                req.layer,
            );
            let source = Source::take(self.raw, self.how, &from, req.role)?
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
                let rows = Moved {
                    parts,
                    n_each: shape[1],
                    width: d,
                    d_row: d,
                    order: Order::Same,
                    offset: 0.0,
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

    /// A matrix of all experts in one tensor, gate and up together.
    fn joined(&mut self, req: &TensorReq, from: &str, how: Joined) -> Result<Tensor, Error> {
        let shape = shape_of(req);
        let part = part_of(req.role);
        let source = Source::Plain(self.share(from, part != 0)?);
        let [n, d_out, d_in] = shape[..] else {
            unreachable!("matrices of experts have three dimensions")
        };
        let n_columns = if part < 2 {
            d_out.saturating_mul(2)
        } else {
            d_out
        };
        let stored = if how == Joined::Columns {
            [n, d_in, n_columns]
        } else {
            [n, n_columns, d_in]
        };
        source.expect(&stored)?;
        let ty = source.tensor_type();
        let order = order_in(how, part, d_out);
        let rows: Box<dyn Rows> = match how {
            Joined::Columns => Box::new(Transposed {
                n_columns,
                ..columns(source, &[d_out, d_in], order)?
            }),
            Joined::Halves => {
                let d = to_usize(d_in)?;
                let n_each = n.saturating_mul(d_out);
                Box::new(Moved {
                    parts: vec![source],
                    n_each,
                    width: d,
                    d_row: d,
                    order,
                    offset: 0.0,
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
        let how = self
            .family
            .experts
            .as_ref()
            .map_or(Joined::Halves, |e| e.joined);
        let source = Source::Plain(self.share(&from, part != 0)?);
        let shape = shape_of(req);
        let [n, d_ff] = shape[..] else {
            unreachable!("biases of experts have two dimensions")
        };
        source.expect(&[n, d_ff.saturating_mul(2)])?;
        let rows = Moved {
            parts: vec![source],
            n_each: n.saturating_mul(d_ff),
            width: 1,
            d_row: to_usize(d_ff)?,
            order: order_in(how, part, d_ff),
            offset: 0.0,
        };
        Ok(Tensor {
            name: req.name(),
            dims: shape,
            ty: TensorType::F32,
            rows: Box::new(rows),
        })
    }

    fn blocks(&mut self, req: &TensorReq, from: &str, how: Joined) -> Result<Tensor, Error> {
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
            order: order_in(how, part, d_out),
        };
        Ok(Tensor {
            name: req.name(),
            dims: shape,
            ty: TensorType::MXFP4,
            rows: Box::new(rows),
        })
    }

    /// A tensor that is asked for twice; the last time it is taken out.
    fn share(&mut self, name: &str, is_last: bool) -> Result<RawTensor, Error> {
        let tensor = if is_last {
            self.raw.take(name)
        } else {
            self.raw.get(name).cloned()
        };
        tensor.ok_or_else(|| Error::Missing.of(name))
    }
}

/// Gate, up or down.
fn part_of(role: Role) -> usize {
    match role {
        Role::FfnGateExps | Role::FfnGateExpsBias => 0,
        Role::FfnUpExps | Role::FfnUpExpsBias => 1,
        _ => 2,
    }
}

/// Which units of a joined tensor are gate, or up; all of them are down.
fn order_in(how: Joined, part: usize, n: u64) -> Order {
    let of = n.saturating_mul(2);
    let part = part as u64;
    match (how, part) {
        (_, 2..) => Order::Same,
        (Joined::Halves, _) => Order::Part {
            take: n,
            of,
            first: part * n,
            step: 1,
        },
        (Joined::Columns, _) => Order::Part {
            take: n,
            of,
            first: part,
            step: 2,
        },
    }
}

/// The rest of the world expects these in f32: vectors, and what chooses experts.
fn is_kept_in_f32(role: Role, shape: &[u64]) -> bool {
    let is_small =
        matches!(role, Role::FfnGateInp | Role::FfnGateInpShexp) || role.home() == Home::Kept;
    is_small || shape.len() < 2
}

/// Rows to which nothing is done.
fn whole(source: Source, shape: &[u64], ty: TensorType) -> Result<Box<dyn Rows>, Error> {
    if let Some(raw) = source
        .plain()
        .filter(|raw| raw.dtype().tensor_type() == Some(ty))
    {
        return Ok(Box::new(
            Stored::new(raw.file(), raw.at(), raw.dims(), ty).map_err(|e| e.of(raw.name()))?,
        ));
    }
    Ok(Box::new(moved(source, shape, Order::Same)?))
}

fn moved(source: Source, shape: &[u64], order: Order) -> Result<Moved, Error> {
    let d_row = to_usize(shape[shape.len() - 1])?;
    let n = shape.iter().fold(1, |n: u64, &d| n.saturating_mul(d));
    // Elements of a vector are moved one by one.
    let width = if shape.len() == 1 && order != Order::Same {
        1
    } else {
        d_row
    };
    Ok(Moved {
        parts: vec![source],
        n_each: n / width as u64,
        width,
        d_row,
        order,
        offset: 0.0,
    })
}

/// Columns of `[d_in, d_out]` as rows of `[d_out, d_in]`.
fn columns(source: Source, shape: &[u64], order: Order) -> Result<Transposed, Error> {
    Ok(Transposed {
        source,
        d_row: to_usize(shape[1])?,
        n_columns: shape[0],
        n_each: shape[0],
        order,
    })
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
