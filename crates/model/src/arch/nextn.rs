//! Multi-token prediction: the layer behind the last one of a model, as a draft head.
//!
//! The layer is one of its architecture. What joins it to the model is the same in all: DeepSeek-V3
//! report (2024), section 2.2, and the models' code in vLLM, where the hidden states are normed.

use crate::{
    Error,
    spec::{Join, JoinKind, ModelSpec, Norm, Tap},
};

/// The first of the layers from `n_layers` on of a model, as a draft head.
pub(super) fn last_layer(spec: ModelSpec, n_layers: usize) -> Result<ModelSpec, Error> {
    let Some(Norm::Rms { eps }) = spec.head.norm else {
        return Err(Error::Spec("a draft head without RMS norms".to_owned()));
    };
    let join = Join {
        kind: JoinKind::Projected,
        eps,
        taps: vec![Tap::Normed],
        d_target: spec.d_model,
        n_guessed: spec.n_vocab,
        first_block: n_layers,
    };
    let layers = spec.layers.into_iter().skip(n_layers).take(1);
    Ok(ModelSpec {
        join: Some(join),
        n_nextn: 0,
        layers: layers.collect(),
        ..spec
    })
}
