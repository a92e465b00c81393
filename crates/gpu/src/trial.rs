//! Whether a GPU is faster than the CPU: both compute some layers of a model, a prompt and a few
//! tokens.
//!
//! It knows no file and no user. The one idea: layers of a model take as long as their bytes, so
//! few of them tell the time of all; both results are compared, since a driver may be wrong.

use crate::cpu_part::{CpuPart, open_on_cpu};
use crate::samples::Samples;
use crate::{Budgets, Error, GpuExecutor, GpuPlan, GpuShare, GpuWeights, OpenGpu, PartFiles};
use atta_kernels::{Kernels, Pool};
use atta_model::spec::ModelSpec;
use atta_model::{Batch, Error as ModelError, Executor, ExecutorSize, Output, SeqId, Share, Want};
use atta_store::{Budget, ModelFiles};
use std::sync::Arc;
use std::time::Instant;

/// Layers that are computed, if these can be computed apart.
const MIN_LAYERS: usize = 2;
/// Tokens of the prompt, and behind it one by one.
const N_PROMPT: usize = 64;
const N_TOKENS: usize = 9;
/// The text whose time decides: a prompt, and tokens that are written behind it.
const TEXT_PROMPT: f64 = 512.0;
const TEXT_TOKENS: f64 = 128.0;

/// A model and what might run its last layers.
#[derive(Debug)]
pub struct Trial<'a> {
    /// The GPU.
    pub gpu: &'a OpenGpu,
    /// The model.
    pub spec: &'a ModelSpec,
    /// Its files.
    pub files: &'a ModelFiles,
    /// How it would be divided.
    pub plan: &'a GpuPlan,
    /// The size of executors.
    pub size: &'a ExecutorSize,
    /// What the CPU computes with.
    pub kernels: Kernels,
    /// The CPU's threads.
    pub pool: Arc<Pool>,
}

/// Seconds for all that the plan has on the GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialTimes {
    /// Of a token of a prompt.
    pub prompt_s: f64,
    /// Of a token that is written.
    pub token_s: f64,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialResult {
    /// Layers that were computed.
    pub n_layers: usize,
    /// By the CPU.
    pub cpu: TrialTimes,
    /// By the GPU.
    pub gpu: TrialTimes,
    /// Whether the results are equal to the last bit, where they should be.
    pub is_exact: bool,
}

impl TrialTimes {
    /// Seconds of a prompt of 512 tokens, and 128 tokens behind it.
    pub fn text_s(&self) -> f64 {
        TEXT_PROMPT * self.prompt_s + TEXT_TOKENS * self.token_s
    }
}

impl TrialResult {
    /// Whether the GPU should be taken.
    pub fn takes_gpu(&self) -> bool {
        self.is_exact && self.gpu.text_s() < self.cpu.text_s()
    }
}

/// Seconds of steps, and the bits that they computed.
struct Measured {
    prompt_s: f64,
    token_s: f64,
    bits: Vec<u32>,
}

impl Trial<'_> {
    /// Runs the trial.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a plan without layers; those of opening and running executors.
    pub fn run(&self) -> Result<TrialResult, Error> {
        let directory = self.files.directory();
        let spec = self.spec;
        let part = some_layers(spec, self.plan.share)?;
        let ram = Budget::unlimited();
        let size = trial_size(self.size, &part);
        let of = PartFiles {
            spec,
            part: &part,
            files: self.files,
            adapters: &Arc::default(),
        };
        let cpu = CpuPart {
            kernels: self.kernels,
            pool: Arc::clone(&self.pool),
        };
        let mut on_cpu = open_on_cpu(&of, &size, cpu, &ram)?;
        let cpu = measure(on_cpu.as_mut(), spec)?;
        let mut on_gpu = self.open_on_gpu(&of, &size, &ram)?;
        let gpu = measure(&mut on_gpu, spec)?;
        let compares = on_gpu.info().numerics == on_cpu.info().numerics;
        drop(on_gpu);
        let waiting_s = self.waiting_s()?;
        let bytes = |part: &Share| -> Result<f64, Error> {
            let tensors = part.tensors(spec, directory)?;
            Ok(tensors.iter().map(|tensor| tensor.n_bytes as f64).sum())
        };
        let whole = self.plan.share.on_gpu(spec);
        let layers = Share {
            head: false,
            ..whole.clone()
        };
        let here = bytes(&part)?.max(1.0);
        let scales = [bytes(&layers)? / here, bytes(&whole)? / here];
        Ok(TrialResult {
            n_layers: part.layers.len(),
            cpu: cpu.of_all(scales, 0.0),
            gpu: gpu.of_all(scales, waiting_s),
            is_exact: !compares || gpu.bits == cpu.bits,
        })
    }

    fn open_on_gpu(
        &self,
        of: &PartFiles<'_>,
        size: &ExecutorSize,
        ram: &Budget,
    ) -> Result<GpuExecutor, Error> {
        let OpenGpu { host, budget } = self.gpu;
        let budgets = Budgets { ram, gpu: budget };
        let weights = Arc::new(GpuWeights::upload(host, of, &budgets)?);
        GpuExecutor::new(weights, size, budget, self.kernels.isa())
    }

    /// Seconds of a step without kernels.
    fn waiting_s(&self) -> Result<f64, Error> {
        let mut host = self.gpu.host.lock();
        let buffer = host.buffer(4)?;
        let times = (0..N_TOKENS).map(|_| {
            let start = Instant::now();
            host.read(buffer, 0, &mut [0; 4])?;
            Ok(start.elapsed().as_secs_f64())
        });
        let times = times.collect::<Result<Vec<_>, Error>>();
        host.free(buffer);
        times.map(median)
    }
}

/// The last layers of a share that can be computed apart.
fn some_layers(spec: &ModelSpec, share: GpuShare) -> Result<Share, Error> {
    let of = |n_layers: usize| Share {
        head: false,
        ..GpuShare { n_layers }.on_gpu(spec)
    };
    if share.n_layers == 0 {
        return Err(Error::Unsupported("there is room for no layer".to_owned()));
    }
    let is_apart = |n: &usize| spec.check_separable(&of(*n).layers).is_ok();
    let n = (MIN_LAYERS..share.n_layers).find(is_apart);
    Ok(of(n.unwrap_or(share.n_layers)))
}

fn trial_size(size: &ExecutorSize, part: &Share) -> ExecutorSize {
    ExecutorSize {
        n_ctx: N_PROMPT + N_TOKENS,
        n_batch: N_PROMPT,
        kv: size.kv,
        part: Some(part.clone()),
        ..ExecutorSize::default()
    }
}

impl Measured {
    /// The times of parts that are larger: of a prompt, which needs no head for most tokens, and of
    /// a token. Of each step `waiting_s` is for no computation.
    fn of_all(&self, [layers, whole]: [f64; 2], waiting_s: f64) -> TrialTimes {
        let larger = |s: f64, scale: f64| waiting_s + scale * (s - waiting_s).max(0.0);
        TrialTimes {
            prompt_s: larger(self.prompt_s, layers) / N_PROMPT as f64,
            token_s: larger(self.token_s, whole),
        }
    }
}

/// Runs a prompt, once more after a warm-up, then tokens.
fn measure(executor: &mut dyn Executor, spec: &ModelSpec) -> Result<Measured, ModelError> {
    let mut steps = Steps {
        executor,
        d: spec.d_residual(),
        samples: Samples(7),
        bits: Vec::new(),
    };
    let warm_up = steps.executor.new_seq()?;
    steps.step(warm_up, N_PROMPT)?;
    steps.executor.drop_seq(warm_up)?;
    let seq = steps.executor.new_seq()?;
    let prompt_s = steps.step(seq, N_PROMPT)?;
    let times = (0..N_TOKENS).map(|_| steps.step(seq, 1));
    let times = times.collect::<Result<Vec<_>, _>>()?;
    Ok(Measured {
        prompt_s,
        token_s: median(times),
        bits: steps.bits,
    })
}

/// An executor under measurement.
struct Steps<'a> {
    executor: &'a mut dyn Executor,
    d: usize,
    samples: Samples,
    bits: Vec<u32>,
}

impl Steps<'_> {
    /// Seconds of a step of `n` rows of random hidden states.
    fn step(&mut self, seq: SeqId, n: usize) -> Result<f64, ModelError> {
        let mut batch = Batch::default();
        let mut out = Output::default();
        let pos = self.executor.seqs().len(seq)?;
        for i in 0..n {
            let hidden = self.samples.floats(self.d);
            batch.push_hidden(seq, pos + i, &hidden, Want::Hidden);
        }
        let start = Instant::now();
        self.executor.step(&batch, &mut out)?;
        let seconds = start.elapsed().as_secs_f64();
        let bits = (0..n).flat_map(|row| out.hidden(row)).map(|x| x.to_bits());
        self.bits.extend(bits);
        Ok(seconds)
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(prompt_s: f64, token_s: f64) -> TrialTimes {
        TrialTimes { prompt_s, token_s }
    }

    #[test]
    fn the_faster_one_of_a_whole_text_is_taken_if_it_computes_the_same_bits() {
        let result = TrialResult {
            n_layers: 2,
            cpu: times(0.01, 0.02),
            gpu: times(0.001, 0.03),
            is_exact: true,
        };
        assert!(result.takes_gpu());
        let inexact = TrialResult {
            is_exact: false,
            ..result
        };
        assert!(!inexact.takes_gpu());
        let slower = TrialResult {
            gpu: times(0.001, 0.06),
            ..result
        };
        assert!(!slower.takes_gpu());
    }

    #[test]
    fn waiting_counts_once_for_all_layers() {
        let measured = Measured {
            prompt_s: 0.64 + 0.1,
            token_s: 0.3,
            bits: Vec::new(),
        };
        let all = measured.of_all([2.0, 3.0], 0.1);
        assert!((all.prompt_s - (0.1 + 1.28) / 64.0).abs() < 1e-12);
        assert!((all.token_s - 0.7).abs() < 1e-12);
    }
}
