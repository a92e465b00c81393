//! The conditions on embeddings of n-grams.

use super::{check_taps, ensure, is_positive, is_width, require};
use crate::{
    Error,
    spec::{ModelSpec, NgramEmbed},
};

/// No model has longer n-grams.
const MAX_TOKENS: usize = 8;

/// No model has more tables.
const MAX_TABLES: usize = 256;

impl ModelSpec {
    /// One layer at most has embeddings of n-grams, and no layer other ones that are read by rows.
    pub(super) fn check_ngrams(&self) -> Result<(), Error> {
        let mut all = self.layers.iter().filter_map(|layer| layer.ngrams.as_ref());
        let Some(ngrams) = all.next() else {
            return Ok(());
        };
        require(all.next().is_none() && self.layer_embed.is_none(), || {
            "several embeddings that layers read by rows".to_owned()
        })?;
        // A token and one is exact in f32.
        require(self.n_vocab < 1 << f32::MANTISSA_DIGITS, || {
            format!("n-grams of {} tokens", self.n_vocab)
        })?;
        ngrams
            .check(self.n_vocab, self.d_residual())
            .map_err(Error::Spec)
    }
}

impl NgramEmbed {
    fn check(&self, n_vocab: usize, d_residual: usize) -> Result<(), String> {
        self.check_tables()?;
        let tokens = [Some(self.eos), self.media];
        let mut tokens = tokens.into_iter().flatten();
        ensure(tokens.all(|id| (id as usize) < n_vocab), || {
            format!(
                "n-grams that end with tokens {}, {:?}",
                self.eos, self.media
            )
        })?;
        // Signed and unsigned products are the same.
        let max = i64::MAX as u64 / n_vocab as u64;
        ensure(self.multipliers.iter().all(|&m| m <= max), || {
            format!("multipliers of n-grams {:?}", self.multipliers)
        })?;
        check_taps(self.n_taps)?;
        ensure((1..=MAX_TOKENS).contains(&self.dilation), || {
            format!("taps {} positions apart", self.dilation)
        })?;
        let widths = [
            self.tables.len().checked_mul(self.d_row),
            self.n_conv_inputs().checked_mul(d_residual),
        ];
        ensure(widths.iter().all(|d| d.is_some_and(is_width)), || {
            format!("n-grams of {} tables of {}", self.tables.len(), self.d_row)
        })?;
        ensure(is_positive(self.eps), || format!("norms with {}", self.eps))
    }

    fn check_tables(&self) -> Result<(), String> {
        let n_tokens = self.n_tokens;
        let n_tables = self.tables.len();
        ensure((2..=MAX_TOKENS).contains(&n_tokens), || {
            format!("n-grams of {n_tokens} tokens")
        })?;
        let fits = (1..=MAX_TABLES).contains(&n_tables) && n_tables.is_multiple_of(n_tokens - 1);
        ensure(fits && self.multipliers.len() == n_tokens, || {
            format!("{n_tables} tables of n-grams of {n_tokens} tokens")
        })?;
        let is_in = |first: u32, n_rows: u32| n_rows > 0 && first.checked_add(n_rows).is_some();
        ensure(self.tables.iter().all(|t| is_in(t.first, t.n_rows)), || {
            format!("tables of n-grams {:?}", self.tables)
        })
    }
}
