//! The models of the server: their names, and which of them are in memory.
//!
//! The first request for a model loads it. If it does not fit, the least recently used model is
//! unloaded; so is one that has been idle for a while. A model with running requests is never
//! unloaded.

use std::{
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use atta_engine::{
    AdapterSet, Batcher, BatcherOptions, Counts, Engine, Error,
    chat::{ChatFormat, TemplateChoice},
    give_back_memory,
};

use crate::{
    Log, ServeError, ServerOptions,
    earlier::EarlierByKey,
    flow::{error::ApiError, sampling::Defaults},
    runtime::run_blocking,
    step_lock::StepLock,
    worker::{Turn, Worker, WorkerStatus},
};

/// The tag that Ollama's clients append to names.
const LATEST: &str = ":latest";

/// Bytes that unloading a model may free beside those that its budget counts: the tables of its
/// tokenizer and its template.
const UNCOUNTED: u64 = 64 << 20;

/// Loads a model. The argument is the private memory of other models, in bytes.
pub type Open = dyn Fn(u64) -> Result<Engine, Error> + Send + Sync;

/// A model that can be loaded.
pub struct ModelSource {
    /// Names in requests; the first one is the name in responses.
    pub names: Vec<String>,
    /// Chat template.
    pub template: TemplateChoice,
    /// Prompts of conversations are cut to this many tokens by dropping the oldest turns, for
    /// models that fail on long ones.
    pub talk_window: Option<usize>,
    /// Loads the model; called again after it was unloaded.
    pub open: Box<Open>,
}

impl std::fmt::Debug for ModelSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelSource")
            .field("names", &self.names)
            .field("template", &self.template)
            .field("talk_window", &self.talk_window)
            .finish_non_exhaustive()
    }
}

/// A model in memory.
pub(crate) struct Model {
    /// Its name in responses.
    pub(crate) name: String,
    pub(crate) engine: Engine,
    /// Its chat template, and the format of its tool calls.
    pub(crate) format: ChatFormat,
    pub(crate) worker: Worker,
    /// Positions of a job's context.
    pub(crate) n_ctx: usize,
    /// Jobs at a time.
    pub(crate) n_jobs: usize,
    /// Defaults for fields that a request does not set.
    pub(crate) defaults: Arc<Defaults>,
    /// As in [`ModelSource`].
    pub(crate) talk_window: Option<usize>,
    /// Why no part of a cached prompt can be moved; `None`: it can.
    pub(crate) no_cache_reuse: Option<String>,
    /// Answers from which later ones are drafted.
    pub(crate) earlier: EarlierByKey,
    /// Of requests that say nothing of adapters.
    adapters: Mutex<AdapterSet>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Model {
    /// The adapters of requests that say nothing of adapters.
    pub(crate) fn adapters(&self) -> AdapterSet {
        *lock(&self.adapters)
    }

    /// Sets them for later requests.
    pub(crate) fn set_adapters(&self, adapters: AdapterSet) {
        *lock(&self.adapters) = adapters;
    }

    /// Waits until all jobs are complete and the thread has ended. Returns false if it panicked.
    fn end(&self) -> bool {
        self.worker.stop();
        while self.worker.turn() == Turn::Taken {}
        let thread = lock(&self.thread).take();
        thread.is_none_or(|thread| thread.join().is_ok())
    }
}

struct ModelEntry {
    source: ModelSource,
    residency: Mutex<Residency>,
}

/// How long a model stays in memory after its last request, as that request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepAlive {
    For(Duration),
    Always,
}

/// Whether a model is in memory. A request that uses it holds another clone of the `Arc`;
/// everything else looks at the model under the lock, so that it does not count as a use.
struct Residency {
    model: Option<Arc<Model>>,
    last_use: Instant,
    keep_alive: Option<KeepAlive>,
}

impl Residency {
    fn new(model: Option<Arc<Model>>) -> Self {
        Self {
            model,
            last_use: Instant::now(),
            keep_alive: None,
        }
    }

    /// The time until the model is unloaded if no request uses it; `None`: never. `idle` is the
    /// server's default.
    fn time_left(&self, idle: Option<Duration>) -> Option<Duration> {
        let time = match self.keep_alive {
            Some(KeepAlive::For(time)) => Some(time),
            Some(KeepAlive::Always) => None,
            None => idle,
        };
        let unused = if self.is_used() {
            Duration::ZERO
        } else {
            self.last_use.elapsed()
        };
        Some(time?.saturating_sub(unused))
    }

    /// Whether a request uses the model.
    fn is_used(&self) -> bool {
        self.model
            .as_ref()
            .is_some_and(|model| Arc::strong_count(model) > 1)
    }

    /// Whether the model has been idle for long enough. A model in use counts as used now.
    fn is_due(&mut self, idle: Option<Duration>) -> bool {
        if self.is_used() {
            self.last_use = Instant::now();
        }
        self.model.is_some() && self.time_left(idle) == Some(Duration::ZERO)
    }
}

/// All models of the server.
pub(crate) struct Models {
    entries: Vec<ModelEntry>,
    batcher: BatcherOptions,
    defaults: Arc<Defaults>,
    log: Log,
    step_lock: Arc<StepLock>,
    /// Called when a worker panics.
    on_panic: Arc<dyn Fn() + Send + Sync>,
    /// Held while a model is loaded or unloaded.
    loading: Arc<tokio::sync::Mutex<()>>,
    /// Counts of models that were unloaded.
    past: Mutex<Counts>,
}

impl Models {
    /// Loads the first model.
    pub(crate) fn new(
        sources: Vec<ModelSource>,
        options: &ServerOptions,
        step_lock: StepLock,
        on_panic: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, ServeError> {
        let models = Self {
            entries: sources
                .into_iter()
                .map(|source| ModelEntry {
                    source,
                    residency: Mutex::new(Residency::new(None)),
                })
                .collect(),
            batcher: options.batcher.clone(),
            defaults: Arc::new(options.defaults.clone()),
            log: options.log,
            step_lock: Arc::new(step_lock),
            on_panic,
            loading: Arc::default(),
            past: Mutex::default(),
        };
        models.check_names()?;
        models.load(0)?;
        Ok(models)
    }

    fn check_names(&self) -> Result<(), ServeError> {
        let mut names: Vec<&str> = self.names().collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        match twice {
            Some(pair) => Err(ServeError::SameName(pair[0].to_owned())),
            None if self
                .entries
                .iter()
                .any(|entry| entry.source.names.is_empty()) =>
            {
                Err(ServeError::NoName)
            }
            None if self.entries.is_empty() => Err(ServeError::NoModel),
            None => Ok(()),
        }
    }

    /// The names of all models.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries
            .iter()
            .flat_map(|entry| entry.source.names.iter().map(String::as_str))
    }

    /// The names of models in memory with those of their adapters.
    pub(crate) fn adapted_names(&self) -> Vec<String> {
        let names = |model: &Model| {
            let name = |adapter: &str| format!("{}:{adapter}", model.name);
            let infos = model.engine.adapters().iter();
            infos.map(|info| name(&info.name)).collect::<Vec<_>>()
        };
        self.inspect_loaded(names).concat()
    }

    /// Finds a model by any of its names, without loading it; no name means the first model.
    /// Returns its first name.
    pub(crate) fn look_up(&self, name: Option<&str>) -> Result<&str, ApiError> {
        Ok(&self.entries[self.find(name)?].source.names[0])
    }

    /// Calls `view` with a model's first name, and with the model if it is in memory. Does not load
    /// it, and does not count as a use of it. `view` must not ask for models: it runs under the
    /// lock.
    pub(crate) fn inspect<T>(
        &self,
        name: Option<&str>,
        view: impl FnOnce(&str, Option<&Model>) -> T,
    ) -> Result<T, ApiError> {
        let entry = &self.entries[self.find(name)?];
        let residency = lock(&entry.residency);
        Ok(view(&entry.source.names[0], residency.model.as_deref()))
    }

    /// The name of the model, if the server has only one.
    pub(crate) fn only(&self) -> Option<&str> {
        match self.entries.as_slice() {
            [entry] => Some(&entry.source.names[0]),
            _ => None,
        }
    }

    /// The first name of each model, and whether it is in memory.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, bool)> {
        self.entries.iter().map(|entry| {
            (
                entry.source.names[0].as_str(),
                lock(&entry.residency).model.is_some(),
            )
        })
    }

    fn find(&self, name: Option<&str>) -> Result<usize, ApiError> {
        let Some(name) = name else { return Ok(0) };
        let of = |name: &str| {
            self.entries
                .iter()
                .position(|entry| entry.source.names.iter().any(|ours| ours == name))
        };
        let found = of(name).or_else(|| of(name.strip_suffix(LATEST)?));
        found.ok_or_else(|| ApiError::no_model(name))
    }

    /// Gets a model by its name, and loads it if it is not in memory.
    pub(crate) async fn get(
        self: &Arc<Self>,
        name: Option<&str>,
        keep_alive: Option<KeepAlive>,
    ) -> Result<Arc<Model>, ApiError> {
        let i = self.find(name)?;
        if let Some(model) = self.take(i, keep_alive) {
            return Ok(model);
        }
        // The closure holds the guard, because it runs to its end even if the client disconnects.
        let guard = Arc::clone(&self.loading).lock_owned().await;
        if let Some(model) = self.take(i, keep_alive) {
            return Ok(model);
        }
        let models = Arc::clone(self);
        let work = move || {
            let _guard = guard;
            let model = models.load(i)?;
            models.take(i, keep_alive);
            Ok(model)
        };
        let loaded = run_blocking(work).await.map_err(|_| ApiError::broken())?;
        loaded.map_err(|error: ServeError| {
            let name = &self.entries[i].source.names[0];
            // The warning is lost if standard error is closed.
            let _ = writeln!(
                std::io::stderr(),
                "atta: warning: model {name:?} cannot be loaded: {error}"
            );
            ApiError::not_loaded(name, &error)
        })
    }

    /// The model, if it is in memory; marks it as used.
    fn take(&self, i: usize, keep_alive: Option<KeepAlive>) -> Option<Arc<Model>> {
        let mut residency = lock(&self.entries[i].residency);
        residency.last_use = Instant::now();
        residency.keep_alive = keep_alive;
        residency.model.clone()
    }

    /// Loads a model, and unloads others if that makes room for it.
    fn load(&self, i: usize) -> Result<Arc<Model>, ServeError> {
        loop {
            match self.open(i) {
                Ok(model) => {
                    let model = Arc::new(model);
                    *lock(&self.entries[i].residency) = Residency::new(Some(Arc::clone(&model)));
                    return Ok(model);
                }
                Err(ServeError::Engine(error)) if self.may_help(&error) && self.unload_oldest() => {
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn open(&self, i: usize) -> Result<Model, ServeError> {
        let source = &self.entries[i].source;
        let taken = self.budgets_used().iter().sum();
        let engine = (source.open)(taken)?;
        let (template, _) = source
            .template
            .template(&engine.templates())
            .map_err(Error::from)?;
        let format = ChatFormat::new(engine.tokenizer(), template);
        let batcher = Batcher::new(&engine, &self.batcher)?;
        let n_ctx = batcher.n_ctx();
        if self.defaults.cache_reuse > 0 {
            batcher.check_cache_reuse()?;
        }
        let no_cache_reuse = batcher.check_cache_reuse().err();
        let on_panic = Arc::clone(&self.on_panic);
        let step_lock = Arc::clone(&self.step_lock);
        let started = Worker::start(batcher, step_lock, self.log, move || on_panic());
        let (worker, thread) = started.map_err(ServeError::Start)?;
        Ok(Model {
            name: source.names[0].clone(),
            adapters: Mutex::new(engine.default_adapters()),
            engine,
            format,
            worker,
            n_ctx,
            n_jobs: self.batcher.n_jobs,
            defaults: Arc::clone(&self.defaults),
            talk_window: source.talk_window,
            no_cache_reuse: no_cache_reuse.map(|error| error.to_string()),
            earlier: EarlierByKey::default(),
            thread: Mutex::new(thread),
        })
    }

    /// `view` of each model in memory, which does not count as a use of it. `view` must not ask for
    /// models: it runs under the lock.
    fn inspect_loaded<T>(&self, view: impl Fn(&Model) -> T) -> Vec<T> {
        self.entries
            .iter()
            .filter_map(|entry| lock(&entry.residency).model.as_deref().map(&view))
            .collect()
    }

    /// The private memory of each model in memory, in bytes.
    pub(crate) fn budgets_used(&self) -> Vec<u64> {
        self.inspect_loaded(|model| model.engine.budget().used())
    }

    /// `view` of each model in memory and the time until it is unloaded. `view` must not ask for
    /// models: it runs under the lock.
    pub(crate) fn inspect_times_left<T>(
        &self,
        idle: Option<Duration>,
        view: impl Fn(&Model, Option<Duration>) -> T,
    ) -> Vec<T> {
        let stay = |entry: &ModelEntry| {
            let residency = lock(&entry.residency);
            let left = residency.time_left(idle);
            residency.model.as_deref().map(|model| view(model, left))
        };
        self.entries.iter().filter_map(stay).collect()
    }

    /// Lets the workers take a turn that have no thread of their own.
    pub(crate) fn turn(&self) -> Turn {
        let workers = self.inspect_loaded(|model| model.worker.clone());
        let turns = workers.iter().map(Worker::turn);
        turns.max().unwrap_or(Turn::Elsewhere)
    }

    /// Whether a worker has panicked.
    pub(crate) fn is_broken(&self) -> bool {
        self.inspect_loaded(|model| model.worker.has_ended())
            .contains(&true)
    }

    /// Whether a model has been idle for long enough to be unloaded.
    pub(crate) fn has_idle(&self, idle: Option<Duration>) -> bool {
        self.entries
            .iter()
            .any(|entry| lock(&entry.residency).is_due(idle))
    }

    /// Unloads models that have been idle for long enough. No model is loaded meanwhile, because
    /// the memory is free only when their threads have ended.
    pub(crate) async fn unload_idle(self: &Arc<Self>, idle: Option<Duration>) {
        let guard = Arc::clone(&self.loading).lock_owned().await;
        let models = Arc::clone(self);
        let work = move || {
            let _guard = guard;
            for entry in &models.entries {
                models.unload(entry, |residency| residency.is_due(idle));
            }
        };
        // A worker that panicked has reported that itself.
        let _ = run_blocking(work).await;
    }

    /// Whether unloading all idle models would free enough memory for a model that does not fit.
    fn may_help(&self, error: &Error) -> bool {
        let unused = |entry: &ModelEntry| {
            let residency = lock(&entry.residency);
            residency
                .model
                .as_ref()
                .filter(|_| !residency.is_used())
                .map_or(0, |model| model.engine.budget().used())
        };
        let given_back = UNCOUNTED + self.entries.iter().map(unused).sum::<u64>();
        error
            .missing_bytes()
            .is_some_and(|missing| missing <= given_back)
    }

    /// Unloads the least recently used idle model. Returns false if there is none.
    fn unload_oldest(&self) -> bool {
        let mut entries: Vec<&ModelEntry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| lock(&entry.residency).last_use);
        entries
            .into_iter()
            .any(|entry| self.unload(entry, |_| true))
    }

    /// Unloads a model if it is idle and `may` agrees. Returns whether it did.
    fn unload(&self, entry: &ModelEntry, may: impl Fn(&mut Residency) -> bool) -> bool {
        let model = {
            let mut past = lock(&self.past);
            let mut residency = lock(&entry.residency);
            let may_go = !residency.is_used() && may(&mut residency);
            let Some(model) = (if may_go { residency.model.take() } else { None }) else {
                return false;
            };
            *past = past.and(model.worker.status().counts);
            model
        };
        // A worker that panicked has reported that itself.
        model.end();
        drop(model);
        give_back_memory();
        true
    }

    /// The statistics of all workers, including those of unloaded models.
    pub(crate) fn status(&self) -> WorkerStatus {
        // The lock keeps a model that is being unloaded from being counted twice.
        let past = lock(&self.past);
        let now = self
            .inspect_loaded(|model| model.worker.status())
            .into_iter()
            .fold(WorkerStatus::default(), WorkerStatus::and);
        WorkerStatus {
            counts: now.counts.and(*past),
            ..now
        }
    }

    /// Waits until all workers have completed their jobs and ended. Returns false if one panicked.
    /// Must be called outside of the runtime.
    pub(crate) fn close(&self) -> bool {
        let _guard = self.loading.blocking_lock();
        let clones = self
            .entries
            .iter()
            .map(|entry| lock(&entry.residency).model.clone());
        let loaded: Vec<Arc<Model>> = clones.flatten().collect();
        let ended: Vec<bool> = loaded.iter().map(|model| model.end()).collect();
        ended.into_iter().all(|is_well| is_well)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
