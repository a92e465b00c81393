//! Compares texts by their vectors: `cargo run --release --example embeddings [MODEL.gguf]`.

use std::{collections::BTreeMap, env, ops::ControlFlow, path::Path, time::Duration};

use atta::{
    Batcher, BatcherOptions, Engine, Job, LoadOptions, Pooling, SessionOptions, Update, builtin,
};

const TEXTS: [&str; 3] = [
    "The lamp is on.",
    "It is bright here.",
    "Three ounces of flour.",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = SessionOptions {
        n_ctx: Some(64),
        n_forks: TEXTS.len() - 1,
        ..SessionOptions::default()
    };
    let options = LoadOptions {
        session: session.clone(),
        ..LoadOptions::default()
    };
    let engine = match env::args().nth(1) {
        Some(path) => Engine::open(Path::new(&path), &options)?,
        None => Engine::from_static(builtin().name, builtin().bytes, &options)?,
    };
    let max_gap = Duration::from_millis(100);
    let mut batcher = Batcher::new(
        &engine,
        &BatcherOptions {
            session,
            n_jobs: TEXTS.len(),
            max_gap,
            cache: None,
        },
    )?;

    // The mean of all hidden states works with any model; embedding models say which pooling they
    // were trained with.
    let pooling = Pooling::of_model(&engine).unwrap_or(Pooling::Mean);
    for text in TEXTS {
        batcher.submit(Job::embedding(
            engine.embedding_ids(text.as_bytes()),
            pooling,
        ))?;
    }
    let mut vectors = BTreeMap::new();
    while !batcher.is_idle() {
        batcher.step(&mut |id, update| {
            if let Update::Embedding(vector) = update {
                vectors.insert(id, vector.to_vec());
            }
            ControlFlow::Continue(())
        })?;
    }

    // Vectors have length 1, so that their product is the cosine of the angle between them.
    let vectors: Vec<Vec<f32>> = vectors.into_values().collect();
    for (text, vector) in TEXTS.iter().zip(&vectors) {
        let cosines = vectors
            .iter()
            .map(|other| vector.iter().zip(other).map(|(a, b)| a * b).sum::<f32>());
        let row: Vec<String> = cosines.map(|cosine| format!("{cosine:6.3}")).collect();
        println!("{}  {text}", row.join(" "));
    }
    Ok(())
}
