//! Drafts of a text in a session: tokens that are evaluated behind the pending ones, and further
//! ones behind these where an executor computes several batches at once.
//!
//! Knows sessions and the speculator; no sampler and no events. Without speculation there are no
//! drafts, and the pending tokens are evaluated alone.

use std::time::Instant;

use super::{GenerateOptions, Generation, Verdict};
use crate::{
    Error, Session, SpeculationOff, SpeculationStats,
    speculation::{BatchRows, DraftRoom, Speculator, StepTime},
};

/// Why drafts of up to `n_max` tokens cannot be evaluated. Reserves their memory.
fn obstacle(session: &mut Session, n_max: usize) -> Option<SpeculationOff> {
    if session.executor().seqs().max_draft() == 0 {
        return Some(SpeculationOff::Recurrent);
    }
    let has_room = session.n_batch() > 1 && session.reserve_drafts(n_max) > 0;
    (!has_room).then_some(SpeculationOff::NoRoom)
}

/// The drafts of a text.
pub(super) struct SessionDrafts {
    speculator: Option<Speculator>,
    /// All tokens of the session, the pending ones, and the draft.
    text: Vec<u32>,
    /// Tokens in front of the answer.
    n_prompt: usize,
    /// The batch of the last step.
    rows: BatchRows,
    /// When its evaluation began, or waiting for one that had begun before.
    start: Instant,
    /// Seconds since then.
    seconds: f64,
}

impl SessionDrafts {
    /// The drafts of a text behind `prompt`.
    pub(super) fn new(
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Self, Error> {
        let engine = session.engine();
        let speculation = options.speculation.as_ref();
        let mut speculator = speculation
            .map(|speculation| Speculator::new(engine, speculation))
            .transpose()?;
        session.hide_states();
        if let Some(speculator) = &mut speculator {
            let mut why = obstacle(session, speculator.n_max());
            if let (None, Some(sink)) = (why, speculator.hidden_sink()) {
                why = session.show_states(sink).err();
            }
            why.into_iter().for_each(|why| speculator.turn_off(why));
        }
        Ok(Self {
            speculator,
            text: Vec::new(),
            n_prompt: session.tokens().len() + prompt.len(),
            rows: BatchRows::default(),
            start: Instant::now(),
            seconds: 0.0,
        })
    }

    pub(super) fn stats(&self) -> Option<SpeculationStats> {
        self.speculator.as_ref().map(Speculator::stats)
    }

    /// Evaluates the pending tokens, and a draft behind them if it pays. Returns how many tokens of
    /// a draft are at the end of the session then. A step that fails with a
    /// draft is made without: its rows may take KV blocks, or experts, that the text does not need.
    pub(super) fn append(
        &mut self,
        session: &mut Session,
        generation: &Generation,
    ) -> Result<usize, Error> {
        let pending = generation.pending();
        let window = self.begin_window(session, generation)?;
        self.rows = BatchRows {
            n_plain: pending.len(),
            n_draft: window.unwrap_or(0),
        };
        let n_left = match window {
            None => session.append_generated(pending).map(|()| 0)?,
            Some(_) => {
                self.run_ahead(session, generation);
                let collected = session.collect_window(pending.len());
                collected.or_else(|_| session.append_generated(pending).map(|()| 0))?
            }
        };
        self.seconds = self.start.elapsed().as_secs_f64();
        Ok(n_left)
    }

    /// Has a window computed that begins with the pending tokens, and returns how many tokens of a
    /// draft follow these in it; `None`: there is no draft.
    fn begin_window(
        &mut self,
        session: &mut Session,
        generation: &Generation,
    ) -> Result<Option<usize>, Error> {
        let pending = generation.pending();
        let n_max = generation.max_draft();
        let ahead = session.next_window(pending);
        let ahead = ahead.map(|n| n - pending.len());
        if let Some(n_draft) = ahead.filter(|&n| n <= n_max && !pending.is_empty()) {
            self.start = Instant::now();
            self.speculator.iter_mut().for_each(Speculator::next_ahead);
            return Ok(Some(n_draft));
        }
        session.take_windows_back()?;
        let n_draft = self.propose(session, generation);
        self.start = Instant::now();
        if n_draft == 0 {
            return Ok(None);
        }
        let ids = &self.text[session.tokens().len()..];
        let submitted = session.submit_window(ids, pending.len());
        Ok(submitted.is_ok().then_some(n_draft))
    }

    /// Has windows computed behind those in flight, as if all drafts were right, as many as the
    /// executor computes at once.
    fn run_ahead(&mut self, session: &mut Session, generation: &Generation) {
        let Some(speculator) = &mut self.speculator else {
            return;
        };
        while session.n_windows() < session.n_max_windows() {
            let n_ahead = session.n_window_tokens() - generation.pending().len();
            let n_left = generation.max_draft().saturating_sub(n_ahead);
            let n_max = session.draft_room(0, n_left);
            self.text.clear();
            self.text.extend_from_slice(session.tokens());
            self.text.extend(session.window_tokens());
            let draft = speculator.propose_ahead(&self.text, n_max, &session.costs);
            if draft.is_empty() || session.submit_window(&draft, 0).is_err() {
                return;
            }
        }
    }

    /// Appends the pending tokens and a draft to the text, and returns the length of the draft.
    fn propose(&mut self, session: &mut Session, generation: &Generation) -> usize {
        let Some(speculator) = &mut self.speculator else {
            return 0;
        };
        let pending = generation.pending();
        // Before the first token, the logits that it is selected from are there already.
        if pending.is_empty() || speculator.stats().off.is_some() {
            return 0;
        }
        let n_wanted = generation.max_draft().min(speculator.n_max());
        let n_max = session.draft_room(pending.len(), n_wanted);
        self.text.clear();
        self.text.extend_from_slice(session.tokens());
        self.text.extend_from_slice(pending);
        let room = DraftRoom {
            rows: BatchRows {
                n_plain: pending.len(),
                n_draft: 0,
            },
            n_texts: 1,
            n_max,
        };
        let fit = |draft: &mut Vec<u32>, max: usize| generation.fit_draft(draft, max);
        let draft = speculator.propose(&self.text, room, &session.costs, &fit);
        self.text.extend_from_slice(draft);
        draft.len()
    }

    /// Learns from the last step.
    pub(super) fn judged(&mut self, session: &mut Session, verdict: Verdict) {
        let Some(speculator) = &mut self.speculator else {
            return;
        };
        speculator.judged(verdict.n_accepted, self.rows.n_draft);
        if self.rows.n_plain > 0 {
            session.costs.record(&StepTime {
                rows: self.rows,
                n_plain_steps: verdict.n_plain_steps as f64,
                seconds: self.seconds,
                draft_seconds: speculator.draft_seconds(),
            });
        }
    }

    /// Takes the text after its end; `pending` are its last tokens.
    pub(super) fn end(&mut self, session: &Session, pending: &[u32]) {
        if let Some(speculator) = &mut self.speculator {
            self.text.clear();
            self.text.extend_from_slice(session.tokens());
            self.text.extend_from_slice(pending);
            speculator.end(&self.text, self.n_prompt);
        }
    }
}
