//! The executor that runs layers, and perhaps the head, on a GPU.
//!
//! It takes hidden states, not tokens: embeddings are the CPU's part. A batch is one submission and
//! one wait. The one idea: all that varies from step to step lies in two small buffers that are
//! written before it, the tables and the residual; the rest stays on the device.

mod adapters;
mod buffer;
mod embeds;
mod experts;
mod kernels;
mod kv;
mod latent;
mod layout;
mod pass;
mod recurrent;
mod run;
mod states;
mod tables;
mod vectors;

use crate::gpus::{GPU_ACTIVATIONS, GPU_STATE};
use crate::weights::GpuAdapter;
use crate::{ActLayout, Bindings, BufferId, Error, GpuKv, GpuWeights, HeadRole, SharedHost};
use adapters::{AdapterTables, n_factors};
use atta_kernels::KvElem;
use atta_model::spec::{Attention, ModelSpec};
use atta_model::{
    AdapterSizes, Batch, Error as ModelError, ExecutorBytes, ExecutorInfo, ExecutorSize, KvCache,
    Role, RopeTables, admission,
};
use atta_store::{Budget, Reservation};
use kernels::{AttentionKind, KernelNeeds, Kernels};
use kv::{ArenaParts, GpuArena};
use layout::Layout;
use pass::TOGETHER;
use recurrent::rule_of;
use states::{GpuStates, StateTables};
use std::sync::Arc;
use tables::{StepSize, StepTables};
use vectors::{AttentionAt, Vectors};

pub(crate) use buffer::OwnBuffer;
pub(crate) use recurrent::{OF_CHANNELS, OF_MAMBA, OF_SHORT_CONV, SELECTION};

/// The most rows of a batch: workgroups in one dimension.
const MAX_ROWS: usize = 65_535;

/// Runs a part of a model on a GPU.
pub struct GpuExecutor {
    weights: Arc<GpuWeights>,
    kernels: Arc<Kernels>,
    info: ExecutorInfo,
    has_shared_pool: bool,
    layout: Layout,
    vectors: Vectors,
    tables: StepTables,
    ropes: RopeTables,
    cache: KvCache<GpuArena>,
    buffers: Buffers,
    /// The vectors.
    constants: OwnBuffer,
    /// The batch in flight if `is_busy`, else a buffer for the next one.
    submitted: Batch,
    is_busy: bool,
    n_submitted: u64,
    /// Rows that want logits, and bytes that were read.
    wanted: Vec<usize>,
    read: Vec<u8>,
    /// Addends of all logits of each of these rows, where the head has its mean row apart.
    means: Vec<f32>,
    _memory: [Reservation; 2],
}

/// The buffers of an executor, but for vectors, keys and values.
#[derive(Debug)]
struct Buffers {
    tables: OwnBuffer,
    acts: OwnBuffer,
    values: OwnBuffer,
    /// Stands for the buffer that a kernel has no use for.
    nothing: OwnBuffer,
}

impl std::fmt::Debug for GpuExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuExecutor")
            .field("info", &self.info)
            .field("is_busy", &self.is_busy)
            .finish_non_exhaustive()
    }
}

impl Buffers {
    fn new(host: &SharedHost, layout: &Layout, n_tables: usize) -> Result<Self, Error> {
        let make = |words: usize| OwnBuffer::new(host, 4 * words as u64);
        Ok(Self {
            tables: make(n_tables)?,
            acts: make(layout.n_acts)?,
            values: make(layout.n_values)?,
            nothing: make(1)?,
        })
    }

    /// These and two others.
    fn bindings(&self, weights: BufferId, kv: BufferId) -> Bindings {
        Bindings {
            weights,
            kv,
            tables: self.tables.id(),
            acts: self.acts.id(),
            values: self.values.id(),
        }
    }
}

fn step_size(spec: &ModelSpec, size: &ExecutorSize, adapters: &AdapterSizes) -> StepSize {
    StepSize {
        n_factors: n_factors(spec, adapters),
        n_rows: size.n_batch,
        n_seqs: size.n_seqs,
        n_ctx: size.n_ctx,
    }
}

/// Refuses batches with more rows, times experts of each, than kernels can number.
fn check_rows(spec: &ModelSpec, size: &ExecutorSize) -> Result<(), Error> {
    let (_, n_used) = spec.max_experts();
    let n_rows = size.n_batch.saturating_mul(n_used.max(1));
    if n_rows <= MAX_ROWS {
        return Ok(());
    }
    let what = format!("batches of {n_rows} rows and experts, of at most {MAX_ROWS}");
    Err(Error::Unsupported(what))
}

/// Refuses adapters that add to a head whose mean row is apart: the mean is added behind them.
fn check_head(weights: &GpuWeights) -> Result<(), Error> {
    let has_pair = |adapter: &GpuAdapter| adapter.pair((Role::Output, None)).is_some();
    let is_adapted = weights.adapters().iter().any(has_pair);
    match is_adapted && weights.model().head_mean().is_some() {
        true => Err(Error::Unsupported(
            "an adapter of a head that has its mean row apart".to_owned(),
        )),
        false => Ok(()),
    }
}

fn check(weights: &GpuWeights, size: &ExecutorSize) -> Result<(), Error> {
    let model = weights.model();
    admission::check_size(model.spec(), model.share(), size)?;
    check_rows(model.spec(), size)?;
    check_head(weights)
}

fn info(weights: &GpuWeights, size: &ExecutorSize, isa: &str) -> ExecutorInfo {
    ExecutorInfo {
        numerics: numerics(weights, size, isa),
        part: weights.part().clone(),
        n_ctx: size.n_ctx,
        n_seqs: size.n_seqs,
        n_batch: size.n_batch,
    }
}

fn reserve(budget: &Budget, bytes: &ExecutorBytes) -> Result<[Reservation; 2], Error> {
    let reserve = |name, bytes| budget.reserve(name, bytes).map_err(ModelError::from);
    Ok([
        reserve(GPU_STATE, bytes.state)?,
        reserve(GPU_ACTIVATIONS, bytes.activations)?,
    ])
}

impl GpuExecutor {
    /// Creates an executor of the weights' part, and allocates all of its memory on the GPU. `isa`
    /// names the instruction set of the CPU beside it, whose bits it computes.
    ///
    /// # Errors
    /// The budget or the GPU's memory is exceeded, or the size is invalid.
    pub fn new(
        weights: Arc<GpuWeights>,
        size: &ExecutorSize,
        budget: &Budget,
        isa: &str,
    ) -> Result<Self, Error> {
        let part = weights.part().clone();
        let size = ExecutorSize {
            part: Some(part.clone()),
            ..size.clone()
        };
        let model = weights.model();
        let spec = model.spec();
        check(&weights, &size)?;
        let buffer_bytes = weights.host().info().buffer_bytes;
        let adapters = weights.adapter_sizes();
        let layout = Layout::new(spec, &part, &size, adapters, buffer_bytes)?;
        let n_tables = step_size(spec, &size, adapters).max_words(spec, &part);
        let bytes = Self::bytes(spec, &size, &layout, n_tables);
        let memory = reserve(budget, &bytes)?;
        let host = weights.host();
        let kernels = Arc::new(compile(&weights, &size)?);
        let ropes = RopeTables::of(model, size.n_batch, size.n_ctx);
        let buffers = Buffers::new(host, &layout, n_tables)?;
        let arenas = ArenaParts {
            host,
            kernels: &kernels,
            bindings: buffers.bindings(buffers.nothing.id(), buffers.nothing.id()),
            n_tables,
        };
        let cache = KvCache::new(
            size.cache(spec),
            |n, bytes| GpuArena::new(&arenas, n, bytes),
            |n, floats| GpuStates::new(host, n, floats),
        )?;
        let vectors = vectors_of(&weights, &cache, &layout, &ropes);
        let block_words = cache.arenas().iter().map(GpuArena::block_words).collect();
        let group = |l| cache.layer_place(l).group;
        let states = StateTables::new(
            &spec.layers[part.layers.clone()],
            cache.states().block_words(),
        );
        let adapters = AdapterTables::new(&weights, |key| pass::factor_of(spec, key));
        Ok(Self {
            tables: StepTables::new(spec, &part, group, block_words).with(adapters, states),
            constants: write(host, &vectors.bytes())?,
            info: info(&weights, &size, isa),
            has_shared_pool: size.n_shared.is_some(),
            layout,
            vectors,
            ropes,
            cache,
            buffers,
            submitted: Batch::default(),
            is_busy: false,
            n_submitted: 0,
            wanted: Vec::new(),
            means: Vec::new(),
            read: Vec::new(),
            _memory: memory,
            kernels,
            weights,
        })
    }

    /// Memory on the GPU of an executor of a part of a model without adapters, without its weights,
    /// at most.
    ///
    /// # Errors
    /// A size that no executor can have.
    pub fn executor_bytes(spec: &ModelSpec, size: &ExecutorSize) -> Result<ExecutorBytes, Error> {
        let part = size.part_of(spec);
        let adapters = AdapterSizes::default();
        let layout = Layout::new(spec, &part, size, &adapters, u64::MAX)?;
        let n_tables = step_size(spec, size, &adapters).max_words(spec, &part);
        Ok(Self::bytes(spec, size, &layout, n_tables))
    }

    fn bytes(
        spec: &ModelSpec,
        size: &ExecutorSize,
        layout: &Layout,
        n_tables: usize,
    ) -> ExecutorBytes {
        let n_words = layout.n_values + layout.n_acts + n_tables;
        ExecutorBytes {
            state: size.cache(spec).bytes(),
            activations: 4 * n_words as u64,
        }
    }
}

/// The elements of keys of the layers of a part.
fn elems(spec: &ModelSpec, size: &ExecutorSize) -> Vec<KvElem> {
    let n_layers = spec.layers.len();
    let layers = size.part_of(spec).layers;
    layers.flat_map(|l| size.kv.of_layer(l, n_layers)).collect()
}

/// How GPUs hold keys and values of these element types, if they can; keys that are the values have
/// the type of keys.
pub(crate) fn kv_of(a: &Attention, [k, v]: [KvElem; 2]) -> Option<[GpuKv; 2]> {
    let keys = GpuKv::of(k, a.d_head)?;
    if a.latent().is_none() {
        return Some([keys, GpuKv::of(v, a.d_head)?]);
    }
    // Rotations over both parts of keys that are the values, 64 elements or more of the first one,
    // were never compared.
    let is_wide = keys.rotation(HeadRole::Key, a.d_head) > 64 && a.d_rotatable() >= 64;
    (!is_wide).then_some([keys; 2])
}

/// The kernels of an executor.
fn compile(weights: &GpuWeights, size: &ExecutorSize) -> Result<Kernels, Error> {
    let spec = weights.model().spec();
    let mut needs = KernelNeeds {
        formats: weights.formats().collect(),
        experts: weights.expert_formats().collect(),
        heads: weights.head_formats().collect(),
        ..KernelNeeds::default()
    };
    for l in weights.part().layers.clone() {
        needs.rules.extend(rule_of(&spec.layers[l]));
        if let Some(a) = spec.layers[l].attention() {
            let elems = size.kv.of_layer(l, spec.layers.len());
            let what = || format!("layer {l} has keys or values of a width that kernels lack");
            needs.attention.insert(AttentionKind {
                kv: kv_of(a, elems).ok_or_else(|| Error::Unsupported(what()))?,
                is_latent: a.latent().is_some(),
            });
        }
        let runs = TOGETHER.iter().flat_map(|roles| weights.runs(l, roles));
        let joined = runs.filter(|run| run.len() > 1);
        let matrix = |run: Vec<Role>| weights.matrix((run[0], Some(l)));
        let joined = joined.filter_map(matrix).map(|matrix| matrix.format);
        needs.joined.extend(joined);
    }
    Kernels::new(&mut *weights.host().lock(), &needs)
}

/// Where the bits are those of every instruction set, the name of the one beside it; else that of
/// the plain one, which adds floats as the kernels do.
fn numerics(weights: &GpuWeights, size: &ExecutorSize, isa: &str) -> String {
    let others = weights.expert_formats().chain(weights.head_formats());
    let mut formats = weights.formats().chain(others);
    let has_floats = formats.any(|format| format.acts() == ActLayout::F32);
    let is_float = |elem: &KvElem| *elem == KvElem::F32;
    let has_floats = has_floats || elems(weights.model().spec(), size).iter().any(is_float);
    if has_floats { "scalar" } else { isa }.to_owned()
}

/// The vectors of the part, with the constants of its attention layers.
fn vectors_of(
    weights: &GpuWeights,
    cache: &KvCache<GpuArena>,
    layout: &Layout,
    ropes: &RopeTables,
) -> Vectors {
    let mut vectors = Vectors::new(weights);
    let spec = weights.model().spec();
    for l in weights.part().layers.clone() {
        if let Some(a) = spec.layers[l].attention() {
            let of = AttentionAt {
                l,
                a,
                place: cache.layer_place(l),
                has_v: weights.matrix((Role::AttnV, Some(l))).is_some(),
                layout,
                ropes,
            };
            vectors.add_layer(weights, &of);
        }
    }
    vectors
}

/// A buffer with this content.
fn write(host: &SharedHost, bytes: &[u8]) -> Result<OwnBuffer, Error> {
    let buffer = OwnBuffer::new(host, bytes.len() as u64)?;
    host.lock().write(buffer.id(), 0, bytes)?;
    Ok(buffer)
}
