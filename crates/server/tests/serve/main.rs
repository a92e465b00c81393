//! Servers in this process, and raw connections to them.

mod embeddings;
mod manners;
mod models;
mod requests;
mod running;
#[cfg(feature = "tls")]
mod tls;
