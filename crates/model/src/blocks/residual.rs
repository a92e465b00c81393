//! How a block hangs in the residual stream: what it reads, and where its result goes.
//!
//! ```text
//! sequential:  h = pre(x);  x += scale * post(block(h))
//! parallel:    h = pre(x);  y = mixer(h);  x += scale * ffn(h);  x += scale * y
//! ```
//! A block knows neither the norms around it nor whether another block reads the same `x`.

use atta_kernels::{Job, Store};
use atta_store::{Projection, WeightGroup};

use super::{Normalize, Pass};
use crate::{
    Error, Role,
    spec::{Half, Norm, Wiring},
};

impl Pass<'_> {
    /// `act = pre(x)`, for these matrices, the first of the block.
    pub(crate) fn enter(&mut self, l: usize, half: Half, roles: &[Role]) {
        let (n, d, t) = (
            self.rows.len(),
            self.model.spec().d_model,
            self.model.layer(l),
        );
        let (kernels, s) = (self.kernels, &mut *self.s);
        let (pre, x) = (self.model.spec().layers[l].pre(half), &s.x);
        s.act
            .fill(kernels, self.pool, (n, d), t.layouts(roles), |row, out| {
                let x = &x[row * d..(row + 1) * d];
                match pre {
                    Some((norm, roles)) => norm.apply(kernels, x, t.affine(roles), out),
                    None => out.copy_from_slice(x),
                }
            });
        self.tell(l, roles);
    }

    /// `x += residual_scale * post(W act + bias)`, at once or when the layer is done: the last
    /// product of a block, with the matrix and the bias of these roles.
    pub(crate) fn leave(
        &mut self,
        l: usize,
        half: Half,
        weight: Role,
        bias: Option<Role>,
    ) -> Result<(), Error> {
        let (n, t) = (
            self.rows.len() * self.model.spec().d_model,
            self.model.layer(l),
        );
        let (layer, bias) = (
            &self.model.spec().layers[l],
            bias.and_then(|bias| t.vector_opt(bias)),
        );
        self.tell(l, &[weight]);
        let group = match half {
            Half::Mixer => Projection::AttnOut,
            Half::Ffn => Projection::Down,
        };
        self.each_chunk(WeightGroup::Layer(l, group), |p, chunk| {
            let (out, mode) = match layer.is_kept_aside(half) {
                true => (&mut p.s.y[..n], Store::Set),
                false => (&mut p.s.x[..n], Store::Add(layer.residual_scale)),
            };
            let w = t.matrix(weight, chunk);
            p.kernels
                .matmul(p.pool, &p.s.act, &mut [Job { w, bias, out, mode }]);
        })?;
        self.settle(l, half);
        Ok(())
    }

    /// Adds what was kept aside, if its time has come.
    pub(crate) fn settle(&mut self, l: usize, half: Half) {
        let layer = &self.model.spec().layers[l];
        let is_due = match layer.wiring {
            Wiring::Sequential { .. } => layer.is_kept_aside(half),
            Wiring::Parallel { .. } => half == Half::Ffn,
        };
        if is_due {
            self.add_what_was_kept(l, half);
        }
    }

    /// `x += residual_scale * post(y)`.
    fn add_what_was_kept(&mut self, l: usize, half: Half) {
        let (d, layer, t) = (
            self.model.spec().d_model,
            &self.model.spec().layers[l],
            self.model.layer(l),
        );
        let (n, kernels, s) = (self.rows.len() * d, self.kernels, &mut *self.s);
        if let Some((Norm::Rms { eps }, role)) = layer.post(half) {
            self.pool.for_each_row(&mut s.y[..n], d, |_, y| {
                kernels.rms_norm_inplace(y, t.vector(role), eps)
            });
        }
        let (y, scale) = (&s.y, layer.residual_scale);
        self.pool.for_each_row(&mut s.x[..n], d, |row, x| {
            x.iter_mut()
                .zip(&y[row * d..(row + 1) * d])
                .for_each(|(x, y)| *x += scale * y);
        });
    }
}
