//! What can go wrong with names, networks and disks, each with the place in its message.

use std::{io, path::PathBuf};

/// An error of this crate.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that cannot be one, typed or sent by a server.
    #[error("{what} {name:?}: {why}")]
    Name {
        /// What it should name.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The system refused to read or write.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A download does not fit.
    #[error("{path}: the disk is too full: {needed} bytes are needed, {free} are free", path = .path.display())]
    DiskFull {
        /// Where it would go.
        path: PathBuf,
        /// What is still to come, bytes.
        needed: u64,
        /// What the disk has left, bytes.
        free: u64,
    },
    /// The server could not be reached, or broke off too often.
    #[error("{url}: {why}")]
    Connection {
        /// What was asked for.
        url: String,
        /// What the last attempt came to.
        why: String,
    },
    /// The server does not give it to us.
    #[error("{what}: {}", denied(*.status, *.is_gated))]
    Denied {
        /// Repository or file.
        what: String,
        /// Of HTTP: 401 or 403.
        status: u16,
        /// Whether it is known that terms have to be agreed to.
        is_gated: bool,
    },
    /// The server has no such thing.
    #[error("{0}")]
    NotFound(String),
    /// Another status than can be dealt with.
    #[error("{url}: the server answers with status {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// Of HTTP.
        status: u16,
    },
    /// An answer that makes no sense.
    #[error("{url}: {why}")]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A file is not what the repository says it is.
    #[error("{file}: {why}")]
    Content {
        /// The file in its repository.
        file: String,
        /// Expected and got.
        why: String,
    },
    /// It is not clear which file is meant, or there is none.
    #[error("{repo}: {why}")]
    Choice {
        /// The repository.
        repo: String,
        /// What there is, and the way out.
        why: String,
    },
    /// An option of the library that cannot be used.
    #[error("{0}")]
    Option(String),
}

impl Error {
    /// An I/O error at `path`.
    pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::Io { path, source }
    }
}

fn denied(status: u16, is_gated: bool) -> String {
    match is_gated {
        true => format!(
            "gated (status {status}): agree to its terms on its web page, and set HF_TOKEN to a token of that account"
        ),
        false => format!(
            "refused (status {status}): it is private or gated, or does not exist; set HF_TOKEN to a token that may \
             read it"
        ),
    }
}
