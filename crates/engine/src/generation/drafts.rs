//! Drafts of a text in a session: tokens that are evaluated behind the pending ones.
//!
//! Knows sessions and the speculator; no sampler and no events. Without speculation there are no
//! drafts, and the pending tokens are evaluated alone.

use std::time::Instant;

use super::{GenerateOptions, Verdict};
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
    /// Seconds of its evaluation.
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
            seconds: 0.0,
        })
    }

    pub(super) fn stats(&self) -> Option<SpeculationStats> {
        self.speculator.as_ref().map(Speculator::stats)
    }

    /// Evaluates the pending tokens, and a draft of up to `n_max` behind them if it pays. Returns
    /// how many tokens of a draft are at the end of the session then. A step that fails with a
    /// draft is made without: its rows may take KV blocks, or experts, that the text does not need.
    pub(super) fn append(
        &mut self,
        session: &mut Session,
        pending: &[u32],
        n_max: usize,
    ) -> Result<usize, Error> {
        let n_draft = self.propose(session, pending, n_max);
        let start = Instant::now();
        let n_left = match n_draft {
            0 => session.append_generated(pending).map(|()| 0)?,
            _ => {
                let ids = &self.text[session.tokens().len()..];
                let appended = session.append_draft(ids, n_draft);
                appended.or_else(|_| session.append_generated(pending).map(|()| 0))?
            }
        };
        self.seconds = start.elapsed().as_secs_f64();
        self.rows = BatchRows {
            n_plain: pending.len(),
            n_draft,
        };
        Ok(n_left)
    }

    /// Appends the pending tokens and a draft to the text, and returns the length of the draft.
    fn propose(&mut self, session: &mut Session, pending: &[u32], n_max: usize) -> usize {
        let Some(speculator) = &mut self.speculator else {
            return 0;
        };
        // Before the first token, the logits that it is selected from are there already.
        if pending.is_empty() || speculator.stats().off.is_some() {
            return 0;
        }
        let n_max = session.draft_room(pending.len(), n_max.min(speculator.n_max()));
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
        let draft = speculator.propose(&self.text, room, &session.costs);
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
