//! Less of a model: layers left out, fewer experts for each position.
//!
//! Refuses to know what either costs: `engine` chooses by measurements. The one idea: a layer that
//! is left out stays in the list, so that the others keep their numbers, and computes nothing. None
//! of its tensors is read, and it keeps no state.

use std::ops::Range;

use super::{Ffn, LayerSpec, Mixer, ModelSpec, Presence};
use crate::Error;

impl LayerSpec {
    /// Whether it computes nothing. Metadata describes no such layer.
    pub fn is_left_out(&self) -> bool {
        matches!((&self.mixer, &self.ffn), (Mixer::None, Ffn::None))
    }

    fn leave_out(&mut self) {
        self.ngrams = None;
        self.mixer = Mixer::None;
        self.laurel = None;
        self.ffn = Ffn::None;
        self.out_scale = Presence::Absent;
    }

    /// Experts that a position goes to, for changes.
    fn n_used_mut(&mut self) -> Option<&mut usize> {
        match &mut self.ffn {
            Ffn::Moe(moe) => Some(&mut moe.n_used),
            Ffn::MlpAndMoe(both) => Some(&mut both.moe.n_used),
            Ffn::None | Ffn::Gated(_) | Ffn::Plain(_) | Ffn::Sparse(_) => None,
        }
    }
}

impl ModelSpec {
    /// The layers that are left out, in order.
    pub fn left_out(&self) -> impl Iterator<Item = usize> {
        let layers = self.layers.iter().enumerate();
        layers.filter_map(|(l, layer)| layer.is_left_out().then_some(l))
    }

    /// Those of some layers that are not left out.
    pub(crate) fn computed(&self, layers: Range<usize>) -> impl Iterator<Item = usize> {
        layers.filter(|&l| !self.layers[l].is_left_out())
    }

    /// Leaves layers out: the residual passes them unchanged.
    ///
    /// # Errors
    /// [`Error::Needed`] for the first layer that is not there or that others depend on; nothing
    /// has changed then.
    pub fn leave_out(&mut self, layers: &[usize]) -> Result<(), Error> {
        layers.iter().try_for_each(|&l| self.check_omission(l))?;
        layers.iter().for_each(|&l| self.layers[l].leave_out());
        Ok(())
    }

    /// Checks that layer `l` may be left out.
    ///
    /// # Errors
    /// [`Error::Needed`] with the reason why not.
    pub fn check_omission(&self, l: usize) -> Result<(), Error> {
        let shares = |layer: &LayerSpec| layer.attention().and_then(|a| a.kv_layer()) == Some(l);
        let why = if self.is_encoder() {
            "the model is an encoder".to_owned()
        } else if l >= self.layers.len() {
            format!("the model has {} layers", self.layers.len())
        } else if let Some(other) = self.layers.iter().position(shares) {
            format!("layer {other} reads its keys and values")
        } else if self.layers[l].ngrams.is_some() {
            "it adds embeddings of n-grams".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Needed { layer: l, why })
    }

    /// Lets each position go to `n` experts at most.
    ///
    /// # Errors
    /// [`Error::Experts`] for a model without experts, for none of them, and for more than a
    /// position goes to anyway.
    pub fn use_experts(&mut self, n: usize) -> Result<(), Error> {
        let (_, most) = self.max_experts();
        if !(1..=most).contains(&n) {
            return Err(Error::Experts { n, most });
        }
        let layers = self.layers.iter_mut();
        layers
            .filter_map(LayerSpec::n_used_mut)
            .for_each(|n_used| *n_used = n.min(*n_used));
        Ok(())
    }
}
