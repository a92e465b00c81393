//! Embeddings per layer as plain data (Gemma 3n and 4): a token has a small vector for each layer,
//! which a gate lets into the residual stream at the end of the layer.

use super::Activation;

/// The embedding of a token in every layer:
///
/// ```text
/// e = embed[token] * embed_scale
/// p = (norm((W_model e)[l] / sqrt(d_model)) + table[token][l] * sqrt(d)) / sqrt(2)
/// x += post(W_out (act(W_gate x) * p))              behind the sublayers of layer l
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerEmbed {
    /// Width of the vector of a layer.
    pub d: usize,
    /// Epsilon of the RMS norms `norm`, of width `d`, and `post`, of width `d_model`.
    pub eps: f32,
    /// The nonlinearity of the gate.
    pub activation: Activation,
}
