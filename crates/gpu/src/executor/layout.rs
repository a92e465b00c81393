//! Where the numbers of a step are: regions of the buffers of values and activations.
//!
//! It knows widths and no contents. Regions of the mixer and of the feed-forward block share their
//! place, since the results of one are codes before the other begins, and so do those of the head.

use super::kernels::LAYOUTS;
use crate::{ActLayout, Error, Quantize};
use atta_model::spec::ModelSpec;
use atta_model::{ExecutorSize, Share};

/// Words of partial results of attention, and of logits that are computed at once, but for rows
/// with more: 32 MiB, or an eighth of the largest buffer.
const MAX_ROOM: usize = 8 << 20;
/// Positions of a chunk of attention.
const CHUNK: usize = crate::CHUNK;

/// Words of the buffers, and the first words of their regions.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// The residual, `[n_rows, d_model]`.
    pub(super) x: u32,
    /// A result that is not added yet, `[n_rows, d_model]`.
    pub(super) y: u32,
    /// Queries, keys, values and results of heads.
    pub(super) q: u32,
    pub(super) k: u32,
    pub(super) v: u32,
    pub(super) heads: u32,
    /// Both factors of a gated MLP; the first one of a plain one.
    pub(super) gate: u32,
    pub(super) up: u32,
    pub(super) logits: u32,
    pub(super) n_values: usize,
    /// Rows of logits that are computed at once.
    pub(super) n_logit_rows: usize,
    /// The input of a sublayer.
    pub(super) input: Acts,
    /// The results of heads.
    pub(super) mixed: Acts,
    /// The hidden layer of an MLP.
    pub(super) hidden: Acts,
    /// Partial results of attention, in the place of `hidden`.
    pub(super) partials: u32,
    pub(super) n_partials: usize,
    pub(super) n_acts: usize,
    /// Words of the regions that are used in turns.
    room: usize,
}

/// The first words of rows of activations, in each layout.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acts([u32; 3]);

impl Acts {
    /// The first word of a layout.
    pub(super) fn at(&self, layout: ActLayout) -> u32 {
        self.0[Quantize::slot(layout)]
    }

    /// The same behind `n` rows of width `d`.
    pub(super) fn behind(&self, n: usize, d: usize) -> Self {
        let mut acts = *self;
        for layout in LAYOUTS {
            acts.0[Quantize::slot(layout)] += (n * layout.row_words(d)) as u32;
        }
        acts
    }
}

/// Takes words, one region behind the other.
#[derive(Clone, Copy)]
struct Words(usize);

impl Words {
    fn take(&mut self, n: usize) -> Result<u32, Error> {
        let first = u32::try_from(self.0);
        self.0 = self.0.saturating_add(n);
        let fits = first.ok().filter(|_| self.0 <= u32::MAX as usize);
        fits.ok_or_else(|| Error::Unsupported("a batch of so many rows".to_owned()))
    }

    fn take_acts(&mut self, n_rows: usize, d: usize) -> Result<Acts, Error> {
        let mut acts = Acts::default();
        for layout in LAYOUTS {
            acts.0[Quantize::slot(layout)] = self.take(n_rows * layout.row_words(d))?;
        }
        Ok(acts)
    }
}

impl Layout {
    /// The regions of a part of a model for an executor of a size, in buffers of at most
    /// `buffer_bytes`.
    pub(super) fn new(
        spec: &ModelSpec,
        part: &Share,
        size: &ExecutorSize,
        buffer_bytes: u64,
    ) -> Result<Self, Error> {
        let room = usize::try_from(buffer_bytes / 32).unwrap_or(usize::MAX);
        let mut layout = Self {
            room: room.min(MAX_ROOM),
            ..Self::default()
        };
        layout.place_values(spec, part, size.n_batch)?;
        layout.place_acts(spec, size.n_batch, size.n_ctx)?;
        Ok(layout)
    }

    fn place_values(&mut self, spec: &ModelSpec, part: &Share, n: usize) -> Result<(), Error> {
        let (d_q, d_kv, d_ff) = spec.max_widths();
        let mut values = Words(0);
        self.x = values.take(n * spec.d_model)?;
        self.y = values.take(n * spec.d_model)?;
        let mut mixer = values;
        self.q = mixer.take(n * d_q)?;
        self.k = mixer.take(n * d_kv)?;
        self.v = mixer.take(n * d_kv)?;
        self.heads = mixer.take(n * d_q)?;
        let mut mlp = values;
        self.gate = mlp.take(n * d_ff)?;
        self.up = mlp.take(n * d_ff)?;
        let mut head = values;
        let n_vocab = if part.head { spec.n_logits() } else { 0 };
        self.n_logit_rows = (self.room / n_vocab.max(1)).clamp(1, n);
        self.logits = head.take(self.n_logit_rows * n_vocab)?;
        self.n_values = mixer.0.max(mlp.0).max(head.0);
        Ok(())
    }

    fn place_acts(&mut self, spec: &ModelSpec, n: usize, n_ctx: usize) -> Result<(), Error> {
        let (d_q, _, d_ff) = spec.max_widths();
        let mut acts = Words(0);
        self.input = acts.take_acts(n, spec.d_model)?;
        self.mixed = acts.take_acts(n, d_q)?;
        let mut attention = acts;
        self.hidden = acts.take_acts(n, d_ff)?;
        let of_row = partial_words(spec, n_ctx.div_ceil(CHUNK));
        self.n_partials = of_row.saturating_mul(n).min(self.room.max(of_row));
        self.partials = attention.take(self.n_partials)?;
        self.n_acts = acts.0.max(attention.0);
        Ok(())
    }
}

/// Words of the partial results of a row of `n_chunks` chunks, in the layer with most.
fn partial_words(spec: &ModelSpec, n_chunks: usize) -> usize {
    let of_layer = spec.attentions().map(|a| a.n_heads * (2 + a.d_head));
    of_layer.max().unwrap_or(0).saturating_mul(n_chunks)
}
