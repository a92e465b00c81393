//! The search of trellis-coded quantization: which symbols, and which of some scales, put the
//! levels of a sub-block nearest to its weights.
//!
//! It refuses to know bytes and blocks. The one idea: a free lap, that may begin and end anywhere,
//! costs at most as much as the best closed path, so most scales are dropped after half the work.
//!
//! ```text
//! the window of a symbol is it and the two before it, bits w0..w5, its own lowest
//! label = w0 | w1<<1 | (w0^w1^w4)<<2 | (w1^w2^w5)<<3          picks one level of each table
//! state = w0..w3 after the symbol; w4, w5 are the predecessor's upper bits: the branch q
//! metric(label) = importance · min over tables of (weight − scale·level)²
//! free lap: rotated by half, from all states at 0; the best end's state in the middle is the start
//! second lap: from the start to the same state
//! ```
//! Source: trellis-coded quantization (Marcellin and Fischer 1990), in the bitshift form of QTIP
//! (Tseng et al. 2024). Costs are added in f32 in order of time and never fused. Ties: the lower
//! table, the lower branch, the lower state, the lower scale.

use crate::isa::states::{Sixteen, States};

/// Symbols of a sub-block, which is a closed path of its own.
pub(crate) const SYMBOLS: usize = 32;
/// The most scales that are compared at once.
pub(crate) const SCALES_MAX: usize = 9;
/// Scales whose free laps are done together, because each step waits for the one before it.
const TOGETHER: usize = 3;
/// The bound of a free lap is less by this, since its costs are added in another order.
const ROUNDING: f32 = 1.0 - 1e-5;

/// Levels of all tables, in the order of [`label_of_lane`].
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    /// `[n_tables][16]`, zeros behind the tables.
    tables: [Sixteen; 4],
    n_tables: usize,
}

/// The label of element `lane` of the metrics: `8(q & 1) + 4(w2 ^ q / 2) + (w0 | w1<<1)`.
const fn label_of_lane(lane: usize) -> usize {
    let [t0, t1] = [lane & 1, lane >> 1 & 1];
    let [u, q0] = [lane >> 2 & 1, lane >> 3];
    t0 | t1 << 1 | (t0 ^ t1 ^ q0) << 2 | (t1 ^ u) << 3
}

/// The element of the metrics for state `s` after branch `q`.
#[inline(always)]
fn lane_of(s: usize, q: usize) -> usize {
    8 * (q & 1) + 4 * (((s >> 2) ^ (q >> 1)) & 1) + (s & 3)
}

impl Levels {
    /// `table[label + 16·i]` is the level of a label in table i; 16, 32 or 64 levels.
    pub(crate) fn new(table: &[i8]) -> Self {
        assert!(matches!(table.len(), 16 | 32 | 64), "1, 2 or 4 tables");
        let mut tables = [[0.0; 16]; 4];
        for (i, lanes) in tables[..table.len() / 16].iter_mut().enumerate() {
            for (lane, level) in lanes.iter_mut().enumerate() {
                *level = table[16 * i + label_of_lane(lane)].into();
            }
        }
        Self {
            tables,
            n_tables: table.len() / 16,
        }
    }
}

/// A sub-block, and the scales to compare.
pub(crate) struct SubBlockScales<'a> {
    /// Weights in order of time.
    pub(crate) x: &'a [f32; SYMBOLS],
    /// What an error of each weight counts.
    pub(crate) importance: &'a [f32; SYMBOLS],
    pub(crate) levels: &'a Levels,
    /// Scale i is `step·(first + i + 1)`.
    pub(crate) step: f32,
    pub(crate) first: u8,
    /// At most [`SCALES_MAX`].
    pub(crate) n: usize,
}

/// The best path of a sub-block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// The code of the scale, from `first` on.
    pub(crate) code: u8,
    /// `Σ importance·(weight − scale·level)²`.
    pub(crate) error: f32,
    /// Index of the level of each weight, in order of time: the label, and 16·table.
    pub(crate) levels: [u8; SYMBOLS],
}

/// The search for one scale.
struct Trial {
    /// Metrics of each symbol, in order of time and of [`lane_of`].
    metrics: [Sixteen; SYMBOLS],
    /// Costs before each step of the second half of the free lap, the first half of time.
    costs: [Sixteen; SYMBOLS / 2],
    /// Costs after the free lap.
    ends: Sixteen,
    scale: f32,
}

/// What a search works in.
pub(crate) struct Scratch {
    trials: [Trial; SCALES_MAX],
    /// Costs before each step of the second lap: of the one that runs, and of the best one.
    laps: [[Sixteen; SYMBOLS]; 2],
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            trials: [const {
                Trial {
                    metrics: [[0.0; 16]; SYMBOLS],
                    costs: [[0.0; 16]; SYMBOLS / 2],
                    ends: [0.0; 16],
                    scale: 0.0,
                }
            }; SCALES_MAX],
            laps: [[[0.0; 16]; SYMBOLS]; 2],
        }
    }
}

/// Finds the best path at the best of the scales.
#[inline(always)]
pub(crate) fn search(isa: impl States, of: &SubBlockScales<'_>, scratch: &mut Scratch) -> Found {
    let Scratch { trials, laps } = scratch;
    let trials = &mut trials[..of.n];
    for (i, trial) in trials.iter_mut().enumerate() {
        trial.scale = of.step * f32::from(of.first + i as u8 + 1);
        match of.levels.n_tables {
            1 => trial.measure::<1, _>(isa, of),
            2 => trial.measure::<2, _>(isa, of),
            _ => trial.measure::<4, _>(isa, of),
        }
    }
    let (groups, rest) = trials.as_chunks_mut::<TOGETHER>();
    groups.iter_mut().for_each(|group| free_laps(isa, group));
    for trial in rest {
        free_laps(isa, std::array::from_mut(trial));
    }
    second_laps(isa, of, trials, laps)
}

impl Trial {
    /// Computes the metrics of all symbols.
    #[inline(always)]
    fn measure<const N: usize, I: States>(&mut self, isa: I, of: &SubBlockScales<'_>) {
        let mut levels = [isa.costs(&[0.0; 16]); N];
        for a in 0..N {
            levels[a] = isa.times(isa.costs(&of.levels.tables[a]), self.scale);
        }
        for t in 0..SYMBOLS {
            let mut best = isa.squares(of.x[t], levels[0]);
            for a in 1..N {
                best = isa.least(best, isa.squares(of.x[t], levels[a]));
            }
            isa.store_costs(isa.times(best, of.importance[t]), &mut self.metrics[t]);
        }
    }

    /// The least cost of the free lap, a lower bound of any closed path's, and its state.
    #[inline(always)]
    fn bound(&self) -> (f32, usize) {
        let mut best = (self.ends[0], 0);
        for s in 1..16 {
            if self.ends[s] < best.0 {
                best = (self.ends[s], s);
            }
        }
        best
    }

    /// The state in the middle of the best free lap, at the end of time.
    fn start(&self) -> usize {
        let mut s = self.bound().1;
        for t in (0..SYMBOLS / 2).rev() {
            s = before(&self.costs[t], &self.metrics[t], s);
        }
        s
    }
}

/// The state from which the best path reaches state `s`, by the costs before the step.
#[inline(always)]
fn before(costs: &Sixteen, metrics: &Sixteen, s: usize) -> usize {
    let sum = |q: usize| costs[4 * q + (s >> 2)] + metrics[lane_of(s, q)];
    let mut best = (sum(0), 0);
    for q in 1..4 {
        let next = sum(q);
        if next < best.0 {
            best = (next, q);
        }
    }
    s >> 2 | best.1 << 2
}

/// Laps from the middle of time to its end and on from its beginning, from any state to any.
#[inline(always)]
fn free_laps<const N: usize>(isa: impl States, trials: &mut [Trial; N]) {
    let mut costs = [isa.costs(&[0.0; 16]); N];
    for t in SYMBOLS / 2..SYMBOLS {
        for i in 0..N {
            costs[i] = isa.step(costs[i], &trials[i].metrics[t]);
        }
    }
    for t in 0..SYMBOLS / 2 {
        for i in 0..N {
            let trial = &mut trials[i];
            isa.store_costs(costs[i], &mut trial.costs[t]);
            costs[i] = isa.step(costs[i], &trial.metrics[t]);
        }
    }
    for i in 0..N {
        isa.store_costs(costs[i], &mut trials[i].ends);
    }
}

/// Closes the paths of the trials, the lowest bound first, until no other can be better.
#[inline(always)]
fn second_laps(
    isa: impl States,
    of: &SubBlockScales<'_>,
    trials: &[Trial],
    laps: &mut [[Sixteen; SYMBOLS]; 2],
) -> Found {
    let mut bounds = [f32::NAN; SCALES_MAX];
    for (bound, trial) in bounds.iter_mut().zip(trials) {
        *bound = trial.bound().0;
    }
    let [mut running, mut kept] = laps.each_mut();
    let mut best: Option<Closed> = None;
    while let Some(i) = lowest(&bounds) {
        if best.is_some_and(|best| bounds[i] * ROUNDING > best.error) {
            break;
        }
        bounds[i] = f32::NAN;
        let start = trials[i].start();
        let error = second_lap(isa, &trials[i], start, running);
        let closed = Closed { i, start, error };
        if best.is_none_or(|best| closed.is_better_than(best)) {
            best = Some(closed);
            std::mem::swap(&mut running, &mut kept);
        }
    }
    let Closed { i, start, error } = best.expect("there is at least one scale");
    Found {
        code: of.first + i as u8,
        error,
        levels: levels_of_path(of, &trials[i], start, kept),
    }
}

/// The best closed path of a trial.
#[derive(Clone, Copy)]
struct Closed {
    /// Index of the trial.
    i: usize,
    start: usize,
    error: f32,
}

impl Closed {
    fn is_better_than(self, other: Self) -> bool {
        self.error < other.error || self.error == other.error && self.i < other.i
    }
}

/// The index of the lowest number; `None` if there is none.
fn lowest(bounds: &[f32; SCALES_MAX]) -> Option<usize> {
    let numbers = (0..SCALES_MAX).filter(|&i| !bounds[i].is_nan());
    numbers.min_by(|&i, &j| bounds[i].total_cmp(&bounds[j]))
}

/// The cost of the best path from state `start` to the same state.
#[inline(always)]
fn second_lap(
    isa: impl States,
    trial: &Trial,
    start: usize,
    costs: &mut [Sixteen; SYMBOLS],
) -> f32 {
    costs[0] = [f32::INFINITY; 16];
    costs[0][start] = 0.0;
    let mut now = isa.costs(&costs[0]);
    for t in 0..SYMBOLS {
        isa.store_costs(now, &mut costs[t]);
        now = isa.step(now, &trial.metrics[t]);
    }
    let mut ends = [0.0; 16];
    isa.store_costs(now, &mut ends);
    ends[start]
}

/// The levels along the best path of the second lap.
fn levels_of_path(
    of: &SubBlockScales<'_>,
    trial: &Trial,
    start: usize,
    costs: &[Sixteen; SYMBOLS],
) -> [u8; SYMBOLS] {
    let mut levels = [0; SYMBOLS];
    let mut s = start;
    for t in (0..SYMBOLS).rev() {
        let from = before(&costs[t], &trial.metrics[t], s);
        let lane = lane_of(s, from >> 2);
        levels[t] = (label_of_lane(lane) + 16 * nearest_table(of, trial.scale, t, lane)) as u8;
        s = from;
    }
    levels
}

/// The table whose level of a label is nearest to weight `t`; the lower one of equals.
fn nearest_table(of: &SubBlockScales<'_>, scale: f32, t: usize, lane: usize) -> usize {
    let square = |a: usize| {
        let e = of.x[t] - scale * of.levels.tables[a][lane];
        e * e
    };
    let mut best = (square(0), 0);
    for a in 1..of.levels.n_tables {
        let next = square(a);
        if next < best.0 {
            best = (next, a);
        }
    }
    best.1
}
