//! The conditions on draft heads.

use super::{MAX_LAYERS, is_positive, is_width, require};
use crate::{
    Error,
    spec::{JoinKind, KvSource, LayerSpec, Mixer, ModelSpec, OutputGate, Outputs, Positions, Tap},
};

/// No draft head reads more hidden states of a position.
const MAX_TAPS: usize = 16;

impl ModelSpec {
    /// A draft head has plain layers of attention, and reads hidden states that fit its matrices.
    pub(super) fn check_join(&self) -> Result<(), Error> {
        let Some(join) = &self.join else {
            return Ok(());
        };
        let d_states = join.taps.len().checked_mul(join.d_target);
        let fits = (1..=MAX_TAPS).contains(&join.taps.len())
            && d_states.is_some_and(is_width)
            && is_width(2 * self.d_model)
            && is_positive(join.eps)
            && join.first_block <= MAX_LAYERS
            && (1..=self.n_vocab).contains(&join.n_guessed)
            && join.taps.iter().all(|tap| is_layer(*tap));
        require(fits, || format!("a draft head of {join:?}"))?;
        let is_projected = join.kind == JoinKind::Projected;
        let is_same = join.d_target == self.d_model && join.n_guessed == self.n_vocab;
        require(!is_projected || is_same && join.taps.len() == 1, || {
            format!(
                "a projected hidden state of {join:?}, of a model of {}",
                self.d_model
            )
        })?;
        require(
            self.stands_alone() && self.layers.iter().all(is_plain),
            || "a draft head with other layers than attention".to_owned(),
        )
    }

    /// Whether layers read nothing but the residual.
    fn stands_alone(&self) -> bool {
        self.streams.is_none()
            && self.alt_up.is_none()
            && self.layer_embed.is_none()
            && self.embed_norm.is_none()
            && self.positions == Positions::None
            && self.head.outputs == Outputs::Logits
    }
}

fn is_layer(tap: Tap) -> bool {
    match tap {
        Tap::Before(l) => l <= MAX_LAYERS,
        Tap::Normed => true,
    }
}

/// Whether a layer has attention with its own keys and values.
fn is_plain(layer: &LayerSpec) -> bool {
    let Mixer::Attention(a) = &layer.mixer else {
        return false;
    };
    let own = matches!(a.kv, KvSource::Own { .. }) && a.gate != OutputGate::Heads;
    layer.ngrams.is_none() && layer.laurel.is_none() && (own || a.latent().is_some())
}
