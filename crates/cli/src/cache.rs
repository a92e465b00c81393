//! `--cache`: the prompt cache on disk, if one was asked for.

use std::ops::ControlFlow;

use atta::{Error, Event, GenerateOptions, PrefixHit, PromptCache, Session, Summary};

use crate::{args::CacheFlags, failure::Failure, load, stats::CachedPrefix};

/// Size limit of a directory by default.
const DEFAULT_BYTES: u64 = 1 << 30;

/// A prompt cache, or none.
pub(crate) struct DiskCache(Option<PromptCache>);

impl DiskCache {
    /// Opens the cache before the work begins, so that a path that cannot be one is an early error.
    pub(crate) fn open(flags: &CacheFlags) -> Result<Self, Failure> {
        let Some(path) = &flags.cache else {
            return Ok(Self(None));
        };
        let cache = PromptCache::open(path, flags.cache_size.unwrap_or(DEFAULT_BYTES))?;
        if flags.cache_size.is_some() && !cache.is_directory() {
            return Err(Failure::Usage(format!(
                "--cache-size limits a directory, but {0} is none: a directory that is to be \
                 created is {0}/",
                path.display()
            )));
        }
        Ok(Self(Some(cache)))
    }

    /// The cache itself.
    #[cfg(feature = "chat")]
    pub(crate) fn into_prompt_cache(self) -> Option<PromptCache> {
        self.0
    }

    /// Restores the longest saved prefix of the prompt.
    pub(crate) fn restore(
        &self,
        session: &mut Session,
        prompt: &[u32],
    ) -> Result<CachedPrefix, Failure> {
        let Some(cache) = &self.0 else {
            return Ok(CachedPrefix::default());
        };
        let PrefixHit {
            n_tokens,
            time,
            notes,
        } = session.restore(cache, prompt)?;
        notes.iter().for_each(|note| load::warn(note));
        Ok(CachedPrefix { n_tokens, time })
    }

    /// Generates, and saves the KV cache if there is a prompt cache.
    pub(crate) fn generate(
        &self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Summary, Error> {
        match &self.0 {
            Some(cache) => session.generate_saving(cache, prompt, options)?,
            None => session.generate(prompt, options)?,
        }
        .run(on_event)
    }
}
