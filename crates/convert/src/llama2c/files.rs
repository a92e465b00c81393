//! Both files of a model on the disk, there whole or not at all.

use std::{
    io::{BufWriter, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use super::{Leap, Report, write};
use crate::{Checkpoint, Error, draft::Draft};

/// Where the vocabulary of a model at `dst` lies.
pub fn tokenizer_path(dst: &Path) -> PathBuf {
    dst.with_file_name("tokenizer.bin")
}

/// Writes a model to `dst` and its vocabulary beside it. `progress` hears how many bytes of how
/// many are written, and may break: then neither file was ever there.
///
/// # Errors
/// As [`write()`].
pub fn convert(
    checkpoint: &Checkpoint,
    dst: &Path,
    to: Leap,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Report, Error> {
    if dst == tokenizer_path(dst) {
        return Err(Error::Tokenizer {
            path: dst.to_owned(),
        });
    }
    let mut model = Draft::new(dst)?;
    let mut tokenizer = Draft::new(&tokenizer_path(dst))?;
    let mut tokens = BufWriter::new(&mut tokenizer);
    let report = write(checkpoint, to, &mut model, &mut tokens, progress)?;
    tokens.flush().map_err(Error::Output)?;
    drop(tokens);
    checkpoint.check_files()?;
    tokenizer.keep()?;
    model.keep()?;
    Ok(report)
}
