//! Checks of several streams of the residual, of low-rank layers and of sparse gates.

use atta_kernels::STREAMS_MAX;

use super::{ensure, is_positive, is_width, require};
use crate::{
    Error,
    spec::{Activation, Ffn, LayerSpec, Mixer, ModelSpec, Presence, Wiring},
};

impl ModelSpec {
    pub(super) fn check_alt_up(&self) -> Result<(), Error> {
        let Some(alt) = &self.alt_up else {
            return Ok(());
        };
        require(self.streams.is_none(), || {
            "two kinds of several streams".to_owned()
        })?;
        let n = alt.n;
        let fits = (2..=STREAMS_MAX).contains(&n) && alt.active < n && is_width(n * self.d_model);
        require(fits, || {
            format!("stream {} of {n} of {}", alt.active, self.d_model)
        })?;
        require(is_positive(alt.eps), || {
            format!("norms of streams with {}", alt.eps)
        })?;
        let has_scale = |layer: &LayerSpec| layer.out_scale != Presence::Absent;
        require(
            self.layer_embed.is_some() && !self.layers.iter().any(has_scale),
            || "several streams without embeddings in every layer, or that are scaled".to_owned(),
        )
    }
}

impl LayerSpec {
    pub(super) fn check_laurel(&self) -> Result<(), String> {
        let Some(laurel) = &self.laurel else {
            return Ok(());
        };
        let is_beside =
            matches!(self.wiring, Wiring::Sequential { .. }) && self.mixer != Mixer::None;
        ensure(is_beside, || {
            "a low-rank layer that is beside no mixer".to_owned()
        })?;
        ensure(is_width(laurel.rank) && is_positive(laurel.eps), || {
            format!("{laurel:?}")
        })
    }

    pub(super) fn check_sparse(&self) -> Result<(), String> {
        let Ffn::Sparse(sparse) = &self.ffn else {
            return Ok(());
        };
        let is_clamped = matches!(sparse.mlp.activation, Activation::Clamped { .. });
        let fits = sparse.deviations.is_finite() && sparse.mlp.sub_norm.is_none() && !is_clamped;
        ensure(fits, || format!("{sparse:?}"))
    }
}
