//! Free disk space.

use std::path::Path;

/// Free bytes of the file system of `directory`, if the operating system reports them.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    fs4::available_space(directory).ok()
}
