//! Arbitrary bytes as a file of saved logits: accepted files can be written again, and rows end
//! where the bytes end.
#![no_main]

use atta_eval::perplexity::{Baseline, BaselineHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let mut rest = file;
    let Ok(header) = BaselineHeader::read(&mut rest) else {
        return;
    };
    let n_read = file.len() - rest.len();
    assert_eq!(header.to_bytes(), file[..n_read]);
    assert_eq!(header.file_bytes(0), n_read as u64);
    let mut rows = Baseline::new(rest, header.n_vocab);
    while rows.next_row().is_ok() {}
});
