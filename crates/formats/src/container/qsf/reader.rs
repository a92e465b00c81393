//! Bytes of a file at any offset, checked against its length.

use std::ops::Range;
use std::sync::Arc;

use crate::{Error, SharedBytes};

/// Returns `n` bytes from an offset of a file on; `None` if they cannot be had.
pub type ReadBytes<'a> = dyn FnMut(u64, usize) -> Option<SharedBytes> + 'a;

/// The most bytes that are read at once: a vocabulary of a million words has a tenth of that.
const MAX_READ_BYTES: u64 = 1 << 28;

/// A part of bytes that are shared.
pub struct Window {
    bytes: SharedBytes,
    range: Range<usize>,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window({:?})", self.range)
    }
}

impl Window {
    /// `n` bytes from byte `at` on; `None` if there are fewer.
    pub fn of(bytes: &SharedBytes, at: u64, n: usize) -> Option<SharedBytes> {
        let start = usize::try_from(at).ok()?;
        let range = start..start.checked_add(n)?;
        (**bytes).as_ref().get(range.clone())?;
        let bytes = bytes.clone();
        Some(Arc::new(Self { bytes, range }))
    }
}

impl AsRef<[u8]> for Window {
    fn as_ref(&self) -> &[u8] {
        // A map that another process truncates stays as long as it was.
        (*self.bytes)
            .as_ref()
            .get(self.range.clone())
            .unwrap_or(&[])
    }
}

/// A file that is read in parts.
pub(super) struct SectionReader<'a, 'b> {
    file_bytes: u64,
    read: &'a mut ReadBytes<'b>,
}

impl<'a, 'b> SectionReader<'a, 'b> {
    pub(super) fn new(file_bytes: u64, read: &'a mut ReadBytes<'b>) -> Self {
        Self { file_bytes, read }
    }

    /// Length of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// `n` bytes from `at` on, which `what` names in errors.
    pub(super) fn bytes(
        &mut self,
        at: u64,
        n: u64,
        what: &'static str,
    ) -> Result<SharedBytes, Error> {
        let end = at.saturating_add(n);
        if end > self.file_bytes {
            return Err(Error::PastEnd {
                what,
                at,
                end,
                file_bytes: self.file_bytes,
            });
        }
        if n > MAX_READ_BYTES {
            return Err(Error::Count {
                what: "bytes in a table",
                got: n,
                max: MAX_READ_BYTES,
            });
        }
        let found =
            (self.read)(at, n as usize).filter(|found| found.as_ref().as_ref().len() == n as usize);
        found.ok_or(Error::Truncated { needed: end })
    }

    /// As [`bytes`](Self::bytes), of fixed length.
    pub(super) fn array<const N: usize>(
        &mut self,
        at: u64,
        what: &'static str,
    ) -> Result<[u8; N], Error> {
        let bytes = self.bytes(at, N as u64, what)?;
        let bytes = (*bytes).as_ref().first_chunk();
        Ok(*bytes.expect("bytes returns as many bytes as requested"))
    }
}
