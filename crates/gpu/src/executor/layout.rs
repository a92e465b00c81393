//! Where the numbers of a step are: regions of the buffers of values and activations.
//!
//! It knows widths and no contents. Regions of the mixer and of the feed-forward block share their
//! place, since the results of one are codes before the other begins, and so do those of the head.

use super::kernels::LAYOUTS;
use crate::{ActLayout, Error, GroupSlots, Quantize};
use atta_model::spec::{
    Attention, DeltaNet, LayerSpec, Mamba, Mamba2, Mixer, ModelSpec, Moe, OutputGate, WeightedSide,
};
use atta_model::{AdapterSizes, ExecutorSize, Share};

/// Words of partial results of attention, and of logits that are computed at once, but for rows
/// with more: 32 MiB, or an eighth of the largest buffer.
const MAX_ROOM: usize = 8 << 20;
/// Workgroups in one dimension.
const MAX_GRID: usize = crate::host::GRID_MAX as usize;
/// Positions of a chunk of attention.
const CHUNK: usize = crate::CHUNK;

/// Words of the buffers, and the first words of their regions.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// The residual, `[n_rows, d_model]`.
    pub(super) x: u32,
    /// A result that is not added yet, `[n_rows, d_model]`.
    pub(super) y: u32,
    /// The inputs of each layer of embeddings in every layer, `[n_layers, n_rows, d]`.
    pub(super) inputs: u32,
    /// Queries, keys, values and results of heads.
    pub(super) q: u32,
    pub(super) k: u32,
    pub(super) v: u32,
    pub(super) heads: u32,
    /// Gates of the results of heads.
    pub(super) gates: u32,
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
    pub(super) experts: ExpertRegions,
    pub(super) recurrent: RecurrentRegions,
    pub(super) latent: LatentRegions,
    pub(super) adapters: AdapterRegions,
    /// Words of the regions that are used in turns.
    room: usize,
}

/// Where the numbers of a mixture of experts are; those of its slots take the place of the MLP's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpertRegions {
    /// The router's logits, `[n_rows, n_experts]`.
    pub(super) logits: u32,
    /// Gates and results of what all rows use, `[n_rows]` and `[n_rows, d_model]`.
    pub(super) shared_gates: u32,
    pub(super) shared: u32,
    /// Results of the experts by slot, `[n_rows · n_used, d_model]`.
    pub(super) results: u32,
    /// Among the activations: routes, and slots in the order of experts.
    pub(super) routes: u32,
    pub(super) groups: u32,
}

/// Where the numbers of a recurrent layer are, in the place of those of attention; all of rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecurrentRegions {
    /// Inputs and results of the convolution.
    pub(super) inputs: u32,
    pub(super) mixed: u32,
    /// The gate of the results, and these.
    pub(super) z: u32,
    pub(super) results: u32,
    /// What decays and gains are made of, and these.
    pub(super) alpha: u32,
    pub(super) beta: u32,
    pub(super) decays: u32,
    pub(super) gains: u32,
    /// Vectors between the matrices of gates and decays; or what steps are made of, keys and
    /// queries.
    pub(super) low: [u32; 3],
}

/// The widest convolution and results of recurrent layers, the most numbers of each kind that
/// states change by, and the widest vectors between two matrices.
#[derive(Clone, Copy, Default)]
struct RecurrentWidths {
    d_conv: usize,
    d_results: usize,
    n_alpha: usize,
    n_decays: usize,
    n_gains: usize,
    d_low: usize,
}

impl RecurrentWidths {
    fn of(spec: &ModelSpec) -> Self {
        let all = spec.layers.iter().map(|layer| match &layer.mixer {
            Mixer::ShortConv(_) => Self {
                d_conv: spec.d_model,
                d_results: spec.d_model,
                ..Self::default()
            },
            Mixer::DeltaNet(net) => Self::of_net(net),
            Mixer::Mamba(mamba) => Self::of_channels(mamba),
            Mixer::Mamba2(mamba) => Self::of_mamba2(mamba),
            Mixer::AttentionAndMamba2(both) => Self::of_mamba2(&both.mamba),
            Mixer::None | Mixer::Attention(_) => Self::default(),
        });
        all.fold(Self::default(), Self::max)
    }

    fn of_net(net: &DeltaNet) -> Self {
        Self {
            d_conv: net.d_conv(),
            d_results: net.d_values(),
            n_alpha: net.n_decays(),
            n_decays: net.n_decays(),
            n_gains: net.n_heads,
            d_low: net.ranks().into_iter().max().unwrap_or(0),
        }
    }

    fn of_channels(mamba: &Mamba) -> Self {
        Self {
            d_conv: mamba.d_inner,
            d_results: mamba.d_inner,
            n_alpha: mamba.d_inner,
            n_decays: 0,
            n_gains: mamba.d_inner,
            d_low: mamba.d_rank.max(mamba.d_state),
        }
    }

    fn of_mamba2(mamba: &Mamba2) -> Self {
        Self {
            d_conv: mamba.d_conv(),
            d_results: mamba.d_inner(),
            n_alpha: mamba.n_heads,
            n_decays: mamba.n_heads,
            n_gains: mamba.n_heads,
            d_low: 0,
        }
    }

    /// The larger one of each.
    fn max(self, other: Self) -> Self {
        Self {
            d_conv: self.d_conv.max(other.d_conv),
            d_results: self.d_results.max(other.d_results),
            n_alpha: self.n_alpha.max(other.n_alpha),
            n_decays: self.n_decays.max(other.n_decays),
            n_gains: self.n_gains.max(other.n_gains),
            d_low: self.d_low.max(other.d_low),
        }
    }

    fn place(self, n: usize, words: &mut Words) -> Result<RecurrentRegions, Error> {
        Ok(RecurrentRegions {
            inputs: words.take(n * self.d_conv)?,
            mixed: words.take(n * self.d_conv)?,
            z: words.take(n * self.d_results)?,
            results: words.take(n * self.d_results)?,
            alpha: words.take(n * self.n_alpha)?,
            beta: words.take(n * self.n_gains)?,
            decays: words.take(n * self.n_decays)?,
            gains: words.take(n * self.n_gains)?,
            low: [
                words.take(n * self.d_low)?,
                words.take(n * self.d_low)?,
                words.take(n * self.d_low)?,
            ],
        })
    }
}

/// Where the numbers of latent attention are, beside those of other attention.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LatentRegions {
    /// Queries before matrices are absorbed, `[n_rows, n_heads, d_key + d_rope]`.
    pub(super) q: u32,
    /// Latent vectors of keys and values, `[n_rows, d_latent + d_rope]`, and of queries.
    pub(super) kv: u32,
    pub(super) q_latent: u32,
    /// Inputs of the matrices of some heads, a head behind the other, as values and as activations
    /// in the place of partial results.
    pub(super) rows: u32,
    pub(super) row_acts: Acts,
    /// How many of these rows there is room for.
    pub(super) n_rows: usize,
}

/// The widths of latent attention, where they are largest; zeros without any.
#[derive(Clone, Copy, Debug, Default)]
struct LatentWidths {
    d_q: usize,
    d_kv: usize,
    d_query: usize,
    /// Of the inputs of the matrices of heads.
    d_row: usize,
    n_heads: usize,
}

impl LatentWidths {
    fn of(spec: &ModelSpec) -> Self {
        let mut max = Self::default();
        for (a, latent) in spec.attentions().filter_map(|a| Some((a, a.latent()?))) {
            max = Self {
                d_q: max.d_q.max(a.d_q_rows()),
                d_kv: max.d_kv.max(a.d_kv()),
                d_query: max.d_query.max(latent.d_query.unwrap_or(0)),
                d_row: max.d_row.max(latent.d_key).max(latent.d_latent),
                n_heads: max.n_heads.max(a.n_heads),
            };
        }
        max
    }

    /// Places the values of `n` rows; those of heads take at most `room` words, but for one head.
    fn place(self, n: usize, room: usize, words: &mut Words) -> Result<LatentRegions, Error> {
        let most = n.saturating_mul(self.n_heads).min(MAX_GRID.max(n));
        let n_rows = (room / self.d_row.max(1)).min(most).max(n.min(most));
        Ok(LatentRegions {
            q: words.take(n * self.d_q)?,
            kv: words.take(n * self.d_kv)?,
            q_latent: words.take(n * self.d_query)?,
            rows: words.take(n_rows * self.d_row)?,
            row_acts: Acts::default(),
            n_rows,
        })
    }
}

/// Where what adapters compute is: the results of their first matrices, as values and as
/// activations, and those of their second ones, of so many words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AdapterRegions {
    pub(super) low: u32,
    pub(super) low_acts: Acts,
    pub(super) results: u32,
    pub(super) n_results: usize,
}

/// What mixtures of experts need for each row, at most; zeros without any.
struct ExpertWidths {
    n_experts: usize,
    n_used: usize,
    /// Width of the hidden layers of all experts of a row, and of the widest one.
    d_hidden: usize,
    d_widest: usize,
    /// Rows that experts read, for each row.
    n_inputs: usize,
}

impl ExpertWidths {
    fn of(spec: &ModelSpec) -> Self {
        let (n_experts, n_used) = spec.max_experts();
        let all = || moes(spec);
        let n_inputs = |m: &Moe| match m.weighted {
            WeightedSide::Input => m.n_used,
            WeightedSide::Output => 1,
        };
        Self {
            n_experts,
            n_used,
            d_hidden: all().map(|m| m.n_used * m.expert.d_ff).max().unwrap_or(0),
            d_widest: all().map(|m| m.expert.d_ff).max().unwrap_or(0),
            n_inputs: all().map(n_inputs).max().unwrap_or(1),
        }
    }
}

fn moes(spec: &ModelSpec) -> impl Iterator<Item = &Moe> {
    spec.layers.iter().filter_map(LayerSpec::moe)
}

/// Gates of the results of a row's heads.
pub(super) fn n_gates(a: &Attention) -> usize {
    match a.gate {
        OutputGate::None => 0,
        OutputGate::Elements => a.d_q(),
        OutputGate::Heads => a.n_heads,
    }
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
    /// The regions of a part of a model with adapters for an executor of a size, in buffers of at
    /// most `buffer_bytes`.
    pub(super) fn new(
        spec: &ModelSpec,
        part: &Share,
        size: &ExecutorSize,
        adapters: &AdapterSizes,
        buffer_bytes: u64,
    ) -> Result<Self, Error> {
        let room = usize::try_from(buffer_bytes / 32).unwrap_or(usize::MAX);
        let mut layout = Self {
            room: room.min(MAX_ROOM),
            ..Self::default()
        };
        let mut words = [Words(0); 2];
        layout.place_adapters(spec, size.n_batch, adapters, &mut words)?;
        let [values, acts] = words;
        layout.place_values(spec, part, size.n_batch, values)?;
        layout.place_acts(spec, size, acts)?;
        Ok(layout)
    }

    /// The regions of adapters, in front of all others.
    fn place_adapters(
        &mut self,
        spec: &ModelSpec,
        n: usize,
        adapters: &AdapterSizes,
        [values, acts]: &mut [Words; 2],
    ) -> Result<(), Error> {
        let rank = adapters.rank();
        if rank == 0 {
            return Ok(());
        }
        let experts = ExpertWidths::of(spec);
        let n_rows = n * experts.n_used.max(1);
        // All slots are computed at once, other rows as many as there is room for.
        let of_slots = experts.n_used * experts.d_widest.max(spec.d_model) * n;
        let d_out = adapters.d_out();
        let n_results = d_out.saturating_mul(n);
        let n_results = n_results.min(self.room.max(d_out)).max(of_slots);
        self.adapters = AdapterRegions {
            low: values.take(n_rows * rank)?,
            low_acts: acts.take_acts(n_rows, rank)?,
            results: values.take(n_results)?,
            n_results,
        };
        Ok(())
    }

    fn place_values(
        &mut self,
        spec: &ModelSpec,
        part: &Share,
        n: usize,
        mut values: Words,
    ) -> Result<(), Error> {
        let (d_q, d_kv, d_ff) = spec.max_widths();
        self.x = values.take(n * spec.d_model)?;
        self.y = values.take(n * spec.d_model)?;
        let d_inputs = spec.layer_embed.map_or(0, |embed| embed.d);
        self.inputs = values.take(n * part.layers.len() * d_inputs)?;
        let mut mixer = values;
        self.q = mixer.take(n * d_q)?;
        self.k = mixer.take(n * d_kv)?;
        self.v = mixer.take(n * d_kv)?;
        self.heads = mixer.take(n * d_q)?;
        self.gates = mixer.take(n * spec.attentions().map(n_gates).max().unwrap_or(0))?;
        self.latent = LatentWidths::of(spec).place(n, self.room, &mut mixer)?;
        let mut recurrent = values;
        self.recurrent = RecurrentWidths::of(spec).place(n, &mut recurrent)?;
        let mut mlp = values;
        let experts = ExpertWidths::of(spec);
        let d_hidden = d_ff.max(experts.d_hidden);
        self.gate = mlp.take(n * d_hidden)?;
        self.up = mlp.take(n * d_hidden)?;
        if experts.n_used > 0 {
            let regions = &mut self.experts;
            regions.logits = mlp.take(n * experts.n_experts)?;
            regions.shared_gates = mlp.take(n)?;
            regions.shared = mlp.take(n * spec.d_model)?;
            regions.results = mlp.take(n * experts.n_used * spec.d_model)?;
        }
        let mut head = values;
        let n_vocab = if part.head { spec.n_logits() } else { 0 };
        self.n_logit_rows = (self.room / n_vocab.max(1)).clamp(1, n);
        self.logits = head.take(self.n_logit_rows * n_vocab)?;
        self.n_values = mixer.0.max(recurrent.0).max(mlp.0).max(head.0);
        Ok(())
    }

    fn place_acts(
        &mut self,
        spec: &ModelSpec,
        size: &ExecutorSize,
        mut acts: Words,
    ) -> Result<(), Error> {
        let n = size.n_batch;
        let n_ctx = size.n_ctx;
        let (d_q, _, d_ff) = spec.max_widths();
        let experts = ExpertWidths::of(spec);
        self.input = acts.take_acts(n * experts.n_inputs, spec.d_model)?;
        let latent = LatentWidths::of(spec);
        let recurrent = RecurrentWidths::of(spec);
        let d_mixed = d_q.max(recurrent.d_results).max(recurrent.d_low);
        let d_mixed = d_mixed.max(latent.d_query);
        self.mixed = acts.take_acts(n, d_mixed)?;
        if experts.n_used > 0 {
            let n_slots = n * experts.n_used;
            self.experts.routes = acts.take(2 * n_slots)?;
            self.experts.groups = acts.take(GroupSlots::n_words(n_slots))?;
        }
        let mut attention = acts;
        let mut heads = acts;
        for layout in LAYOUTS {
            let of_slots = |m: &Moe| m.n_used * layout.row_words(m.expert.d_ff);
            let of_row = moes(spec)
                .map(of_slots)
                .fold(layout.row_words(d_ff), usize::max);
            self.hidden.0[Quantize::slot(layout)] = acts.take(n * of_row)?;
        }
        let of_row = partial_words(spec, n_ctx.div_ceil(CHUNK));
        self.n_partials = of_row.saturating_mul(n).min(self.room.max(of_row));
        self.partials = attention.take(self.n_partials)?;
        self.latent.row_acts = heads.take_acts(self.latent.n_rows, latent.d_row)?;
        self.n_acts = acts.0.max(attention.0).max(heads.0);
        Ok(())
    }
}

/// Words of the partial results of a row of `n_chunks` chunks, in the layer with most.
fn partial_words(spec: &ModelSpec, n_chunks: usize) -> usize {
    let of_layer = spec.attentions().map(|a| a.n_heads * (2 + a.d_head));
    of_layer.max().unwrap_or(0).saturating_mul(n_chunks)
}
