//! What a spec must satisfy before anything is computed with it.
//!
//! Metadata is checked key by key when it is read; here are the conditions on numbers together. Whoever passes can be
//! bound, planned and executed without a division by zero, an overflow, or a kernel that refuses.

use atta_kernels::D_HEAD_MAX;

use crate::{
    Error,
    spec::{Attention, LayerSpec, Mask, ModelSpec, Moe, Presence, Rope},
};

/// No width of a real model comes near this.
const MAX_WIDTH: usize = 1 << 24;

/// No real model has more layers.
pub(crate) const MAX_LAYERS: usize = 4096;

impl ModelSpec {
    /// Refuses what describes no model.
    ///
    /// # Errors
    /// [`Error::Spec`], which names the layer and the numbers.
    pub fn check(&self) -> Result<(), Error> {
        let n_layers = self.layers.len();
        require((1..=MAX_LAYERS).contains(&n_layers), || format!("{n_layers} layers, expected 1 to {MAX_LAYERS}"))?;
        require(is_width(self.d_model), || format!("d_model of {}", self.d_model))?;
        require(is_width(self.n_vocab), || format!("a vocabulary of {}", self.n_vocab))?;
        require(self.n_ctx_train > 0, || "trained for no positions".to_owned())?;
        for (l, layer) in self.layers.iter().enumerate() {
            layer.check(self.d_model).map_err(|what| Error::Spec(format!("layer {l}: {what}")))?;
        }
        let mut factors = self.layers.iter().filter_map(|l| l.attention().rope.as_ref()).filter(|r| r.has_factors());
        let d_rope = factors.next().map(|r| r.d_rope);
        require(factors.all(|r| Some(r.d_rope) == d_rope), || "rope factors of different lengths".to_owned())
    }
}

impl LayerSpec {
    fn check(&self, d_model: usize) -> Result<(), String> {
        self.attention().check()?;
        let d_ff = self.mlp().d_ff;
        ensure(is_width(d_ff), || format!("d_ff of {d_ff}"))?;
        self.moe().map_or(Ok(()), |moe| moe.check(d_model))
    }
}

impl Moe {
    fn check(&self, d_model: usize) -> Result<(), String> {
        let Self { n_experts, n_used, ref expert, ref shared, .. } = *self;
        ensure(is_width(n_experts), || format!("{n_experts} experts"))?;
        ensure((1..=n_experts).contains(&n_used), || format!("{n_used} of {n_experts} experts in use"))?;
        let d_results = n_used.checked_mul(d_model);
        ensure(d_results.is_some_and(is_width), || format!("{n_used} experts in use, {d_model} wide"))?;
        let mut mlps = std::iter::once(expert).chain(shared);
        ensure(mlps.all(|mlp| mlp.bias == Presence::Absent), || "experts with a bias".to_owned())?;
        shared.as_ref().map_or(Ok(()), |mlp| ensure(is_width(mlp.d_ff), || format!("a shared d_ff of {}", mlp.d_ff)))
    }
}

impl Attention {
    fn check(&self) -> Result<(), String> {
        let Self { n_heads, n_kv_heads, d_head, .. } = *self;
        let shares = n_heads > 0 && n_kv_heads > 0 && n_heads.is_multiple_of(n_kv_heads);
        ensure(shares, || format!("{n_heads} heads share {n_kv_heads} key-value heads"))?;
        ensure((1..=D_HEAD_MAX).contains(&d_head), || format!("heads of {d_head}, expected 1 to {D_HEAD_MAX}"))?;
        ensure(n_heads.checked_mul(d_head).is_some_and(is_width), || format!("{n_heads} heads of {d_head}"))?;
        ensure(self.mask != Mask::Window(0), || "a window of no positions".to_owned())?;
        self.rope.as_ref().map_or(Ok(()), |rope| rope.check(d_head))
    }
}

impl Rope {
    fn check(&self, d_head: usize) -> Result<(), String> {
        let d_rope = self.d_rope;
        let fits = d_rope > 0 && d_rope.is_multiple_of(2) && d_rope <= d_head;
        ensure(fits, || format!("a rotation of {d_rope} elements of {d_head}"))
    }

    fn has_factors(&self) -> bool {
        self.factors != Presence::Absent
    }
}

fn is_width(d: usize) -> bool {
    (1..=MAX_WIDTH).contains(&d)
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
    ensure(holds, what).map_err(Error::Spec)
}
