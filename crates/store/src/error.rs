//! The errors of this crate; every message names the file or the numbers.

use std::path::PathBuf;

use atta_formats::{Explain, Names, Setting};

use crate::Damage;

/// An error of this crate.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused to open, read or map a file.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is not a model file that we read.
    #[error("{path}: {source}", path = .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The error of its bytes.
        source: atta_formats::Error,
    },
    /// A reservation does not fit.
    #[error("{}", over_budget(what, *asked, *used, *limit, Setting::words))]
    OverBudget {
        /// The name of the reservation.
        what: &'static str,
        /// Requested bytes.
        asked: u64,
        /// Bytes reserved before.
        used: u64,
        /// The budget, bytes.
        limit: u64,
    },
    /// A plan points outside of its file; the directory was not checked against the same files.
    #[error("shard {shard}: bytes {offset}+{bytes} lie outside of the file of {file_bytes} bytes")]
    OutOfFile {
        /// Index of the shard.
        shard: u16,
        /// First byte.
        offset: u64,
        /// Length, bytes.
        bytes: u64,
        /// Length of the file, bytes.
        file_bytes: u64,
    },
    /// A part of a model file lacks a tensor.
    #[error("{path}: this part of the model lacks {tensor}", path = .path.display())]
    Absent {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
    },
    /// Bytes of a file differ from their checksum.
    #[error(transparent)]
    Damaged(Box<Damage>),
    /// A file holds no checksums to compare it with.
    #[error("{path}: holds no checksums that its bytes could be compared with", path = .path.display())]
    NoChecksums {
        /// The file.
        path: PathBuf,
    },
    /// Weights of a source that is not addressable were to be used in place.
    #[error(
        "shard {shard}: its bytes are not addressable, so that they have to be read into memory"
    )]
    NotAddressable {
        /// Index of the shard.
        shard: u16,
    },
    /// The plan of these weights lacks the requested layer or table.
    #[error("the weights asked for are not part of this plan")]
    NotInPlan,
    /// The table does not have the requested row.
    #[error("row {row} of a table of {n_rows}")]
    NoRow {
        /// The highest requested row.
        row: u64,
        /// Rows of the table.
        n_rows: u64,
    },
    /// More experts were requested at once than the expert cache of a layer holds.
    #[error("{asked} experts asked for at once, but there are places for {places}")]
    TooManyExperts {
        /// Requested experts.
        asked: usize,
        /// Entries of the cache.
        places: usize,
    },
    /// The system refused to start a reader thread.
    #[error("cannot start a thread that reads weights: {0}")]
    Readers(std::io::Error),
    /// The system cannot give the memory that the budget allows.
    #[error("no memory for {bytes} bytes of weights: {source}")]
    NoMemory {
        /// Requested bytes.
        bytes: u64,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The system could not read the pages of a mapped file.
    #[error("cannot read the weights ahead: {0}")]
    Prewarm(std::io::Error),
}

impl Explain for Error {
    fn explain(&self, names: Names) -> String {
        match *self {
            Self::OverBudget {
                what,
                asked,
                used,
                limit,
            } => over_budget(what, asked, used, limit, names),
            _ => self.to_string(),
        }
    }
}

fn over_budget(what: &str, asked: u64, used: u64, limit: u64, names: Names) -> String {
    let suggestion = match what {
        "kv cache" => format!("lower {}", names(Setting::NCtx)),
        "activations" => format!("lower {}", names(Setting::NBatch)),
        "scores" => "score fewer chunks".to_owned(),
        _ => "this model needs more memory".to_owned(),
    };
    format!(
        "out of memory budget: {what} needs {asked} bytes, {used} of {limit} are taken; {suggestion}"
    )
}
