//! Drafts from a head that reads hidden states of the model: EAGLE-3, or a layer of multi-token
//! prediction.
//!
//! The head is a small model of its own, within the budget of the model that it guesses for and
//! with its threads. One text at a time has it, from its first hidden states to its end; others
//! have no drafts.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use atta_model::{
    DraftHeadFile, ExecutorBytes, ExecutorSize, Footprint, Model, Role, Share,
    spec::{Join, ModelSpec, Tap},
};
use atta_store::{InMemory, ModelFiles, Reservation, ResidencyPolicy, Streamed, Weights};

use super::{
    Draft, DraftSource, Drafter,
    draft_model::check_tokens,
    head_state::{HeadState, MAX_STATES, N_BATCH},
    hidden::{HiddenSink, TappedRows},
};
use crate::{
    Engine, Error, LoadOptions, SessionOptions, TensorInfo, WeightsAt, engine::default_footprint,
    session, tokenizer::Tokenizer,
};

/// Drafts from the head of a model. An engine loads its head once, for all its texts.
#[derive(Clone, Debug)]
pub struct DraftHead {
    file: HeadFile,
    options: SessionOptions,
}

/// The file that has a draft head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadFile {
    /// One of its own: EAGLE-3.
    Apart(PathBuf),
    /// That of the model: a layer of multi-token prediction.
    Model,
}

/// The loaded head of an engine.
pub(crate) struct LoadedHead {
    file: HeadFile,
    /// The hidden states of the target that it reads.
    taps: Vec<Tap>,
    guessed: Option<Vec<u32>>,
    followed: Mutex<Followed>,
    n_texts: AtomicU64,
    _memory: Reservation,
}

/// The head, and the text that has it.
struct Followed {
    state: HeadState,
    owner: Option<u64>,
    /// The error that ended the drafts of that text.
    failure: Option<Error>,
}

/// A draft head that is read, and not loaded.
struct OpenHead {
    files: ModelFiles,
    head: DraftHeadFile,
}

impl OpenHead {
    /// Compares its vocabulary with the target's.
    fn check_tokens(&self, path: &Path, target: &Engine) -> Result<(), Error> {
        let tokenizer = Tokenizer::from_metadata(self.files.directory().metadata());
        let tokenizer = tokenizer.map_err(|source| Error::Tokenizer {
            path: path.to_owned(),
            source,
        })?;
        check_tokens(&tokenizer, target.tokenizer())
    }

    fn join(&self) -> &Join {
        let join = self.head.spec.join.as_ref();
        join.expect("a draft head reads hidden states")
    }

    /// Numbers of the target's hidden states of a token.
    fn d_states(&self) -> usize {
        let join = self.join();
        join.taps.len() * join.d_target
    }

    fn size(n_ctx: usize) -> ExecutorSize {
        ExecutorSize {
            n_ctx,
            n_batch: N_BATCH.min(n_ctx),
            ..ExecutorSize::default()
        }
    }

    /// Bytes of the hidden states that wait, and of the results of a row.
    fn states_bytes(&self) -> u64 {
        let spec = &self.head.spec;
        4 * (MAX_STATES * self.d_states() + spec.d_model + spec.n_logits()) as u64
    }

    /// Bytes of all that it needs, with the hidden states of a batch of the target; of weights,
    /// unless they are known to be mapped.
    fn bytes(
        &self,
        options: &SessionOptions,
        load: &LoadOptions,
    ) -> Result<u64, atta_model::Error> {
        let spec = &self.head.spec;
        let session = session::resolve(spec, options);
        let footprint = default_footprint(load.threads.count());
        let ExecutorBytes { state, activations } =
            footprint.executor_bytes(spec, &Self::size(session.n_ctx));
        let weights = match load.weights {
            Some(WeightsAt::Mapped) => 0,
            _ => self.weight_bytes()?,
        };
        let tapped = 4 * (session.n_batch * self.d_states()) as u64;
        Ok(weights + state + activations + self.states_bytes() + tapped)
    }

    /// Bytes of its weights and of the metadata of its file.
    fn weight_bytes(&self) -> Result<u64, atta_model::Error> {
        let directory = self.files.directory();
        let all = n_bytes(directory.tensors().iter());
        let own = Share::whole(&self.head.spec).tensors(&self.head.spec, directory)?;
        let header = self.files.file_bytes().saturating_sub(all);
        Ok(header + n_bytes(own.into_iter()))
    }
}

fn n_bytes<'a>(tensors: impl Iterator<Item = &'a TensorInfo>) -> u64 {
    tensors.map(|tensor| tensor.n_bytes).sum()
}

impl DraftHead {
    /// Drafts from the head in a file. `options` should be those of the sessions that write the
    /// text.
    pub fn new(file: HeadFile, options: &SessionOptions) -> Self {
        Self {
            file,
            options: options.clone(),
        }
    }

    /// Bytes to keep free for the head of the model at `path`, which is loaded with these options.
    ///
    /// # Errors
    /// A file without a head.
    pub fn planned_bytes(&self, path: &Path, load: &LoadOptions) -> Result<u64, Error> {
        let path = match &self.file {
            HeadFile::Apart(path) => path,
            HeadFile::Model => path,
        };
        let bytes = self.open(path)?.bytes(&self.options, load);
        bytes.map_err(|source| at(path, source))
    }

    /// Loads the head, if the engine has not.
    ///
    /// # Errors
    /// A file without a head, [`Error::DraftVocabulary`] or [`Error::Model`] of the head of another
    /// model, an exceeded memory budget.
    pub fn check(&self, target: &Engine) -> Result<(), Error> {
        self.loaded(target).map(drop)
    }

    fn loaded(&self, target: &Engine) -> Result<Arc<LoadedHead>, Error> {
        let mut slot = lock(target.draft_head());
        if let Some(head) = slot.as_ref().filter(|head| head.file == self.file) {
            return Ok(Arc::clone(head));
        }
        *slot = None;
        if self.file == HeadFile::Model && target.spec().n_nextn == 0 {
            return Err(at(target.path(), atta_model::Error::NoDraftHead));
        }
        let path = match &self.file {
            HeadFile::Apart(path) => path,
            HeadFile::Model => target.path(),
        };
        let open = self.open(path)?;
        if self.file != HeadFile::Model {
            open.check_tokens(path, target)?;
        }
        let head = self.load(open, target).map_err(|error| match error {
            Error::Step(source) => at(path, source),
            error => error,
        })?;
        Ok(Arc::clone(slot.insert(Arc::new(head))))
    }

    fn open(&self, path: &Path) -> Result<OpenHead, Error> {
        let files = ModelFiles::open(path)?;
        let head = match self.file {
            HeadFile::Apart(_) => DraftHeadFile::read(&files),
            HeadFile::Model => DraftHeadFile::of_model(&files),
        };
        let head = head.map_err(|source| at(path, source))?;
        Ok(OpenHead { files, head })
    }

    fn load(&self, open: OpenHead, target: &Engine) -> Result<LoadedHead, Error> {
        let spec = open.head.spec.clone();
        open.head.check(target.spec())?;
        let size = OpenHead::size(session::resolve(target.spec(), &self.options).n_ctx);
        let d_states = open.d_states();
        let join = open.join().clone();
        let budget = target.budget();
        let memory = budget.reserve("draft head", open.states_bytes())?;
        let model = bind(open.files, spec, target)?;
        let executor = target.open_beside(model, &size)?;
        let followed = Followed {
            state: HeadState::new(executor, join.own_tap(1), d_states)?,
            owner: None,
            failure: None,
        };
        Ok(LoadedHead {
            file: self.file.clone(),
            taps: join.taps,
            guessed: open.head.guessed,
            followed: Mutex::new(followed),
            n_texts: AtomicU64::new(0),
            _memory: memory,
        })
    }
}

/// Binds a head: mapped where the target is, else in memory.
fn bind(files: ModelFiles, spec: ModelSpec, target: &Engine) -> Result<Model, Error> {
    let budget = target.budget();
    let model = match target.weights_at() {
        WeightsAt::Mapped => Model::with_source(spec, files, budget, |files, plan| {
            Ok::<_, Error>(Box::new(InMemory::new(files, plan)?) as Box<dyn Weights>)
        }),
        WeightsAt::Resident | WeightsAt::Streamed => {
            let files = files.unmapped(budget)?;
            Model::with_source(spec, files, budget, |files, plan| {
                let whole = ResidencyPolicy::whole();
                Ok::<_, Error>(Box::new(Streamed::new(files, plan, &whole, budget)?) as Box<_>)
            })
        }
    }?;
    match target.model().tensor(Role::TokenEmbd, None) {
        Some(_) => Ok(model.with_embedding_of(target.model())),
        None => Err(Error::Step(atta_model::Error::OtherTarget(
            "the model's embedding is elsewhere".to_owned(),
        ))),
    }
}

fn at(path: &Path, source: atta_model::Error) -> Error {
    Error::Model {
        path: path.to_owned(),
        source,
    }
}

impl DraftSource for DraftHead {
    fn drafter(&self, target: &Engine) -> Result<Box<dyn Drafter>, Error> {
        let head = self.loaded(target)?;
        let text = head.n_texts.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(HeadDrafter(Arc::new(HeadText {
            head,
            text,
            is_over: AtomicBool::new(false),
        }))))
    }
}

/// A text that wants the head.
struct HeadText {
    head: Arc<LoadedHead>,
    text: u64,
    is_over: AtomicBool,
}

impl HeadText {
    /// The head, if it is free or this text's, until the text is over.
    fn followed(&self) -> Option<MutexGuard<'_, Followed>> {
        let mut followed = lock(&self.head.followed);
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let is_ours = *followed.owner.get_or_insert(self.text) == self.text;
        is_ours.then_some(followed)
    }
}

impl HiddenSink for HeadText {
    fn taps(&self) -> &[Tap] {
        &self.head.taps
    }

    fn take(&self, tokens: &[u32], rows: TappedRows<'_>) {
        let Some(mut followed) = self.followed() else {
            return;
        };
        if followed.failure.is_none() {
            followed.failure = followed.state.take(tokens, &rows).err();
        }
    }
}

/// Drafts for one text.
struct HeadDrafter(Arc<HeadText>);

impl Drafter for HeadDrafter {
    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        let Some(mut followed) = self.0.followed() else {
            return Ok(());
        };
        if let Some(error) = followed.failure.take() {
            return Err(error);
        }
        let guessed = self.0.head.guessed.as_deref();
        followed.state.draft(tokens, n_max, guessed, draft)
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn hidden_sink(&self) -> Option<Arc<dyn HiddenSink>> {
        Some(Arc::clone(&self.0) as Arc<dyn HiddenSink>)
    }
}

impl Drop for HeadDrafter {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        let mut followed = lock(&self.0.head.followed);
        if followed.owner == Some(self.0.text) {
            followed.owner = None;
            followed.failure = None;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
