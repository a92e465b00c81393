//! Positions of a sequence as bytes, for another executor or for a disk.
//!
//! ```text
//! magic "ATTAKV03" | u32 LE: n_parts, first layer, rope regime, first position, n positions
//! per part u32 LE: n_kv_heads, d_head, k type, v type, n missing
//!                  of a recurrent state: 0, n_floats, 16, 16, 0
//!                  of keys that are the values, too: v type is 18
//!                  of another layer's keys and values: 0, that layer, 17, 17, 0
//!                  with an indexer d_head is larger by 65536 times the width of its keys, k type
//!                  by 256 times 1 more than their type
//! with recurrent layers u32 LE: n checkpoints, and the positions behind which they are
//! per part with keys and values: K [n_kv_heads] arrays [n positions - n missing], V [same]
//!                      unless keys are the values, keys of an indexer [1] arrays, if there is
//!                      one; arrays and their elements as in the cache:
//!                      rows [d_head], or f16's codes [d_head], then an array of f32 per scale
//! per checkpoint, per recurrent layer: [n_floats], f32 LE
//! ```
//! Most layers have one part; one with keys and values and a recurrent state has two, one without a
//! mixer none. Of a layer with a window the first positions may be missing; of recurrent layers
//! there are the checkpoints that the sequence has. The bytes may come from anywhere: every header
//! field is compared with the cache, and the length with the header.

use std::{io::Write, ops::Range};

use atta_kernels::KvElem;

use super::{
    BLOCK_LEN,
    cache::{Cache, kv_places},
    plan::{KvPlace, Place},
};
use crate::{Error, SeqId};

pub(super) const MAGIC: &[u8; 8] = b"ATTAKV03";

/// Bytes before the fields of parts.
pub(super) const FIXED_BYTES: usize = 28;

/// Bytes of the fields of a part.
pub(super) const PART_BYTES: usize = 20;

/// Element type code of a recurrent state.
pub(super) const STATE_CODE: u32 = 16;

/// Element type code of a layer that attends to another's keys and values.
const SHARED_CODE: u32 = 17;

/// Element type code of values that are the keys.
const NO_VALUES_CODE: u32 = 18;

/// The variable part of a header.
struct Header {
    start: usize,
    n: usize,
    /// Missing positions of each part; 0 of recurrent states.
    n_missing: Vec<usize>,
    /// Positions of checkpoints; none without recurrent layers.
    checkpoints: Vec<usize>,
}

impl Cache {
    /// Writes the state of these positions of a sequence.
    pub(crate) fn export(
        &self,
        id: SeqId,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        if positions.start > positions.end || positions.end > self.seqs.len(id)? {
            return Err(Error::State("it does not have these positions"));
        }
        let from = |place: &KvPlace| self.first_held(id, place, &positions);
        let n_missing = |place: &Place| match place {
            Place::Kv(place) => Ok(from(place)? - positions.start),
            Place::Shared(_) | Place::Recurrent(_) => Ok(0),
        };
        let (checkpoints, blocks): (Vec<usize>, Vec<u32>) =
            self.seqs.checkpoints(id, &positions)?.unzip();
        let header = Header {
            start: positions.start,
            n: positions.len(),
            n_missing: self
                .places
                .iter()
                .map(n_missing)
                .collect::<Result<_, Error>>()?,
            checkpoints,
        };
        out.write_all(&self.header(&header))
            .map_err(Error::Export)?;
        for place in kv_places(&self.places) {
            self.export_layer(id, place, from(place)?..positions.end, out)
                .map_err(Error::Export)?;
        }
        for block in blocks {
            let mut floats = self.states.block(block).iter();
            floats
                .try_for_each(|x| out.write_all(&x.to_le_bytes()))
                .map_err(Error::Export)?;
        }
        Ok(())
    }

    fn export_layer(
        &self,
        id: SeqId,
        place: &KvPlace,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let arena = &self.arenas[place.group];
        let table = self.seqs.blocks(id, place.group);
        for part in place.parts() {
            for h in 0..part.n_heads {
                for array in part.arrays(h) {
                    for (i, inside) in in_blocks(positions.clone()) {
                        out.write_all(&arena.block(table[i])[array.rows(inside)])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends the first `n` positions of a state to a sequence that ends where the state begins.
    pub(crate) fn append_state(&mut self, id: SeqId, state: &[u8], n: usize) -> Result<(), Error> {
        let (header, data) = self.check(state, n)?;
        if header.start != self.seqs.len(id)? || n > header.n {
            return Err(Error::State("it is of other positions"));
        }
        self.seqs.add_positions(id, n)?;
        self.copy_blocks();
        let states = self.fill_kv(id, &header, n, data)?;
        self.fill_states(id, &header, n, states)
    }

    /// Copies keys and values of the positions that were just added; returns the rest of the data.
    fn fill_kv<'a>(
        &mut self,
        id: SeqId,
        header: &Header,
        n: usize,
        mut data: &'a [u8],
    ) -> Result<&'a [u8], Error> {
        for (place, &n_missing) in self.places.iter().zip(&header.n_missing) {
            let Place::Kv(place) = place else { continue };
            let present = header.start + n_missing.min(n)..header.start + n;
            if n_missing > 0 {
                self.seqs.lacks_before(id, place.group, present.start)?;
            }
            // Positions that a window has already freed are skipped.
            let kept = present.start.max(self.seqs.first_held(id, place.group)?)..present.end;
            let table = self.seqs.blocks(id, place.group);
            let arena = &mut self.arenas[place.group];
            for part in place.parts() {
                for h in 0..part.n_heads {
                    for array in part.arrays(h) {
                        let (rows, rest) = data.split_at((header.n - n_missing) * array.row_bytes);
                        let skipped = kept.start.min(kept.end) - present.start;
                        let mut rows = &rows[skipped * array.row_bytes..];
                        for (i, inside) in in_blocks(kept.clone()) {
                            let range = array.rows(inside);
                            let (here, after) = rows.split_at(range.len());
                            arena.block_mut(table[i])[range].copy_from_slice(here);
                            rows = after;
                        }
                        data = rest;
                    }
                }
            }
        }
        Ok(data)
    }

    /// Adds the checkpoints within the positions that were just added.
    fn fill_states(
        &mut self,
        id: SeqId,
        header: &Header,
        n: usize,
        data: &[u8],
    ) -> Result<(), Error> {
        let states = data.chunks_exact(self.state_bytes().max(1));
        for (&pos, state) in header.checkpoints.iter().zip(states) {
            if pos > header.start + n {
                break;
            }
            let Some(block) = self.seqs.add_checkpoint(id, pos)? else {
                break;
            };
            let floats = self.states.block_mut(block).iter_mut();
            for (x, bytes) in floats.zip(state.as_chunks().0) {
                *x = f32::from_le_bytes(*bytes);
            }
        }
        Ok(())
    }

    /// Compares a header with this cache, of which it may take `n` positions, and the length with
    /// the header. Returns the header's variable part, and the data.
    fn check<'a>(&self, state: &'a [u8], n: usize) -> Result<(Header, &'a [u8]), Error> {
        let (header, head_bytes) = self
            .parse(state)
            .ok_or(Error::State("it is cut short, or of another model"))?;
        if header.start.saturating_add(n) > self.seqs.n_ctx() {
            return Err(Error::ContextFull {
                n_ctx: self.seqs.n_ctx(),
            });
        }
        let (head, data) = state.split_at(head_bytes);
        if self.header(&header) != head || header.n_missing.iter().any(|&n| n > header.n) {
            return Err(Error::State(
                "it is of another model, other layers, other element types or another kind of context",
            ));
        }
        if !header.has_sound_checkpoints() {
            return Err(Error::State("its checkpoints are not among its positions"));
        }
        if data.len() as u64 != self.data_bytes(&header) {
            return Err(Error::State("its length does not match its header"));
        }
        if !self.has_sound_rows(&header, data) {
            return Err(Error::State("its keys or values are no codes"));
        }
        Ok((header, data))
    }

    /// Whether attention may read all keys and values of a state whose length is right.
    fn has_sound_rows(&self, header: &Header, mut data: &[u8]) -> bool {
        let parts = self.places.iter().zip(&header.n_missing);
        let mut parts = parts.filter_map(|(place, n_missing)| match place {
            Place::Kv(place) => Some((place, header.n - n_missing)),
            Place::Shared(_) | Place::Recurrent(_) => None,
        });
        parts.all(|(place, n)| {
            place.parts().all(|part| {
                (0..part.n_heads).all(|_| {
                    // The arrays of a state are those of a block of `n` positions.
                    let (head, rest) = data.split_at(n * part.rows.row_bytes());
                    data = rest;
                    (0..n).all(|i| part.rows.is_sound(i, head))
                })
            })
        })
    }

    /// The variable fields of a header of a cache like this one, and the header's length; `None` if
    /// there are not enough bytes.
    fn parse(&self, state: &[u8]) -> Option<(Header, usize)> {
        let field = |at: usize| {
            let bytes = state.get(at..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes) as usize)
        };
        let n_parts = self.places.len();
        let n_missing = (0..n_parts).map(|i| field(FIXED_BYTES + PART_BYTES * i + 16));
        let n_missing = n_missing.collect::<Option<_>>()?;
        let mut end = FIXED_BYTES + PART_BYTES * n_parts;
        let mut checkpoints = Vec::new();
        if self.is_recurrent() {
            let n = field(end)?;
            end += 4;
            let positions = state.get(end..end.checked_add(n.checked_mul(4)?)?)?;
            let positions = positions.as_chunks().0.iter();
            checkpoints.extend(positions.map(|&pos| u32::from_le_bytes(pos) as usize));
            end += 4 * n;
        }
        let header = Header {
            start: field(20)?,
            n: field(24)?,
            n_missing,
            checkpoints,
        };
        Some((header, end))
    }

    /// Bytes behind a header.
    fn data_bytes(&self, header: &Header) -> u64 {
        let part_bytes = |(place, n_missing): (&Place, &usize)| match place {
            Place::Kv(p) => {
                let row_bytes = p.bytes() as u64;
                row_bytes.saturating_mul((header.n - n_missing) as u64)
            }
            Place::Shared(_) | Place::Recurrent(_) => 0,
        };
        let parts = self.places.iter().zip(&header.n_missing).map(part_bytes);
        let states = (header.checkpoints.len() as u64).saturating_mul(self.state_bytes() as u64);
        parts.fold(states, u64::saturating_add)
    }

    /// Bytes of the recurrent states behind one position.
    fn state_bytes(&self) -> usize {
        let floats = self.places.iter().map(|place| match place {
            Place::Kv(_) | Place::Shared(_) => 0,
            Place::Recurrent(place) => place.n_floats,
        });
        4 * floats.sum::<usize>()
    }

    fn is_recurrent(&self) -> bool {
        self.places.iter().any(|p| matches!(p, Place::Recurrent(_)))
    }

    fn header(&self, header: &Header) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let fixed = [
            self.places.len() as u32,
            self.first_layer as u32,
            self.rope_regime as u32,
            header.start as u32,
            header.n as u32,
        ];
        let parts = self.places.iter().zip(&header.n_missing);
        let parts = parts.flat_map(|(place, &n_missing)| part_fields(place, n_missing));
        let n_checkpoints = self
            .is_recurrent()
            .then_some(header.checkpoints.len() as u32);
        let checkpoints = header.checkpoints.iter().map(|&pos| pos as u32);
        let fields = fixed.into_iter().chain(parts);
        for field in fields.chain(n_checkpoints).chain(checkpoints) {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out
    }
}

impl Header {
    /// Whether checkpoints are in order, and among the positions.
    fn has_sound_checkpoints(&self) -> bool {
        let Some(end) = self.start.checked_add(self.n) else {
            return false;
        };
        let mut before = self.start;
        self.checkpoints.iter().all(|&pos| {
            let is_sound = before < pos && pos <= end;
            before = pos;
            is_sound
        })
    }
}

/// The fields of a part in a header.
fn part_fields(place: &Place, n_missing: usize) -> [u32; PART_BYTES / 4] {
    let code = |elem| match elem {
        KvElem::F32 => 0,
        KvElem::F16 => 1,
        KvElem::Q8 => 2,
        KvElem::Q4 => 3,
    };
    match place {
        Place::Kv(p) => [
            p.n_kv_heads as u32,
            p.d_head as u32 + p.index.map_or(0, |index| (index.rows.d as u32) << 16),
            code(p.k.rows.elem) + p.index.map_or(0, |index| (code(index.rows.elem) + 1) << 8),
            p.v.map_or(NO_VALUES_CODE, |v| code(v.rows.elem)),
            n_missing as u32,
        ],
        Place::Shared(l) => [0, *l as u32, SHARED_CODE, SHARED_CODE, 0],
        Place::Recurrent(p) => [0, p.n_floats as u32, STATE_CODE, STATE_CODE, 0],
    }
}

/// The blocks that hold these positions, and which positions of each.
fn in_blocks(positions: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let end = if positions.is_empty() {
        0
    } else {
        positions.end.div_ceil(BLOCK_LEN)
    };
    (positions.start / BLOCK_LEN..end).map(move |i| {
        let first = i * BLOCK_LEN;
        (
            i,
            positions.start.max(first) - first..positions.end.min(first + BLOCK_LEN) - first,
        )
    })
}
