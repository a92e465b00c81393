//! Draft heads: what joins the embedding of a token and a hidden state.

use super::{
    Rows, SharedKv, add, decode, embed, feed_forward, head, layer, map_rows, matrix, mixer,
    normalized, output_normed, project,
};
use atta_store::{Projection, WeightGroup};

use crate::{
    Error, Model, Role,
    spec::{Join, JoinKind, Norm, Tap},
};

/// What a draft head gives for the rows of a sequence.
#[derive(Clone, Debug)]
pub struct Drafted {
    /// `[n_rows, n_guessed]`.
    pub logits: Vec<f32>,
    /// Its own hidden states, `[n_rows, d_model]`.
    pub states: Vec<f32>,
}

/// What a draft head gives for tokens and the hidden states beside them: of the target, or as wide
/// as its own.
///
/// # Errors
/// As [`super::logits`], and a model that is no draft head.
pub fn drafted(model: &Model, tokens: &[u32], states: &[Vec<f32>]) -> Result<Drafted, Error> {
    let join = model.spec().join.as_ref().ok_or(Error::NoDraftHead)?;
    let e = embed(model, tokens, tokens.len())?;
    let h = one_state(model, join, states)?;
    let joined = joined(model, join, &e, &h);
    let x = match join.kind {
        JoinKind::Projected => {
            let x = project(&matrix(model, 0, Role::NextnEhProj)?, None, &joined);
            layer(model, 0, x, &mut SharedKv::new())?
        }
        JoinKind::Beside { keeps_norm } => {
            let d = model.spec().d_model;
            let x = if keeps_norm {
                map_rows(&joined, |row| row[d..].to_vec())
            } else {
                h
            };
            beside(model, x, &joined)?
        }
    };
    let normed = output_normed(model, &x);
    let is_normed = join.taps == [Tap::Normed];
    let own = if is_normed { &normed } else { &x };
    Ok(Drafted {
        states: own.concat(),
        logits: head(model, &normed)?,
    })
}

/// One hidden state of each row, `[d_model]`.
fn one_state(model: &Model, join: &Join, states: &[Vec<f32>]) -> Result<Rows, Error> {
    if join.kind == JoinKind::Projected {
        return Ok(states.to_vec());
    }
    let group = WeightGroup::Layer(0, Projection::Join);
    let mut fc = Rows::new();
    for i in 0..model.weights().n_chunks(group) {
        let chunk = model.weights().chunk(group, i)?;
        fc.extend(decode(model.globals().matrix(Role::Fc, &chunk)));
    }
    let one = |h: &Vec<f32>| match h.len() == model.spec().d_model {
        true => h.clone(),
        false => project(&fc, None, &vec![h.clone()]).concat(),
    };
    Ok(states.iter().map(one).collect())
}

/// `[norm(e); norm(h)]` of each row.
fn joined(model: &Model, join: &Join, e: &Rows, h: &Rows) -> Rows {
    let t = model.layer(0);
    let roles = match join.kind {
        JoinKind::Beside { .. } => [Role::AttnNorm, Role::AttnNorm2],
        JoinKind::Projected => [Role::NextnEnorm, Role::NextnHnorm],
    };
    let norm = Norm::Rms { eps: join.eps };
    let [of_e, of_h] = roles.map(|role| t.vector(role));
    let row = |(e, h): (&Vec<f32>, &Vec<f32>)| {
        let mut row = normalized(norm, e, of_e, None);
        row.extend(normalized(norm, h, of_h, None));
        row
    };
    e.iter().zip(h).map(row).collect()
}

/// The residual behind the layer whose attention reads `joined`.
fn beside(model: &Model, mut x: Rows, joined: &Rows) -> Result<Rows, Error> {
    let y = mixer(model, 0, joined, &mut SharedKv::new())?;
    add(&mut x, &y, 1.0);
    let y = feed_forward(model, (0, &model.spec().layers[0]), &x)?;
    add(&mut x, &y, 1.0);
    Ok(x)
}
