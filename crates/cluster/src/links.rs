//! What a node and a coordinator need of the connections between machines.
//!
//! Names no protocol: a lane implements both traits, and tests bring stages and coordinator
//! together in one process.

use std::{
    io,
    net::SocketAddr,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Lane, Stage,
    core::Timing,
    tensor::Message,
    wire::{
        Frame, Limits, MemberLimits,
        message::{LaneName, NodeAddress, PartRequest, RingSecret},
    },
};

/// A stage and its neighbours.
#[derive(Clone, Debug)]
pub struct StageLinks {
    /// Number of the stage, from 1.
    pub stage: u16,
    /// What frames may hold.
    pub limits: Limits,
    /// Times of the protocol.
    pub timing: Timing,
    /// How frames or messages travel.
    pub lane: LaneName,
    /// What every connection of the ring begins with.
    pub secret: RingSecret,
    /// Takes results.
    pub coordinator: NodeAddress,
    /// The stage before, which takes acknowledgements; `None` for the first one.
    pub previous: Option<NodeAddress>,
    /// The next stage; `None` for the last one.
    pub next: Option<NodeAddress>,
}

/// The links of a coordinator.
#[derive(Clone, Debug)]
pub struct RingLinks {
    /// What frames may hold.
    pub limits: Limits,
    /// Times of the protocol.
    pub timing: Timing,
    /// How frames or messages travel.
    pub lane: LaneName,
    /// What every connection of the ring begins with.
    pub secret: RingSecret,
    /// The nodes of the stages, in order.
    pub stages: Vec<NodeAddress>,
}

/// A stage that computes what frames bring. Dropping it ends it, behind a running computation.
pub trait RunningStage: Send {
    /// Whether the coordinator has ended it.
    fn is_over(&self) -> bool;

    /// Batches that it has computed.
    fn n_computed(&self) -> u64;

    /// Time since the coordinator was heard.
    fn silence(&self) -> Duration;

    /// Time since the last connection of the coordinator ended; `None` while there is one, and
    /// before the first.
    fn left(&self) -> Option<Duration> {
        None
    }
}

/// A member of a group and all others, which compute a model together.
#[derive(Clone, Debug)]
pub struct GroupWiring {
    /// Number of the ring.
    pub ring: u64,
    /// How frames or messages travel.
    pub lane: LaneName,
    /// What every connection of the ring begins with.
    pub secret: RingSecret,
    /// Number of this member; 0 is the lead.
    pub index: usize,
    /// All members, in the order of their numbers.
    pub members: Vec<NodeAddress>,
    /// What messages may hold.
    pub limits: MemberLimits,
}

/// Carries messages between a member and all others. Messages to a member arrive in order, or the
/// link to it is gone for good.
pub trait GroupLinks: Send + Sync {
    /// Sends to a member, unless the link is gone, which [`recv`](Self::recv) tells the other side.
    fn send(&self, to: usize, message: &Message);

    /// Waits for the next message of a member. `None`: the link is gone, which it is also when
    /// nothing has come until then.
    fn recv(&self, from: usize, until: Option<Instant>) -> Option<Message>;

    /// Ends all links; those who wait for a message get none.
    fn close(&self);
}

/// Connects stages and coordinators of other machines with those of this one.
pub trait Links: Send + Sync {
    /// Where other nodes reach this one.
    fn address(&self) -> SocketAddr;

    /// Memory that a lane to these machines takes beside frames and messages, bytes.
    fn lane_bytes(&self, lane: LaneName, others: &[SocketAddr]) -> u64 {
        let _ = (lane, others);
        0
    }

    /// Starts a stage of this machine.
    ///
    /// # Errors
    /// The error of the system.
    fn start_stage(&self, links: StageLinks, stage: Stage) -> io::Result<Box<dyn RunningStage>>;

    /// Opens the coordinator's side of all links of a ring, whose stages are started.
    ///
    /// # Errors
    /// The error of the system.
    fn open_ring(&self, links: RingLinks) -> io::Result<Box<dyn Lane>>;

    /// Opens this member's side of the links of a group.
    ///
    /// # Errors
    /// The error of the system; links that carry no messages of members.
    fn open_group(&self, plan: GroupWiring) -> io::Result<Arc<dyn GroupLinks>> {
        let _ = plan;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Sends the frames of an answer to a wish; may wait.
pub type SendPart<'a> = &'a mut dyn FnMut(Frame) -> io::Result<()>;

/// Answers the wishes of other nodes. It runs in a thread of its connection, and may wait.
pub type PartServer = Box<dyn Fn(&PartRequest, SendPart<'_>) -> io::Result<()> + Send + Sync>;

/// Moves the bytes of models between nodes.
pub trait PartLinks: Send + Sync {
    /// Asks a node for bytes of a model. `take` gets every frame, until the node has sent all that
    /// it has of the wish; [`ControlFlow::Break`] ends the connection.
    ///
    /// # Errors
    /// No connection, a node that serves no parts, bytes that are no frame, silence.
    fn pull(
        &self,
        from: &NodeAddress,
        request: &PartRequest,
        take: &mut dyn FnMut(Frame) -> ControlFlow<()>,
    ) -> io::Result<()>;

    /// Sets what answers other nodes.
    ///
    /// # Errors
    /// There is one already.
    fn serve(&self, server: PartServer) -> io::Result<()>;
}
