//! Sessions: one text with its KV cache, for programs that choose tokens themselves.
//!
//! Knows no request and no event. The one idea: a call works with the session in its
//! cell, and a generation takes it out and puts it back; a call that finds the cell locked or empty
//! fails as busy.

use std::{
    ffi::c_char,
    mem::MaybeUninit,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
};

use atta_engine::{Error, Session};
use atta_server::adapter_set;

use crate::{
    buffer::AttaBuffer,
    failure::{AttaStatus, CallResult, Failure, run},
    model::{AttaModel, Loaded},
    options::AttaOptions,
    pointer::{compute, free, handle, make, path, values},
};

/// A session. One thread at a time may use it; to others it is busy.
#[derive(Debug)]
pub struct AttaSession(pub(crate) Arc<SessionCell>);

/// A session, unless a generation has it.
#[derive(Debug)]
pub(crate) struct SessionCell {
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) n_ctx: usize,
    content: Mutex<Option<Held>>,
}

/// A session with the end of its text.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) session: Session,
    /// The last tokens of the text, which are not evaluated.
    pub(crate) pending: Vec<u32>,
}

impl Held {
    /// Evaluates the pending tokens.
    pub(crate) fn settle(&mut self) -> CallResult<()> {
        let pending = std::mem::take(&mut self.pending);
        match self.session.append(&pending) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.pending = pending;
                Err(error.into())
            }
        }
    }

    /// Frees the memory of the text's state. A file gets the state of all tokens.
    fn suspend(&mut self, file: Option<&Path>) -> CallResult<()> {
        if file.is_some() && !self.session.is_suspended() {
            self.settle()?;
        }
        Ok(self.session.suspend(file)?)
    }

    /// Forgets the text.
    pub(crate) fn restart(&mut self) -> CallResult<()> {
        self.truncate(0).map(drop)
    }

    fn tokens(&self) -> Vec<u32> {
        [self.session.tokens(), &self.pending].concat()
    }

    /// Removes all tokens from the `n`th on, and returns how many are left.
    fn truncate(&mut self, n: usize) -> CallResult<usize> {
        let n_evaluated = self.session.tokens().len();
        self.pending.truncate(n.saturating_sub(n_evaluated));
        let n_left = self.session.truncate(n)?;
        if n_left < n.min(n_evaluated) {
            self.pending.clear();
        }
        Ok(n_left + self.pending.len())
    }
}

impl SessionCell {
    fn new(loaded: &Arc<Loaded>, options: Option<&AttaOptions>) -> CallResult<Self> {
        let base = loaded.session.clone();
        let options = match options {
            Some(options) => options.session_of(base)?,
            None => base,
        };
        let session = loaded.engine.session(&options)?;
        let pending = Vec::new();
        Ok(Self {
            loaded: Arc::clone(loaded),
            n_ctx: session.n_ctx(),
            content: Mutex::new(Some(Held { session, pending })),
        })
    }

    fn lock(&self) -> CallResult<MutexGuard<'_, Option<Held>>> {
        match self.content.try_lock() {
            Ok(guard) => Ok(guard),
            // A step that panics removes its rows.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Failure::busy("session")),
        }
    }

    /// Works with the session.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Held) -> CallResult<T>) -> CallResult<T> {
        let mut guard = self.lock()?;
        work(guard.as_mut().ok_or_else(|| Failure::busy("session"))?)
    }

    /// Takes the session out, until it is [put back](Self::put).
    pub(crate) fn take(&self) -> CallResult<Held> {
        self.lock()?.take().ok_or_else(|| Failure::busy("session"))
    }

    pub(crate) fn put(&self, held: Held) {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        *content = Some(held);
    }
}

/// Makes a session with a KV cache of its own. Of `options`, which may be NULL, "ctx", "batch",
/// "keep" and "kv" apply; those that are not set are as for the model.
#[unsafe(no_mangle)]
pub extern "C" fn atta_session_new(
    model: Option<&AttaModel>,
    options: Option<&AttaOptions>,
    out: Option<&mut MaybeUninit<*mut AttaSession>>,
) -> AttaStatus {
    make(out, || {
        let model = handle(model, "model")?;
        Ok(AttaSession(Arc::new(SessionCell::new(&model.0, options)?)))
    })
}

/// Frees a session; a generation in it keeps what it needs. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn atta_session_free(session: Option<Box<AttaSession>>) {
    free(session);
}

/// Appends tokens to the text, and evaluates them.
///
/// # Safety
/// `tokens` has `n_tokens` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_session_append(
    session: Option<&AttaSession>,
    tokens: *const u32,
    n_tokens: usize,
) -> AttaStatus {
    run(|| {
        let session = handle(session, "session")?;
        // SAFETY: the caller's promise.
        let ids = unsafe { values(tokens, n_tokens, "tokens") }?;
        check_ids(&session.0.loaded, ids)?;
        session.0.with(|held| {
            held.settle()?;
            Ok(held.session.append(ids)?)
        })
    })
}

/// As `atta_session_append`, and gives the logits after each of the tokens: floats, a row for each
/// token with one for each of the vocabulary.
///
/// # Safety
/// `tokens` has `n_tokens` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_session_append_all(
    session: Option<&AttaSession>,
    tokens: *const u32,
    n_tokens: usize,
    out: Option<&mut MaybeUninit<*mut AttaBuffer>>,
) -> AttaStatus {
    make(out, || {
        let session = handle(session, "session")?;
        // SAFETY: the caller's promise.
        let ids = unsafe { values(tokens, n_tokens, "tokens") }?;
        check_ids(&session.0.loaded, ids)?;
        session.0.with(|held| {
            held.settle()?;
            let mut all = Vec::new();
            let each = |_: usize, logits: &[f32]| all.extend_from_slice(logits);
            held.session.append_each(ids, each)?;
            Ok(AttaBuffer::numbers(all))
        })
    })
}

/// Gives the logits after the last token: floats, one for each token of the vocabulary.
/// ATTA_STATUS_ABSENT before the first token, and behind `atta_session_truncate`.
#[unsafe(no_mangle)]
pub extern "C" fn atta_session_logits(
    session: Option<&AttaSession>,
    out: Option<&mut MaybeUninit<*mut AttaBuffer>>,
) -> AttaStatus {
    make(out, || {
        handle(session, "session")?.0.with(|held| {
            held.settle()?;
            Ok(AttaBuffer::numbers(logits(&held.session)?.to_vec()))
        })
    })
}

/// Gives the tokens of the text, those that were evicted from a full context included.
#[unsafe(no_mangle)]
pub extern "C" fn atta_session_tokens(
    session: Option<&AttaSession>,
    out: Option<&mut MaybeUninit<*mut AttaBuffer>>,
) -> AttaStatus {
    make(out, || {
        let session = handle(session, "session")?;
        session.0.with(|held| Ok(AttaBuffer::tokens(held.tokens())))
    })
}

/// Removes all tokens from the `n`th on, and gives the number of those that are left. It is less
/// than `n` if there were fewer, or if the model cannot return there: append the missing ones.
#[unsafe(no_mangle)]
pub extern "C" fn atta_session_truncate(
    session: Option<&AttaSession>,
    n: usize,
    out_n_left: Option<&mut MaybeUninit<usize>>,
) -> AttaStatus {
    compute(out_n_left, || {
        handle(session, "session")?.0.with(|held| held.truncate(n))
    })
}

/// Gives the text and its KV cache as bytes, for `atta_session_load`.
#[unsafe(no_mangle)]
pub extern "C" fn atta_session_save(
    session: Option<&AttaSession>,
    out: Option<&mut MaybeUninit<*mut AttaBuffer>>,
) -> AttaStatus {
    make(out, || {
        handle(session, "session")?.0.with(|held| {
            held.settle()?;
            let mut bytes = Vec::new();
            held.session.export(&mut bytes)?;
            Ok(AttaBuffer::bytes(bytes))
        })
    })
}

/// Replaces the text by one that `atta_session_save` gave, in a session of the same model, version,
/// processor and KV type. The bytes may come from anywhere: they are checked. There are no logits
/// before the next token.
///
/// # Safety
/// `bytes` has `n_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_session_load(
    session: Option<&AttaSession>,
    bytes: *const u8,
    n_bytes: usize,
) -> AttaStatus {
    run(|| {
        let session = handle(session, "session")?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { values(bytes, n_bytes, "bytes") }?;
        session.0.with(|held| {
            held.pending.clear();
            held.session.import(bytes)?;
            Ok(())
        })
    })
}

/// Frees the memory of the session's state until `atta_session_resume`, such as when an app goes to
/// the background; meanwhile what needs the state is ATTA_STATUS_SUSPENDED. The state is written to
/// the file `path`, which only its owner can read and which `atta_session_resume` removes; a later
/// process may give its bytes to `atta_session_load`. With NULL, the text is evaluated again; a
/// session whose context was shifted needs a file. A session that is suspended stays so.
///
/// # Safety
/// `path` is NULL, or a NUL ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_session_suspend(
    session: Option<&AttaSession>,
    path: *const c_char,
) -> AttaStatus {
    run(|| {
        let session = handle(session, "session")?;
        // SAFETY: the caller's promise.
        let file = unsafe { self::path(path) }?;
        session.0.with(|held| held.suspend(file))
    })
}

/// Restores the state of a suspended session: the text goes on with the same bits. After a failure,
/// such as of memory, it is suspended as before. A session that is not suspended stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn atta_session_resume(session: Option<&AttaSession>) -> AttaStatus {
    run(|| {
        let session = handle(session, "session")?;
        session.0.with(|held| Ok(held.session.resume()?))
    })
}

/// Sets the LoRA adapters of a session, among those that the model was opened with: JSON, a list of
/// objects with "name" or "id" and maybe "scale", in order, as the field "lora" of requests. At
/// first they are those with a scale. With others than before the session becomes empty.
///
/// # Safety
/// `json` has `json_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_session_set_lora(
    session: Option<&AttaSession>,
    json: *const c_char,
    json_size: usize,
) -> AttaStatus {
    run(|| {
        let session = handle(session, "session")?;
        // SAFETY: the caller's promise.
        let json = unsafe { values(json.cast(), json_size, "json") }?;
        let adapters = adapter_set(&session.0.loaded.engine, json)
            .map_err(|message| Failure::new(AttaStatus::Request, message))?;
        session.0.with(|held| {
            if held.session.adapters() != adapters {
                held.pending.clear();
            }
            Ok(held.session.set_adapters(adapters)?)
        })
    })
}

/// Refuses tokens that the model does not have.
pub(crate) fn check_ids(loaded: &Loaded, ids: &[u32]) -> CallResult<()> {
    let n_vocab = loaded.engine.spec().n_vocab;
    match ids.iter().find(|&&id| id as usize >= n_vocab) {
        Some(id) => Err(Failure::invalid(format!(
            "token {id}, of a model that has {n_vocab}"
        ))),
        None => Ok(()),
    }
}

/// The logits after the last token, `[n_vocab]`.
pub(crate) fn logits(session: &Session) -> CallResult<&[f32]> {
    session.logits().ok_or_else(|| {
        let message = "there are no logits before a token is appended";
        Failure::new(AttaStatus::Absent, message)
    })
}

/// A session of its own for callers that hold it alone.
pub(crate) fn cell(loaded: &Arc<Loaded>) -> CallResult<Arc<SessionCell>> {
    Ok(Arc::new(SessionCell::new(loaded, None)?))
}

/// The error of a prompt of no tokens.
pub(crate) fn no_tokens() -> Failure {
    Error::EmptyPrompt.into()
}
