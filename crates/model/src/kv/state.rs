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
//! there are the checkpoints that the sequence has. A state may be of some layers of a cache only;
//! those of layers that follow each other are appended together. The bytes may come from anywhere:
//! every header field is compared with the cache, and the length with the header.

use std::{io::Write, ops::Range};

use atta_kernels::KvElem;

use super::{
    BLOCK_LEN,
    arena::{BlockPiece, KvArena, StateBlocks},
    cache::{KvCache, kv_places},
    plan::{KvPlace, LayerPlaces, Place},
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

/// The places of some layers that follow each other: what a state holds.
struct Slice<'a> {
    places: &'a [Place],
    /// First layer of the slice, and of the cache.
    first_layer: usize,
    cache_layer: usize,
    rope_regime: usize,
}

/// A state that was compared with the cache.
struct Checked<'a> {
    places: Vec<Place>,
    header: Header,
    data: &'a [u8],
}

impl<A: KvArena> KvCache<A> {
    /// Writes the state of these positions of a sequence, in these layers, counted in the model.
    ///
    /// # Errors
    /// As [`Executor::export_layers`](crate::Executor::export_layers).
    pub fn export(
        &self,
        id: SeqId,
        layers: Range<usize>,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        if positions.start > positions.end || positions.end > self.seqs.len(id)? {
            return Err(Error::State("it does not have these positions"));
        }
        let slice = self
            .slice(layers)
            .ok_or(Error::State("it does not have these layers"))?;
        let from = |place: &KvPlace| self.first_held(id, place, &positions);
        let n_missing = |place: &Place| match place {
            Place::Kv(place) => Ok(from(place)? - positions.start),
            Place::Shared(_) | Place::Recurrent(_) => Ok(0),
        };
        let checkpoints = self.seqs.checkpoints(id, &positions)?;
        let (checkpoints, blocks): (Vec<usize>, Vec<u32>) = match slice.is_recurrent() {
            true => checkpoints.unzip(),
            false => Default::default(),
        };
        let header = Header {
            start: positions.start,
            n: positions.len(),
            n_missing: slice
                .places
                .iter()
                .map(n_missing)
                .collect::<Result<_, Error>>()?,
            checkpoints,
        };
        out.write_all(&slice.header(&header))
            .map_err(Error::Export)?;
        for place in kv_places(slice.places) {
            self.export_layer(id, place, from(place)?..positions.end, out)?;
        }
        for block in blocks {
            for floats in slice.floats() {
                self.states.export(block, floats, out)?;
            }
        }
        Ok(())
    }

    fn export_layer(
        &self,
        id: SeqId,
        place: &KvPlace,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let arena = &self.arenas[place.group];
        let table = self.seqs.blocks(id, place.group);
        for part in place.parts() {
            let arrays = (0..part.n_heads).flat_map(|h| part.arrays(h));
            let pieces = arrays.flat_map(|array| {
                in_blocks(positions.clone()).map(move |(i, inside)| BlockPiece {
                    block: table[i],
                    bytes: array.rows(inside),
                })
            });
            arena.export(&pieces.collect::<Vec<_>>(), out)?;
        }
        Ok(())
    }

    /// Appends the first `n` positions of a state to a sequence that ends where the state begins.
    /// The state may be in several: of layers that follow each other, together all layers here.
    ///
    /// # Errors
    /// As [`Executor::append_layers`](crate::Executor::append_layers).
    pub fn append_states(&mut self, id: SeqId, states: &[&[u8]], n: usize) -> Result<(), Error> {
        let len = self.seqs.len(id)?;
        let mut checked = self.check_all(states, n)?;
        let is_other = |header: &Header| header.start != len || n > header.n;
        if checked.iter().any(|state| is_other(&state.header)) {
            return Err(Error::State("it is of other positions"));
        }
        self.seqs.add_positions(id, n)?;
        self.copy_blocks();
        for state in &mut checked {
            self.fill_kv(id, state, n)?;
        }
        self.fill_states(id, &checked, n)
    }

    /// Copies keys and values of the positions that were just added; leaves the rest of the data.
    fn fill_kv(&mut self, id: SeqId, state: &mut Checked<'_>, n: usize) -> Result<(), Error> {
        let Checked {
            places,
            header,
            data,
        } = state;
        for (place, &n_missing) in places.iter().zip(&header.n_missing) {
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
                            arena.fill(table[i], range.start, here)?;
                            rows = after;
                        }
                        *data = rest;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the checkpoints within the positions that were just added. Each state has its part of
    /// them, in the order of the layers.
    fn fill_states(&mut self, id: SeqId, states: &[Checked<'_>], n: usize) -> Result<(), Error> {
        let with_states = || states.iter().filter(|state| is_recurrent(&state.places));
        let Some(Checked { header, .. }) = with_states().next() else {
            return Ok(());
        };
        for (i, &pos) in header.checkpoints.iter().enumerate() {
            if pos > header.start + n {
                break;
            }
            let Some(block) = self.seqs.add_checkpoint(id, pos)? else {
                break;
            };
            for Checked { places, data, .. } in with_states() {
                let n_bytes = 4 * floats_of(places).map(|floats| floats.len()).sum::<usize>();
                let mut rest = &data[i * n_bytes..][..n_bytes];
                for floats in floats_of(places) {
                    let (here, after) = rest.split_at(4 * floats.len());
                    self.states.fill(block, floats.start, here)?;
                    rest = after;
                }
            }
        }
        Ok(())
    }

    /// The places of these layers, counted in the model; `None` if the cache lacks some.
    fn slice(&self, layers: Range<usize>) -> Option<Slice<'_>> {
        let first = layers.start.checked_sub(self.first_layer)?;
        let end = layers.end.checked_sub(self.first_layer)?;
        let regimes = self.rope_regimes.get(first..end)?;
        let n_places = |l: usize| self.layers[..l].iter().map(LayerPlaces::n_places).sum();
        Some(Slice {
            places: &self.places[n_places(first)..n_places(end)],
            first_layer: layers.start,
            cache_layer: self.first_layer,
            rope_regime: regimes.iter().copied().max().unwrap_or(0),
        })
    }

    /// Compares states of layers that follow each other with this cache.
    fn check_all<'a>(&self, states: &[&'a [u8]], n: usize) -> Result<Vec<Checked<'a>>, Error> {
        const CUT: Error = Error::State("it is cut short, or of another model");
        const OTHER: Error = Error::State("it is of other layers");
        let first_layer = |state: &&[u8]| u32_at(state, 12).ok_or(CUT);
        let mut firsts = states
            .iter()
            .map(first_layer)
            .collect::<Result<Vec<_>, _>>()?;
        let is_empty = states.is_empty() && self.layers.is_empty();
        if !is_empty && firsts.first() != Some(&self.first_layer) {
            return Err(OTHER);
        }
        firsts.push(self.first_layer + self.layers.len());
        let mut all = Vec::with_capacity(states.len());
        for (state, range) in states.iter().zip(firsts.windows(2)) {
            let slice = self.slice(range[0]..range[1].max(range[0])).ok_or(OTHER)?;
            all.push(self.check(slice, state, n)?);
        }
        let with_states = all.iter().filter(|state| is_recurrent(&state.places));
        let mut checkpoints = with_states.map(|state| &state.header.checkpoints);
        let first = checkpoints.next();
        match checkpoints.all(|other| Some(other) == first) {
            true => Ok(all),
            false => Err(Error::State("its layers have different checkpoints")),
        }
    }

    /// Compares a header with a slice and the length with the header; the cache may take `n`
    /// positions of the slice.
    fn check<'a>(&self, slice: Slice<'_>, state: &'a [u8], n: usize) -> Result<Checked<'a>, Error> {
        let (header, head_bytes) = slice
            .parse(state)
            .ok_or(Error::State("it is cut short, or of another model"))?;
        if header.start.saturating_add(n) > self.seqs.n_ctx() {
            return Err(Error::ContextFull {
                n_ctx: self.seqs.n_ctx(),
            });
        }
        let (head, data) = state.split_at(head_bytes);
        if slice.header(&header) != head || header.n_missing.iter().any(|&n| n > header.n) {
            return Err(Error::State(
                "it is of another model, other layers, other element types or another kind of context",
            ));
        }
        if !header.has_sound_checkpoints() {
            return Err(Error::State("its checkpoints are not among its positions"));
        }
        if data.len() as u64 != slice.data_bytes(&header) {
            return Err(Error::State("its length does not match its header"));
        }
        if !slice.has_sound_rows(&header, data) {
            return Err(Error::State("its keys or values are no codes"));
        }
        Ok(Checked {
            places: slice.places.to_vec(),
            header,
            data,
        })
    }
}

impl Slice<'_> {
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

    /// The variable fields of a header of a slice like this one, and the header's length; `None` if
    /// there are not enough bytes.
    fn parse(&self, state: &[u8]) -> Option<(Header, usize)> {
        let n_parts = self.places.len();
        let n_missing = (0..n_parts).map(|i| u32_at(state, FIXED_BYTES + PART_BYTES * i + 16));
        let n_missing = n_missing.collect::<Option<_>>()?;
        let mut end = FIXED_BYTES + PART_BYTES * n_parts;
        let mut checkpoints = Vec::new();
        if self.is_recurrent() {
            let n = u32_at(state, end)?;
            end += 4;
            let positions = state.get(end..end.checked_add(n.checked_mul(4)?)?)?;
            let positions = positions.as_chunks().0.iter();
            checkpoints.extend(positions.map(|&pos| u32::from_le_bytes(pos) as usize));
            end += 4 * n;
        }
        let header = Header {
            start: u32_at(state, 20)?,
            n: u32_at(state, 24)?,
            n_missing,
            checkpoints,
        };
        (end <= state.len()).then_some((header, end))
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
        let state_bytes = 4 * self.floats().map(|floats| floats.len()).sum::<usize>();
        let states = (header.checkpoints.len() as u64).saturating_mul(state_bytes as u64);
        parts.fold(states, u64::saturating_add)
    }

    /// The floats of each recurrent layer in a block of states.
    fn floats(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        floats_of(self.places)
    }

    fn is_recurrent(&self) -> bool {
        is_recurrent(self.places)
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
        let parts =
            parts.flat_map(|(place, &n_missing)| part_fields(place, self.cache_layer, n_missing));
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

/// The floats of each of the recurrent layers in a block of states.
pub(super) fn floats_of(places: &[Place]) -> impl Iterator<Item = Range<usize>> + '_ {
    places.iter().filter_map(|place| match place {
        Place::Recurrent(place) => Some(place.at..place.at + place.n_floats),
        Place::Kv(_) | Place::Shared(_) => None,
    })
}

fn is_recurrent(places: &[Place]) -> bool {
    floats_of(places).next().is_some()
}

/// A field of a header; `None` if there are not enough bytes.
fn u32_at(state: &[u8], at: usize) -> Option<usize> {
    let bytes = state.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

/// The fields of a part in a header; `first_layer` is that of the cache.
fn part_fields(place: &Place, first_layer: usize, n_missing: usize) -> [u32; PART_BYTES / 4] {
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
        Place::Shared(l) => [0, (first_layer + l) as u32, SHARED_CODE, SHARED_CODE, 0],
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
