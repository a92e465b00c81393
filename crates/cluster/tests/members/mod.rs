//! What tests of members share: the rows of a member, and a conversation of sequences whose logits
//! are compared.
#![allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]

use std::{num::NonZeroU32, sync::Arc};

use atta_model::{
    Batch, Error, Executor, ExecutorSize, KvType, Member, MemberPart, Model, Output, RowSplit,
    SeqId, Share, Want,
};
use atta_store::{Budget, InMemory, ModelFiles, Plan, Weights};

use crate::support::bits;

/// Positions.
pub(crate) const N_CTX: usize = 128;

/// Four sequences.
pub(crate) fn size(kv: KvType, n_batch: usize) -> ExecutorSize {
    ExecutorSize {
        n_ctx: N_CTX,
        n_seqs: 4,
        n_batch,
        kv,
        ..ExecutorSize::default()
    }
}

/// A division in proportion to these speeds.
pub(crate) fn row_split(speeds: &[u32]) -> RowSplit {
    let speeds: Vec<_> = speeds
        .iter()
        .map(|&n| NonZeroU32::new(n).unwrap())
        .collect();
    RowSplit::new(&speeds).unwrap()
}

/// A member's rows of a part of a model.
pub(crate) fn member_of(
    model: &Model,
    files: ModelFiles,
    share: Share,
    split: &RowSplit,
    index: usize,
) -> Result<Arc<Model>, Error> {
    let member = Member::new(split.clone(), index)?;
    let source =
        |files, plan: Plan| Ok::<Box<dyn Weights>, Error>(Box::new(InMemory::new(files, plan)?));
    let part = MemberPart { share, member };
    let spec = model.spec().clone();
    let model = Model::with_member(spec, part, files, &Budget::unlimited(), source)?;
    Ok(Arc::new(model))
}

/// Appends tokens in chunks of ragged sizes; the logits of all of them.
pub(crate) fn append_ragged(
    executor: &mut dyn Executor,
    seq: SeqId,
    tokens: &[u32],
    first: usize,
) -> Vec<f32> {
    let n_batch = executor.info().n_batch;
    let mut logits = Vec::new();
    let mut out = Output::default();
    let mut rest = tokens;
    let mut n = first;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(n.min(rest.len()).min(n_batch));
        let pos = executor.seqs().len(seq).unwrap();
        let mut batch = Batch::default();
        for (i, &id) in chunk.iter().enumerate() {
            batch.push_token(seq, pos + i, id, Want::Logits);
        }
        executor.step(&batch, &mut out).unwrap();
        (0..chunk.len()).for_each(|i| logits.extend_from_slice(out.logits(i)));
        (rest, n) = (after, n % 4 + 2);
    }
    logits
}

/// Ragged chunks, a fork beside its trunk, a dropped sequence, a truncation.
pub(crate) fn run(executor: &mut dyn Executor, tokens: &[u32], first: usize) -> Vec<u32> {
    let half = tokens.len() / 2;
    let trunk = executor.new_seq().unwrap();
    let mut logits = append_ragged(executor, trunk, &tokens[..half], first);
    let fork = executor.fork(trunk).unwrap();
    let mut batch = Batch::default();
    for (i, &id) in tokens[half..].iter().take(8).enumerate() {
        batch.push_token(trunk, half + i, id, Want::Logits);
        batch.push_token(fork, half + i, tokens[i], Want::Nothing);
    }
    let mut out = Output::default();
    executor.step(&batch, &mut out).unwrap();
    (0..batch.rows.len() / 2).for_each(|i| logits.extend_from_slice(out.logits(2 * i)));
    logits.extend(append_ragged(
        executor,
        fork,
        &tokens[..half / 2],
        first + 2,
    ));
    executor.drop_seq(fork).unwrap();
    let left = executor.truncate(trunk, half - 1).unwrap();
    logits.extend(append_ragged(executor, trunk, &tokens[left..], first + 1));
    executor.drop_seq(trunk).unwrap();
    bits(&logits)
}
