//! The memory plan of a model that is not loaded: the items that an engine and a session would
//! reserve.
//!
//! The same code decides for an engine. The plan stops before weights are read: of the file it
//! reads the metadata and the vectors.

use std::path::Path;

use atta_model::{Footprint, KvType};
use atta_store::{BudgetItem, InMemory, ModelFiles, ResidencyBytes, Weights};

use super::{
    Decision, MAX_PROBE_BYTES, MIN_PROBE_BYTES, PlaceError, SessionNeeds, WeightsAt, beside,
    divide, missed_experts, part_bytes,
};
use crate::{
    Error, LoadOptions,
    engine::{self, Prepared},
    session::{self, Resolved},
};

/// The memory that a model and a session would take.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPlan {
    /// Placement of the weights.
    pub weights: WeightsAt,
    /// Limit of private memory, bytes.
    pub limit_bytes: u64,
    /// Context length in tokens.
    pub n_ctx: usize,
    /// Batch size.
    pub n_batch: usize,
    /// Element types of the KV cache.
    pub kv: KvType,
    /// Private memory by purpose.
    pub items: Vec<BudgetItem>,
    /// Memory elsewhere by purpose, such as on a GPU; one without memory of its own takes it from
    /// the private memory, where it is counted, too.
    pub elsewhere: Vec<BudgetItem>,
    /// Bytes of the file in the page cache, which the system may drop; 0 unless weights are mapped.
    pub mapped_bytes: u64,
    /// Bytes of streamed weights read per token, if the router chooses each expert with the same
    /// probability.
    pub read_bytes: f64,
    /// Bytes of weights multiplied per token.
    pub token_bytes: u64,
}

impl MemoryPlan {
    /// Plans as [`Engine::open`](crate::Engine::open) would.
    ///
    /// # Errors
    /// As those of `open`, but for errors of reading weights.
    pub fn of(path: &Path, options: &LoadOptions) -> Result<Self, Error> {
        Self::of_files(path, &|| Ok(ModelFiles::open(path)?), options)
    }

    /// Plans as [`Engine::from_static`](crate::Engine::from_static) would.
    ///
    /// # Errors
    /// As those of `of`.
    pub fn of_static(
        name: &str,
        bytes: &'static [u8],
        options: &LoadOptions,
    ) -> Result<Self, Error> {
        Self::of_files(
            name.as_ref(),
            &|| Ok(ModelFiles::from_static(name, bytes)?),
            options,
        )
    }

    fn of_files(
        path: &Path,
        open: &dyn Fn() -> Result<ModelFiles, Error>,
        options: &LoadOptions,
    ) -> Result<Self, Error> {
        let n_threads = options.threads.count();
        let on_cpu = engine::default_footprint(n_threads);
        let footprint: &dyn Footprint = match &options.backend {
            Some(backend) => &**backend,
            None => &on_cpu,
        };
        let prepared = Prepared::new(path, open()?, options, footprint, n_threads)?;
        let Prepared {
            files,
            spec,
            budget,
            outline,
            adapters,
            memory: _memory,
            ..
        } = prepared;
        let needs = SessionNeeds {
            adapters: adapters.sizes(),
            ..options.session_needs(&spec, footprint, n_threads)
        };
        let mapped_bytes = match outline.weights {
            WeightsAt::Mapped => {
                part_bytes(&needs, &files).map_err(|e| PlaceError::from(e).at(path))?
            }
            WeightsAt::Resident | WeightsAt::Streamed => 0,
        };
        let mut decided = None;
        let source = |_: ModelFiles, plan| -> Result<Box<dyn Weights>, PlaceError> {
            budget.set_limit(outline.limit);
            let (session, sizes) = match outline.weights {
                WeightsAt::Mapped => (beside(&budget, &needs)?, ResidencyBytes::default()),
                weights => {
                    let Decision { session, policy } = divide(&budget, &plan, &needs, weights)?;
                    (session, ResidencyBytes::of(&plan, &policy))
                }
            };
            // Listed while the copy of the metadata, which belongs to the files, is reserved.
            decided = Some((session, sizes, budget.items()));
            let mapped = open()?;
            Ok(Box::new(InMemory::new(mapped, plan).map_err(Error::from)?))
        };
        let model = needs.bind(files, &budget, source);
        let model = model.map_err(|e| e.at(path))?;
        let (session, sizes, reserved) = decided.expect("weights were made");
        let is = |weights| outline.weights == weights;
        let read_bytes = sizes.read_per_pass as f64 + missed_experts(&spec, &sizes);
        Ok(Self {
            weights: outline.weights,
            limit_bytes: outline.limit,
            n_ctx: session.n_ctx,
            n_batch: session.n_batch,
            kv: session.kv,
            items: reserved
                .into_iter()
                .chain(items(&needs, &session, &sizes))
                .collect(),
            elsewhere: footprint.planned_elsewhere(&spec, &session.size()),
            mapped_bytes,
            read_bytes: if is(WeightsAt::Streamed) {
                read_bytes
            } else {
                0.0
            },
            token_bytes: model.matmul_cost().bytes,
        })
    }

    /// All private bytes.
    pub fn private_bytes(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).sum()
    }

    /// Measures the memory bandwidth with the threads of the options, bytes per second. The buffer
    /// is as large as the weights of a token, up to 64 MB, since those may fit a CPU cache.
    ///
    /// # Errors
    /// An instruction set or CPUs that this machine lacks.
    pub fn read_bandwidth(&self, options: &LoadOptions) -> Result<f64, Error> {
        let kernels = options.kernels()?;
        let bytes = self.token_bytes.clamp(MIN_PROBE_BYTES, MAX_PROBE_BYTES);
        Ok(kernels.read_bandwidth(options.open_pool()?.as_ref(), bytes as usize))
    }
}

/// The reservations of weights, a session and its sampler, by name.
fn items(needs: &SessionNeeds<'_>, session: &Resolved, sizes: &ResidencyBytes) -> Vec<BudgetItem> {
    let spec = needs.spec;
    let executor = needs.footprint.executor_bytes(spec, &session.size());
    let logits = session::logits_bytes(spec);
    let sampling = session::output_bytes(spec, session.n_ctx) - logits;
    let adapters = needs.adapters.bytes(spec, session.n_batch);
    let all = [
        ("pinned weights", sizes.pinned),
        ("read-ahead", sizes.ring),
        ("experts", sizes.experts),
        ("gpu weights", needs.footprint.weights_beside()),
        ("logits", logits),
        ("kv cache", executor.state),
        ("activations", executor.activations),
        ("activations of adapters", adapters),
        ("sampler", sampling),
    ];
    all.into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(name, bytes)| BudgetItem { name, bytes })
        .collect()
}
