//! Errors of names, network and disk. Each message says where.

use std::{io, path::PathBuf};

/// An error of this crate.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An invalid name, from the user or from the server.
    #[error("{what} {name:?}: {why}")]
    Name {
        /// What the name is for: a repository, a revision, a file.
        what: &'static str,
        /// The invalid name.
        name: String,
        /// The fault.
        why: &'static str,
    },
    /// Reading or writing a file failed.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The disk has no space for a download.
    #[error(
        "{path}: the disk is too full: {needed} bytes are needed, {free} are free",
        path = .path.display()
    )]
    DiskFull {
        /// The file that would be written.
        path: PathBuf,
        /// Bytes still to be downloaded.
        needed: u64,
        /// Free bytes of the disk.
        free: u64,
    },
    /// The server could not be reached, or the connection failed too often.
    #[error("{url}: {why}")]
    Connection {
        /// The requested URL.
        url: String,
        /// The error of the last attempt.
        why: String,
    },
    /// The server denies access.
    #[error("{what}: {}", denied(*.status, *.is_gated))]
    Denied {
        /// Repository or file.
        what: String,
        /// HTTP status: 401 or 403.
        status: u16,
        /// Whether the server says that the repository is gated.
        is_gated: bool,
    },
    /// The server has no such repository, revision or file.
    #[error("{0}")]
    NotFound(String),
    /// An unexpected HTTP status.
    #[error("{url}: the server answers with status {status}")]
    Status {
        /// The requested URL.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// The server sent a response that cannot be used.
    #[error("{url}: {why}")]
    Response {
        /// The requested URL.
        url: String,
        /// The fault of the response.
        why: String,
    },
    /// A file differs from the repository's listing in length or hash.
    #[error("{file}: {why}")]
    Content {
        /// The path of the file in its repository.
        file: String,
        /// Expected and got.
        why: String,
    },
    /// A request matches no file, or several.
    #[error("{repo}: {why}")]
    Selection {
        /// The repository.
        repo: String,
        /// The files that there are, and what to do.
        why: String,
    },
    /// An invalid field of [`HubOptions`](crate::HubOptions).
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
            "gated (status {status}): agree to its terms on its web page, and set HF_TOKEN to a \
             token of that account"
        ),
        false => format!(
            "refused (status {status}): it is private or gated, or does not exist; set HF_TOKEN \
             to a token that may read it"
        ),
    }
}
