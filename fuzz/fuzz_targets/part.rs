//! Arbitrary bytes as the sidecar of a part, with a right checksum and without: it is an error, or
//! says the same when it is written again, and a part that is filled by it reads and writes inside
//! of its file only. The same bytes as the text of a cluster key.
#![no_main]

use std::{io, sync::Mutex};

use atta_cluster::{
    key::ClusterKey,
    part::{Part, PartIndex, PartStorage},
};
use atta_store::ReadAt;
use libfuzzer_sys::fuzz_target;

/// Longest file of a part that is made in memory, bytes.
const MOST_BYTES: u64 = 64 << 10;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(key) = text.parse::<ClusterKey>()
    {
        assert!(
            key.text()
                .parse::<ClusterKey>()
                .is_ok_and(|again| again == key)
        );
    }
    check(data);
    let checksum = blake3::hash(data);
    check(&[data, checksum.as_bytes()].concat());
});

fn check(sidecar: &[u8]) {
    let Ok(index) = PartIndex::parse(sidecar) else {
        return;
    };
    assert_eq!(index.to_bytes(), sidecar);
    if index.file_bytes() > MOST_BYTES {
        return;
    }
    let memory = Memory(Mutex::new(vec![0; index.file_bytes() as usize]));
    let mut part = Part::new(memory, index).expect("the lengths are equal");
    part.verify().expect("memory can be read");
    for range in part.missing(|_| true) {
        let zeros = vec![0; (range.end - range.start) as usize];
        let _ = part.fill(range.start, &zeros);
        let _ = part.serve(range.start, &mut [0; 3]);
    }
}

/// A file in memory.
struct Memory(Mutex<Vec<u8>>);

impl ReadAt for Memory {
    fn n_bytes(&self) -> u64 {
        self.0.lock().expect("no panic").len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock().expect("no panic");
        buf.copy_from_slice(&bytes[offset as usize..][..buf.len()]);
        Ok(())
    }
}

impl PartStorage for Memory {
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut all = self.0.lock().expect("no panic");
        all[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn commit(&self, index: &[u8]) -> io::Result<()> {
        PartIndex::parse(index).map_err(io::Error::other)?;
        Ok(())
    }
}
