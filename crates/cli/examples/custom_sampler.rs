//! Samples tokens by hand, from the logits of each step: `cargo run --release --example
//! custom_sampler [MODEL.gguf]`.
//!
//! The sampler here is one that the library does not have: of the two most probable tokens it takes
//! the shorter one.

use std::{env, path::Path};

use atta::{Engine, LoadOptions, SessionOptions, builtin};

/// The ids of the two largest logits, the largest first.
fn best_two(logits: &[f32]) -> [u32; 2] {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    ids.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
    [ids[0], ids[1]]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = LoadOptions::default();
    let engine = match env::args().nth(1) {
        Some(path) => Engine::open(Path::new(&path), &options)?,
        None => Engine::from_static(builtin().name, builtin().bytes, &options)?,
    };
    let mut session = engine.session(&SessionOptions::default())?;
    let tokenizer = engine.tokenizer();

    session.append(&engine.prompt_ids(b"Once upon a time"))?;
    while session.tokens().len() < 48 {
        let logits = session.logits().ok_or("no token has been evaluated")?;
        let [first, second] = best_two(logits);
        let is_shorter = tokenizer.token_bytes(second).len() < tokenizer.token_bytes(first).len();
        let token = if is_shorter && !tokenizer.is_eog(second) {
            second
        } else {
            first
        };
        if tokenizer.is_eog(token) {
            break;
        }
        session.append(&[token])?;
    }
    println!(
        "{}",
        String::from_utf8_lossy(&tokenizer.decode(session.tokens()))
    );
    Ok(())
}
