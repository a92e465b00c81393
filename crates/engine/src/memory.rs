//! The memory plan: what a model and a session get of a number of bytes, decided before the first
//! token.
//!
//! What must be there comes first: the program, the vocabulary, keys and values, the buffers of a
//! step. What is left holds weights. If it is short, the plan gives up weights that stay in memory,
//! then slots to read ahead into, then the size of a prompt's batch; the context and the precision
//! of its keys and values only if it was allowed to ([`Fit`]).

use std::path::Path;

use atta_kernels::{Kernels, Pool};
use atta_model::{Footprint, KvType, Model, spec::ModelSpec};
use atta_store::{Budget, ModelFiles, Plan, ResidencyBytes, ResidencyPolicy, Streamed, system};

use crate::{Error, LoadOptions, SessionOptions, session};

mod plan;

pub use plan::MemoryPlan;

/// Where weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsAt {
    /// In the system's cache of the file, mapped.
    Mapped,
    /// In private memory, read once.
    Resident,
    /// Read from the file as they are needed, as much as fits held in memory.
    Streamed,
}

/// What may be done about a session that does not fit into its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// Nothing: it is refused.
    #[default]
    AsAsked,
    /// Keys and values may become f16, then q8, and then the context shorter.
    Shrink,
}

/// Chunks, slots, and the share of the memory of weights that such a ring may be, largest ring
/// first. More slots bridge longer moments in which other programs have the processors, and keep
/// the disk busy; smaller chunks leave more to weights that stay. Below 16 MB of ring the disk is
/// not used fully, which costs more than the weights that a ring takes the place of.
const PORTIONS: [(usize, usize, u64); 7] = [
    (2 << 20, 16, 5),
    (2 << 20, 8, 2),
    (2 << 20, 4, 2),
    (1 << 20, 4, 2),
    (512 << 10, 4, 2),
    (512 << 10, 3, 2),
    (256 << 10, 2, 2),
];

/// The shortest context that [`Fit::Shrink`] goes down to.
const MIN_CTX: usize = 128;

/// What the program and each of its threads may still come to take, beyond what they have when a
/// model is loaded.
const PROGRAM_BYTES: u64 = 3 << 18;
/// Mostly results of strips and attention's scratch, on the stack.
const THREAD_BYTES: u64 = 384 << 10;
/// What they take in all, where the system does not say.
const UNKNOWN_BYTES: u64 = 4 << 20;

/// Of the memory that there is, this share is used if nobody says how much; the rest is for the
/// system's own accounts.
const AUTO_SHARE: (u64, u64) = (85, 100);

/// How much memory there is and where weights are to be, as far as that can be said before tensors
/// are known.
#[derive(Clone, Copy)]
pub(crate) struct Outline {
    /// Bytes in all.
    pub(crate) limit: u64,
    pub(crate) weights: WeightsAt,
}

impl Outline {
    /// Takes what was asked for; where nothing was, a file that fits into the memory that there is
    /// is mapped, and another one is streamed within [`AUTO_SHARE`] of it.
    pub(crate) fn new(options: &LoadOptions, files: &ModelFiles, needs: &Needs<'_>) -> Self {
        let LoadOptions {
            weights, beside, ..
        } = *options;
        let ram_budget = options
            .ram_budget
            .map(|budget| budget.saturating_sub(beside));
        let available = system::memory_available(beside).unwrap_or(u64::MAX);
        let most = system::memory_limit().saturating_sub(beside);
        let room = ram_budget.map_or(available, |budget| budget.min(most));
        let fits = files
            .file_bytes()
            .saturating_add(needs.most())
            .saturating_add(program_bytes(needs.n_threads, beside))
            <= room;
        let weights = weights.unwrap_or(if fits {
            WeightsAt::Mapped
        } else {
            WeightsAt::Streamed
        });
        let limit = match (ram_budget, weights) {
            (Some(limit), _) => limit.min(most),
            (None, WeightsAt::Streamed) => (available.min(most) / AUTO_SHARE.1) * AUTO_SHARE.0,
            (None, _) => most,
        };
        Self { limit, weights }
    }
}

/// What a session needs beside weights.
pub(crate) struct Needs<'a> {
    pub(crate) spec: &'a ModelSpec,
    /// Predicts the executor's memory.
    pub(crate) footprint: &'a dyn Footprint,
    pub(crate) n_threads: usize,
    pub(crate) session: SessionOptions,
    pub(crate) fit: Fit,
    /// Bytes for what the caller does with the results.
    pub(crate) spare: u64,
}

impl Needs<'_> {
    /// Bytes of a session as it is wanted.
    fn most(&self) -> u64 {
        self.of(&session::resolve(self.spec, &self.session))
    }

    fn of(&self, options: &session::Resolved) -> u64 {
        let needs = self.footprint.needs(self.spec, &options.size());
        let outcomes =
            session::outcome_bytes(self.spec, options.n_ctx).saturating_mul(options.n_seqs as u64);
        [needs.activations, outcomes, self.spare]
            .into_iter()
            .fold(needs.state, u64::saturating_add)
    }

    /// The sessions that would do, best first: batches become smaller; then, if that is allowed,
    /// keys and values, and the context.
    pub(crate) fn candidates(&self) -> Vec<session::Resolved> {
        let first = session::resolve(self.spec, &self.session);
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
            let fixed = self.session.n_batch.is_some();
            let smaller = std::iter::successors(Some(of.n_batch.min(of.n_ctx)), |n| {
                Some(n / 2).filter(|&n| n > 0)
            });
            smaller
                .take(if fixed { 1 } else { usize::MAX })
                .map(move |n_batch| session::Resolved { n_batch, ..of })
        };
        contexts.into_iter().flat_map(batches).collect()
    }

    /// What keys and values may become, in place of what was asked for.
    fn smaller_kv(&self, asked: KvType) -> impl Iterator<Item = KvType> {
        let bytes = |kv| self.spec.state_bytes(kv, 1).iter().sum::<u64>();
        [KvType::F16, KvType::Q8]
            .into_iter()
            .filter(move |&kv| bytes(kv) < bytes(asked))
    }

    /// The best session that leaves at least `min_weights` bytes of a budget to weights.
    ///
    /// # Errors
    /// [`Error::TooLittleMemory`], which names the smallest budget that would do.
    fn choose(
        &self,
        budget: &Budget,
        min_weights: u64,
        weights: WeightsAt,
    ) -> Result<(session::Resolved, u64), Error> {
        let (room, taken, budget) = (budget.left(), budget.used(), budget.limit());
        let candidates = self.candidates();
        let fits = |options: &session::Resolved| {
            room.checked_sub(self.of(options))
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
        let smallest = smallest.saturating_add(min_weights).saturating_add(taken);
        Err(Error::TooLittleMemory {
            budget,
            smallest,
            way_out: self.way_out(weights == WeightsAt::Resident),
        })
    }

    fn way_out(&self, is_resident: bool) -> String {
        let n_ctx = session::resolve(self.spec, &self.session).n_ctx;
        let mut ways = Vec::new();
        if is_resident {
            ways.push("--weights streamed".to_owned());
        }
        if n_ctx > 1 {
            ways.push(format!("-c below {n_ctx}"));
        }
        if self.smaller_kv(self.session.kv).next().is_some() {
            ways.push("--kv q8".to_owned());
        }
        if self.session.n_batch.is_some_and(|n| n > 1) {
            ways.push("a smaller --batch".to_owned());
        }
        if self.fit == Fit::AsAsked && n_ctx > MIN_CTX {
            ways.push("--fit".to_owned());
        }
        match ways.len() {
            0 => "nothing makes it need less".to_owned(),
            _ => format!("{} would lower it", ways.join(" or ")),
        }
    }
}

/// A session and the weights that are held beside it.
pub(crate) struct Decision {
    pub(crate) session: session::Resolved,
    pub(crate) policy: ResidencyPolicy,
}

/// Divides what is left of a budget between weights and a session.
///
/// # Errors
/// [`Error::TooLittleMemory`].
pub(crate) fn divide(
    budget: &Budget,
    plan: &Plan,
    needs: &Needs<'_>,
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
    let least = |&(chunk, n_slots, share): &(usize, usize, u64)| {
        let policy = ResidencyPolicy {
            chunk_bytes: Some(chunk),
            pinned_bytes: 0,
            n_slots,
            n_experts: n_used,
            method: None,
        };
        (ResidencyBytes::of(plan, &policy), policy, share)
    };
    let portions: Vec<_> = PORTIONS.iter().map(least).collect();
    let min_weights = portions
        .iter()
        .map(|(sizes, ..)| sizes.memory())
        .min()
        .unwrap_or(0);
    let (session, left) = needs.choose(budget, min_weights, weights)?;
    let is_modest = |(sizes, _, share): &(ResidencyBytes, ResidencyPolicy, u64)| {
        sizes.memory() <= left && sizes.ring <= left / share
    };
    let best = portions.iter().position(is_modest);
    let best = best.or_else(|| {
        portions
            .iter()
            .rposition(|(sizes, ..)| sizes.memory() <= left)
    });
    let (sizes, policy, _) = portions
        .into_iter()
        .nth(best.expect("the least was chosen"))
        .expect("it is one of them");
    Ok(Decision {
        session,
        policy: pinned(policy, &sizes, left),
    })
}

/// Gives what is left to weights that every token needs, and then to experts.
fn pinned(policy: ResidencyPolicy, sizes: &ResidencyBytes, left: u64) -> ResidencyPolicy {
    let free = left - sizes.memory();
    // A model that is held whole needs no ring.
    let whole = sizes.all <= free + sizes.ring;
    let (pinned_bytes, free) = if whole {
        (u64::MAX, free + sizes.ring - sizes.all)
    } else {
        (free, 0)
    };
    let more = free.checked_div(sizes.per_expert).unwrap_or(0) as usize;
    ResidencyPolicy {
        pinned_bytes,
        n_experts: policy.n_experts + more,
        ..policy
    }
}

/// The best session that fits into what is left of a budget.
///
/// # Errors
/// [`Error::TooLittleMemory`].
pub(crate) fn beside(budget: &Budget, needs: &Needs<'_>) -> Result<session::Resolved, Error> {
    needs
        .choose(budget, 0, WeightsAt::Mapped)
        .map(|(session, _)| session)
}

/// What the program takes: what it has now beyond `accounted`, and what it may come to take.
pub(crate) fn program_bytes(n_threads: usize, accounted: u64) -> u64 {
    let now = system::Usage::now().map_or(UNKNOWN_BYTES, |usage| {
        usage.private().saturating_sub(accounted)
    });
    now + PROGRAM_BYTES + THREAD_BYTES * n_threads as u64
}

/// A model whose weights have their places.
pub(crate) struct Held {
    pub(crate) model: Model,
    pub(crate) session: session::Resolved,
    pub(crate) prediction: Option<Prediction>,
}

/// What can go wrong on the way to it: only one of the two knows the path of the file.
pub(crate) enum Refusal {
    Model(atta_model::Error),
    Other(Error),
}

impl Refusal {
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

impl From<atta_model::Error> for Refusal {
    fn from(error: atta_model::Error) -> Self {
        Self::Model(error)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Binds the tensors of a model and gives its weights their places. The limit holds from then on:
/// what is there before is part of the smallest budget that would do, which is named if this one
/// does not.
pub(crate) fn hold(
    files: ModelFiles,
    (budget, needs): (&Budget, &Needs<'_>),
    Outline { limit, weights }: Outline,
    (kernels, pool): (Kernels, &Pool),
) -> Result<Held, Refusal> {
    if weights == WeightsAt::Mapped {
        let model = Model::with_spec(needs.spec.clone(), files, budget)?;
        budget.set_limit(limit);
        return Ok(Held {
            model,
            session: beside(budget, needs)?,
            prediction: None,
        });
    }
    let mut decided = None;
    let model = Model::with_source(
        needs.spec.clone(),
        files,
        budget,
        |files, plan| -> Result<_, Refusal> {
            budget.set_limit(limit);
            let Decision { session, policy } = divide(budget, &plan, needs, weights)?;
            // Measured while the memory of the weights is still free.
            let rate = if weights == WeightsAt::Streamed {
                memory_rate(kernels, pool, budget)?
            } else {
                0.0
            };
            decided = Some((session, ResidencyBytes::of(&plan, &policy), rate));
            Ok(Box::new(
                Streamed::new(files, plan, &policy, budget).map_err(Error::from)?,
            ))
        },
    )?;
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
    Ok(Held {
        model,
        session,
        prediction,
    })
}

/// What the memory gives, bytes per second, measured on as much of it as there is to spare.
fn memory_rate(kernels: Kernels, pool: &Pool, budget: &Budget) -> Result<f64, Error> {
    let bytes = (budget.left() / 2)
        .clamp(MIN_PROBE_BYTES, MAX_PROBE_BYTES)
        .min(budget.left());
    let _memory = budget.reserve("bandwidth probe", bytes)?;
    Ok(kernels.read_bandwidth(pool, bytes as usize))
}

/// Bytes of experts that a token has read for it, if it goes to any of them with equal probability.
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
    let places = sizes.experts as f64 / sizes.per_expert as f64;
    (n_used as u64 * sizes.per_expert) as f64 * (1.0 - places / sizes.n_experts as f64).max(0.0)
}

/// The buffer on which the memory is measured, bytes.
const MIN_PROBE_BYTES: u64 = 4 << 20;
const MAX_PROBE_BYTES: u64 = 64 << 20;

/// What of the memory's rate computing reaches, as measured (docs/performance.md).
const COMPUTE_SHARE: f64 = 0.75;

/// How many tokens per second a streamed model is going to write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Tokens per second. Of a model with experts it is the least: nobody knows before how often
    /// tokens go to experts that are there, so it is what comes of tokens that go to any of
    /// them with equal probability.
    pub decode_tok_s: f64,
    /// Bytes that are read for each token.
    pub read_bytes: f64,
    /// What the disk gave when it was tried, bytes per second; 0 if nothing is read while writing.
    pub disk_bytes_per_s: f64,
}

/// What a token costs.
struct Costs {
    /// Bytes of weights that are multiplied.
    weight_bytes: u64,
    /// What the memory gives, bytes per second.
    memory_bytes_per_s: f64,
    /// Bytes that are read from the disk.
    read_bytes: f64,
    /// What the disk gives, bytes per second.
    disk_bytes_per_s: f64,
}

impl Prediction {
    /// Reading and computing go on at the same time, so the slower one decides.
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
