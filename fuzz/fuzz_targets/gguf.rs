//! Arbitrary bytes as a GGUF file: parsing, every getter, and decoding of tensors. See README.md
//! for how to run.
#![no_main]

use atta_formats::{
    Directory, Gguf, Metadata, SharedBytes, TensorInfo, Writer, decode_rows,
    gguf::{Checksums, Piece},
};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Weights decoded per tensor, so that one input cannot take long.
const MAX_WEIGHTS: usize = 1 << 12;

fuzz_target!(|file: &[u8]| {
    let shared: SharedBytes = Arc::new(file.to_vec());
    let n = file.len() as u64;
    // The same bytes as the beginning of a longer file, as a reader of a large file sees them.
    if let Ok(g) = Gguf::parse(shared.clone(), n.saturating_mul(1000)) {
        read_all(&g.metadata);
    }
    let Ok(g) = Gguf::parse(shared, n) else {
        return;
    };
    read_all(&g.metadata);
    rewrite(&g);
    g.tensors.iter().for_each(|t| decode_some(file, t));
    checksums(&g);
    let _ = Directory::from_shards(vec![g.clone(), g.clone()]);
    let directory = Directory::single(g);
    for t in directory.tensors() {
        assert_eq!(directory.tensor(&t.name), Some(t));
    }
    assert!(directory.heap_bytes() < 16 * file.len() + 4096);
});

fn read_all(metadata: &Metadata) {
    let keys: Vec<&str> = metadata.iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), metadata.len());
    for key in keys {
        let value = metadata
            .get(key)
            .expect("a key that was listed has a value");
        std::hint::black_box(value.to_string());
        let _ = (
            metadata.str(key),
            metadata.u32(key),
            metadata.i64(key),
            metadata.f32(key),
            metadata.bool(key),
        );
        if let Ok(Some(strings)) = metadata.strs(key) {
            assert_eq!(strings.iter().count(), strings.len());
        }
        if let Ok(Some(numbers)) = metadata.i32s(key) {
            assert_eq!(numbers.iter().count(), numbers.len());
        }
        let _ = (metadata.u32s(key), metadata.f32s(key), metadata.bools(key));
    }
}

/// Metadata that was read can be written, and reads the same again.
fn rewrite(g: &Gguf) {
    let mut w = Writer::new();
    w.set_version(g.version).expect("it was read");
    w.set_alignment(g.alignment as u32).expect("it was read");
    g.metadata
        .iter()
        .for_each(|(key, value)| w.set_value(key, value));
    for t in &g.tensors {
        w.add_tensor(&t.name, t.shape.dims(), t.ty)
            .expect("it was read");
    }
    let layout = w.finish().expect("it was read");
    let header: SharedBytes = Arc::new(layout.header);
    let again = Gguf::parse(header, layout.file_bytes).expect("it was written by us");
    assert_eq!(again.tensors, layout.tensors);
    assert_eq!(again.tensors.len(), g.tensors.len());
}

/// Checksums that are accepted are those of all bytes of tensors.
fn checksums(g: &Gguf) {
    let Ok(Some(checksums)) = Checksums::of(&g.clone().into()) else {
        return;
    };
    let covered = |piece: Piece| piece.bytes.end - piece.bytes.start;
    let n_bytes: u64 = checksums.pieces.of(0..u64::MAX).map(covered).sum();
    assert_eq!(n_bytes, g.tensors.iter().map(|t| t.n_bytes).sum::<u64>());
}

fn decode_some(file: &[u8], t: &TensorInfo) {
    let d = t.shape.dims().last().copied().unwrap_or(1) as usize;
    let n_rows = (t.shape.n_elements() as usize / d).min((MAX_WEIGHTS / d).max(1));
    let start = t.offset as usize;
    let row_bytes = t.ty.row_bytes(d).expect("it was read");
    let bytes = &file[start..][..n_rows * row_bytes];
    let mut out = vec![0.0; n_rows * d];
    let decoded = decode_rows(t.ty, d, bytes, &mut out);
    assert_eq!(decoded.is_ok(), t.ty.has_codec());
}
