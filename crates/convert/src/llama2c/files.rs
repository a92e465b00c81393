//! Writes the two files of a model, each atomically.

use std::{
    io::{BufWriter, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use super::{LeapFormat, Report, write};
use crate::{Checkpoint, Error, atomic_file::AtomicFile};

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
