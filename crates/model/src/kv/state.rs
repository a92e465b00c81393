//! Positions of a sequence as bytes: what is kept when they move to another executor, or to a disk.
//!
//! ```text
//! magic "ATTAKV02" | u32 LE: n_layers, first layer, rope regime, first position, n positions
//! per layer u32 LE: n_kv_heads, d_head, k type, v type, n missing
//! per layer: K [n_kv_heads, n positions - n missing, d_head], V [same], elements as in the cache
//! ```
//! Of a layer with a window the first positions may be missing. The bytes may come from anywhere:
//! every header field is compared with the cache, and the length with the header.

use std::{io::Write, ops::Range};

use atta_kernels::KvElem;

use super::{BLOCK_LEN, cache::Cache, plan::Place};
use crate::{Error, SeqId};

const MAGIC: &[u8; 8] = b"ATTAKV02";

/// What a header says.
struct Header {
    start: usize,
    n: usize,
    /// Of each layer, positions that are not there.
    n_missing: Vec<usize>,
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
        let from = |place: &Place| self.first_held(id, place, &positions);
        let n_missing = self
            .places
            .iter()
            .map(|place| Ok(from(place)? - positions.start))
            .collect::<Result<_, Error>>()?;
        let header = Header {
            start: positions.start,
            n: positions.len(),
            n_missing,
        };
        out.write_all(&self.header(&header))
            .map_err(Error::Export)?;
        for place in &self.places {
            self.export_layer(id, place, from(place)?..positions.end, out)
                .map_err(Error::Export)?;
        }
        Ok(())
    }

    fn export_layer(
        &self,
        id: SeqId,
        place: &Place,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let (arena, table) = (&self.arenas[place.group], self.seqs.blocks(id, place.group));
        for half in [place.k, place.v] {
            for h in 0..place.n_kv_heads {
                for (i, inside) in in_blocks(positions.clone()) {
                    out.write_all(&arena.block(table[i])[half.rows(h, inside)])?;
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
        for _ in 0..n {
            if let Err(error) = self.seqs.add_position(id) {
                self.seqs.truncate(id, header.start)?;
                self.settle();
                return Err(error);
            }
        }
        self.settle();
        self.fill(id, &header, n, data)
    }

    /// Copies the rows of the positions that were just added.
    fn fill(&mut self, id: SeqId, header: &Header, n: usize, mut data: &[u8]) -> Result<(), Error> {
        for (i, &n_missing) in header.n_missing.iter().enumerate() {
            let place = self.places[i];
            let present = header.start + n_missing.min(n)..header.start + n;
            if n_missing > 0 {
                self.seqs.lacks_before(id, place.group, present.start)?;
            }
            // What a window has already let go is not brought back.
            let kept = present.start.max(self.seqs.first_held(id, place.group)?)..present.end;
            let (table, arena) = (
                self.seqs.blocks(id, place.group),
                &mut self.arenas[place.group],
            );
            for half in [place.k, place.v] {
                for h in 0..place.n_kv_heads {
                    let (rows, rest) = data.split_at((header.n - n_missing) * half.row_bytes);
                    let mut rows =
                        &rows[(kept.start.min(kept.end) - present.start) * half.row_bytes..];
                    for (i, inside) in in_blocks(kept.clone()) {
                        let range = half.rows(h, inside);
                        let (here, after) = rows.split_at(range.len());
                        arena.block_mut(table[i])[range].copy_from_slice(here);
                        rows = after;
                    }
                    data = rest;
                }
            }
        }
        Ok(())
    }

    /// Compares a header with this cache, of which it may take `n` positions, and the length with
    /// the header; what it says, and the rows.
    fn check<'a>(&self, state: &'a [u8], n: usize) -> Result<(Header, &'a [u8]), Error> {
        let n_layers = self.places.len();
        let head = state
            .get(..28 + 20 * n_layers)
            .ok_or(Error::State("it is cut short, or of another model"))?;
        let field = |at: usize| {
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
        };
        let n_missing = (0..n_layers).map(|l| field(28 + 20 * l + 16)).collect();
        let header = Header {
            start: field(20),
            n: field(24),
            n_missing,
        };
        if header.start.saturating_add(n) > self.seqs.n_ctx() {
            return Err(Error::ContextFull {
                n_ctx: self.seqs.n_ctx(),
            });
        }
        if self.header(&header) != head || header.n_missing.iter().any(|&n| n > header.n) {
            return Err(Error::State(
                "it is of another model, other layers, other element types or another kind of context",
            ));
        }
        let row_bytes = |p: &Place| (p.n_kv_heads * (p.k.row_bytes + p.v.row_bytes)) as u64;
        let layer_bytes =
            |(p, m): (&Place, &usize)| row_bytes(p).saturating_mul((header.n - m) as u64);
        let data = self
            .places
            .iter()
            .zip(&header.n_missing)
            .map(layer_bytes)
            .fold(0, u64::saturating_add);
        if (state.len() - head.len()) as u64 != data {
            return Err(Error::State("its length does not match its header"));
        }
        Ok((header, &state[28 + 20 * n_layers..]))
    }

    fn header(&self, header: &Header) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let code = |elem| match elem {
            KvElem::F32 => 0,
            KvElem::F16 => 1,
            KvElem::Q8 => 2,
            KvElem::Q4 => 3,
        };
        let (n_layers, first) = (self.places.len() as u32, self.first_layer as u32);
        let fixed = [
            n_layers,
            first,
            self.rope_regime as u32,
            header.start as u32,
            header.n as u32,
        ];
        let layers = self.places.iter().zip(&header.n_missing);
        let layer = |(p, &missing): (&Place, &usize)| {
            [
                p.n_kv_heads as u32,
                p.d_head as u32,
                code(p.k.elem),
                code(p.v.elem),
                missing as u32,
            ]
        };
        for field in fixed.into_iter().chain(layers.flat_map(layer)) {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out
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
