//! Generations: a text in a session, or the response to a request, event by event.
//!
//! Knows no JSON of requests but the prompt. The one idea: a generation owns the session while it
//! runs and gives it back at its end, so that no lock is held between two events.

mod text;

use std::{
    collections::VecDeque,
    ffi::{CString, c_char},
    mem::MaybeUninit,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use atta_server::{Canceller, Exchange, Progress};

use crate::{
    event::{AttaEvent, AttaEventKind},
    failure::{self, AttaStatus, CallResult, Failure, run},
    model::AttaModel,
    pointer::{c_text, free, handle, make, path, values},
    session::AttaSession,
};
pub(crate) use text::{TextGeneration, TextPrompt};

/// A generation. One thread at a time may ask for its events; any may cancel it.
#[derive(Debug)]
pub struct AttaGeneration {
    state: Mutex<GenerationState>,
    cancel: Cancel,
}

/// The generation, and the text of its last event.
#[derive(Debug)]
struct GenerationState {
    source: Source,
    /// Warnings that are to be told.
    notes: VecDeque<String>,
    text: CString,
}

#[derive(Debug)]
enum Source {
    Session(Box<TextGeneration>),
    Response(Box<Exchange>),
    Over,
}

/// Cancels a generation from any thread.
#[derive(Clone, Debug)]
enum Cancel {
    Flag(Arc<AtomicBool>),
    Request(Canceller),
}

/// An event, before C sees it.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) kind: AttaEventKind,
    pub(crate) token: u32,
    pub(crate) text: String,
    pub(crate) n_done: usize,
    pub(crate) n_total: usize,
}

impl Happened {
    pub(crate) fn text(kind: AttaEventKind, text: String) -> Self {
        Self {
            kind,
            token: 0,
            text,
            n_done: 0,
            n_total: 0,
        }
    }
}

impl GenerationState {
    fn next(&mut self, time: Duration) -> CallResult<Happened> {
        if let Some(note) = self.notes.pop_front() {
            return Ok(Happened::text(AttaEventKind::Note, note));
        }
        let happened = match &mut self.source {
            Source::Session(generation) => generation.next(time),
            Source::Response(exchange) => response_event(exchange, time),
            Source::Over => Err(Failure::new(AttaStatus::End, "the generation has ended")),
        };
        if let Source::Response(exchange) = &mut self.source {
            self.notes.extend(exchange.take_warnings());
        }
        let is_last = match &happened {
            Ok(happened) => happened.kind == AttaEventKind::Done,
            Err(failure) => !matches!(failure.status, AttaStatus::Pending | AttaStatus::Suspended),
        };
        if is_last {
            self.source = Source::Over;
        }
        happened
    }
}

impl GenerationState {
    /// The text in a session that is being generated.
    fn text_generation(&mut self) -> CallResult<&mut TextGeneration> {
        match &mut self.source {
            Source::Session(generation) => Ok(generation),
            Source::Response(_) => Err(Failure::invalid("a request has no session")),
            Source::Over => Err(Failure::new(AttaStatus::End, "the generation has ended")),
        }
    }
}

/// The next event of a response.
fn response_event(exchange: &mut Exchange, time: Duration) -> CallResult<Happened> {
    let piece = match exchange.next_within(time) {
        Progress::End => return Ok(Happened::text(AttaEventKind::Done, String::new())),
        Progress::Waiting => return Err(Failure::new(AttaStatus::Pending, "no event yet")),
        Progress::Piece(piece) => String::from_utf8_lossy(&piece).into_owned(),
    };
    match exchange.status() {
        200..300 => Ok(Happened::text(AttaEventKind::Json, piece)),
        _ => Err(Failure::new(AttaStatus::Request, error_message(&piece))),
    }
}

/// The message in the JSON of an error.
fn error_message(json: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let error = &value["error"];
    let message = error["message"].as_str().or(error.as_str());
    message.unwrap_or(json).to_owned()
}

impl AttaGeneration {
    fn new(source: Source, cancel: Cancel) -> Self {
        let state = GenerationState {
            source,
            notes: VecDeque::new(),
            text: CString::default(),
        };
        Self {
            state: Mutex::new(state),
            cancel,
        }
    }

    fn lock(&self) -> CallResult<MutexGuard<'_, GenerationState>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Failure::busy("generation")),
        }
    }

    fn next(&self, time: Duration) -> CallResult<AttaEvent> {
        let mut state = self.lock()?;
        let happened = state.next(time)?;
        state.text = failure::text(&happened.text);
        Ok(AttaEvent {
            kind: happened.kind as i32,
            token: happened.token,
            text: state.text.as_ptr(),
            text_size: state.text.as_bytes().len(),
            n_done: happened.n_done as u64,
            n_total: happened.n_total as u64,
        })
    }

    fn cancel(&self) {
        match &self.cancel {
            Cancel::Flag(flag) => flag.store(true, Ordering::Relaxed),
            Cancel::Request(canceller) => canceller.cancel(),
        }
    }
}

/// Generates text in a session, which is busy until the generation has ended or is freed. `json`
/// is an object with llama.cpp's fields: "prompt" (a text, or a list of tokens; without one the
/// text in the session goes on), "max_tokens", "stop", "grammar", "json_schema", "n_probs", and
/// those of `atta_sampler_new`. No bytes are an empty object. Nothing is computed before the first
/// `atta_next`.
///
/// # Safety
/// `json` has `json_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_generate(
    session: Option<&AttaSession>,
    json: *const c_char,
    json_size: usize,
    out: Option<&mut MaybeUninit<*mut AttaGeneration>>,
) -> AttaStatus {
    make(out, || {
        let session = handle(session, "session")?;
        // SAFETY: the caller's promise.
        let json = unsafe { values(json.cast(), json_size, "json") }?;
        let generation = TextGeneration::new(&session.0, json)?;
        let flag = Cancel::Flag(generation.cancel_flag());
        Ok(AttaGeneration::new(
            Source::Session(Box::new(generation)),
            flag,
        ))
    })
}

/// Sends a request to a path of `atta serve`, such as "/v1/chat/completions", "/v1/completions",
/// "/v1/embeddings", "/apply-template" or "/tokenize", with a body of JSON; `body` NULL is a GET.
/// Requests of a model are answered beside each other, as many as its option "parallel". Nothing is
/// sent before the first `atta_next`.
///
/// # Safety
/// A NUL ends `path`, and `body` is NULL or has `body_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_request(
    model: Option<&AttaModel>,
    path: *const c_char,
    body: *const c_char,
    body_size: usize,
    out: Option<&mut MaybeUninit<*mut AttaGeneration>>,
) -> AttaStatus {
    make(out, || {
        let model = handle(model, "model")?;
        // SAFETY: the caller's promise.
        let path = unsafe { c_text(path, "path") }?;
        let has_body = !body.is_null();
        // SAFETY: the caller's promise.
        let body: &[u8] = unsafe { values(body.cast(), body_size, "body") }?;
        let exchange = model
            .0
            .direct()?
            .request(path, has_body.then(|| body.to_vec()));
        let exchange = exchange
            .map_err(|error| Failure::invalid(format!("path {path:?} is no path: {error}")))?;
        let cancel = Cancel::Request(exchange.canceller());
        Ok(AttaGeneration::new(
            Source::Response(Box::new(exchange)),
            cancel,
        ))
    })
}

/// Waits for the next event, and computes until there is one. `event_size` is the size of the
/// struct that the program was compiled with; fields beyond it are not written.
///
/// # Safety
/// `event` has `event_size` bytes that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_next(
    generation: Option<&AttaGeneration>,
    event: *mut AttaEvent,
    event_size: usize,
) -> AttaStatus {
    // SAFETY: the caller's promise.
    unsafe { next(generation, event, event_size, FOREVER) }
}

/// As `atta_next`, but ATTA_STATUS_PENDING if no event comes in this time, so that a thread can see
/// to other things. A session computes on this thread: there it returns after a step.
///
/// # Safety
/// As `atta_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_next_within(
    generation: Option<&AttaGeneration>,
    milliseconds: u32,
    event: *mut AttaEvent,
    event_size: usize,
) -> AttaStatus {
    let time = Duration::from_millis(milliseconds.into());
    // SAFETY: the caller's promise.
    unsafe { next(generation, event, event_size, time) }
}

/// Longer than any program runs.
pub(crate) const FOREVER: Duration = Duration::from_secs(1 << 30);

/// # Safety
/// `event` has `event_size` bytes that can be written.
unsafe fn next(
    generation: Option<&AttaGeneration>,
    event: *mut AttaEvent,
    event_size: usize,
    time: Duration,
) -> AttaStatus {
    run(|| {
        let generation = handle(generation, "generation")?;
        if event.is_null() {
            return Err(Failure::null("event"));
        }
        let n = event_size.min(size_of::<AttaEvent>());
        let next = generation.next(time)?;
        // SAFETY: the caller's promise; no more than the struct has is copied.
        unsafe { ptr::copy_nonoverlapping((&raw const next).cast::<u8>(), event.cast::<u8>(), n) };
        Ok(())
    })
}

/// As `atta_session_suspend`, between two events of a generation that has the session. The file has
/// the tokens that were evaluated, which may lack the last ones. ATTA_STATUS_INVALID for a request:
/// `atta_model_suspend` frees what requests share.
///
/// # Safety
/// `path` is NULL, or a NUL ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_generation_suspend(
    generation: Option<&AttaGeneration>,
    path: *const c_char,
) -> AttaStatus {
    run(|| {
        let generation = handle(generation, "generation")?;
        // SAFETY: the caller's promise.
        let file = unsafe { self::path(path) }?;
        generation.lock()?.text_generation()?.suspend(file)
    })
}

/// As `atta_session_resume`, for a generation that was suspended: the next event is the one that
/// would have come.
#[unsafe(no_mangle)]
pub extern "C" fn atta_generation_resume(generation: Option<&AttaGeneration>) -> AttaStatus {
    run(|| {
        let generation = handle(generation, "generation")?;
        generation.lock()?.text_generation()?.resume()
    })
}

/// Ends a generation early, from any thread: a call that waits for its next event returns soon,
/// and the events that follow are the last ones. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn atta_cancel(generation: Option<&AttaGeneration>) {
    if let Some(generation) = generation {
        generation.cancel();
    }
}

/// Frees a generation, and ends it if it has not ended; no other thread may use it meanwhile. NULL
/// is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn atta_generation_free(generation: Option<Box<AttaGeneration>>) {
    free(generation);
}
