//! Arbitrary bytes as a torch.save archive, and as the pickle in one. See README.md for how to run.
#![no_main]

use std::sync::Arc;

use atta_convert::pickle;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    read_all(bytes.to_vec());
    read_all(archive(&[
        ("m/data.pkl", bytes),
        ("m/data/0", &[7; 64]),
        ("m/data/1", &[0; 24]),
    ]));
});

fn read_all(file: Vec<u8>) {
    let n = file.len();
    let Ok(tensors) = pickle::parse(Arc::new(file)) else {
        return;
    };
    for tensor in tensors {
        assert!(tensor.bytes().len() <= n);
        let elements = tensor.bytes().len() / tensor.dtype().bytes() as usize;
        let _ = tensor.floats(0, &mut vec![0.0; elements.min(100)]);
    }
}

/// A zip archive of uncompressed files.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut directory = Vec::new();
    for (name, bytes) in files {
        let local = data.len() as u32;
        let len = bytes.len() as u32;
        let name_len = name.len() as u16;
        let sizes = [[0; 4], len.to_le_bytes(), len.to_le_bytes()].concat();
        let common = [&[0; 10][..], &sizes, &name_len.to_le_bytes(), &[0; 2]].concat();
        data.extend([b"PK\x03\x04", &common[..], name.as_bytes(), bytes].concat());
        let entry = [
            b"PK\x01\x02\0\0",
            &common[..],
            &[0; 10],
            &local.to_le_bytes(),
            name.as_bytes(),
        ]
        .concat();
        directory.extend(entry);
    }
    let sizes = [
        (directory.len() as u32).to_le_bytes(),
        (data.len() as u32).to_le_bytes(),
    ]
    .concat();
    [
        data,
        directory,
        b"PK\x05\x06\0\0\0\0\0\0\0\0".to_vec(),
        sizes,
        vec![0; 2],
    ]
    .concat()
}
