//! A conversation of two messages with the model's own chat template: `cargo run --release
//! --example chat [MODEL.gguf]`.

use std::{env, ops::ControlFlow, path::Path};

use atta::{
    Engine, Event, GenerateOptions, LoadOptions, SessionOptions, builtin,
    chat::{Chat, Template},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = LoadOptions::default();
    let engine = match env::args().nth(1) {
        Some(path) => Engine::open(Path::new(&path), &options)?,
        None => Engine::from_static(builtin().name, builtin().bytes, &options)?,
    };
    let (template, _) = Template::of_model(&engine.templates())?;
    let mut chat = Chat::new(engine.session(&SessionOptions::default())?, template);

    let options = GenerateOptions {
        n_predict: 64,
        ..GenerateOptions::default()
    };
    for message in ["Hello!", "Please tell me a story about a bee."] {
        println!("> {message}");
        // The state of earlier turns is reused.
        chat.say(message, &options, |event| {
            if let Event::Text(text) = event {
                print!("{text}");
            }
            ControlFlow::Continue(())
        })?;
        println!();
    }
    Ok(())
}
