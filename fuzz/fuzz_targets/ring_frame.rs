//! Arbitrary bytes as a frame of a ring: as they are, and with right checksums, so that fields and
//! bodies are parsed. A frame is written back as the same bytes.
#![no_main]

use atta_cluster::wire::{Dtype, Frame, HEADER_BYTES, Header, Limits};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    ring: 0,
    n_stages: 4,
    n_batch: 64,
    n_seqs: 8,
    n_ctx: 4096,
    d_row: 32,
    dtype: Dtype::F32,
};

/// Offset of the checksum of a header.
const CHECKSUM_AT: usize = 60;

fn check(bytes: &[u8]) {
    for dtype in [Dtype::F16, Dtype::Int8] {
        if let Ok(mut frame) = Frame::parse(bytes, &Limits { dtype, ..LIMITS }) {
            frame.write(&mut Vec::new());
        }
    }
    if let Ok(mut frame) = Frame::parse(bytes, &LIMITS) {
        let mut again = Vec::new();
        frame.write(&mut again);
        assert_eq!(again, bytes);
    }
}

/// The same with magic, version, ring and checksums of a frame.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let head = bytes.get_mut(..HEADER_BYTES)?;
    head[..5].copy_from_slice(b"ATR1\x01");
    head[8..16].fill(0);
    let checksum = crc32c::crc32c(&head[..CHECKSUM_AT]);
    head[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    let header = Header::parse(bytes.first_chunk()?).ok()?;
    let n = LIMITS.body_bytes(&header).ok()?;
    bytes.resize(HEADER_BYTES + n, 0);
    let (body, end) = bytes[HEADER_BYTES..].split_last_chunk_mut::<4>()?;
    *end = crc32c::crc32c(body).to_le_bytes();
    Some(bytes)
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    if let Some(bytes) = sealed(bytes) {
        check(&bytes);
    }
});
