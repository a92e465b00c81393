//! A ring whose batches are recorded: an executor around an executor, which changes nothing.
//!
//! ```text
//! submit | local layers |--- stages and links ---| arrival | head | collected
//! ```

use std::{
    collections::VecDeque,
    io::Write,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use atta_model::{
    Batch, Error, Executor, ExecutorInfo, Observer, Output, SeqId, SeqTable, Ticket, Want,
};

use crate::{
    Ring,
    record::{Arrival, MeanLap, RingRecord, TokenSample},
};

/// A ring, and its record.
pub(super) struct Recorded {
    ring: Ring,
    record: Arc<RingRecord>,
    flights: VecDeque<FlightTimes>,
    /// Time with batches in flight, up to when the last of them was collected.
    busy: Duration,
    busy_since: Option<Instant>,
}

/// A batch in flight.
struct FlightTimes {
    submitted: Instant,
    /// Time of the local layers.
    local: Duration,
    /// Its first row.
    first: Option<(SeqId, usize)>,
    n_rows: usize,
    n_wanted: usize,
    /// Whether no other batch was in flight at the same time.
    is_alone: bool,
}

impl Recorded {
    pub(super) fn new(mut ring: Ring, record: Arc<RingRecord>) -> Self {
        ring.record_in(Arc::clone(&record));
        Self {
            ring,
            record,
            flights: VecDeque::new(),
            busy: Duration::ZERO,
            busy_since: None,
        }
    }

    fn submitted(&mut self, batch: &Batch, at: Instant) {
        self.busy_since.get_or_insert(at);
        let is_alone = self.flights.is_empty();
        self.flights.iter_mut().for_each(|f| f.is_alone = false);
        self.flights.push_back(FlightTimes {
            submitted: at,
            local: at.elapsed(),
            first: batch.rows.first().map(|row| (row.seq, row.pos)),
            n_rows: batch.rows.len(),
            n_wanted: batch.rows.iter().filter(|r| r.want == Want::Logits).count(),
            is_alone,
        });
    }

    fn collected(&mut self, begin: Instant) {
        let end = Instant::now();
        let Some(flight) = self.flights.pop_front() else {
            return;
        };
        let since = self.busy_since.unwrap_or(end);
        let busy = self.busy + (end - since);
        if self.flights.is_empty() {
            self.busy = busy;
            self.busy_since = None;
        }
        if flight.n_rows == 0 {
            return;
        }
        self.record.tokens(TokenSample {
            n: flight.n_wanted as u64,
            at: busy,
        });
        let Some(Arrival { at, times }) = self.record.take_arrival() else {
            return;
        };
        if flight.is_alone && flight.n_rows == 1 {
            let micros = times.iter().map(|time| time.compute_us.into());
            self.record.lap(MeanLap {
                lap: end - flight.submitted,
                local: flight.local,
                head: end - at.max(begin),
                stages: micros.map(Duration::from_micros).collect(),
                bytes_out: times.iter().map(|time| time.bytes_out.into()).collect(),
            });
        }
    }

    /// A failed batch takes all others with it.
    fn failed(&mut self, error: &Error) {
        self.flights.clear();
        if let Some(since) = self.busy_since.take() {
            self.busy += since.elapsed();
        }
        self.record.fail(&error.to_string());
    }
}

impl Executor for Recorded {
    fn info(&self) -> &ExecutorInfo {
        self.ring.info()
    }

    fn seqs(&self) -> &SeqTable {
        self.ring.seqs()
    }

    fn depth(&self) -> usize {
        self.ring.depth()
    }

    fn n_chunk(&self) -> usize {
        self.ring.n_chunk()
    }

    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        let begin = Instant::now();
        let ticket = self.ring.submit(batch).inspect_err(|error| {
            if let Error::Lost(why) = error {
                self.record.fail(why);
            }
        })?;
        self.submitted(batch, begin);
        Ok(ticket)
    }

    fn collect(&mut self, ticket: Ticket, out: &mut Output) -> Result<(), Error> {
        let begin = Instant::now();
        let collected = self.ring.collect(ticket, out);
        match &collected {
            Ok(()) => self.collected(begin),
            Err(Error::Ticket(_)) => {}
            Err(error) => self.failed(error),
        }
        collected
    }

    fn refresh(&mut self) -> Result<(), Error> {
        self.ring.refresh()
    }

    fn observe(&mut self, observer: Box<dyn Observer>) {
        self.ring.observe(observer);
    }

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        self.ring.new_seq()
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        self.ring.fork(seq)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        let left = self.ring.truncate(seq, n)?;
        for flight in &mut self.flights {
            let is_taken_back = |first: (SeqId, usize)| first.0 == seq && first.1 >= left;
            if flight.first.is_some_and(is_taken_back) {
                flight.n_rows = 0;
            }
        }
        Ok(left)
    }

    fn shift(&mut self, seq: SeqId, evicted: Range<usize>) -> Result<(), Error> {
        self.ring.shift(seq, evicted)
    }

    fn fill(&mut self, seq: SeqId, n: usize) -> Result<(), Error> {
        self.ring.fill(seq, n)
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.ring.drop_seq(seq)
    }

    fn export(&self, seq: SeqId, at: Range<usize>, out: &mut dyn Write) -> Result<(), Error> {
        self.ring.export(seq, at, out)
    }

    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error> {
        self.ring.append_state(seq, state, n)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.record.close();
    }
}
