//! `atta tokenize`: text to token ids, from the metadata of a file alone.

use std::{
    ffi::OsString,
    fmt::Display,
    path::{Path, PathBuf},
};

use atta::tokenizer::{Special, Tokenizer};
use clap::Args;

use crate::{
    args::{ModelAndTexts, extra_help},
    failure::Failure,
    input::{TextLimit, TextSource},
    load::{self, warn},
    output::Stdout,
};

/// Turns text into token ids.
///
/// The file needs a vocabulary, but no tensors and no supported architecture. No
/// begin-of-sequence token is added without --bos.
#[derive(Debug, Args)]
#[command(after_help = extra_help(
    "Examples:
  atta tokenize model.gguf \"Hello world\" --ids
  atta tokenize -p \"Hello world\"                of the built-in model
  atta tokenize model.gguf --ids --bos < text.txt
  atta tokenize model.gguf --special \"<|im_start|>user\""
))]
pub(crate) struct TokenizeArgs {
    /// GGUF file, or ORG/REPO[:QUANT] that was pulled; also by -m or --model [default: the built-in
    /// model]
    model: Option<OsString>,
    /// Text; without it or with `-`, standard input, byte for byte
    text: Option<OsString>,
    /// MODEL by its name.
    #[arg(short = 'm', long = "model", value_name = "MODEL", hide = true)]
    #[arg(conflicts_with = "text")]
    named: Option<PathBuf>,
    /// Text, where no MODEL is given
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with = "text",
        allow_hyphen_values = true
    )]
    prompt: Option<OsString>,
    /// Print `[1, 2, 3]` instead of one line per token
    #[arg(long)]
    ids: bool,
    /// Add the begin-of-sequence token
    #[arg(long)]
    bos: bool,
    /// Parse special tokens in the text, such as `<|im_start|>`
    #[arg(long)]
    special: bool,
}

pub(super) fn run(mut args: TokenizeArgs) -> Result<(), Failure> {
    let texts = args.text.take().into_iter().collect();
    let ModelAndTexts { model, mut texts } =
        ModelAndTexts::new(args.model.take(), texts, args.named.take());
    if args.prompt.is_some() && !texts.is_empty() {
        return Err(Failure::Usage("TEXT is given twice".to_owned()));
    }
    let model = model.as_deref();
    let text = texts.pop();
    let named = text.as_deref().or(args.prompt.as_deref());
    let given = named.filter(|text| *text != "-");
    let text = match named {
        Some(_) if given.is_none() => TextSource::Stdin,
        _ => TextSource::given_or_piped(given, "give it after MODEL or by -p, or pipe it in")?,
    };
    let files = load::files(model)?;
    let tokenizer = Tokenizer::from_metadata(files.directory().metadata())
        .map_err(|error| failed(model, error))?;
    tokenizer
        .warnings()
        .iter()
        .for_each(|warning| warn(warning));

    let bos = match args.bos {
        true => Some(bos(&tokenizer, model)?),
        false => None,
    };
    let special = if args.special {
        Special::Parse
    } else {
        Special::Plain
    };
    let ids: Vec<u32> = bos
        .into_iter()
        .chain(tokenizer.encode(text.read_all(&TextLimit::of_memory())?, special))
        .collect();
    print(&tokenizer, &ids, args.ids)
}

/// A failure caused by the model.
fn failed(model: Option<&Path>, what: impl Display) -> Failure {
    Failure::Failed(format!("{}: {what}", load::name(model)))
}

fn bos(tokenizer: &Tokenizer, model: Option<&Path>) -> Result<u32, Failure> {
    let missing = "--bos: this vocabulary has no begin-of-sequence token";
    tokenizer.bos().ok_or_else(|| failed(model, missing))
}

fn print(tokenizer: &Tokenizer, ids: &[u32], ids_only: bool) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    if ids_only || ids.is_empty() {
        out.line(&format!("{ids:?}"))?;
    } else {
        for &id in ids {
            out.line(&format!("{id:>7}  {}", spelled(tokenizer.token_text(id))))?;
        }
    }
    out.flush()
}

/// The spelling of a token in the vocabulary, quoted, with escapes for characters that do not
/// print.
fn spelled(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in text.utf8_chunks() {
        out.extend(chunk.valid().chars().flat_map(char::escape_debug));
        out.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_spelled_with_escapes() {
        assert_eq!(
            spelled("▁a\"\n\u{1b}\u{202e}".as_bytes()),
            r#""▁a\"\n\u{1b}\u{202e}""#
        );
        assert_eq!(spelled(b"a\xff\xe2\x82"), r#""a\xff\xe2\x82""#);
    }
}
