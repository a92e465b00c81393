//! GPUs in a build without the feature `gpu`.

use std::path::Path;

use atta::LoadOptions;

use crate::{args::GpuFlags, failure::Failure};

pub(crate) fn plan(
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
