//! `--cache` in a build without the feature `cache`: there is no prompt cache.

use std::ops::ControlFlow;

use atta::{Error, Event, GenerateOptions, Session, Summary};

use crate::{args::CacheFlags, failure::Failure, stats::CachedPrefix};

pub(crate) struct DiskCache;

impl DiskCache {
    pub(crate) fn open(flags: &CacheFlags) -> Result<Self, Failure> {
        match (&flags.cache, flags.cache_size) {
            (None, None) => Ok(Self),
            _ => Err(Failure::Usage(
                "this build has no --cache: it was made without the feature `cache`".to_owned(),
            )),
        }
    }

    pub(crate) fn restore(&self, _: &mut Session, _: &[u32]) -> Result<CachedPrefix, Failure> {
        Ok(CachedPrefix::default())
    }

    pub(crate) fn generate(
        &self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Summary, Error> {
        session.generate(prompt, options)?.run(on_event)
    }
}
