//! Speculation with guesses of a known quality:
//! `cargo run --release -p atta-benches --bin replay -- MODEL.gguf [RAM_MB [N_TOKENS [ISA]]]`.
//!
//! A text is written once without guesses. Then it is written again, and guessed from the first
//! one, each token right with probability p. With RAM_MB the weights that do not fit are read from
//! the disk for every step, else the model is mapped. Printed beside the measurements is the
//! formula: a step of k guesses writes t = (1 - p^(k+1)) / (1 - p) tokens (Leviathan et al. 2023,
//! section 3) and takes as long as reading, or as computing k + 1 rows, whichever is longer.

use std::{env, ops::ControlFlow, path::Path, sync::Arc, time::Instant};

use atta_engine::{
    Draft, DraftSource, Drafter, Engine, Error, Generate, GenerateOptions, LoadOptions, Sampling,
    Session, SessionOptions, Speculation, SpeculationPolicy, Summary, WeightsAt,
};

const RIGHT: [f64; 4] = [0.5, 0.7, 0.8, 0.9];
const GUESSED: [usize; 4] = [1, 2, 4, 8];
const PROMPT: usize = 8;
/// Rows of a batch whose time is that of arithmetic.
const ROWS: usize = 64;
const MB: u64 = 1 << 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Guesses what follows in a known text, each token right with probability `p`.
#[derive(Clone, Debug)]
struct Replay {
    text: Arc<[u32]>,
    p: f64,
}

impl DraftSource for Replay {
    fn drafter(&self, _target: &Engine) -> Result<Box<dyn Drafter>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Drafter for Replay {
    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        let places = tokens.len()..self.text.len().min(tokens.len() + n_max);
        draft.tokens.extend(places.map(|at| {
            let wrong = u32::from(uniform(at) >= self.p);
            self.text[at] ^ wrong
        }));
        Ok(())
    }
}

/// A number in [0, 1) that depends on the place in the text only (Steele et al. 2014, SplitMix64).
fn uniform(at: usize) -> f64 {
    let mut z = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as f64 / 2f64.powi(64)
}

/// The model of the measurements.
struct Bench {
    engine: Engine,
    n_tokens: usize,
}

impl Bench {
    fn open() -> Outcome<Self> {
        let args: Vec<String> = env::args().skip(1).collect();
        let number = |i: usize| args.get(i).map(|n| n.parse::<u64>()).transpose();
        let model = args.first().ok_or("expected MODEL.gguf")?;
        let ram_mb = number(1)?.filter(|&mb| mb > 0);
        let options = LoadOptions {
            weights: Some(match ram_mb {
                Some(_) => WeightsAt::Streamed,
                None => WeightsAt::Mapped,
            }),
            ram_budget: ram_mb.map(|mb| mb * MB),
            isa: args.get(3).cloned(),
            session: session_options(),
            ..LoadOptions::default()
        };
        Ok(Self {
            engine: Engine::open(Path::new(model), &options)?,
            n_tokens: number(2)?.unwrap_or(48) as usize,
        })
    }

    fn session(&self) -> Outcome<Session> {
        Ok(self.engine.session(&session_options())?)
    }

    /// Writes the text; returns its tokens with those of the prompt, and how it went.
    fn write(&self, speculation: Option<Speculation>) -> Outcome<(Vec<u32>, Summary)> {
        let options = GenerateOptions {
            n_predict: self.n_tokens,
            sampling: Sampling {
                temperature: 0.0,
                ..Sampling::default()
            },
            speculation,
            ..GenerateOptions::default()
        };
        let mut session = self.session()?;
        let prompt = prompt(PROMPT);
        let written: Generate<'_> = session.generate(&prompt, &options)?;
        let summary = written.run(|_| ControlFlow::Continue(()))?;
        let tokens = [session.tokens(), &summary.pending].concat();
        Ok((tokens, summary))
    }

    /// Seconds of a batch of [`ROWS`] rows, the second one of a session.
    fn batch_seconds(&self) -> Outcome<f64> {
        let mut session = self.session()?;
        session.append(&prompt(ROWS))?;
        let start = Instant::now();
        session.append(&prompt(ROWS))?;
        Ok(start.elapsed().as_secs_f64())
    }
}

fn session_options() -> SessionOptions {
    SessionOptions {
        n_ctx: Some(1024),
        n_batch: Some(ROWS),
        n_draft: 8,
        draft_states: true,
        ..SessionOptions::default()
    }
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| 1 + i * 7 % 97).collect()
}

/// Seconds per token.
fn per_token(summary: &Summary) -> f64 {
    summary.decode_time.as_secs_f64() / summary.n_generated.max(1) as f64
}

/// The text and its times.
struct Plain {
    text: Arc<[u32]>,
    /// Seconds of a token.
    token: f64,
    /// Seconds of a row of a batch.
    row: f64,
}

impl Plain {
    /// Writes the text again, with guesses of `k` tokens that are right with probability `p`.
    fn again(&self, bench: &Bench, p: f64, k: usize) -> Outcome<Summary> {
        let replay = Replay {
            text: Arc::clone(&self.text),
            p,
        };
        let (text, summary) = bench.write(Some(Speculation {
            n_max: k,
            policy: SpeculationPolicy::Always,
            ..Speculation::new(replay)
        }))?;
        match text == *self.text {
            true => Ok(summary),
            false => Err(format!("p {p}, k {k}: another text").into()),
        }
    }

    /// A line of the table.
    fn line(&self, bench: &Bench, p: f64, k: usize) -> Outcome<String> {
        let fast = self.again(bench, p, k)?;
        // The text before and after, since the speed of a disk changes.
        let token = (self.token + per_token(&bench.write(None)?.1)) / 2.0;
        let steps = fast.speculation.map_or(1, |stats| stats.n_steps);
        let per_step = fast.n_generated as f64 / steps.max(1) as f64;
        let tokens = (1.0 - p.powi(k as i32 + 1)) / (1.0 - p);
        let gain = token / per_token(&fast);
        let expected = tokens / (self.row * (k + 1) as f64 / token).max(1.0);
        let share = gain / expected;
        Ok(format!(
            "| {p} | {k} | {per_step:.2} | {tokens:.2} | {gain:.2} | {expected:.2} | {share:.2} |"
        ))
    }
}

fn main() -> Outcome<()> {
    let bench = Bench::open()?;
    let (text, summary) = bench.write(None)?;
    let plain = Plain {
        text: text.into(),
        token: per_token(&summary),
        row: bench.batch_seconds()? / ROWS as f64,
    };
    let Plain { token, row, .. } = &plain;
    println!("one token {token:.4} s, a row of {ROWS} {row:.4} s");
    println!(
        "| p | k | tokens per step | by formula | speed-up | by formula | measured / formula |"
    );
    println!("|---|---|---|---|---|---|---|");
    for p in RIGHT {
        for k in GUESSED {
            println!("{}", plain.line(&bench, p, k)?);
        }
    }
    Ok(())
}
