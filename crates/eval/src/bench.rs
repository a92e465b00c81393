//! The benchmark of one model on this machine: how fast a prompt is read and text is written.
//!
//! Tokens are arbitrary, since speed does not depend on them, and the context before them is filled
//! in rather than computed. Every figure is a median over repetitions, after one warm-up that is
//! not counted.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use atta_model::{
    KvType, MatmulCost, Observer, Phase,
    spec::{Attention, ModelSpec, Retention, StateKind},
};

use atta_engine::{DEFAULT_N_BATCH, Engine, Error, Session, SessionOptions, WeightsAt};

/// The probe of the memory: large enough to say something, and not too large for a small board.
const MIN_PROBE_BYTES: u64 = 64 << 20;
const MAX_PROBE_BYTES: u64 = 512 << 20;

/// Tokens of the warm-up in front of each measurement, at most: enough to bring weights and code
/// into memory.
const MAX_WARM_UP: usize = 512;

/// The lengths to measure, and how often. Each prompt and each text is measured at each depth.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Tokens of each prompt; 0: not measured.
    pub n_prompts: Vec<usize>,
    /// Tokens of each generated text; 0: not measured.
    pub n_gens: Vec<usize>,
    /// Tokens that are in the context before a measurement starts. They are filled in without
    /// being computed, where the executor can.
    pub depths: Vec<usize>,
    /// Repetitions, at least 1.
    pub n_reps: usize,
    /// The session to measure in; its context is made long enough.
    pub session: SessionOptions,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            n_prompts: vec![512],
            n_gens: vec![128],
            depths: vec![0],
            n_reps: 3,
            session: SessionOptions::default(),
        }
    }
}

/// The subject of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchKind {
    /// Prefill: tokens in batches.
    Prompt,
    /// Decode: tokens one after another.
    Text,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchCase {
    /// The lengths that are measured.
    pub kind: BenchKind,
    /// Its tokens, at least 1.
    pub n: usize,
    /// Tokens in front of them.
    pub depth: usize,
}

impl BenchOptions {
    /// All measurements: of each depth the prompts, then the texts.
    pub fn cases(&self) -> Vec<BenchCase> {
        let of_kind = |kind, ns: &[usize], depth| {
            let ns = ns.iter().filter(|&&n| n > 0);
            let cases = ns.map(|&n| BenchCase { kind, n, depth });
            cases.collect::<Vec<_>>()
        };
        let of_depth = |&depth| {
            [
                of_kind(BenchKind::Prompt, &self.n_prompts, depth),
                of_kind(BenchKind::Text, &self.n_gens, depth),
            ]
            .concat()
        };
        self.depths.iter().flat_map(of_depth).collect()
    }

    /// Positions that the longest measurement needs, at least 1.
    pub fn n_positions(&self) -> usize {
        let needed = |case: BenchCase| case.depth.saturating_add(case.n);
        self.cases().into_iter().map(needed).max().unwrap_or(1)
    }
}

/// The measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchReport {
    /// In the order of [`BenchOptions::cases`].
    pub rows: Vec<BenchRow>,
    /// What one token takes of weights at least.
    pub cost: MatmulCost,
    /// Bytes that this machine reads from memory per second, with as many threads.
    pub read_bytes_per_s: f64,
    /// Products of bytes that it adds up per second, with the same threads and instruction set.
    pub int8_mac_per_s: f64,
}

/// The result of one measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRow {
    /// Results.
    pub case: BenchCase,
    /// Tokens per second, median.
    pub tok_s: f64,
    /// Where the time went, sum of the repetitions.
    pub split: TimeSplit,
    /// Bytes of keys and values that a token reads if it is computed alone, on the mean.
    pub state_bytes: f64,
}

/// Seconds by what they were spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeSplit {
    /// Multiplying with weights.
    pub matmul_s: f64,
    /// Attention.
    pub attention_s: f64,
    /// Recurrent layers: convolutions and states.
    pub scan_s: f64,
    /// Waiting for weights.
    pub io_wait_s: f64,
    /// Everything else.
    pub other_s: f64,
}

/// Measures prefill and decode. `on_case` is called before each case, with its index.
///
/// # Errors
/// A session that cannot be made, or a step that failed.
pub fn bench(
    engine: &Engine,
    options: &BenchOptions,
    mut on_case: impl FnMut(usize, BenchCase),
) -> Result<BenchReport, Error> {
    let mut bench = Bench::new(open(engine, options)?);
    let mut rows = Vec::new();
    for (i, case) in options.cases().into_iter().enumerate() {
        on_case(i, case);
        bench.once(&BenchCase {
            n: case.n.min(MAX_WARM_UP),
            ..case
        })?;
        let n_reps = options.n_reps.max(1);
        let reps: Result<Vec<_>, Error> = (0..n_reps).map(|_| bench.once(&case)).collect();
        let (mut times, splits): (Vec<_>, Vec<_>) = reps?.into_iter().unzip();
        rows.push(BenchRow {
            case,
            tok_s: median_rate(case.n, &mut times),
            split: splits
                .into_iter()
                .fold(TimeSplit::default(), TimeSplit::plus),
            state_bytes: state_bytes(engine.spec(), options.session.kv, case.depth, case.n),
        });
    }
    Ok(BenchReport {
        rows,
        cost: engine.model().matmul_cost(),
        read_bytes_per_s: read_bandwidth(engine)?,
        int8_mac_per_s: engine.kernels().int8_peak(engine.pool()),
    })
}

/// A session that is long enough for all cases.
fn open(engine: &Engine, options: &BenchOptions) -> Result<Session, Error> {
    let n_ctx = options.session.n_ctx.unwrap_or(0);
    let n_ctx = Some(n_ctx.max(options.n_positions()));
    // A streamed model has left as much memory to its session as was planned, and no more.
    let default = (engine.weights_at() != WeightsAt::Streamed).then_some(DEFAULT_N_BATCH);
    let n_batch = options.session.n_batch.or(default);
    let session = |n_batch| {
        engine.session(&SessionOptions {
            n_ctx,
            n_batch,
            ..options.session.clone()
        })
    };
    match session(n_batch) {
        // The default batch may need more memory than there is.
        Err(error) if error.is_about_memory() && options.session.n_batch.is_none() => session(None),
        made => made,
    }
}

/// Measured on a buffer of the size of the model, within reason.
fn read_bandwidth(engine: &Engine) -> Result<f64, Error> {
    let bytes = engine
        .model()
        .weights()
        .files()
        .file_bytes()
        .clamp(MIN_PROBE_BYTES, MAX_PROBE_BYTES);
    // A streamed model leaves little; then the figure says less.
    let bytes = bytes.min(engine.budget().left());
    let _memory = engine.budget().reserve("bandwidth probe", bytes)?;
    Ok(engine
        .kernels()
        .read_bandwidth(engine.pool(), bytes as usize))
}

impl BenchReport {
    /// The share of what the machine can do that a row used: of a prompt the products with
    /// weights, of a text the weights, keys and values that were read.
    ///
    /// The head, which only the last token of a prompt needs, counts for every token, as is usual.
    pub fn share(&self, row: &BenchRow) -> f64 {
        match row.case.kind {
            BenchKind::Prompt => row.tok_s * self.cost.macs as f64 / self.int8_mac_per_s,
            BenchKind::Text => {
                row.tok_s * (self.cost.bytes as f64 + row.state_bytes) / self.read_bytes_per_s
            }
        }
    }

    /// The first row of a kind.
    pub fn first(&self, kind: BenchKind) -> Option<&BenchRow> {
        self.rows.iter().find(|row| row.case.kind == kind)
    }
}

/// Bytes of keys and values that each of `n_gen` tokens behind `depth` others sees, on the mean.
fn state_bytes(spec: &ModelSpec, kv: KvType, depth: usize, n_gen: usize) -> f64 {
    let of_one = spec.state_bytes(kv, 1);
    let kv_layer = |l: usize| spec.layers[l].attention().and_then(Attention::kv_layer);
    let of_kv = |l: usize| of_one[kv_layer(l).unwrap_or(l)] as f64;
    let of_kind = |l: usize, pos: usize, kind: StateKind| match kind {
        StateKind::Kv(Retention::All | Retention::Text) => of_kv(l) * (pos + 1) as f64,
        StateKind::Kv(Retention::Window(n)) => of_kv(l) * n.min(pos + 1) as f64,
        StateKind::Recurrent => 4.0 * spec.state_floats(l) as f64,
    };
    let of_layer = |l: usize, pos: usize| {
        let kinds = spec.layers[l].state_kinds();
        kinds.map(|kind| of_kind(l, pos, kind)).sum::<f64>()
    };
    let of_token = |pos| (0..of_one.len()).map(|l| of_layer(l, pos)).sum::<f64>();
    (depth..depth + n_gen).map(of_token).sum::<f64>() / n_gen.max(1) as f64
}

/// A session under measurement.
struct Bench {
    session: Session,
    clock: Arc<Mutex<Clock>>,
}

impl Bench {
    fn new(mut session: Session) -> Self {
        let clock = Arc::new(Mutex::new(Clock::default()));
        session.observe(Box::new(SharedClock(clock.clone())));
        Self { session, clock }
    }

    /// Measures a case once.
    fn once(&mut self, case: &BenchCase) -> Result<(Duration, TimeSplit), Error> {
        self.fill_to(case.depth)?;
        let ids: Vec<u32> = (0..case.n).map(|i| self.token(i)).collect();
        self.timed(|session| match case.kind {
            BenchKind::Prompt => session.append(&ids),
            BenchKind::Text => ids.iter().try_for_each(|&id| session.append(&[id])),
        })
    }

    /// An arbitrary token, spread over the vocabulary.
    fn token(&self, i: usize) -> u32 {
        ((i + 1) * 7919 % self.session.engine().spec().n_vocab) as u32
    }

    /// Brings the context to a depth, keeping what of it is there. An executor that cannot fill
    /// positions in computes them.
    fn fill_to(&mut self, depth: usize) -> Result<(), Error> {
        let left = self.session.truncate(depth)?;
        match self.session.fill(depth - left) {
            Err(Error::Step(atta_model::Error::NoFill)) => {
                let missing: Vec<u32> = (left..depth).map(|i| self.token(i)).collect();
                self.session.append(&missing)
            }
            filled => filled,
        }
    }

    fn timed(
        &mut self,
        work: impl FnOnce(&mut Session) -> Result<(), Error>,
    ) -> Result<(Duration, TimeSplit), Error> {
        self.clock().split = TimeSplit::default();
        let start = Instant::now();
        work(&mut self.session)?;
        Ok((start.elapsed(), self.clock().split))
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimeSplit {
    /// The sum of both.
    fn plus(self, other: Self) -> Self {
        Self {
            matmul_s: self.matmul_s + other.matmul_s,
            attention_s: self.attention_s + other.attention_s,
            scan_s: self.scan_s + other.scan_s,
            io_wait_s: self.io_wait_s + other.io_wait_s,
            other_s: self.other_s + other.other_s,
        }
    }
}

/// Tokens per second at the median time.
fn median_rate(n: usize, times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    n as f64 / times[times.len() / 2].as_secs_f64()
}

/// Adds up the time between the moments at which a step turns to something else.
#[derive(Default)]
struct Clock {
    split: TimeSplit,
    since: Option<(Instant, Phase)>,
}

/// The clock as the executor's observer; the other end is read between steps.
struct SharedClock(Arc<Mutex<Clock>>);

impl Observer for SharedClock {
    fn enter(&mut self, phase: Phase) {
        let mut clock = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((start, phase)) = clock.since.replace((now, phase)) {
            let seconds = (now - start).as_secs_f64();
            match phase {
                Phase::Matmul => clock.split.matmul_s += seconds,
                Phase::Attention => clock.split.attention_s += seconds,
                Phase::Scan => clock.split.scan_s += seconds,
                Phase::Weights => clock.split.io_wait_s += seconds,
                Phase::Other => clock.split.other_s += seconds,
                Phase::Idle => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use atta_engine::LoadOptions;

    use super::*;

    #[test]
    fn a_depth_is_filled_in_and_not_computed() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/golden/models/llama-plain.gguf");
        let engine = Engine::open(&path, &LoadOptions::default()).unwrap();
        let options = BenchOptions {
            depths: vec![900],
            ..BenchOptions::default()
        };
        let mut bench = Bench::new(open(&engine, &options).unwrap());
        for depth in [300, 900, 40] {
            bench.fill_to(depth).unwrap();
            assert_eq!(bench.session.tokens(), vec![0; depth]);
            assert_eq!(bench.clock().since, None, "something was computed");
        }
        let case = BenchCase {
            kind: BenchKind::Text,
            n: 2,
            depth: 900,
        };
        bench.once(&case).unwrap();
        assert_eq!(bench.session.tokens().len(), 902);
        assert!(bench.clock().since.is_some());
    }
}
