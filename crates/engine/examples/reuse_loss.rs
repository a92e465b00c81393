//! Measures the loss where the keys of a later part of a prompt are moved instead of computed
//! (`--cache-reuse`).
//!
//! ```text
//! python benches/server/agent.py --write agent.txt --tokens 2000
//! cargo run --release -p atta-engine --example reuse_loss -- MODEL.gguf agent.txt [SCORED [TURNS]]
//! ```
//! The second line of the text is replaced in every turn. All behind it is moved from the turn
//! before, except the last SCORED tokens (256), whose logits are compared with those of the exact
//! state: KL divergence, the loss of the text, and how often the best token is the same. The last
//! column is the divergence between two exact turns: how much the line itself matters.

use std::{env, error::Error, fs, num::NonZeroUsize, path::Path, sync::Arc};

use atta_engine::tokenizer::{Special, Tokenizer};
use atta_kernels::{Kernels, Pool};
use atta_model::{Batch, Cpu, Executor, ExecutorSize, KvType, Model, Output, SeqId, Want};
use atta_store::{Budget, ModelFiles};

/// Tokens of a batch.
const N_BATCH: usize = 256;

/// The second lines of the turns, of different lengths.
const LINES: [&str; 4] = [
    "Now: Sunday 7:05, message 1.",
    "Now: Sunday 7:22 in the morning, message 2.",
    "Now: Monday 23:59, message 3000.",
    "The session began at 08:14:33.",
];

/// A prompt whose second line changes.
struct Prompt {
    front: Vec<u32>,
    lines: Vec<Vec<u32>>,
    behind: Vec<u32>,
    scored: Vec<u32>,
}

impl Prompt {
    fn read(tokenizer: &Tokenizer, text: &str, n_scored: usize) -> Result<Self, Box<dyn Error>> {
        let parts: Vec<&str> = text.splitn(3, '\n').collect();
        let [front, _, behind] = parts[..] else {
            return Err("a text of three lines or more is expected".into());
        };
        let after = |text: &str| tokenizer.encode_after(text, Special::Plain);
        let mut behind = after(behind);
        let n = behind.len().checked_sub(n_scored);
        let scored = behind.split_off(n.ok_or("fewer tokens than are scored")?);
        let front = tokenizer.encode(format!("{front}\n").as_bytes(), Special::Plain);
        Ok(Self {
            front: tokenizer
                .bos()
                .filter(|_| tokenizer.add_bos())
                .into_iter()
                .chain(front)
                .collect(),
            lines: LINES
                .iter()
                .map(|line| after(&format!("{line}\n")))
                .collect(),
            behind,
            scored,
        })
    }

    /// The tokens in front of the scored ones.
    fn turn(&self, turn: usize) -> Vec<u32> {
        [&self.front, self.line(turn), &self.behind]
            .map(Vec::as_slice)
            .concat()
    }

    fn line(&self, turn: usize) -> &Vec<u32> {
        &self.lines[turn % self.lines.len()]
    }

    /// Tokens in front of those that are moved.
    fn n_front(&self, turn: usize) -> usize {
        self.front.len() + self.line(turn).len()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [model, text, numbers @ ..] = args.as_slice() else {
        return Err("usage: reuse_loss MODEL TEXT [SCORED [TURNS]]".into());
    };
    let number = |i: usize, default: usize| numbers.get(i).map_or(Ok(default), |n| n.parse());
    let files = ModelFiles::open(Path::new(model))?;
    let tokenizer = Tokenizer::from_metadata(files.directory().metadata())?;
    let prompt = Prompt::read(&tokenizer, &fs::read_to_string(text)?, number(0, 256)?)?;
    let model = Arc::new(Model::load(files, &Budget::unlimited())?);
    println!(
        "| turn | moved | KLD | loss exact | loss moved | same best token | KLD of the line |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut cpu = executor(&model, prompt.turn(1).len() + prompt.scored.len() + 64)?;
    let mut donor = cpu.new_seq()?;
    append(&mut cpu, donor, &prompt.turn(0), Want::Nothing)?;
    let mut exact_before = exact(&mut cpu, &prompt, 0)?;
    for turn in 1..=number(1, 6)? {
        let moved = cpu.new_seq()?;
        let front = [&prompt.front, prompt.line(turn)]
            .map(Vec::as_slice)
            .concat();
        append(&mut cpu, moved, &front, Want::Nothing)?;
        let from = prompt.n_front(turn - 1);
        cpu.append_moved(donor, from..from + prompt.behind.len(), moved)?;
        let got = append(&mut cpu, moved, &prompt.scored, Want::Logits)?;
        let expected = exact(&mut cpu, &prompt, turn)?;
        println!(
            "| {turn} | {} | {:.5} | {:.4} | {:.4} | {:.2} % | {:.5} |",
            prompt.behind.len(),
            divergence(&expected, &got),
            loss(&expected, &prompt.scored),
            loss(&got, &prompt.scored),
            100.0 * same_best(&expected, &got),
            divergence(&expected, &exact_before),
        );
        cpu.drop_seq(donor)?;
        cpu.truncate(moved, front.len() + prompt.behind.len())?;
        (donor, exact_before) = (moved, expected);
    }
    Ok(())
}

fn executor(model: &Arc<Model>, n_ctx: usize) -> Result<Cpu, Box<dyn Error>> {
    let n_threads = NonZeroUsize::new(Pool::default_threads()).unwrap_or(NonZeroUsize::MIN);
    let size = ExecutorSize {
        n_ctx,
        n_seqs: 3,
        n_batch: N_BATCH,
        kv: KvType::F16,
        ..ExecutorSize::default()
    };
    let pool = Arc::new(Pool::new(n_threads));
    let model = Arc::clone(model);
    Ok(Cpu::new(
        model,
        Kernels::detect(),
        pool,
        &Budget::unlimited(),
        size,
    )?)
}

/// Log-probabilities of the scored tokens of a turn, from its exact state.
fn exact(cpu: &mut Cpu, prompt: &Prompt, turn: usize) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
    let seq = cpu.new_seq()?;
    append(cpu, seq, &prompt.turn(turn), Want::Nothing)?;
    let rows = append(cpu, seq, &prompt.scored, Want::Logits)?;
    cpu.drop_seq(seq)?;
    Ok(rows)
}

/// Appends tokens; log-probabilities behind each, `[n_vocab]`, if they are wanted.
fn append(
    cpu: &mut Cpu,
    seq: SeqId,
    ids: &[u32],
    want: Want,
) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
    let mut batch = Batch::default();
    let mut out = Output::default();
    let mut rows = Vec::new();
    for chunk in ids.chunks(N_BATCH) {
        batch.clear();
        let start = cpu.seqs().len(seq)?;
        for (i, &id) in chunk.iter().enumerate() {
            batch.push_token(seq, start + i, id, want);
        }
        cpu.step(&batch, &mut out)?;
        if want == Want::Logits {
            rows.extend((0..chunk.len()).map(|i| log_softmax(out.logits(i))));
        }
    }
    Ok(rows)
}

fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|z| f64::from(z - max).exp()).sum();
    let log_sum = max + sum.ln() as f32;
    logits.iter().map(|z| z - log_sum).collect()
}

/// The mean over tokens of `Σ p ln(p / q)`, nats.
fn divergence(p: &[Vec<f32>], q: &[Vec<f32>]) -> f64 {
    let of = |(p, q): (&Vec<f32>, &Vec<f32>)| -> f64 {
        let terms = p
            .iter()
            .zip(q)
            .map(|(&p, &q)| f64::from(p).exp() * f64::from(p - q));
        terms.sum()
    };
    p.iter().zip(q).map(of).sum::<f64>() / p.len() as f64
}

/// The mean of the negative log-probabilities of the tokens that follow, nats.
fn loss(rows: &[Vec<f32>], ids: &[u32]) -> f64 {
    let next = rows.iter().zip(&ids[1..]);
    let sum: f64 = next.map(|(row, &id)| -f64::from(row[id as usize])).sum();
    sum / (ids.len() - 1) as f64
}

fn same_best(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let best = |row: &Vec<f32>| {
        let all = row.iter().enumerate();
        all.max_by(|x, y| x.1.total_cmp(y.1)).map(|(i, _)| i)
    };
    let same = a.iter().zip(b).filter(|(a, b)| best(a) == best(b));
    same.count() as f64 / a.len() as f64
}
