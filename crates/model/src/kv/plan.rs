//! Where each layer's state lies in the blocks of its group.

use std::ops::Range;

use atta_kernels::{KvArray, KvLayer, KvRole, KvRows};

use super::{
    BLOCK_LEN, KvType,
    arena::{Arena, KvArena},
};
use crate::spec::{Attention, ModelSpec, StateKind};

/// Where keys and values, or the recurrent state, of a layer are.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Kv(KvPlace),
    /// That of an earlier layer of the executor, by its index.
    Shared(usize),
    Recurrent(StatePlace),
}

/// Where keys and values of a layer are.
#[derive(Clone, Copy)]
pub(super) struct KvPlace {
    pub(super) group: usize,
    pub(super) n_kv_heads: usize,
    pub(super) d_head: usize,
    pub(super) k: KvPart,
    /// `None`: the keys are the values.
    pub(super) v: Option<KvPart>,
    /// The keys of the indexer, if there is one.
    pub(super) index: Option<KvPart>,
}

/// The keys or the values of a layer in a block: for each head [`BLOCK_LEN`] rows, which lie as
/// [`KvRows::arrays`] says.
#[derive(Clone, Copy)]
pub(super) struct KvPart {
    /// First byte.
    pub(super) at: usize,
    pub(super) n_heads: usize,
    pub(super) rows: KvRows,
}

/// Where the recurrent state of a layer is.
#[derive(Clone, Copy)]
pub(super) struct StatePlace {
    /// First float.
    pub(super) at: usize,
    pub(super) n_floats: usize,
}

/// The places of a layer, as indices of [`StatePlan::places`].
#[derive(Clone, Copy, Default)]
pub(super) struct LayerPlaces {
    pub(super) kv: Option<usize>,
    pub(super) recurrent: Option<usize>,
}

impl LayerPlaces {
    /// Places of the layer.
    pub(super) fn n_places(&self) -> usize {
        usize::from(self.kv.is_some()) + usize::from(self.recurrent.is_some())
    }
}

/// The layers of an executor, and the blocks of their groups.
pub(super) struct StatePlan {
    /// Of all layers in order; of a layer with both first keys and values, then the recurrent
    /// state.
    pub(super) places: Vec<Place>,
    /// Of each layer.
    pub(super) layers: Vec<LayerPlaces>,
    /// The kind of each group of keys and values, and the bytes of a block.
    pub(super) kv_groups: Vec<(StateKind, usize)>,
    /// Floats of a block of recurrent states; `None` without such layers.
    pub(super) block_floats: Option<usize>,
}

impl StatePlan {
    /// Lays out the state of these layers.
    pub(super) fn new(spec: &ModelSpec, layers: Range<usize>, kv: KvType) -> Self {
        let mut plan = Self {
            places: Vec::with_capacity(layers.len()),
            layers: Vec::with_capacity(layers.len()),
            kv_groups: Vec::new(),
            block_floats: None,
        };
        for l in layers.clone() {
            let other = spec.layers[l].attention().and_then(Attention::kv_layer);
            let own = match other {
                Some(other) => Some(Place::Shared(other - layers.start)),
                None => plan.kv_place(spec, l, kv),
            };
            let recurrent = spec.layers[l].is_recurrent();
            let recurrent = recurrent.then(|| plan.state_place(spec, l));
            let of_layer = LayerPlaces {
                kv: plan.push(own),
                recurrent: plan.push(recurrent),
            };
            plan.layers.push(of_layer);
        }
        plan
    }

    /// Appends a place, if there is one, and returns its index.
    fn push(&mut self, place: Option<Place>) -> Option<usize> {
        self.places.extend(place);
        place.map(|_| self.places.len() - 1)
    }

    /// The kinds of all groups, those of keys and values in the order of their numbers.
    pub(super) fn kinds(&self) -> Vec<StateKind> {
        let kv = self.kv_groups.iter().map(|&(kind, _)| kind);
        kv.chain(self.block_floats.map(|_| StateKind::Recurrent))
            .collect()
    }

    /// Appends keys and values of layer `l` to the blocks of its group.
    fn kv_place(&mut self, spec: &ModelSpec, l: usize, kv: KvType) -> Option<Place> {
        let a = spec.layers[l].attention()?;
        let kind = StateKind::Kv(a.retention());
        let groups = &mut self.kv_groups;
        let known = groups.iter().position(|(k, _)| *k == kind);
        let group = known.unwrap_or_else(|| {
            groups.push((kind, 0));
            groups.len() - 1
        });
        let mut part = |rows: KvRows, n_heads: usize| {
            let at = groups[group].1;
            groups[group].1 += n_heads * BLOCK_LEN * rows.row_bytes();
            KvPart { at, n_heads, rows }
        };
        let (k, v) = a.kv_rows(kv.of_layer(l, spec.layers.len()));
        let k = part(k, a.n_kv_heads);
        let v = v.map(|v| part(v, a.n_kv_heads));
        let index = a.index_rows(kv).map(|rows| part(rows, 1));
        Some(Place::Kv(KvPlace {
            group,
            n_kv_heads: a.n_kv_heads,
            d_head: a.d_head,
            k,
            v,
            index,
        }))
    }

    /// Appends the state of layer `l` to the blocks of recurrent states.
    fn state_place(&mut self, spec: &ModelSpec, l: usize) -> Place {
        let at = self.block_floats.unwrap_or(0);
        let n_floats = spec.state_floats(l);
        self.block_floats = Some(at + n_floats);
        Place::Recurrent(StatePlace { at, n_floats })
    }
}

impl KvPart {
    /// The bytes of all rows of head `h` in a block.
    pub(super) fn head(&self, h: usize) -> Range<usize> {
        let len = BLOCK_LEN * self.rows.row_bytes();
        self.at + h * len..self.at + (h + 1) * len
    }

    /// The arrays of head `h`, their places counted from the start of a block.
    pub(super) fn arrays(&self, h: usize) -> impl Iterator<Item = KvArray> + use<> {
        let start = self.head(h).start;
        self.rows.arrays(BLOCK_LEN).map(move |array| KvArray {
            at: start + array.at,
            ..array
        })
    }
}

impl KvPlace {
    /// Keys, values if they are others, and keys of an indexer.
    pub(super) fn parts(&self) -> impl Iterator<Item = KvPart> + use<> {
        self.keys_and_values().chain(self.index)
    }

    /// Keys, and values if they are others.
    pub(super) fn keys_and_values(&self) -> impl Iterator<Item = KvPart> + use<> {
        std::iter::once(self.k).chain(self.v)
    }

    /// Bytes of a position.
    pub(super) fn bytes(&self) -> usize {
        self.parts()
            .map(|part| part.n_heads * part.rows.row_bytes())
            .sum()
    }

    /// What attention needs to read the layer.
    pub(super) fn layer<'a>(&self, arena: &'a Arena) -> KvLayer<'a> {
        let v = self.v.unwrap_or(self.k);
        KvLayer {
            arena: arena.bytes(),
            block_bytes: arena.block_bytes(),
            k_at: self.k.at,
            v_at: v.at,
            block_len: BLOCK_LEN,
            n_kv_heads: self.n_kv_heads,
            d_head: self.d_head,
            k_elem: self.k.rows.elem,
            v_elem: v.rows.elem,
            value_from: match self.k.rows.role {
                KvRole::Both { value_from } => Some(value_from),
                KvRole::Key | KvRole::Value => None,
            },
        }
    }
}
