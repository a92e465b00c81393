//! From the members of a cluster to a ring: who is there, what each can do, who shall run what.
//!
//! ```text
//! survey: cards, links ──▶ plan: alone, or stages ──▶ ring: a backend
//! ```
//! Opens no connection itself and reads no command line. This machine is node 0 of every survey,
//! and the coordinator of every plan.

mod audit;
mod replan;
mod replan_rows;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use atta_kernels::{Kernels, Pool};
use atta_model::{Error, ExecutorSize};

use crate::{
    ExpectedSpeed, HashedModel, Links, OnStage, PlannedRing, RemotePlan, RemoteRingOptions,
    control::{Control, ControlError, NodeName},
    core::Timing,
    measure::{KeptLinks, measure_link_to},
    node::PROGRAM,
    own_address,
    plan::{self, LinkMeasure, Measures, ModelSizes, Objective, PlanRequest, Refusal, RingPlan},
    wire::{
        self, Dtype,
        message::{Answer, Card, LaneName, LinkNumbers, NodeAddress, NodeNumbers, Question},
    },
};

pub use audit::is_exact_everywhere;
pub use replan::{AskedPlan, PlanInputs, Replanner};
pub use replan_rows::RowReplanner;

/// Time for the answer to a question about a node.
const DEADLINE: Duration = Duration::from_secs(3);
/// Time for the measuring of a link between two other nodes.
const LINK_DEADLINE: Duration = Duration::from_secs(6);
/// Wait between two questions whether a link is measured.
const POLL: Duration = Duration::from_millis(20);
/// Time that nodes may take until their stages are ready, for each GB of weights and besides.
const LOAD: Duration = Duration::from_secs(120);
const LOAD_PER_GB: Duration = Duration::from_secs(120);
/// Machines that a stage talks to at most: two neighbours and the coordinator.
const N_NEIGHBOURS: usize = 3;
/// Positions and prompt for which speeds are predicted, unless the context is shorter.
const N_TYPICAL: u64 = 512;

/// A machine that wants to run a model with others.
#[derive(Clone)]
pub struct Coordinator {
    /// Asks the nodes.
    pub control: Arc<dyn Control>,
    /// Connects this machine with stages.
    pub links: Arc<dyn Links>,
    /// How rows and columns travel.
    pub lane: LaneName,
    /// Name of this machine.
    pub name: NodeName,
    /// Kernels of this machine.
    pub kernels: Kernels,
    /// Threads of this machine.
    pub pool: Arc<Pool>,
    /// Speeds of this machine.
    pub numbers: NodeNumbers,
    /// Memory of this machine for a model, bytes.
    pub ram_bytes: u64,
    /// Where links that were measured lately are kept, if they are.
    pub kept_links: Option<KeptLinks>,
    /// Type of the numbers of rows between machines, for rings of layers.
    pub wire: Dtype,
    /// Whether an address is one of this machine, whose memory must not count twice.
    pub is_here: fn(IpAddr) -> bool,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator")
            .field("name", &self.name)
            .field("numbers", &self.numbers)
            .finish_non_exhaustive()
    }
}

/// A member that has answered.
#[derive(Clone, Debug, PartialEq)]
pub struct SurveyedNode {
    /// Where it was reached.
    pub address: NodeAddress,
    /// What it says about itself.
    pub card: Card,
    /// The link between this machine and it; `None` where measuring failed.
    pub link: Option<LinkMeasure>,
    /// Whether it is on this machine; then it is used only where it is named or forced.
    pub is_here: bool,
    /// Why no ring of this machine can use it, if so.
    pub unfit: Option<String>,
}

/// The members of a cluster, as this machine sees them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Those that have answered, without this machine.
    pub nodes: Vec<SurveyedNode>,
    /// Those that have not, and why.
    pub silent: Vec<(NodeName, String)>,
    /// What a plan counts with: this machine is node 0, then those of `nodes` that are fit.
    pub measures: Measures,
}

/// Which machines a ring shall have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// Those that help; none if this machine alone is as fast.
    #[default]
    Auto,
    /// At least one other.
    Force,
    /// All of these.
    Nodes(Vec<NodeName>),
    /// Those of these that help.
    Among(Vec<NodeName>),
}

/// A plan cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A node that is wanted is not there, or unfit.
    #[error("{node} cannot be in a ring: {why}")]
    Node {
        /// The node.
        node: NodeName,
        /// Why.
        why: String,
    },
    /// Layers that cannot be divided so.
    #[error("{0}")]
    Cut(String),
    /// An audit does not fit into the memory of this machine.
    #[error(
        "an audit computes all layers here, too, and needs {} MB of memory; {} MB are free",
        needed_bytes.div_ceil(1_000_000), free_bytes / 1_000_000
    )]
    Audit {
        /// Memory that it needs, bytes.
        needed_bytes: u64,
        /// Memory of this machine for a model, bytes.
        free_bytes: u64,
    },
    /// No other node is there.
    #[error("no ring: no other machine of the cluster answers")]
    Nobody,
    /// The planner finds none.
    #[error(transparent)]
    Refusal(#[from] Refusal),
}

impl Coordinator {
    /// Asks all members for their cards, and measures the links between all nodes that could be in
    /// a ring. It takes some milliseconds per link that was not measured lately, and at most a few
    /// seconds for silent nodes.
    ///
    /// # Errors
    /// The members are not known.
    pub fn survey(&self) -> Result<Survey, ControlError> {
        let members = self.control.members()?;
        let others: Vec<NodeName> = members.into_iter().filter(|m| *m != self.name).collect();
        let mut survey = Survey::default();
        let this = self.numbers.measure(self.name.as_str(), self.ram_bytes);
        survey.measures.nodes.push(this);
        let cards = self.cards(&others);
        for (node, card) in others.into_iter().zip(cards) {
            match card {
                Ok(found) => survey.nodes.push(found),
                Err(why) => survey.silent.push((node, why)),
            }
        }
        let fit: Vec<NodeAddress> = survey
            .nodes
            .iter_mut()
            .filter(|node| node.unfit.is_none())
            .map(|node| {
                node.link = self.link_to(&node.address).ok().map(LinkMeasure::from);
                node.address.clone()
            })
            .collect();
        for node in survey.nodes.iter().filter(|node| node.unfit.is_none()) {
            let i = survey.measures.nodes.len();
            let memory = match &node.card.held {
                // It gives back what it holds for this machine.
                Some(held) if held.coordinator == self.name => node.card.memory.all_bytes,
                _ => node.card.memory.free_bytes,
            };
            let numbers = node.card.measure.unwrap_or(self.numbers);
            let name = node.address.name.as_str();
            survey.measures.nodes.push(numbers.measure(name, memory));
            if let Some(link) = node.link {
                survey.measures.links.insert((0, i), link);
            }
        }
        for (i, from) in fit.iter().enumerate() {
            for (j, to) in fit.iter().enumerate().skip(i + 1) {
                if let Some(link) = self.link_between(&from.name, to) {
                    survey.measures.links.insert((i + 1, j + 1), link.into());
                }
            }
        }
        Ok(survey)
    }

    /// The cards of some nodes, asked at the same time; `Err` is one line for people.
    pub fn cards(&self, nodes: &[NodeName]) -> Vec<Result<SurveyedNode, String>> {
        each(nodes, |node| self.card(node))
    }

    /// The card of a node; `Err` is one line for people.
    fn card(&self, node: &NodeName) -> Result<SurveyedNode, String> {
        let card = match self.ask(node, &Question::Describe)? {
            Answer::Card(card) => *card,
            other => return Err(format!("it answers {other:?}")),
        };
        let address = self.control.address(node);
        let address = address.or_else(|| card.addresses.first().copied());
        let address = address.ok_or("its address is not known")?;
        Ok(SurveyedNode {
            address: NodeAddress {
                name: node.clone(),
                address,
            },
            is_here: (self.is_here)(address.ip()),
            unfit: self.namesakes(node).or_else(|| self.unfit(&card)),
            link: None,
            card,
        })
    }

    /// Why a node cannot be in any ring: two machines have its name.
    fn namesakes(&self, node: &NodeName) -> Option<String> {
        let [first, second] = self.control.namesakes(node)?;
        Some(format!(
            "two machines have this name, at {first} and {second}; give one of them another"
        ))
    }

    /// Why a node cannot be in a ring of this machine.
    fn unfit(&self, card: &Card) -> Option<String> {
        if card.program != PROGRAM || card.protocol != wire::VERSION {
            return Some(format!(
                "it runs version {} and this machine {PROGRAM}; the machines of a ring have one version",
                card.program
            ));
        }
        let held = card.held.as_ref()?;
        (held.coordinator != self.name).then(|| {
            let seconds = held.held_s;
            format!(
                "it belongs to a ring of {} for {seconds} s",
                held.coordinator
            )
        })
    }

    /// The link to a node, as it is kept or measured.
    fn link_to(&self, node: &NodeAddress) -> Result<LinkNumbers, String> {
        let name = &node.name;
        let measure = || {
            measure_link_to(name, |question, deadline| {
                let answer = self.control.ask(name, question, deadline);
                answer.map_err(|error| error.to_string())
            })
        };
        match &self.kept_links {
            Some(kept) => kept.link(node, measure),
            None => measure(),
        }
    }

    /// The link between two other nodes, measured by the first one.
    fn link_between(&self, from: &NodeName, to: &NodeAddress) -> Option<LinkNumbers> {
        let until = Instant::now() + LINK_DEADLINE;
        while Instant::now() < until {
            match self.ask(from, &Question::MeasureLink { to: to.clone() }) {
                Ok(Answer::Measuring) => thread::sleep(POLL),
                Ok(Answer::Link(link)) => return Some(link),
                _ => return None,
            }
        }
        None
    }

    fn ask(&self, node: &NodeName, question: &Question) -> Result<Answer, String> {
        let line = |error: &dyn std::error::Error| error.to_string();
        let question = question.to_bytes().map_err(|error| line(&error))?;
        let answer = self.control.ask(node, &question, DEADLINE);
        Answer::parse(&answer.map_err(|error| line(&error))?).map_err(|error| line(&error))
    }

    /// Who shall run which layers of a model, with executors of this size.
    ///
    /// # Errors
    /// A wanted node that cannot be used, too little memory, no links.
    pub fn plan(
        &self,
        survey: &Survey,
        model: &ModelSizes,
        size: &ExecutorSize,
        who: &Who,
        objective: Objective,
    ) -> Result<RingPlan, PlanError> {
        let mut request = PlanRequest {
            wire: self.wire,
            ..request(size, objective)
        };
        self.count_links(survey, &mut request);
        match who {
            Who::Auto => {
                let nodes = survey.nodes.iter();
                let elsewhere = nodes.filter(|node| node.unfit.is_none() && !node.is_here);
                let names: Vec<NodeName> = elsewhere.map(|n| n.address.name.clone()).collect();
                let (measures, _) = survey.only(&names)?;
                Ok(plan::plan(model, &measures, &request)?)
            }
            Who::Nodes(names) => {
                let (measures, must_use) = survey.only(names)?;
                request.must_use = must_use;
                Ok(plan::plan(model, &measures, &request)?)
            }
            Who::Among(names) => {
                let (measures, _) = survey.only(names)?;
                Ok(plan::plan(model, &measures, &request)?)
            }
            Who::Force => {
                let plans = (1..survey.measures.nodes.len()).map(|node| {
                    request.must_use = vec![node];
                    plan::plan(model, &survey.measures, &request)
                });
                let mut best = Err(survey.no_other());
                for plan in plans {
                    best = better(best, plan);
                }
                best
            }
        }
    }

    /// Counts the memory of links: of this machine to all others, of another one to its neighbours
    /// and to this one. What a lane takes for a machine is that of this one.
    fn count_links(&self, survey: &Survey, request: &mut PlanRequest) {
        let fit = survey.nodes.iter().filter(|node| node.unfit.is_none());
        let all: Vec<SocketAddr> = fit.map(|node| node.address.address).collect();
        let near = &all[..all.len().min(N_NEIGHBOURS)];
        request.lead_link_bytes = self.links.lane_bytes(self.lane, &all);
        request.stage_link_bytes = self.links.lane_bytes(self.lane, near);
    }

    /// The ring of a plan for a model, whose file this machine has.
    ///
    /// # Errors
    /// A plan that no ring can have; no way to the nodes.
    pub fn ring(
        &self,
        survey: &Survey,
        plan: &RingPlan,
        model: HashedModel,
        on_stage: OnStage,
    ) -> Result<RemoteRingOptions, Error> {
        let PlannedRing {
            plan,
            timing,
            deadline,
            n_chunk,
            expected,
        } = self.planned(survey, plan)?;
        let first = plan.stages.first().map(|stage| stage.node.address);
        let mut sources = Vec::new();
        if let Some(first) = first {
            sources.push(NodeAddress {
                name: self.name.clone(),
                address: self.address_for(first)?,
            });
        }
        Ok(RemoteRingOptions {
            control: Arc::clone(&self.control),
            links: Arc::clone(&self.links),
            lane: self.lane,
            name: self.name.clone(),
            plan,
            model,
            sources,
            kernels: self.kernels,
            pool: Arc::clone(&self.pool),
            timing,
            wire: self.wire,
            deadline,
            n_chunk,
            expected,
            on_stage,
        })
    }

    /// Who runs what by a plan, and the times that it needs.
    ///
    /// # Errors
    /// A plan that no ring can have.
    pub fn planned(&self, survey: &Survey, plan: &RingPlan) -> Result<PlannedRing, Error> {
        let address = |name: &str| {
            let mut nodes = survey.nodes.iter().map(|node| &node.address);
            nodes.find(|node| node.name.as_str() == name).cloned()
        };
        let bytes: u64 = plan.loads.iter().map(|load| load.resident_bytes).sum();
        Ok(PlannedRing {
            plan: RemotePlan::of(plan, address)?,
            timing: timing(plan.predicted.lap),
            deadline: load_deadline(bytes),
            n_chunk: usize::try_from(plan.chunk).ok(),
            expected: Some(ExpectedSpeed {
                decode_tok_s: plan.predicted.decode_tok_s,
                users_tok_s: plan.predicted.users_tok_s,
            }),
        })
    }

    fn address_for(&self, node: SocketAddr) -> Result<SocketAddr, Error> {
        own_address(self.links.address(), node)
    }
}

impl Survey {
    /// The survey as if these nodes had not answered.
    fn without(&self, gone: &[NodeName]) -> Result<Self, PlanError> {
        let is_left = |name: &NodeName| !gone.contains(name);
        let fit = self.nodes.iter().filter(|node| node.unfit.is_none());
        let names = fit.map(|node| node.address.name.clone());
        let names: Vec<NodeName> = names.filter(is_left).collect();
        let nodes = self.nodes.iter();
        Ok(Self {
            nodes: nodes
                .filter(|node| is_left(&node.address.name))
                .cloned()
                .collect(),
            silent: self.silent.clone(),
            measures: self.only(&names)?.0,
        })
    }

    /// The measures of this machine and of these nodes only, and the indices of the nodes.
    fn only(&self, names: &[NodeName]) -> Result<(Measures, Vec<usize>), PlanError> {
        let mut kept = vec![0];
        for node in names {
            let mut nodes = self.measures.nodes.iter().skip(1);
            let found = nodes.position(|measure| measure.name == node.as_str());
            let why = || PlanError::Node {
                node: node.clone(),
                why: self.why_not(node),
            };
            let i = found.ok_or_else(why)? + 1;
            if !kept.contains(&i) {
                kept.push(i);
            }
        }
        let nodes = kept.iter().map(|i| self.measures.nodes[*i].clone());
        let place = |old: usize| kept.iter().position(|i| *i == old);
        let links = self.measures.links.iter().filter_map(|((a, b), link)| {
            let (a, b) = place(*a).zip(place(*b))?;
            Some(((a.min(b), a.max(b)), *link))
        });
        let measures = Measures {
            nodes: nodes.collect(),
            links: links.collect(),
        };
        Ok((measures, (1..kept.len()).collect()))
    }

    /// Why there is no other node: the first that answers and cannot be used, if one does.
    fn no_other(&self) -> PlanError {
        let unfit = self.nodes.iter().find_map(|node| {
            Some(PlanError::Node {
                node: node.address.name.clone(),
                why: node.unfit.clone()?,
            })
        });
        unfit.unwrap_or(PlanError::Nobody)
    }

    /// Why a node is not in the measures.
    pub(crate) fn why_not(&self, name: &NodeName) -> String {
        let mut nodes = self.nodes.iter().filter(|node| node.address.name == *name);
        let unfit = nodes.find_map(|node| node.unfit.clone());
        let mut silent = self.silent.iter().filter(|(node, _)| node == name);
        unfit
            .or_else(|| silent.next().map(|(_, why)| why.clone()))
            .unwrap_or_else(|| "it does not answer".to_owned())
    }
}

/// Times of the protocol, where a token should take so long.
pub(crate) fn timing(lap: Duration) -> Timing {
    let defaults = Timing::default();
    Timing {
        lap: defaults.lap.max(lap),
        row: defaults.row.max(lap / 4),
        ..defaults
    }
}

/// Time that nodes may take until they are ready, with so many bytes of weights.
pub(crate) fn load_deadline(bytes: u64) -> Duration {
    let n_gb = u32::try_from(bytes / 1_000_000_000).unwrap_or(u32::MAX);
    LOAD.saturating_add(LOAD_PER_GB.saturating_mul(n_gb))
}

/// The planner's wish for executors of this size.
fn request(size: &ExecutorSize, objective: Objective) -> PlanRequest {
    let n_ctx = size.n_ctx as u64;
    PlanRequest {
        objective,
        n_ctx,
        n_seqs: size.n_seqs as u64,
        n_shared: size.n_shared.map(|n| n as u64),
        n_past: N_TYPICAL.min(n_ctx / 2),
        n_prompt: N_TYPICAL.min(n_ctx).max(1),
        n_batch: size.n_batch as u64,
        lead_link_bytes: 0,
        stage_link_bytes: 0,
        wire: Dtype::F32,
        lead: Some(0),
        must_use: Vec::new(),
        max_rounds: 1,
    }
}

/// The faster one of two plans; of two refusals the one that says more.
fn better(
    best: Result<RingPlan, PlanError>,
    plan: Result<RingPlan, Refusal>,
) -> Result<RingPlan, PlanError> {
    match (best, plan) {
        (Ok(best), Ok(plan)) if plan.tok_s() > best.tok_s() => Ok(plan),
        (Ok(best), _) => Ok(best),
        (Err(_), Ok(plan)) => Ok(plan),
        (Err(_), Err(refusal)) => Err(refusal.into()),
    }
}

/// Asks all nodes at the same time.
fn each<T: Send>(nodes: &[NodeName], ask: impl Fn(&NodeName) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let asking: Vec<_> = nodes.iter().map(|node| scope.spawn(|| ask(node))).collect();
        let answers = asking.into_iter().map(|thread| thread.join());
        answers
            .map(|answer| answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
