//! Files that a page reads, by ranges.
//!
//! Knows no model. The one idea: an offset is a u64 up to the page's border, since files are larger
//! than addresses are; a failure there comes back as a number, which has words here.

use std::io::{self, ErrorKind};

use atta_engine::ReadAt;

/// The page, as far as it reads files.
pub(crate) trait Host: Send + Sync + 'static {
    /// Fills `buf` with the bytes of a file from `offset` on. 0, or a [`refusal`].
    fn read(&self, shard: u32, offset: u64, buf: &mut [u8]) -> i32;
}

/// The page that loaded this module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page;

#[cfg(target_family = "wasm")]
impl Host for Page {
    fn read(&self, shard: u32, offset: u64, buf: &mut [u8]) -> i32 {
        #[link(wasm_import_module = "atta_io")]
        unsafe extern "C" {
            #[link_name = "read"]
            fn read(shard: u32, offset: u64, start: *mut u8, n_bytes: usize) -> i32;
        }
        // SAFETY: the page writes `n_bytes` bytes from `start` on, which are those of `buf`, before
        // it returns.
        unsafe { read(shard, offset, buf.as_mut_ptr(), buf.len()) }
    }
}

#[cfg(not(target_family = "wasm"))]
impl Host for Page {
    fn read(&self, _: u32, _: u64, _: &mut [u8]) -> i32 {
        UNSUPPORTED
    }
}

/// There is no page.
#[cfg(not(target_family = "wasm"))]
const UNSUPPORTED: i32 = 7;

/// What a number other than 0 of [`Host::read`] means. The page has the same numbers, and words of
/// its own for errors that it caused: `web/reasons.js`.
fn refusal(reason: i32) -> io::Error {
    let (kind, words) = match reason {
        // Not an interruption, which would be tried again for ever.
        1 => (ErrorKind::Other, "the load was aborted"),
        2 => (ErrorKind::NotConnected, "the server cannot be reached"),
        3 => (ErrorKind::InvalidData, "the file was changed on the server"),
        4 => (ErrorKind::UnexpectedEof, "the file ends too early"),
        5 => (ErrorKind::StorageFull, "the browser gives no more storage"),
        6 => (ErrorKind::NotFound, "the browser has removed the file"),
        7 => (ErrorKind::Unsupported, "no page reads files here"),
        _ => return io::Error::other(format!("the page cannot read it (reason {reason})")),
    };
    io::Error::new(kind, words)
}

/// A file of the page.
#[derive(Debug)]
pub(crate) struct RangeSource<H> {
    pub(crate) host: H,
    /// Its number among the files of the model.
    pub(crate) shard: u32,
    pub(crate) n_bytes: u64,
    /// Tells it from other files of its name and length.
    pub(crate) version: Option<u128>,
    /// Whether it is still being downloaded.
    pub(crate) is_arriving: bool,
}

impl<H: Host> ReadAt for RangeSource<H> {
    fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.n_bytes) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if buf.is_empty() {
            return Ok(());
        }
        match self.host.read(self.shard, offset, buf) {
            0 => Ok(()),
            reason => Err(refusal(reason)),
        }
    }

    fn version(&self) -> Option<u128> {
        self.version
    }

    fn is_arriving(&self) -> bool {
        self.is_arriving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page whose bytes are the lowest eight bits of their offsets, and which refuses shard 1.
    struct Offsets;

    impl Host for Offsets {
        fn read(&self, shard: u32, offset: u64, buf: &mut [u8]) -> i32 {
            for (i, byte) in (offset..).zip(buf) {
                *byte = i as u8;
            }
            if shard == 1 { 3 } else { 0 }
        }
    }

    fn source(shard: u32) -> RangeSource<Offsets> {
        RangeSource {
            host: Offsets,
            shard,
            n_bytes: 5 << 32,
            version: None,
            is_arriving: true,
        }
    }

    #[test]
    fn bytes_beyond_four_gigabytes_are_read_at_their_offset() {
        let mut buf = [0; 3];
        let source = source(0);
        source.read_exact_at((4 << 32) + 7, &mut buf).unwrap();
        assert_eq!(buf, [7, 8, 9]);
    }

    #[test]
    fn a_read_past_the_end_does_not_reach_the_page() {
        let mut buf = [1; 3];
        for offset in [(5 << 32) - 2, 5 << 32, u64::MAX] {
            let error = source(0).read_exact_at(offset, &mut buf).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{offset}");
        }
        assert_eq!(buf, [1; 3]);
    }

    #[test]
    fn a_reason_of_the_page_is_an_error_in_words() {
        let error = source(1).read_exact_at(0, &mut [0; 3]).unwrap_err();
        assert_eq!(error.to_string(), "the file was changed on the server");
        assert_eq!(refusal(1).kind(), ErrorKind::Other, "it is not tried again");
        assert!(refusal(99).to_string().contains("99"));
    }
}
