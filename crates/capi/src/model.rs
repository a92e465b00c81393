//! Models: loaded once, shared by sessions and requests, freed when the last of them is.
//!
//! Knows no generation. The one idea: what answers requests (the batcher with its thread and KV
//! cache) is made at the first request, so that a program that only holds sessions does not pay
//! for it.

use std::{
    ffi::c_char,
    mem::MaybeUninit,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use atta_engine::{
    BatcherOptions, Budget, Engine, Heat, LoadOptions, Metadata, ModelFiles,
    ModelSource as FileSource, SessionOptions, Value,
    chat::TemplateChoice,
    give_back_memory,
    tokenizer::{Special, Tokenizer},
};
use atta_server::{Defaults, Direct, Listen, Log, ModelSource, ServeError, ServerOptions};
use serde_json::json;

use crate::{
    buffer::AttaBuffer,
    failure::{AttaStatus, CallResult, Failure, run},
    options::AttaOptions,
    pointer::{c_text, compute, free, handle, make, values},
};

/// A loaded model. Any number of threads may use it at the same time.
#[derive(Debug)]
pub struct AttaModel(pub(crate) Arc<Loaded>);

/// A model with what its sessions and requests are like.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    /// The session that memory is kept for.
    pub(crate) session: SessionOptions,
    n_parallel: usize,
    template: TemplateChoice,
    name: String,
    /// Made at the first request.
    direct: Mutex<Option<Arc<Direct>>>,
}

/// How hot the machine is. iOS has these numbers in `ProcessInfo.thermalState`; of Android's
/// `PowerManager.getCurrentThermalStatus`, 0 and 1, 2, 3, and from 4 on are meant.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttaHeat {
    /// All threads compute.
    Nominal = 0,
    /// Half of the threads.
    Elevated = 1,
    /// A quarter of the threads, which rest after each step for as long as it took.
    Critical = 2,
    /// Nothing is generated until the level falls: `atta_next` waits, and `atta_next_within` is
    /// ATTA_STATUS_PENDING. Steps that a program takes by itself are as at the level before.
    Emergency = 3,
}

/// The levels by their numbers.
const HEATS: [Heat; 4] = [
    Heat::Nominal,
    Heat::Elevated,
    Heat::Critical,
    Heat::Emergency,
];

/// Special tokens are parsed, or written.
const FLAG_SPECIAL: u32 = 1;
/// Begin-of-sequence is put in front.
const FLAG_BOS: u32 = 2;
/// The text goes on behind another one.
const FLAG_GOES_ON: u32 = 2;
/// The longest pause of a text that is written while prompts are read.
const MAX_GAP: Duration = Duration::from_millis(100);
/// Requests that may wait. A program has its own limits.
const MAX_QUEUE: usize = 1 << 16;
/// Bytes of a request.
const MAX_BODY: usize = 256 << 20;

impl Loaded {
    pub(crate) fn open(path: &Path, options: &AttaOptions) -> CallResult<Self> {
        let engine = Engine::open(path, &options.load_options())?;
        Ok(Self::new(engine, path, options))
    }

    /// Opens a model from other sources than files, which are all its shards in order; `place` may
    /// choose another backend.
    fn from_sources(
        sources: Vec<FileSource>,
        options: &AttaOptions,
        place: impl FnOnce(&ModelFiles, LoadOptions) -> Result<LoadOptions, String>,
    ) -> CallResult<Self> {
        let load = options.load_options();
        let first = sources.first().map(|source| source.name.clone());
        let first = first.unwrap_or_default();
        let budget = load
            .ram_budget
            .map_or_else(Budget::unlimited, Budget::limited);
        let files = ModelFiles::from_sources(sources, &budget).map_err(atta_engine::Error::from)?;
        let load = place(&files, load).map_err(|reason| Failure::new(AttaStatus::Model, reason))?;
        let engine = Engine::from_files(&first, files, &load)?;
        Ok(Self::new(engine, Path::new(&first), options))
    }

    fn new(engine: Engine, path: &Path, options: &AttaOptions) -> Self {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy());
        let name = options.name().map(str::to_owned);
        Self {
            engine,
            session: options.load_options().session,
            n_parallel: options.n_parallel(),
            template: options.template(),
            name: name
                .or(stem.map(|stem| stem.into_owned()))
                .unwrap_or_default(),
            direct: Mutex::default(),
        }
    }

    /// What answers requests.
    pub(crate) fn direct(&self) -> CallResult<Arc<Direct>> {
        let mut slot = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(direct) = &*slot {
            return Ok(Arc::clone(direct));
        }
        let engine = self.engine.clone();
        let source = ModelSource {
            names: vec![self.name.clone()],
            template: self.template.clone(),
            talk_window: None,
            open: Box::new(move |_| Ok(engine.clone())),
        };
        let direct = Direct::new(vec![source], self.server_options()).map_err(refused)?;
        Ok(Arc::clone(slot.insert(Arc::new(direct))))
    }

    /// Frees the KV cache and the buffers of requests, which the next one makes again.
    fn suspend(&self) -> CallResult<()> {
        let mut slot = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(direct) = slot.take() else {
            return Ok(());
        };
        match Arc::try_unwrap(direct) {
            Ok(direct) => drop(direct),
            Err(direct) => {
                *slot = Some(direct);
                let message = "a request is not over: its generation must end or be freed first";
                return Err(Failure::new(AttaStatus::Busy, message));
            }
        }
        give_back_memory();
        Ok(())
    }

    /// One text has the session that memory is kept for; several share a KV pool of as many
    /// contexts, with as many cached prefixes.
    fn batcher(&self) -> BatcherOptions {
        let n_jobs = self.n_parallel;
        let mut session = self.session.clone();
        if n_jobs > 1 {
            session.n_forks = n_jobs.saturating_mul(2) - 1;
            session.n_contexts = Some(n_jobs);
        }
        BatcherOptions {
            session,
            n_jobs,
            max_gap: MAX_GAP,
            cache: None,
        }
    }

    fn server_options(&self) -> ServerOptions {
        ServerOptions {
            // It is bound by no one.
            listen: Listen::Tcp(([127, 0, 0, 1], 0).into()),
            tls: None,
            api_keys: Vec::new(),
            insecure: false,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            batcher: self.batcher(),
            defaults: Defaults::default(),
            pooling: None,
            max_queue: MAX_QUEUE,
            max_body: MAX_BODY,
            max_connections: 0,
            read_timeout: Duration::MAX,
            max_time: None,
            idle_unload: None,
            grace: Duration::ZERO,
            thermal: None,
            cluster: None,
            log: Log::Off,
        }
    }

    fn number(&self, name: &str) -> CallResult<u64> {
        let spec = self.engine.spec();
        let tokenizer = self.engine.tokenizer();
        let count = |n: usize| Some(n as u64);
        let found = match name {
            "n_ctx_train" => count(spec.n_ctx_train),
            "n_vocab" => count(spec.n_vocab),
            "n_layers" => count(spec.layers.len()),
            "d_model" => count(spec.d_model),
            "d_vector" => count(self.engine.d_vector()),
            "ram_used" => Some(self.engine.budget().used()),
            "heat" => Some(self.engine.heat() as u64),
            "is_encoder" => Some(spec.is_encoder().into()),
            "is_reranker" => Some(self.engine.is_reranker().into()),
            _ => return role(tokenizer, name),
        };
        found.ok_or_else(|| absent(name))
    }

    fn text(&self, name: &str) -> CallResult<String> {
        let metadata = self.engine.model().weights().files().directory().metadata();
        match name {
            "name" => Ok(self.name.clone()),
            "isa" => Ok(self.engine.kernels().isa().to_owned()),
            "weights" => Ok(format!("{:?}", self.engine.weights_at()).to_lowercase()),
            "metadata" => Ok(as_json(metadata)),
            "chat_template" => {
                let own = self.engine.chat_template().map(str::to_owned);
                own.ok_or_else(|| absent(name))
            }
            key => metadata.get(key).map(shown).ok_or_else(|| absent(key)),
        }
    }
}

/// The number of a token with a role, and the switches of the vocabulary.
fn role(tokenizer: &Tokenizer, name: &str) -> CallResult<u64> {
    let id = match name {
        "token_bos" => tokenizer.bos(),
        "token_eos" => tokenizer.eos(),
        "token_eot" => tokenizer.eot(),
        "token_unk" => tokenizer.unknown(),
        "token_pad" => tokenizer.padding(),
        "token_nl" => tokenizer.encode_after("\n", Special::Plain).last().copied(),
        "add_bos" => Some(tokenizer.add_bos().into()),
        "add_eos" => Some(tokenizer.add_eos().into()),
        _ => return Err(Failure::invalid(format!("a model has no number {name:?}"))),
    };
    id.map(u64::from).ok_or_else(|| absent(name))
}

fn absent(name: &str) -> Failure {
    Failure::new(AttaStatus::Absent, format!("the model has no {name}"))
}

fn refused(error: ServeError) -> Failure {
    match error {
        ServeError::Engine(error) => error.into(),
        error => Failure::new(AttaStatus::Failed, error.to_string()),
    }
}

/// A value as text; of an array only its length.
fn shown(value: Value<'_>) -> String {
    match value {
        Value::Str(text) => text.to_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        value => scalar(value).unwrap_or_default().to_string(),
    }
}

fn scalar(value: Value<'_>) -> Option<serde_json::Value> {
    Some(match value {
        Value::U8(n) => json!(n),
        Value::I8(n) => json!(n),
        Value::U16(n) => json!(n),
        Value::I16(n) => json!(n),
        Value::U32(n) => json!(n),
        Value::I32(n) => json!(n),
        Value::U64(n) => json!(n),
        Value::I64(n) => json!(n),
        Value::F32(n) => json!(n),
        Value::F64(n) => json!(n),
        Value::Bool(is) => json!(is),
        Value::Str(text) => json!(text),
        _ => return None,
    })
}

/// The metadata of the file without its arrays.
fn as_json(metadata: &Metadata) -> String {
    let pairs = metadata.iter();
    let object: serde_json::Map<String, serde_json::Value> = pairs
        .filter_map(|(key, value)| Some((key.to_owned(), scalar(value)?)))
        .collect();
    serde_json::Value::Object(object).to_string()
}

fn detokenize(tokenizer: &Tokenizer, ids: &[u32], flags: u32) -> Vec<u8> {
    let bytes = |(i, &id): (usize, &u32)| match tokenizer.kind(id).is_hidden() {
        true if flags & FLAG_SPECIAL != 0 => tokenizer.token_bytes(id).into_owned(),
        _ if i == 0 && flags & FLAG_GOES_ON == 0 => tokenizer.decode(&[id]),
        _ => tokenizer.decode_after(&[id]),
    };
    ids.iter().enumerate().flat_map(bytes).collect()
}

/// Opens a GGUF or QSF file, or a split model by any of its files. `options` may be NULL.
///
/// # Safety
/// A NUL ends `path`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_model_open(
    path: *const c_char,
    options: Option<&AttaOptions>,
    out: Option<&mut MaybeUninit<*mut AttaModel>>,
) -> AttaStatus {
    make(out, || {
        // SAFETY: the caller's promise.
        let path = unsafe { c_text(path, "path") }?;
        let defaults = AttaOptions::default();
        let loaded = Loaded::open(Path::new(path), options.unwrap_or(&defaults))?;
        Ok(AttaModel(Arc::new(loaded)))
    })
}

/// As [`atta_model_open`], for a library in Rust with these in it, of sources that it has, on a
/// backend that `place` chooses; an error in words is one of the arguments or of the model.
#[doc(hidden)]
pub fn open_sources(
    sources: impl FnOnce() -> Result<Vec<FileSource>, String>,
    place: impl FnOnce(&ModelFiles, LoadOptions) -> Result<LoadOptions, String>,
    options: Option<&AttaOptions>,
    out: Option<&mut MaybeUninit<*mut AttaModel>>,
) -> AttaStatus {
    make(out, || {
        let sources = sources().map_err(Failure::invalid)?;
        let defaults = AttaOptions::default();
        let loaded = Loaded::from_sources(sources, options.unwrap_or(&defaults), place)?;
        Ok(AttaModel(Arc::new(loaded)))
    })
}

/// Frees a model. Its sessions and generations keep what they need. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn atta_model_free(model: Option<Box<AttaModel>>) {
    free(model);
}

/// Frees the KV cache that the requests of a model share, and their buffers, such as when an app
/// goes to the background; the next request makes them again and reads its prompt anew.
/// ATTA_STATUS_BUSY while the generation of a request has neither ended nor is freed. Sessions are
/// suspended by `atta_session_suspend`.
#[unsafe(no_mangle)]
pub extern "C" fn atta_model_suspend(model: Option<&AttaModel>) -> AttaStatus {
    run(|| handle(model, "model")?.0.suspend())
}

/// Says how hot the machine is, an `atta_heat`, from any thread: hotter machines compute with fewer
/// threads and pause. No text changes by it. It is 0 at first.
#[unsafe(no_mangle)]
pub extern "C" fn atta_model_set_heat(model: Option<&AttaModel>, heat: i32) -> AttaStatus {
    run(|| {
        let model = handle(model, "model")?;
        let named = usize::try_from(heat).ok().and_then(|i| HEATS.get(i));
        let named =
            named.ok_or_else(|| Failure::invalid(format!("heat is {heat}, expected 0 to 3")))?;
        model.0.engine.set_heat(*named);
        Ok(())
    })
}

/// A number of a model: "n_ctx_train", "n_vocab", "n_layers", "d_model", "d_vector", "ram_used"
/// (bytes), "heat", "token_bos", "token_eos", "token_eot", "token_unk", "token_pad", "token_nl"; 0
/// or 1 are "add_bos", "add_eos", "is_encoder" and "is_reranker". ATTA_STATUS_ABSENT without such a
/// token.
///
/// # Safety
/// A NUL ends `name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_model_number(
    model: Option<&AttaModel>,
    name: *const c_char,
    out: Option<&mut MaybeUninit<u64>>,
) -> AttaStatus {
    compute(out, || {
        let model = handle(model, "model")?;
        // SAFETY: the caller's promise.
        model.0.number(unsafe { c_text(name, "name") }?)
    })
}

/// A text of a model: "name", "isa", "weights", "chat_template", "metadata" (all of the file's
/// without arrays, as JSON), or the value of a key of the metadata.
///
/// # Safety
/// A NUL ends `name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_model_text(
    model: Option<&AttaModel>,
    name: *const c_char,
    out: Option<&mut MaybeUninit<*mut AttaBuffer>>,
) -> AttaStatus {
    make(out, || {
        let model = handle(model, "model")?;
        // SAFETY: the caller's promise.
        let text = model.0.text(unsafe { c_text(name, "name") }?)?;
        Ok(AttaBuffer::text(text))
    })
}

/// Splits a text of any bytes into tokens. Of `flags`, 1 parses the texts of special tokens, and 2
/// puts begin-of-sequence in front if the model wants it.
///
/// # Safety
/// `text` has `text_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_tokenize(
    model: Option<&AttaModel>,
    text: *const c_char,
    text_size: usize,
    flags: u32,
    out: Option<&mut MaybeUninit<*mut AttaBuffer>>,
) -> AttaStatus {
    make(out, || {
        let model = handle(model, "model")?;
        // SAFETY: the caller's promise.
        let text: &[u8] = unsafe { values(text.cast(), text_size, "text") }?;
        let tokenizer = model.0.engine.tokenizer();
        let special = match flags {
            0 | FLAG_BOS => Special::Plain,
            FLAG_SPECIAL | 3 => Special::Parse,
            _ => return Err(Failure::invalid(format!("flags cannot be {flags}"))),
        };
        let bos = tokenizer
            .bos()
            .filter(|_| flags & FLAG_BOS != 0 && tokenizer.add_bos());
        let ids = bos.into_iter().chain(tokenizer.encode(text, special));
        Ok(AttaBuffer::tokens(ids.collect()))
    })
}

/// The text of tokens, in bytes that may end inside a character. Of `flags`, 1 writes special
/// tokens, too, and 2 keeps the space in front that belongs to a text that goes on.
///
/// # Safety
/// `tokens` has `n_tokens` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_detokenize(
    model: Option<&AttaModel>,
    tokens: *const u32,
    n_tokens: usize,
    flags: u32,
    out: Option<&mut MaybeUninit<*mut AttaBuffer>>,
) -> AttaStatus {
    make(out, || {
        let model = handle(model, "model")?;
        // SAFETY: the caller's promise.
        let ids = unsafe { values(tokens, n_tokens, "tokens") }?;
        if flags > 3 {
            return Err(Failure::invalid(format!("flags cannot be {flags}")));
        }
        Ok(AttaBuffer::text(detokenize(
            model.0.engine.tokenizer(),
            ids,
            flags,
        )))
    })
}
