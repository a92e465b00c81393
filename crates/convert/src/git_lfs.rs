//! Git LFS leaves a pointer of three lines in place of a file that was not fetched.

use std::path::Path;

use crate::Error;

/// Refuses a pointer.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn refuse_pointer(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    match bytes.starts_with(b"version https://git-lfs.github.com/spec/") {
        true => Err(Error::File {
            path: path.to_owned(),
            why: "is a pointer of Git LFS, not the file itself: `git lfs pull` fetches it".into(),
        }),
        false => Ok(()),
    }
}
