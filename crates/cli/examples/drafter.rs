//! Guesses the next tokens by hand: `cargo run --release --example drafter [MODEL.gguf]`.
//!
//! The drafter here knows a text that may come, word for word. Whether it is right decides how many
//! steps the text takes, and never what the text is.

use std::{env, ops::ControlFlow, path::Path};

use atta::{
    Draft, DraftSource, Drafter, Engine, Error, Event, GenerateOptions, LoadOptions, Sampling,
    SessionOptions, Speculation, SpeculationPolicy, builtin,
};

/// Guesses that a known text goes on where its last token was written.
#[derive(Clone, Debug)]
struct Known(Vec<u32>);

impl DraftSource for Known {
    fn drafter(&self, _target: &Engine) -> Result<Box<dyn Drafter>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Drafter for Known {
    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        let last = self.0.iter().position(|id| Some(id) == tokens.last());
        let rest = last.map_or(&[][..], |at| &self.0[at + 1..]);
        draft.tokens.extend(rest.iter().take(n_max));
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = LoadOptions::default();
    let engine = match env::args().nth(1) {
        Some(path) => Engine::open(Path::new(&path), &options)?,
        None => Engine::from_static(builtin().name, builtin().bytes, &options)?,
    };
    let known = engine.prompt_ids(b" there was a little girl named Lily. She loved to play.");
    let options = GenerateOptions {
        n_predict: 48,
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        speculation: Some(Speculation {
            policy: SpeculationPolicy::Always,
            ..Speculation::new(Known(known))
        }),
        ..GenerateOptions::default()
    };
    let mut session = engine.session(&SessionOptions::default())?;
    let prompt = engine.prompt_ids(b"Once upon a time,");
    let summary = session.generate(&prompt, &options)?.run(|event| {
        if let Event::Text(text) = event {
            print!("{text}");
        }
        ControlFlow::Continue(())
    })?;
    println!("\n{:?}", summary.speculation);
    Ok(())
}
