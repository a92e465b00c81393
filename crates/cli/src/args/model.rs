//! Options for loading and running a model.

use std::num::NonZeroUsize;

use atta::{
    AdapterFile, Fit, KvType, LoadOptions, Omission, Reduction, SessionOptions, Threads, WeightsAt,
};
use clap::{Args, ValueEnum};

use super::{
    EVERYDAY,
    lora::{LoraFlag, lora},
    value::{self, CpuList, RamBudget, ThreadCounts},
};
use crate::failure::Failure;

/// All instruction sets; the library refuses those that this CPU lacks.
const ISAS: [&str; 13] = [
    "scalar",
    "sse41",
    "avx2",
    "avxvnni",
    "avx512",
    "avx512seq",
    "amx",
    "neon",
    "dotprod",
    "i8mm",
    "rvv",
    "rvv256",
    "simd128",
];

/// How a model is loaded and run.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelFlags {
    /// Context length in tokens, prompt and output [default: the model's training length, at most
    /// 4096; of `perplexity` and `imatrix` 512, of `bench` what it needs]
    #[arg(short = 'c', long = "ctx-size", value_name = "CTX", value_parser = value::positions)]
    #[arg(allow_negative_numbers = true, help_heading = EVERYDAY)]
    pub(crate) n_ctx: Option<usize>,
    /// Number of threads, or DECODE,PROMPT: those of single tokens and those of prompts [default:
    /// the physical cores that this process may use; for single tokens the fewest that are as fast]
    #[arg(short = 'j', long, value_name = "THREADS", value_parser = value::thread_counts)]
    #[arg(allow_negative_numbers = true, help_heading = EVERYDAY)]
    threads: Option<ThreadCounts>,
    /// Pin one thread to each of these CPUs, such as 0,2-5
    #[arg(long, value_name = "LIST", value_parser = value::cpus, conflicts_with = "threads")]
    cpus: Option<CpuList>,
    /// Instruction set of the kernels [default: the best of this CPU]
    #[arg(long, value_name = "NAME", value_parser = ISAS)]
    pub(crate) isa: Option<String>,
    /// KV cache type: f32, f16, q8 (half of f16's memory, nearly lossless) or q4 (a third;
    /// docs/kv-cache.md has the losses) [default: f16; of `atta logits`: f32]
    #[arg(long, value_name = "TYPE", value_parser = kv_elem)]
    pub(crate) kv: Option<KvName>,
    /// KV cache type of keys [default: --kv]
    #[arg(long, value_name = "TYPE", value_parser = kv_elem)]
    pub(crate) kv_k: Option<KvName>,
    /// KV cache type of values [default: --kv]
    #[arg(long, value_name = "TYPE", value_parser = kv_elem)]
    pub(crate) kv_v: Option<KvName>,
    /// With q4, the first and the last N layers use q8 [default: 2]
    #[arg(long, value_name = "N", value_parser = value::count, allow_negative_numbers = true)]
    pub(crate) kv_edges: Option<usize>,
    /// Prompt tokens per batch; more is faster and takes memory [default: an eighth of -c, at most
    /// 512; of `atta perplexity`: 512]
    #[arg(long, alias = "batch-size", value_name = "N", value_parser = value::positions)]
    #[arg(allow_negative_numbers = true)]
    batch: Option<usize>,
    /// mapped: weights are memory-mapped from the file; resident: copied to private memory at
    /// start; streamed: kept as far as --ram-budget allows, the rest read from disk for each
    /// token [default: mapped if they fit, else streamed]
    #[arg(long, value_name = "WHERE", value_enum)]
    pub(crate) weights: Option<WeightsName>,
    /// Memory limit, mapped files excluded, such as 256M or 1.5G; auto: the available memory, or
    /// 85 % of it if the model does not fit [default: auto]
    #[arg(long, value_name = "SIZE", value_parser = value::budget)]
    ram_budget: Option<RamBudget>,
    /// If memory is short, reduce the context length and use a smaller KV cache type instead of
    /// failing; for `run` and `chat`
    #[arg(long)]
    fit: bool,
    /// Read the whole mapped file into the page cache before the first token
    #[arg(long)]
    pub(crate) prewarm: bool,
    /// Compare the whole file with the checksums that it holds before the first token; streamed
    /// weights are always compared while they are read
    #[arg(long)]
    pub(crate) verify: bool,
    /// Leave layers out, as many as cost a measured KL divergence of 1 - Q at most; for a file of
    /// `atta sensitivity` [default: 1, the whole model]
    #[arg(long, value_name = "Q", value_parser = value::quality)]
    quality: Option<f32>,
    /// Let each token use N experts at most [default: as many as the model says]
    #[arg(long, value_name = "N", value_parser = value::positions, allow_negative_numbers = true)]
    experts: Option<usize>,
    /// Add a LoRA adapter, a GGUF file of the model's architecture, with a scale [default: 1];
    /// repeatable. NAME= names it: for /lora, and for requests to `atta serve`, which then apply it
    /// only if they ask for it
    #[arg(long, value_name = "[NAME=]FILE[:SCALE]", value_parser = lora)]
    lora: Vec<LoraFlag>,
}

/// A KV cache type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KvName {
    F32,
    F16,
    Q8,
    Q4,
}

impl KvName {
    /// This type for keys and values.
    fn kv_type(self) -> KvType {
        match self {
            Self::F32 => KvType::F32,
            Self::F16 => KvType::F16,
            Self::Q8 => KvType::Q8,
            Self::Q4 => KvType::Q4,
        }
    }
}

/// Where the weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeightsName {
    Mapped,
    Resident,
    Streamed,
}

fn kv_elem(text: &str) -> Result<KvName, String> {
    match text {
        "f32" => Ok(KvName::F32),
        "f16" => Ok(KvName::F16),
        "q8" => Ok(KvName::Q8),
        "q4" => Ok(KvName::Q4),
        _ => Err("expected f32, f16, q8 or q4".to_owned()),
    }
}

impl From<WeightsName> for WeightsAt {
    fn from(name: WeightsName) -> Self {
        match name {
            WeightsName::Mapped => Self::Mapped,
            WeightsName::Resident => Self::Resident,
            WeightsName::Streamed => Self::Streamed,
        }
    }
}

impl ModelFlags {
    /// The defaults, with this context length and number of threads.
    pub(crate) fn of(n_ctx: Option<usize>, n_threads: usize) -> Self {
        Self {
            n_ctx,
            threads: Some(ThreadCounts::both(n_threads)),
            ..Self::default()
        }
    }

    /// These with another number of threads.
    pub(crate) fn with_threads(&self, n_threads: usize) -> Self {
        Self {
            threads: Some(ThreadCounts::both(n_threads)),
            cpus: None,
            ..self.clone()
        }
    }

    /// The options to load the model with; memory is reserved for the session.
    pub(crate) fn load_options(&self, session: SessionOptions) -> LoadOptions {
        LoadOptions {
            threads: self.threads(),
            isa: self.isa.clone(),
            weights: self.weights.map(WeightsAt::from),
            prewarm: self.prewarm,
            verify: self.verify,
            ram_budget: self.ram_budget.and_then(RamBudget::bytes),
            session,
            fit: if self.fit { Fit::Shrink } else { Fit::Strict },
            reduction: self.reduction(),
            adapters: self.adapter_files(1.0),
            ..LoadOptions::default()
        }
    }

    /// The adapters to load; `named` is the scale of those that have a name and no scale.
    pub(crate) fn adapter_files(&self, named: f32) -> Vec<AdapterFile> {
        self.lora.iter().map(|flag| flag.file(named)).collect()
    }

    /// These without adapters, for another model.
    #[cfg(feature = "drafters")]
    pub(crate) fn without_adapters(&self) -> Self {
        Self {
            lora: Vec::new(),
            ..self.clone()
        }
    }

    /// Whether there are adapters.
    #[cfg(any(feature = "convert", feature = "server"))]
    pub(crate) fn has_adapters(&self) -> bool {
        !self.lora.is_empty()
    }

    /// Refuses `--lora` for a command that is about the weights of the model's file.
    #[cfg(feature = "convert")]
    pub(crate) fn refuse_lora(&self, command: &str) -> Result<(), Failure> {
        match self.has_adapters() {
            false => Ok(()),
            true => Err(Failure::Usage(format!(
                "--lora does not apply to `atta {command}`, which is about the model's own weights"
            ))),
        }
    }

    /// How much of the model to run.
    fn reduction(&self) -> Reduction {
        Reduction {
            layers: self.quality.map_or(Omission::Nothing, Omission::Quality),
            n_experts: self.experts,
        }
    }

    /// Refuses `--quality` and `--experts` for a command that is about the whole model.
    #[cfg(any(feature = "convert", feature = "cluster"))]
    pub(crate) fn refuse_reduction(&self, command: &str) -> Result<(), Failure> {
        match self.reduction().is_whole() {
            true => Ok(()),
            false => Err(Failure::Usage(format!(
                "--quality and --experts do not apply to `atta {command}`, which is about the \
                 whole model"
            ))),
        }
    }

    /// Refuses `--fit` for a command whose result depends on the context length.
    pub(crate) fn refuse_fit(&self, command: &str) -> Result<(), Failure> {
        match self.fit {
            true => Err(Failure::Usage(format!(
                "--fit does not apply to `atta {command}`, which needs its context whole"
            ))),
            false => Ok(()),
        }
    }

    /// Whether `--kv-edges` was given though neither keys nor values are q4.
    pub(crate) fn edges_are_unused(&self) -> bool {
        let is_q4 = |half: Option<KvName>| matches!(half.or(self.kv), Some(KvName::Q4));
        self.kv_edges.is_some() && !is_q4(self.kv_k) && !is_q4(self.kv_v)
    }

    fn threads(&self) -> Threads {
        let count = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        match (&self.cpus, self.threads) {
            (Some(list), _) => Threads::Cpus(list.0.clone()),
            (None, Some(ThreadCounts { decode, prompt })) if decode == prompt => {
                Threads::Count(count(decode))
            }
            (None, Some(ThreadCounts { decode, prompt })) => Threads::Each {
                decode: count(decode),
                prompt: count(prompt),
            },
            (None, None) => Threads::Auto,
        }
    }

    /// The options of a session; `kv` is the default KV cache type.
    pub(crate) fn session_options(&self, kv: KvType) -> SessionOptions {
        let of = |half: Option<KvName>| half.or(self.kv).map_or(kv, KvName::kv_type);
        let n_edge_layers = self.kv_edges.unwrap_or(kv.n_edge_layers);
        let kv = KvType {
            k: of(self.kv_k).k,
            v: of(self.kv_v).v,
            n_edge_layers,
        };
        SessionOptions {
            n_ctx: self.n_ctx,
            n_batch: self.batch,
            kv,
            ..SessionOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        model: ModelFlags,
    }

    fn parse(line: &str) -> ModelFlags {
        Cli::try_parse_from(line.split(' ')).unwrap().model
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let ours = parse("x").session_options(KvType::default());
        let theirs = SessionOptions::default();
        assert_eq!(
            (ours.n_ctx, ours.n_batch, ours.kv),
            (theirs.n_ctx, theirs.n_batch, theirs.kv)
        );
    }

    #[test]
    fn model_flags_made_by_hand_are_those_of_the_command_line() {
        let typed = parse("x -c 8 -j 2");
        let made = ModelFlags::of(Some(8), 2);
        assert_eq!(format!("{typed:?}"), format!("{made:?}"));
    }

    #[test]
    fn kv_sets_both_and_its_halves_override_it() {
        let kv = |line| parse(line).session_options(KvType::F32).kv;
        assert_eq!(kv("x"), KvType::F32);
        assert_eq!(kv("x --kv f16"), KvType::F16);
        assert_eq!(
            kv("x --kv f16 --kv-k f32"),
            KvType {
                k: KvType::F32.k,
                ..KvType::F16
            }
        );
        assert_eq!(
            kv("x --kv-v q8"),
            KvType {
                v: KvType::Q8.v,
                ..KvType::F32
            }
        );
        assert_eq!(
            kv("x --kv q4 --kv-edges 0"),
            KvType {
                n_edge_layers: 0,
                ..KvType::Q4
            }
        );
    }
}
