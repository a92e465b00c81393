//! Embeddings of n-grams as plain data: the last few tokens choose rows of a large table, which a
//! gate lets into the residual streams.

/// Embeddings of the n-grams that end at a position (Qwen4Exp), added before the mixer of a layer.
/// Of table i, whose n-grams are n long:
///
/// ```text
/// t_s = the token s positions before; eos behind the first eos and before the text
/// row = first_i + (xor_{s < n} t_s * multiplier_s) mod n_rows_i
/// e = the rows of all tables
/// k = norm_key(W_key e);  q = norm_query(x);  v = W_value e          k, q: [n_streams, d_model]
/// a_c = k_c . q_c / sqrt(d_model);  u_c = sigmoid(sign(a_c) sqrt(max(|a_c|, 1e-6))) v
/// x += u + silu(conv(norm_conv(u)))
/// ```
/// The taps of the convolution, which sees every channel by itself, are `dilation` positions apart.
#[derive(Clone, Debug, PartialEq)]
pub struct NgramEmbed {
    /// Tokens of the longest n-gram, at least 2; the shortest has 2.
    pub n_tokens: usize,
    /// Tables: as many for each length, those of the shortest n-grams first.
    pub tables: Vec<NgramTable>,
    /// Factors of tokens, the last token's first, `[n_tokens]`.
    pub multipliers: Vec<u64>,
    /// Width of a row.
    pub d_row: usize,
    /// The token that ends a text: n-grams do not reach behind it.
    pub eos: u32,
    /// The token that stands for an embedding without one; `None`: n-grams have no such positions.
    pub media: Option<u32>,
    /// Taps of the convolution; at least 2.
    pub n_taps: usize,
    /// Positions from one tap to the next.
    pub dilation: usize,
    /// Epsilon of the three RMS norms, each of one stream.
    pub eps: f32,
}

/// A table of n-grams: rows of one large table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NgramTable {
    /// Its first row.
    pub first: u32,
    /// Its rows.
    pub n_rows: u32,
}

impl NgramEmbed {
    /// Width of the embedding of a position.
    pub fn d_embed(&self) -> usize {
        self.tables.len() * self.d_row
    }

    /// Tokens of the n-grams of table `i`.
    pub fn n_tokens_of(&self, i: usize) -> usize {
        2 + i / (self.tables.len() / (self.n_tokens - 1)).max(1)
    }

    /// Rows of the large table that some n-gram may have.
    pub fn n_rows(&self) -> usize {
        let ends = self
            .tables
            .iter()
            .map(|t| t.first as usize + t.n_rows as usize);
        ends.max().unwrap_or(0)
    }

    /// Earlier inputs of the convolution that the next one depends on.
    pub fn n_conv_inputs(&self) -> usize {
        (self.n_taps - 1) * self.dilation
    }

    /// The state: inputs of the convolution, `[n_conv_inputs, d_residual]`, and the last tokens,
    /// `[n_tokens - 1]`, each plus one; 0 is no token.
    pub fn state_floats(&self, d_residual: usize) -> usize {
        self.n_conv_inputs() * d_residual + self.n_tokens - 1
    }

    /// Width of the buffers of a position: embedding, keys, values, gated values with and without
    /// their norm, and the token.
    pub(crate) fn d_scratch(&self, d_model: usize, d_residual: usize) -> usize {
        self.d_embed() + d_model + 3 * d_residual + 1
    }
}
