//! Which byte ranges make up the weight groups of a model.
//!
//! `atta-model` writes a [`Plan`] when it binds tensors. A weight group is the set of matrices that
//! one step of the forward pass multiplies together, such as gate and up of a feed-forward block.
//! [`Weights`](crate::Weights) hands a group over in chunks, each with some rows of every matrix of
//! the group: streaming needs memory for a few chunks, not for whole matrices.

use std::ops::Range;

/// A contiguous run of bytes in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Index of the shard.
    pub shard: u16,
    /// First byte, from the start of that file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A table that is read by rows: a matrix, the token embedding, a matrix of every expert of a
/// layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTable {
    /// From the first byte of the first row to the last byte of the last one.
    pub extent: Extent,
    /// Bytes of one row.
    pub row_bytes: u64,
    /// Bytes from the start of a row to that of the next one: more than `row_bytes` where only a
    /// part of each expert is held. Rows are at least so far apart.
    pub stride_bytes: u64,
}

impl RowTable {
    /// A table whose rows follow each other without gaps.
    pub fn contiguous(extent: Extent, row_bytes: u64) -> Self {
        Self {
            extent,
            row_bytes,
            stride_bytes: row_bytes,
        }
    }

    /// The part of every row from byte `start` of it on, `row_bytes` long.
    #[must_use]
    pub fn within_rows(self, start: u64, row_bytes: u64) -> Self {
        let cut = self.row_bytes.saturating_sub(row_bytes);
        Self {
            extent: Extent {
                offset: self.extent.offset.saturating_add(start),
                bytes: self.extent.bytes.saturating_sub(cut),
                ..self.extent
            },
            row_bytes,
            ..self
        }
    }

    /// Returns the bytes from the first of rows `rows` to the last one; the extent lies past the
    /// end of a table without them.
    pub(crate) fn rows(&self, rows: Range<u64>) -> Extent {
        let start = rows.start.saturating_mul(self.stride_bytes);
        let n_gaps = (rows.end - rows.start).saturating_sub(1);
        let bytes = match rows.is_empty() {
            true => 0,
            false => n_gaps
                .saturating_mul(self.stride_bytes)
                .saturating_add(self.row_bytes),
        };
        Extent {
            offset: self.extent.offset.saturating_add(start),
            bytes,
            ..self.extent
        }
    }

    /// Returns the bytes of row `i`; the extent lies past the end of a table without it.
    pub(crate) fn row(&self, i: u64) -> Extent {
        self.rows(i..i.saturating_add(1))
    }

    /// Bytes of all rows, without those between them.
    pub fn n_bytes(&self) -> u64 {
        self.n_rows().saturating_mul(self.row_bytes)
    }

    /// Number of rows.
    pub fn n_rows(&self) -> u64 {
        let from_first = self.extent.bytes.checked_sub(self.row_bytes);
        let after_first = from_first.and_then(|bytes| bytes.checked_div(self.stride_bytes));
        after_first.map_or(0, |n| n + 1)
    }
}

/// Names the weight groups that every token needs of a layer, in the order of the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// The projection of a hidden state of another model, or of it and an embedding, of the first
    /// layer of a draft head.
    Join,
    /// The projection of the embedding to the inputs of all layers, of the first layer.
    LayerInputs,
    /// The projections of embeddings of n-grams, to keys and values.
    Ngrams,
    /// Of several residual streams: the down projection of the gates of the mixer's input, and the
    /// weights of its result.
    MixerStreamsDown,
    /// The up projection of the gates of the mixer's input.
    MixerStreamsUp,
    /// The projections of the embedding to further streams of the residual, of the first layer.
    StreamsBegin,
    /// The first matrix of a low-rank layer beside the mixer.
    LaurelLeft,
    /// The second one.
    LaurelRight,
    /// Query, key and value projections.
    Qkv,
    /// The projection of queries from a latent vector; of the decays of a delta net from one.
    QueryUp,
    /// The projections of keys from a latent vector, of each head; of the gate of a delta net.
    KeyUp,
    /// The projections of values from a latent vector, of each head.
    ValueUp,
    /// The attention output projection.
    AttnOut,
    /// The projection to all inputs of a state space.
    SsmIn,
    /// The projection to the steps' inputs, writes and reads of a state space.
    SsmX,
    /// The projection to the steps of a state space.
    SsmDt,
    /// The output projection of a recurrent state.
    SsmOut,
    /// As `MixerStreamsDown`, of the feed-forward block.
    FfnStreamsDown,
    /// As `MixerStreamsUp`, of the feed-forward block.
    FfnStreamsUp,
    /// The routers: of the experts, and the gate of the shared expert.
    Router,
    /// Gate and up projections of the feed-forward block or of the shared expert.
    GateUp,
    /// The down projection of the feed-forward block or of the shared expert.
    Down,
    /// The gate of a layer's embedding.
    EmbedGate,
    /// The projection of a layer's gated embedding.
    EmbedOut,
    /// The down projection of the gates of the streams that end, of the last layer.
    EndStreamsDown,
    /// The up projection of the gates of the streams that end, of the last layer.
    EndStreamsUp,
    /// The projections of further streams of the residual to the first one, of the last layer.
    StreamsEnd,
}

impl Projection {
    /// All groups of a layer, in order.
    pub const ALL: [Self; 27] = [
        Self::Join,
        Self::LayerInputs,
        Self::Ngrams,
        Self::MixerStreamsDown,
        Self::MixerStreamsUp,
        Self::StreamsBegin,
        Self::LaurelLeft,
        Self::LaurelRight,
        Self::Qkv,
        Self::QueryUp,
        Self::KeyUp,
        Self::ValueUp,
        Self::AttnOut,
        Self::SsmIn,
        Self::SsmX,
        Self::SsmDt,
        Self::SsmOut,
        Self::FfnStreamsDown,
        Self::FfnStreamsUp,
        Self::Router,
        Self::GateUp,
        Self::Down,
        Self::EmbedGate,
        Self::EmbedOut,
        Self::EndStreamsDown,
        Self::EndStreamsUp,
        Self::StreamsEnd,
    ];
}

/// The matrices of each group of a layer: `[projection][tensor]`. A layer may lack groups.
pub type LayerTables = [Vec<RowTable>; Projection::ALL.len()];

/// The byte ranges of every weight group of a model.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The matrices that every token needs, by layer.
    pub layers: Vec<LayerTables>,
    /// The matrices of the experts of each layer: `experts[l][tensor]` is a table whose rows are
    /// the experts, each whole or some rows of it. Empty for a layer without experts.
    pub experts: Vec<Vec<RowTable>>,
    /// The token embedding.
    pub embed: Option<RowTable>,
    /// The embedding of tokens in every layer, or of n-grams in one. Only rows of it are read; it
    /// is never resident.
    pub layer_embed: Option<RowTable>,
    /// The output head; equal to `embed` if the two are tied, and then it counts once.
    pub head: Option<RowTable>,
}

impl Plan {
    /// Restricts the plan to some layers, with or without embedding and head: nothing else is read,
    /// kept or counted.
    #[must_use]
    pub fn restrict(self, layers: Range<usize>, embed: bool, head: bool) -> Self {
        let is_in = |l: &usize| layers.contains(l);
        let n_layers = self.layers.len();
        let kept = |(l, tables)| {
            if is_in(&l) {
                tables
            } else if embed && l == 0 {
                only(tables, &OF_EMBEDDING)
            } else if head && l + 1 == n_layers {
                only(tables, &OF_HEAD)
            } else {
                LayerTables::default()
            }
        };
        let experts = |(l, tables)| if is_in(&l) { tables } else { Vec::new() };
        Self {
            layers: self.layers.into_iter().enumerate().map(kept).collect(),
            experts: self.experts.into_iter().enumerate().map(experts).collect(),
            embed: self.embed.filter(|_| embed),
            layer_embed: self.layer_embed.filter(|_| embed),
            head: self.head.filter(|_| head),
        }
    }

    /// Every table once.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &RowTable> {
        let head = self.head.iter().filter(|_| self.head != self.embed);
        self.layers
            .iter()
            .flatten()
            .flatten()
            .chain(self.experts.iter().flatten())
            .chain(&self.embed)
            .chain(&self.layer_embed)
            .chain(head)
    }

    /// The tables of a group whose contents do not depend on the tokens.
    pub(crate) fn tables_of(&self, group: WeightGroup<'_>) -> Option<&[RowTable]> {
        match group {
            WeightGroup::Layer(l, projection) => self
                .layers
                .get(l)
                .map(|tables| &tables[projection as usize][..]),
            WeightGroup::Head => self.head.as_ref().map(std::slice::from_ref),
            WeightGroup::Experts(..)
            | WeightGroup::EmbedRows(_)
            | WeightGroup::LayerEmbedRows(_) => None,
        }
        .filter(|tables| !tables.is_empty())
    }
}

/// Of the groups of a layer these alone.
fn only(mut tables: LayerTables, groups: &[Projection]) -> LayerTables {
    let mut kept = LayerTables::default();
    for &group in groups {
        kept[group as usize] = std::mem::take(&mut tables[group as usize]);
    }
    kept
}

/// The groups of the first layer that belong to the embedding.
const OF_EMBEDDING: [Projection; 1] = [Projection::LayerInputs];
/// The groups of the last layer that belong to the head: they end the residual streams.
const OF_HEAD: [Projection; 3] = [
    Projection::EndStreamsDown,
    Projection::EndStreamsUp,
    Projection::StreamsEnd,
];

/// Matrices that the forward pass asks for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightGroup<'a> {
    /// One group of a layer.
    Layer(usize, Projection),
    /// Some experts of a layer, all different; tensor `k * n_tensors + t` is tensor `t` of the
    /// expert `ids[k]`. Always one chunk.
    Experts(usize, &'a [u32]),
    /// Some rows of the token embedding; tensor `i` is row `ids[i]`. Always one chunk.
    EmbedRows(&'a [u32]),
    /// As [`EmbedRows`](Self::EmbedRows), of the embedding of tokens in every layer, or of n-grams.
    LayerEmbedRows(&'a [u32]),
    /// The output head.
    Head,
}

/// The weight groups that a step will ask for: those of some layers in order, then perhaps the
/// head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightPass {
    /// The layers.
    pub layers: Range<usize>,
    /// Whether the head follows them.
    pub wants_head: bool,
}
