//! `atta embed`: texts as vectors, one JSON array per line or a NumPy file.

use std::{
    ffi::OsString,
    io::{self, BufRead},
    path::PathBuf,
};

use atta::{EmbedOptions, Embedder, Engine, KvType, Pooling, Text};
use clap::{Args, ValueEnum};

use crate::{
    args::{ModelAndTexts, ModelFlags, extra_help},
    failure::Failure,
    input::{self, TextLimit, TextSource},
    inputs::InputFiles,
    interrupt::Interrupt,
    load,
    output::NewFile,
};

/// Texts between two checks for Ctrl-C.
const CHUNK: usize = 256;

/// Makes vectors of texts, for search and comparison.
///
/// Writes one vector per text, in order, each of length 1. A text is an argument, a file, or a line
/// of standard input. Any model gives vectors; those of embedding models are good ones.
#[derive(Debug, Args)]
#[command(after_help = extra_help(
    "Examples:
  atta embed model.gguf \"The lamp is on.\" \"It is bright.\"
  atta embed model.gguf < lines.txt > vectors.jsonl
  atta embed model.gguf -f a.txt -f b.txt --format npy -o vectors.npy"
))]
pub(crate) struct EmbedArgs {
    /// GGUF file, or ORG/REPO[:QUANT] that was pulled; also by -m or --model
    #[arg(required_unless_present = "named")]
    model: Option<OsString>,
    /// Texts; without any, and without files, each line of standard input is one
    texts: Vec<OsString>,
    /// MODEL by its name.
    #[arg(short = 'm', long = "model", value_name = "MODEL", hide = true)]
    named: Option<PathBuf>,
    /// A file that is one text; may be given more than once
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Which hidden states become the vector [default: as the model's file says; else mean for an
    /// encoder, last for a decoder]
    #[arg(long, value_enum)]
    pooling: Option<PoolingName>,
    /// jsonl: a JSON array per line; npy: a NumPy array of 32-bit floats, [n_texts, d_vector]
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Output file; -: standard output
    #[arg(short, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    model_flags: ModelFlags,
}

/// A pooling of hidden states to a vector.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PoolingName {
    Mean,
    Last,
    Cls,
}

impl From<PoolingName> for Pooling {
    fn from(name: PoolingName) -> Self {
        match name {
            PoolingName::Mean => Self::Mean,
            PoolingName::Last => Self::Last,
            PoolingName::Cls => Self::Cls,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Jsonl,
    Npy,
}

pub(super) fn run(mut args: EmbedArgs) -> Result<(), Failure> {
    let texts = std::mem::take(&mut args.texts);
    let given = ModelAndTexts::new(args.model.take(), texts, args.named.take());
    let model = given.model.expect("one of both is required");
    args.texts = given.texts;
    args.model_flags.refuse_fit("embed")?;
    let embedding = EmbedOptions {
        pooling: args.pooling.map(Pooling::from),
        session: args.model_flags.session_options(KvType::F16),
    };
    let options = load::options(Some(&model), &args.model_flags, embedding.planned_session())?;
    let engine = load::engine(Some(&model), &options)?;
    if engine.spec().is_encoder() && embedding.session.n_batch.is_some() {
        return Err(Failure::Usage(
            "--batch does not apply to an encoder, which evaluates each text whole".to_owned(),
        ));
    }
    let mut embedder = Embedder::new(&engine, &embedding)?;
    let inputs = InputFiles::of(std::iter::once(&model).chain(&args.file).map(Some));
    let texts = read_texts(&args)?;
    let interrupt = Interrupt::listen();
    let mut file = match input::is_stdin(&args.output) {
        true => NewFile::stdout()?,
        false => NewFile::create(&args.output, &inputs)?,
    };
    if args.format == Format::Npy {
        file.write(&npy_header(texts.len(), engine.d_vector()))?;
    }
    for (i, chunk) in texts.chunks(CHUNK).enumerate() {
        if interrupt.is_asked() {
            return Err(Failure::Interrupted);
        }
        let tokens = tokenized(&engine, &embedder, chunk, i * CHUNK)?;
        for vector in embedder.embed(tokens)? {
            file.write(&encoded(&vector, args.format))?;
        }
    }
    file.finish()
}

/// The texts of the arguments, then those of files; without any, the lines of standard input.
fn read_texts(args: &EmbedArgs) -> Result<Vec<Vec<u8>>, Failure> {
    let limit = TextLimit::of_memory();
    if args.texts.is_empty() && args.file.is_empty() {
        // Refuses a terminal.
        TextSource::given_or_piped(None, "give it after MODEL or by -f, or pipe it in")?;
        return lines(io::stdin().lock());
    }
    let given = args
        .texts
        .iter()
        .map(|text| Ok(text.as_encoded_bytes().to_vec()));
    let files = args.file.iter().map(|path| input::read_bytes(path, &limit));
    given.chain(files).collect()
}

/// The lines of a text, without their ends.
fn lines(from: impl BufRead) -> Result<Vec<Vec<u8>>, Failure> {
    let line = |line: io::Result<Vec<u8>>| {
        let mut line =
            line.map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))?;
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(line)
    };
    from.split(b'\n').map(line).collect()
}

/// The tokens of some texts; `first` texts came before them.
fn tokenized(
    engine: &Engine,
    embedder: &Embedder,
    texts: &[Vec<u8>],
    first: usize,
) -> Result<Vec<Text>, Failure> {
    let n_ctx = embedder.n_ctx();
    let tokens = |(i, text): (usize, &Vec<u8>)| {
        let ids = engine.embedding_ids(text);
        let n = first + i + 1;
        if text.is_empty() {
            return Err(Failure::Failed(format!(
                "text {n} is empty: it has no vector"
            )));
        }
        if ids.len() > n_ctx {
            let n_ids = ids.len();
            return Err(Failure::Failed(format!(
                "text {n} has {n_ids} tokens, but the context holds {n_ctx}: raise -c or cut it"
            )));
        }
        Ok(Text::from(ids))
    };
    texts.iter().enumerate().map(tokens).collect()
}

/// A vector as a line of JSON, or as the bytes of a NumPy array.
fn encoded(vector: &[f32], format: Format) -> Vec<u8> {
    match format {
        Format::Npy => vector.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Format::Jsonl => {
            // As f32: a `Value` would write each number as the f64 nearest to it.
            let mut line = serde_json::to_vec(vector).expect("numbers are JSON");
            line.push(b'\n');
            line
        }
    }
}

/// The header of a NumPy file, version 1.0, of little-endian f32, `[n, d]`. Its length is a
/// multiple of 64.
fn npy_header(n: usize, d: usize) -> Vec<u8> {
    let fields = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({n}, {d}), }}");
    let n_before = 10;
    let n_padded = (n_before + fields.len() + 1).next_multiple_of(64) - n_before;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((n_padded as u16).to_le_bytes());
    header.extend(fields.as_bytes());
    header.resize(n_before + n_padded - 1, b' ');
    header.push(b'\n');
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numpy_header_ends_at_a_multiple_of_64() {
        for (n, d) in [(0, 1), (3, 384), (1_000_000, 4096)] {
            let header = npy_header(n, d);
            assert!(header.len().is_multiple_of(64) && header.ends_with(b"\n"));
            let n_rest = u16::from_le_bytes([header[8], header[9]]) as usize;
            assert_eq!(header.len(), 10 + n_rest);
            let text = String::from_utf8_lossy(&header[10..]).into_owned();
            assert!(text.contains(&format!("'shape': ({n}, {d})")), "{text}");
        }
    }

    #[test]
    fn lines_end_with_a_line_feed_or_with_a_carriage_return_before_it() {
        let of = |text: &[u8]| lines(text).unwrap();
        assert_eq!(
            of(b"a\r\nb b\nc"),
            [b"a".to_vec(), b"b b".to_vec(), b"c".to_vec()]
        );
        assert_eq!(of(b""), Vec::<Vec<u8>>::new());
        assert_eq!(of(b"\na\n"), [b"".to_vec(), b"a".to_vec()]);
    }
}
