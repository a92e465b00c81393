//! Downloads models from the Hugging Face Hub, with resume and hash checks, into the cache
//! directory that `huggingface_hub` and other programs share.
//!
//! Blocking, no async. It knows files and the Hub's HTTP API, and refuses to know what a model is.
//! The one idea: a blob is named by the hash of its content (`blobs/<hash>`), so that any process
//! can resume a download that another one began, and a file with its final name is complete.
//!
//! Everything that the server sends is treated as hostile: file names, numbers, the length of a
//! response. A process may be killed at any moment of a pull; the next pull resumes from the bytes
//! that are on disk.

#![forbid(unsafe_code)]

mod cache;
mod digest;
mod disk;
mod download;
mod error;
mod http;
mod listing;
mod name;
mod pull;
mod retry;
mod select;
mod url;

pub use cache::{Cache, CachedFile};
pub use error::Error;
pub use http::{HubOptions, Proxy};
pub use name::{RepoId, Request, Revision};
pub use pull::{Event, Hub, Pulled, PulledFile};
