//! Which machines divide the rows of a model, and how fast that is: plans of groups.
//!
//! Knows no layers: every member has all of them. A group is the coordinator and the fastest nodes,
//! as many as help; rows are in proportion to measured speeds, and the time of a token is that of
//! reading the weights together, and of the messages between products.

use std::{cmp::Reverse, fmt, num::NonZeroU32, time::Duration};

use atta_model::{Error, RowSplit, spec::ModelSpec};

use crate::{
    Coordinator, HashedModel, OnStage, PlanError, Survey, SurveyedNode, Who,
    coordinator::{load_deadline, timing},
    own_address,
    plan::{LinkMeasure, ModelSizes, Objective},
    tensor::{
        GroupChanges, GroupMembers, PlannedGroup, RemoteGroup, RemoteGroupOptions,
        split::exchange_cost,
    },
    wire::message::{NodeAddress, NodeNumbers},
};

/// Most members besides the coordinator.
const MAX_OTHERS: usize = 15;

/// Who computes which part of the rows, and how fast that should be.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupPlan {
    /// Name of the coordinator.
    pub lead: String,
    /// The members; without others, this machine alone is as fast.
    pub members: GroupMembers,
    /// Expected tokens of one text, 1/s.
    pub decode_tok_s: f64,
    /// Those of this machine alone.
    pub alone_tok_s: f64,
    /// Times that members wait for each other for a token.
    pub n_units: usize,
    /// Bytes that the coordinator gets from the others for a token.
    pub received_bytes: usize,
}

impl GroupPlan {
    /// Whether this machine does it alone.
    pub fn is_alone(&self) -> bool {
        self.members.others.is_empty()
    }
}

impl fmt::Display for GroupPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lead, members, .. } = self;
        if self.is_alone() {
            return write!(
                f,
                "no rows to others: {:.1} tokens/s on {lead} alone; no node would help",
                self.alone_tok_s
            );
        }
        let others = members.others.iter().map(|(_, speed)| speed.get());
        let all: f64 = others
            .chain([members.lead_speed.get()])
            .map(f64::from)
            .sum();
        let percent = |speed: NonZeroU32| 100.0 * f64::from(speed.get()) / all;
        write!(f, "rows: {lead} {:.0} %", percent(members.lead_speed))?;
        for (node, speed) in &members.others {
            write!(f, ", {} {:.0} %", node.name, percent(*speed))?;
        }
        write!(
            f,
            "; expecting {:.1} tokens/s (one machine: {:.1})",
            self.decode_tok_s, self.alone_tok_s
        )
    }
}

/// A model that is to be divided.
#[derive(Clone, Debug)]
pub struct SizedModel {
    /// Its architecture.
    pub spec: ModelSpec,
    /// Its sizes.
    pub sizes: ModelSizes,
    /// Whether all instruction sets compute the same bits of it.
    pub is_exact: bool,
}

/// A node that could be a member.
struct PossibleMember<'a> {
    node: &'a NodeAddress,
    speed: f64,
    link: LinkMeasure,
}

impl Coordinator {
    /// Who shall compute which part of the rows.
    ///
    /// # Errors
    /// A wanted node that cannot be used; none where one is demanded.
    pub fn plan_rows(
        &self,
        survey: &Survey,
        model: &SizedModel,
        who: &Who,
        objective: Objective,
    ) -> Result<GroupPlan, PlanError> {
        let speed = |numbers: NodeNumbers| match objective {
            Objective::Prompt => numbers.macs_per_s,
            Objective::Latency | Objective::Users => numbers.read_bytes_per_s,
        };
        let here = speed(self.numbers).max(1.0);
        let candidate = |node| self.candidate(node, speed);
        let mut candidates = match who {
            Who::Nodes(names) | Who::Among(names) => {
                let wanted = names.iter().map(|name| {
                    let found = survey.nodes.iter().find(|n| n.address.name == *name);
                    let why = || PlanError::Node {
                        node: name.clone(),
                        why: survey.why_not(name),
                    };
                    found.and_then(candidate).ok_or_else(why)
                });
                wanted.collect::<Result<Vec<_>, _>>()?
            }
            Who::Auto => {
                let nodes = survey.nodes.iter().filter(|node| !node.is_here);
                nodes.filter_map(candidate).collect()
            }
            Who::Force => survey.nodes.iter().filter_map(candidate).collect(),
        };
        if candidates.is_empty() && *who != Who::Auto {
            return Err(PlanError::Nobody);
        }
        candidates.sort_by_key(|candidate| Reverse(candidate.speed as u64));
        candidates.truncate(MAX_OTHERS);
        let numbers = match who {
            Who::Nodes(_) => candidates.len()..=candidates.len(),
            Who::Force => 1..=candidates.len(),
            Who::Auto | Who::Among(_) => 0..=candidates.len(),
        };
        let plans = numbers.filter_map(|n| self.group_of(model, here, &candidates[..n]));
        let best = plans.max_by(|a, b| a.decode_tok_s.total_cmp(&b.decode_tok_s));
        best.ok_or(PlanError::Nobody)
    }

    fn candidate<'a>(
        &self,
        node: &'a SurveyedNode,
        speed: impl Fn(NodeNumbers) -> f64,
    ) -> Option<PossibleMember<'a>> {
        let link = node.link.filter(|_| node.unfit.is_none())?;
        Some(PossibleMember {
            node: &node.address,
            speed: speed(node.card.measure.unwrap_or(self.numbers)),
            link,
        })
    }

    /// The plan with these members; `None` if the rows cannot be divided like this.
    fn group_of(
        &self,
        model: &SizedModel,
        here: f64,
        others: &[PossibleMember<'_>],
    ) -> Option<GroupPlan> {
        let fastest = others.iter().map(|other| other.speed).fold(here, f64::max);
        // Thousandths of the fastest member.
        let unit = |speed: f64| {
            let n = (1000.0 * speed / fastest).round().max(1.0) as u32;
            NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN)
        };
        let members = others.iter().map(|o| (o.node.clone(), unit(o.speed)));
        let members = GroupMembers {
            lead_speed: unit(here),
            others: members.collect(),
        };
        let split = RowSplit::new(&members.speeds()).ok()?;
        let cost = exchange_cost(&model.spec, &split, 0);
        if !others.is_empty() && cost.n_received == 0 {
            return None;
        }
        let rates = self.numbers.read_bytes_per_s.max(1.0) / here;
        let all: f64 = here + others.iter().map(|other| other.speed).sum::<f64>();
        let read = read_bytes(&model.sizes) / (rates * all);
        let slowest = |of: fn(&LinkMeasure) -> f64| {
            let links = others.iter().map(|other| of(&other.link));
            links.fold(0.0, f64::max)
        };
        let one_way = slowest(|link| link.rtt_p50.as_secs_f64() / 2.0);
        let byte = slowest(|link| 1.0 / link.bytes_per_s.max(1.0));
        let received_bytes = size_of::<f32>() * cost.n_received;
        let messages = cost.n_units as f64 * one_way + received_bytes as f64 * byte;
        Some(GroupPlan {
            lead: self.name.to_string(),
            members,
            decode_tok_s: 1.0 / (read + messages),
            alone_tok_s: rates * here / read_bytes(&model.sizes),
            n_units: cost.n_units,
            received_bytes,
        })
    }

    /// The members of a plan, and the times that they need.
    pub(crate) fn planned_group(&self, plan: &GroupPlan, sizes: &ModelSizes) -> PlannedGroup {
        PlannedGroup {
            members: plan.members.clone(),
            timing: timing(Duration::from_secs_f64(1.0 / plan.decode_tok_s.max(1e-3))),
            deadline: load_deadline(read_bytes(sizes) as u64),
        }
    }

    /// The group of a plan for a model, whose file this machine has. It goes on without members
    /// that are lost.
    ///
    /// # Errors
    /// A plan for this machine alone; no way to the nodes.
    pub fn group(
        &self,
        plan: &GroupPlan,
        sizes: &ModelSizes,
        model: HashedModel,
        on_stage: OnStage,
        changes: GroupChanges,
    ) -> Result<RemoteGroup, Error> {
        let PlannedGroup {
            members,
            timing,
            deadline,
        } = self.planned_group(plan, sizes);
        let mut sources = Vec::new();
        if let Some((first, _)) = plan.members.others.first() {
            sources.push(NodeAddress {
                name: self.name.clone(),
                address: own_address(self.links.address(), first.address)?,
            });
        }
        let options = RemoteGroupOptions {
            control: self.control.clone(),
            links: self.links.clone(),
            lane: self.lane,
            name: self.name.clone(),
            members,
            model,
            sources,
            kernels: self.kernels,
            pool: self.pool.clone(),
            timing,
            deadline,
            on_stage,
        };
        RemoteGroup::with_changes(options, changes)
    }
}

/// Weights that a token reads, bytes.
fn read_bytes(sizes: &ModelSizes) -> f64 {
    let layers: u64 = sizes.layers.iter().map(|layer| layer.row_bytes).sum();
    (layers + sizes.head_read_bytes).max(1) as f64
}
