//! `--speculate` in a build without the feature `drafters`: drafts come from the context only.

use std::path::Path;

use atta::{Engine, LoadOptions, Ngram, Speculation};

use crate::{
    args::{
        ModelFlags,
        speculation::{DraftsFrom, SpeculationFlags},
    },
    failure::Failure,
};

/// Speculation as the flags ask for it.
#[derive(Clone)]
pub(crate) struct OpenDrafts {
    pub(crate) speculation: Option<Speculation>,
}

impl OpenDrafts {
    pub(crate) fn open(flags: &SpeculationFlags, _: &ModelFlags) -> Result<Self, Failure> {
        let drafts = flags.drafts();
        let speculation = match drafts.from {
            DraftsFrom::Nowhere => None,
            DraftsFrom::Context => Some(drafts.with(Speculation::new(Ngram))),
            DraftsFrom::Model(_) | DraftsFrom::Head(_) => {
                return Err(Failure::Usage(
                    "this build drafts from the context only: it was made without the feature \
                     `drafters`"
                        .to_owned(),
                ));
            }
        };
        Ok(Self { speculation })
    }

    pub(crate) fn beside(
        &self,
        _: Option<&Path>,
        options: LoadOptions,
    ) -> Result<LoadOptions, Failure> {
        Ok(options)
    }

    pub(crate) fn check(&self, _: &Engine) -> Result<(), atta::Error> {
        Ok(())
    }
}
