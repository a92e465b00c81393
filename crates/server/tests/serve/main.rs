//! Servers in this process: raw connections to them, and requests without any.

#[path = "../../../engine/tests/adapter_file/mod.rs"]
mod adapter_file;
mod adapters;
mod anthropic;
mod bodies;
mod cache_reuse;
mod cluster;
mod embeddings;
mod encoders;
mod form;
mod models;
mod native;
mod requests;
mod running;
mod speculation;
mod thermal;
mod tiny;
#[cfg(feature = "tls")]
mod tls;
