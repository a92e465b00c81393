//! What may be typed: the subcommands and their options, as `--help` shows them.
//!
//! The names, defaults and exit codes are a contract with scripts. This module turns text into
//! types and refuses what has no meaning; it opens no file and knows no model. [`flags`] holds the
//! options that several commands share, and turns them into the options of the library.

mod context;
#[cfg(feature = "convert")]
mod convert;
mod flags;
#[cfg(feature = "server")]
mod serve;
mod shape;
mod tools;
mod value;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

#[cfg(feature = "pull")]
use atta_hub::{Request, Revision};
#[cfg(feature = "cache")]
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, error::ErrorKind};

pub(crate) use context::ContextFlags;
#[cfg(feature = "convert")]
pub(crate) use convert::{ConvertArgs, ImatrixArgs, Kind};
#[cfg(feature = "chat")]
pub(crate) use flags::TemplateName;
pub(crate) use flags::{CacheFlags, Length, ModelFlags, ReportFlags, SamplingFlags, WeightsName};
#[cfg(feature = "server")]
pub(crate) use serve::ServeArgs;
pub(crate) use shape::ShapeFlags;
#[cfg(feature = "constrain")]
pub(crate) use shape::{JsonKind, OnLengthName};
#[cfg(feature = "chat")]
pub(crate) use tools::RunnerFlags;
pub(crate) use tools::ToolFlags;
pub(crate) use value::{Seed, TokenSource, token_ids};

use crate::failure::Failure;

/// Runs large language models from GGUF files, straight from disk, in little memory.
#[derive(Debug, Parser)]
#[command(
    name = "atta",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(args_override_self = true, after_help = examples())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What this build can do, and how it ends.
fn examples() -> String {
    let all = [
        (
            cfg!(feature = "builtin"),
            "run -p \"Once upon a time\"              the small model that is built in",
        ),
        (
            true,
            "run model.gguf -p \"Once upon a time\"   any GGUF file",
        ),
        (
            cfg!(feature = "chat"),
            "chat model.gguf                        a conversation",
        ),
        (
            cfg!(feature = "server"),
            "serve model.gguf                       clients of OpenAI's interface, and browsers",
        ),
        (
            cfg!(feature = "pull"),
            "pull org/repo                          a model from Hugging Face",
        ),
        (
            true,
            "inspect model.gguf                     what is in a file",
        ),
        (
            true,
            "bench model.gguf                       how fast it is here",
        ),
        (
            cfg!(feature = "perplexity"),
            "perplexity model.gguf -f text.txt      how well it predicts a text",
        ),
        (
            cfg!(feature = "convert"),
            "convert a.gguf b.gguf --type q4_k_m    a smaller file",
        ),
    ];
    let ours: String = all
        .iter()
        .filter(|(is_here, _)| *is_here)
        .map(|(_, line)| format!("  atta {line}\n"))
        .collect();
    format!("Examples:\n{ours}\nExit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.")
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    #[cfg(feature = "chat")]
    Chat(Box<ChatArgs>),
    #[cfg(not(feature = "chat"))]
    Chat(Lacking),
    #[cfg(feature = "server")]
    Serve(Box<ServeArgs>),
    #[cfg(not(feature = "server"))]
    Serve(Lacking),
    #[cfg(feature = "cache")]
    Cache(CacheArgs),
    #[cfg(not(feature = "cache"))]
    Cache(Lacking),
    #[cfg(feature = "pull")]
    Pull(PullArgs),
    #[cfg(not(feature = "pull"))]
    Pull(Lacking),
    Picolm(PicolmArgs),
    Bench(BenchArgs),
    #[cfg(feature = "perplexity")]
    Perplexity(PerplexityArgs),
    #[cfg(not(feature = "perplexity"))]
    Perplexity(Lacking),
    Tokenize(TokenizeArgs),
    Logits(LogitsArgs),
    Inspect(InspectArgs),
    #[cfg(feature = "convert")]
    Convert(Box<ConvertArgs>),
    #[cfg(not(feature = "convert"))]
    Convert(Lacking),
    #[cfg(feature = "convert")]
    Imatrix(ImatrixArgs),
    #[cfg(not(feature = "convert"))]
    Imatrix(Lacking),
}

/// Not in this build: it was made without the feature of that name.
#[cfg(not(all(
    feature = "cache",
    feature = "chat",
    feature = "convert",
    feature = "perplexity",
    feature = "pull",
    feature = "server"
)))]
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Lacking {
    /// What would have meant something elsewhere
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// Continues a text.
///
/// Without MODEL, a small model that tells stories and is part of the program. Only the
/// continuation goes to standard output. The prompt is taken as it is: no chat template is put
/// around it, and special tokens in it are recognised. With -p, standard input is read only if -f -
/// asks for it.
///
/// What chooses a token is applied in one order, that of llama.cpp, whatever order it is asked for
/// in: --logit-bias, the three penalties, DRY, --top-n-sigma, --top-k, --typical, --top-p, --min-p,
/// and -t last. At -t 0 the most probable token after the first four is taken.
#[derive(Debug, Args)]
#[cfg_attr(
    feature = "comfort",
    command(after_help = "Examples:
  atta run -p \"Once upon a time\"
  atta run model.gguf -p \"The capital of France is\" -n 16 -t 0
  atta run model.gguf -c 8192 --stop END < prompt.txt
  cat report.txt | atta run model.gguf -p \"A summary of this report:\" -f -
  atta run model.gguf -p \"Dear diary\" -n 100000 --window 1024
  atta run model.gguf -p \"A person, as JSON:\" --schema person.json
  atta run model.gguf -p \"Is it warm in Lima?\" --tools tools.json
  atta run model.gguf --cache prompts/ < long.txt
  atta run model.gguf -p \"Dear Sir,\" --stats-json stats.json --mem-report")
)]
pub(crate) struct RunArgs {
    /// GGUF file, of a split model any of its files; or ORG/REPO[:QUANT] that was pulled [default:
    /// the built-in model]
    pub(crate) model: Option<PathBuf>,
    /// Text to continue [default: what comes on standard input, byte for byte]
    #[arg(short, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<OsString>,
    /// Text to continue from FILE, or from standard input if it is -; behind -p TEXT and an empty
    /// line, if both are given
    #[cfg(feature = "comfort")]
    #[arg(short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) shape: ShapeFlags,
    #[command(flatten)]
    pub(crate) tools: ToolFlags,
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
    #[command(flatten)]
    pub(crate) context: ContextFlags,
    #[command(flatten)]
    pub(crate) cache: CacheFlags,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

#[cfg(feature = "chat")]
/// Talks with the model, message by message.
///
/// Messages are lines: edited on a terminal, with the arrow keys for earlier ones, or read from a
/// pipe. Only answers go to standard output. Without MODEL, the small model that is built in, which
/// runs a house (examples/home) and tells stories.
///
/// How messages are put to the model is what the chat template of the file says, a program that is
/// interpreted. Without one they are put as ChatML if the vocabulary has its markers, else as lines
/// with `User:` and `Assistant:`. Special tokens in a message are text.
///
/// Ctrl-C stops an answer and keeps the chat, which ends with Ctrl-C at the prompt after that, with
/// Ctrl-D, or with /exit.
#[derive(Debug, Args)]
#[command(after_help = "Commands in the chat:
  /clear        forget what has been said, but not the system message
  /system TEXT  tell the model TEXT in front of everything; without TEXT, nothing
  /save FILE    write what has been said to FILE, as JSON
  /load FILE    go on with what is in FILE
  /help         list these commands
  /exit         leave
A message that begins with / is written with two of them.

Examples:
  atta chat model.gguf --system \"You answer in one sentence.\"
  echo \"What is a leafcutter ant?\" | atta chat model.gguf -t 0
  atta chat model.gguf --tools tools.json --tool-cmd ./run-tool
  atta chat --house -t 0
  atta chat --tools examples/home/tools.json --tool-cmd examples/home/house.py -t 0")]
pub(crate) struct ChatArgs {
    /// GGUF file, of a split model any of its files; or ORG/REPO[:QUANT] that was pulled [default:
    /// the built-in model]
    pub(crate) model: Option<PathBuf>,
    /// What the model is told in front of everything
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) system: Option<String>,
    /// How messages are put to the model [default: as the chat template of the model's file says]
    ///
    /// `chatml`, `plain`, or a file with a template in Jinja.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) chat_template: Option<TemplateName>,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) shape: ShapeFlags,
    #[command(flatten)]
    pub(crate) tools: ToolFlags,
    #[command(flatten)]
    pub(crate) runner: RunnerFlags,
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
    #[command(flatten)]
    pub(crate) context: ContextFlags,
    #[command(flatten)]
    pub(crate) cache: CacheFlags,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

#[cfg(feature = "cache")]
/// Shows or removes what --cache keeps.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta cache ls prompts/
  atta cache rm prompts/ 1f2e3d4c5b6a
  atta cache rm prompts/ --all")]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) action: CacheAction,
}

#[cfg(feature = "cache")]
/// What is to be done with a cache.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheAction {
    Ls(CacheLsArgs),
    Rm(CacheRmArgs),
}

#[cfg(feature = "cache")]
/// Lists prompts, those used last in front: key, tokens, bytes, last use, model.
///
/// Bytes that prompts share are counted in each.
#[derive(Debug, Args)]
pub(crate) struct CacheLsArgs {
    /// Directory or file, as given to --cache
    pub(crate) path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "cache")]
/// Removes prompts, but for what others share.
#[derive(Debug, Args)]
pub(crate) struct CacheRmArgs {
    /// Directory or file, as given to --cache
    pub(crate) path: PathBuf,
    /// Prompts, by keys or the first digits of them
    #[arg(value_name = "KEY", required_unless_present = "all", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) keys: Vec<String>,
    /// Remove all prompts
    #[arg(long, conflicts_with = "keys")]
    pub(crate) all: bool,
}

#[cfg(feature = "pull")]
/// Downloads a model from Hugging Face.
///
/// Standard output gets the path of the file, of the first one of a split model, or of the
/// directory if there is no GGUF file and all that a conversion needs was taken. Then `atta run
/// org/repo` finds it.
///
/// Of several files the first of these types is taken: Q4_K_M, Q4_K_S, Q4_0, IQ4_XS, Q5_K_M,
/// Q5_K_S, Q6_K, Q8_0, Q3_K_M, MXFP4, BF16, F16. Every byte is checked against the hashes of the
/// repository. A pull that was stopped goes on where it was; files lie where Hugging Face's own
/// programs look for them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta pull Qwen/Qwen3-0.6B-GGUF
  atta pull Qwen/Qwen3-0.6B-GGUF:q8_0
  atta pull https://huggingface.co/Qwen/Qwen3-0.6B-GGUF
  atta run \"$(atta pull Qwen/Qwen3-0.6B-GGUF)\" -p \"Once upon a time\"

Environment: HF_TOKEN, or the file `token` in HF_HOME: for what is private or gated. HF_HOME, HF_HUB_CACHE: where files
go. HF_ENDPOINT: another hub. HF_HUB_OFFLINE=1: only look into the cache. HTTPS_PROXY, NO_PROXY.")]
pub(crate) struct PullArgs {
    /// Repository, and which of its files: by path, or by type such as q4_k_m in any case
    #[arg(value_name = "ORG/REPO[:FILE|QUANT]", value_parser = value::request)]
    pub(crate) request: Request,
    /// Branch, tag or commit [default: main]
    #[arg(long, value_name = "R", value_parser = value::revision)]
    pub(crate) revision: Option<Revision>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Continues a text, with the options of PicoLM.
///
/// For programs and scripts that call `picolm`: a link of that name to this program is this
/// command. -k is top-p here, and there is neither top-k nor min-p. Only text goes to standard
/// output.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[cfg_attr(
    feature = "comfort",
    command(after_help = "Examples:
  atta picolm model.gguf -p \"Once upon a time\" -n 100 -t 0
  ln -s \"$(command -v atta)\" picolm; echo \"Explain gravity\" | ./picolm model.gguf -n 100 -j 4")
)]
pub(crate) struct PicolmArgs {
    /// GGUF file, or ORG/REPO[:QUANT] that was pulled
    pub(crate) model: PathBuf,
    /// Text to continue [default: what comes on standard input, byte for byte]
    #[arg(short, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<OsString>,
    /// Generate at most this many tokens
    #[arg(short = 'n', value_name = "N", default_value = "256")]
    #[arg(value_parser = value::count, allow_negative_numbers = true)]
    pub(crate) n_predict: usize,
    /// Temperature; 0 always takes the most probable token
    #[arg(short = 't', value_name = "TEMP", default_value = "0.8")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    pub(crate) temperature: f32,
    /// Only the most probable tokens that together reach P; 1: all
    #[arg(short = 'k', value_name = "P", default_value = "0.9")]
    #[arg(value_parser = value::probability, allow_negative_numbers = true)]
    pub(crate) top_p: f32,
    /// Start of the random numbers: the same seed gives the same text
    #[arg(short = 's', value_name = "SEED", default_value = "42", value_parser = value::seed)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) seed: Seed,
    /// Tokens of the context [default, and 0: what the model was trained for, at most 4096]
    #[arg(short = 'c', value_name = "CTX", value_parser = value::positions_or_0, allow_negative_numbers = true)]
    pub(crate) n_ctx: Option<usize>,
    /// Threads to compute with [default: 4, or as many as there are cores]
    #[arg(short = 'j', value_name = "THREADS", value_parser = value::threads, allow_negative_numbers = true)]
    pub(crate) n_threads: Option<usize>,
    /// Write a JSON object and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep the state of the prompt and the text in FILE, and use what is there of it; PicoLM's
    /// own files are refused
    #[arg(long, value_name = "FILE")]
    pub(crate) cache: Option<PathBuf>,
}

/// Measures how fast a prompt is read and text is written.
///
/// One warm-up, then medians: reading N tokens at once, and writing N tokens, one by one. The
/// context is as long as they need, or -c if that is longer.
#[derive(Debug, Args)]
#[cfg_attr(
    feature = "comfort",
    command(after_help = "Examples:
  atta bench model.gguf
  atta bench model.gguf -p 0 -n 32 -d 4096 -j 4 --json
  atta bench model.gguf --sweep 1,2,4")
)]
pub(crate) struct BenchArgs {
    /// GGUF file, or ORG/REPO[:QUANT] that was pulled [default: the built-in model]
    pub(crate) model: Option<PathBuf>,
    /// Tokens to read; 0: do not measure
    #[arg(short = 'p', value_name = "N", default_value = "512")]
    #[arg(value_parser = value::bench_count, allow_negative_numbers = true)]
    pub(crate) n_prompt: usize,
    /// Tokens to write; 0: do not measure
    #[arg(short = 'n', value_name = "N", default_value = "128")]
    #[arg(value_parser = value::bench_count, allow_negative_numbers = true)]
    pub(crate) n_gen: usize,
    /// Tokens in the context before either starts
    #[arg(short = 'd', value_name = "DEPTH", default_value = "0")]
    #[arg(value_parser = value::bench_count, allow_negative_numbers = true)]
    pub(crate) depth: usize,
    /// Repetitions
    #[arg(short = 'r', value_name = "REPS", default_value = "3")]
    #[arg(value_parser = value::repetitions, allow_negative_numbers = true)]
    pub(crate) n_reps: usize,
    /// Measure with these numbers of threads, one after the other
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["threads", "cpus"])]
    #[arg(value_parser = value::threads)]
    pub(crate) sweep: Vec<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
}

#[cfg(feature = "perplexity")]
/// Measures how well the model predicts a text.
///
/// The text is cut into chunks of -c tokens (512 unless said otherwise), of which the second half
/// is scored, with all of the chunk before it. Perplexity is e to the mean of -ln p. The figures
/// are those of llama.cpp's llama-perplexity, and files of saved logits are the same, too. Special
/// tokens in the text are text.
///
/// With --kld the text is that of the saved logits, and -f may be left away.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta perplexity model.gguf -f wiki.txt
  atta perplexity model-f16.gguf -f wiki.txt --save-logits f16.logits
  atta perplexity model-q4.gguf --kld f16.logits --json
  atta perplexity model.gguf -f wiki.txt --resume wiki.progress")]
pub(crate) struct PerplexityArgs {
    /// GGUF file, of a split model any of its files; or ORG/REPO[:QUANT] that was pulled [default:
    /// the built-in model]
    pub(crate) model: Option<PathBuf>,
    /// File with the text; -: standard input
    #[arg(short = 'f', value_name = "TEXT", required_unless_present = "kld")]
    pub(crate) text: Option<PathBuf>,
    /// Score the first N chunks only [default: all]
    #[arg(long = "chunks", value_name = "N", value_parser = value::positions, allow_negative_numbers = true)]
    pub(crate) n_chunks: Option<usize>,
    /// Save the log-probabilities of all tokens to FILE, 16 bits each, to compare other models
    /// with
    #[arg(long, value_name = "FILE")]
    pub(crate) save_logits: Option<PathBuf>,
    /// Compare with what was saved in FILE: Kullback-Leibler divergence, and more
    #[arg(long, value_name = "FILE", conflicts_with = "save_logits")]
    pub(crate) kld: Option<PathBuf>,
    /// Note in FILE what is done, and go on from there if it exists
    ///
    /// After Ctrl-C, or killed, the same command goes on with the next chunk, and its figures are
    /// the same to the last digit. The file of --save-logits grows in place then.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
}

/// Turns text into token ids.
///
/// The file needs a vocabulary, but no tensors and no architecture that we run. No
/// begin-of-sequence token is added unless asked for.
#[derive(Debug, Args)]
#[cfg_attr(
    feature = "comfort",
    command(after_help = "Examples:
  atta tokenize model.gguf \"Hello world\" --ids
  atta tokenize -p \"Hello world\"                of the built-in model
  atta tokenize model.gguf --ids --bos < text.txt
  atta tokenize model.gguf --special \"<|im_start|>user\"")
)]
pub(crate) struct TokenizeArgs {
    /// GGUF file, or ORG/REPO[:QUANT] that was pulled [default: the built-in model]
    pub(crate) model: Option<PathBuf>,
    /// Text; without it or with `-`, standard input, byte for byte
    pub(crate) text: Option<OsString>,
    /// Text to tokenize where no MODEL is given
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with = "text",
        allow_hyphen_values = true
    )]
    pub(crate) prompt: Option<OsString>,
    /// Print `[1, 2, 3]` instead of one line per token
    #[arg(long)]
    pub(crate) ids: bool,
    /// Begin with the begin-of-sequence token
    #[arg(long)]
    pub(crate) bos: bool,
    /// Recognise control tokens in the text, such as `<|im_start|>`
    #[arg(long)]
    pub(crate) special: bool,
}

/// Writes the logits after each of the given tokens.
///
/// Evaluates exactly these ids and writes 32-bit floats, little-endian, [n_tokens, n_vocab]. Keys
/// and values are kept in f32 unless --kv says otherwise.
#[derive(Debug, Args)]
#[cfg_attr(
    feature = "comfort",
    command(after_help = "Examples:
  atta logits model.gguf --tokens 1,15043,3186 -o logits.f32
  atta tokenize model.gguf --ids \"Hello\" | atta logits model.gguf --tokens - -o logits.f32")
)]
pub(crate) struct LogitsArgs {
    /// GGUF file, or ORG/REPO[:QUANT] that was pulled [default: the built-in model]
    pub(crate) model: Option<PathBuf>,
    /// Ids, separated by commas or spaces; `@FILE` reads them from a file, `-` from standard input
    #[arg(long, value_name = "IDS", required = true, value_parser = value::token_source, allow_hyphen_values = true)]
    pub(crate) tokens: TokenSource,
    /// File to write; -: standard output
    #[arg(short, value_name = "FILE", required = true)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
}

/// Shows what is in a GGUF file: metadata, tensors, and the model they make.
///
/// No architecture that we run is needed. With one that we do, there is also what memory it would
/// take with these options, without loading it.
#[derive(Debug, Args)]
#[cfg_attr(
    feature = "comfort",
    command(after_help = "Examples:
  atta inspect model.gguf
  atta inspect model.gguf -c 32768 --kv q8 --ram-budget 2G --speed
  atta inspect model.gguf --tensors --json")
)]
pub(crate) struct InspectArgs {
    /// GGUF file, of a split model any of its files; or ORG/REPO[:QUANT] that was pulled [default:
    /// the built-in model]
    pub(crate) model: Option<PathBuf>,
    /// List every tensor
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Print one JSON object, with strings in full
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure what the memory gives, and say how many tokens per second that allows at most
    #[cfg(feature = "survey")]
    #[arg(long)]
    pub(crate) speed: bool,
    #[cfg(feature = "survey")]
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
}

/// Reads the command line. Asked for help or the version, prints that and ends the program.
pub(crate) fn parse() -> Result<Command, Failure> {
    match Cli::try_parse_from(words(std::env::args_os())) {
        Ok(cli) => Ok(cli.command),
        Err(error) if is_help(error.kind()) => error.exit(),
        Err(error) => Err(Failure::Usage(summary(&error.render().to_string()))),
    }
}

/// The words of the command line; of a program called `picolm`, those of that command.
fn words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.collect();
    let name = words.first().map(Path::new).and_then(Path::file_stem);
    if name.is_some_and(|name| name.eq_ignore_ascii_case("picolm")) {
        words.splice(..1, ["atta".into(), "picolm".into()]);
    }
    words
}

fn is_help(kind: ErrorKind) -> bool {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    matches!(
        kind,
        DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion
    )
}

/// The message and the tip of a rendered error, without its usage lines, as one line.
fn summary(rendered: &str) -> String {
    let paragraphs = rendered.trim().split("\n\n");
    let said =
        paragraphs.filter(|p| !p.starts_with("Usage:") && !p.starts_with("For more information"));
    let lines = said
        .flat_map(str::lines)
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("; ").replace(":; ", ": ");
    format!("{} (see --help)", text.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn message(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        summary(&error.render().to_string())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line_with_the_way_out() {
        assert_eq!(
            message("atta run --top-pp 1"),
            "unexpected argument '--top-pp' found; tip: a similar argument exists: '--top-p' (see --help)"
        );
        assert_eq!(
            message("atta convert a"),
            "the following required arguments were not provided: <DST> (see --help)"
        );
        assert!(
            message("atta rum").starts_with("unrecognized subcommand 'rum'; tip: "),
            "{}",
            message("atta rum")
        );
    }

    #[test]
    fn numbers_without_meaning_are_refused_where_they_stand() {
        for option in [
            "-c 0",
            "-c -1",
            "-n -2",
            "-j 0",
            "--batch 0",
            "--cpus 3-1",
            "--seed -2",
            "--top-k x",
            "-c 1e3",
        ] {
            let name = option
                .split(' ')
                .next()
                .unwrap()
                .replace("-n", "--n-predict");
            let message = message(&format!("atta run -p x {option}"));
            assert!(message.contains(&format!("for '{name} <")), "{message}");
        }
    }

    #[test]
    fn a_program_called_picolm_is_that_command() {
        let words = |line: &str| words(line.split(' ').map(OsString::from)).join(" ".as_ref());
        assert_eq!(
            words("/usr/bin/picolm m.gguf -k 0.5"),
            "atta picolm m.gguf -k 0.5"
        );
        assert_eq!(words("picolm.exe m.gguf"), "atta picolm m.gguf");
        assert_eq!(words("atta picolm m.gguf"), "atta picolm m.gguf");
        assert_eq!(words("./atta run"), "./atta run");
    }

    #[test]
    fn of_an_option_that_is_given_twice_the_last_counts() {
        let cli =
            Cli::try_parse_from("atta run -n 3 -p a -t 1 -p b -n 4 --stop x --stop y".split(' '))
                .unwrap();
        let Command::Run(args) = cli.command else {
            panic!("not a run")
        };
        let options = args.sampling.generate_options(Length::Bounded).unwrap();
        assert_eq!((args.prompt.unwrap(), options.n_predict), ("b".into(), 4));
        assert_eq!(options.stop, ["x", "y"]);
    }

    #[test]
    fn a_prompt_may_begin_with_a_hyphen() {
        let cli = Cli::try_parse_from(["atta", "run", "-p", "-n is no option here"]).unwrap();
        let Command::Run(args) = cli.command else {
            panic!("not a run")
        };
        assert_eq!(args.prompt.unwrap(), "-n is no option here");
    }
}
