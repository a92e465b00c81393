//! The models of a server: which there are, by what names requests know them, and which of them are
//! in memory.
//!
//! A model is loaded when somebody asks for it. If there is no room for it, the one goes that
//! nobody has used for longest; so does, after a while, one that nobody uses. One that answers is
//! never taken away.

use std::{
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use atta_engine::{
    Batcher, BatcherOptions, Counts, Engine, Error,
    chat::{ChatFormat, TemplateChoice},
    give_back_memory,
};

use crate::{
    ServeError, ServerOptions,
    flow::{error::ApiError, sampling::Defaults},
    step_lock::StepLock,
    worker::{Worker, WorkerStatus},
};

/// What stands behind names where another server has several versions of a model.
const LATEST: &str = ":latest";

/// What a model gives back at most that its budget does not count, bytes: the tables of its
/// tokenizer and its template.
const UNCOUNTED: u64 = 64 << 20;

/// Loads a model beside others that hold so many bytes of private memory.
pub type Open = dyn Fn(u64) -> Result<Engine, Error> + Send + Sync;

/// A model that can be loaded.
pub struct ModelSource {
    /// What requests may call it; the first is its name in answers.
    pub names: Vec<String>,
    /// Chat template.
    pub template: TemplateChoice,
    /// Prompts of conversations are cut to this many tokens by dropping the oldest step_lock, for
    /// models that fail on long ones.
    pub talk_window: Option<usize>,
    /// How it is loaded; it may be called again after the model was taken out of memory.
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
    /// What it is called in answers.
    pub(crate) name: String,
    pub(crate) engine: Engine,
    /// How it is talked to.
    pub(crate) format: ChatFormat,
    pub(crate) worker: Worker,
    /// Positions that a text may have.
    pub(crate) n_ctx: usize,
    /// Texts at once.
    pub(crate) n_jobs: usize,
    /// Defaults for fields that a request does not set.
    pub(crate) defaults: Arc<Defaults>,
    /// As in [`ModelSource`].
    pub(crate) talk_window: Option<usize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Model {
    /// Lets the thread end when all its jobs have, and waits for that; whether it ended well.
    fn end(&self) -> bool {
        self.worker.stop();
        let thread = lock(&self.thread).take();
        thread.is_none_or(|thread| thread.join().is_ok())
    }
}

struct Entry {
    source: ModelSource,
    place: Mutex<Place>,
}

/// How long a model stays in memory after its last use, where that request has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepAlive {
    For(Duration),
    Always,
}

/// Where a model is if it is loaded. Whoever uses it holds another `Arc`, which comes from here
/// only.
struct Place {
    model: Option<Arc<Model>>,
    last_use: Instant,
    stay: Option<KeepAlive>,
}

impl Place {
    fn new(model: Option<Arc<Model>>) -> Self {
        Self {
            model,
            last_use: Instant::now(),
            stay: None,
        }
    }

    /// How long it stays if nobody uses it, on a server where that is `idle`; `None`: always.
    fn time_left(&self, idle: Option<Duration>) -> Option<Duration> {
        let time = match self.stay {
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

    /// Whether somebody is being answered.
    fn is_used(&self) -> bool {
        self.model
            .as_ref()
            .is_some_and(|model| Arc::strong_count(model) > 1)
    }

    /// Whether nobody has used it for so long; who uses it now does so until the next look.
    fn is_due(&mut self, idle: Option<Duration>) -> bool {
        if self.is_used() {
            self.last_use = Instant::now();
        }
        self.model.is_some() && self.time_left(idle) == Some(Duration::ZERO)
    }
}

/// All models.
pub(crate) struct Models {
    entries: Vec<Entry>,
    batcher: BatcherOptions,
    defaults: Arc<Defaults>,
    step_lock: Arc<StepLock>,
    /// Called when a thread that computes comes to grief.
    on_panic: Arc<dyn Fn() + Send + Sync>,
    /// Held by whoever loads.
    loading: Arc<tokio::sync::Mutex<()>>,
    /// What models have done that are not in memory any more.
    past: Mutex<Counts>,
}

impl Models {
    /// The first one is loaded at once.
    pub(crate) fn new(
        sources: Vec<ModelSource>,
        options: &ServerOptions,
        step_lock: StepLock,
        on_panic: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, ServeError> {
        let place = || Mutex::new(Place::new(None));
        let models = Self {
            entries: sources
                .into_iter()
                .map(|source| Entry {
                    source,
                    place: place(),
                })
                .collect(),
            batcher: options.batcher.clone(),
            defaults: Arc::new(options.defaults.clone()),
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

    /// All names of all models.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries
            .iter()
            .flat_map(|entry| entry.source.names.iter().map(String::as_str))
    }

    /// The first name of the model that has this one, and whether it is in memory; without a name,
    /// of the first model.
    pub(crate) fn look_up(
        &self,
        name: Option<&str>,
    ) -> Result<(&str, Option<Arc<Model>>), ApiError> {
        let entry = &self.entries[self.find(name)?];
        Ok((&entry.source.names[0], lock(&entry.place).model.clone()))
    }

    /// The name of the only model, if there are not several.
    pub(crate) fn only(&self) -> Option<&str> {
        match self.entries.as_slice() {
            [entry] => Some(&entry.source.names[0]),
            _ => None,
        }
    }

    /// The first names, and whether each model is in memory.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, bool)> {
        self.entries.iter().map(|entry| {
            (
                entry.source.names[0].as_str(),
                lock(&entry.place).model.is_some(),
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

    /// The model of that name, which is loaded if it is not there, and stays for so long.
    pub(crate) async fn get(
        self: &Arc<Self>,
        name: Option<&str>,
        stay: Option<KeepAlive>,
    ) -> Result<Arc<Model>, ApiError> {
        let i = self.find(name)?;
        if let Some(model) = self.take(i, stay) {
            return Ok(model);
        }
        // It is held by the work, which goes on if the client goes away.
        let guard = Arc::clone(&self.loading).lock_owned().await;
        if let Some(model) = self.take(i, stay) {
            return Ok(model);
        }
        let models = Arc::clone(self);
        let work = move || {
            let _guard = guard;
            let model = models.load(i)?;
            models.take(i, stay);
            Ok(model)
        };
        let loaded = tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| ApiError::broken())?;
        loaded.map_err(|error: ServeError| {
            let name = &self.entries[i].source.names[0];
            // A warning that nobody reads is none.
            let _ = writeln!(
                std::io::stderr(),
                "atta: warning: model {name:?} cannot be loaded: {error}"
            );
            ApiError::not_loaded(name, &error)
        })
    }

    /// The model, if it is in memory; it counts as used.
    fn take(&self, i: usize, stay: Option<KeepAlive>) -> Option<Arc<Model>> {
        let mut place = lock(&self.entries[i].place);
        (place.last_use, place.stay) = (Instant::now(), stay);
        place.model.clone()
    }

    /// Loads a model, and gives up others for it.
    fn load(&self, i: usize) -> Result<Arc<Model>, ServeError> {
        loop {
            match self.open(i) {
                Ok(model) => {
                    let model = Arc::new(model);
                    *lock(&self.entries[i].place) = Place::new(Some(Arc::clone(&model)));
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
        let taken = self
            .loaded()
            .iter()
            .map(|model| model.engine.budget().used())
            .sum();
        let engine = (source.open)(taken)?;
        let (template, _) = source
            .template
            .template(&engine.templates())
            .map_err(Error::from)?;
        let format = ChatFormat::new(engine.tokenizer(), template);
        let batcher = Batcher::new(&engine, &self.batcher)?;
        let n_ctx = batcher.n_ctx();
        let on_panic = Arc::clone(&self.on_panic);
        let started = Worker::start(batcher, Arc::clone(&self.step_lock), move || on_panic());
        let (worker, thread) = started.map_err(ServeError::Start)?;
        let (name, n_jobs) = (source.names[0].clone(), self.batcher.n_jobs);
        let (defaults, thread) = (Arc::clone(&self.defaults), Mutex::new(Some(thread)));
        Ok(Model {
            name,
            engine,
            format,
            worker,
            n_ctx,
            n_jobs,
            defaults,
            talk_window: source.talk_window,
            thread,
        })
    }

    /// Those that are in memory.
    pub(crate) fn loaded(&self) -> Vec<Arc<Model>> {
        self.entries
            .iter()
            .filter_map(|entry| lock(&entry.place).model.clone())
            .collect()
    }

    /// The same, and how long each of them stays if nobody uses it.
    pub(crate) fn times_left(&self, idle: Option<Duration>) -> Vec<(Arc<Model>, Option<Duration>)> {
        let stay = |entry: &Entry| {
            let place = lock(&entry.place);
            let left = place.time_left(idle);
            Some((place.model.clone()?, left))
        };
        self.entries.iter().filter_map(stay).collect()
    }

    /// Whether one can compute no more.
    pub(crate) fn is_broken(&self) -> bool {
        self.loaded().iter().any(|model| model.worker.has_ended())
    }

    /// Whether there are some that nobody has used for so long.
    pub(crate) fn has_idle(&self, idle: Option<Duration>) -> bool {
        self.entries
            .iter()
            .any(|entry| lock(&entry.place).is_due(idle))
    }

    /// Takes those out of memory that nobody has used for so long, or for as long as their last
    /// user wanted them to stay. Nobody loads meanwhile, since they are there until their
    /// threads have ended.
    pub(crate) async fn unload_idle(self: &Arc<Self>, idle: Option<Duration>) {
        let guard = Arc::clone(&self.loading).lock_owned().await;
        let models = Arc::clone(self);
        let work = move || {
            let _guard = guard;
            for entry in &models.entries {
                models.unload(entry, |place| place.is_due(idle));
            }
        };
        // A thread that came to grief has told of it by itself.
        let _ = tokio::task::spawn_blocking(work).await;
    }

    /// Whether it can be mended by giving up models that nobody uses: one that would not fit
    /// without them either leaves them alone.
    fn may_help(&self, error: &Error) -> bool {
        let unused = |entry: &Entry| {
            let place = lock(&entry.place);
            place
                .model
                .as_ref()
                .filter(|_| !place.is_used())
                .map_or(0, |model| model.engine.budget().used())
        };
        let given_back = UNCOUNTED + self.entries.iter().map(unused).sum::<u64>();
        error
            .missing_bytes()
            .is_some_and(|missing| missing <= given_back)
    }

    /// Takes the one out of memory that nobody has used for longest; whether there was one.
    fn unload_oldest(&self) -> bool {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| lock(&entry.place).last_use);
        entries
            .into_iter()
            .any(|entry| self.unload(entry, |_| true))
    }

    /// Takes a model out of memory if nobody uses it; whether it was there.
    fn unload(&self, entry: &Entry, may: impl Fn(&mut Place) -> bool) -> bool {
        let model = {
            let (mut past, mut place) = (lock(&self.past), lock(&entry.place));
            let may_go = !place.is_used() && may(&mut place);
            let Some(model) = (if may_go { place.model.take() } else { None }) else {
                return false;
            };
            *past = past.and(model.worker.status().counts);
            model
        };
        // If its thread came to grief, it has told of it by itself.
        model.end();
        drop(model);
        give_back_memory();
        true
    }

    /// How it is going with all of them together.
    pub(crate) fn status(&self) -> WorkerStatus {
        // What is just being moved from the one to the other is counted once.
        let past = lock(&self.past);
        let now = self
            .loaded()
            .iter()
            .map(|model| model.worker.status())
            .fold(WorkerStatus::default(), WorkerStatus::and);
        WorkerStatus {
            counts: now.counts.and(*past),
            ..now
        }
    }

    /// Lets all threads end when all their jobs have, those included that are just being taken out
    /// of memory; whether they ended well. For a thread outside of the runtime.
    pub(crate) fn close(&self) -> bool {
        let _guard = self.loading.blocking_lock();
        let ended: Vec<bool> = self.loaded().iter().map(|model| model.end()).collect();
        ended.into_iter().all(|is_well| is_well)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
