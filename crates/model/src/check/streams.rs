//! The conditions on residuals of several streams.

use super::{is_positive, is_width, require};
use crate::{
    Error,
    spec::{LayerSpec, ModelSpec, Presence, StreamKind, Streams, Wiring},
};

/// No real model has more streams.
const MAX_STREAMS: usize = 64;

impl ModelSpec {
    /// Layers read several streams exactly where there are some.
    pub(super) fn check_streams(&self) -> Result<(), Error> {
        let Some(Streams { n, kind }) = self.streams else {
            let reads = self.layers.iter().any(|l| l.wiring == Wiring::Streams);
            return require(!reads, || "layers that read streams of none".to_owned());
        };
        let fits = (2..=MAX_STREAMS).contains(&n) && is_width(n * self.d_model);
        require(fits, || {
            format!(
                "{n} streams of {}, expected 2 to {MAX_STREAMS}",
                self.d_model
            )
        })?;
        match kind {
            StreamKind::HyperConnections { rank, eps } => self.check_hyper(rank, eps),
        }
    }

    fn check_hyper(&self, rank: usize, eps: f32) -> Result<(), Error> {
        require(is_width(rank) && is_positive(eps), || {
            format!("hyper-connections of rank {rank}, norms with {eps}")
        })?;
        let is_plain =
            |l: &LayerSpec| l.wiring == Wiring::Streams && l.out_scale == Presence::Absent;
        let fits = self.layer_embed.is_none() && self.layers.iter().all(is_plain);
        require(fits, || {
            "hyper-connections beside layers with norms or scales, or embeddings in every layer"
                .to_owned()
        })
    }
}
