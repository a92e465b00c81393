//! The memory plan: divides a budget between a model and its session, before the first token.
//!
//! The program, the vocabulary, the KV cache and the buffers of a step come first; the rest holds
//! weights. If memory is short, the plan reduces pinned weights, then the read-ahead ring, then the
//! batch size; KV precision and context length only if allowed ([`Fit`]).

use std::path::Path;

use atta_formats::{Setting, Suggestion};
use atta_kernels::{Kernels, Pool};
use atta_model::{AdapterSizes, Footprint, KvType, MemberPart, Model, Share, spec::ModelSpec};
use atta_store::{
    Budget, InMemory, ModelFiles, Plan, ResidencyBytes, ResidencyPolicy, Streamed, Weights, system,
};

use crate::{Error, LoadOptions, SessionOptions, session};

mod plan;

pub use plan::MemoryPlan;

/// Placement of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsAt {
    /// Mapped, in the page cache of the system.
    Mapped,
    /// In private memory, read once.
    Resident,
    /// Read from the file when needed; as many as fit stay in memory.
    Streamed,
}

/// Whether a session may shrink to fit its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// A session that does not fit is an error.
    #[default]
    Strict,
    /// The KV type may become f16, then q8; then the context may become shorter.
    Shrink,
}

/// Minimum context length of [`Fit::Shrink`].
const MIN_CTX: usize = 128;

/// Growth of the program's private memory after a model is loaded.
const PROGRAM_BYTES: u64 = 3 << 18;
/// Growth per thread, mostly the stack: results of row tiles and scratch of attention.
const THREAD_BYTES: u64 = 384 << 10;
/// Private memory of the program where the system does not report it.
const UNKNOWN_BYTES: u64 = 4 << 20;

/// Percentage of the available memory that streamed weights use without a budget; the rest is for
/// the accounts of the system.
const AUTO_PERCENT: u64 = 85;

/// The memory limit and the placement of the weights, decided before tensors are known.
#[derive(Clone, Copy)]
pub(crate) struct Outline {
    /// Private bytes.
    pub(crate) limit: u64,
    pub(crate) weights: WeightsAt,
}

impl Outline {
    /// Applies the options. By default a file that fits the available memory is mapped, and a
    /// larger one is streamed within [`AUTO_PERCENT`] of it.
    ///
    /// # Errors
    /// A file that has not the tensors of the part of the model that this machine runs.
    pub(crate) fn new(
        options: &LoadOptions,
        files: &ModelFiles,
        needs: &SessionNeeds<'_>,
    ) -> Result<Self, atta_model::Error> {
        let LoadOptions {
            weights, beside, ..
        } = *options;
        let ram_budget = options
            .ram_budget
            .map(|budget| budget.saturating_sub(beside));
        let available = system::memory_available(beside).unwrap_or(u64::MAX);
        let most = system::memory_limit().saturating_sub(beside);
        let room = ram_budget.map_or(available, |budget| budget.min(most));
        let fits = part_bytes(needs, files)?
            .saturating_add(needs.most())
            .saturating_add(program_bytes(needs.n_threads, beside))
            <= room;
        let weights = weights.unwrap_or(match (fits, files.is_addressable()) {
            (true, true) => WeightsAt::Mapped,
            (true, false) => WeightsAt::Resident,
            (false, _) => WeightsAt::Streamed,
        });
        let limit = match (ram_budget, weights) {
            (Some(limit), _) => limit.min(most),
            (None, WeightsAt::Streamed) => available.min(most) / 100 * AUTO_PERCENT,
            (None, _) => most,
        };
        Ok(Self { limit, weights })
    }
}

/// Bytes of the file that this machine reads.
pub(crate) fn part_bytes(
    needs: &SessionNeeds<'_>,
    files: &ModelFiles,
) -> Result<u64, atta_model::Error> {
    let part = needs.part();
    if let Some(member) = needs.footprint.member() {
        let part = MemberPart {
            share: part,
            member,
        };
        return part.n_bytes(needs.spec, files.directory());
    }
    let is_reduced = needs.spec.left_out().next().is_some();
    if part == Share::whole(needs.spec) && !is_reduced {
        return Ok(files.file_bytes());
    }
    let tensors = part.tensors(needs.spec, files.directory())?;
    Ok(tensors.iter().map(|tensor| tensor.n_bytes).sum())
}

/// The memory that a session needs beside weights.
pub(crate) struct SessionNeeds<'a> {
    pub(crate) spec: &'a ModelSpec,
    /// Predicts the executor's memory.
    pub(crate) footprint: &'a dyn Footprint,
    pub(crate) n_threads: usize,
    pub(crate) session: SessionOptions,
    pub(crate) fit: Fit,
    /// What a step with adapters takes.
    pub(crate) adapters: AdapterSizes,
    /// Bytes for the caller.
    pub(crate) spare: u64,
}

impl SessionNeeds<'_> {
    /// The part of the model that this machine runs.
    pub(crate) fn part(&self) -> Share {
        self.footprint.part(self.spec)
    }

    /// Binds that part, with all rows or those of a member.
    pub(crate) fn bind(
        &self,
        files: ModelFiles,
        budget: &Budget,
        source: impl FnOnce(ModelFiles, Plan) -> Result<Box<dyn Weights>, PlaceError>,
    ) -> Result<Model, PlaceError> {
        let spec = self.spec.clone();
        let share = self.part();
        match self.footprint.member() {
            Some(member) => {
                let part = MemberPart { share, member };
                Model::with_member(spec, part, files, budget, source)
            }
            None => Model::with_share(spec, share, files, budget, source),
        }
    }

    /// The requested session.
    fn wanted(&self) -> session::Resolved {
        let wanted = session::resolve(self.spec, &self.session);
        match self.footprint.keeps_draft_states() {
            true => wanted,
            false => session::Resolved {
                n_draft_states: 0,
                ..wanted
            },
        }
    }

    /// Bytes of the requested session.
    fn most(&self) -> u64 {
        self.of(&self.wanted())
    }

    fn of(&self, options: &session::Resolved) -> u64 {
        let needs = self.footprint.executor_bytes(self.spec, &options.size());
        let outputs =
            session::output_bytes(self.spec, options.n_ctx).saturating_mul(options.n_seqs as u64);
        let drafts = session::logits_bytes(self.spec).saturating_mul(options.n_draft as u64);
        let adapters = self.adapters.bytes(self.spec, options.n_batch);
        let weights = self.footprint.weights_beside();
        [needs.activations, weights, adapters, outputs, drafts]
            .into_iter()
            .fold(needs.state, u64::saturating_add)
            .saturating_add(self.spare)
    }

    /// Acceptable sessions, best first: with smaller batches, then with smaller KV types, then with
    /// a shorter context; each without memory for drafts, too.
    pub(crate) fn candidates(&self) -> Vec<session::Resolved> {
        let first = self.wanted();
        let mut contexts = vec![first];
        if self.fit == Fit::Shrink {
            contexts.extend(
                self.smaller_kv(first.kv)
                    .map(|kv| session::Resolved { kv, ..first }),
            );
            let smallest = contexts[contexts.len() - 1];
            let lengths = std::iter::successors(Some(first.n_ctx / 2), |n| Some(n / 2))
                .take_while(|&n| n >= MIN_CTX);
            contexts.extend(lengths.map(|n_ctx| session::Resolved { n_ctx, ..smallest }));
        }
        let batches = |of: session::Resolved| {
            let fixed = self.session.n_batch.is_some() || self.spec.is_encoder();
            let smaller = std::iter::successors(Some(of.n_batch.min(of.n_ctx)), |n| {
                Some(n / 2).filter(|&n| n > 0)
            });
            smaller
                .take(if fixed { 1 } else { usize::MAX })
                .map(move |n_batch| session::Resolved { n_batch, ..of })
                .flat_map(with_and_without_drafts)
        };
        contexts.into_iter().flat_map(batches).collect()
    }

    /// KV types smaller than the requested one.
    fn smaller_kv(&self, requested: KvType) -> impl Iterator<Item = KvType> {
        let bytes = |kv| self.spec.state_bytes(kv, 1).iter().sum::<u64>();
        [KvType::F16, KvType::Q8]
            .into_iter()
            .filter(move |&kv| bytes(kv) < bytes(requested))
    }

    /// The best session that leaves at least `min_weights` bytes of a budget to weights.
    ///
    /// # Errors
    /// [`Error::TooLittleMemory`] with the smallest sufficient budget.
    fn choose(
        &self,
        budget: &Budget,
        min_weights: u64,
        weights: WeightsAt,
    ) -> Result<(session::Resolved, u64), Error> {
        let candidates = self.candidates();
        let fits = |options: &session::Resolved| {
            budget
                .left()
                .checked_sub(self.of(options))
                .filter(|&left| left >= min_weights)
        };
        if let Some(found) = candidates
            .iter()
            .find_map(|options| Some((*options, fits(options)?)))
        {
            return Ok(found);
        }
        let smallest = candidates
            .iter()
            .map(|options| self.of(options))
            .min()
            .unwrap_or(0);
        let smallest = smallest
            .saturating_add(min_weights)
            .saturating_add(budget.used());
        Err(Error::TooLittleMemory {
            budget: budget.limit(),
            smallest,
            suggestions: self.suggestions(weights == WeightsAt::Resident),
        })
    }

    /// Settings that would make the session need less.
    fn suggestions(&self, is_resident: bool) -> Vec<Suggestion> {
        let n_ctx = self.wanted().n_ctx;
        let mut ways = Vec::new();
        if is_resident {
            ways.push(Suggestion::Choose(Setting::Weights, "streamed"));
        }
        if n_ctx > 1 {
            ways.push(Suggestion::Below(Setting::NCtx, n_ctx));
        }
        if self.smaller_kv(self.session.kv).next().is_some() {
            ways.push(Suggestion::Choose(Setting::KvType, "q8"));
        }
        if let Some(n_batch) = self.session.n_batch.filter(|&n| n > 1) {
            ways.push(Suggestion::Below(Setting::NBatch, n_batch));
        }
        if self.fit == Fit::Strict && n_ctx > MIN_CTX {
            ways.push(Suggestion::TurnOn(Setting::Fit));
        }
        ways
    }
}

/// A session as it is, and without drafts if it has any.
fn with_and_without_drafts(of: session::Resolved) -> impl Iterator<Item = session::Resolved> {
    let plain = session::Resolved { n_draft: 0, ..of };
    std::iter::once(of).chain((of.n_draft > 0).then_some(plain))
}

/// The sizes of a session, and the weights that stay in memory.
pub(crate) struct Decision {
    pub(crate) session: session::Resolved,
    pub(crate) policy: ResidencyPolicy,
}

/// Divides the rest of a budget between weights and a session.
///
/// # Errors
/// [`Error::TooLittleMemory`].
pub(crate) fn divide(
    budget: &Budget,
    plan: &Plan,
    needs: &SessionNeeds<'_>,
    weights: WeightsAt,
) -> Result<Decision, Error> {
    if weights == WeightsAt::Resident {
        let policy = ResidencyPolicy::whole();
        let (session, _) =
            needs.choose(budget, ResidencyBytes::of(plan, &policy).memory(), weights)?;
        return Ok(Decision { session, policy });
    }
    let n_used = needs
        .spec
        .layers
        .iter()
        .filter_map(|l| l.moe())
        .map(|moe| moe.n_used)
        .max()
        .unwrap_or(0);
    let min_weights = ResidencyPolicy::least_bytes(plan, n_used);
    let (session, left) = needs.choose(budget, min_weights, weights)?;
    let policy = ResidencyPolicy::within(plan, n_used, left).expect("the smallest fits");
    Ok(Decision { session, policy })
}

/// The best session that fits the rest of a budget.
///
/// # Errors
/// [`Error::TooLittleMemory`].
pub(crate) fn beside(
    budget: &Budget,
    needs: &SessionNeeds<'_>,
) -> Result<session::Resolved, Error> {
    needs
        .choose(budget, 0, WeightsAt::Mapped)
        .map(|(session, _)| session)
}

/// Private memory of the program: the current size beyond `accounted`, and later growth.
pub(crate) fn program_bytes(n_threads: usize, accounted: u64) -> u64 {
    let now = system::Usage::now().map_or(UNKNOWN_BYTES, |usage| {
        usage.private().saturating_sub(accounted)
    });
    now + PROGRAM_BYTES + THREAD_BYTES * n_threads as u64
}

/// A model with its weights placed.
pub(crate) struct Placed {
    pub(crate) model: Model,
    pub(crate) session: session::Resolved,
    pub(crate) prediction: Option<Prediction>,
}

/// An error of [`place`]. An error of the model lacks the path of the file.
pub(crate) enum PlaceError {
    Model(atta_model::Error),
    Other(Error),
}

impl PlaceError {
    pub(crate) fn at(self, path: &Path) -> Error {
        match self {
            Self::Model(source) => Error::Model {
                path: path.to_owned(),
                source,
            },
            Self::Other(error) => error,
        }
    }
}

impl From<atta_model::Error> for PlaceError {
    fn from(error: atta_model::Error) -> Self {
        Self::Model(error)
    }
}

impl From<Error> for PlaceError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Binds the tensors of a model and places its weights. The memory limit holds from then on:
/// earlier reservations are part of the sufficient budget that an error names.
pub(crate) fn place(
    files: ModelFiles,
    budget: &Budget,
    needs: &SessionNeeds<'_>,
    Outline { limit, weights }: Outline,
    probe: &dyn Fn() -> Result<f64, Error>,
) -> Result<Placed, PlaceError> {
    if weights == WeightsAt::Mapped {
        let mapped = |files, plan| -> Result<Box<dyn Weights>, PlaceError> {
            Ok(Box::new(InMemory::new(files, plan).map_err(Error::from)?))
        };
        let model = needs.bind(files, budget, mapped)?;
        budget.set_limit(limit);
        return Ok(Placed {
            model,
            session: beside(budget, needs)?,
            prediction: None,
        });
    }
    let mut decided = None;
    let source = |files, plan| -> Result<Box<dyn Weights>, PlaceError> {
        budget.set_limit(limit);
        let Decision { session, policy } = divide(budget, &plan, needs, weights)?;
        // Measured while the memory for the weights is still free.
        let rate = if weights == WeightsAt::Streamed {
            probe()?
        } else {
            0.0
        };
        decided = Some((session, ResidencyBytes::of(&plan, &policy), rate));
        Ok(Box::new(
            Streamed::new(files, plan, &policy, budget).map_err(Error::from)?,
        ))
    };
    let model = needs.bind(files, budget, source)?;
    let (session, sizes, memory_bytes_per_s) = decided.expect("weights were made");
    let io = model.weights().io();
    let prediction = (weights == WeightsAt::Streamed).then(|| {
        Prediction::of(&Costs {
            weight_bytes: model.matmul_cost().bytes,
            memory_bytes_per_s,
            read_bytes: sizes.read_per_pass as f64 + missed_experts(needs.spec, &sizes),
            disk_bytes_per_s: io.rate,
        })
    });
    Ok(Placed {
        model,
        session,
        prediction,
    })
}

/// Measures the read bandwidth of the memory, bytes per second, within the rest of the budget.
pub(crate) fn bandwidth(kernels: Kernels, pool: &Pool, budget: &Budget) -> Result<f64, Error> {
    let bytes = (budget.left() / 2)
        .clamp(MIN_PROBE_BYTES, MAX_PROBE_BYTES)
        .min(budget.left());
    let _memory = budget.reserve("bandwidth probe", bytes)?;
    Ok(kernels.read_bandwidth(pool, bytes as usize))
}

/// Bytes of experts read per token, if the router chooses each expert with the same probability.
fn missed_experts(spec: &ModelSpec, sizes: &ResidencyBytes) -> f64 {
    let n_used = spec
        .layers
        .iter()
        .filter_map(|l| l.moe())
        .map(|moe| moe.n_used)
        .max()
        .unwrap_or(0);
    if sizes.per_expert == 0 || sizes.n_experts == 0 {
        return 0.0;
    }
    let n_cached = sizes.experts as f64 / sizes.per_expert as f64;
    (n_used as u64 * sizes.per_expert) as f64 * (1.0 - n_cached / sizes.n_experts as f64).max(0.0)
}

/// Bounds of the buffer of the bandwidth probe, bytes.
const MIN_PROBE_BYTES: u64 = 4 << 20;
/// A module of WebAssembly never gives memory back, so that it takes the least.
const MAX_PROBE_BYTES: u64 = if cfg!(target_family = "wasm") {
    MIN_PROBE_BYTES
} else {
    64 << 20
};

/// Share of the memory bandwidth that decoding reaches, as measured (docs/performance.md).
const COMPUTE_SHARE: f64 = 0.75;

/// Predicted decode speed of a streamed model, or of the part of it that this machine runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Tokens per second. For a model with experts it is a lower bound: it assumes that the router
    /// chooses each expert with the same probability.
    pub decode_tok_s: f64,
    /// Bytes read per token.
    pub read_bytes: f64,
    /// Measured read rate of the disk, bytes per second; 0 if decoding reads nothing.
    pub disk_bytes_per_s: f64,
}

/// Costs of a token, and the rates of the machine.
struct Costs {
    /// Bytes of multiplied weights.
    weight_bytes: u64,
    /// Memory bandwidth.
    memory_bytes_per_s: f64,
    /// Bytes read from the disk.
    read_bytes: f64,
    /// Read rate of the disk.
    disk_bytes_per_s: f64,
}

impl Prediction {
    /// Reading and computing overlap, so the slower one determines the speed.
    fn of(costs: &Costs) -> Self {
        let compute = costs.weight_bytes as f64 / (costs.memory_bytes_per_s * COMPUTE_SHARE);
        let read = if costs.disk_bytes_per_s > 0.0 {
            costs.read_bytes / costs.disk_bytes_per_s
        } else {
            0.0
        };
        let decode_tok_s = 1.0 / read.max(compute);
        Self {
            decode_tok_s,
            read_bytes: costs.read_bytes,
            disk_bytes_per_s: costs.disk_bytes_per_s,
        }
    }
}

#[cfg(test)]
mod tests;
