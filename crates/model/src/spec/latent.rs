//! Multi-head latent attention as plain data.

/// Multi-head latent attention (DeepSeek-AI 2024, section 2.1): keys and values of all heads are
/// computed from one latent vector, which the KV cache holds in their place. For head h:
///
/// ```text
/// c, k_rope = W_kva x;  c = norm(c)
/// q_key, q_rope = W_qb norm(W_qa x)               or W_q x
/// k = [rope(k_rope), W_k c];  v = W_v c
/// ```
/// Since `q_key · W_k c = W_kᵀ q_key · c` and `Σ w W_v c = W_v Σ w c`, all heads attend to one head
/// of keys `[rope(k_rope), c]`, which are the values too (section 2.1.2: absorbed matrices).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latent {
    /// Width of the latent vector c.
    pub d_latent: usize,
    /// Width of the part of a head's query and key that is not rotated.
    pub d_key: usize,
    /// Width of a head's value.
    pub d_value: usize,
    /// `Some(d)`: queries are computed from a latent vector of this width, which is normalized.
    pub d_query: Option<usize>,
    /// Of the norms of both latent vectors, as in [`Norm::Rms`](super::Norm::Rms).
    pub eps: f32,
    /// How `W_k` and `W_v` are stored.
    pub up: LatentUp,
}

/// How the projections of keys and values from a latent vector are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatentUp {
    /// `W_kᵀ` of all heads, and `W_v` of all heads.
    Split,
    /// For each head, the rows of `W_k`, then those of `W_v`.
    Joint,
}

impl Latent {
    /// Rows of `W_k` and `W_v` of a head.
    pub fn d_up(&self) -> usize {
        self.d_key + self.d_value
    }
}
