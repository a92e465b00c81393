//! `--cache`: where the state of the prompt is kept from one run to the next, if anywhere.
//!
//! A build without the feature `cache` has the option, and refuses it by the name of the feature.

#[cfg(feature = "server")]
use std::sync::Arc;
use std::{ops::ControlFlow, time::Duration};

#[cfg(feature = "chat")]
use atta::chat::Chat;
use atta::{Error, Event, GenerateOptions, Session, Summary};
#[cfg(feature = "cache")]
use atta::{PromptCache, Restored};

use crate::{args::CacheFlags, failure::Failure};

/// All that a directory may take if nobody says otherwise.
#[cfg(feature = "cache")]
const DEFAULT_BYTES: u64 = 1 << 30;

/// What of a prompt did not have to be computed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recalled {
    pub(crate) n_tokens: usize,
    pub(crate) time: Duration,
}

/// A cache, or none.
pub(crate) struct Cache {
    #[cfg(feature = "cache")]
    cache: Option<PromptCache>,
}

#[cfg(feature = "cache")]
impl Cache {
    /// Opens it, so that a path that cannot be one is found out before the work.
    pub(crate) fn open(flags: &CacheFlags) -> Result<Self, Failure> {
        let Some(path) = &flags.cache else {
            return Ok(Self { cache: None });
        };
        let cache = PromptCache::open(path, flags.cache_size.unwrap_or(DEFAULT_BYTES))?;
        if flags.cache_size.is_some() && !cache.is_directory() {
            return Err(Failure::Usage(format!(
                "--cache-size limits a directory, but {0} is none: a directory that is to be created is {0}/",
                path.display()
            )));
        }
        Ok(Self { cache: Some(cache) })
    }

    /// The same for many texts at once: always a directory.
    #[cfg(feature = "server")]
    pub(crate) fn shared(flags: &CacheFlags) -> Result<Option<Arc<PromptCache>>, Failure> {
        // A path that ends in a separator names one.
        let cache = flags.cache.as_ref().map(|path| path.join(""));
        Ok(Self::open(&CacheFlags {
            cache,
            ..flags.clone()
        })?
        .cache
        .map(Arc::new))
    }

    /// Restores as much of a prompt as there is.
    pub(crate) fn restore(
        &self,
        session: &mut Session,
        prompt: &[u32],
    ) -> Result<Recalled, Failure> {
        let Some(cache) = &self.cache else {
            return Ok(Recalled::default());
        };
        let Restored {
            n_tokens,
            time,
            notes,
        } = session.restore(cache, prompt)?;
        notes.iter().for_each(|note| crate::load::warn(note));
        Ok(Recalled { n_tokens, time })
    }

    /// Generates, and saves the state if there is a place for it.
    pub(crate) fn generate(
        &self,
        session: &mut Session,
        (prompt, options): (&[u32], &GenerateOptions),
        on_event: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Summary, Error> {
        match &self.cache {
            Some(cache) => session.generate_saving(cache, prompt, options)?,
            None => session.generate(prompt, options)?,
        }
        .run(on_event)
    }

    /// Hands it to a conversation.
    #[cfg(feature = "chat")]
    pub(crate) fn give_to(self, chat: &mut Chat) {
        if let Some(cache) = self.cache {
            chat.set_cache(cache);
        }
    }
}

#[cfg(not(feature = "cache"))]
impl Cache {
    pub(crate) fn open(flags: &CacheFlags) -> Result<Self, Failure> {
        match (&flags.cache, flags.cache_size) {
            (None, None) => Ok(Self {}),
            _ => Err(Failure::Usage(
                "this build has no --cache: it was made without the feature `cache`".to_owned(),
            )),
        }
    }

    pub(crate) fn restore(&self, _: &mut Session, _: &[u32]) -> Result<Recalled, Failure> {
        Ok(Recalled::default())
    }

    pub(crate) fn generate(
        &self,
        session: &mut Session,
        (prompt, options): (&[u32], &GenerateOptions),
        on_event: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Summary, Error> {
        session.generate(prompt, options)?.run(on_event)
    }

    #[cfg(feature = "chat")]
    pub(crate) fn give_to(self, _: &mut Chat) {}
}
