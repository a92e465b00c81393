//! Arbitrary bytes as the usage of experts, as they are and with a right checksum. Usage that is
//! read is written back as the same bytes.
#![no_main]

use atta_store::ExpertUsage;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    for _ in 0..2 {
        if let Some(usage) = ExpertUsage::from_bytes(&bytes) {
            assert_eq!(usage.to_bytes(), bytes);
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    }
});
