//! Generates text: `cargo run --release --example generate [MODEL.gguf]`.

use std::{
    env,
    io::{self, Write},
    path::Path,
};

use atta::{Engine, Event, GenerateOptions, LoadOptions, SessionOptions, builtin};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = LoadOptions::default();
    let engine = match env::args().nth(1) {
        Some(path) => Engine::open(Path::new(&path), &options)?,
        None => Engine::from_static(builtin().name, builtin().bytes, &options)?,
    };
    let mut session = engine.session(&SessionOptions::default())?;

    let prompt = engine.prompt_ids(b"Once upon a time");
    let options = GenerateOptions {
        n_predict: 64,
        ..GenerateOptions::default()
    };
    let mut events = session.generate(&prompt, &options)?;
    for event in &mut events {
        if let Event::Text(text) = event? {
            print!("{text}");
            // Stop when the output is closed.
            if io::stdout().flush().is_err() {
                break;
            }
        }
    }
    let summary = events.into_summary()?;

    println!();
    eprintln!(
        "{} tokens at {:.0} per second",
        summary.n_generated,
        summary.decode_tok_s()
    );
    Ok(())
}
