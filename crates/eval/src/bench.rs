//! The benchmark of one model on this machine: how fast a prompt is read and text is written.
//!
//! Tokens are arbitrary (speed does not depend on what they say). Every figure is a median over
//! repetitions, after one warm-up that is not counted.

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

/// The lengths to measure, and how often.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Tokens of the prompt; 0: not measured.
    pub n_prompt: usize,
    /// Tokens generated; 0: not measured.
    pub n_gen: usize,
    /// Tokens that are in the context before either starts.
    pub depth: usize,
    /// Repetitions, at least 1.
    pub n_reps: usize,
    /// The session to measure in; its context is made long enough.
    pub session: SessionOptions,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            n_prompt: 512,
            n_gen: 128,
            depth: 0,
            n_reps: 3,
            session: SessionOptions::default(),
        }
    }
}

/// The measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchReport {
    /// Prompt tokens per second, median; 0 if not measured.
    pub prefill_tok_s: f64,
    /// Generated tokens per second, median; 0 if not measured.
    pub decode_tok_s: f64,
    /// Where the time of reading the prompt went, sum of the repetitions.
    pub prefill_split: TimeSplit,
    /// Where the time of generating went, sum of the repetitions.
    pub decode_split: TimeSplit,
    /// What one token takes of weights at least.
    pub cost: MatmulCost,
    /// Bytes of keys and values that a token of the text reads, on the mean.
    pub state_bytes: f64,
    /// Bytes that this machine reads from memory per second, with as many threads.
    pub read_bytes_per_s: f64,
    /// Products of bytes that it adds up per second, with the same threads and instruction set.
    pub int8_mac_per_s: f64,
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

/// Measures prefill and decode.
///
/// # Errors
/// A session that cannot be made, or a step that failed.
pub fn bench(engine: &Engine, options: &BenchOptions) -> Result<BenchReport, Error> {
    let needed = options
        .depth
        .saturating_add(options.n_prompt.max(options.n_gen).max(1));
    let n_ctx = Some(options.session.n_ctx.unwrap_or(0).max(needed));
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
    // The default batch may need more memory than there is.
    let session = match session(n_batch) {
        Err(error) if error.is_about_memory() && options.session.n_batch.is_none() => {
            session(None)?
        }
        made => made?,
    };
    let mut bench = Bench::new(session, options);
    bench.round()?;
    bench.forget();
    for _ in 0..options.n_reps.max(1) {
        bench.round()?;
    }
    Ok(BenchReport {
        prefill_tok_s: median_rate(options.n_prompt, &mut bench.prefill.times),
        decode_tok_s: median_rate(options.n_gen, &mut bench.decode.times),
        prefill_split: bench.prefill.split,
        decode_split: bench.decode.split,
        cost: engine.model().matmul_cost(),
        state_bytes: state_bytes(
            engine.spec(),
            options.session.kv,
            options.depth,
            options.n_gen,
        ),
        read_bytes_per_s: read_bandwidth(engine)?,
        int8_mac_per_s: engine.kernels().int8_peak(engine.pool()),
    })
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
    /// Weights, keys and values read while generating, as a share of what the machine can read.
    pub fn decode_share(&self) -> f64 {
        self.decode_tok_s * (self.cost.bytes as f64 + self.state_bytes) / self.read_bytes_per_s
    }

    /// Products with weights while reading the prompt, as a share of what the machine can do. The
    /// head, which only the last token of a prompt needs, counts for every token, as is usual.
    pub fn prefill_share(&self) -> f64 {
        self.prefill_tok_s * self.cost.macs as f64 / self.int8_mac_per_s
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
struct Bench<'a> {
    session: Session,
    options: &'a BenchOptions,
    clock: Arc<Mutex<Clock>>,
    prefill: Series,
    decode: Series,
}

/// What the repetitions of one kind gave.
#[derive(Default)]
struct Series {
    times: Vec<Duration>,
    split: TimeSplit,
}

impl<'a> Bench<'a> {
    fn new(mut session: Session, options: &'a BenchOptions) -> Self {
        let clock = Arc::new(Mutex::new(Clock::default()));
        session.observe(Box::new(SharedClock(clock.clone())));
        Self {
            session,
            options,
            clock,
            prefill: Series::default(),
            decode: Series::default(),
        }
    }

    fn round(&mut self) -> Result<(), Error> {
        let BenchOptions {
            n_prompt, n_gen, ..
        } = *self.options;
        let prompt: Vec<u32> = (0..n_prompt).map(|i| self.token(i)).collect();
        self.fill_to_depth()?;
        let (time, split) = self.timed(|session| session.append(&prompt))?;
        self.prefill.add(time, split);

        let gen_ids: Vec<u32> = (0..n_gen).map(|i| self.token(i)).collect();
        self.fill_to_depth()?;
        let (time, split) =
            self.timed(|session| gen_ids.iter().try_for_each(|&id| session.append(&[id])))?;
        self.decode.add(time, split);
        Ok(())
    }

    /// An arbitrary token, spread over the vocabulary.
    fn token(&self, i: usize) -> u32 {
        ((i + 1) * 7919 % self.session.engine().spec().n_vocab) as u32
    }

    /// Brings the context to the depth that is asked for, keeping what of it is there.
    fn fill_to_depth(&mut self) -> Result<(), Error> {
        let depth = self.options.depth;
        self.session.truncate(depth)?;
        let missing: Vec<u32> = (self.session.tokens().len()..depth)
            .map(|i| self.token(i))
            .collect();
        self.session.append(&missing)
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

    /// Forgets the measurements of the warm-up.
    fn forget(&mut self) {
        (self.prefill, self.decode) = (Series::default(), Series::default());
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Series {
    fn add(&mut self, time: Duration, split: TimeSplit) {
        self.times.push(time);
        self.split.matmul_s += split.matmul_s;
        self.split.attention_s += split.attention_s;
        self.split.scan_s += split.scan_s;
        self.split.io_wait_s += split.io_wait_s;
        self.split.other_s += split.other_s;
    }
}

/// Tokens per second at the median time.
fn median_rate(n: usize, times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    match times.get(times.len() / 2) {
        Some(time) if n > 0 => n as f64 / time.as_secs_f64(),
        _ => 0.0,
    }
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
