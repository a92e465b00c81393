//! A sequence as bytes: what is kept when it moves to another executor, or (later) to a disk.
//!
//! ```text
//! magic "ATTAKV01" | u32 LE: n_layers, len, first layer, k type, v type, rope regime
//! per layer u32 LE: n_kv_heads, d_head
//! per layer: K [n_kv_heads, len, d_head], V [same], elements as in the cache
//! ```
//! The bytes may come from anywhere: every header field is compared with the cache, and the length with the header.

use atta_kernels::KvElem;

use super::{
    BLOCK_LEN,
    cache::{Cache, Place},
};
use crate::{Error, SeqId};

const MAGIC: &[u8; 8] = b"ATTAKV01";

impl Cache {
    /// The state of a sequence.
    pub(crate) fn export(&self, id: SeqId) -> Result<Vec<u8>, Error> {
        let seq = self.seq(id)?;
        let mut out = self.header(seq.len);
        for place in &self.places {
            for (at, elem) in [(place.k_at, self.kv.k), (place.v_at, self.kv.v)] {
                for (row, pos) in rows(place, seq.len) {
                    let block = self.groups[place.group].block(seq.tables[place.group][pos / BLOCK_LEN]);
                    out.extend_from_slice(&block[place.row_bytes(at, row, elem)]);
                }
            }
        }
        Ok(out)
    }

    /// A new sequence with the state that was exported.
    pub(crate) fn import(&mut self, state: &[u8]) -> Result<SeqId, Error> {
        let len = self.check(state)?;
        let id = self.new_seq()?;
        for _ in 0..len {
            if let Err(error) = self.extend(id) {
                self.drop_seq(id)?;
                return Err(error);
            }
        }
        self.fill(id, len, &state[self.header(len).len()..]);
        Ok(id)
    }

    fn fill(&mut self, id: SeqId, len: usize, mut state: &[u8]) {
        for i in 0..self.places.len() {
            let place = self.places[i];
            for (at, elem) in [(place.k_at, self.kv.k), (place.v_at, self.kv.v)] {
                for (row, pos) in rows(&place, len) {
                    let block = self.seq(id).expect("just made").tables[place.group][pos / BLOCK_LEN];
                    let range = place.row_bytes(at, row, elem);
                    let (here, rest) = state.split_at(range.len());
                    self.groups[place.group].block_mut(block)[range].copy_from_slice(here);
                    state = rest;
                }
            }
        }
    }

    /// Compares header and length with this cache; the number of positions.
    fn check(&self, state: &[u8]) -> Result<usize, Error> {
        let n = state.get(12..16).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let len = n.ok_or(Error::State("it is cut short"))? as usize;
        if len > self.n_ctx() {
            return Err(Error::ContextFull { n_ctx: self.n_ctx() });
        }
        if !state.starts_with(&self.header(len)) {
            return Err(Error::State(
                "it is of another model, other layers, other element types or another kind of context",
            ));
        }
        let row_bytes = |p: &Place| self.kv.k.row_bytes(p.d_head) + self.kv.v.row_bytes(p.d_head);
        let data: usize = self.places.iter().map(|p| len * p.n_kv_heads * row_bytes(p)).sum();
        if state.len() != self.header(len).len() + data {
            return Err(Error::State("its length does not match its header"));
        }
        Ok(len)
    }

    fn header(&self, len: usize) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let code = |elem| match elem {
            KvElem::F32 => 0,
            KvElem::F16 => 1,
            KvElem::Q8 => 2,
            KvElem::Q4 => 3,
        };
        let sizes = self.places.iter().flat_map(|p| [p.n_kv_heads as u32, p.d_head as u32]);
        let (n_layers, first) = (self.places.len() as u32, self.first_layer as u32);
        let fixed = [n_layers, len as u32, first, code(self.kv.k), code(self.kv.v), self.rope_regime as u32];
        for field in fixed.into_iter().chain(sizes) {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out
    }
}

/// Row index within a block, and position, of every row of one layer's keys (or values), head by head.
fn rows(place: &Place, len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..place.n_kv_heads).flat_map(move |h| (0..len).map(move |pos| (h * BLOCK_LEN + pos % BLOCK_LEN, pos)))
}
