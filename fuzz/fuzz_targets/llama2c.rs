//! Arbitrary bytes as a llama2.c model and as its vocabulary: an accepted model can be written and
//! read again. See README.md for how to run.
#![no_main]

use std::{ops::ControlFlow, path::Path, sync::Arc};

use atta_convert::{
    Checkpoint,
    llama2c::{self, LeapFormat},
};
use libfuzzer_sys::fuzz_target;

const MODEL: &[u8] = include_bytes!("../../tests/golden/llama2c/small-v1.bin");
const TOKENIZER: &[u8] = include_bytes!("../../tests/golden/llama2c/tokenizer.bin");
/// The most tokens for which a valid vocabulary is generated.
const MAX_VOCAB: usize = 2000;

fuzz_target!(|bytes: &[u8]| {
    let _ = parse(MODEL, bytes);
    let Some(read) = parse(bytes, &vocabulary(n_vocab(bytes))) else {
        return;
    };
    let same = |a: &Checkpoint, b: &Checkpoint| {
        a.tensors
            .iter()
            .zip(&b.tensors)
            .all(|(a, b)| a.name == b.name)
    };
    if let Some((model, tokenizer)) = write(&read, LeapFormat::F32) {
        let again = parse(&model, &tokenizer).expect("a written model is valid");
        assert!(same(&read, &again));
        assert_eq!(
            write(&again, LeapFormat::F32).expect("an accepted model can be written"),
            (model, tokenizer)
        );
    }
    if let Some((model, tokenizer)) = write(&read, LeapFormat::Int8 { group_size: 64 }) {
        assert!(same(
            &read,
            &parse(&model, &tokenizer).expect("a written model is valid")
        ));
    }
});

fn parse(model: &[u8], tokenizer: &[u8]) -> Option<Checkpoint> {
    llama2c::parse(
        Path::new("m"),
        Arc::new(model.to_vec()),
        Path::new("t"),
        tokenizer,
    )
    .ok()
}

fn write(checkpoint: &Checkpoint, to: LeapFormat) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut model = Vec::new();
    let mut tokenizer = Vec::new();
    llama2c::write(checkpoint, to, &mut model, &mut tokenizer, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .ok()?;
    Some((model, tokenizer))
}

/// The number of tokens in the header of the model.
fn n_vocab(model: &[u8]) -> usize {
    let at = if model.starts_with(b"24ka") { 28 } else { 20 };
    let n = model
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |&b| i32::from_le_bytes(b));
    (n.unsigned_abs() as usize).min(MAX_VOCAB)
}

/// A valid vocabulary of that length, if it is long enough for one.
fn vocabulary(n: usize) -> Vec<u8> {
    let entry = |id: usize| {
        [
            &(-(id as f32)).to_le_bytes()[..],
            &2u32.to_le_bytes(),
            &[b'a', id as u8],
        ]
        .concat()
    };
    let golden = TOKENIZER.to_vec();
    [golden, (261..n.max(261)).flat_map(entry).collect()].concat()
}
