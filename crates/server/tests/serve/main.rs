//! Servers in this process, and raw connections to them.

mod embeddings;
mod models;
mod requests;
mod running;
