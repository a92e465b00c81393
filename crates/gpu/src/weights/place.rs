//! Which matrices a part has, and where each lies.

use super::{DecodedRows, GpuExperts, GpuMatrix, MatrixKey, PlacedMatrices, RowChoice};
use crate::executor::{OF_CHANNELS, OF_MAMBA, OF_SHORT_CONV, SELECTION};
use crate::{ArenaPlan, Error, MatrixShape, WeightFormat};
use atta_model::spec::{Attention, Latent, LatentUp, LayerSpec, Mamba2, Mixer, OutputGate};
use atta_model::{BoundTensor, Model, Role, Share};

/// The matrices of a layer, and the roles of their biases.
const OF_LAYER: [(Role, Option<Role>); 32] = [
    (Role::AttnQ, Some(Role::AttnQBias)),
    (Role::AttnK, Some(Role::AttnKBias)),
    (Role::AttnV, Some(Role::AttnVBias)),
    (Role::AttnGate, None),
    (Role::AttnQA, None),
    (Role::AttnQB, None),
    (Role::AttnKvA, None),
    (Role::AttnOutput, Some(Role::AttnOutputBias)),
    (Role::FfnGate, Some(Role::FfnGateBias)),
    (Role::FfnUp, Some(Role::FfnUpBias)),
    (Role::FfnDown, Some(Role::FfnDownBias)),
    (Role::InpGate, None),
    (Role::Proj, None),
    (Role::FfnGateInp, Some(Role::FfnGateInpBias)),
    (Role::FfnGateInpShexp, None),
    (Role::FfnGateShexp, None),
    (Role::FfnUpShexp, None),
    (Role::FfnDownShexp, None),
    (Role::ShortconvInProj, None),
    (Role::ShortconvOutProj, None),
    (Role::SsmQkv, None),
    (Role::SsmBeta, None),
    (Role::SsmAlpha, None),
    (Role::SsmBetaAlpha, None),
    (Role::SsmIn, None),
    (Role::SsmOut, None),
    (Role::SsmX, None),
    (Role::SsmDt, None),
    (Role::SsmFA, None),
    (Role::SsmFB, None),
    (Role::SsmGA, None),
    (Role::SsmGB, None),
];

/// The matrices of the experts of a layer, and the roles of their biases.
const OF_EXPERTS: [(Role, Role); 3] = [
    (Role::FfnGateExps, Role::FfnGateExpsBias),
    (Role::FfnUpExps, Role::FfnUpExpsBias),
    (Role::FfnDownExps, Role::FfnDownExpsBias),
];

/// The type and shape of a bound matrix.
struct Bound<'a> {
    shape: MatrixShape,
    /// What multiplies its products: one factor, or one per expert; empty: nothing.
    scales: &'a [f32],
}

/// Places all matrices of a part.
pub(super) fn matrices(
    model: &Model,
    part: &Share,
    plan: &mut ArenaPlan,
) -> Result<PlacedMatrices, Error> {
    let mut placed = PlacedMatrices::default();
    let all = part.layers.clone();
    for l in all {
        for (role, bias) in OF_LAYER {
            if model.tensor(role, Some(l)).is_some() {
                placed.place(model, l, role, bias, plan)?;
            }
        }
        let attention = model.spec().layers[l].attention();
        if let Some(latent) = attention.and_then(Attention::latent) {
            placed.place_heads(model, l, latent, plan)?;
        }
        for (role, bias) in OF_EXPERTS {
            if model.tensor(role, Some(l)).is_some() {
                let experts = experts(model, l, role, bias, plan)?;
                placed.experts.insert((role, Some(l)), experts);
            }
        }
    }
    if part.head {
        let head = head(model, plan)?;
        placed.matrices.insert((Role::Output, None), head);
    }
    Ok(placed)
}

impl PlacedMatrices {
    /// Places a matrix of a layer; one with several things for each row as as many.
    fn place(
        &mut self,
        model: &Model,
        l: usize,
        role: Role,
        bias: Option<Role>,
        plan: &mut ArenaPlan,
    ) -> Result<(), Error> {
        let bound = bound(model, (role, Some(l)), bias)?;
        let layer = &model.spec().layers[l];
        for (part, rows) in parts_of(layer, role, bound.shape) {
            let matrix = matrix(&bound, role, bias, rows, plan)?;
            self.matrices.insert((part, Some(l)), matrix);
        }
        Ok(())
    }

    /// Places the matrices of the heads of latent attention.
    fn place_heads(
        &mut self,
        model: &Model,
        l: usize,
        latent: &Latent,
        plan: &mut ArenaPlan,
    ) -> Result<(), Error> {
        for part in parts_of_heads(latent) {
            let bound = bound(model, (part.from, Some(l)), None)?;
            let matrix = of_heads(&bound, &part, plan)?;
            self.heads.insert((part.role, Some(l)), matrix);
        }
        Ok(())
    }
}

/// Some rows of the matrix of each head of a tensor.
struct HeadPart {
    role: Role,
    from: Role,
    rows: RowChoice,
    /// Whether the rows become f32.
    decodes: bool,
}

/// The matrices of keys and those of values. Where a file has both in one, those of keys are
/// transposed: the CPU decodes their rows, so they are f32 here.
fn parts_of_heads(latent: &Latent) -> [HeadPart; 2] {
    let part = |role, from, rows| HeadPart {
        role,
        from,
        rows,
        decodes: false,
    };
    let joint = |n, first| RowChoice {
        n,
        n_all: latent.d_up(),
        first,
    };
    match latent.up {
        LatentUp::Split => [
            (Role::AttnKB, latent.d_latent),
            (Role::AttnVB, latent.d_value),
        ]
        .map(|(role, n)| part(role, role, RowChoice::all(n))),
        LatentUp::Joint => [
            HeadPart {
                decodes: true,
                ..part(Role::AttnKB, Role::AttnKvB, joint(latent.d_key, 0))
            },
            part(
                Role::AttnVB,
                Role::AttnKvB,
                joint(latent.d_value, latent.d_key),
            ),
        ],
    }
}

/// Places some rows of heads, those of a head in one buffer.
fn of_heads(bound: &Bound<'_>, part: &HeadPart, plan: &mut ArenaPlan) -> Result<GpuMatrix, Error> {
    let HeadPart { from, rows, .. } = *part;
    let scale = bound.scales.first().copied().unwrap_or(1.0);
    let file = bound.shape.format;
    let decoded = part.decodes.then_some(DecodedRows { file, scale });
    let shape = MatrixShape {
        format: decoded.map_or(file, |_| WeightFormat::F32),
        d_out: rows.n_of(bound.shape.d_out),
        ..bound.shape
    };
    Ok(GpuMatrix {
        format: shape.format,
        scale: decoded.map_or(scale, |_| 1.0),
        d_out: shape.d_out,
        d_in: shape.d_in,
        slices: plan.in_runs(shape, rows.n)?,
        from,
        bias: None,
        decoded,
        rows,
    })
}

/// What a matrix of a layer is, and which of its rows each part is: mostly one, all rows.
fn parts_of(layer: &LayerSpec, role: Role, shape: MatrixShape) -> Vec<(Role, RowChoice)> {
    let n_all = shape.d_out;
    match (role, &layer.mixer) {
        // The gates of a head are the rows behind those of its query.
        (Role::AttnQ, Mixer::Attention(a)) if a.gate == OutputGate::Elements => {
            let roles = [Role::AttnQ, Role::AttnGate];
            in_turn(&roles, &[a.d_head; 2], 2 * a.d_head)
        }
        (Role::ShortconvInProj, Mixer::ShortConv(_)) => {
            in_turn(&OF_SHORT_CONV, &[n_all / OF_SHORT_CONV.len(); 3], n_all)
        }
        (Role::SsmIn, Mixer::Mamba(mamba)) => in_turn(&OF_CHANNELS, &[mamba.d_inner; 2], n_all),
        (Role::SsmX, Mixer::Mamba(mamba)) => {
            let widths = [mamba.d_rank, mamba.d_state, mamba.d_state];
            in_turn(&SELECTION, &widths, n_all)
        }
        (Role::SsmIn, Mixer::Mamba2(mamba)) => of_mamba(mamba, n_all),
        (Role::SsmIn, Mixer::AttentionAndMamba2(both)) => of_mamba(&both.mamba, n_all),
        // Of each key the gains of its heads, then their decays.
        (Role::SsmBetaAlpha, Mixer::DeltaNet(net)) => {
            let n = net.n_heads / net.n_key_heads;
            in_turn(&[Role::SsmBeta, Role::SsmAlpha], &[n; 2], 2 * n)
        }
        _ => vec![(role, RowChoice::all(n_all))],
    }
}

fn of_mamba(mamba: &Mamba2, n_all: usize) -> Vec<(Role, RowChoice)> {
    let widths = [mamba.d_inner(), mamba.d_conv(), mamba.n_heads];
    in_turn(&OF_MAMBA, &widths, n_all)
}

/// Parts of so many rows behind each other, in each run of `n_all`.
fn in_turn(roles: &[Role], widths: &[usize], n_all: usize) -> Vec<(Role, RowChoice)> {
    let mut first = 0;
    let part = |(&role, &n): (&Role, &usize)| {
        let rows = RowChoice { n, n_all, first };
        first += n;
        (role, rows)
    };
    roles.iter().zip(widths).map(part).collect()
}

/// Places the rows of a matrix that are chosen.
fn matrix(
    bound: &Bound<'_>,
    from: Role,
    bias: Option<Role>,
    rows: RowChoice,
    plan: &mut ArenaPlan,
) -> Result<GpuMatrix, Error> {
    let shape = MatrixShape {
        d_out: rows.n_of(bound.shape.d_out),
        ..bound.shape
    };
    Ok(GpuMatrix {
        format: shape.format,
        scale: bound.scales.first().copied().unwrap_or(1.0),
        d_out: shape.d_out,
        d_in: shape.d_in,
        slices: plan.matrix(shape)?,
        from,
        bias,
        decoded: None,
        rows,
    })
}

/// Places the matrices of experts.
fn experts(
    model: &Model,
    l: usize,
    role: Role,
    bias: Role,
    plan: &mut ArenaPlan,
) -> Result<GpuExperts, Error> {
    let bound = bound(model, (role, Some(l)), Some(bias))?;
    let n_experts = model.spec().layers[l].moe().map_or(0, |m| m.n_experts);
    Ok(GpuExperts {
        format: bound.shape.format,
        d_out: bound.shape.d_out,
        d_in: bound.shape.d_in,
        n_experts,
        slices: plan.experts(n_experts, bound.shape)?,
        scales: bound.scales.to_vec(),
        bias: Some(bias),
    })
}

/// Places the head, which may be the embedding, without its factor then.
fn head(model: &Model, plan: &mut ArenaPlan) -> Result<GpuMatrix, Error> {
    let own = model.tensor(Role::Output, None).is_some();
    let role = if own { Role::Output } else { Role::TokenEmbd };
    let bias = Some(Role::OutputBias);
    let mut bound = bound(model, (role, None), bias)?;
    if !own {
        bound.scales = &[];
    }
    let rows = RowChoice::all(bound.shape.d_out);
    matrix(&bound, Role::Output, bias, rows, plan)
}

/// A tensor that is bound as a matrix.
fn bound(model: &Model, key: MatrixKey, bias: Option<Role>) -> Result<Bound<'_>, Error> {
    let (role, layer) = key;
    let Some(BoundTensor::Matrix {
        ty,
        d_out,
        d_in,
        scales,
        ..
    }) = model.tensor(role, layer)
    else {
        return Err(Error::Unsupported(format!("it has no {}", role.name())));
    };
    let format = WeightFormat::of(ty);
    let format = format.ok_or_else(|| Error::Unsupported(format!("matrices of type {ty:?}")))?;
    let has_bias = bias.is_some_and(|bias| model.tensor(bias, layer).is_some());
    Ok(Bound {
        shape: MatrixShape {
            format,
            d_out,
            d_in,
            has_bias,
        },
        scales,
    })
}
