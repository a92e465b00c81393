//! Models by the names of their repositories, in a build without the feature `hub`: MODEL is a
//! path.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

pub(crate) fn locate(model: &Path) -> Result<PathBuf, Failure> {
    Ok(model.to_owned())
}

#[cfg(feature = "convert")]
pub(crate) fn locate_source(source: &Path) -> Result<PathBuf, Failure> {
    Ok(source.to_owned())
}
