//! What may be typed after `atta convert` and `atta imatrix`.

use std::path::PathBuf;

use atta::{
    TensorType,
    convert::{MIXES, Mix, Regex},
};
use clap::{Args, ValueEnum};

use super::{ModelFlags, value};

/// Makes a GGUF file from another file or a directory, and quantizes it.
///
/// SRC is a directory with config.json (Hugging Face: safetensors, or pytorch_model.bin) or
/// params.json (Meta), a GGUF file, or a .bin file of llama2.c or LEAP with tokenizer.bin beside
/// it.
///
/// Without --type every tensor keeps its type. With a type or a mix of types, matrices get what the
/// mix says, norms and other vectors stay as they are; the rules are those of llama.cpp, and so are
/// the bytes. Weights pass through in portions, whatever the size of the model. DST is there whole
/// or not at all.
#[derive(Debug, Args)]
#[command(after_help = types_help())]
pub(crate) struct ConvertArgs {
    /// Directory of a model, GGUF file (of a split model, any), .bin of llama2.c or LEAP, or
    /// ORG/REPO that was pulled
    pub(crate) src: PathBuf,
    /// File to write
    pub(crate) dst: PathBuf,
    /// Kind of file to write; those of LEAP, for llama2.c and LEAP, get a tokenizer.bin beside
    /// them
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Kind::Gguf)]
    pub(crate) to: Kind,
    /// Type or mix of types of the result, in any case [default: as it is]
    #[arg(long = "type", value_name = "TYPE", value_parser = mix)]
    pub(crate) mix: Option<&'static Mix>,
    /// Weigh errors by what FILE, made by `atta imatrix`, says of the inputs of matrices
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
    /// Type for tensors whose names match, such as `ffn_down=q6_k`; may be given again, the first
    /// that matches wins
    #[arg(long = "tensor-type", value_name = "REGEX=TYPE", value_parser = tensor_type)]
    pub(crate) tensor_types: Vec<(Regex, TensorType)>,
    /// Give all matrices the one type that --type is named after, instead of a mix
    #[arg(long, requires = "mix")]
    pub(crate) pure: bool,
    /// Put tensors of no more than SIZE into one file: DST-00001-of-00003.gguf and so on
    ///
    /// What stands in front of the tensors comes on top, and a tensor that is larger by itself has
    /// a file of its own.
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub(crate) split: Option<u64>,
    /// Vocabulary of a .bin file [default: tokenizer.bin beside it]
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// How text is cut before it is tokenized, for a vocabulary that does not say it in words that
    /// we know
    #[arg(long, value_name = "NAME")]
    pub(crate) pre: Option<String>,
    /// Threads [default: as many as there are CPUs for us]
    #[arg(short = 'j', value_name = "THREADS", value_parser = value::threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Overwrite what is there: DST, all of its parts, and with --to leap-… the tokenizer.bin
    /// beside it
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object about what was done
    #[arg(long)]
    pub(crate) json: bool,
}

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Gguf,
    LeapF32,
    LeapInt8,
}

fn types_help() -> String {
    let names: Vec<_> = MIXES.iter().map(|mix| mix.name).collect();
    format!(
        "Types, by size:\n  {}\n\nExamples:
  atta convert Qwen3-0.6B/ qwen3.gguf --type q8_0
  atta convert model-f16.gguf model-q4_k_m.gguf --type q4_k_m
  atta convert model-f16.gguf small.gguf --type iq4_xs --imatrix model.imatrix
  atta convert model-00001-of-00004.gguf whole.gguf
  atta convert model.gguf parts.gguf --split 2G
  atta convert llama.gguf llama.bin --to leap-int8",
        names.join(" ")
    )
}

fn mix(name: &str) -> Result<&'static Mix, String> {
    Mix::named(name).ok_or_else(|| {
        "expected a type such as q8_0 or q4_k_m (all of them: atta convert --help)".to_owned()
    })
}

fn tensor_type(text: &str) -> Result<(Regex, TensorType), String> {
    let expected = || "expected a pattern and a type, such as ffn_down=q6_k".to_owned();
    let (pattern, name) = text.rsplit_once('=').ok_or_else(expected)?;
    let ty = TensorType::ALL
        .iter()
        .find(|ty| ty.name().eq_ignore_ascii_case(name))
        .ok_or_else(expected)?;
    let regex =
        Regex::new(pattern).map_err(|error| format!("`{pattern}` is no pattern: {error}"))?;
    Ok((regex, *ty))
}

/// Measures what the matrices of a model are multiplied with: an importance matrix for `atta
/// convert`.
///
/// The text is cut into chunks of -c tokens (512 unless said otherwise), each evaluated from an
/// empty context. For every column of every matrix of a layer the squares of its inputs are summed.
/// Files are llama.cpp's, in GGUF. Ctrl-C ends the work and writes what there is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta imatrix model-f16.gguf -f text.txt -o model.imatrix
  atta imatrix model-f16.gguf -f more.txt --add model.imatrix -o both.imatrix")]
pub(crate) struct ImatrixArgs {
    /// GGUF file; of a split model, any of its files; or ORG/REPO[:QUANT] that was pulled
    pub(crate) model: PathBuf,
    /// File with the text; -: standard input
    #[arg(short = 'f', value_name = "TEXT", required = true)]
    pub(crate) text: PathBuf,
    /// File to write
    #[arg(short, value_name = "FILE", required = true)]
    pub(crate) output: PathBuf,
    /// Take the first N chunks only [default: all]
    #[arg(long = "chunks", value_name = "N", value_parser = value::positions, allow_negative_numbers = true)]
    pub(crate) n_chunks: Option<usize>,
    /// Add to what is in FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) add: Option<PathBuf>,
    /// Overwrite what is there; the file of --add may be overwritten anyway
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
}
