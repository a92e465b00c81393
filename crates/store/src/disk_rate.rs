//! How fast a disk reads a file, past the page cache where the system allows it.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::{os::Slot, source::ReadAt, stream::MAX_READERS, uncached::UncachedFile};

/// Bytes of a read: a large chunk of streamed weights.
const CHUNK_BYTES: usize = 2 << 20;

/// Reads a file in chunks, in the order of the file and with as many readers as streamed weights
/// have, for about `time`. The result is bytes/s; 0 for an empty file.
///
/// Where the system reads through its cache only, bytes that are there already are counted, too.
///
/// # Errors
/// A file that cannot be read, or no memory for the readers' chunks.
pub fn disk_rate(path: &Path, time: Duration) -> io::Result<f64> {
    let file = UncachedFile::open(path, None)?;
    let n_chunks = file.n_bytes().div_ceil(CHUNK_BYTES as u64);
    if n_chunks == 0 {
        return Ok(0.0);
    }
    let slots = Slot::carve(&[CHUNK_BYTES; MAX_READERS])?;
    let begin = Instant::now();
    let next = AtomicU64::new(0);
    let read = |mut slot: Slot| -> io::Result<u64> {
        let mut n_read = 0;
        while begin.elapsed() < time {
            let at = next.fetch_add(1, Ordering::Relaxed) % n_chunks * CHUNK_BYTES as u64;
            let needed = (file.n_bytes() - at).min(CHUNK_BYTES as u64);
            file.read_blocks_at(at, &mut slot, needed as usize)?;
            n_read += needed;
        }
        Ok(n_read)
    };
    let n_read = std::thread::scope(|scope| {
        let readers = slots.into_iter().map(|slot| scope.spawn(|| read(slot)));
        let readers: Vec<_> = readers.collect();
        let results = readers.into_iter().map(|reader| {
            // A reader has nothing that panics.
            reader
                .join()
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        });
        results.sum::<io::Result<u64>>()
    })?;
    Ok(n_read as f64 / begin.elapsed().as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_rate_an_empty_one_none_and_an_absent_one_is_an_error() {
        let path = std::env::temp_dir().join(format!("atta-disk-rate-{}", std::process::id()));
        let time = Duration::from_millis(20);
        std::fs::write(&path, vec![7; CHUNK_BYTES + 5]).unwrap();
        assert!(disk_rate(&path, time).unwrap() > 0.0);
        std::fs::write(&path, []).unwrap();
        assert_eq!(disk_rate(&path, time).unwrap(), 0.0);
        std::fs::remove_file(&path).unwrap();
        assert!(disk_rate(&path, time).is_err());
    }
}
