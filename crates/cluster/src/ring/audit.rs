//! Audits: texts that are drawn are computed a second time here, and every row of them that comes
//! back must be equal to the last bit.
//!
//! Knows no node, file or budget. The one idea: a second computation follows the history of its
//! sequences and nothing else, so that operations, repairs and other plans do not concern it. Each
//! stage tells a digest of the rows as they came. The first stage whose successor got other rows
//! than it should is to blame; the word of a machine about itself counts for nothing.

use std::collections::BTreeMap;

use atta_model::{Batch, Error, Executor, Row, SeqId, Want};

use super::{Item, ItemInput, LocalLayers, Ring, StageStates, chunks, form::FormCause, runs_of};
use crate::{
    History,
    wire::{Frame, Op, Run, digest_of},
};

/// Which texts are computed twice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AuditOptions {
    /// Of a text, to be drawn when it begins: 0 to 1.
    pub probability: f64,
    /// The same seed draws the same texts of the same requests.
    pub seed: u64,
    /// Memory that is kept for weights of the layers of others, bytes; more is used if it is there.
    pub weights_bytes: u64,
}

impl AuditOptions {
    /// Whether the text of this number is drawn.
    fn draws(&self, number: u64) -> bool {
        let bytes = [self.seed, number].map(u64::to_le_bytes).concat();
        let drawn = digest_of(std::iter::once(&bytes[..]));
        // Both ends are exact: 0 draws none, 1 all.
        (drawn as f64 / 2_f64.powi(64)) < self.probability || self.probability >= 1.0
    }

    /// Sequences that an auditor has room for, beside a ring of so many. A text that finds no room
    /// is computed from its beginning again when its next rows come.
    pub(crate) fn n_seqs(&self, n_seqs: usize) -> usize {
        let n_drawn = (self.probability * n_seqs as f64).ceil() as usize;
        (n_drawn + 1).min(n_seqs)
    }
}

/// All layers of a ring once more, on this machine.
pub struct AuditLayers {
    /// In order; the first embeds tokens.
    pub executors: Vec<Box<dyn Executor>>,
    /// Of each stage, the number of executors in front of its layers.
    pub starts: Vec<usize>,
    /// Sequences that they have room for.
    pub n_seqs: usize,
}

impl std::fmt::Debug for AuditLayers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLayers")
            .field("starts", &self.starts)
            .field("n_seqs", &self.n_seqs)
            .finish_non_exhaustive()
    }
}

/// What audits have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditCounts {
    /// Texts that have begun.
    pub n_texts: u64,
    /// Texts that were drawn.
    pub n_drawn: u64,
    /// Rows that were compared.
    pub n_rows: u64,
    /// Machines that were left out.
    pub n_faults: u64,
}

/// The auditor of a ring.
#[derive(Debug)]
pub(super) struct Audit {
    options: AuditOptions,
    counts: AuditCounts,
    /// Whether a sequence with rows was drawn.
    drawn: BTreeMap<SeqId, bool>,
    second: Option<SecondRun>,
}

/// The second computation of some sequences.
struct SecondRun {
    layers: LocalLayers,
    starts: Vec<usize>,
    n_seqs: usize,
    n_batch: usize,
    /// What each sequence consists of, the one that was used last at the end.
    texts: Vec<SecondText>,
}

struct SecondText {
    seq: SeqId,
    items: Vec<Item>,
}

/// What should have come.
struct Expected {
    /// Of the rows that each stage got.
    inputs: Vec<u64>,
    /// Behind the last stage, `[n_rows, d_row]`.
    rows: Vec<u8>,
}

/// Who computed other rows.
enum Culprit {
    /// This machine did.
    Own,
    Stage(u16),
}

impl std::fmt::Debug for SecondRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecondRun")
            .field("starts", &self.starts)
            .field("n_texts", &self.texts.len())
            .finish_non_exhaustive()
    }
}

impl Audit {
    pub(super) fn new(options: AuditOptions) -> Self {
        Self {
            options,
            counts: AuditCounts::default(),
            drawn: BTreeMap::new(),
            second: None,
        }
    }

    /// Computes on these layers from now on; `None`: there is nothing to compare.
    pub(super) fn take_layers(
        &mut self,
        layers: Option<AuditLayers>,
        n_batch: usize,
        d_row: usize,
    ) {
        self.second = layers.map(|layers| SecondRun {
            layers: LocalLayers::new(layers.executors, d_row),
            starts: layers.starts,
            n_seqs: layers.n_seqs,
            n_batch,
            texts: Vec::new(),
        });
    }

    /// Draws the sequences that begin with these rows.
    fn draw(&mut self, rows: &[Row], history: &History<Item>) {
        for row in rows {
            if self.drawn.contains_key(&row.seq) {
                continue;
            }
            let is_drawn = self.options.draws(self.counts.n_texts);
            self.counts.n_texts += 1;
            self.counts.n_drawn += u64::from(is_drawn);
            // Other tokens than those that it has led to the state of a sequence that was shifted.
            let is_drawn = is_drawn && history.is_replayable(row.seq.index);
            self.drawn.insert(row.seq, is_drawn);
        }
    }

    fn is_drawn(&self, seq: SeqId) -> bool {
        self.second.is_some() && self.drawn.get(&seq).copied().unwrap_or(false)
    }

    /// The text of a sequence has ended.
    pub(super) fn forget(&mut self, seq: SeqId) {
        self.drawn.remove(&seq);
        if let Some(second) = &mut self.second {
            second.remove(seq);
        }
    }

    /// A sequence is shifted: its history no longer determines its state.
    pub(super) fn release(&mut self, seq: SeqId) {
        self.forget(seq);
        self.drawn.insert(seq, false);
    }
}

impl SecondRun {
    /// What the rows of these runs should be. After an error everything is computed again, once.
    fn expect(
        &mut self,
        history: &History<Item>,
        runs: &[(SeqId, Run)],
    ) -> Result<Expected, Error> {
        let first = self.try_expect(history, runs);
        first.or_else(|_| {
            self.layers.reset();
            self.texts.clear();
            self.try_expect(history, runs)
        })
    }

    fn try_expect(
        &mut self,
        history: &History<Item>,
        runs: &[(SeqId, Run)],
    ) -> Result<Expected, Error> {
        let mut batch = Batch::default();
        for (seq, run) in runs {
            let items = history.items(seq.index);
            let rows = run.pos as usize..run.pos as usize + usize::from(run.n);
            let items = items.get(..rows.end);
            let items = items.ok_or(Error::State("rows that the history lacks"))?;
            // Later runs of the same batch continue it.
            if !batch.rows.iter().any(|row| row.seq == *seq) {
                self.follow(*seq, &items[..rows.start])?;
            }
            push_items(&mut batch, *seq, rows.start, &items[rows]);
        }
        let runs_of_batch: Vec<Run> = runs.iter().map(|(_, run)| *run).collect();
        let starts = self.starts.clone();
        let mut inputs = vec![0; starts.len()];
        let mut note = |n_done: usize, data: &[u8]| {
            let at = starts
                .iter()
                .enumerate()
                .filter(|(_, start)| **start == n_done);
            let digest = digest_of(std::iter::once(data));
            at.for_each(|(stage, _)| inputs[stage] = digest);
        };
        let rows = self
            .layers
            .compute_each(&batch, &runs_of_batch, &mut note)?;
        for (seq, run) in runs {
            let items = &history.items(seq.index)[run.pos as usize..];
            let text = self.texts.iter_mut().find(|text| text.seq == *seq);
            let text = text.ok_or(Error::State("a batch with more texts than are audited"))?;
            text.items.extend_from_slice(&items[..usize::from(run.n)]);
        }
        Ok(Expected { inputs, rows })
    }

    /// Brings a sequence to these items.
    fn follow(&mut self, seq: SeqId, items: &[Item]) -> Result<(), Error> {
        let mut text = self.take(seq)?;
        let pairs = text.items.iter().zip(items);
        let same = pairs.take_while(|(had, wanted)| had == wanted).count();
        let index = seq.index;
        let len = u32::try_from(same).unwrap_or(u32::MAX);
        if same < text.items.len() {
            self.layers.apply(&[Op::Truncate { seq: index, len }])?;
            text.items.truncate(same);
        }
        for chunk in chunks(same..items.len(), self.n_batch) {
            let mut batch = Batch::default();
            push_items(&mut batch, seq, chunk.start, &items[chunk.clone()]);
            self.layers
                .compute(&batch, &runs_of(&batch.rows, |_| false))?;
            text.items.extend_from_slice(&items[chunk]);
        }
        self.texts.push(text);
        Ok(())
    }

    /// Takes a sequence out of the list, an empty one if it is not there.
    fn take(&mut self, seq: SeqId) -> Result<SecondText, Error> {
        if let Some(i) = self.texts.iter().position(|text| text.seq == seq) {
            return Ok(self.texts.remove(i));
        }
        if self.texts.len() >= self.n_seqs {
            self.remove(self.texts[0].seq);
        }
        let items = Vec::new();
        self.layers.apply(&[Op::New { seq: seq.index }])?;
        Ok(SecondText { seq, items })
    }

    fn remove(&mut self, seq: SeqId) {
        if let Some(i) = self.texts.iter().position(|text| text.seq == seq) {
            self.texts.remove(i);
            // It is in the list because the layers have it.
            let _ = self.layers.apply(&[Op::Drop { seq: seq.index }]);
        }
    }
}

impl Ring {
    /// Computes some texts a second time, on these layers, and compares; without layers there is
    /// nothing to compare.
    pub fn audit(&mut self, options: AuditOptions, layers: Option<AuditLayers>) {
        self.audit = Some(Audit::new(options));
        self.take_audit_layers(layers);
    }

    /// What audits have done.
    pub fn audit_counts(&self) -> AuditCounts {
        self.audit
            .as_ref()
            .map_or_else(AuditCounts::default, |audit| audit.counts)
    }

    pub(super) fn take_audit_layers(&mut self, layers: Option<AuditLayers>) {
        if let Some(audit) = &mut self.audit {
            audit.take_layers(layers, self.info.n_batch, self.d_row);
        }
    }

    /// Draws texts that begin.
    pub(super) fn draw_audits(&mut self, rows: &[Row]) {
        if let Some(audit) = &mut self.audit {
            audit.draw(rows, &self.history);
        }
    }

    /// The text of a sequence has ended.
    pub(super) fn end_audit(&mut self, seq: SeqId) {
        if let Some(audit) = &mut self.audit {
            audit.forget(seq);
        }
    }

    pub(super) fn is_audited(&self, seq: SeqId) -> bool {
        let audit = self.audit.as_ref();
        self.n_stages > 0 && audit.is_some_and(|audit| audit.is_drawn(seq))
    }

    /// Waits until the oldest batch has a result that an audit has nothing to say against.
    pub(super) fn await_audited(&mut self) -> Result<Frame, Error> {
        loop {
            let result = self.await_result()?;
            match self.compare(&result)? {
                None => return Ok(result),
                Some(culprit) => self.leave_out(&culprit)?,
            }
        }
    }

    /// Computes the audited rows of the oldest batch again; who is to blame for a difference.
    fn compare(&mut self, result: &Frame) -> Result<Option<Culprit>, Error> {
        let runs = self.audited_runs();
        let sent = self.flights[0].sent_digest;
        let Some(audit) = self.audit.as_mut().filter(|_| !runs.is_empty()) else {
            return Ok(None);
        };
        let Some(second) = &mut audit.second else {
            return Ok(None);
        };
        let expected = second.expect(&self.history, &runs).map_err(|error| {
            Error::Lost(format!(
                "this machine cannot compute an audited text: {error}"
            ))
        })?;
        let is_equal = expected.is_in(result, &runs, 4 * self.d_row);
        audit.counts.n_rows += (expected.rows.len() / (4 * self.d_row)) as u64;
        audit.counts.n_faults += u64::from(!is_equal);
        if let Some(record) = &self.record {
            record.audited(audit.counts);
        }
        Ok((!is_equal).then(|| culprit(&expected, sent, result)))
    }

    /// The audited runs of the oldest batch.
    fn audited_runs(&self) -> Vec<(SeqId, Run)> {
        let rows = &self.flights[0].batch.rows;
        let runs = runs_of(rows, |seq| self.is_audited(seq));
        let id = |run: &Run| rows.iter().find(|row| row.seq.index == run.seq);
        let runs = runs.into_iter().filter(|run| run.is_audited);
        runs.filter_map(|run| Some((id(&run)?.seq, run))).collect()
    }

    /// Goes on without the machine that computed other rows; batches in flight are computed again.
    fn leave_out(&mut self, culprit: &Culprit) -> Result<(), Error> {
        let Culprit::Stage(stage) = *culprit else {
            return Err(self.fault(
                "audit: this machine computed its own layers twice with different results",
            ));
        };
        let name = self.names.get(usize::from(stage) - 1).cloned();
        let name = name.unwrap_or_else(|| format!("stage {stage}"));
        let why = format!("audit: {name} computed other rows than this machine");
        if !self.forming.has_former() {
            return Err(self.fault(&why));
        }
        if let Some(record) = &self.record {
            record.note(&format!("{why}; it is left out"));
        }
        let with_rows = self.flights.iter_mut();
        let with_rows = with_rows.filter(|flight| !flight.batch.rows.is_empty());
        with_rows.for_each(|flight| flight.result = None);
        // It has states of that machine, and of those that got its rows.
        self.drop_journal();
        self.form(&FormCause::Fault { stage, why }).map(drop)
    }

    /// An error that leaves no state of stages in use.
    fn fault(&mut self, why: &str) -> Error {
        if self.n_stages > 0 {
            self.abandon();
        } else {
            self.states = StageStates::Unknown;
        }
        Error::Lost(why.to_owned())
    }
}

/// How the rows that came compare with those that should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    /// Where both have no finite value: the text ends in any case, and bits of NaN mean nothing.
    NotFinite,
    Unequal,
}

fn compare_rows<'a>(
    expected: impl Iterator<Item = &'a [u8]>,
    came: impl Iterator<Item = &'a [u8]>,
) -> Comparison {
    let is_finite = |row: &[u8]| {
        let numbers = row.as_chunks().0.iter();
        numbers.copied().map(f32::from_le_bytes).all(f32::is_finite)
    };
    let mut found = Comparison::Equal;
    let mut came = came.fuse();
    let mut expected = expected.fuse();
    loop {
        match (expected.next(), came.next()) {
            (None, None) => return found,
            (Some(a), Some(b)) if !is_finite(a) && !is_finite(b) => found = Comparison::NotFinite,
            (Some(a), Some(b)) if a == b => {}
            _ => return Comparison::Unequal,
        }
    }
}

impl Expected {
    /// Whether a result has these rows, for rows of so many bytes.
    fn is_in(&self, result: &Frame, runs: &[(SeqId, Run)], row_bytes: usize) -> bool {
        let is_audited = |run: &Run| runs.iter().any(|(_, other)| other.seq == run.seq);
        let came = result.rows_of(is_audited);
        match compare_rows(self.rows.chunks_exact(row_bytes), came) {
            Comparison::Equal => self.inputs_are(result),
            Comparison::NotFinite => true,
            Comparison::Unequal => false,
        }
    }

    /// Whether all stages got the rows that they should have; a wrong bit may leave no trace in
    /// rows behind it.
    fn inputs_are(&self, result: &Frame) -> bool {
        let digests = result.times.iter().map(|time| time.digest);
        digests.eq(self.inputs.iter().copied())
    }
}

/// The machine in front of the first place where other rows came than should have.
fn culprit(expected: &Expected, sent: u64, result: &Frame) -> Culprit {
    if expected
        .inputs
        .first()
        .is_some_and(|digest| *digest != sent)
    {
        return Culprit::Own;
    }
    let pairs = expected.inputs.iter().zip(&result.times).zip(0_u16..);
    let mut wrong = pairs.filter(|((digest, time), _)| **digest != time.digest);
    let n_stages = u16::try_from(expected.inputs.len()).unwrap_or(u16::MAX);
    let stage = wrong
        .next()
        .map_or(n_stages, |(_, receiver)| receiver.max(1));
    Culprit::Stage(stage)
}

/// Adds rows of a history that want nothing.
pub(crate) fn push_items(batch: &mut Batch, seq: SeqId, first: usize, items: &[Item]) {
    for (pos, item) in (first..).zip(items) {
        match &item.input {
            ItemInput::Token(token) => batch.push_token(seq, pos, *token, Want::Nothing),
            ItemInput::Embedding(x) => batch.push_embedding(seq, pos, x, Want::Nothing),
        }
        batch.set_segment(item.segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(probability: f64, seed: u64) -> Vec<u64> {
        let options = AuditOptions {
            probability,
            seed,
            weights_bytes: 0,
        };
        (0..1000).filter(|n| options.draws(*n)).collect()
    }

    #[test]
    fn as_many_texts_are_drawn_as_the_probability_says_and_a_seed_draws_the_same() {
        assert_eq!(drawn(0.0, 1).len(), 0);
        assert_eq!(drawn(1.0, 1).len(), 1000);
        let some = drawn(0.1, 1);
        assert!((60..140).contains(&some.len()), "{}", some.len());
        assert_eq!(drawn(0.1, 1), some);
        assert_ne!(drawn(0.1, 2), some);
    }

    #[test]
    fn an_auditor_has_room_for_the_texts_that_it_expects() {
        let n = |probability, n_seqs| {
            let options = AuditOptions {
                probability,
                seed: 0,
                weights_bytes: 0,
            };
            options.n_seqs(n_seqs)
        };
        assert_eq!([n(1.0, 8), n(0.01, 8), n(0.25, 8), n(1.0, 1)], [8, 2, 3, 1]);
    }

    #[test]
    fn rows_without_finite_numbers_are_equal_and_others_to_the_last_bit() {
        let row = |x: f32| x.to_le_bytes();
        let compare = |a: &[[u8; 4]], b: &[[u8; 4]]| {
            compare_rows(a.iter().map(|r| &r[..]), b.iter().map(|r| &r[..]))
        };
        let next = f32::from_bits(1_f32.to_bits() + 1);
        let [nan, infinite] = [f32::NAN, f32::INFINITY].map(row);
        assert_eq!(compare(&[row(1.0)], &[row(1.0)]), Comparison::Equal);
        assert_eq!(
            compare(&[row(1.0), nan], &[row(1.0), infinite]),
            Comparison::NotFinite
        );
        for (a, b) in [
            (&[row(1.0)][..], &[row(next)][..]),
            (&[row(0.0)], &[row(-0.0)]),
            (&[row(1.0)], &[]),
            (&[], &[row(1.0)]),
            (&[nan, row(1.0)], &[nan, row(next)]),
            (&[row(1.0)], &[nan]),
        ] {
            assert_eq!(compare(a, b), Comparison::Unequal);
        }
    }
}
