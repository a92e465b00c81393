//! Compares texts by their vectors: `cargo run --release --example embeddings [MODEL.gguf]`.

use std::{env, path::Path};

use atta::{EmbedOptions, Engine, LoadOptions, Pooling, SessionOptions, builtin};

const TEXTS: [&str; 3] = [
    "The lamp is on.",
    "It is bright here.",
    "Three ounces of flour.",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = EmbedOptions {
        pooling: None,
        session: SessionOptions {
            n_ctx: Some(64),
            ..SessionOptions::default()
        },
    };
    let load = LoadOptions {
        session: options.planned_session(),
        ..LoadOptions::default()
    };
    let engine = match env::args().nth(1) {
        Some(path) => Engine::open(Path::new(&path), &load)?,
        None => Engine::from_static(builtin().name, builtin().bytes, &load)?,
    };
    // The mean of all hidden states works with any model; embedding models say which pooling they
    // were trained with.
    options.pooling = Some(Pooling::of_model(&engine).unwrap_or(Pooling::Mean));
    let vectors = engine.embed(&TEXTS, &options)?;

    // Vectors have length 1, so that their product is the cosine of the angle between them.
    for (text, vector) in TEXTS.iter().zip(&vectors) {
        let cosines = vectors
            .iter()
            .map(|other| vector.iter().zip(other).map(|(a, b)| a * b).sum::<f32>());
        let row: Vec<String> = cosines.map(|cosine| format!("{cosine:6.3}")).collect();
        println!("{}  {text}", row.join(" "));
    }
    Ok(())
}
