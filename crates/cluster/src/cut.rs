//! How a model is cut for a ring: which layers run where, and what follows from it for executors
//! and frames. It opens nothing.

use std::{num::NonZeroUsize, ops::Range};

use atta_model::{
    Error, Executor, ExecutorInfo, ExecutorSize, SeqTable, Share,
    spec::{ModelSpec, Outputs, StateKind},
};

use crate::{
    RingParts,
    control::NodeName,
    core::Timing,
    journal::{MAX_JOINING, MAX_QUEUED, N_COPIED},
    wire::{Dtype, HEADER_BYTES, Limits, MAX_OPS, OP_BYTES, RUN_BYTES},
};

/// Most stages of a ring.
const MAX_STAGES: usize = 64;

/// Which layers each stage runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPlan {
    /// First layers, which the coordinator runs.
    pub n_local: usize,
    /// The layers of each stage: those that follow, in order.
    pub stages: Vec<Range<usize>>,
}

/// How a model is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Into so many stages with as many layers each as the number allows; the coordinator has none.
    Even(NonZeroUsize),
    /// As this plan says.
    At(RingPlan),
}

impl Cut {
    /// The plan for a model of `n_layers`.
    ///
    /// # Errors
    /// [`Error::Options`] unless every layer is in one stage, in order, and no stage is empty.
    pub fn plan(&self, n_layers: usize) -> Result<RingPlan, Error> {
        let plan = match self {
            Self::At(plan) => plan.clone(),
            Self::Even(n) => {
                let at = |i: usize| i * n_layers / n.get();
                RingPlan {
                    n_local: 0,
                    stages: (0..n.get()).map(|i| at(i)..at(i + 1)).collect(),
                }
            }
        };
        let n = plan.stages.len();
        let ends = plan.stages.iter().map(|stage| stage.end);
        let starts = std::iter::once(plan.n_local).chain(ends);
        let is_in_order = plan
            .stages
            .iter()
            .zip(starts)
            .all(|(stage, start)| stage.start == start && stage.start < stage.end);
        let is_whole = plan.stages.last().is_some_and(|last| last.end == n_layers);
        match is_in_order && is_whole && n <= MAX_STAGES {
            true => Ok(plan),
            false => Err(Error::Options(format!(
                "{n} stages of a model of {n_layers} layers: each stage has at least one, in order, at most {MAX_STAGES} stages"
            ))),
        }
    }
}

impl RingPlan {
    /// What saved states of executors of this size depend on, beside the model and its tokens: not
    /// on who has which layers, unless rows are rounded between machines. States of before a
    /// machine computed wrongly are not trusted once it is left out.
    pub(crate) fn state_id(
        &self,
        size: &ExecutorSize,
        wire: Dtype,
        left_out: &[NodeName],
    ) -> [u8; 32] {
        let cut = match wire {
            Dtype::F32 => None,
            Dtype::F16 | Dtype::Int8 => Some(self),
        };
        let text = format!("{:?} {} {wire:?} {cut:?} {left_out:?}", size.kv, size.n_ctx);
        blake3::hash(text.as_bytes()).into()
    }

    /// Batches in flight that keep every stage busy.
    pub(crate) fn depth(&self) -> usize {
        self.stages.len() + usize::from(self.n_local > 0)
    }
}

/// The id of the rounding of kernels, and of rows between machines.
pub(crate) fn numerics_id(isa: &str, wire: Dtype) -> String {
    match wire {
        Dtype::F32 => isa.to_owned(),
        wire => format!("{isa} rows {wire:?}"),
    }
}

/// Sizes of the executors of a ring.
pub(crate) struct Sizes {
    /// Embedding and the first layers.
    pub(crate) local: ExecutorSize,
    /// Norm and head, for one batch.
    pub(crate) head: ExecutorSize,
    /// The stages.
    pub(crate) stages: Vec<ExecutorSize>,
}

impl Sizes {
    pub(crate) fn new(spec: &ModelSpec, plan: &RingPlan, size: &ExecutorSize) -> Self {
        let n = spec.layers.len();
        let of = |layers: Range<usize>, embed: bool, head: bool| ExecutorSize {
            part: Some(Share {
                layers,
                embed,
                head,
            }),
            n_flights: plan.depth(),
            ..size.clone()
        };
        let head = ExecutorSize {
            n_ctx: size.n_batch,
            n_seqs: 1,
            n_recent: None,
            n_shared: None,
            ..of(n..n, false, true)
        };
        let stages = plan.stages.iter().cloned();
        Self {
            local: of(0..plan.n_local, true, false),
            head,
            stages: stages.map(|layers| of(layers, false, false)).collect(),
        }
    }
}

/// What frames of such a ring may hold.
pub(crate) fn limits(
    spec: &ModelSpec,
    ring: u64,
    n_stages: usize,
    size: &ExecutorSize,
) -> Result<Limits, Error> {
    let too_large = |what: &str| Error::Options(format!("a ring with {what}"));
    let small = |n: usize, what: &str| u16::try_from(n).map_err(|_| too_large(what));
    let large = |n: usize, what: &str| u32::try_from(n).map_err(|_| too_large(what));
    Ok(Limits {
        ring,
        n_stages: small(n_stages, "so many stages")?,
        // Runs of a frame are counted in 16 bits.
        n_batch: small(size.n_batch, "more than 65,535 rows per batch")?.into(),
        n_seqs: large(size.n_seqs, "so many sequences")?,
        n_ctx: large(size.n_ctx, "so many positions")?,
        d_row: small(spec.d_residual(), "rows of more than 65,535 numbers")?,
        dtype: Dtype::F32,
    })
}

/// Frames that one machine holds at most: two that came, one under computation, one that waits for
/// the next stage, and those that two links write and read.
const N_FRAMES: u64 = 6;

/// Memory of the frames that one machine of a ring holds, bytes.
pub(crate) fn frame_bytes(limits: &Limits) -> u64 {
    frame_bytes_of(limits.d_row.into(), limits.n_batch.into())
}

/// The same, where rows have `d_row` numbers and batches `n_batch` rows.
pub(crate) fn frame_bytes_of(d_row: u64, n_batch: u64) -> u64 {
    let row = d_row.saturating_mul(4).saturating_add(RUN_BYTES as u64);
    let heads = (HEADER_BYTES + MAX_OPS * OP_BYTES) as u64;
    let frame = n_batch.saturating_mul(row).saturating_add(heads);
    frame.saturating_mul(N_FRAMES)
}

/// Memory for states of some layers that are copied to or from a machine, bytes.
pub(crate) fn copy_bytes(spec: &ModelSpec, size: &ExecutorSize, layers: &Range<usize>) -> u64 {
    let of_layers = spec.state_bytes(size.kv, size.n_ctx.min(N_COPIED));
    let sum: u64 = of_layers
        .get(layers.clone())
        .iter()
        .copied()
        .flatten()
        .sum();
    sum.min(MAX_JOINING as u64)
}

/// Memory of a journal of all layers, bytes: states that come, and those that wait for the disk.
pub(crate) fn journal_bytes(spec: &ModelSpec, size: &ExecutorSize) -> u64 {
    match spec.is_recurrent() {
        true => 0,
        false => {
            let copied = copy_bytes(spec, size, &(0..spec.layers.len()));
            copied + copied.min(MAX_QUEUED as u64)
        }
    }
}

/// Refuses models that no ring runs, and executors of a part of one.
///
/// # Errors
/// [`Error::Options`].
pub(crate) fn check_ring(spec: &ModelSpec, size: &ExecutorSize) -> Result<(), Error> {
    if spec.is_encoder() || spec.head.outputs != Outputs::Logits {
        return Err(Error::Options(
            "a ring of an encoder, which computes each text whole and once".to_owned(),
        ));
    }
    match size.part {
        Some(_) => Err(Error::Options("a ring of a part of a model".to_owned())),
        None => Ok(()),
    }
}

/// The coordinator's side of a ring that is cut like this.
pub(crate) struct Coordination<'a> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) plan: &'a RingPlan,
    pub(crate) size: &'a ExecutorSize,
    pub(crate) sizes: &'a Sizes,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
    /// The id of the kernels' rounding.
    pub(crate) numerics: &'a str,
    /// Nodes that computed wrongly.
    pub(crate) left_out: &'a [NodeName],
}

impl Coordination<'_> {
    /// What the ring is made of, with the executors of these sizes for local layers and head.
    pub(crate) fn parts(
        &self,
        local: Vec<Box<dyn Executor>>,
        head: Box<dyn Executor>,
    ) -> RingParts {
        let Self {
            spec, size, sizes, ..
        } = *self;
        let distinct = distinct_kinds(spec);
        RingParts {
            info: ExecutorInfo {
                part: Share::whole(spec),
                n_ctx: size.n_ctx,
                n_seqs: size.n_seqs,
                n_batch: size.n_batch,
                numerics: self.numerics.to_owned(),
            },
            seqs: SeqTable::new(&distinct, &sizes.local.seqs()),
            local,
            head,
            limits: self.limits,
            timing: self.timing,
            depth: self.plan.depth(),
            d_model: spec.d_model,
            n_vocab: spec.n_vocab,
            n_kv_groups: distinct
                .iter()
                .filter(|kind| matches!(kind, StateKind::Kv(_)))
                .count(),
            state_id: self.plan.state_id(size, self.limits.dtype, self.left_out),
        }
    }
}

/// The kinds of states of a model's layers, each once.
pub(crate) fn distinct_kinds(spec: &ModelSpec) -> Vec<StateKind> {
    let kinds = spec.layers.iter().flat_map(|layer| layer.state_kinds());
    let mut distinct = Vec::new();
    kinds.for_each(|kind| {
        if !distinct.contains(&kind) {
            distinct.push(kind);
        }
    });
    distinct
}
