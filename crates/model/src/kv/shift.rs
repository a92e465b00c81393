//! Taking positions out of the middle of a sequence, so that a full context can go on (StreamingLLM, Xiao et al. 2024).
//!
//! What follows the gap moves up to where it began. A gap is whole blocks long, so that moving is a matter of tables: only the
//! block in which the gap begins is put together of two. Values are as they were; keys are turned to their new positions.

use std::ops::Range;

use atta_kernels::Kernels;

use super::{
    BLOCK_LEN,
    cache::Cache,
    plan::Place,
    table::{Group, Table},
};
use crate::{Error, SeqId};

impl Cache {
    /// Takes the positions `gap` out of a sequence. `turn` turns a key of a layer, `[d_head]`, back by the length of the gap.
    pub(crate) fn shift(
        &mut self,
        id: SeqId,
        gap: Range<usize>,
        kernels: Kernels,
        mut turn: impl FnMut(usize, &mut [f32]),
    ) -> Result<(), Error> {
        let (first_layer, places) = (self.first_layer, std::mem::take(&mut self.places));
        let shifted = self.close(id, &gap, &places);
        if shifted.is_ok() {
            let (seq, groups) = self.seq_mut(id).expect("it was shifted");
            for (l, place) in places.iter().enumerate() {
                let (group, table) = (&mut groups[place.group], &seq.tables[place.group]);
                turn_keys(group, table, place, gap.start..seq.len, kernels, |key| turn(first_layer + l, key));
            }
        }
        self.places = places;
        shifted
    }

    /// Moves what follows the gap; keys are turned as before.
    fn close(&mut self, id: SeqId, gap: &Range<usize>, places: &[Place]) -> Result<(), Error> {
        let (seq, groups) = self.seq_mut(id)?;
        if gap.is_empty() || gap.end > seq.len || !gap.len().is_multiple_of(BLOCK_LEN) {
            return Err(Error::State("a gap is some whole blocks of what there is"));
        }
        for (i, (group, table)) in groups.iter_mut().zip(&mut seq.tables).enumerate() {
            group.close(table, gap, |blocks, [from, to]| {
                for place in places.iter().filter(|place| place.group == i) {
                    for (half, h) in
                        [place.k, place.v].into_iter().flat_map(|x| (0..place.n_kv_heads).map(move |h| (x, h)))
                    {
                        blocks.copy(from, to, half.rows(h, gap.start % BLOCK_LEN..BLOCK_LEN));
                    }
                }
            });
        }
        seq.len -= gap.len();
        Ok(())
    }
}

/// Turns the keys of a layer at these positions, as far as they are there; their blocks are the sequence's own.
fn turn_keys(
    group: &mut Group,
    table: &Table,
    place: &Place,
    positions: Range<usize>,
    kernels: Kernels,
    mut turn: impl FnMut(&mut [f32]),
) {
    let mut key = vec![0.0; place.d_head];
    for pos in positions.start.max(table.from())..positions.end {
        let block = group.blocks.block_mut(table.blocks()[pos / BLOCK_LEN]);
        for h in 0..place.n_kv_heads {
            let inside = pos % BLOCK_LEN;
            let bytes = &mut block[place.k.rows(h, inside..inside + 1)];
            kernels.load_kv(bytes, place.k.elem, &mut key);
            turn(&mut key);
            kernels.store_kv(&key, place.k.elem, bytes);
        }
    }
}
