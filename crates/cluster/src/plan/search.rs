//! The search: a dynamic program over nodes and cuts between layers.
//!
//! `f[w][l]` is the best way to put the first l layers on the nodes of the walk w:
//! `f[w'][l + k] = min f[w][l] + T_node(w')(l..l + k) + hop(w, w')`, and at the end
//! `f[w][L] + hop(w, lead)`. A walk is a set of visited nodes with the last one of them (up to six
//! nodes, exact) or a place in one order of all nodes, which is the shortest tour that nearest
//! neighbours and 2-opt find. A node is dropped by not being visited.
//!
//! A maximum is bounded rather than minimized along with the sum: the program minimizes either
//! the slowest stage, or the sum with no stage above a bound, and the bounds form a grid.

use std::ops::Range;

use super::{
    cost::{BatchShape, Costs, Part, Totals},
    measure::{Measures, ModelSizes, Objective, PlanRequest},
    predict::{self, Score},
    report::{NodeLoad, PlannedStage},
};

/// Up to so many nodes all orders are searched.
const MAX_EXACT: u32 = 6;

/// Rows of a chunk that are tried, within the request's batch.
const CHUNKS: [u64; 3] = [256, 128, 64];

/// Bounds of the slowest stage, as percents of the least possible one; 0 is no bound.
const BOUNDS: [u64; 9] = [100, 103, 107, 115, 125, 150, 200, 300, 0];

/// The inputs of a plan.
pub(super) struct Planner<'a> {
    pub model: &'a ModelSizes,
    pub measures: &'a Measures,
    pub request: &'a PlanRequest,
}

/// A possible plan.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub score: Score,
    pub setting: Setting,
    /// Stages in the order of layers; the first one is the lead's and may be empty.
    pub stages: Vec<PlannedStage>,
    /// Loads of the nodes, the lead first.
    pub loads: Vec<NodeLoad>,
}

/// The choices that are made before the layers are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub lead: usize,
    pub chunk: u64,
    pub rounds: u64,
    /// Batches in flight.
    pub depth: u64,
}

/// A state of the search without its layers.
struct Walk {
    node: usize,
    next: Vec<usize>,
    /// Whether the ring may close here.
    may_end: bool,
}

/// What a stage adds.
#[derive(Clone, Copy)]
struct StageTime {
    /// To the sum, ns.
    sum: u64,
    /// To the maximum, ns.
    max: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Goal {
    /// The least maximum, then the least sum.
    Max,
    /// The least sum with no maximum above the bound, then the least maximum.
    SumBelow(u64),
}

/// The best way to a walk and cut: the value, and the walk and cut before.
#[derive(Clone, Copy)]
struct Reached {
    value: [u64; 2],
    before: Option<(usize, usize)>,
}

impl Candidate {
    /// The nodes that take part.
    pub(super) fn mask(&self) -> u32 {
        self.loads
            .iter()
            .fold(0, |mask, load| mask | 1 << load.node)
    }
}

impl Planner<'_> {
    /// The best candidate on a set of nodes that uses all nodes of `must`.
    pub(super) fn search(&self, nodes: u32, must: u32) -> Option<Candidate> {
        let leads = (0..self.measures.nodes.len()).filter(|lead| nodes & 1 << lead != 0);
        let leads = leads.filter(|lead| self.request.lead.is_none_or(|wanted| wanted == *lead));
        let best = leads.filter_map(|lead| {
            let walks = match nodes.count_ones() {
                ..=MAX_EXACT => all_orders(lead, nodes, must),
                _ => one_order(&self.tour(lead, nodes), must),
            };
            self.search_from(lead, &walks)
        });
        best.min_by(|a, b| a.score.cmp(&b.score))
    }

    /// The best candidate with one lead.
    fn search_from(&self, lead: usize, walks: &[Walk]) -> Option<Candidate> {
        let mut best: Option<Candidate> = None;
        for chunk in self.chunks() {
            for depth in self.depths() {
                for rounds in [1, 2, 4] {
                    let is_allowed = rounds <= self.request.max_rounds;
                    if rounds > 1 && !(is_allowed && self.wants_rounds(best.as_ref())) {
                        break;
                    }
                    let setting = Setting {
                        lead,
                        chunk,
                        rounds,
                        depth,
                    };
                    best = better(best, self.search_with(setting, walks));
                }
            }
        }
        best
    }

    /// Several rounds serve the latency of nodes that stream.
    fn wants_rounds(&self, best: Option<&Candidate>) -> bool {
        let streams = |best: &Candidate| best.loads.iter().any(|load| load.streamed_bytes > 0);
        self.request.objective == Objective::Latency && best.is_none_or(streams)
    }

    /// Rows of a chunk to try, the largest first.
    fn chunks(&self) -> Vec<u64> {
        let most = self.request.n_batch;
        let within = CHUNKS.into_iter().filter(|chunk| *chunk <= most);
        let small = (most < CHUNKS[2]).then_some(most);
        within.chain(small).collect()
    }

    /// Batches in flight to try while texts are written.
    fn depths(&self) -> Vec<u64> {
        let n_nodes = self.measures.nodes.len() as u64;
        let mut depths = match self.request.objective {
            Objective::Latency | Objective::Prompt => vec![1],
            Objective::Users => vec![1, 2, 3, 4, 6, 8, n_nodes],
        };
        depths.retain(|depth| *depth == 1 || *depth <= n_nodes.min(self.request.n_seqs));
        depths.sort_unstable();
        depths.dedup();
        depths
    }

    /// Costs of the batch that the objective is about.
    fn costs(&self, setting: Setting) -> Costs<'_> {
        let decode = self.request.n_seqs.div_ceil(setting.depth);
        let (n, n_wanted) = match self.request.objective {
            Objective::Latency => (1, 1),
            Objective::Prompt => (setting.chunk, 0),
            Objective::Users => (decode, decode),
        };
        self.costs_of(setting, n, n_wanted)
    }

    /// Costs of a batch of `n` rows.
    pub(super) fn costs_of(&self, setting: Setting, n: u64, n_wanted: u64) -> Costs<'_> {
        let rows = BatchShape {
            n,
            n_wanted,
            rounds: setting.rounds,
        };
        Costs::new(self.model, self.measures, self.request, rows)
    }

    fn search_with(&self, setting: Setting, walks: &[Walk]) -> Option<Candidate> {
        let costs = self.costs(setting);
        let least_lead = usize::from(!self.may_lead_alone());
        let table = WalkCosts::new(&costs, self.cuts(), setting.lead, least_lead);
        let least = table.best(walks, Goal::Max)?;
        let least_max = least.1[0];
        let is_sum = self.request.objective == Objective::Latency && setting.rounds == 1;
        let bounds = if is_sum { &[0][..] } else { &BOUNDS };
        let mut best = self.candidate(setting, &least.0);
        for percent in bounds {
            let bound = match percent {
                0 => u64::MAX,
                _ => least_max.saturating_mul(*percent).div_ceil(100),
            };
            let found = table.best(walks, Goal::SumBelow(bound));
            best = better(
                best,
                found.and_then(|(shares, _)| self.candidate(setting, &shares)),
            );
        }
        best
    }

    /// Whether the coordinator may hold embedding and head without any layer.
    pub(super) fn may_lead_alone(&self) -> bool {
        let first = self.model.layers.first();
        first.is_some_and(|layer| layer.may_cut_before)
    }

    /// The layers before which the model may be cut, the first one and its end.
    pub(super) fn cuts(&self) -> Vec<usize> {
        let layers = self.model.layers.iter().enumerate();
        let inner = layers.filter(|(l, layer)| *l > 0 && layer.may_cut_before);
        let inner = inner.map(|(l, _)| l);
        std::iter::once(0)
            .chain(inner)
            .chain([self.model.layers.len()])
            .collect()
    }

    /// A candidate from the share of each node; `None` if the pieces of several rounds cannot be
    /// cut so, or do not fit.
    fn candidate(&self, setting: Setting, shares: &[PlannedStage]) -> Option<Candidate> {
        if setting.rounds > 1 && shares.len() < 2 {
            return None;
        }
        let stages = rounds_of(shares, setting.rounds);
        let cuts = self.cuts();
        let is_cut = |stage: &PlannedStage| cuts.binary_search(&stage.layers.start).is_ok();
        let is_led = !stages[0].layers.is_empty() || self.may_lead_alone();
        if !(is_led && stages.iter().all(is_cut)) {
            return None;
        }
        predict::judge(self, setting, stages)
    }

    /// A short tour from the lead through all nodes: nearest neighbours, then 2-opt.
    fn tour(&self, lead: usize, nodes: u32) -> Vec<usize> {
        let length = |a: usize, b: usize| {
            let link = self.measures.link(a, b);
            link.map_or(1 << 40, |link| link.rtt().as_nanos() as u64)
        };
        let mut left: Vec<usize> = (0..self.measures.nodes.len()).collect();
        left.retain(|node| *node != lead && nodes & 1 << node != 0);
        let mut tour = vec![lead];
        while !left.is_empty() {
            let last = tour[tour.len() - 1];
            let nearest = (0..left.len()).min_by_key(|i| (length(last, left[*i]), left[*i]));
            tour.push(left.remove(nearest.unwrap_or(0)));
        }
        while improve(&mut tour, length) {}
        tour
    }
}

/// Reverses the first part of the tour whose reversal makes it shorter (2-opt).
fn improve(tour: &mut [usize], length: impl Fn(usize, usize) -> u64) -> bool {
    let n = tour.len();
    for i in 1..n {
        for j in i + 1..n {
            let before = tour[i - 1];
            let after = tour[(j + 1) % n];
            let now = length(before, tour[i]) + length(tour[j], after);
            if length(before, tour[j]) + length(tour[i], after) < now {
                tour[i..=j].reverse();
                return true;
            }
        }
    }
    false
}

fn better(a: Option<Candidate>, b: Option<Candidate>) -> Option<Candidate> {
    [a, b]
        .into_iter()
        .flatten()
        .min_by(|a, b| a.score.cmp(&b.score))
}

/// Pieces of all rounds, in the order of layers: piece q of a share of n layers has
/// `⌊(q + 1) n/r⌋ − ⌊q n/r⌋` of them.
fn rounds_of(shares: &[PlannedStage], rounds: u64) -> Vec<PlannedStage> {
    let rounds = rounds as usize;
    let mut stages: Vec<PlannedStage> = Vec::new();
    let mut first = 0;
    for round in 0..rounds {
        for (i, share) in shares.iter().enumerate() {
            let n = share.layers.len();
            let n = (round + 1) * n / rounds - round * n / rounds;
            if n > 0 || (i == 0 && round == 0) {
                stages.push(PlannedStage {
                    node: share.node,
                    layers: first..first + n,
                });
            }
            first += n;
        }
    }
    stages
}

/// The walks of all orders of a set of nodes: index by set and last node.
fn all_orders(lead: usize, nodes: u32, must: u32) -> Vec<Walk> {
    let members = |set: u32| (0..u32::BITS as usize).filter(move |node| set & 1 << node != 0);
    let start = 1 << lead;
    let sets = (start..=nodes).filter(|set| set & start != 0 && set & !nodes == 0);
    let states = sets.flat_map(|set: u32| {
        let last = members(set).filter(move |node| *node != lead || set == start);
        last.map(move |node| (set, node))
    });
    let states: Vec<(u32, usize)> = states.collect();
    let index = |set, node| states.binary_search(&(set, node)).ok();
    let walk = |&(set, node): &(u32, usize)| Walk {
        node,
        next: members(nodes & !set)
            .filter_map(|next| index(set | 1 << next, next))
            .collect(),
        may_end: set & must == must,
    };
    states.iter().map(walk).collect()
}

/// The walks along one order, in which nodes can be left out.
fn one_order(order: &[usize], must: u32) -> Vec<Walk> {
    let is_needed = |place: &usize| must & 1 << order[*place] != 0;
    let walk = |place: usize| {
        let needed = (place + 1..order.len()).find(is_needed);
        let last = needed.unwrap_or(order.len() - 1);
        Walk {
            node: order[place],
            next: (place + 1..=last).collect(),
            may_end: needed.is_none(),
        }
    };
    (0..order.len()).map(walk).collect()
}

/// Times of every node for every range between two cuts.
struct WalkCosts<'a> {
    costs: &'a Costs<'a>,
    lead: usize,
    cuts: Vec<usize>,
    /// The first cut that may end the lead's first layers.
    least_lead: usize,
    /// By node and the cuts that begin and end the range; `None` where it does not fit.
    times: Vec<Option<StageTime>>,
}

impl<'a> WalkCosts<'a> {
    fn new(costs: &'a Costs<'a>, cuts: Vec<usize>, lead: usize, least_lead: usize) -> Self {
        let mut times = Vec::new();
        for node in 0..costs.measures.nodes.len() {
            for from in 0..cuts.len() {
                for to in 0..cuts.len() {
                    let fits = (from <= to).then(|| costs.totals(&(cuts[from]..cuts[to])));
                    times.push(fits.and_then(|totals| time(costs, node, totals, lead)));
                }
            }
        }
        Self {
            costs,
            lead,
            cuts,
            least_lead,
            times,
        }
    }

    fn time(&self, node: usize, from: usize, to: usize) -> Option<StageTime> {
        self.times[(node * self.cuts.len() + from) * self.cuts.len() + to]
    }

    /// The best shares and their value, in the order of the goal.
    fn best(&self, walks: &[Walk], goal: Goal) -> Option<(Vec<PlannedStage>, [u64; 2])> {
        let n_cuts = self.cuts.len();
        let mut reached: Vec<Option<Reached>> = vec![None; walks.len() * n_cuts];
        for (to, place) in reached.iter_mut().enumerate().take(n_cuts) {
            let alone = self.time(self.lead, 0, to);
            let alone = alone.filter(|time| to >= self.least_lead && goal.allows(time.max));
            *place = alone.map(|time| Reached {
                value: goal.value(time),
                before: None,
            });
        }
        for w in 0..walks.len() {
            for &next in &walks[w].next {
                self.extend(walks, [w, next], goal, &mut reached);
            }
        }
        self.close(walks, goal, &reached)
    }

    /// Adds one more node behind all cuts that the walk has reached.
    fn extend(
        &self,
        walks: &[Walk],
        [w, next]: [usize; 2],
        goal: Goal,
        reached: &mut [Option<Reached>],
    ) {
        let n_cuts = self.cuts.len();
        let Some(hop) = self.hop(walks[w].node, walks[next].node) else {
            return;
        };
        for from in 0..n_cuts - 1 {
            let Some(here) = reached[w * n_cuts + from] else {
                continue;
            };
            let base = goal.join(here.value, goal.value(hop));
            for to in from + 1..n_cuts {
                let time = self.time(walks[next].node, from, to);
                let Some(time) = time.filter(|time| goal.allows(time.max)) else {
                    continue;
                };
                let value = goal.join(base, goal.value(time));
                let place = &mut reached[next * n_cuts + to];
                if place.is_none_or(|old| value < old.value) {
                    let before = Some((w, from));
                    *place = Some(Reached { value, before });
                }
            }
        }
    }

    /// Returns the rows to the lead, and takes the best way back to the first layer.
    fn close(
        &self,
        walks: &[Walk],
        goal: Goal,
        reached: &[Option<Reached>],
    ) -> Option<(Vec<PlannedStage>, [u64; 2])> {
        let n_cuts = self.cuts.len();
        let ends = (0..walks.len())
            .filter(|w| walks[*w].may_end)
            .filter_map(|w| {
                let end = reached[w * n_cuts + n_cuts - 1]?;
                let hop = self.hop(walks[w].node, self.lead)?;
                Some((goal.join(end.value, goal.value(hop)), w))
            });
        let (value, mut w) = ends.min()?;
        let mut to = n_cuts - 1;
        let mut shares = Vec::new();
        loop {
            let before = reached[w * n_cuts + to]?.before;
            let from = before.map_or(0, |(_, from)| from);
            shares.push(PlannedStage {
                node: walks[w].node,
                layers: self.cuts[from]..self.cuts[to],
            });
            match before {
                Some(before) => (w, to) = before,
                None => break,
            }
        }
        shares.reverse();
        Some((shares, value))
    }

    /// What a hop adds, in every round.
    fn hop(&self, from: usize, to: usize) -> Option<StageTime> {
        let rounds = self.costs.rows.rounds;
        let max = match rounds {
            1 => self.costs.transfer(from, to)?,
            _ => 0,
        };
        Some(StageTime {
            sum: self.costs.hop(from, to)?.saturating_mul(rounds),
            max,
        })
    }
}

/// What a node adds with these layers. In one round it computes and reads at once; in several
/// rounds it reads all the time, and computes in its turn.
fn time(costs: &Costs<'_>, node: usize, layers: Totals, lead: usize) -> Option<StageTime> {
    let part = match node == lead {
        true => Part::Lead,
        false => Part::Stage,
    };
    let cost = costs.node(node, layers, part)?;
    Some(match costs.rows.rounds {
        1 => StageTime {
            sum: cost.compute.max(cost.read),
            max: cost.compute.max(cost.read),
        },
        _ => StageTime {
            sum: cost.compute,
            max: cost.read,
        },
    })
}

impl Goal {
    fn value(self, time: StageTime) -> [u64; 2] {
        match self {
            Self::Max => [time.max, time.sum],
            Self::SumBelow(_) => [time.sum, time.max],
        }
    }

    fn join(self, a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
        match self {
            Self::Max => [a[0].max(b[0]), a[1] + b[1]],
            Self::SumBelow(_) => [a[0] + b[0], a[1].max(b[1])],
        }
    }

    fn allows(self, max: u64) -> bool {
        match self {
            Self::Max => true,
            Self::SumBelow(bound) => max <= bound,
        }
    }
}

/// Layers of a node, in all rounds.
pub(super) fn layers_of(
    stages: &[PlannedStage],
    node: usize,
) -> impl Iterator<Item = &Range<usize>> {
    let own = stages.iter().filter(move |stage| stage.node == node);
    own.map(|stage| &stage.layers)
}
