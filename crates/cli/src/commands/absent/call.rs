//! `atta run --tools` in a build without the feature `chat`.

use super::run::RunArgs;
use crate::{args, failure::Failure};

pub(super) fn run(_: RunArgs) -> Result<(), Failure> {
    Err(args::lacks("run --tools", "chat"))
}
