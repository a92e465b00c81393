//! Holds our logits, and those of another program, against the oracle on the same file.
//!
//! ```text
//! cargo run --release -p atta-model --example distance -- MODEL.gguf IDS.txt [OTHER.logits]
//! ```
//! `IDS.txt` holds token ids, separated by commas or spaces. `OTHER.logits` is f32 little-endian,
//! [n_tokens, n_vocab].

use std::{env, error::Error, fs, num::NonZeroUsize, path::Path, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_model::{Batch, Cpu, Executor, ExecutorSize, KvType, Model, Output, Want, oracle};
use atta_store::{Budget, ModelFiles};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [model, ids, others @ ..] = args.as_slice() else {
        return Err("usage: distance MODEL IDS [OTHER]".into());
    };
    let budget = Budget::unlimited();
    let files = ModelFiles::open(Path::new(model))?;
    let model = Arc::new(Model::load(files, &budget)?);
    let ids = fs::read_to_string(ids)?;
    let ids: Vec<u32> = ids
        .split([',', ' ', '\n', '[', ']'])
        .filter(|s| !s.is_empty())
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let truth = oracle::logits(&model, &ids)?;
    println!(
        "ours:  nmse {:.3e} from the oracle",
        nmse(&forward(model, &ids, &budget)?, &truth)
    );
    for other in others {
        let logits = fs::read(other)?;
        let logits: Vec<f32> = logits
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect();
        println!(
            "other: nmse {:.3e} from the oracle ({other})",
            nmse(&logits, &truth)
        );
    }
    Ok(())
}

fn forward(model: Arc<Model>, ids: &[u32], budget: &Budget) -> Result<Vec<f32>, Box<dyn Error>> {
    let pool = Arc::new(Pool::new(
        NonZeroUsize::new(Pool::default_threads()).unwrap_or(NonZeroUsize::MIN),
    ));
    let options = ExecutorSize {
        n_ctx: ids.len(),
        n_batch: ids.len(),
        kv: KvType::F32,
        ..ExecutorSize::default()
    };
    let mut cpu = Cpu::new(model, Kernels::detect(), pool, budget, options)?;
    let seq = cpu.new_seq()?;
    let mut batch = Batch::default();
    let mut out = Output::default();
    ids.iter()
        .enumerate()
        .for_each(|(pos, &id)| batch.push_token(seq, pos, id, Want::Logits));
    cpu.step(&batch, &mut out)?;
    Ok((0..ids.len())
        .flat_map(|i| out.logits(i).iter().copied())
        .collect())
}

/// `Σ (a - b)² / Σ b²`.
fn nmse(a: &[f32], b: &[f32]) -> f64 {
    let error: f64 = a
        .iter()
        .zip(b)
        .map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2))
        .sum();
    error / b.iter().map(|&b| f64::from(b).powi(2)).sum::<f64>()
}
