//! Writes the two files of a model, each atomically; and the vocabulary alone, in memory.

use std::{
    fs::File,
    io::{BufWriter, Read, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use atta_formats::Writer;

use super::{LLAMA3_VOCAB, LeapFormat, Report, compat, vocab::TokenizerBin, write};
use crate::{
    Checkpoint, Error, SourceOptions,
    atomic_file::AtomicFile,
    metadata::parsed,
    vocab::{self, VocabFiles, VocabOptions},
};

/// The path of the vocabulary of a model at `dst`.
pub fn tokenizer_path(dst: &Path) -> PathBuf {
    dst.with_file_name("tokenizer.bin")
}

/// Writes a model to `dst` and its vocabulary beside it. `progress` is called with the bytes
/// written and the total; if it breaks, neither file is left.
///
/// # Errors
/// Those of [`write()`].
pub fn convert(
    checkpoint: &Checkpoint,
    dst: &Path,
    to: LeapFormat,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Report, Error> {
    if dst == tokenizer_path(dst) {
        return Err(Error::Tokenizer {
            path: dst.to_owned(),
        });
    }
    let mut model = AtomicFile::new(dst)?;
    let mut tokenizer = AtomicFile::new(&tokenizer_path(dst))?;
    let mut tokens = BufWriter::new(&mut tokenizer);
    let report = write(checkpoint, to, &mut model, &mut tokens, progress)?;
    tokens.flush().map_err(Error::Output)?;
    drop(tokens);
    checkpoint.check_files()?;
    tokenizer.commit()?;
    model.commit()?;
    Ok(report)
}

/// A `tokenizer.bin`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenizerFile {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Descriptions of what the format cannot express.
    pub dropped: Vec<String>,
}

/// The vocabulary of `src`: a `tokenizer.model` of SentencePiece or Llama 3, or a model of any kind
/// that [`crate::open`] reads.
///
/// # Errors
/// A vocabulary that cannot be read, or that neither llama2.c nor LEAP has.
pub fn tokenizer_file(src: &Path) -> Result<TokenizerFile, Error> {
    let metadata = match is_model(src)? {
        true => crate::open(src, &SourceOptions::default(), &mut Vec::new())?.metadata,
        false => vocabulary(src)?,
    };
    let metadata = parsed(&metadata)?;
    let vocab = TokenizerBin::new(&metadata).map_err(compat::refused)?;
    let mut bytes = Vec::new();
    vocab.write(&mut bytes).map_err(Error::Output)?;
    let dropped = vocab.dropped(&metadata);
    Ok(TokenizerFile { bytes, dropped })
}

/// The metadata of a vocabulary alone.
fn vocabulary(path: &Path) -> Result<Writer, Error> {
    let files = VocabFiles::of_model(path)?;
    let mut metadata = Writer::new();
    let n_vocab = vocab::n_tokens(&files, LLAMA3_VOCAB);
    vocab::write(&files, n_vocab, &VocabOptions::default(), &mut metadata)?;
    Ok(metadata)
}

/// Whether a path is a directory of a model or a GGUF file, and no vocabulary alone.
fn is_model(path: &Path) -> Result<bool, Error> {
    if path.is_dir() {
        return Ok(true);
    }
    let mut head = [0; 4];
    let read = File::open(path).and_then(|file| file.take(4).read(&mut head));
    read.map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(head == *b"GGUF")
}
