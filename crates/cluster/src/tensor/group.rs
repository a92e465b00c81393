//! A backend whose executors compute with members on other machines, each with some rows of every
//! large matrix.
//!
//! Knows neither how messages travel ([`Links`]) nor who should be a member. The coordinator is
//! member 0, the lead: it prepares the others, asks them to do as it does, and releases them. A
//! member that is lost ends the group; [`regroup`](super::regroup) opens another.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Cpu, Error, Executor, ExecutorBytes, ExecutorSize, Footprint, Member, Model, RowSplit,
    Share, columns_bytes, most_numbers, spec::ModelSpec,
};
use atta_store::{Budget, Reservation};

use super::{
    LinkExchange, MemberCommand, Message, TensorExecutor,
    executor::Followers,
    member::{ExchangeLinks, LEAD, Patience},
    regroup::{GroupChanges, GroupRoom, Regrouping},
};
use crate::{
    HashedModel, OnStage,
    control::{Control, NodeName},
    core::Timing,
    links::{GroupLinks, GroupWiring, Links},
    node::{PROGRAM, share_of, wanted_files},
    part::model_id,
    remote::{FormError, Keepers, Lease, own_address, random},
    wire::{
        self, MemberLimits,
        message::{
            Digest, LaneName, MemberGroup, NodeAddress, Prepare, RingSecret, SizeNumbers,
            StagePart, WantedModel, WireType,
        },
    },
};

/// Who is a member, with which part of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMembers {
    /// Speed of the coordinator, in any unit.
    pub lead_speed: NonZeroU32,
    /// The other members, and their speeds in the same unit.
    pub others: Vec<(NodeAddress, NonZeroU32)>,
}

impl GroupMembers {
    /// Speeds of all, the coordinator first.
    pub(crate) fn speeds(&self) -> Vec<NonZeroU32> {
        let others = self.others.iter().map(|(_, speed)| *speed);
        std::iter::once(self.lead_speed).chain(others).collect()
    }

    /// The division of rows.
    ///
    /// # Errors
    /// [`Error::Ring`] without other members, or if one is named twice; [`Error::Options`] for too
    /// many.
    pub fn split(&self) -> Result<RowSplit, Error> {
        let mut names: Vec<&NodeName> = self.others.iter().map(|(node, _)| &node.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Ring(format!("{} is two members", pair[0])));
        }
        match self.others.is_empty() {
            true => Err(Error::Ring("no other members".to_owned())),
            false => RowSplit::new(&self.speeds()),
        }
    }
}

/// What a group of machines is made from.
#[derive(Clone)]
pub struct RemoteGroupOptions {
    /// Asks the nodes.
    pub control: Arc<dyn Control>,
    /// Connects this machine with the others.
    pub links: Arc<dyn Links>,
    /// How columns travel.
    pub lane: LaneName,
    /// Name of this machine.
    pub name: NodeName,
    /// The members.
    pub members: GroupMembers,
    /// The model.
    pub model: HashedModel,
    /// Nodes that have the model, in the order in which to ask them.
    pub sources: Vec<NodeAddress>,
    /// Kernels of the coordinator.
    pub kernels: Kernels,
    /// Threads of the coordinator.
    pub pool: Arc<Pool>,
    /// Times: how long a batch may take.
    pub timing: Timing,
    /// How long nodes may take until they are ready.
    pub deadline: Duration,
    /// Hears how far they are.
    pub on_stage: OnStage,
}

impl std::fmt::Debug for RemoteGroupOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteGroupOptions")
            .field("name", &self.name)
            .field("members", &self.members)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl RemoteGroupOptions {
    /// Memory of the links to all others, bytes.
    fn lane_bytes(&self) -> u64 {
        let others = self.members.others.iter();
        let others: Vec<SocketAddr> = others.map(|(node, _)| node.address).collect();
        self.links.lane_bytes(self.lane, &others)
    }
}

/// A backend whose executors are groups of machines, one at a time.
pub struct RemoteGroup {
    options: RemoteGroupOptions,
    split: RowSplit,
    changes: Option<GroupChanges>,
    is_open: Arc<AtomicBool>,
}

impl std::fmt::Debug for RemoteGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteGroup")
            .field("name", &self.options.name)
            .field("members", &self.options.members)
            .finish_non_exhaustive()
    }
}

impl RemoteGroup {
    /// A group of these machines. Nothing is asked before one is opened. A member that is lost
    /// ends a text with [`Error::Lost`].
    ///
    /// # Errors
    /// As [`GroupMembers::split`].
    pub fn new(options: RemoteGroupOptions) -> Result<Self, Error> {
        Self::start(options, None)
    }

    /// A group of these machines, in whose place others come when one is lost.
    ///
    /// # Errors
    /// As [`GroupMembers::split`].
    pub fn with_changes(options: RemoteGroupOptions, changes: GroupChanges) -> Result<Self, Error> {
        Self::start(options, Some(changes))
    }

    fn start(options: RemoteGroupOptions, changes: Option<GroupChanges>) -> Result<Self, Error> {
        Ok(Self {
            split: options.members.split()?,
            options,
            changes,
            is_open: Arc::default(),
        })
    }
}

/// Opens a group of some machines.
pub(super) struct GroupOpener<'a> {
    pub(super) options: &'a RemoteGroupOptions,
    pub(super) split: &'a RowSplit,
}

/// A group whose members are ready.
pub(super) struct OpenedGroup {
    pub(super) executor: Box<dyn Executor>,
    /// Its number.
    pub(super) ring: u64,
}

impl GroupOpener<'_> {
    /// Prepares all members. The model has the rows of the lead.
    ///
    /// # Errors
    /// Too little memory, a member that cannot.
    pub(super) fn open(
        &self,
        model: &Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
        lease: Option<Lease>,
    ) -> Result<OpenedGroup, FormError> {
        let options = self.options;
        let limits = member_limits(model.spec(), self.split, size);
        let messages = budget.reserve("messages of members", message_bytes(&limits));
        let messages = messages.map_err(Error::from)?;
        let lanes = budget.reserve("links", options.lane_bytes());
        let lanes = lanes.map_err(Error::from)?;
        let ring = NewGroup {
            number: u64::from_le_bytes(random()?),
            secret: RingSecret(random()?),
        };
        let links = self.open_links(&ring, limits)?;
        let patience = Arc::new(Patience::endless());
        let wires = ExchangeLinks::new(Arc::clone(&links), Arc::clone(&patience));
        let exchange = LinkExchange::with_names(wires, LEAD, self.names());
        // What does not fit here is found before other machines are asked.
        let lead = Cpu::new_member(
            Arc::clone(model),
            options.kernels,
            Arc::clone(&options.pool),
            budget,
            size.clone(),
            Box::new(exchange),
        )?;
        let questions = self.questions(model, &ring, size)?;
        let control = Arc::clone(&options.control);
        let until = Instant::now() + options.deadline;
        let keepers = Keepers::ready(&control, &options.on_stage, &questions, until)?;
        let followers = RemoteFollowers {
            links,
            n_members: self.split.n_members(),
            timing: options.timing,
            patience,
            keepers: Some(keepers),
            lost: None,
            _beside: [messages, lanes],
            _lease: lease,
        };
        Ok(OpenedGroup {
            executor: Box::new(TensorExecutor::new(lead, Box::new(followers))),
            ring: ring.number,
        })
    }

    /// The questions for all members but the lead.
    fn questions(&self, model: &Model, ring: &NewGroup, size: &ExecutorSize) -> Questions {
        let options = &self.options;
        let spec = model.spec();
        let n_layers = spec.layers.len();
        let others = &options.members.others;
        let n_others = u16::try_from(others.len()).unwrap_or(u16::MAX);
        let wanted = self.wanted(model)?;
        let speeds = options.members.speeds();
        let question = |(i, (node, _)): (usize, &(NodeAddress, NonZeroU32))| {
            let member = u16::try_from(i + 1).unwrap_or(u16::MAX);
            let prepare = Prepare {
                ring: ring.number,
                epoch: 1,
                program: PROGRAM.to_owned(),
                protocol: wire::VERSION,
                coordinator: self.own(node)?,
                previous: None,
                next: None,
                lane: options.lane,
                secret: ring.secret.clone(),
                model: wanted.clone(),
                part: StagePart {
                    stage: member,
                    n_stages: n_others,
                    layers: (&(0..n_layers)).into(),
                },
                group: Some(MemberGroup {
                    others: others.iter().map(|(node, _)| node.clone()).collect(),
                    speeds: speeds.clone(),
                }),
                size: SizeNumbers::of(size),
                wire: WireType::F32,
                sources: options.sources.clone(),
            };
            Ok((node.name.clone(), prepare))
        };
        others.iter().enumerate().map(question).collect()
    }

    /// This machine, as a node reaches it.
    fn own(&self, node: &NodeAddress) -> Result<NodeAddress, Error> {
        Ok(NodeAddress {
            name: self.options.name.clone(),
            address: own_address(self.options.links.address(), node.address)?,
        })
    }

    fn wanted(&self, model: &Model) -> Result<WantedModel, Error> {
        let HashedModel { name, index } = &self.options.model;
        let files = model.weights().files();
        let share = share_of(index, model.spec(), &Share::whole(model.spec()), files);
        Ok(WantedModel {
            id: Digest(model_id(index)),
            name: name.clone(),
            files: wanted_files(index),
            share: share.map_err(|error| Error::Ring(error.to_string()))?,
        })
    }

    fn open_links(&self, ring: &NewGroup, limits: MemberLimits) -> Result<Lines, Error> {
        let options = &self.options;
        let others = options.members.others.iter();
        let lead = NodeAddress {
            name: options.name.clone(),
            address: options.links.address(),
        };
        let members = std::iter::once(lead).chain(others.map(|(node, _)| node.clone()));
        let plan = GroupWiring {
            ring: ring.number,
            lane: options.lane,
            secret: ring.secret.clone(),
            index: LEAD,
            members: members.collect(),
            limits,
        };
        let links = options.links.open_group(plan);
        links.map_err(|error| Error::Ring(format!("links between members: {error}")))
    }

    fn names(&self) -> Vec<String> {
        let others = self.options.members.others.iter();
        let others = others.map(|(node, _)| node.name.to_string());
        std::iter::once(self.options.name.to_string())
            .chain(others)
            .collect()
    }
}

type Questions = Result<Vec<(NodeName, Prepare)>, Error>;
type Lines = Arc<dyn GroupLinks>;

/// A group that gets a number and a secret.
struct NewGroup {
    number: u64,
    secret: RingSecret,
}

/// What messages of a group may hold, with executors of this size.
pub(crate) fn member_limits(
    spec: &ModelSpec,
    split: &RowSplit,
    size: &ExecutorSize,
) -> MemberLimits {
    MemberLimits {
        n_members: split.n_members(),
        n_numbers: most_numbers(spec, split, size.n_batch),
        n_batch: size.n_batch,
        d_model: spec.d_model,
    }
}

/// Memory of the messages that a member holds: one that it sends to each other one, and two that it
/// reads, bytes.
pub(crate) fn message_bytes(limits: &MemberLimits) -> u64 {
    (limits.n_members as u64 + 1) * limits.message_bytes() as u64
}

/// Refuses executors of a part of a model.
///
/// # Errors
/// [`Error::Options`].
fn check_group(size: &ExecutorSize) -> Result<(), Error> {
    match size.part {
        Some(_) => Err(Error::Options("a group for a part of a model".to_owned())),
        None => Ok(()),
    }
}

impl Footprint for RemoteGroup {
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        let bytes = Cpu::executor_bytes(spec, self.options.pool.n_threads(), size);
        let columns = columns_bytes(spec, &self.split, size.n_batch);
        let messages = message_bytes(&member_limits(spec, &self.split, size));
        ExecutorBytes {
            activations: bytes
                .activations
                .saturating_add(columns)
                .saturating_add(messages)
                .saturating_add(self.options.lane_bytes()),
            ..bytes
        }
    }

    fn member(&self) -> Option<Member> {
        Member::new(self.split.clone(), LEAD).ok()
    }
}

impl Backend for RemoteGroup {
    fn open(
        &self,
        model: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, Error> {
        let lease = Lease::take(&self.is_open)?;
        check_group(size)?;
        let opener = GroupOpener {
            options: &self.options,
            split: &self.split,
        };
        let Some(changes) = self.changes.clone() else {
            return Ok(opener.open(&model, size, budget, Some(lease))?.executor);
        };
        let first = opener.open(&model, size, budget, None)?;
        let room = GroupRoom {
            options: self.options.clone(),
            changes,
            model,
            size: size.clone(),
            budget: budget.clone(),
            _lease: lease,
        };
        Ok(Box::new(Regrouping::new(room, first)))
    }
}

/// Members on other machines.
struct RemoteFollowers {
    links: Arc<dyn GroupLinks>,
    n_members: usize,
    timing: Timing,
    patience: Arc<Patience>,
    /// `None` once a member is lost.
    keepers: Option<Keepers>,
    lost: Option<String>,
    _beside: [Reservation; 2],
    _lease: Option<Lease>,
}

impl Followers for RemoteFollowers {
    fn tell(&mut self, command: &MemberCommand) {
        let message = Message::Command(Arc::new(command.clone()));
        for to in 1..self.n_members {
            self.links.send(to, &message);
        }
    }

    fn begin(&mut self, n_rows: usize) -> Result<(), Error> {
        if let Some(lost) = &self.lost {
            return Err(Error::Lost(lost.clone()));
        }
        self.patience.begin(self.timing.deadline(1, n_rows));
        Ok(())
    }

    /// The others may wait for the lost one: they are released.
    fn lose(&mut self, error: &Error) {
        self.lost.get_or_insert_with(|| error.to_string());
        self.links.close();
        self.keepers = None;
    }

    fn takes_states(&self) -> bool {
        false
    }
}

impl Drop for RemoteFollowers {
    fn drop(&mut self) {
        self.links.close();
    }
}
