//! Arbitrary bytes as a safetensors file: accepted tensors are inside the file, do not overlap, and
//! can be read.
#![no_main]

use std::{collections::BTreeSet, sync::Arc};

use atta_convert::safetensors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Ok(tensors) = safetensors::parse(Arc::new(file.to_vec())) else {
        return;
    };
    let names: BTreeSet<&str> = tensors.iter().map(|t| t.name()).collect();
    assert_eq!(names.len(), tensors.len());
    // Header and tensors cover the file exactly, without overlap.
    let n_header = u64::from_le_bytes(*file.first_chunk().expect("it was accepted")) + 8;
    let n_bytes: u64 = tensors.iter().map(|t| t.bytes().len() as u64).sum();
    assert_eq!(n_header + n_bytes, file.len() as u64);
    for tensor in &tensors {
        let n: u64 = tensor.dims().iter().product();
        assert_eq!(n * tensor.dtype().bytes(), tensor.bytes().len() as u64);
        let mut out = vec![0.0; n as usize];
        assert_eq!(
            tensor.floats(0, &mut out).is_ok(),
            tensor.expect_floats().is_ok()
        );
        assert!(tensor.floats(1, &mut out).is_err() || n == 0);
    }
});
