//! The names of the QSF plan (`qsf.h`) over the same library: one engine, one text.
//!
//! Knows no format: GGUF and QSF files alike. The one idea: the plan's functions are short programs
//! over a session; its callback is a loop over events.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    io::Write,
    path::Path,
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use atta_engine::{GenerateOptions, Sampler, Sampling};

use crate::{
    event::AttaEventKind,
    failure::{self, CallResult, Failure, run},
    generation::{FOREVER, TextGeneration, TextPrompt},
    model::Loaded,
    options::AttaOptions,
    pointer::{c_text, free, handle, values},
    session::{self, SessionCell, check_ids, no_tokens},
};

/// The plan's budget, MB.
const RAM_BUDGET_MB: usize = 200;
/// The plan's top-k.
const TOP_K: usize = 40;
/// Seed of the random numbers.
const SEED: u64 = 42;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct QsfConfig {
    ram_budget_mb: usize,
    /// 0: as many as there are cores.
    n_threads: usize,
    /// 0: the model's.
    max_seq_len: usize,
    quality: f32,
}

/// A loaded model with one text.
#[derive(Debug)]
pub struct QsfEngine {
    loaded: Arc<Loaded>,
    cell: Arc<SessionCell>,
    /// Logits that the program looks at.
    logits: Mutex<Vec<f32>>,
    sampler: Mutex<Option<PlanSampler>>,
    stats: Mutex<Stats>,
}

/// A sampler with the options that it was made for.
#[derive(Debug)]
struct PlanSampler {
    sampling: Sampling,
    sampler: Sampler,
}

/// Speeds are those of the last text, tokens per second.
#[derive(Clone, Debug, Default)]
struct Stats {
    n_generated: usize,
    prefill_tok_s: f64,
    decode_tok_s: f64,
}

/// Gets each token of a text with the text that it completes.
pub type QsfCallback =
    Option<unsafe extern "C" fn(token: c_int, text: *const c_char, user: *mut c_void)>;

impl Default for QsfConfig {
    fn default() -> Self {
        Self {
            ram_budget_mb: RAM_BUDGET_MB,
            n_threads: 0,
            max_seq_len: 0,
            quality: 1.0,
        }
    }
}

impl QsfConfig {
    fn options(&self) -> CallResult<AttaOptions> {
        let mut options = AttaOptions::default();
        options.set_number(
            "ram_budget",
            (self.ram_budget_mb as u64).saturating_mul(1_000_000),
        )?;
        options.set_number("shrink", 1)?;
        for (name, value) in [("threads", self.n_threads), ("ctx", self.max_seq_len)] {
            if value > 0 {
                options.set_number(name, value as u64)?;
            }
        }
        if self.quality < 1.0 {
            options.set_float("quality", self.quality.into())?;
        }
        Ok(options)
    }
}

impl QsfEngine {
    fn load(path: &str, config: &QsfConfig) -> CallResult<Self> {
        let loaded = Arc::new(Loaded::open(Path::new(path), &config.options()?)?);
        Ok(Self {
            cell: session::cell(&loaded)?,
            loaded,
            logits: Mutex::default(),
            sampler: Mutex::default(),
            stats: Mutex::default(),
        })
    }

    fn generate(
        &self,
        prompt: &str,
        options: &GenerateOptions,
        each: &mut Each<'_>,
    ) -> CallResult<usize> {
        self.cell.with(|held| held.restart())?;
        let prompt = TextPrompt::Text(prompt.to_owned());
        let mut generation = TextGeneration::with_options(&self.cell, Some(prompt), options)?;
        let mut text = String::new();
        loop {
            let happened = generation.next(FOREVER)?;
            match happened.kind {
                AttaEventKind::Text => text.push_str(&happened.text),
                AttaEventKind::Token => each(happened.token, &std::mem::take(&mut text)),
                AttaEventKind::Done => {
                    if !text.is_empty() {
                        each(NO_TOKEN, &text);
                    }
                    self.note(&happened.text, happened.n_done);
                    return Ok(happened.n_done);
                }
                _ => {}
            }
        }
    }

    /// Notes how a text went.
    fn note(&self, summary: &str, n_generated: usize) {
        let summary: serde_json::Value = serde_json::from_str(summary).unwrap_or_default();
        let speed = |name: &str| summary[name].as_f64().unwrap_or_default();
        let mut stats = lock(&self.stats);
        stats.n_generated += n_generated;
        stats.prefill_tok_s = speed("prefill_tok_s");
        stats.decode_tok_s = speed("decode_tok_s");
    }

    /// Replaces the text by these tokens, and computes the logits behind them.
    fn forward(&self, ids: &[u32]) -> CallResult<*mut f32> {
        check_ids(&self.loaded, ids)?;
        if ids.is_empty() {
            return Err(no_tokens());
        }
        self.cell.with(|held| {
            held.settle()?;
            let n_kept = held.session.keep_common(ids)?;
            held.session.append(&ids[n_kept..])?;
            let mut logits = lock(&self.logits);
            *logits = session::logits(&held.session)?.to_vec();
            Ok(logits.as_mut_ptr())
        })
    }

    fn sample(&self, logits: &[f32], sampling: Sampling) -> CallResult<u32> {
        let mut slot = lock(&self.sampler);
        if !slot.as_ref().is_some_and(|one| one.sampling == sampling) {
            let sampler = Sampler::new(sampling.clone(), logits.len())
                .map_err(|error| Failure::from(atta_engine::Error::from(error)))?;
            *slot = Some(PlanSampler { sampling, sampler });
        }
        let one = slot.as_mut().expect("it was made if there was none");
        Ok(one.sampler.sample(&mut logits.to_vec(), &[]))
    }

    fn print_stats(&self) {
        let Stats {
            n_generated,
            prefill_tok_s,
            decode_tok_s,
        } = lock(&self.stats).clone();
        let weights = self.loaded.engine.weights_at();
        let used_mb = self.loaded.engine.budget().used() as f64 / 1e6;
        // Lost if standard error is closed.
        let _ = writeln!(
            std::io::stderr(),
            "weights: {weights:?}\nmemory: {used_mb:.1} MB\ntokens written: {n_generated}\n\
             last text: prompt {prefill_tok_s:.1} tok/s, text {decode_tok_s:.1} tok/s"
        );
    }
}

type Each<'a> = dyn FnMut(u32, &str) + 'a;

/// Stands for the text behind the last token, which has no token of its own.
const NO_TOKEN: u32 = u32::MAX;

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plan's sampling; temperature and top-p are the caller's.
fn sampling(temperature: f32, top_p: f32) -> Sampling {
    Sampling {
        temperature,
        top_p,
        top_k: TOP_K,
        min_p: 0.0,
        seed: SEED,
        ..Sampling::default()
    }
}

/// Runs a function whose result is a pointer; NULL after a failure.
fn pointer<T>(work: impl FnOnce() -> CallResult<*mut T>) -> *mut T {
    let mut result = ptr::null_mut();
    let _ = run(|| {
        result = work()?;
        Ok(())
    });
    result
}

/// Runs a function whose result is a count or a token; -1 after a failure.
fn count(work: impl FnOnce() -> CallResult<usize>) -> c_int {
    let mut result = -1;
    let _ = run(|| {
        let n = work()?;
        result = c_int::try_from(n).map_err(|_| Failure::invalid(format!("{n} is too many")))?;
        Ok(())
    });
    result
}

fn size(n: c_int, name: &str) -> CallResult<usize> {
    usize::try_from(n).map_err(|_| Failure::invalid(format!("{name} is {n}")))
}

fn set(config: Option<&mut QsfConfig>, set: impl FnOnce(&mut QsfConfig)) {
    if let Some(config) = config {
        set(config);
    }
}

/// The plan's defaults: 200 MB, as many threads as cores, the model's length, all of its quality.
#[unsafe(no_mangle)]
pub extern "C" fn qsf_config_default() -> *mut QsfConfig {
    pointer(|| Ok(Box::into_raw(Box::default())))
}

/// Sets the memory budget in MB.
#[unsafe(no_mangle)]
pub extern "C" fn qsf_config_set_ram_budget(config: Option<&mut QsfConfig>, megabytes: usize) {
    set(config, |config| config.ram_budget_mb = megabytes);
}

/// Sets the number of threads; 0: as many as there are cores.
#[unsafe(no_mangle)]
pub extern "C" fn qsf_config_set_threads(config: Option<&mut QsfConfig>, n_threads: c_int) {
    set(config, |config| {
        config.n_threads = usize::try_from(n_threads).unwrap_or(0)
    });
}

/// Sets the most tokens of a text; 0: the model's.
#[unsafe(no_mangle)]
pub extern "C" fn qsf_config_set_max_seq_len(config: Option<&mut QsfConfig>, n: c_int) {
    set(config, |config| {
        config.max_seq_len = usize::try_from(n).unwrap_or(0)
    });
}

/// Sets the quality, 0 to 1; below 1, for a file with measured layers, some are left out.
#[unsafe(no_mangle)]
pub extern "C" fn qsf_config_set_quality(config: Option<&mut QsfConfig>, quality: f32) {
    set(config, |config| config.quality = quality);
}

/// Frees a configuration. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn qsf_config_free(config: Option<Box<QsfConfig>>) {
    free(config);
}

/// Loads a model; `config` may be NULL. NULL after a failure, whose words `atta_last_error` has.
///
/// # Safety
/// A NUL ends `path`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qsf_load(
    path: *const c_char,
    config: Option<&QsfConfig>,
) -> *mut QsfEngine {
    pointer(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { c_text(path, "path") }?;
        let engine = QsfEngine::load(path, config.unwrap_or(&QsfConfig::default()))?;
        Ok(Box::into_raw(Box::new(engine)))
    })
}

/// Frees an engine. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn qsf_free(engine: Option<Box<QsfEngine>>) {
    free(engine);
}

/// Writes a text of at most `max_tokens` tokens behind a prompt, and returns the number of tokens,
/// or -1. `callback`, which may be NULL, gets each token with the text that it completes; text
/// behind the last token comes with token -1.
///
/// # Safety
/// A NUL ends `prompt`; `callback` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qsf_generate(
    engine: Option<&QsfEngine>,
    prompt: *const c_char,
    max_tokens: c_int,
    temperature: f32,
    top_p: f32,
    callback: QsfCallback,
    user: *mut c_void,
) -> c_int {
    count(|| {
        let engine = handle(engine, "engine")?;
        // SAFETY: the caller's promise.
        let prompt = unsafe { c_text(prompt, "prompt") }?;
        let options = GenerateOptions {
            n_predict: size(max_tokens, "max_tokens")?,
            sampling: sampling(temperature, top_p),
            ..GenerateOptions::default()
        };
        engine.generate(prompt, &options, &mut |token, text| {
            if let Some(callback) = callback {
                let text = failure::text(text);
                // SAFETY: the caller's promise; the text lives until the call returns.
                unsafe { callback(token.cast_signed(), text.as_ptr(), user) };
            }
        })
    })
}

/// The tokens of a text, for `qsf_free_tokens`; NULL after a failure.
///
/// # Safety
/// A NUL ends `text`; `n_tokens` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qsf_tokenize(
    engine: Option<&QsfEngine>,
    text: *const c_char,
    n_tokens: Option<&mut c_int>,
) -> *mut c_int {
    pointer(|| {
        let engine = handle(engine, "engine")?;
        let n_tokens = n_tokens.ok_or_else(|| Failure::null("n_tokens"))?;
        *n_tokens = 0;
        // SAFETY: the caller's promise.
        let text = unsafe { c_text(text, "text") }?;
        let ids = engine.loaded.engine.prompt_ids(text.as_bytes());
        *n_tokens = c_int::try_from(ids.len()).unwrap_or(c_int::MAX);
        // The number in front tells `qsf_free_tokens` how many there are.
        let ids = [*n_tokens]
            .into_iter()
            .chain(ids.iter().map(|id| id.cast_signed()));
        let ids: Box<[c_int]> = ids.collect();
        // SAFETY: there is one number at least.
        Ok(unsafe { Box::into_raw(ids).cast::<c_int>().add(1) })
    })
}

/// Frees what `qsf_tokenize` returned. NULL is ignored.
///
/// # Safety
/// `tokens` is such a pointer, and is freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qsf_free_tokens(tokens: *mut c_int) {
    if tokens.is_null() {
        return;
    }
    // SAFETY: `qsf_tokenize` put their number in front.
    let start = unsafe { tokens.sub(1) };
    // SAFETY: as above.
    let n = unsafe { *start } as usize + 1;
    // SAFETY: a box of this length was given away.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(start, n)) });
}

/// The text of tokens, for `qsf_free_text`; NULL after a failure.
///
/// # Safety
/// `tokens` has `n_tokens` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qsf_detokenize(
    engine: Option<&QsfEngine>,
    tokens: *const c_int,
    n_tokens: c_int,
) -> *mut c_char {
    pointer(|| {
        let engine = handle(engine, "engine")?;
        let n = size(n_tokens, "n_tokens")?;
        // SAFETY: the caller's promise; a token is a number from 0.
        let ids: &[u32] = unsafe { values(tokens.cast(), n, "tokens") }?;
        let bytes = engine.loaded.engine.tokenizer().decode(ids);
        Ok(failure::text(&String::from_utf8_lossy(&bytes)).into_raw())
    })
}

/// Frees what `qsf_detokenize` returned. NULL is ignored.
///
/// # Safety
/// `text` is such a pointer, and is freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qsf_free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// The logits behind a text of tokens, as many as the vocabulary has; NULL after a failure. What
/// the last text has in common with this one is not computed again. They are the engine's, and
/// valid until its next call.
///
/// # Safety
/// `tokens` has `n_tokens` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qsf_forward(
    engine: Option<&QsfEngine>,
    tokens: *const c_int,
    n_tokens: c_int,
) -> *mut f32 {
    pointer(|| {
        let engine = handle(engine, "engine")?;
        let n = size(n_tokens, "n_tokens")?;
        // SAFETY: the caller's promise; a token is a number from 0.
        engine.forward(unsafe { values(tokens.cast(), n, "tokens") }?)
    })
}

/// Chooses a token from logits, as many as the vocabulary has; -1 after a failure.
///
/// # Safety
/// `logits` has as many values as the vocabulary.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qsf_sample(
    engine: Option<&QsfEngine>,
    logits: *const f32,
    temperature: f32,
    top_p: f32,
) -> c_int {
    count(|| {
        let engine = handle(engine, "engine")?;
        let n_vocab = engine.loaded.engine.spec().n_vocab;
        // SAFETY: the caller's promise.
        let logits = unsafe { values(logits, n_vocab, "logits") }?;
        Ok(engine.sample(logits, sampling(temperature, top_p))? as usize)
    })
}

/// Prints memory and speed to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn qsf_print_stats(engine: Option<&QsfEngine>) {
    let _ = run(|| {
        handle(engine, "engine")?.print_stats();
        Ok(())
    });
}
