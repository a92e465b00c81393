//! Changes of each field of embeddings of n-grams.

use atta_model::spec::{LayerSpec, NgramEmbed};

use super::LayerChange;

pub(super) fn changes() -> Vec<LayerChange> {
    vec![
        ("ngrams", |l| l.ngrams = None),
        ("ngrams.n_tokens", |l| {
            let embed = ngrams_of(l);
            embed.n_tokens = 2;
            embed.multipliers.truncate(2);
        }),
        ("ngrams.tables[0].first", |l| {
            ngrams_of(l).tables[0].first += 1
        }),
        ("ngrams.tables[1].n_rows", |l| {
            ngrams_of(l).tables[1].n_rows -= 2
        }),
        ("ngrams.multipliers[0]", |l| {
            ngrams_of(l).multipliers[0] += 2
        }),
        ("ngrams.multipliers[2]", |l| {
            ngrams_of(l).multipliers[2] += 2
        }),
        ("ngrams.d_row", |l| ngrams_of(l).d_row += 1),
        ("ngrams.eos", |l| ngrams_of(l).eos = 5),
        // Every row of a golden has a token, but that of embeddings is one of the vocabulary too.
        ("ngrams.media", |l| ngrams_of(l).media = Some(u32::MAX)),
        ("ngrams.n_taps", |l| ngrams_of(l).n_taps += 1),
        ("ngrams.dilation", |l| ngrams_of(l).dilation += 1),
        ("ngrams.eps", |l| ngrams_of(l).eps *= 2.0),
    ]
}

fn ngrams_of(l: &mut LayerSpec) -> &mut NgramEmbed {
    l.ngrams.as_mut().expect("asked of a layer with n-grams")
}
