//! How a sublayer reads the residual stream, and how its result is added to it.
//!
//! ```text
//! sequential:  h = pre(x);  x += scale * post(block(h))
//! parallel:    h = pre(x);  y = mixer(h);  x += scale * ffn(h);  x += scale * y
//! post-norm:   x = norm(x + scale * block(x))
//! streams:     streams.rs
//! ```
//! A sublayer knows neither the norms around it nor whether another one reads the same `x`. Its
//! result is *deferred* (stored in `y`) if a norm follows, or if something else still has to read
//! `x`: the other sublayer, or a second mixer beside the first one, whose results are added in `y`.
//! So it is if it is added to several streams.

use atta_kernels::{Job, Store};
use atta_store::WeightGroup;

use super::{Normalize, Pass, norm::RowNorm, streams::add_to_streams};
use crate::{
    Error, Placement, Role,
    adapters::Adapted,
    spec::{LayerSpec, Mixer, Norm, Sublayer, Wiring},
};

/// How much of the result of a sublayer the product of a matrix is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Portion {
    All,
    /// That of the first of two mixers.
    First,
    /// That of the second one, which completes the sum.
    Second,
}

impl Portion {
    fn of(layer: &LayerSpec, role: Role) -> Self {
        match (&layer.mixer, role) {
            (Mixer::AttentionAndMamba2(_), Role::AttnOutput) => Self::First,
            (Mixer::AttentionAndMamba2(_), Role::SsmOut) => Self::Second,
            _ => Self::All,
        }
    }
}

impl Pass<'_> {
    /// `act = pre(x)`, the input of these matrices, the first of a sublayer.
    pub(crate) fn enter(&mut self, l: usize, sublayer: Sublayer, roles: &[Role]) {
        let n = self.rows.len();
        let d = self.model.spec().d_model;
        let t = self.model.layer(l);
        let kernels = self.kernels;
        let s = &mut *self.s;
        let spec = self.model.spec();
        if l == 0 && sublayer == Sublayer::Mixer && spec.reads_joined() {
            let joined = &s.joined;
            let shape = (n, 2 * d);
            s.act
                .fill(kernels, self.pool, shape, t.layouts(roles), |row, out| {
                    out.copy_from_slice(&joined[2 * row * d..][..2 * d]);
                });
            return self.observe_inputs(l, roles);
        }
        let pre = spec.layers[l].pre(sublayer);
        let x = &s.x;
        s.act
            .fill(kernels, self.pool, (n, d), t.layouts(roles), |row, out| {
                let x = &x[row * d..(row + 1) * d];
                match pre {
                    Some((norm, roles)) => norm.apply(kernels, x, t.affine(roles), out),
                    None => out.copy_from_slice(x),
                }
            });
        self.observe_inputs(l, roles);
    }

    /// The last product of a sublayer: `x += residual_scale * post(W act + bias)`, or its part
    /// before the addition if that is deferred.
    pub(crate) fn leave(
        &mut self,
        l: usize,
        sublayer: Sublayer,
        weight: Role,
        bias: Option<Role>,
    ) -> Result<(), Error> {
        let n = self.rows.len() * self.model.spec().d_model;
        let t = self.model.layer(l);
        let layer = &self.model.spec().layers[l];
        let bias = bias.and_then(|bias| t.vector_opt(bias));
        self.observe_inputs(l, &[weight]);
        let Placement::Layer(group) = weight.placement() else {
            unreachable!("the last matrix of a sublayer is in a weight group of the layer")
        };
        let portion = Portion::of(layer, weight);
        self.each_chunk(WeightGroup::Layer(l, group), |p, chunk| {
            let (out, mode) = match (layer.is_deferred(sublayer), portion) {
                (true, Portion::Second) => (&mut p.s.y[..n], Store::Add(1.0)),
                (true, _) => (&mut p.s.y[..n], Store::Set),
                (false, _) => (&mut p.s.x[..n], Store::Add(layer.residual_scale)),
            };
            let w = t.matrix(weight, chunk);
            let job = Job { w, bias, out, mode };
            p.products.matmul(&p.s.act, [job])
        })?;
        let s = &mut *self.s;
        let (out, factor) = match layer.is_deferred(sublayer) {
            true => (&mut s.y[..n], 1.0),
            false => (&mut s.x[..n], layer.residual_scale),
        };
        self.adapting.add(Adapted {
            factor,
            ..Adapted::of_layer(l, weight, &s.act, out)
        });
        if portion != Portion::First {
            self.add_deferred_if_due(l, sublayer);
        }
        Ok(())
    }

    /// Adds the deferred result, unless the other sublayer still has to read `x`.
    pub(crate) fn add_deferred_if_due(&mut self, l: usize, sublayer: Sublayer) {
        let layer = &self.model.spec().layers[l];
        let is_due = match layer.wiring {
            Wiring::Sequential { .. } | Wiring::PostNorm { .. } | Wiring::Streams => {
                layer.is_deferred(sublayer)
            }
            Wiring::Parallel { .. } => sublayer == Sublayer::Ffn,
        };
        if is_due {
            self.add_deferred(l, sublayer);
        }
    }

    /// `x += residual_scale * post(y)`, or `x = norm(x + residual_scale * y)`.
    fn add_deferred(&mut self, l: usize, sublayer: Sublayer) {
        let layer = &self.model.spec().layers[l];
        if layer.wiring == Wiring::Streams {
            return add_to_streams(self, layer.residual_scale);
        }
        self.add_normed(l, layer.post(sublayer), layer.residual_scale);
        if let Some((norm, roles)) = layer.sum(sublayer) {
            let affine = self.model.layer(l).affine(roles);
            let n = self.rows.len() * self.model.spec().d_model;
            let s = &mut *self.s;
            let x = &mut s.x[..n];
            RowNorm { norm, affine }.apply(self.kernels, self.pool, x, &mut s.y[..n]);
        }
    }

    /// `x += scale * post(y)` with the norm of a weight of layer `l`.
    pub(crate) fn add_normed(&mut self, l: usize, post: Option<(Norm, Role)>, scale: f32) {
        let d = self.model.spec().d_model;
        let t = self.model.layer(l);
        let n = self.rows.len() * d;
        let kernels = self.kernels;
        let s = &mut *self.s;
        if let Some((Norm::Rms { eps }, role)) = post {
            self.pool.for_each_row(&mut s.y[..n], d, |_, y| {
                kernels.rms_norm_inplace(y, t.vector(role), eps)
            });
        }
        let y = &s.y;
        self.pool.for_each_row(&mut s.x[..n], d, |row, x| {
            x.iter_mut()
                .zip(&y[row * d..(row + 1) * d])
                .for_each(|(x, y)| *x += scale * y);
        });
    }
}
