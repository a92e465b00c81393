//! Constraints in a build without the feature `constrain`.

use atta::{GenerateOptions, LoadOptions};

use crate::{args::ConstraintFlags, failure::Failure};

pub(crate) fn apply(
    flags: &ConstraintFlags,
    options: GenerateOptions,
) -> Result<GenerateOptions, Failure> {
    if *flags == ConstraintFlags::default() {
        return Ok(options);
    }
    Err(Failure::Usage(
        "this build writes no constrained texts: it was made without the feature `constrain`"
            .to_owned(),
    ))
}

pub(crate) fn reserve(load: LoadOptions, _: &GenerateOptions) -> LoadOptions {
    load
}
