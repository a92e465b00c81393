//! Arbitrary bytes as a QSF file: the container, and what the converter reads beside it. See
//! README.md for how to run.
#![no_main]

use atta_formats::{
    Contents, SharedBytes, decode_rows,
    qsf::{Header, LayerEntry, Tables, crc32, crc32c},
};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Weights decoded per tensor, so that one input cannot take long.
const MAX_WEIGHTS: usize = 1 << 12;

fuzz_target!(|input: &[u8]| {
    let mut file = input.to_vec();
    seal(&mut file);
    let shared: SharedBytes = Arc::new(file.clone());
    let n = file.len() as u64;
    let _ = Contents::parse(shared.clone(), n.saturating_mul(1000));
    let _ = Tables::read(&shared);
    let Ok(contents) = Contents::parse(shared, n) else {
        return;
    };
    for t in &contents.tensors {
        let d = t.shape.dims().last().copied().unwrap_or(1) as usize;
        let n_rows = (t.shape.n_elements() as usize / d).min((MAX_WEIGHTS / d).max(1));
        let bytes = &file[t.offset as usize..][..n_rows * t.ty.row_bytes(d).expect("it was read")];
        let _ = decode_rows(t.ty, d, bytes, &mut vec![0.0; n_rows * d]);
    }
    for (key, value) in contents.metadata.iter() {
        std::hint::black_box((key, value.to_string()));
    }
});

/// Makes checksums fit, so that the fuzzer gets behind them.
fn seal(file: &mut [u8]) {
    let n = file.len() as u64;
    let Some(header) = file.first_chunk::<128>() else {
        return;
    };
    let mut header = Header(*header);
    let table = header.table_at() as usize;
    let end = table.saturating_add(header.table_bytes() as usize);
    if header.has_table() && end <= file.len() && table <= end {
        for at in (table..end).step_by(32).filter(|at| at + 32 <= end) {
            let entry = LayerEntry(file[at..][..32].try_into().expect("32 bytes"));
            let word =
                |i: usize| u64::from_le_bytes(entry.0[i..i + 8].try_into().expect("8 bytes"));
            let part = usize::try_from(word(8)).ok().and_then(|start| {
                let end = start.checked_add(usize::try_from(word(16)).ok()?)?;
                file.get(start..end)
            });
            let sum = part.map_or(0, crc32c);
            file[at + 24..at + 28].copy_from_slice(&sum.to_le_bytes());
        }
        header.set_table_checksum(crc32c(&file[table..end]));
    }
    header.set_file_bytes_low(n as u32);
    header.set_checksum(crc32(&header.0[..96]));
    file[..128].copy_from_slice(&header.0);
}
