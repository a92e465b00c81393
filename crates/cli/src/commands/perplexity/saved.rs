//! Files of saved logits: the output of `--save-logits` and the baseline of `--kld`. The library
//! defines their contents.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use atta::perplexity::{Baseline, BaselineHeader, write_row};

use crate::{failure::Failure, inputs::InputFiles, output::NewFile};

/// The output of `--save-logits`.
pub(in crate::commands) enum LogitsWriter {
    /// A file that appears when it is whole, and a buffer for a row.
    Whole(NewFile, Vec<u8>),
    /// A file that grows in place, so that it can be resumed.
    Growing(BufWriter<File>, PathBuf),
}

impl LogitsWriter {
    /// Creates a file that is written whole or not at all.
    pub(in crate::commands) fn new(
        path: &Path,
        inputs: &InputFiles,
        header: &BaselineHeader,
    ) -> Result<Self, Failure> {
        let mut file = NewFile::create(path, inputs)?;
        file.write(&header.to_bytes())?;
        Ok(Self::Whole(file, Vec::new()))
    }

    /// Resumes after `n_done` chunks, or begins a file.
    pub(in crate::commands) fn resume(
        path: &Path,
        header: &BaselineHeader,
        n_done: usize,
    ) -> Result<Self, Failure> {
        let blame = |error| Failure::at(path, error);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(blame)?;
        let mut file = BufWriter::new(file);
        if n_done == 0 {
            file.get_ref().set_len(0).map_err(blame)?;
            file.write_all(&header.to_bytes()).map_err(blame)?;
            return Ok(Self::Growing(file, path.to_owned()));
        }
        let mut begin = vec![0; header.to_bytes().len()];
        let read = file.get_mut().read_exact(&mut begin);
        let n_bytes = file.get_ref().metadata().map_err(blame)?.len();
        if read.is_err() || begin != header.to_bytes() || n_bytes < header.file_bytes(n_done) {
            let what =
                "it does not hold what --resume says was done: remove that file to begin again";
            return Err(Failure::at(path, what));
        }
        file.get_ref()
            .set_len(header.file_bytes(n_done))
            .map_err(blame)?;
        file.seek(SeekFrom::End(0)).map_err(blame)?;
        Ok(Self::Growing(file, path.to_owned()))
    }

    /// Adds a row of logits, `[n_vocab]`.
    pub(in crate::commands) fn row(&mut self, logits: &[f32]) -> Result<(), Failure> {
        match self {
            Self::Whole(file, row) => {
                row.clear();
                write_row(logits, row).expect("a vector takes everything");
                file.write(row)
            }
            Self::Growing(file, path) => {
                write_row(logits, file).map_err(|error| cannot_write(path, error))
            }
        }
    }

    /// Syncs a chunk to disk before the journal records it.
    pub(in crate::commands) fn flush(&mut self) -> Result<(), Failure> {
        match self {
            Self::Whole(..) => Ok(()),
            Self::Growing(file, path) => {
                let written = file.flush().and_then(|()| file.get_ref().sync_data());
                written.map_err(|error| cannot_write(path, error))
            }
        }
    }

    pub(in crate::commands) fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        match self {
            Self::Whole(file, _) => file.finish(),
            Self::Growing(..) => Ok(()),
        }
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::at(path, format_args!("cannot write: {error}"))
}

/// The baseline of `--kld`.
pub(in crate::commands) struct BaselineFile {
    pub(in crate::commands) path: PathBuf,
    pub(in crate::commands) header: BaselineHeader,
    file: BufReader<File>,
}

impl BaselineFile {
    /// Opens the file; one that is incomplete is refused.
    pub(in crate::commands) fn open(path: &Path) -> Result<Self, Failure> {
        let blame = |error: io::Error| Failure::at(path, error);
        let mut file = BufReader::new(File::open(path).map_err(blame)?);
        let header = BaselineHeader::read(&mut file).map_err(|error| Failure::at(path, error))?;
        let n_bytes = fs::metadata(path).map_err(blame)?.len();
        let n_whole = header.file_bytes(header.chunks.len());
        if n_bytes < n_whole {
            let what = format!("it has {n_bytes} bytes of {n_whole}: it was not saved to the end");
            return Err(Failure::at(path, what));
        }
        Ok(Self {
            path: path.to_owned(),
            header,
            file,
        })
    }

    /// The rows from chunk `n_done` on.
    pub(in crate::commands) fn rows(
        mut self,
        n_done: usize,
    ) -> Result<Baseline<BufReader<File>>, Failure> {
        let place = SeekFrom::Start(self.header.file_bytes(n_done));
        self.file
            .seek(place)
            .map_err(|error| Failure::at(&self.path, error))?;
        Ok(Baseline::new(self.file, self.header.n_vocab))
    }
}
