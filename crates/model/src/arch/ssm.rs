//! What architectures with state spaces share: sizes from the keys `ssm.*`.

use super::meta::Meta;
use crate::{
    Error,
    spec::{Mamba, Mamba2, Presence, StateNorms},
};

/// A Mamba whose inputs of steps, `b` and `c` have these norms.
pub(super) fn mamba(m: &Meta<'_>, norms: StateNorms) -> Result<Mamba, Error> {
    Ok(Mamba {
        n_taps: m.size("ssm.conv_kernel")?,
        d_inner: m.size("ssm.inner_size")?,
        d_state: m.size("ssm.state_size")?,
        d_rank: m.size("ssm.time_step_rank")?,
        conv_bias: Presence::Optional,
        norms,
    })
}

/// A Mamba 2 whose results are normalized in groups.
pub(super) fn mamba2(m: &Meta<'_>, eps: f32) -> Result<Mamba2, Error> {
    let d_inner = m.size("ssm.inner_size")?;
    let n_heads = m.size("ssm.time_step_rank")?;
    if !d_inner.is_multiple_of(n_heads) {
        return Err(m.unsupported("ssm.inner_size", d_inner));
    }
    Ok(Mamba2 {
        n_taps: m.size("ssm.conv_kernel")?,
        n_heads,
        d_head: d_inner / n_heads,
        n_groups: m.size("ssm.group_count")?,
        d_state: m.size("ssm.state_size")?,
        conv_bias: Presence::Optional,
        min_step: 0.0,
        norm: Presence::Required,
        eps,
    })
}
