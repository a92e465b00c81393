//! A loaded model, ready for sessions.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use atta_kernels::{Kernels, Pool};
use atta_model::{Backend, CpuBackend, Footprint, KvType, Model, arch, spec::ModelSpec};
use atta_store::{Budget, ModelFiles, Reservation};
use atta_tokenizer::{Special, Tokenizer};

#[cfg(feature = "cache")]
use crate::prompt_cache::Key;
use crate::{
    Error, Fit, Prediction, Session, SessionOptions, WeightsAt,
    memory::{self, Needs, Outline},
    session::{self, Resolved},
};
use atta_constrain::{Constraint, Grammars, Guide};

/// How many threads compute, the caller included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One for each physical core that affinity and quota allow.
    #[default]
    Auto,
    /// So many.
    Count(NonZeroUsize),
    /// One for each of these CPUs, pinned to it; the thread that computes is pinned to the first.
    Cpus(Vec<usize>),
}

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// How many threads compute.
    pub threads: Threads,
    /// An instruction set by name; `None`: the best of this CPU.
    pub isa: Option<String>,
    /// Where weights are; `None`: mapped if the file fits into the memory that there is, else
    /// streamed.
    pub weights: Option<WeightsAt>,
    /// Has the system read all of a mapped file now.
    pub prewarm: bool,
    /// All private memory of the program, bytes; `None`: what the system has or, where weights are
    /// streamed, 85 % of what it has available.
    pub ram_budget: Option<u64>,
    /// What other models in this program have of it, bytes.
    pub beside: u64,
    /// The session that memory is kept free for.
    pub session: SessionOptions,
    /// What may be done if that session does not fit.
    pub fit: Fit,
    /// Bytes that are kept free beside the session, for what is done with its results.
    pub spare_bytes: u64,
    /// Keeps memory free for a constraint.
    pub constrained: bool,
}

/// Bytes of metadata that no model has.
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
    /// What it was loaded from, for errors.
    path: PathBuf,
    model: Arc<Model>,
    tokenizer: Arc<Tokenizer>,
    kernels: Kernels,
    pool: Arc<Pool>,
    backend: Arc<dyn Backend>,
    budget: Budget,
    load_time: Duration,
    weights: WeightsAt,
    prediction: Option<Prediction>,
    /// The session that memory was kept free for, as it was asked for and as it fits.
    planned: (SessionOptions, Resolved),
    /// Made when it is first asked for.
    #[cfg(feature = "cache")]
    identity: std::sync::OnceLock<Key>,
    /// Made with the first constraint.
    grammars: Mutex<Option<Arc<Grammars>>>,
    _memory: [Reservation; 3],
}

impl Engine {
    /// Loads a GGUF file; of a split model any shard may be named.
    ///
    /// # Errors
    /// A file that cannot be read, a model or a tokenizer that we do not support, an instruction
    /// set or CPUs that this machine lacks.
    pub fn open(path: &Path, options: &LoadOptions) -> Result<Self, Error> {
        let start = Instant::now();
        Self::load(path.to_owned(), ModelFiles::open(path)?, options, start)
    }

    /// Loads a model that is part of the program; `name` stands in for the path in errors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_static(
        name: &str,
        bytes: &'static [u8],
        options: &LoadOptions,
    ) -> Result<Self, Error> {
        let start = Instant::now();
        Self::load(
            name.into(),
            ModelFiles::from_static(name, bytes)?,
            options,
            start,
        )
    }

    fn load(
        path: PathBuf,
        files: ModelFiles,
        options: &LoadOptions,
        start: Instant,
    ) -> Result<Self, Error> {
        #[cfg(feature = "foreign")]
        crate::foreign::check(&path, files.directory())?;
        let kernels = match &options.isa {
            Some(name) => Kernels::named(name)?,
            None => Kernels::detect(),
        };
        let pool = Arc::new(pool(&options.threads)?);
        let n_threads = pool.n_threads();
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend::new(kernels, Arc::clone(&pool)));
        let Prepared {
            files,
            spec,
            tokenizer,
            budget,
            outline,
            memory,
        } = Prepared::new(
            &path,
            files,
            options,
            (backend.as_ref() as &dyn Footprint, n_threads),
        )?;
        let needs = options.needs(&spec, (backend.as_ref() as &dyn Footprint, n_threads));
        let held = memory::hold(files, (&budget, &needs), outline, (kernels, &pool))
            .map_err(|e| e.at(&path))?;
        if options.prewarm {
            held.model.weights().files().prewarm()?;
        }
        let planned = (options.session.clone(), held.session);
        let inner = Inner {
            path,
            model: Arc::new(held.model),
            tokenizer: Arc::new(tokenizer),
            kernels,
            pool,
            backend,
            budget,
            load_time: start.elapsed(),
            weights: outline.weights,
            prediction: held.prediction,
            planned,
            #[cfg(feature = "cache")]
            identity: std::sync::OnceLock::new(),
            grammars: Mutex::default(),
            _memory: memory,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The sizes of a session: those that were planned when the model was loaded, or what there is
    /// memory for.
    pub(crate) fn planned_session(&self, options: &SessionOptions) -> Result<Resolved, Error> {
        let (asked, planned) = &self.inner.planned;
        if options == asked {
            return Ok(*planned);
        }
        let needs = Needs {
            spec: self.spec(),
            footprint: self.backend(),
            n_threads: self.inner.pool.n_threads(),
            session: options.clone(),
            fit: Fit::AsAsked,
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

    /// A new session: its own context, its own state.
    ///
    /// # Errors
    /// A context of no positions, or memory that the budget does not grant.
    pub fn session(&self, options: &SessionOptions) -> Result<Session, Error> {
        Session::new(self, options)
    }

    /// Says token by token what may follow in a text of a constraint. The first one of an engine
    /// takes a tenth of a second per 100,000 tokens of the vocabulary, and memory that the
    /// engine keeps.
    ///
    /// # Errors
    /// [`Error::Constraint`] if it cannot be kept to, or memory that the budget does not grant.
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

    /// The ids of a raw prompt, UTF-8 or not: begin-of-sequence where the vocabulary wants it and
    /// the text does not begin with it, special tokens in the text recognised.
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

    /// The chat template of the file, a program in Jinja.
    pub fn chat_template(&self) -> Option<&str> {
        // One that is no string is none.
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

    /// Another chat template of the file, by its name: `tool_use`, `rag`.
    pub fn chat_template_named(&self, name: &str) -> Option<&str> {
        let metadata = self.inner.model.weights().files().directory().metadata();
        metadata
            .str(&format!("tokenizer.chat_template.{name}"))
            .ok()
            .flatten()
    }

    /// The error of a model that computed no number at token `i` of a text, from 0.
    pub fn not_finite(&self, i: usize) -> Error {
        Error::NotFinite {
            path: self.inner.path.clone(),
            n: i + 1,
        }
    }

    /// Text to ids and back.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.inner.tokenizer
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.inner.model
    }

    /// What the model is.
    pub fn spec(&self) -> &ModelSpec {
        self.inner.model.spec()
    }

    /// What tells this model from all others.
    #[cfg(feature = "cache")]
    pub(crate) fn identity(&self) -> Result<Key, Error> {
        if let Some(key) = self.inner.identity.get() {
            return Ok(*key);
        }
        let key = Key::of_model(self.inner.model.weights().files())?;
        Ok(*self.inner.identity.get_or_init(|| key))
    }

    /// The kernels in use.
    pub fn kernels(&self) -> Kernels {
        self.inner.kernels
    }

    /// The threads in use.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.inner.pool
    }

    /// The backend that creates executors.
    pub(crate) fn backend(&self) -> &dyn Backend {
        self.inner.backend.as_ref()
    }

    /// The account of private memory.
    pub fn budget(&self) -> &Budget {
        &self.inner.budget
    }

    /// The context and the types of keys and values that were planned, where they are not what was
    /// asked for ([`Fit::Shrink`]).
    pub fn shrunk(&self) -> Option<(usize, KvType)> {
        let (asked, planned) = &self.inner.planned;
        let wanted = session::resolve(self.spec(), asked);
        (wanted.n_ctx != planned.n_ctx || wanted.kv != planned.kv)
            .then_some((planned.n_ctx, planned.kv))
    }

    /// Where the weights are.
    pub fn weights_at(&self) -> WeightsAt {
        self.inner.weights
    }

    /// How fast a streamed model is going to write; `None` for one that is in memory.
    pub fn prediction(&self) -> Option<Prediction> {
        self.inner.prediction
    }

    /// How long loading took.
    pub fn load_time(&self) -> Duration {
        self.inner.load_time
    }
}

/// A model as far as its metadata goes: what its memory is planned with.
pub(crate) struct Prepared {
    pub(crate) files: ModelFiles,
    pub(crate) spec: ModelSpec,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) budget: Budget,
    pub(crate) outline: Outline,
    /// Of the vocabulary, the directory and the program.
    pub(crate) memory: [Reservation; 3],
}

impl Prepared {
    pub(crate) fn new(
        path: &Path,
        files: ModelFiles,
        options: &LoadOptions,
        (footprint, n_threads): (&dyn Footprint, usize),
    ) -> Result<Self, Error> {
        let model_error = |source| Error::Model {
            path: path.to_owned(),
            source,
        };
        let spec = arch::lower(files.directory().metadata()).map_err(model_error)?;
        let outline = Outline::new(
            options,
            &files,
            &options.needs(&spec, (footprint, n_threads)),
        );
        let budget = Budget::unlimited();
        // What stands before the tensors is a few MB; a file that says otherwise is refused before
        // it is copied.
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
            tokenizer,
            budget,
            outline,
            memory: [vocabulary, directory, program],
        })
    }
}

impl LoadOptions {
    /// What the session needs, with so many threads.
    pub(crate) fn needs<'a>(
        &self,
        spec: &'a ModelSpec,
        (footprint, n_threads): (&'a dyn Footprint, usize),
    ) -> Needs<'a> {
        let grammars = if self.constrained {
            atta_constrain::planned_bytes(spec.n_vocab)
        } else {
            0
        };
        let spare = self.spare_bytes + grammars;
        Needs {
            spec,
            footprint,
            n_threads,
            session: self.session.clone(),
            fit: self.fit,
            spare,
        }
    }
}

impl Threads {
    /// How many there are of them.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Auto => Pool::default_threads().max(1),
            Self::Count(n) => n.get(),
            Self::Cpus(cpus) => cpus.len(),
        }
    }
}

pub(crate) fn pool(threads: &Threads) -> Result<Pool, Error> {
    match threads {
        Threads::Auto => Ok(Pool::new(
            NonZeroUsize::new(Pool::default_threads()).unwrap_or(NonZeroUsize::MIN),
        )),
        Threads::Count(n) => Ok(Pool::new(*n)),
        Threads::Cpus(cpus) => Ok(Pool::with_cpus(cpus)?),
    }
}
