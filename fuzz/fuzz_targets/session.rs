//! Arbitrary bytes as a saved session: as they are, and with the right key and checksum, so that
//! the state is parsed too. An imported session can be continued, or its numbers are too large.
#![no_main]

use std::cell::RefCell;

use atta_engine::{Engine, Error, LoadOptions, Session, SessionOptions};
use libfuzzer_sys::fuzz_target;

/// The offset of the key of a segment, and the length of key and checksum.
const KEY_AT: usize = 32;
const HASH_BYTES: usize = 32;

thread_local! {
    /// A session with a window, and its export with three tokens.
    static SESSION: RefCell<(Session, Vec<u8>)> = RefCell::new(made());
}

fn made() -> (Session, Vec<u8>) {
    let model = include_bytes!("../../tests/golden/models/gemma2.gguf");
    let engine = Engine::from_static("gemma2", model, &LoadOptions::default()).unwrap();
    let mut session = engine
        .session(&SessionOptions {
            n_ctx: Some(64),
            ..SessionOptions::default()
        })
        .unwrap();
    session.append(&[1, 5, 7]).unwrap();
    let mut bytes = Vec::new();
    session.export(&mut bytes).unwrap();
    (session, bytes)
}

fn import(session: &mut Session, bytes: &[u8]) {
    if let Ok(n) = session.import(bytes) {
        assert_eq!(session.tokens().len(), n);
        let is_full = n == session.n_ctx();
        match session.append(&[3]) {
            Err(Error::NotFinite { .. }) => {}
            appended => assert_eq!(appended.is_ok(), !is_full),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    SESSION.with_borrow_mut(|(session, good)| {
        import(session, input);
        // Magic and version are kept too; every other field and the state come from the input.
        let mut bytes = good[..12].to_vec();
        bytes.extend_from_slice(input);
        if bytes.len() >= KEY_AT + HASH_BYTES {
            bytes[KEY_AT..KEY_AT + HASH_BYTES].copy_from_slice(&good[KEY_AT..KEY_AT + HASH_BYTES]);
        }
        let checksum = blake3::hash(&bytes);
        bytes.extend_from_slice(checksum.as_bytes());
        import(session, &bytes);
        // The state alone: a valid one whose end is overwritten by the input.
        let mut bytes = good[..good.len() - HASH_BYTES].to_vec();
        let n = input.len().min(bytes.len() - KEY_AT - HASH_BYTES);
        let at = bytes.len() - n;
        bytes[at..].copy_from_slice(&input[..n]);
        let checksum = blake3::hash(&bytes);
        bytes.extend_from_slice(checksum.as_bytes());
        import(session, &bytes);
    });
});
