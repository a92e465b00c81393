//! GPUs in a build without the feature `gpu`.

use std::path::Path;

use atta::LoadOptions;

use crate::{args::GpuFlags, failure::Failure};

/// Refuses GPUs.
pub(crate) struct GpuPlanner;

impl GpuPlanner {
    pub(crate) fn new(_: usize) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "other builds have GPUs")]
    pub(crate) fn plan(
        &self,
        _: Option<&Path>,
        flags: &GpuFlags,
        options: LoadOptions,
    ) -> Result<LoadOptions, Failure> {
        match flags.wanted() {
            None => Ok(options),
            Some(_) => Err(Failure::Usage(
                "this program was built without GPUs: its feature `gpu` has them".to_owned(),
            )),
        }
    }

    #[cfg(feature = "analyze")]
    pub(crate) fn outline(
        &self,
        model: Option<&Path>,
        flags: &GpuFlags,
        options: LoadOptions,
    ) -> Result<LoadOptions, Failure> {
        self.plan(model, flags, options)
    }
}
