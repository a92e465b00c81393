//! A loaded model, ready for sessions.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use atta_kernels::{Kernels, Pool};
use atta_model::{Model, spec::ModelSpec};
use atta_store::{Budget, ModelFiles, Placement, Reservation};
use atta_tokenizer::{Special, Tokenizer};

use crate::{Error, Session, SessionOptions};

/// How many threads compute, the caller included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One for each physical core that affinity and quota allow.
    #[default]
    Auto,
    /// So many.
    Count(NonZeroUsize),
    /// One for each of these CPUs, pinned to it; the calling thread is pinned to the first.
    Cpus(Vec<usize>),
}

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// How many threads compute.
    pub threads: Threads,
    /// An instruction set by name; `None`: the best of this CPU.
    pub isa: Option<String>,
    /// Whether weights are mapped or read to the heap.
    pub placement: Placement,
    /// Reads all weights now.
    pub prewarm: bool,
    /// The account of private memory; the default one grants everything.
    pub budget: Option<Budget>,
}

/// A loaded model. Clones share it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    model: Arc<Model>,
    tokenizer: Tokenizer,
    kernels: Kernels,
    pool: Arc<Pool>,
    budget: Budget,
    load_time: Duration,
    _memory: [Reservation; 2],
}

impl Engine {
    /// Loads a GGUF file; of a split model any shard may be named.
    ///
    /// # Errors
    /// A file that cannot be read, a model or a tokenizer that we do not support, an instruction set or CPUs that this
    /// machine lacks.
    pub fn open(path: &Path, options: &LoadOptions) -> Result<Self, Error> {
        let start = Instant::now();
        let budget = options.budget.clone().unwrap_or_else(Budget::unlimited);
        let files = ModelFiles::open(path, options.placement, &budget)?;
        Self::load(path.to_owned(), files, budget, options, start)
    }

    /// Loads a model that is part of the program; `name` stands in for the path in errors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_static(name: &str, bytes: &'static [u8], options: &LoadOptions) -> Result<Self, Error> {
        let start = Instant::now();
        let budget = options.budget.clone().unwrap_or_else(Budget::unlimited);
        let files = ModelFiles::from_static(name, bytes, options.placement, &budget)?;
        Self::load(name.into(), files, budget, options, start)
    }

    fn load(
        path: PathBuf,
        files: ModelFiles,
        budget: Budget,
        options: &LoadOptions,
        start: Instant,
    ) -> Result<Self, Error> {
        let kernels = match &options.isa {
            Some(name) => Kernels::named(name)?,
            None => Kernels::detect(),
        };
        let pool = Arc::new(pool(&options.threads)?);
        let tokenizer = Tokenizer::from_metadata(files.directory().metadata())
            .map_err(|source| Error::Tokenizer { path: path.clone(), source })?;
        let memory = [
            budget.reserve("tokenizer", tokenizer.heap_bytes() as u64)?,
            budget.reserve("tensor directory", files.directory().heap_bytes() as u64)?,
        ];
        let model = Model::load(files, &budget).map_err(|source| Error::Model { path, source })?;
        if options.prewarm {
            model.weights().files().prewarm()?;
        }
        let inner = Inner {
            model: Arc::new(model),
            tokenizer,
            kernels,
            pool,
            budget,
            load_time: start.elapsed(),
            _memory: memory,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A new session: its own context, its own state.
    ///
    /// # Errors
    /// A context of no positions, or memory that the budget does not grant.
    pub fn session(&self, options: &SessionOptions) -> Result<Session, Error> {
        Session::new(self, options)
    }

    /// The ids of a raw prompt, UTF-8 or not: begin-of-sequence where the vocabulary wants it, special tokens in the text recognised.
    pub fn prompt_ids(&self, text: &[u8]) -> Vec<u32> {
        let tokenizer = &self.inner.tokenizer;
        let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
        bos.into_iter().chain(tokenizer.encode(text, Special::Parse)).collect()
    }

    /// The chat template of the file, a program in Jinja.
    pub fn chat_template(&self) -> Option<&str> {
        // One that is no string is none.
        self.inner.model.weights().files().directory().metadata().str("tokenizer.chat_template").ok().flatten()
    }

    /// Text to ids and back.
    pub fn tokenizer(&self) -> &Tokenizer {
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

    /// The kernels in use.
    pub fn kernels(&self) -> Kernels {
        self.inner.kernels
    }

    /// The threads in use.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.inner.pool
    }

    /// The account of private memory.
    pub fn budget(&self) -> &Budget {
        &self.inner.budget
    }

    /// How long loading took.
    pub fn load_time(&self) -> Duration {
        self.inner.load_time
    }
}

fn pool(threads: &Threads) -> Result<Pool, Error> {
    match threads {
        Threads::Auto => Ok(Pool::new(NonZeroUsize::new(Pool::default_threads()).unwrap_or(NonZeroUsize::MIN))),
        Threads::Count(n) => Ok(Pool::new(*n)),
        Threads::Cpus(cpus) => Ok(Pool::with_cpus(cpus)?),
    }
}
