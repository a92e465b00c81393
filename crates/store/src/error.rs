//! What can go wrong with files and the budget, with the file or the numbers in every message.

use std::path::PathBuf;

/// An error of this crate.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused to open, read or map a file.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a model file that we read.
    #[error("{path}: {source}", path = .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with its bytes.
        source: atta_formats::Error,
    },
    /// A reservation does not fit.
    #[error(
        "out of memory budget: {what} needs {asked} bytes, {used} of {limit} are taken; {}",
        way_out(what)
    )]
    OverBudget {
        /// Who asked.
        what: &'static str,
        /// How much was asked, bytes.
        asked: u64,
        /// What was reserved before, bytes.
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
    /// A layer or a table was asked for that this set of weights does not hold.
    #[error("the weights asked for are not part of this plan")]
    NotInPlan,
    /// A row was asked for that its table does not have.
    #[error("row {row} of a table of {n_rows}")]
    NoRow {
        /// The highest row asked for.
        row: u64,
        /// Rows of the table.
        n_rows: u64,
    },
    /// More experts were asked for at once than a layer has places for.
    #[error("{asked} experts asked for at once, but there are places for {places}")]
    TooManyExperts {
        /// How many were asked for.
        asked: usize,
        /// Places of the layer.
        places: usize,
    },
    /// The system gives no threads to read with.
    #[error("cannot start a thread that reads weights: {0}")]
    Readers(std::io::Error),
    /// The system does not give the memory that the budget allows.
    #[error("no memory for {bytes} bytes of weights: {source}")]
    NoMemory {
        /// How much was asked for, bytes.
        bytes: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system could not bring the pages in.
    #[error("cannot read the weights ahead: {0}")]
    Prewarm(std::io::Error),
}

/// What the user can do about a reservation that does not fit.
fn way_out(what: &str) -> &'static str {
    match what {
        "kv cache" => "lower -c",
        "activations" => "lower --batch",
        "scores" => "score fewer chunks",
        _ => "this model needs more memory",
    }
}
