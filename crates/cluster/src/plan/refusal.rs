//! Why there is no plan, and the smallest change that would make one possible.

use std::fmt;

use super::{
    all_nodes,
    cost::Part,
    mask_of,
    measure::{Measures, PlanRequest},
    search::{Planner, Setting},
};

/// Most memory that is tried for a node, bytes.
const MOST_RAM: u64 = 1 << 42;

/// Fewest rows of a batch that are suggested.
const MIN_BATCH: u64 = 16;

/// Precision of a suggestion, bytes.
const STEP: u64 = 16 << 20;

/// A plan is impossible.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Sizes, measurements or the request are impossible.
    #[error("cannot plan: {0}")]
    Input(String),
    /// The nodes together lack memory.
    #[error("no ring: {needed} of model and KV cache, {free} free on {n_nodes} nodes; {change}",
        needed = size(*.needed_bytes), free = size(*.free_bytes))]
    TooLittleRam {
        /// Weights and KV cache, bytes.
        needed_bytes: u64,
        /// Memory of all nodes, bytes.
        free_bytes: u64,
        /// Nodes.
        n_nodes: usize,
        /// What would make a plan possible.
        change: SmallestChange,
    },
    /// Some nodes cannot be neighbours, so that no ring closes.
    #[error(
        "no ring: no way over the measured links passes through {0}; a link between them would do"
    )]
    NotConnected(String),
    /// The model has fewer parts than machines are wanted.
    #[error("no ring: {}", match .most {
        0 => "the layers of this model cannot be divided among machines".to_owned(),
        most => format!("this model can be divided among {most} other machines at most, and {n_wanted} are wanted"),
    })]
    NotDivisible {
        /// Machines beside the coordinator that shall have layers.
        n_wanted: usize,
        /// How many could.
        most: usize,
    },
}

/// The least that would make a plan possible; nothing if no single change does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmallestChange {
    /// The node for which the least more memory is enough, and how much, bytes.
    pub more_ram: Option<(String, u64)>,
    /// The largest context that would fit.
    pub n_ctx: Option<u64>,
    /// The most rows of a batch that would fit.
    pub n_batch: Option<u64>,
}

impl fmt::Display for SmallestChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ram = |(name, bytes): &(String, u64)| format!("{} more on {name}", size(*bytes));
        let ram = self.more_ram.as_ref().map(ram);
        let n_ctx = self.n_ctx.map(|n| format!("a context of {n} positions"));
        let n_batch = self.n_batch.map(|n| format!("batches of {n} rows"));
        let mut changes = [ram, n_ctx, n_batch].into_iter().flatten();
        match changes.next() {
            Some(first) => write!(f, "{first} would do")?,
            None => f.write_str("no change of one node would do: add nodes")?,
        }
        changes.try_for_each(|other| write!(f, ", or {other}"))
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        ..1_000_000_000 => format!("{} MB", bytes.div_ceil(1_000_000)),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Explains why the planner found nothing.
pub(super) fn explain(planner: &Planner<'_>) -> Refusal {
    let rich = with_ram(planner.measures, |_, _| MOST_RAM);
    if !works(planner, &rich, planner.request) {
        let n_wanted = planner.n_others(mask_of(&planner.request.must_use));
        let most = planner.most_others();
        if n_wanted > most {
            return Refusal::NotDivisible { n_wanted, most };
        }
        let must = planner.request.must_use.iter().chain(&planner.request.lead);
        let names = must.map(|node| planner.measures.nodes[*node].name.as_str());
        return Refusal::NotConnected(names.collect::<Vec<_>>().join(", "));
    }
    let change = SmallestChange {
        more_ram: more_ram(planner),
        n_ctx: smaller_context(planner),
        n_batch: smaller_batch(planner),
    };
    let setting = least_setting(planner, 0);
    let layers = 0..planner.model.layers.len();
    let totals = planner.costs_of(setting, 1, 1).totals(&layers);
    let global = planner
        .model
        .embed_bytes
        .saturating_add(planner.model.head_bytes);
    let nodes = &planner.measures.nodes;
    Refusal::TooLittleRam {
        needed_bytes: totals
            .weights
            .saturating_add(totals.kv)
            .saturating_add(global),
        free_bytes: nodes
            .iter()
            .fold(0, |sum: u64, node| sum.saturating_add(node.ram_bytes)),
        n_nodes: nodes.len(),
        change,
    }
}

/// The node that needs least, and how much.
fn more_ram(planner: &Planner<'_>) -> Option<(String, u64)> {
    let nodes = planner.measures.nodes.iter().enumerate();
    let needs = nodes.filter_map(|(node, measure)| {
        let works_with = |more: u64| {
            let measures = with_ram(planner.measures, |i, ram| match i == node {
                true => ram.saturating_add(more),
                false => ram,
            });
            works(planner, &measures, planner.request)
        };
        least(works_with).map(|more| (more, measure.name.clone()))
    });
    needs.min().map(|(more, name)| (name, more))
}

/// The least multiple of [`STEP`] that works, up to [`MOST_RAM`]; what works is assumed to work
/// with more as well.
fn least(works: impl Fn(u64) -> bool) -> Option<u64> {
    let mut high = STEP;
    while !works(high) {
        high *= 2;
        if high > MOST_RAM {
            return None;
        }
    }
    let mut low = high / 2;
    while high - low > STEP {
        let middle = low + (high - low) / 2 / STEP * STEP;
        match works(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(high)
}

/// The largest context that works: halves of the wish.
fn smaller_context(planner: &Planner<'_>) -> Option<u64> {
    let smaller = (1..).map(|i| planner.request.n_ctx.checked_shr(i).unwrap_or(0));
    let mut smaller = smaller.take_while(|n_ctx| *n_ctx >= 128);
    smaller.find(|n_ctx| {
        let request = PlanRequest {
            n_ctx: *n_ctx,
            ..planner.request.clone()
        };
        works(planner, planner.measures, &request)
    })
}

/// The most rows of a batch that work: halves of the wish.
fn smaller_batch(planner: &Planner<'_>) -> Option<u64> {
    let half = planner.request.n_batch / 2;
    let halves = std::iter::successors(Some(half), |n| Some(n / 2));
    let mut halves = halves.take_while(|n| *n >= MIN_BATCH);
    halves.find(|n| {
        let request = PlanRequest {
            n_batch: *n,
            ..planner.request.clone()
        };
        works(planner, planner.measures, &request)
    })
}

fn with_ram(measures: &Measures, ram: impl Fn(usize, u64) -> u64) -> Measures {
    let mut measures = measures.clone();
    for (i, node) in measures.nodes.iter_mut().enumerate() {
        node.ram_bytes = ram(i, node.ram_bytes);
    }
    measures
}

/// Whether there would be a plan.
fn works(planner: &Planner<'_>, measures: &Measures, request: &PlanRequest) -> bool {
    let changed = Planner {
        model: planner.model,
        measures,
        request,
    };
    let must = mask_of(&request.must_use);
    changed.search(all_nodes(measures), must).is_some()
}

/// The setting that takes least memory.
fn least_setting(planner: &Planner<'_>, lead: usize) -> Setting {
    Setting {
        lead,
        chunk: planner.request.n_batch.min(64),
        rounds: 1,
        depth: 1,
    }
}

impl Planner<'_> {
    /// Machines beside the coordinator that could have layers, if they were there.
    pub(super) fn most_others(&self) -> usize {
        let n_parts = self.cuts().len() - 1;
        n_parts - usize::from(!self.may_lead_alone())
    }

    /// Machines of a set beside the coordinator.
    pub(super) fn n_others(&self, must: u32) -> usize {
        let lead = self.request.lead.map_or(0, |lead| 1 << lead);
        let all = (must | lead).count_ones() as usize;
        all.saturating_sub(1)
    }

    /// Whether a node could hold the smallest part of the layers.
    pub(super) fn fits_a_layer(&self, node: usize) -> bool {
        let costs = self.costs_of(least_setting(self, node), 1, 1);
        let cuts = self.cuts();
        let mut parts = cuts.windows(2).map(|cut| costs.totals(&(cut[0]..cut[1])));
        parts.any(|totals| costs.node(node, totals, Part::Stage).is_some())
    }
}
