//! The planner: which node of a ring holds which layers, and what that will bring.
//!
//! Pure: sizes and measured speeds go in, a plan or a refusal comes out, and equal inputs give
//! equal plans. It refuses to know sockets, files and clocks. The one idea: the cost of a node that
//! holds a range of layers (`cost`) is the only model of time, and the search (`search`) and
//! the prediction (`predict`) both ask it, so that a plan is never better on paper than its
//! printed numbers.
//!
//! Times are compared as whole nanoseconds. The equations stand at the functions:
//! time of a stage `cost::Costs::node`, hop `cost::Costs::hop`, lap and period
//! `predict`, pieces of several rounds `search`.

mod cost;
mod measure;
mod predict;
mod refusal;
mod report;
mod search;
#[cfg(test)]
mod tests;

pub use measure::{
    LayerSizes, LinkMeasure, Measures, ModelSizes, NodeMeasure, NodeSpeed, Objective, PassTime,
    PlanRequest,
};
pub use refusal::{Refusal, SmallestChange};
pub use report::{Alone, IdleNode, IdleReason, NodeLoad, PlannedStage, Predicted, RingPlan};

use search::{Candidate, Planner};

/// Most nodes of a ring in version 1.
pub const MAX_NODES: usize = 16;

/// Plans a ring for `model` on the measured nodes, or one node alone where no ring is faster.
///
/// With [`Objective::Latency`], one round and at most six nodes the plan is optimal in the terms
/// of the cost model. Otherwise the bounds on the slowest stage are tried on a grid, so that a
/// plan may miss the optimum by some percent.
///
/// # Errors
/// [`Refusal`]: inputs that are no measurement, nodes that cannot reach each other, or too little
/// memory, with the smallest change that would make a plan possible.
pub fn plan(
    model: &ModelSizes,
    measures: &Measures,
    request: &PlanRequest,
) -> Result<RingPlan, Refusal> {
    measure::check(model, measures, request)?;
    let planner = Planner {
        model,
        measures,
        request,
    };
    let all = all_nodes(measures);
    let must = mask_of(&request.must_use);
    let found = planner.search(all, must);
    let Some(found) = found else {
        return Err(refusal::explain(&planner));
    };
    let best = planner.without_ballast(found, must);
    Ok(report::report(&planner, best))
}

/// The set of all nodes, bit i for node i.
fn all_nodes(measures: &Measures) -> u32 {
    (1 << measures.nodes.len()) - 1
}

fn mask_of(nodes: &[usize]) -> u32 {
    nodes.iter().fold(0, |mask, node| mask | 1 << node)
}

impl Planner<'_> {
    /// Removes nodes without which the ring is faster. Up to four nodes every subset is tried,
    /// beyond that one node after another.
    fn without_ballast(&self, found: Candidate, must: u32) -> Candidate {
        let kept = found.mask();
        let mut best = found;
        for node in (0..MAX_NODES).filter(|node| (kept & !must) & 1 << node != 0) {
            let Some(fewer) = self.search(kept & !(1 << node), must) else {
                continue;
            };
            let fewer = match kept.count_ones() {
                ..=4 => self.without_ballast(fewer, must),
                _ => fewer,
            };
            if fewer.score < best.score {
                best = fewer;
            }
        }
        match best.mask() == kept || kept.count_ones() <= 4 {
            true => best,
            false => self.without_ballast(best, must),
        }
    }
}
