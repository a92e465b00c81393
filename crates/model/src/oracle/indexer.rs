//! The oracle's choice of positions: scores of all blocks, sorted.

use super::{Rows, dot, matrix, normalized, project, rotate};
use crate::{
    Error, Model, Role,
    spec::{Attention, Indexer, Norm},
};

/// The positions that the query at each position sees, ascending.
pub(super) fn visible(
    model: &Model,
    l: usize,
    a: &Attention,
    h: &Rows,
) -> Result<Vec<Vec<usize>>, Error> {
    let n = h.len();
    let Some(indexer) = &a.indexer else {
        let range = |pos| a.first_visible(pos)..a.last_visible(pos, n) + 1;
        return Ok((0..n).map(|pos| range(pos).collect()).collect());
    };
    let norm = Norm::Rms { eps: indexer.eps };
    let t = model.layer(l);
    let turned = |part: &[f32], role, pos| {
        let mut part = normalized(norm, part, t.vector(role), None);
        if let Some(rope) = &a.rope {
            rotate(rope, model.globals().rope_factors(), &mut part, (pos, n));
        }
        part
    };
    let q = project(&matrix(model, l, Role::IndexerQ)?, None, h);
    let k = project(&matrix(model, l, Role::IndexerK)?, None, h);
    let blocks = k.chunks_exact(indexer.block_len).enumerate();
    let keys: Rows = blocks
        .map(|(b, k)| turned(&mean(k), Role::IndexerKNorm, b * indexer.block_len))
        .collect();
    let queries = |pos: usize| {
        let heads = q[pos].chunks_exact(indexer.d_head);
        heads
            .map(|head| turned(head, Role::IndexerQNorm, pos))
            .collect::<Rows>()
    };
    Ok((0..n)
        .map(|pos| chosen(indexer, &queries(pos), &keys, pos))
        .collect())
}

fn mean(rows: &[Vec<f32>]) -> Vec<f32> {
    let sum = |i: usize| rows.iter().map(|row| f64::from(row[i])).sum::<f64>();
    (0..rows[0].len())
        .map(|i| (sum(i) / rows.len() as f64) as f32)
        .collect()
}

/// The positions of the best blocks, and those behind the last whole one.
fn chosen(indexer: &Indexer, q: &Rows, keys: &Rows, pos: usize) -> Vec<usize> {
    let n_whole = indexer.n_whole(pos);
    let score = |b: usize| q.iter().map(|q| dot(q, &keys[b]).max(0.0)).sum::<f64>();
    let mut blocks: Vec<(f64, usize)> = (0..n_whole).map(|b| (score(b), b)).collect();
    blocks.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    blocks.truncate(indexer.n_blocks);
    let len = indexer.block_len;
    let of_blocks = blocks.iter().flat_map(|(_, b)| b * len..(b + 1) * len);
    let mut all: Vec<usize> = of_blocks.chain(n_whole * len..pos + 1).collect();
    all.sort_unstable();
    all
}
