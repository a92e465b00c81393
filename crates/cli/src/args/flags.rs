//! Options that several commands share, and what they mean to the library.

#[cfg(feature = "chat")]
use std::str::FromStr;
use std::{num::NonZeroUsize, path::PathBuf};

use atta::{
    DryOptions, Fit, GenerateOptions, KvType, LoadOptions, Sampling, SessionOptions, Threads,
    WeightsAt,
};
use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};

use super::value::{self, CpuList, Seed};
use crate::failure::Failure;

/// Every instruction set there may be; which of them this CPU has is for the library to say.
const ISAS: [&str; 11] = [
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
    "simd128",
];

/// How a model is loaded and run.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelFlags {
    /// Tokens of the context, prompt and text together [default: what the model was trained for,
    /// at most 4096; of `perplexity` and `imatrix` 512, of `bench` what it needs]
    #[arg(short = 'c', value_name = "CTX", value_parser = value::positions, allow_negative_numbers = true)]
    pub(crate) n_ctx: Option<usize>,
    /// Threads to compute with [default: the physical cores that this process may use]
    #[arg(short = 'j', value_name = "THREADS", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Run on these CPUs, one thread each, such as 0,2-5
    #[arg(long, value_name = "LIST", value_parser = value::cpus, conflicts_with = "threads")]
    cpus: Option<CpuList>,
    /// Instruction set to use [default: the best of this CPU]
    #[arg(long, value_name = "NAME", value_parser = ISAS)]
    isa: Option<String>,
    /// Element type of keys and values: f32, f16, q8 (half of f16's memory, hardly any loss) or q4
    /// (a third; docs/kv-cache.md has the losses) [default: f16; of `atta logits`: f32]
    #[arg(long, value_name = "TYPE", value_parser = kv_elem)]
    kv: Option<KvName>,
    /// Element type of keys alone [default: as --kv]
    #[arg(long, value_name = "TYPE", value_parser = kv_elem)]
    kv_k: Option<KvName>,
    /// Element type of values alone [default: as --kv]
    #[arg(long, value_name = "TYPE", value_parser = kv_elem)]
    kv_v: Option<KvName>,
    /// Where keys or values are q4, those of the first and the last N layers are q8 [default: 2]
    #[arg(long, value_name = "N", value_parser = value::count, allow_negative_numbers = true)]
    kv_edges: Option<usize>,
    /// Prompt tokens to compute at once; more is faster, and takes memory [default: an eighth of
    /// -c, at most 512; of `atta perplexity`: 512]
    #[arg(long, value_name = "N", value_parser = value::positions, allow_negative_numbers = true)]
    batch: Option<usize>,
    /// mapped: used in the system's cache of the file; resident: read to private memory at the
    /// start; streamed: held as far as --ram-budget allows, the rest read when it is needed
    /// [default: mapped if it fits, else streamed]
    #[arg(long, value_name = "WHERE", value_enum)]
    pub(crate) weights: Option<WeightsName>,
    /// All memory that may be used beside mapped files, such as 256M or 1.5G; auto: what there is
    /// or, if the model does not fit into that, 85 % of it [default: auto]
    #[arg(long, value_name = "SIZE", value_parser = value::budget)]
    ram_budget: Option<value::RamBudget>,
    /// Shorten the context, and keep keys and values as f16, rather than refuse what does not fit
    /// into memory; of `run` and `chat`
    #[arg(long)]
    fit: bool,
    /// Have the system read all of a mapped file before the first token
    #[arg(long)]
    pub(crate) prewarm: bool,
}

/// An element type of keys or values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KvName {
    F32,
    F16,
    Q8,
    Q4,
}

impl KvName {
    /// Keys and values of this type.
    fn kv_type(self) -> KvType {
        match self {
            Self::F32 => KvType::F32,
            Self::F16 => KvType::F16,
            Self::Q8 => KvType::Q8,
            Self::Q4 => KvType::Q4,
        }
    }
}

/// Where weights are.
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
    /// The default ones, but for the context and the threads.
    pub(crate) fn of(n_ctx: Option<usize>, n_threads: usize) -> Self {
        Self {
            n_ctx,
            threads: Some(n_threads),
            ..Self::default()
        }
    }

    /// These with another number of threads.
    pub(crate) fn with_threads(&self, n_threads: usize) -> Self {
        Self {
            threads: Some(n_threads),
            cpus: None,
            ..self.clone()
        }
    }

    /// How the model is to be loaded, with memory kept free for a session.
    pub(crate) fn load_options(&self, session: SessionOptions) -> LoadOptions {
        LoadOptions {
            threads: self.threads(),
            isa: self.isa.clone(),
            weights: self.weights.map(WeightsAt::from),
            prewarm: self.prewarm,
            ram_budget: self.ram_budget.and_then(value::RamBudget::bytes),
            session,
            fit: if self.fit { Fit::Shrink } else { Fit::AsAsked },
            ..LoadOptions::default()
        }
    }

    /// Refuses what makes sense only where a shorter context is still an answer.
    pub(crate) fn refuse_fit(&self, command: &str) -> Result<(), Failure> {
        match self.fit {
            true => Err(Failure::Usage(format!(
                "--fit does not apply to `atta {command}`, which needs its context whole"
            ))),
            false => Ok(()),
        }
    }

    /// Whether an instruction set was asked for.
    #[cfg(feature = "survey")]
    pub(crate) fn names_isa(&self) -> bool {
        self.isa.is_some()
    }

    /// The element types of keys and values as they were asked for, or f16.
    #[cfg(feature = "perplexity")]
    pub(crate) fn kv_name(&self) -> String {
        let name = |half: Option<KvName>| match half.or(self.kv) {
            Some(KvName::F32) => "f32",
            Some(KvName::F16) | None => "f16",
            Some(KvName::Q8) => "q8",
            Some(KvName::Q4) => "q4",
        };
        let edges = self
            .kv_edges
            .map(|n| format!(" edges {n}"))
            .unwrap_or_default();
        format!("{} {}{edges}", name(self.kv_k), name(self.kv_v))
    }

    /// Whether layers are excepted from something that none is.
    pub(crate) fn edges_are_idle(&self) -> bool {
        let is_q4 = |half: Option<KvName>| matches!(half.or(self.kv), Some(KvName::Q4));
        self.kv_edges.is_some() && !is_q4(self.kv_k) && !is_q4(self.kv_v)
    }

    fn threads(&self) -> Threads {
        match (&self.cpus, self.threads.and_then(NonZeroUsize::new)) {
            (Some(list), _) => Threads::Cpus(list.0.clone()),
            (None, Some(n)) => Threads::Count(n),
            (None, None) => Threads::Auto,
        }
    }

    /// What the session is to be made for; `kv` holds where the flags do not say otherwise.
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

/// How the next token is chosen, and when to stop.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingFlags {
    /// Generate at most this many tokens; -1: until the model ends [default: 256; of the built-in
    /// model on a terminal and of `serve`, -1]
    #[arg(short = 'n', long, alias = "max-tokens", value_name = "N", value_parser = value::n_tokens)]
    #[arg(allow_negative_numbers = true)]
    n_predict: Option<usize>,
    /// Temperature; 0 always takes the most probable token
    #[arg(
        short = 't',
        long,
        alias = "temp",
        value_name = "TEMP",
        default_value = "0.8"
    )]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    temperature: f32,
    /// Only the K most probable tokens; 0: all
    #[arg(long, value_name = "K", default_value = "40", value_parser = value::count, allow_negative_numbers = true)]
    top_k: usize,
    /// Only tokens about as surprising as the model expects, that together reach P; 1: all
    #[arg(long, alias = "typical-p", value_name = "P", default_value = "1")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    typical: f32,
    /// Only the most probable tokens that together reach P; 1: all
    #[arg(long, value_name = "P", default_value = "0.95", value_parser = value::number, allow_negative_numbers = true)]
    top_p: f32,
    /// Only tokens at least P times as probable as the best; 0: all
    #[arg(long, value_name = "P", default_value = "0.05", value_parser = value::number, allow_negative_numbers = true)]
    min_p: f32,
    /// Only tokens whose logit is at most N standard deviations below the best; 0 or less: all
    #[arg(long, alias = "top-nsigma", value_name = "N", default_value = "-1")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    top_n_sigma: f32,
    /// Makes tokens that came lately less probable; 1: off
    #[arg(long, value_name = "X", default_value = "1", value_parser = value::number, allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// How many of the last tokens count as lately, for all penalties but DRY
    #[arg(long, value_name = "N", default_value = "64", value_parser = value::count, allow_negative_numbers = true)]
    repeat_window: usize,
    /// Subtracted from the logit of tokens that came lately
    #[arg(long, value_name = "X", default_value = "0", value_parser = value::number, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtracted from the logit of tokens that came lately, as often as they did
    #[arg(long, value_name = "X", default_value = "0", value_parser = value::number, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Makes tokens less probable that would go on with a repetition, by X * base^(its length -
    /// allowed length); 0: off
    #[arg(long, value_name = "X", default_value = "0", value_parser = value::number, allow_negative_numbers = true)]
    dry_multiplier: f32,
    /// How fast that grows with the length, at least 1
    #[arg(long, value_name = "X", default_value = "1.75", value_parser = value::number, allow_negative_numbers = true)]
    dry_base: f32,
    /// Repetitions of fewer tokens are free
    #[arg(long, value_name = "N", default_value = "2", value_parser = value::count, allow_negative_numbers = true)]
    dry_allowed_length: usize,
    /// How many of the last tokens are searched for repetitions; 0: none
    #[arg(long, value_name = "N", default_value = "64", value_parser = value::count, allow_negative_numbers = true)]
    dry_penalty_last_n: usize,
    /// Text over which no repetition reaches; may be given several times; `none`: there is none
    /// [default: newline : " *]
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    dry_sequence_breaker: Vec<String>,
    /// Adds to the logit of a token before all else, such as 15043+1 or 2-inf; may be given
    /// several times
    #[arg(long, value_name = "ID(+|-)X", value_parser = value::logit_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Start of the random numbers: the same seed gives the same text; -1: a random one [default:
    /// 42; of the built-in model on a terminal, and of `serve`, -1]
    #[arg(long, value_name = "SEED", value_parser = value::seed, allow_negative_numbers = true)]
    seed: Option<Seed>,
    /// End before this text, taken literally, or at this special token; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    stop: Vec<String>,
}

/// Where the state of the prompt is kept.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cache")]
pub(crate) struct CacheFlags {
    /// Keep the state of prompts at PATH, and do not compute again what is there: a directory for
    /// many prompts if it is one or ends in /, else a file for the last one
    ///
    /// The text is the same as without. What is there of another model, or damaged, is not used.
    #[arg(long, value_name = "PATH")]
    pub(crate) cache: Option<PathBuf>,
    /// Bytes that such a directory may hold, such as 256M; what was used least recently goes first
    /// [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = value::size, requires = "cache")]
    pub(crate) cache_size: Option<u64>,
}

/// What is said beside the text.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ReportFlags {
    /// Write token counts, times and memory to FILE, as one JSON object
    ///
    /// It is written on failure and after Ctrl-C too. Its keys are always the same, and null where
    /// there is nothing to say; a failure adds `error`. `prompt_tokens` counts the
    /// begin-of-sequence token, `generated_tokens` the token that ends the text, although none
    /// of the text comes from it.
    #[arg(long, value_name = "FILE")]
    pub(crate) stats_json: Option<PathBuf>,
    /// Print to standard error what memory is used for, next to what the system says
    #[arg(long)]
    pub(crate) mem_report: bool,
    /// Print to standard error the model, threads, instruction set and speeds
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// Which chat template is used instead of the file's.
#[cfg(feature = "chat")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateName {
    Chatml,
    /// Lines with `User:` and `Assistant:`.
    Plain,
    /// A template in Jinja.
    File(PathBuf),
}

#[cfg(feature = "chat")]
impl FromStr for TemplateName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "chatml" => Ok(Self::Chatml),
            "plain" => Ok(Self::Plain),
            path if path.contains(['/', '\\', '.']) => Ok(Self::File(path.into())),
            _ => Err(
                "expected chatml, plain, or a file with a template in Jinja, such as ./chat.jinja"
                    .to_owned(),
            ),
        }
    }
}

/// The default length and seed of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Of so many tokens, from the same seed every time: for scripts.
    Bounded,
    /// Until the model ends it, from a random seed: for a reader at a terminal.
    Story,
}

/// Tokens of a text without `-n`.
const DEFAULT_LENGTH: usize = 256;

impl SamplingFlags {
    /// The sampler's options, checked.
    fn sampling(&self, length: Length) -> Result<Sampling, Failure> {
        let seed = match length {
            Length::Bounded => Seed::Fixed(Sampling::default().seed),
            Length::Story => Seed::Random,
        };
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            typical: self.typical,
            top_p: self.top_p,
            min_p: self.min_p,
            top_n_sigma: self.top_n_sigma,
            repeat_penalty: self.repeat_penalty,
            repeat_window: self.repeat_window,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            dry: self.dry(),
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.unwrap_or(seed).now(),
        };
        sampling
            .validate()
            .map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(sampling)
    }

    /// The fixed seed, if one was given.
    #[cfg(feature = "server")]
    pub(crate) fn seed(&self) -> Option<u64> {
        match self.seed? {
            Seed::Fixed(seed) => Some(seed),
            Seed::Random => None,
        }
    }

    /// What is generated, checked.
    pub(crate) fn generate_options(&self, length: Length) -> Result<GenerateOptions, Failure> {
        let sampling = self.sampling(length)?;
        let n_predict = if length == Length::Story {
            usize::MAX
        } else {
            DEFAULT_LENGTH
        };
        Ok(GenerateOptions {
            n_predict: self.n_predict.unwrap_or(n_predict),
            sampling,
            stop: self.stop.clone(),
            ..GenerateOptions::default()
        })
    }

    fn dry(&self) -> DryOptions {
        let sequence_breakers = match self.dry_sequence_breaker.as_slice() {
            [] => DryOptions::default().sequence_breakers,
            given => given
                .iter()
                .filter(|text| *text != "none")
                .cloned()
                .collect(),
        };
        DryOptions {
            multiplier: self.dry_multiplier,
            base: self.dry_base,
            allowed_length: self.dry_allowed_length,
            penalty_last_n: self.dry_penalty_last_n,
            sequence_breakers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{FromArgMatches, Parser};

    #[derive(Parser)]
    struct Both {
        #[command(flatten)]
        model: ModelFlags,
        #[command(flatten)]
        sampling: SamplingFlags,
    }

    fn parse(line: &str) -> Both {
        Both::try_parse_from(line.split(' ')).unwrap()
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let both = parse("x");
        let (ours, theirs) = (
            both.sampling.generate_options(Length::Bounded).unwrap(),
            GenerateOptions::default(),
        );
        assert_eq!(
            (ours.sampling, ours.n_predict),
            (theirs.sampling, theirs.n_predict)
        );
        let (ours, theirs) = (
            both.model.session_options(KvType::default()),
            SessionOptions::default(),
        );
        assert_eq!(
            (ours.n_ctx, ours.n_batch, ours.kv),
            (theirs.n_ctx, theirs.n_batch, theirs.kv)
        );
    }

    #[test]
    fn a_story_has_another_seed_every_time_and_its_own_end_unless_they_are_given() {
        let options = |line| {
            parse(line)
                .sampling
                .generate_options(Length::Story)
                .unwrap()
        };
        assert_ne!(options("x").sampling.seed, options("x").sampling.seed);
        assert_ne!(
            options("x --seed -1").sampling.seed,
            options("x --seed -1").sampling.seed
        );
        assert_eq!(options("x").n_predict, usize::MAX);
        let given = options("x --seed 7 -n 8");
        assert_eq!((given.sampling.seed, given.n_predict), (7, 8));
    }

    #[test]
    fn model_flags_made_by_hand_are_those_of_the_command_line() {
        let (typed, made) = (parse("x -c 8 -j 2").model, ModelFlags::of(Some(8), 2));
        assert_eq!(format!("{typed:?}"), format!("{made:?}"));
    }

    #[test]
    fn kv_sets_both_and_its_halves_override_it() {
        let kv = |line| parse(line).model.session_options(KvType::F32).kv;
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

    #[test]
    fn sequence_breakers_replace_the_default_ones() {
        let breakers = |line| {
            parse(line)
                .sampling
                .sampling(Length::Bounded)
                .unwrap()
                .dry
                .sequence_breakers
        };
        assert_eq!(breakers("x"), ["\n", ":", "\"", "*"]);
        assert_eq!(
            breakers("x --dry-sequence-breaker a --dry-sequence-breaker -b"),
            ["a", "-b"]
        );
        assert!(breakers("x --dry-sequence-breaker none").is_empty());
    }

    #[test]
    fn a_sampler_setting_out_of_range_is_wrong_usage() {
        for line in [
            "x --typical 2",
            "x --dry-base 0.5",
            "x --logit-bias 1+inf",
            "x --dry-penalty-last-n 9999999",
        ] {
            assert!(
                matches!(
                    parse(line).sampling.sampling(Length::Bounded),
                    Err(Failure::Usage(_))
                ),
                "{line}"
            );
        }
        for line in [
            "x --top-p 1.5",
            "x --min-p -0.1",
            "x -t -1",
            "x -t nan",
            "x --repeat-penalty 0",
        ] {
            let matches = <Both as clap::CommandFactory>::command()
                .try_get_matches_from(line.split(' '))
                .unwrap();
            let both = Both::from_arg_matches(&matches).unwrap();
            assert!(
                matches!(
                    both.sampling.sampling(Length::Bounded),
                    Err(Failure::Usage(_))
                ),
                "{line}"
            );
        }
    }
}
