//! Measures what the planner asks for: how fast a node computes, reads and has room, and how fast
//! a link is.
//!
//! Nothing here decides anything. Speeds of a node are measured once and kept in a file, and so are
//! links for a while; memory and temperature are read when they are asked for, since they change.

mod kept_links;
mod link;
mod node;

pub use kept_links::KeptLinks;
pub use link::{LinkSamples, measure_link, measure_link_to};
pub use node::{
    Freshness, NodeProbe, NodeRates, ThreadRate, celsius, is_throttled, memory_for_models,
    memory_rates,
};
