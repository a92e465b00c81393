//! A place in a chain, whose plan stands on the command lines of its nodes.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{LaneName, NodeName};

/// A node of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainLink {
    /// Its name.
    pub name: NodeName,
    /// Its first layer.
    pub start: u32,
    /// The layer behind its last one; `None`: it runs all layers from the first one on.
    pub end: Option<u32>,
    /// Where the next node listens, as this one was told.
    pub next: Option<SocketAddr>,
    /// The only lane that it takes; `None`: any.
    pub lane: Option<LaneName>,
}
