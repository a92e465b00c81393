//! Writes several texts at once: `cargo run --release --example batch [MODEL.gguf]`. Each is the
//! same, bit for bit, as alone.

use std::{collections::BTreeMap, env, ops::ControlFlow, path::Path, time::Duration};

use atta::{
    Batcher, BatcherOptions, Engine, Event, GenerateOptions, Job, LoadOptions, SessionOptions,
    Update, builtin,
};

const PROMPTS: [&str; 3] = ["Once upon a time", "One cold morning", "The little fox"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Memory for all sequences is planned when the model is loaded.
    let n_jobs = PROMPTS.len();
    let session = SessionOptions {
        n_ctx: Some(256),
        n_forks: n_jobs - 1,
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
            n_jobs,
            max_gap,
            cache: None,
        },
    )?;

    let options = GenerateOptions {
        n_predict: 32,
        ..GenerateOptions::default()
    };
    let mut texts = BTreeMap::new();
    for prompt in PROMPTS {
        let job = Job::new(&engine, engine.prompt_ids(prompt.as_bytes()), &options)?;
        texts.insert(batcher.submit(job)?, prompt.to_owned());
    }
    while !batcher.is_idle() {
        batcher.step(&mut |id, update| {
            if let (Update::Event(Event::Text(text)), Some(all)) = (update, texts.get_mut(&id)) {
                all.push_str(&text);
            }
            ControlFlow::Continue(())
        })?;
    }
    texts.values().for_each(|text| println!("{text}\n"));
    Ok(())
}
