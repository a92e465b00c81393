//! A gated MLP most of whose gates are closed, as plain data.

use super::Mlp;

/// A gated MLP with statistical top-k (You et al. 2025, section 3): only gates that are large
/// beside the others of their position are open.
///
/// ```text
/// g = gate x
/// y = down(act(max(g - mean(g) - deviations * std(g), 0)) * (up x))
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SparseMlp {
    /// The MLP; it has no norm of its hidden layer.
    pub mlp: Mlp,
    /// Standard deviations of the gates between their mean and the smallest open one.
    pub deviations: f32,
}
