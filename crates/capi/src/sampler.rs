//! Samplers: choose a token from the logits of a session.

use std::{
    ffi::c_char,
    mem::MaybeUninit,
    sync::{Mutex, MutexGuard, PoisonError},
};

use atta_engine::{Breakers, GenerateOptions, Sampler, SamplingError};
use atta_server::generate_options;

use crate::{
    failure::{AttaStatus, CallResult, Failure},
    model::{AttaModel, Loaded},
    pointer::{compute, free, handle, make, values},
    session::{AttaSession, logits},
};

/// A sampler with its random numbers.
#[derive(Debug)]
pub struct AttaSampler {
    sampler: Mutex<Sampler>,
    n_vocab: usize,
}

impl AttaSampler {
    fn new(loaded: &Loaded, json: &[u8]) -> CallResult<Self> {
        Ok(Self {
            sampler: Mutex::new(sampler(loaded, json)?),
            n_vocab: loaded.engine.spec().n_vocab,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sampler> {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the options of a generation from JSON; no bytes are an empty object.
pub(crate) fn options(loaded: &Loaded, n_ctx: usize, json: &[u8]) -> CallResult<GenerateOptions> {
    let json = if json.is_empty() { b"{}" } else { json };
    generate_options(&loaded.engine, n_ctx, json)
        .map_err(|message| Failure::new(AttaStatus::Request, message))
}

fn sampler(loaded: &Loaded, json: &[u8]) -> CallResult<Sampler> {
    let options = options(loaded, loaded.engine.spec().n_ctx_train, json)?;
    if options.constraint.is_some() || !options.stop.is_empty() {
        let message = "a sampler keeps to no grammar and no stop string: atta_generate does";
        return Err(Failure::new(AttaStatus::Request, message));
    }
    let tokenizer = loaded.engine.tokenizer();
    let breakers = Breakers::find(tokenizer, &options.sampling.dry.sequence_breakers);
    let refused = |error: SamplingError| Failure::from(atta_engine::Error::from(error));
    let sampler = Sampler::new(options.sampling, loaded.engine.spec().n_vocab).map_err(refused)?;
    Ok(sampler.with_breakers(breakers))
}

/// Makes a sampler. `json` is an object with llama.cpp's fields, such as "temperature", "top_k",
/// "top_p", "min_p", "repeat_penalty", "logit_bias" and "seed"; no bytes are an empty one.
///
/// # Safety
/// `json` has `json_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_sampler_new(
    model: Option<&AttaModel>,
    json: *const c_char,
    json_size: usize,
    out: Option<&mut MaybeUninit<*mut AttaSampler>>,
) -> AttaStatus {
    make(out, || {
        let model = handle(model, "model")?;
        // SAFETY: the caller's promise.
        let json = unsafe { values(json.cast(), json_size, "json") }?;
        AttaSampler::new(&model.0, json)
    })
}

/// Chooses the next token from the logits of a session; the token is not appended.
#[unsafe(no_mangle)]
pub extern "C" fn atta_sampler_sample(
    sampler: Option<&AttaSampler>,
    session: Option<&AttaSession>,
    out: Option<&mut MaybeUninit<u32>>,
) -> AttaStatus {
    compute(out, || {
        let sampler = handle(sampler, "sampler")?;
        let mut sampler = sampler.lock();
        handle(session, "session")?.0.with(|held| {
            held.settle()?;
            let mut logits = logits(&held.session)?.to_vec();
            Ok(sampler.sample(&mut logits, held.session.tokens()))
        })
    })
}

/// Chooses a token from logits that the program has, as many as the vocabulary; `tokens` are those
/// of the text so far, for penalties.
///
/// # Safety
/// `logits` has `n_logits` values, `tokens` has `n_tokens`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_sampler_choose(
    sampler: Option<&AttaSampler>,
    logits: *const f32,
    n_logits: usize,
    tokens: *const u32,
    n_tokens: usize,
    out: Option<&mut MaybeUninit<u32>>,
) -> AttaStatus {
    compute(out, || {
        let sampler = handle(sampler, "sampler")?;
        // SAFETY: the caller's promise.
        let logits = unsafe { values(logits, n_logits, "logits") }?;
        // SAFETY: the caller's promise.
        let ids = unsafe { values(tokens, n_tokens, "tokens") }?;
        if n_logits != sampler.n_vocab {
            let n_vocab = sampler.n_vocab;
            let message = format!("{n_logits} logits, of a model that has {n_vocab}");
            return Err(Failure::invalid(message));
        }
        Ok(sampler.lock().sample(&mut logits.to_vec(), ids))
    })
}

/// Frees a sampler. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn atta_sampler_free(sampler: Option<Box<AttaSampler>>) {
    free(sampler);
}
