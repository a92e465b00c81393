//! Arbitrary bytes as the times of steps of earlier runs, as they are and behind the right
//! beginning.
//! Times that are read are written back as the same bytes.
#![no_main]

use atta_engine::StepRatios;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut whole = StepRatios::default().to_bytes();
    let n = bytes.len().min(whole.len() - 8);
    whole[8..8 + n].copy_from_slice(&bytes[..n]);
    for bytes in [bytes, &whole[..]] {
        if let Some(ratios) = StepRatios::from_bytes(bytes) {
            assert_eq!(ratios.to_bytes(), bytes);
        }
    }
});
