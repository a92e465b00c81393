//! The time of a whole plan, from the costs of its nodes.
//!
//! - Lap of one batch: `Σ max(compute, read) + Σ hop`; with several rounds
//!   `max(Σ compute + Σ hop, max read)`, since nodes read while others compute.
//! - Period between batches when `d` are in flight: `max(slowest stage, slowest transfer, lap/d)`.
//! - A prompt of P rows in chunks of c: `(⌈P/c⌉ − 1) · period(c) + lap(c)`, and one pass of the
//!   head. With equal stages that is `(P/c + N − 1) · T(c)/N` of RING §10.

use std::{cmp::Reverse, time::Duration};

use super::{
    cost::{Costs, NodeCost, Part, Totals},
    measure::Objective,
    report::{NodeLoad, PlannedStage, Predicted},
    search::{Candidate, Planner, Setting, layers_of},
};

/// The order of candidates, the smallest is the best: the objective's time, the slowest stage,
/// nodes, the time of the prompt (all ns), and the memory left on the fullest node.
pub(super) type Score = (u64, u64, usize, u64, Reverse<u64>);

/// Times of a batch, ns.
struct Times {
    lap: u64,
    slowest: u64,
}

impl Times {
    fn period(&self, depth: u64) -> u64 {
        match depth {
            1 => self.lap,
            _ => self.slowest.max(self.lap.div_ceil(depth)),
        }
    }
}

/// Checks that every node holds its stages, and computes the score of the plan.
pub(super) fn judge(
    planner: &Planner<'_>,
    setting: Setting,
    stages: Vec<PlannedStage>,
) -> Option<Candidate> {
    let costs = planner.costs_of(setting, 1, 1);
    let nodes = node_costs(&costs, setting, &stages)?;
    let loads: Vec<NodeLoad> = nodes.into_iter().map(|node| node.load).collect();
    let decode = times(planner, setting, &stages, 1, 1)?;
    let prompt = prompt(planner, setting, &stages)?;
    let (first, slowest) = match planner.request.objective {
        Objective::Latency => (decode.lap, decode.slowest),
        Objective::Prompt => (prompt, decode.slowest),
        Objective::Users => (users(planner, setting, &stages)?, decode.slowest),
    };
    let left = loads.iter().map(|load| load.ram_left_bytes).min()?;
    Some(Candidate {
        score: (first, slowest, loads.len(), prompt, Reverse(left)),
        setting,
        stages,
        loads,
    })
}

/// What the printed plan promises.
pub(super) fn predicted(planner: &Planner<'_>, best: &Candidate) -> Option<Predicted> {
    let Candidate {
        setting, stages, ..
    } = best;
    let decode = times(planner, *setting, stages, 1, 1)?;
    let seconds = |ns: u64| ns.max(1) as f64 * 1e-9;
    let n_prompt = planner.request.n_prompt as f64;
    Some(Predicted {
        decode_tok_s: 1.0 / seconds(decode.lap),
        prompt_tok_s: n_prompt / seconds(prompt(planner, *setting, stages)?),
        users_tok_s: 1000.0 / seconds(users(planner, *setting, stages)?),
        lap: Duration::from_nanos(decode.lap),
        slowest_stage: Duration::from_nanos(decode.slowest),
    })
}

/// Time of the request's prompt, ns.
fn prompt(planner: &Planner<'_>, setting: Setting, stages: &[PlannedStage]) -> Option<u64> {
    let n_rows = planner.request.n_prompt;
    let chunk = setting.chunk.min(n_rows);
    let n_chunks = n_rows.div_ceil(chunk);
    let times_of = |n_wanted| times(planner, setting, stages, chunk, n_wanted);
    let body = times_of(0)?;
    let last = times_of(1)?;
    let period = body.period(prompt_depth(stages));
    Some(
        (n_chunks - 1)
            .saturating_mul(period)
            .saturating_add(last.lap),
    )
}

/// Chunks of a prompt in flight: as many as there are stages with layers.
pub(super) fn prompt_depth(stages: &[PlannedStage]) -> u64 {
    stages
        .iter()
        .filter(|stage| !stage.layers.is_empty())
        .count() as u64
}

/// Time of 1000 tokens of all sequences together, ns.
fn users(planner: &Planner<'_>, setting: Setting, stages: &[PlannedStage]) -> Option<u64> {
    let n = planner.request.n_seqs.div_ceil(setting.depth);
    let period = times(planner, setting, stages, n, n)?.period(setting.depth);
    // Each of `depth` flights brings its rows once in `depth` periods.
    let per_flight = u128::from(period) * u128::from(setting.depth) * 1000;
    let ns = per_flight / u128::from(planner.request.n_seqs);
    u64::try_from(ns).ok()
}

/// The times of a batch of `n` rows, `n_wanted` of them with logits.
fn times(
    planner: &Planner<'_>,
    setting: Setting,
    stages: &[PlannedStage],
    n: u64,
    n_wanted: u64,
) -> Option<Times> {
    let costs = planner.costs_of(setting, n, n_wanted);
    let nodes = node_costs(&costs, setting, stages)?;
    let links = links(setting.lead, stages);
    let hops = links.iter().map(|&(from, to)| costs.hop(from, to));
    let hops: u64 = hops.sum::<Option<u64>>()?;
    let transfers = links
        .iter()
        .filter_map(|&(from, to)| costs.transfer(from, to));
    let compute: u64 = nodes.iter().map(|node| node.compute).sum();
    let read = nodes.iter().map(|node| node.read).max()?;
    let both = |node: &NodeCost| node.compute.max(node.read);
    let lap = match setting.rounds {
        1 => nodes.iter().map(both).sum::<u64>() + hops,
        _ => (compute + hops).max(read),
    };
    let slowest = nodes.iter().map(both).chain(transfers).max()?;
    Some(Times { lap, slowest })
}

/// The links of a lap in order: from stage to stage, and back to the lead.
fn links(lead: usize, stages: &[PlannedStage]) -> Vec<(usize, usize)> {
    let nodes = stages.iter().map(|stage| stage.node);
    let next = nodes.clone().skip(1).chain([lead]);
    nodes.zip(next).collect()
}

/// Costs of each node with all of its stages, the lead first.
fn node_costs(
    costs: &Costs<'_>,
    setting: Setting,
    stages: &[PlannedStage],
) -> Option<Vec<NodeCost>> {
    let mut nodes = vec![setting.lead];
    for stage in stages {
        if !nodes.contains(&stage.node) {
            nodes.push(stage.node);
        }
    }
    let cost = |node: usize| {
        let totals = layers_of(stages, node).map(|layers| costs.totals(layers));
        let totals = totals.fold(Totals::default(), |a, b| a + b);
        let part = match node == setting.lead {
            true => Part::Lead,
            false => Part::Stage,
        };
        costs.node(node, totals, part)
    };
    nodes.into_iter().map(cost).collect()
}
