//! A position in the bytes of a file or of a prefix of it. Every read is checked against the end of
//! the bytes and the end of the file.

use crate::Error;

/// Reads forward through `bytes`, the first bytes of a file of `file_bytes`.
#[derive(Clone)]
pub(in crate::container) struct Cursor<'a> {
    bytes: &'a [u8],
    file_bytes: u64,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(in crate::container) fn new(bytes: &'a [u8], file_bytes: u64) -> Self {
        // Bytes after the end of the file are ignored.
        let len = usize::try_from(file_bytes).map_or(bytes.len(), |n| n.min(bytes.len()));
        Self {
            bytes: &bytes[..len],
            file_bytes,
            at: 0,
        }
    }

    /// A cursor over bytes that were parsed before, at an offset in them.
    pub(in crate::container) fn over(bytes: &'a [u8], at: usize) -> Self {
        Self {
            bytes,
            file_bytes: bytes.len() as u64,
            at,
        }
    }

    /// Bytes from the start of the file.
    pub(in crate::container) fn position(&self) -> u64 {
        self.at as u64
    }

    /// [`Cursor::position`] as an index into the bytes.
    pub(in crate::container) fn index(&self) -> usize {
        self.at
    }

    /// Bytes from here to the end of the whole file.
    pub(in crate::container) fn left_in_file(&self) -> u64 {
        self.file_bytes.saturating_sub(self.position())
    }

    /// The next `n` bytes. `what` names them in errors.
    pub(in crate::container) fn take(
        &mut self,
        n: u64,
        what: &'static str,
    ) -> Result<&'a [u8], Error> {
        let at = self.position();
        let end = at.saturating_add(n);
        if end > self.file_bytes {
            return Err(Error::PastEnd {
                what,
                at,
                end,
                file_bytes: self.file_bytes,
            });
        }
        let index = usize::try_from(end).map_err(|_| Error::Truncated { needed: end })?;
        let taken = self
            .bytes
            .get(self.at..index)
            .ok_or(Error::Truncated { needed: end })?;
        self.at = index;
        Ok(taken)
    }

    pub(in crate::container) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], Error> {
        let taken = self.take(N as u64, what)?;
        Ok(*taken
            .first_chunk()
            .expect("take returns as many bytes as requested"))
    }

    pub(in crate::container) fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(in crate::container) fn u64(&mut self, what: &'static str) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The next `len` bytes as a printable name.
    pub(in crate::container) fn name(
        &mut self,
        len: u64,
        what: &'static str,
    ) -> Result<&'a str, Error> {
        let at = self.position();
        let text = std::str::from_utf8(self.take(len, what)?).ok();
        text.filter(|t| !t.contains(char::is_control))
            .ok_or(Error::NotText { what, at })
    }

    /// A string of the format: its length as u64, then its bytes.
    pub(in crate::container) fn string(&mut self, what: &'static str) -> Result<&'a [u8], Error> {
        let len = self.u64(what)?;
        self.take(len, what)
    }
}
