//! Membership of a cluster, and questions between its nodes. It knows no model, no rows and no
//! plan: cards, questions and answers are bytes.
//!
//! Delivery is never assumed: a question has a deadline, and the node that asks decides what
//! silence means.

mod fixed;
#[cfg(feature = "zenoh")]
mod zenoh;

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::key::is_node_name;

pub use self::fixed::{FixedControl, Switchboard};
#[cfg(feature = "zenoh")]
pub use self::zenoh::{Network, ZenohControl};

/// The longest card, question or answer, in bytes.
pub const MAX_MESSAGE: usize = 64 << 10;

/// The name of a node, as [`is_node_name`] has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl NodeName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`ControlError::Name`].
    pub fn new(name: &str) -> Result<Self, ControlError> {
        if !is_node_name(name) {
            return Err(ControlError::Name(name.chars().take(64).collect()));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = ControlError;

    fn try_from(name: String) -> Result<Self, ControlError> {
        Self::new(&name)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl std::fmt::Display for NodeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A change of the membership, as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node has announced itself.
    Joined(NodeName),
    /// A node has closed, died, or cannot be reached any more.
    Left(NodeName),
}

/// Answers a question, quickly: it runs on a thread of the network.
pub type Answerer = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// Takes a change of the membership, quickly: it runs on a thread of the network.
pub type Watcher = Box<dyn Fn(Change) + Send + Sync>;

/// What a cluster's nodes say to each other beside rows.
pub trait Control: Send + Sync {
    /// Makes this node a member, until [`close`](Self::close).
    ///
    /// # Errors
    /// [`ControlError::Network`]; a node of this name is there already ([`ControlError::Taken`]).
    fn announce(&self) -> Result<(), ControlError>;

    /// The members that this node sees now, in the order of their names; itself if it has
    /// announced itself.
    ///
    /// # Errors
    /// [`ControlError::Network`].
    fn members(&self) -> Result<Vec<NodeName>, ControlError>;

    /// Asks a node, and waits for its answer.
    ///
    /// # Errors
    /// [`ControlError::Silent`]: no answer within `deadline`; [`ControlError::TooLong`];
    /// [`ControlError::Network`].
    fn ask(
        &self,
        node: &NodeName,
        question: &[u8],
        deadline: Duration,
    ) -> Result<Vec<u8>, ControlError>;

    /// Sets the function that answers other nodes' questions.
    ///
    /// # Errors
    /// [`ControlError::Network`].
    fn answer(&self, answerer: Answerer) -> Result<(), ControlError>;

    /// Calls a function for every change of the membership from now on, and for every member that
    /// is there already.
    ///
    /// # Errors
    /// [`ControlError::Network`].
    fn watch(&self, watcher: Watcher) -> Result<(), ControlError>;

    /// The address at which a node was last reached, if the network tells.
    fn address(&self, _node: &NodeName) -> Option<SocketAddr> {
        None
    }

    /// Where two nodes of one name were met by the last look at the members, if the network tells.
    fn namesakes(&self, _node: &NodeName) -> Option<[SocketAddr; 2]> {
        None
    }

    /// Leaves the cluster. Questions are not answered any more.
    fn close(&self);
}

/// What can go wrong between nodes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Not the name of a node.
    #[error("`{0}` cannot be the name of a node: it takes a-z, 0-9 and, inside, -")]
    Name(String),
    /// Another node has this name.
    #[error("a node named {0} is in the cluster already")]
    Taken(NodeName),
    /// No answer came in time.
    #[error("{node} does not answer within {deadline:?}")]
    Silent {
        /// The node that was asked.
        node: NodeName,
        /// How long it had.
        deadline: Duration,
    },
    /// A message of too many bytes.
    #[error("a message of {n} bytes, {MAX_MESSAGE} at most")]
    TooLong {
        /// Its length.
        n: usize,
    },
    /// What the network library says.
    #[error("{0}")]
    Network(String),
}
