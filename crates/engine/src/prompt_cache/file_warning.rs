//! Warnings about files of the cache that are not used.
//!
//! Prints nothing: a warning goes to the caller.

use std::{io, path::Path};

use super::CacheFileError;

/// A warning about a skipped file.
pub(super) struct FileWarning {
    pub(super) line: String,
    /// The cause, if it decides about later saves.
    pub(super) error: Option<CacheFileError>,
}

impl FileWarning {
    pub(super) fn of(path: &Path, error: CacheFileError) -> Self {
        Self {
            line: format!("{} is not used: {error}", path.display()),
            error: Some(error),
        }
    }

    pub(super) fn of_system(path: &Path, error: &io::Error) -> Self {
        Self {
            line: format!("{} is not used: {error}", path.display()),
            error: None,
        }
    }
}
