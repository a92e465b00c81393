//! Models from Hugging Face: download, resume, check, and the cache on disk that other programs
//! share.
//!
//! Blocking, no async. It knows files and the Hub's HTTP interface, and refuses to know what a
//! model is. The one idea: a file is named by its content (`blobs/<hash>`), so that a download may
//! be cut anywhere and be taken up by anybody, and what has its final name is whole.
//!
//! Everything that comes from outside is taken for hostile: names of files, numbers, the length of
//! an answer. A process may be killed at any moment of a pull; what is there then is what the next
//! one goes on with.

#![forbid(unsafe_code)]

mod cache;
mod choose;
mod digest;
mod disk;
mod download;
mod error;
mod http;
mod listing;
mod name;
mod patience;
mod pull;
mod url;

pub use cache::Cache;
pub use error::Error;
pub use http::{Options, Proxy};
pub use name::{RepoId, Request, Revision};
pub use pull::{Event, Hub, Pulled, PulledFile};
