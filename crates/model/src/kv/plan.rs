//! Where each layer's keys and values lie in the blocks of its group.

use std::ops::Range;

use atta_kernels::{KvElem, KvLayer};

use super::{BLOCK_LEN, KvType, arena::Arena};
use crate::spec::{ModelSpec, Retention};

/// Where a layer's part of a block is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) group: usize,
    pub(super) n_kv_heads: usize,
    pub(super) d_head: usize,
    pub(super) k: Half,
    pub(super) v: Half,
}

/// The keys or the values of a layer in a block, `[n_kv_heads, BLOCK_LEN, d_head]`.
#[derive(Clone, Copy)]
pub(super) struct Half {
    /// First byte.
    pub(super) at: usize,
    pub(super) elem: KvElem,
    /// Bytes of a row of d_head elements.
    pub(super) row_bytes: usize,
}

/// How long a group keeps its blocks, and the bytes of one.
pub(super) type GroupSize = (Retention, usize);

/// The place of each layer, and the groups.
pub(super) fn plan(
    spec: &ModelSpec,
    layers: Range<usize>,
    kv: KvType,
) -> (Vec<Place>, Vec<GroupSize>) {
    let mut groups: Vec<GroupSize> = Vec::new();
    let mut places = Vec::new();
    for l in layers {
        let (a, retention) = (spec.layers[l].attention(), spec.layers[l].retention());
        let group = groups
            .iter()
            .position(|(r, _)| *r == retention)
            .unwrap_or_else(|| {
                groups.push((retention, 0));
                groups.len() - 1
            });
        let mut half = |elem: KvElem| {
            let (at, row_bytes) = (groups[group].1, elem.row_bytes(a.d_head));
            groups[group].1 += a.n_kv_heads * BLOCK_LEN * row_bytes;
            Half {
                at,
                elem,
                row_bytes,
            }
        };
        let [k, v] = kv.of_layer(l, spec.layers.len()).map(&mut half);
        places.push(Place {
            group,
            n_kv_heads: a.n_kv_heads,
            d_head: a.d_head,
            k,
            v,
        });
    }
    (places, groups)
}

impl Half {
    /// The bytes of the rows of head `h` at the positions `inside` of a block.
    pub(super) fn rows(&self, h: usize, inside: Range<usize>) -> Range<usize> {
        let row = |i: usize| self.at + (h * BLOCK_LEN + i) * self.row_bytes;
        row(inside.start)..row(inside.end)
    }
}

impl Place {
    /// What attention needs to read the layer.
    pub(super) fn layer<'a>(&self, arena: &'a Arena) -> KvLayer<'a> {
        KvLayer {
            arena: arena.bytes(),
            block_bytes: arena.block_bytes(),
            k_at: self.k.at,
            v_at: self.v.at,
            block_len: BLOCK_LEN,
            n_kv_heads: self.n_kv_heads,
            d_head: self.d_head,
            k_elem: self.k.elem,
            v_elem: self.v.elem,
        }
    }
}
