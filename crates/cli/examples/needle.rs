//! What a window forgets: how often the story model (tools/builtin-model/stories) recalls a name
//! that it has read so many tokens ago.
//!
//! `cargo run --release --example needle [WINDOW …]` prints a table: distance, and for the full
//! context and each window (`--window N --sinks 4`) how often the name is more probable than all
//! the other names, by its first token. The names are in no story that the model was trained on,
//! and the text before and between contains no names.

use std::path::Path;

use atta::{Engine, LoadOptions, Overflow, Session, SessionOptions};

/// The context that the model was trained for.
const N_CTX: usize = 512;
const SINKS: usize = 4;
const DISTANCES: [usize; 8] = [16, 32, 48, 64, 80, 96, 112, 128];

const NAMES: [&str; 8] = [
    "Zorvi", "Belku", "Tamsin", "Dragol", "Munib", "Ferax", "Gwenda", "Halvo",
];

/// Sentences of the story world without names.
const BETWEEN: [&str; 12] = [
    "The sun was hot, and the path was long.",
    "The wind blew over the hill.",
    "Then the rain came, and everything was wet.",
    "The old mill stood by the stream.",
    "The road went up the hill and down the other side.",
    "The trees were green, and the birds sang.",
    "Far away, a bell rang in the village.",
    "The stars came out, one by one.",
    "The snow lay on the roofs.",
    "The river was wide and deep.",
    "The first flowers were opening.",
    "The boat went on and on.",
];

/// Words after which a story says who.
const BEFORE: &str = " \"Look!\" said";

fn main() -> Result<(), atta::Error> {
    let windows: Vec<usize> = std::env::args()
        .skip(1)
        .map(|n| n.parse().expect("a number of tokens"))
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    let engine = Engine::open(&path, &LoadOptions::default())?;
    let full = SessionOptions {
        n_ctx: Some(N_CTX),
        ..SessionOptions::default()
    };
    let window = |&n| SessionOptions {
        n_ctx: Some(n),
        overflow: Overflow::Shift { n_keep: SINKS },
        ..full.clone()
    };
    let kinds: Vec<SessionOptions> = [full.clone()]
        .into_iter()
        .chain(windows.iter().map(window))
        .collect();
    let mut sessions = kinds
        .iter()
        .map(|options| engine.session(options))
        .collect::<Result<Vec<_>, _>>()?;
    let heads: String = windows.iter().map(|n| format!(" window {n} |")).collect();
    println!("| tokens ago | full context |{heads}");
    println!("|---|---|{}", "---|".repeat(windows.len()));
    for distance in DISTANCES {
        let mut row = format!("| {distance} |");
        for session in &mut sessions {
            let n = recalled(session, distance)?;
            row += &format!(
                " {:.0} % |",
                100.0 * n as f64 / (NAMES.len() * BETWEEN.len()) as f64
            );
        }
        println!("{row}");
    }
    Ok(())
}

/// How many of the names come to its mind that were said so many tokens ago.
fn recalled(session: &mut Session, distance: usize) -> Result<usize, atta::Error> {
    let mut n = 0;
    for name in NAMES {
        for start in 0..BETWEEN.len() {
            session.truncate(0)?;
            session.append(&story(session.engine(), name, start, distance))?;
            let logits = session.logits().expect("tokens were appended");
            let logit = |name: &str| logits[ids(session.engine(), name)[0] as usize];
            n += usize::from(
                NAMES
                    .iter()
                    .all(|other| logit(other) < logit(name) || *other == name),
            );
        }
    }
    Ok(n)
}

/// A name, `distance` tokens, and the words after which the name should come again. The text before
/// the name varies in length, so that windows meet it at different points.
fn story(engine: &Engine, name: &str, start: usize, distance: usize) -> Vec<u32> {
    let lead = BETWEEN[..start].join(" ");
    let mut story = engine.prompt_ids(lead.as_bytes());
    story.extend(ids(
        engine,
        &format!(" Once upon a time there was a kind child named {name}."),
    ));
    let before = ids(engine, BEFORE);
    story.extend(filler(
        engine,
        start + 1,
        distance.saturating_sub(before.len()),
    ));
    story.extend(before);
    story
}

/// `n` tokens without names, from sentence `start` on.
fn filler(engine: &Engine, start: usize, n: usize) -> Vec<u32> {
    let sentences = BETWEEN.iter().cycle().skip(start);
    sentences
        .flat_map(|sentence| ids(engine, &format!(" {sentence}")))
        .take(n)
        .collect()
}

/// The ids of text within a story: the tokenizer puts a space in front by itself.
fn ids(engine: &Engine, text: &str) -> Vec<u32> {
    engine.tokenizer().encode(
        text.trim_start().as_bytes(),
        atta::tokenizer::Special::Plain,
    )
}
