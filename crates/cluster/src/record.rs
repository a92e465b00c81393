//! The record of a ring: times of its batches, numbers of its protocol, and its last events.
//!
//! Knows neither links nor a page. The one idea: the thread that computes writes, and readers take
//! copies, so that no reader waits for a batch and no batch for a reader.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{AuditCounts, core::Counts, wire::StageTime};

/// Events that are kept.
const MAX_EVENTS: usize = 64;
/// Characters of an event.
const MAX_LINE: usize = 240;
/// Batches whose times are averaged.
const N_SAMPLES: usize = 64;

/// What a ring does, as its coordinator sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingHealth {
    /// No executor is open: its model is not in memory.
    #[default]
    Closed,
    /// It computes, or waits for rows.
    Open,
    /// A batch is late, and the stages are brought to one state again.
    Repairing,
    /// The last batch failed.
    Failed,
}

/// An event of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingEvent {
    /// When it happened.
    pub at: Instant,
    /// One line for people.
    pub text: String,
}

/// Hears each event; called by the thread that computes.
pub type OnRingEvent = Box<dyn Fn(&str) + Send>;

/// Work of a stage, all batches together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTotals {
    /// Batches.
    pub n_batches: u64,
    /// Rows.
    pub n_rows: u64,
    /// Time of computing.
    pub computed: Duration,
    /// Bytes that it sent on.
    pub bytes_out: u64,
}

/// One token's way round the ring, the mean of the last tokens that were alone on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeanLap {
    /// From its submission to its logits.
    pub lap: Duration,
    /// Computed by the coordinator: its layers.
    pub local: Duration,
    /// Computed by the coordinator: the head.
    pub head: Duration,
    /// Computed by each stage.
    pub stages: Vec<Duration>,
    /// Bytes that each stage sent on.
    pub bytes_out: Vec<u64>,
}

/// A record, as it is at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RingFigures {
    /// What the ring does.
    pub health: RingHealth,
    /// When it was opened last.
    pub opened: Option<Instant>,
    /// Epoch of the protocol.
    pub epoch: u32,
    /// Numbers of the protocol since the ring was opened.
    pub counts: Counts,
    /// Batches of all rings of this record.
    pub n_batches: u64,
    /// Their rows.
    pub n_rows: u64,
    /// The lap of a token, if one was alone lately.
    pub lap: Option<MeanLap>,
    /// Tokens of all texts, 1/s, while the ring had work.
    pub users_tok_s: Option<f64>,
    /// What audits have done.
    pub audit: AuditCounts,
    /// What each stage has done, by the name of its node.
    pub stages: BTreeMap<String, StageTotals>,
}

/// The record of the rings that a backend opens, one at a time.
#[derive(Default)]
pub struct RingRecord(Mutex<RecordState>);

#[derive(Default)]
struct RecordState {
    figures: RingFigures,
    /// Names of the stages in order.
    names: Vec<String>,
    /// Results that no batch has collected yet, the oldest first.
    arrivals: VecDeque<Arrival>,
    laps: VecDeque<MeanLap>,
    /// Tokens of the last batches, and when each was collected.
    tokens: VecDeque<TokenSample>,
    events: VecDeque<RingEvent>,
    on_event: Option<OnRingEvent>,
    on_warning: Option<OnRingEvent>,
}

/// A result that has come.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) times: Vec<StageTime>,
}

/// Tokens that a batch has brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenSample {
    /// Rows with logits.
    pub(crate) n: u64,
    /// When, on a clock that stands still while no batch is in flight.
    pub(crate) at: Duration,
}

impl std::fmt::Debug for RingRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RingRecord").field(&self.figures()).finish()
    }
}

impl RingRecord {
    /// A copy of the numbers.
    pub fn figures(&self) -> RingFigures {
        let state = self.state();
        RingFigures {
            lap: mean(&state.laps),
            users_tok_s: rate(&state.tokens),
            ..state.figures.clone()
        }
    }

    /// The last events, the oldest first.
    pub fn events(&self) -> Vec<RingEvent> {
        self.state().events.iter().cloned().collect()
    }

    /// Calls a function with every event from now on.
    pub fn on_event(&self, on: OnRingEvent) {
        self.state().on_event = Some(on);
    }

    /// Calls a function with every event from now on that a user should know of at once.
    pub fn on_warning(&self, on: OnRingEvent) {
        self.state().on_warning = Some(on);
    }

    /// Adds an event that a user should know of at once.
    pub(crate) fn warn(&self, text: &str) {
        let mut state = self.state();
        state.note(text);
        if let Some(on_warning) = &state.on_warning {
            on_warning(text);
        }
    }

    /// Adds an event.
    pub fn note(&self, text: &str) {
        self.state().note(text);
    }

    /// Begins a ring of these stages, or goes on with others: means begin anew.
    pub fn open(&self, names: Vec<String>) {
        let mut state = self.state();
        match names.is_empty() {
            true => state.note("this machine runs all layers"),
            false => state.note(&format!("the ring opens: {}", names.join(", "))),
        }
        state.figures.health = RingHealth::Open;
        state.figures.opened = Some(Instant::now());
        state.figures.epoch = 0;
        state.figures.counts = Counts::default();
        state.names = names;
        state.arrivals.clear();
        state.laps.clear();
        state.tokens.clear();
    }

    /// Ends it.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.note("the ring closes");
        state.figures.health = RingHealth::Closed;
        state.arrivals.clear();
    }

    /// Takes a result: its rows, and the times of all stages.
    pub(crate) fn result(&self, n_rows: usize, times: &[StageTime]) {
        let mut state = self.state();
        state.figures.n_batches += 1;
        state.figures.n_rows += n_rows as u64;
        let RecordState { figures, names, .. } = &mut *state;
        for (name, time) in names.iter().zip(times) {
            let stage = figures.stages.entry(name.clone()).or_default();
            stage.n_batches += 1;
            stage.n_rows += n_rows as u64;
            stage.computed += Duration::from_micros(time.compute_us.into());
            stage.bytes_out += u64::from(time.bytes_out);
        }
        state.arrivals.push_back(Arrival {
            at: Instant::now(),
            times: times.to_vec(),
        });
    }

    /// The oldest result that was not taken.
    pub(crate) fn take_arrival(&self) -> Option<Arrival> {
        self.state().arrivals.pop_front()
    }

    /// Takes the lap of a token that was alone on the ring.
    pub(crate) fn lap(&self, lap: MeanLap) {
        push(&mut self.state().laps, lap);
    }

    /// Takes the tokens of a batch, whose result repairs whatever was wrong.
    pub(crate) fn tokens(&self, sample: TokenSample) {
        let mut state = self.state();
        state.figures.health = RingHealth::Open;
        push(&mut state.tokens, sample);
    }

    /// Takes the numbers of the protocol. `fault`: the reason of the last fence.
    pub(crate) fn protocol(&self, epoch: u32, counts: Counts, fault: impl FnOnce() -> String) {
        let mut state = self.state();
        let was = state.figures.counts;
        state.figures.epoch = epoch;
        state.figures.counts = counts;
        // The first fence of a ring opens it.
        if counts.n_fences > was.n_fences.max(1) {
            let fault = fault();
            let what = match counts.n_rebuilds > was.n_rebuilds {
                true => "every text is computed again",
                false => "rows are sent again",
            };
            state.note(&format!("epoch {epoch}: {fault}; {what}"));
            state.figures.health = RingHealth::Repairing;
        }
    }

    /// Takes the numbers of audits.
    pub(crate) fn audited(&self, counts: AuditCounts) {
        self.state().figures.audit = counts;
    }

    /// Takes the failure of a batch.
    pub(crate) fn fail(&self, why: &str) {
        let mut state = self.state();
        state.note(&format!("failed: {why}"));
        state.figures.health = RingHealth::Failed;
        state.arrivals.clear();
    }

    fn state(&self) -> MutexGuard<'_, RecordState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordState {
    fn note(&mut self, text: &str) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        let text = text.chars().filter(|c| !c.is_control()).take(MAX_LINE);
        let text: String = text.collect();
        if let Some(on) = &self.on_event {
            on(&text);
        }
        let at = Instant::now();
        self.events.push_back(RingEvent { at, text });
    }
}

fn push<T>(samples: &mut VecDeque<T>, sample: T) {
    if samples.len() == N_SAMPLES {
        samples.pop_front();
    }
    samples.push_back(sample);
}

fn mean(laps: &VecDeque<MeanLap>) -> Option<MeanLap> {
    let n = u32::try_from(laps.len()).ok().filter(|n| *n > 0)?;
    let n_stages = laps.iter().map(|lap| lap.stages.len()).min()?;
    let sum = |of: &dyn Fn(&MeanLap) -> Duration| laps.iter().map(of).sum::<Duration>() / n;
    let bytes = |i: usize| laps.iter().map(|lap| lap.bytes_out[i]).sum::<u64>() / u64::from(n);
    Some(MeanLap {
        lap: sum(&|lap| lap.lap),
        local: sum(&|lap| lap.local),
        head: sum(&|lap| lap.head),
        stages: (0..n_stages).map(|i| sum(&|lap| lap.stages[i])).collect(),
        bytes_out: (0..n_stages).map(bytes).collect(),
    })
}

/// Tokens behind the first sample, by the time that they took.
fn rate(samples: &VecDeque<TokenSample>) -> Option<f64> {
    let time = samples.back()?.at.saturating_sub(samples.front()?.at);
    let n: u64 = samples.iter().skip(1).map(|sample| sample.n).sum();
    (!time.is_zero()).then(|| n as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn counts(n_fences: u64, n_rebuilds: u64) -> Counts {
        Counts {
            n_fences,
            n_rebuilds,
            ..Counts::default()
        }
    }

    fn texts(record: &RingRecord) -> Vec<String> {
        let events = record.events().into_iter();
        events.map(|event| event.text).collect()
    }

    #[test]
    fn means_are_those_of_the_last_laps_and_begin_anew_with_a_ring() {
        let record = RingRecord::default();
        let lap = |ms: u32| MeanLap {
            lap: MS * ms,
            local: MS,
            head: MS * 2,
            stages: vec![MS * ms / 2],
            bytes_out: vec![u64::from(ms)],
        };
        record.lap(lap(1000));
        (0..N_SAMPLES / 2).for_each(|_| record.lap(lap(2)));
        (0..N_SAMPLES / 2).for_each(|_| record.lap(lap(4)));
        assert_eq!(record.figures().lap, Some(lap(3)));
        record.open(vec!["pi1".to_owned()]);
        assert_eq!(record.figures().lap, None);
    }

    #[test]
    fn tokens_count_by_the_time_in_which_the_ring_had_work() {
        let record = RingRecord::default();
        record.tokens(TokenSample { n: 7, at: MS });
        assert_eq!(record.figures().users_tok_s, None);
        record.tokens(TokenSample { n: 3, at: MS * 501 });
        record.tokens(TokenSample {
            n: 2,
            at: MS * 1001,
        });
        assert_eq!(record.figures().users_tok_s, Some(5.0));
    }

    #[test]
    fn stages_are_counted_by_the_names_of_their_nodes() {
        let record = RingRecord::default();
        let time = |compute_us, bytes_out| StageTime {
            compute_us,
            queued_us: 9,
            bytes_out,
            digest: 0,
        };
        record.open(vec!["pi1".to_owned(), "pi2".to_owned()]);
        record.result(3, &[time(10, 100), time(20, 200)]);
        record.open(vec!["pi2".to_owned()]);
        record.result(1, &[time(5, 50)]);
        let figures = record.figures();
        let pi2 = StageTotals {
            n_batches: 2,
            n_rows: 4,
            computed: Duration::from_micros(25),
            bytes_out: 250,
        };
        assert_eq!(figures.stages["pi2"], pi2);
        assert_eq!(figures.stages["pi1"].n_rows, 3);
        assert_eq!((figures.n_batches, figures.n_rows), (2, 4));
    }

    #[test]
    fn a_repair_is_an_event_with_its_reason_and_the_first_fence_is_none() {
        let record = RingRecord::default();
        record.open(vec!["pi1".to_owned()]);
        record.protocol(1, counts(1, 0), || unreachable!("it opens the ring"));
        assert_eq!(record.figures().health, RingHealth::Open);
        record.protocol(2, counts(2, 0), || "stage 1 is silent".to_owned());
        assert_eq!(record.figures().health, RingHealth::Repairing);
        record.protocol(2, counts(2, 0), || unreachable!("nothing has changed"));
        record.tokens(TokenSample { n: 1, at: MS });
        assert_eq!(record.figures().health, RingHealth::Open);
        record.protocol(3, counts(3, 1), || "stage 1 is empty".to_owned());
        record.fail("pi1 is gone");
        assert_eq!(record.figures().health, RingHealth::Failed);
        record.close();
        assert_eq!(record.figures().health, RingHealth::Closed);
        assert_eq!(
            texts(&record),
            [
                "the ring opens: pi1",
                "epoch 2: stage 1 is silent; rows are sent again",
                "epoch 3: stage 1 is empty; every text is computed again",
                "failed: pi1 is gone",
                "the ring closes",
            ]
        );
    }

    #[test]
    fn events_are_bounded_in_number_and_length_and_have_one_line() {
        let record = RingRecord::default();
        let (heard, hears) = std::sync::mpsc::channel();
        record.on_event(Box::new(move |text| heard.send(text.to_owned()).unwrap()));
        record.note("the first");
        assert_eq!(hears.recv().unwrap(), "the first");
        (0..MAX_EVENTS).for_each(|_| record.note(&"a\nb".repeat(MAX_LINE)));
        let texts = texts(&record);
        assert_eq!(texts.len(), MAX_EVENTS);
        assert!(texts.iter().all(|text| text.chars().count() == MAX_LINE));
        assert!(texts.iter().all(|text| text.starts_with("abab")));
    }
}
