//! The keys of embeddings of n-grams.

use super::meta::Meta;
use crate::{
    Error,
    spec::{NgramEmbed, NgramTable},
};

/// The layer with embeddings of n-grams, and these; norms have `eps`.
pub(super) fn ngrams(m: &Meta<'_>, eps: f32) -> Result<Option<(usize, NgramEmbed)>, Error> {
    let Some(l) = m.only_layer_opt("ple.layers")? else {
        return Ok(None);
    };
    let n_tokens = m.size("ple.ngram_size")?;
    let n_each = m.size("ple.heads_per_ngram")?;
    let n_tables = (n_tokens - 1).saturating_mul(n_each);
    let eos = "ple.eos_token_id";
    let embed = NgramEmbed {
        n_tokens,
        tables: tables(m, n_tables)?,
        multipliers: m.integers("ple.layer_multipliers", n_tokens)?,
        d_row: m.size("embedding_length_per_layer_input")?,
        eos: m.token_opt(eos)?.ok_or_else(|| m.missing(eos))?,
        media: m.token_opt("ple.image_token_id")?,
        n_taps: m.size("ple.conv_kernel")?,
        dilation: n_tokens,
        eps,
    };
    Ok(Some((l, embed)))
}

fn tables(m: &Meta<'_>, n: usize) -> Result<Vec<NgramTable>, Error> {
    let sizes = "ple.head_vocab_sizes";
    let firsts = m.integers("ple.head_offsets", n)?;
    let table = |(first, n_rows): (u64, u64)| {
        let parts = u32::try_from(first).ok().zip(u32::try_from(n_rows).ok());
        let (first, n_rows) =
            parts.ok_or_else(|| m.unsupported(sizes, format!("{n_rows} behind {first}")))?;
        Ok(NgramTable { first, n_rows })
    };
    firsts
        .into_iter()
        .zip(m.integers(sizes, n)?)
        .map(table)
        .collect()
}
