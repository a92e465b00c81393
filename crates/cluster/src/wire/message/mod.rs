//! Questions between nodes and their answers, as JSON.
//!
//! ```text
//! {"version":1,"body":{"progress":{"ring":7}}}     {"version":1,"body":"released"}
//! ```
//! This is the only place that reads JSON from another machine. A message has at most 64 KiB, every
//! list and text in it a limit of its own, and unknown fields are errors; a message of another
//! version is refused by its number alone, whatever else it holds. The module knows no model, file
//! or network, and does nothing with what it reads.

mod card;
mod chain;
mod limit;
mod prepare;
mod text;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use card::{Card, CardEvent, HeldRing, LinkNumbers, MemoryNumbers, NodeNumbers};
pub use chain::ChainLink;
pub use prepare::{
    Blocked, ElemName, LaneName, LayerRange, Loading, MemberGroup, Occupied, Prepare, ReadyStage,
    SizeNumbers, StagePart, WantedFile, WantedModel, WireType,
};
pub use text::{Digest, RingSecret};

use crate::{
    control::{MAX_MESSAGE, NodeName},
    key::ClusterKey,
    part::PartWish,
};
use std::net::SocketAddr;

/// Version of the messages. A node of another version is told both numbers.
pub const MESSAGE_VERSION: u32 = 1;

/// Most members in an answer.
pub const MAX_MEMBERS: usize = 64;

/// Most bytes of padding of an [`Answer::Echo`], so that its JSON fits a message.
pub const MAX_ECHO_BYTES: u32 = 60 << 10;

/// A message that cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Too many bytes.
    #[error("a message of {n} bytes, {MAX_MESSAGE} at most")]
    TooLong {
        /// Its length.
        n: usize,
    },
    /// Another version of the messages.
    #[error("a message of version {got}; this program speaks version {MESSAGE_VERSION}")]
    Version {
        /// Its version.
        got: u32,
    },
    /// Not JSON, or not one of the messages.
    #[error("not a message between nodes: {0}")]
    Json(String),
    /// A list or text beyond its limit, a number outside of its range.
    #[error("a message with {0}")]
    Field(String),
}

/// A node and where it listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeAddress {
    /// Its name.
    pub name: NodeName,
    /// Where it takes connections.
    pub address: SocketAddr,
}

/// A question to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// Who is there? Answered with [`Answer::Members`] by the network, not by the node's service.
    Members {
        /// The node that asks, if it takes connections itself.
        from: Option<NodeAddress>,
    },
    /// Tell about this node. Answered with [`Answer::Card`].
    Describe,
    /// Answered with [`Answer::Echo`] of so many bytes: how fast is the link?
    Echo {
        /// Bytes of padding, at most [`MAX_ECHO_BYTES`].
        n_bytes: u32,
    },
    /// How fast is the link from the asked node to another one? Answered with
    /// [`Answer::Measuring`] until it is known, then with [`Answer::Link`].
    MeasureLink {
        /// The other end.
        to: NodeAddress,
    },
    /// Load these layers. Answered with [`Answer::Loading`], [`Answer::Ready`],
    /// [`Answer::Blocked`] or [`Answer::Occupied`].
    Prepare(Box<Prepare>),
    /// Have the weights of these layers on the disk, for a stage that is prepared later; whatever
    /// the node holds stays. Answered with [`Answer::Loading`] until then, with
    /// [`Answer::Fetched`], or with [`Answer::Blocked`].
    Fetch(Box<Prepare>),
    /// How far is the stage of this ring? Answered as [`Question::Prepare`] is.
    Progress {
        /// Number of the ring.
        ring: u64,
    },
    /// The ring ends. Answered with [`Answer::Released`], whether or not it was there.
    Release {
        /// Number of the ring.
        ring: u64,
    },
    /// Leave the cluster: release the ring and end. Answered with [`Answer::Released`].
    Leave,
    /// Tell the recent events. Answered with [`Answer::Log`].
    Log,
    /// Which layers do you run, and who is next? Answered with [`Answer::Chain`] by nodes whose
    /// layers were fixed when they were started.
    Chain,
    /// Keep this key of the cluster, and use it from now on. Answered with [`Answer::Rekeyed`] or
    /// [`Answer::Refused`].
    Rekey {
        /// The new key.
        key: ClusterKey,
    },
}

/// What a node asks of another one that has a model. Answered with frames of kind
/// [`Part`](crate::wire::FrameKind::Part).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRequest {
    /// The model.
    pub model: Digest,
    /// Its bytes.
    pub wish: PartWish,
}

impl PartRequest {
    /// The bytes of the request.
    ///
    /// # Errors
    /// A message that is too long, or beyond its limits.
    pub fn to_bytes(&self) -> Result<Vec<u8>, MessageError> {
        limit::check_part_request(self)?;
        write(self)
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let request = read(bytes)?;
        limit::check_part_request(&request)?;
        Ok(request)
    }
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The members that a node knows.
    Members {
        /// The node that answers.
        name: NodeName,
        /// Whether it is a member, and not only asks.
        is_announced: bool,
        /// Others, at most [`MAX_MEMBERS`].
        others: Vec<NodeAddress>,
    },
    /// The node.
    Card(Box<Card>),
    /// Padding.
    Echo {
        /// As many bytes as were asked for.
        padding: String,
    },
    /// The link is being measured.
    Measuring,
    /// A measured link.
    Link(LinkNumbers),
    /// The stage is being prepared.
    Loading(Loading),
    /// The stage waits for frames.
    Ready(ReadyStage),
    /// The stage cannot be prepared.
    Blocked(Blocked),
    /// The node belongs to another ring.
    Occupied(Occupied),
    /// The weights are on the disk.
    Fetched,
    /// It holds nothing of that ring.
    Released,
    /// Recent events, the oldest first.
    Log(Vec<CardEvent>),
    /// The place of the node in its chain.
    Chain(ChainLink),
    /// The new key is kept. The node ends all connections soon, and takes others by the new key.
    Rekeyed,
    /// The question was not understood, or has no answer here.
    Refused {
        /// One line for people.
        why: String,
    },
}

impl Question {
    /// The bytes of the question.
    ///
    /// # Errors
    /// A message that is too long, or beyond its limits.
    pub fn to_bytes(&self) -> Result<Vec<u8>, MessageError> {
        limit::check_question(self)?;
        write(self)
    }

    /// Reads a question.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let question = read(bytes)?;
        limit::check_question(&question)?;
        Ok(question)
    }
}

impl Answer {
    /// The bytes of the answer.
    ///
    /// # Errors
    /// A message that is too long, or beyond its limits.
    pub fn to_bytes(&self) -> Result<Vec<u8>, MessageError> {
        limit::check_answer(self)?;
        write(self)
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let answer = read(bytes)?;
        limit::check_answer(&answer)?;
        Ok(answer)
    }
}

/// A message around a question or an answer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<T> {
    version: u32,
    body: T,
}

/// The version of a message whose other fields may be those of another version.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

fn write<T: Serialize>(body: &T) -> Result<Vec<u8>, MessageError> {
    let version = MESSAGE_VERSION;
    let message = Message { version, body };
    let bytes = serde_json::to_vec(&message).map_err(|error| json(&error))?;
    check_length(bytes.len())?;
    Ok(bytes)
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    check_length(bytes.len())?;
    let VersionOnly { version } = serde_json::from_slice(bytes).map_err(|error| json(&error))?;
    if version != MESSAGE_VERSION {
        return Err(MessageError::Version { got: version });
    }
    let message: Message<T> = serde_json::from_slice(bytes).map_err(|error| json(&error))?;
    Ok(message.body)
}

fn check_length(n: usize) -> Result<(), MessageError> {
    match n <= MAX_MESSAGE {
        true => Ok(()),
        false => Err(MessageError::TooLong { n }),
    }
}

/// What serde says, in one short line: it may quote the message.
fn json(error: &serde_json::Error) -> MessageError {
    let text = error.to_string();
    let printable = text.chars().filter(|c| !c.is_control());
    MessageError::Json(printable.take(limit::LINE).collect())
}

#[cfg(test)]
mod tests;
