//! The loss of KV caches in fewer bits than f32: `cargo run --release -p atta-benches --bin kv_loss
//! MODEL TEXT [TOKENS]`. For each type of the KV cache it prints the mean over tokens of the
//! Kullback-Leibler divergence of the next token's probabilities from those with f32, in nats, and
//! the standard error of that mean. The text is evaluated in pieces of 2,048 tokens. Logits are
//! compared as f32, in one process; `atta perplexity --kl` rounds them to 16 bits.

use std::{path::Path, sync::Arc};

use atta_engine::{Engine, LoadOptions};
use atta_model::{Batch, Cpu, Executor, ExecutorSize, KvType, Output, SeqId, Want};

/// Positions of a piece.
const N_CTX: usize = 2048;
/// Rows of a batch: so many rows of logits are in memory for each type.
const N_BATCH: usize = 64;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, text, rest @ ..] = &args[..] else {
        panic!("kv_loss MODEL TEXT [TOKENS]");
    };
    let n_tokens = rest
        .first()
        .map_or(20_480, |n| n.parse().expect("a number of tokens"));
    let engine = Engine::open(Path::new(model), &LoadOptions::default()).expect("a model");
    let text = std::fs::read(text).expect("a text");
    let ids = engine.prompt_ids(&text);
    let ids = &ids[..n_tokens.min(ids.len())];
    println!("{model}: {} tokens, {}", ids.len(), engine.kernels().isa());

    let mut truth = Evaluation::new(&engine, KvType::F32);
    let types = [("f16", KvType::F16), ("q8", KvType::Q8), ("q4", KvType::Q4)];
    let mut others = types.map(|(_, kv)| (Evaluation::new(&engine, kv), Mean::default()));
    for piece in ids.chunks(N_CTX) {
        truth.begin();
        others.iter_mut().for_each(|(other, _)| other.begin());
        for ids in piece.chunks(N_BATCH) {
            truth.step(ids);
            for (other, mean) in &mut others {
                other.step(ids);
                for row in 0..ids.len() {
                    mean.add(divergence(truth.out.logits(row), other.out.logits(row)));
                }
            }
        }
    }
    for ((name, _), (_, mean)) in types.iter().zip(&others) {
        println!("{name}: {:.3e} ± {:.1e}", mean.value(), mean.error());
    }
}

/// One type of the KV cache, evaluating a piece of the text.
struct Evaluation {
    cpu: Cpu,
    seq: SeqId,
    out: Output,
}

impl Evaluation {
    fn new(engine: &Engine, kv: KvType) -> Self {
        let size = ExecutorSize {
            n_ctx: N_CTX,
            n_batch: N_BATCH,
            kv,
            ..ExecutorSize::default()
        };
        let model = Arc::clone(engine.model());
        let pool = Arc::clone(engine.pool());
        let mut cpu = Cpu::new(model, engine.kernels(), pool, engine.budget(), size)
            .expect("room for an executor");
        let seq = cpu.new_seq().expect("room for a sequence");
        let out = Output::default();
        Self { cpu, seq, out }
    }

    /// Begins the next piece.
    fn begin(&mut self) {
        self.cpu.truncate(self.seq, 0).expect("an empty sequence");
    }

    fn step(&mut self, ids: &[u32]) {
        let n = self.cpu.seqs().len(self.seq).expect("a sequence");
        let mut batch = Batch::default();
        for (i, &id) in ids.iter().enumerate() {
            batch.push_token(self.seq, n + i, id, Want::Logits);
        }
        self.cpu.step(&batch, &mut self.out).expect("logits");
    }
}

/// `Σ p ln(p / q)` of the probabilities that logits stand for, `[n_vocab]` each.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let [zp, zq] = [p, q].map(log_sum);
    let terms = p.iter().zip(q).map(|(&p, &q)| {
        let p = f64::from(p) - zp;
        p.exp() * (p - (f64::from(q) - zq))
    });
    terms.sum()
}

/// `ln Σ exp(logit)`.
fn log_sum(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&z| (f64::from(z) - max).exp()).sum();
    max + sum.ln()
}

/// A mean and its standard error.
#[derive(Default)]
struct Mean {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Mean {
    fn add(&mut self, x: f64) {
        self.n += 1.0;
        self.sum += x;
        self.squares += x * x;
    }

    fn value(&self) -> f64 {
        self.sum / self.n
    }

    fn error(&self) -> f64 {
        let variance = self.squares / self.n - self.value() * self.value();
        (variance.max(0.0) / self.n).sqrt()
    }
}
