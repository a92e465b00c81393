//! A loaded model, ready for sessions.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use atta_kernels::{Kernels, Pool, StepThreads};
use atta_model::{
    AdapterSet, AdapterSizes, Backend, CpuBackend, CpuFootprint, Executor, ExecutorSize, Footprint,
    KvType, Model, Share, arch,
    spec::{ModelSpec, Outputs},
};
use atta_store::{Budget, BudgetItem, Extent, ModelFiles, Reservation};
use atta_tokenizer::{Special, Tokenizer};

#[cfg(feature = "cache")]
use crate::prompt_cache::Key;
use crate::{
    AdapterFile, AdapterInfo, Error, Fit, Prediction, Reduced, Reduction, Session, SessionOptions,
    WeightsAt,
    adapters::LoadedAdapters,
    heat::HeatControl,
    memory::{self, Outline, PlaceError, SessionNeeds},
    session::{self, Resolved},
    speculation::LoadedHead,
};
use atta_constrain::{Constraint, Grammars, Guide};

/// The compute threads, including the calling one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One per physical core within the CPU affinity and quota for prompts; for single tokens as
    /// many as the first tokens of the model turn out to need.
    #[default]
    Auto,
    /// This number.
    Count(NonZeroUsize),
    /// These numbers.
    Each {
        /// For single tokens.
        decode: NonZeroUsize,
        /// For prompts and batches.
        prompt: NonZeroUsize,
    },
    /// One pinned to each of these CPUs; the calling thread is pinned to the first.
    Cpus(Vec<usize>),
}

/// Options of loading a model.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Compute threads.
    pub threads: Threads,
    /// Threads that are there already, in the place of `threads`.
    pub pool: Option<Arc<Pool>>,
    /// Name of the instruction set; `None`: the best of this CPU.
    pub isa: Option<String>,
    /// Placement of the weights; `None`: mapped if the file fits the available memory, else
    /// streamed.
    pub weights: Option<WeightsAt>,
    /// Whether to read all of a mapped file into the page cache now.
    pub prewarm: bool,
    /// Whether to compare all files with the checksums that they hold, which then must be there.
    /// Without it, streamed weights are compared while they are read, and mapped ones never.
    pub verify: bool,
    /// Budget for private memory of the program, bytes; `None`: all memory of the system or, with
    /// streamed weights, 85 % of the available memory.
    pub ram_budget: Option<u64>,
    /// Part of the budget that other models in this program use, bytes.
    pub beside: u64,
    /// The session for which memory is kept free.
    pub session: SessionOptions,
    /// Whether that session may shrink if it does not fit.
    pub fit: Fit,
    /// Bytes kept free beside the session for the caller.
    pub spare_bytes: u64,
    /// Whether to keep memory free for a constraint.
    pub constrained: bool,
    /// How much of the model to run; by default all of it.
    pub reduction: Reduction,
    /// LoRA adapters to load with the model.
    pub adapters: Vec<AdapterFile>,
    /// Creates the executors of sessions and batchers, such as a ring of machines; `None`: the CPU
    /// with these threads and this instruction set.
    pub backend: Option<Arc<dyn Backend>>,
}

/// Limit of metadata, far above that of any model, bytes.
const MAX_METADATA: u64 = 256 << 20;

/// A loaded model. Clones share it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("path", &self.inner.path)
            .field("weights", &self.inner.weights)
            .finish_non_exhaustive()
    }
}

struct Inner {
    /// Path of the file, for errors.
    path: PathBuf,
    model: Arc<Model>,
    tokenizer: Arc<Tokenizer>,
    kernels: Kernels,
    pool: Arc<Pool>,
    step_threads: Arc<StepThreads>,
    heat: HeatControl,
    backend: Arc<dyn Backend>,
    budget: Budget,
    load_time: Duration,
    weights: WeightsAt,
    prediction: Option<Prediction>,
    reduced: Option<Reduced>,
    adapters: Vec<AdapterInfo>,
    default_adapters: AdapterSet,
    /// The session for which memory was kept free, as requested.
    planned_options: SessionOptions,
    /// The sizes of that session that fit.
    planned: Resolved,
    /// Computed on first use.
    #[cfg(feature = "cache")]
    identity: std::sync::OnceLock<Key>,
    /// Whether the usage of experts in earlier runs is known.
    #[cfg(feature = "cache")]
    has_recalled: std::sync::atomic::AtomicBool,
    /// Created with the first constraint.
    grammars: Mutex<Option<Arc<Grammars>>>,
    /// Loaded with the first text that it drafts for.
    draft_head: Mutex<Option<Arc<LoadedHead>>>,
    _memory: [Reservation; 3],
}

impl Engine {
    /// Loads a GGUF file, or a split model by the path of any shard.
    ///
    /// # Errors
    /// An unreadable file, an unsupported model or tokenizer, an instruction set or CPUs that this
    /// machine lacks, an exceeded memory budget.
    pub fn open(path: &Path, options: &LoadOptions) -> Result<Self, Error> {
        let start = Instant::now();
        Self::load(path.to_owned(), ModelFiles::open(path)?, options, start)
    }

    /// Loads a model that is embedded in the program; errors give `name` in place of a path.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_static(
        name: &str,
        bytes: &'static [u8],
        options: &LoadOptions,
    ) -> Result<Self, Error> {
        let start = Instant::now();
        let files = ModelFiles::from_static(name, bytes)?;
        Self::load(name.into(), files, options, start)
    }

    /// Loads a model that is open, such as one from [other sources](ModelFiles::from_sources) than
    /// files; errors give `name` in place of a path. By default, weights of a source that is not
    /// addressable are read into memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_files(name: &str, files: ModelFiles, options: &LoadOptions) -> Result<Self, Error> {
        Self::load(name.into(), files, options, Instant::now())
    }

    fn load(
        path: PathBuf,
        files: ModelFiles,
        options: &LoadOptions,
        start: Instant,
    ) -> Result<Self, Error> {
        #[cfg(feature = "foreign")]
        crate::foreign::check(&path, files.directory())?;
        let kernels = options.kernels()?;
        let pool = options.open_pool()?;
        let n_threads = pool.n_threads();
        let step_threads = Arc::new(options.threads.of_steps(&pool));
        let on_cpu = || -> Arc<dyn Backend> {
            let backend = CpuBackend::new(kernels, Arc::clone(&pool));
            Arc::new(backend.with_threads(Arc::clone(&step_threads)))
        };
        let backend = options.backend.clone().unwrap_or_else(on_cpu);
        if options.backend.is_some() && !options.reduction.is_whole() {
            return Err(Error::ReducedElsewhere);
        }
        if !backend.takes_adapters() && !options.adapters.is_empty() {
            return Err(Error::AdaptersElsewhere);
        }
        let Prepared {
            files,
            spec,
            reduced,
            tokenizer,
            budget,
            outline,
            adapters,
            memory,
        } = Prepared::new(&path, files, options, backend.as_ref(), n_threads)?;
        if options.verify {
            files.verify()?;
        }
        let needs = SessionNeeds {
            adapters: adapters.sizes(),
            ..options.session_needs(&spec, backend.as_ref(), n_threads)
        };
        let probe = || memory::bandwidth(kernels, &pool, &budget);
        let placed = memory::place(files, &budget, &needs, outline, &probe)
            .map_err(|error| error.at(&path))?;
        if options.prewarm {
            prewarm(&placed.model).map_err(|error| error.at(&path))?;
        }
        let inner = Inner {
            path,
            model: Arc::new(placed.model.with_adapters(adapters.adapters)),
            tokenizer: Arc::new(tokenizer),
            kernels,
            pool,
            step_threads,
            heat: HeatControl::default(),
            backend,
            budget,
            load_time: start.elapsed(),
            weights: outline.weights,
            prediction: placed.prediction,
            reduced,
            adapters: adapters.infos,
            default_adapters: adapters.defaults,
            planned_options: options.session.clone(),
            planned: placed.session,
            #[cfg(feature = "cache")]
            identity: std::sync::OnceLock::new(),
            #[cfg(feature = "cache")]
            has_recalled: std::sync::atomic::AtomicBool::new(false),
            grammars: Mutex::default(),
            draft_head: Mutex::default(),
            _memory: memory,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The sizes of a session: those planned when the model was loaded, or those that fit the
    /// remaining budget.
    pub(crate) fn planned_session(&self, options: &SessionOptions) -> Result<Resolved, Error> {
        if *options == self.inner.planned_options {
            return Ok(self.inner.planned);
        }
        let needs = SessionNeeds {
            spec: self.spec(),
            footprint: self.backend(),
            n_threads: self.inner.pool.n_threads(),
            session: options.clone(),
            fit: Fit::Strict,
            adapters: AdapterSizes::of(self.inner.model.adapters()),
            spare: 0,
        };
        memory::beside(&self.inner.budget, &needs)
    }

    /// The same engine with executors of another backend.
    #[cfg(test)]
    pub(crate) fn with_backend(self, backend: Arc<dyn Backend>) -> Self {
        let inner = Arc::into_inner(self.inner).expect("an engine without clones");
        Self {
            inner: Arc::new(Inner { backend, ..inner }),
        }
    }

    /// Creates a session with a context and an executor of its own.
    ///
    /// # Errors
    /// A context of no positions, an exceeded memory budget.
    pub fn session(&self, options: &SessionOptions) -> Result<Session, Error> {
        Session::new(self, options)
    }

    /// Checks that the model writes texts.
    ///
    /// # Errors
    /// [`atta_model::Error::NoLogits`] of an encoder.
    pub(crate) fn check_writes(&self) -> Result<(), Error> {
        match self.spec().head.outputs {
            Outputs::Logits => Ok(()),
            Outputs::Hidden | Outputs::Dense(_) | Outputs::Scores(_) => {
                Err(atta_model::Error::NoLogits.into())
            }
        }
    }

    /// Creates a guide, which gives the tokens that may follow in a constrained text. The first one
    /// of an engine takes a tenth of a second per 100,000 tokens of the vocabulary, and memory that
    /// the engine keeps.
    ///
    /// # Errors
    /// [`Error::Constraint`] if the constraint is unsupported; an exceeded memory budget.
    pub fn guide(&self, constraint: &Constraint) -> Result<Guide, Error> {
        let mut slot = self
            .inner
            .grammars
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let grammars = match &*slot {
            Some(grammars) => Arc::clone(grammars),
            None => Arc::clone(slot.insert(Arc::new(Grammars::new(
                &self.inner.tokenizer,
                &self.inner.budget,
            )?))),
        };
        drop(slot);
        Ok(Guide::new(&grammars, constraint)?)
    }

    /// Encodes a raw prompt, UTF-8 or not. Special tokens in the text are recognised, and
    /// begin-of-sequence is added if the vocabulary wants it and the text does not begin with it.
    pub fn prompt_ids(&self, text: &[u8]) -> Vec<u32> {
        let tokenizer = &self.inner.tokenizer;
        let mut ids = tokenizer.encode(text, Special::Parse);
        if let Some(bos) = tokenizer
            .bos()
            .filter(|&bos| tokenizer.add_bos() && ids.first() != Some(&bos))
        {
            ids.insert(0, bos);
        }
        ids
    }

    /// The chat template of the file, in Jinja.
    pub fn chat_template(&self) -> Option<&str> {
        // A value of another type is ignored.
        self.inner
            .model
            .weights()
            .files()
            .directory()
            .metadata()
            .str("tokenizer.chat_template")
            .ok()
            .flatten()
    }

    /// A named chat template of the file, such as `tool_use` or `rag`.
    pub fn chat_template_named(&self, name: &str) -> Option<&str> {
        let metadata = self.inner.model.weights().files().directory().metadata();
        metadata
            .str(&format!("tokenizer.chat_template.{name}"))
            .ok()
            .flatten()
    }

    /// The error of a model that computed NaN or infinity at token `i` of a text, from 0.
    pub fn not_finite(&self, i: usize) -> Error {
        Error::NotFinite {
            path: self.inner.path.clone(),
            n: i + 1,
        }
    }

    /// The draft head, if one is loaded.
    pub(crate) fn draft_head(&self) -> &Mutex<Option<Arc<LoadedHead>>> {
        &self.inner.draft_head
    }

    /// Opens an executor of a small model beside this one: always here, with the same threads.
    pub(crate) fn open_beside(
        &self,
        model: Model,
        size: &ExecutorSize,
    ) -> Result<Box<dyn Executor>, Error> {
        let backend = CpuBackend::new(self.inner.kernels, Arc::clone(&self.inner.pool));
        Ok(backend.open(Arc::new(model), size, &self.inner.budget)?)
    }

    /// The path of the file, or the name in its place.
    pub(crate) fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.inner.tokenizer
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.inner.model
    }

    /// The architecture of the model.
    pub fn spec(&self) -> &ModelSpec {
        self.inner.model.spec()
    }

    /// A hash of the model file, for keys of cached states.
    #[cfg(feature = "cache")]
    pub(crate) fn identity(&self) -> Result<Key, Error> {
        if let Some(key) = self.inner.identity.get() {
            return Ok(*key);
        }
        let key = Key::of_model(self.inner.model.weights().files())?;
        Ok(*self.inner.identity.get_or_init(|| key))
    }

    /// Whether this is the first time that a cache is asked for the usage of experts.
    #[cfg(feature = "cache")]
    pub(crate) fn recalls_now(&self) -> bool {
        let has_recalled = &self.inner.has_recalled;
        !has_recalled.swap(true, std::sync::atomic::Ordering::Relaxed)
    }

    /// The kernels in use.
    pub fn kernels(&self) -> Kernels {
        self.inner.kernels
    }

    /// The thread pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.inner.pool
    }

    /// How many threads of the pool compute single tokens, and prompts; with a backend of the
    /// caller's, that is for it to know.
    pub fn step_threads(&self) -> &StepThreads {
        &self.inner.step_threads
    }

    /// The level of heat.
    pub(crate) fn heat_control(&self) -> &HeatControl {
        &self.inner.heat
    }

    /// The backend that creates executors.
    pub(crate) fn backend(&self) -> &dyn Backend {
        self.inner.backend.as_ref()
    }

    /// Memory that executors have elsewhere, such as on a GPU, by purpose.
    pub fn items_elsewhere(&self) -> Vec<BudgetItem> {
        self.inner.backend.items_elsewhere()
    }

    /// The budget of private memory.
    pub fn budget(&self) -> &Budget {
        &self.inner.budget
    }

    /// The context length and KV type of the planned session, if [`Fit::Shrink`] changed them.
    pub fn shrunk(&self) -> Option<(usize, KvType)> {
        let planned = &self.inner.planned;
        let wanted = session::resolve(self.spec(), &self.inner.planned_options);
        (wanted.n_ctx != planned.n_ctx || wanted.kv != planned.kv)
            .then_some((planned.n_ctx, planned.kv))
    }

    /// Placement of the weights.
    pub fn weights_at(&self) -> WeightsAt {
        self.inner.weights
    }

    /// Predicted decode speed of a streamed model; `None` if the weights are in memory.
    pub fn prediction(&self) -> Option<Prediction> {
        self.inner.prediction
    }

    /// The predicted speed of texts, tokens per second: of a streamed model that this processor
    /// runs whole. What GPUs and other machines of a ring do is not in the prediction of a part.
    pub fn predicted_tok_s(&self) -> Option<f64> {
        let model = self.model();
        let is_whole = *model.share() == Share::whole(model.spec());
        self.prediction()
            .filter(|_| is_whole)
            .map(|prediction| prediction.decode_tok_s)
    }

    /// What the model does without, if it does not run whole.
    pub fn reduced(&self) -> Option<&Reduced> {
        self.inner.reduced.as_ref()
    }

    /// Bytes of weights that a token would read of the model in part, over those of this one.
    ///
    /// # Errors
    /// A reduction that is refused, as by [`open`](Self::open).
    pub fn bytes_ratio(&self, reduction: &Reduction) -> Result<f64, Error> {
        let directory = self.inner.model.weights().files().directory();
        let reduced = reduction.apply(&mut self.spec().clone(), directory);
        let reduced = reduced.map_err(|error| error.at(&self.inner.path))?;
        Ok(reduced.map_or(1.0, |reduced| reduced.bytes_ratio))
    }

    pub(crate) fn adapter_infos(&self) -> &[AdapterInfo] {
        &self.inner.adapters
    }

    /// The adapters of texts that say nothing of adapters.
    pub fn default_adapters(&self) -> AdapterSet {
        self.inner.default_adapters
    }

    /// Time of loading.
    pub fn load_time(&self) -> Duration {
        self.inner.load_time
    }
}

/// The metadata of a model, from which its memory is planned.
pub(crate) struct Prepared {
    pub(crate) files: ModelFiles,
    pub(crate) spec: ModelSpec,
    pub(crate) reduced: Option<Reduced>,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) budget: Budget,
    pub(crate) outline: Outline,
    pub(crate) adapters: LoadedAdapters,
    /// For the vocabulary, the tensor directory and the program.
    pub(crate) memory: [Reservation; 3],
}

impl Prepared {
    pub(crate) fn new(
        path: &Path,
        files: ModelFiles,
        options: &LoadOptions,
        footprint: &dyn Footprint,
        n_threads: usize,
    ) -> Result<Self, Error> {
        let model_error = |source| Error::Model {
            path: path.to_owned(),
            source,
        };
        let directory = files.directory();
        let mut spec = arch::lower(directory.metadata()).map_err(model_error)?;
        let reduced = options.reduction.apply(&mut spec, directory);
        let reduced = reduced.map_err(|error| error.at(path))?;
        let budget = Budget::unlimited();
        let architecture = directory.metadata().shown("general.architecture");
        let adapters = LoadedAdapters::load(&options.adapters, &spec, &architecture, &budget)?;
        let needs = SessionNeeds {
            adapters: adapters.sizes(),
            ..options.session_needs(&spec, footprint, n_threads)
        };
        let outline = Outline::new(options, &files, &needs).map_err(model_error)?;
        // The metadata is a few MB. A file that claims more is an error before it is copied.
        budget.set_limit(outline.limit.max(MAX_METADATA));
        let files = if outline.weights == WeightsAt::Mapped {
            files
        } else {
            files.unmapped(&budget)?
        };
        budget.set_limit(u64::MAX);
        let tokenizer =
            Tokenizer::from_metadata(files.directory().metadata()).map_err(|source| {
                Error::Tokenizer {
                    path: path.to_owned(),
                    source,
                }
            })?;
        let vocabulary = budget.reserve("tokenizer", tokenizer.heap_bytes() as u64)?;
        let directory =
            budget.reserve("tensor directory", files.directory().heap_bytes() as u64)?;
        let program =
            memory::program_bytes(n_threads, budget.used().saturating_add(options.beside));
        let program = budget.reserve("program and stacks", program)?;
        Ok(Self {
            files,
            spec,
            reduced,
            tokenizer,
            budget,
            outline,
            adapters,
            memory: [vocabulary, directory, program],
        })
    }
}

/// Reads the weights of the loaded part into the page cache.
fn prewarm(model: &Model) -> Result<(), PlaceError> {
    let files = model.weights().files();
    let is_reduced = model.spec().left_out().next().is_some();
    if *model.share() == Share::whole(model.spec()) && !is_reduced {
        return Ok(files.prewarm().map_err(Error::from)?);
    }
    let tensors = model.share().tensors(model.spec(), files.directory())?;
    files.prewarm_extents(tensors.iter().map(|tensor| Extent {
        shard: tensor.shard,
        offset: tensor.offset,
        bytes: tensor.n_bytes,
    }));
    Ok(())
}

impl LoadOptions {
    /// The kernels of the instruction set.
    ///
    /// # Errors
    /// An unknown instruction set, or one that this CPU lacks.
    pub fn kernels(&self) -> Result<Kernels, Error> {
        Ok(match &self.isa {
            Some(name) => Kernels::named(name)?,
            None => Kernels::detect(),
        })
    }

    /// The threads that are there already, or new ones.
    ///
    /// # Errors
    /// CPUs that this machine lacks.
    pub fn open_pool(&self) -> Result<Arc<Pool>, Error> {
        if let Some(pool) = &self.pool {
            return Ok(Arc::clone(pool));
        }
        Ok(Arc::new(match &self.threads {
            Threads::Auto => {
                let n = NonZeroUsize::new(Pool::default_threads());
                Pool::new(n.unwrap_or(NonZeroUsize::MIN))
            }
            Threads::Count(n) => Pool::new(*n),
            Threads::Each { decode, prompt } => Pool::new(*decode.max(prompt)),
            Threads::Cpus(cpus) => Pool::with_cpus(cpus)?,
        }))
    }

    /// The memory that the session needs with `n_threads` threads.
    pub(crate) fn session_needs<'a>(
        &self,
        spec: &'a ModelSpec,
        footprint: &'a dyn Footprint,
        n_threads: usize,
    ) -> SessionNeeds<'a> {
        let grammars = if self.constrained {
            atta_constrain::planned_bytes(spec.n_vocab)
        } else {
            0
        };
        let spare = self.spare_bytes + grammars;
        SessionNeeds {
            spec,
            footprint,
            n_threads,
            session: self.session.clone(),
            fit: self.fit,
            adapters: AdapterSizes::default(),
            spare,
        }
    }
}

impl Threads {
    /// Number of threads.
    pub fn count(&self) -> usize {
        match self {
            Self::Auto => Pool::default_threads().max(1),
            Self::Count(n) => n.get(),
            Self::Each { decode, prompt } => decode.max(prompt).get(),
            Self::Cpus(cpus) => cpus.len(),
        }
    }

    /// How many threads of a pool compute which steps.
    fn of_steps(&self, pool: &Pool) -> StepThreads {
        match self {
            Self::Auto => StepThreads::measured(pool),
            Self::Each { decode, prompt } => StepThreads::fixed(decode.get(), prompt.get()),
            Self::Count(_) | Self::Cpus(_) => StepThreads::all(pool),
        }
    }
}

/// The memory of the default backend's executors, for a plan without a backend.
pub(crate) fn default_footprint(n_threads: usize) -> impl Footprint {
    CpuFootprint(n_threads)
}
