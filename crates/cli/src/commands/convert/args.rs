//! The options of `atta convert`.

use std::path::PathBuf;

use atta::{
    TensorType,
    convert::{FileLayout, MIXES, Mix, NamePattern},
};
use clap::{Args, ValueEnum};

use super::sized::SizeArgs;
use crate::args::{
    lora::{LoraFlag, lora},
    value,
};

/// Converts a model to GGUF, and quantizes it.
///
/// SRC is a directory with config.json (Hugging Face: safetensors, or pytorch_model.bin) or
/// params.json (Meta), a GGUF or QSF file, or a .bin file of llama2.c or LEAP with tokenizer.bin
/// beside it. With --base it is a directory with adapter_config.json (peft).
///
/// Without --type every tensor keeps its type. With a type or a mix of types, matrices are
/// quantized by the rules of llama.cpp to the same bytes; norms and other vectors stay as they are.
/// Tensors are converted in parts, so memory does not grow with the model. DST appears when it is
/// whole. What an interrupted conversion has written stays in DST.converting, and the same command
/// goes on with it.
#[derive(Debug, Args)]
#[command(after_help = types_help())]
pub(crate) struct ConvertArgs {
    /// Directory of a model, GGUF file (any file of a split model), QSF file, .bin of llama2.c or
    /// LEAP, or ORG/REPO that was pulled
    pub(super) src: PathBuf,
    /// Output file
    pub(super) dst: PathBuf,
    /// Output format; with LEAP's (for llama2.c and LEAP), a tokenizer.bin is written beside DST
    /// [default: qsf if DST ends so, else gguf]
    #[arg(long, value_name = "KIND", value_enum, hide_default_value = true)]
    pub(super) to: Option<TargetFormat>,
    /// Quantization type or mix, in any case [default: unchanged]
    #[arg(long = "type", value_name = "TYPE", value_parser = mix)]
    pub(super) mix: Option<&'static Mix>,
    #[command(flatten)]
    pub(super) size: SizeArgs,
    /// Merge a LoRA adapter, a GGUF file, into the weights, with a scale [default: 1]; repeatable
    #[arg(long, value_name = "FILE[:SCALE]", value_parser = lora)]
    pub(super) lora: Vec<LoraFlag>,
    /// The base model of an adapter: SRC is a directory of peft, and DST the adapter's GGUF file
    #[arg(long, value_name = "MODEL")]
    pub(super) base: Option<PathBuf>,
    /// Use FILE, made by `atta imatrix`, as importance matrix
    #[arg(long, value_name = "FILE")]
    pub(super) imatrix: Option<PathBuf>,
    /// Type of tensors whose names match, such as `ffn_down=q6_k`; repeatable, the first match wins
    #[arg(long = "tensor-type", value_name = "REGEX=TYPE", value_parser = tensor_type)]
    pub(super) tensor_types: Vec<(NamePattern, TensorType)>,
    /// Disable mixes: quantize all matrices to the type that --type is named after
    #[arg(long, requires = "mix")]
    pub(super) pure: bool,
    /// With --type qsf…: give one bit more to matrices whose cosine with the original is below X
    #[arg(long, value_name = "X", value_parser = cosine)]
    pub(super) min_cosine: Option<f64>,
    /// Split into files of at most SIZE: DST-00001-of-00003.gguf and so on
    ///
    /// SIZE counts tensors; metadata comes on top. A tensor larger than SIZE has a file of its own.
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub(super) split: Option<u64>,
    /// Where tensors are in the file: streamable, in the order of execution at disk blocks and with
    /// checksums; plain, as llama.cpp puts them [default: streamable with T2, T3 or T4, which only
    /// atta reads, else plain]
    #[arg(long, value_name = "LAYOUT", value_enum)]
    pub(super) layout: Option<LayoutName>,
    /// Vocabulary of a .bin file [default: tokenizer.bin beside it], or of a QSF file without one
    #[arg(long, value_name = "FILE")]
    pub(super) tokenizer: Option<PathBuf>,
    /// Pre-tokenizer, for a vocabulary that does not name a known one
    #[arg(long, value_name = "NAME")]
    pub(super) pre: Option<String>,
    /// Number of threads [default: the CPUs that this process may use]
    #[arg(short = 'j', long, value_name = "THREADS", value_parser = value::threads)]
    #[arg(allow_negative_numbers = true)]
    pub(super) threads: Option<usize>,
    /// Print what would be done, or all that keeps SRC from being converted, and write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Overwrite DST, all files of a split DST, and with --to leap-… the tokenizer.bin beside it
    #[arg(long)]
    pub(super) force: bool,
    /// Print more: scales of T2, T3 and T4 that were too small on standard error; with
    /// --target-size and --target-bpw type, size and error of every tensor
    #[arg(short = 'v', long)]
    pub(super) verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl ConvertArgs {
    /// Converts `src` to `dst`, with the defaults for all else.
    #[cfg(feature = "leap")]
    pub(in crate::commands) fn of(src: PathBuf, dst: PathBuf, to: TargetFormat) -> Self {
        Self {
            src,
            dst,
            to: Some(to),
            mix: None,
            size: SizeArgs::default(),
            lora: Vec::new(),
            base: None,
            imatrix: None,
            tensor_types: Vec::new(),
            pure: false,
            min_cosine: None,
            split: None,
            layout: None,
            tokenizer: None,
            pre: None,
            threads: None,
            dry_run: false,
            force: false,
            verbose: false,
            json: false,
        }
    }

    /// The output format: the one that was named, or that the name of the output says.
    pub(super) fn target(&self) -> TargetFormat {
        let is_qsf = self
            .dst
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("qsf"));
        let by_name = if is_qsf {
            TargetFormat::Qsf
        } else {
            TargetFormat::Gguf
        };
        self.to.unwrap_or(by_name)
    }

    /// The same, overwriting files.
    #[cfg(feature = "leap")]
    pub(in crate::commands) fn overwriting(self) -> Self {
        Self {
            force: true,
            ..self
        }
    }
}

/// The format of the output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::commands) enum TargetFormat {
    Gguf,
    Qsf,
    LeapF32,
    LeapInt8,
}

/// Where tensors are in the output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::commands) enum LayoutName {
    Plain,
    Streamable,
}

impl From<LayoutName> for FileLayout {
    fn from(name: LayoutName) -> Self {
        match name {
            LayoutName::Plain => Self::Plain,
            LayoutName::Streamable => Self::Streamable,
        }
    }
}

fn types_help() -> String {
    let names: Vec<_> = MIXES.iter().map(|mix| mix.name).collect();
    format!(
        "Types, by size:\n  {}\n\nExamples:
  atta convert Qwen3-0.6B/ qwen3.gguf --type q8_0
  atta convert model-f16.gguf model-q4_k_m.gguf --type q4_k_m
  atta convert model-f16.gguf small.gguf --type iq4_xs --imatrix model.imatrix
  atta convert model-bf16.gguf fits.gguf --target-size 2.5G --calibrate text.txt
  atta convert model-00001-of-00004.gguf whole.gguf
  atta convert model.gguf parts.gguf --split 2G
  atta convert llama.gguf llama.bin --to leap-int8
  atta convert model-f16.gguf model.qsf --type qsf_mixed
  atta convert peft-adapter/ adapter.gguf --base model.gguf
  atta convert model-f16.gguf merged.gguf --lora adapter.gguf --type q4_k_m",
        names.join(" ")
    )
}

fn mix(name: &str) -> Result<&'static Mix, String> {
    Mix::named(name).ok_or_else(|| {
        "expected a type such as q8_0 or q4_k_m (all of them: atta convert --help)".to_owned()
    })
}

fn cosine(text: &str) -> Result<f64, String> {
    let x = text.parse().ok().filter(|x| (0.0..=1.0).contains(x));
    x.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

fn tensor_type(text: &str) -> Result<(NamePattern, TensorType), String> {
    let expected = || "expected a pattern and a type, such as ffn_down=q6_k".to_owned();
    let (pattern, name) = text.rsplit_once('=').ok_or_else(expected)?;
    let ty = type_named(name).ok_or_else(expected)?;
    let pattern: NamePattern = pattern
        .parse()
        .map_err(|error| format!("`{pattern}` is no pattern: {error}"))?;
    Ok((pattern, ty))
}

/// The type of this name, in any case.
pub(super) fn type_named(name: &str) -> Option<TensorType> {
    let mut all = TensorType::ALL.iter();
    all.find(|ty| ty.name().eq_ignore_ascii_case(name)).copied()
}
