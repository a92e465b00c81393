//! Constraint state of a generation: the guide through its grammar, the end of a text that is cut,
//! and the probe of its first tool call.

use std::sync::Arc;

use atta_constrain::Error as GuideError;
use atta_tokenizer::{StreamDecoder, Tokenizer};

use super::{GenerateOptions, probe::ToolCallProbe};
use crate::{CallTest, Closing, ConstraintError, Engine, Error, Guide, OnLength};

#[derive(Default)]
pub(super) struct ConstraintState {
    guide: Option<Guide>,
    on_length: OnLength,
    /// Only with a guide.
    probe: Option<ToolCallProbe>,
}

/// A tool call that was rolled back.
pub(super) struct RolledBack {
    /// Tokens of it, the marker included.
    pub(super) n_tokens: usize,
    /// Logits in front of the marker, `[n_vocab]`.
    pub(super) logits: Vec<f32>,
}

impl ConstraintState {
    pub(super) fn new(engine: &Engine, options: &GenerateOptions) -> Result<Self, Error> {
        let guide = options
            .constraint
            .as_ref()
            .map(|constraint| engine.guide(constraint))
            .transpose()?;
        let start = options.call_start.filter(|_| guide.is_some());
        let probe = start
            .map(|start| ToolCallProbe::new(engine, start))
            .transpose()?;
        Ok(Self {
            guide,
            on_length: options.on_length,
            probe,
        })
    }

    /// Masks tokens that may not follow with −∞; `logits` are a copy of the `model`'s, `[n_vocab]`.
    pub(super) fn mask(&mut self, model: &[f32], logits: &mut [f32]) -> Result<(), Error> {
        let Some(guide) = &mut self.guide else {
            return Ok(());
        };
        guide.restrict(logits)?;
        if let Some(probe) = &mut self.probe {
            probe.ban(logits, guide.eog());
            if probe.is_in_name() {
                probe.narrow(model, logits, |id| guide.token_bytes(id));
            }
        }
        Ok(())
    }

    /// The token itself, or one that may follow; `None` if the text is complete.
    pub(super) fn nearest(&self, token: u32) -> Option<u32> {
        self.guide
            .as_ref()
            .map_or(Some(token), |guide| guide.nearest(token))
    }

    /// Rolls back a call that the model did not mean, as the last [`mask`](Self::mask) has shown,
    /// from the end of a text of `n_generated` tokens.
    pub(super) fn roll_back(&mut self, n_generated: usize) -> Result<Option<RolledBack>, Error> {
        let doubtful = self.probe.as_mut().filter(|probe| probe.is_doubtful());
        let Some((probe, guide)) = doubtful.zip(self.guide.as_mut()) else {
            return Ok(None);
        };
        let call = probe.roll_back(n_generated);
        guide.rollback(call.n_tokens)?;
        Ok(Some(call))
    }

    /// Starts to probe a call if this token, selected from these logits `[n_vocab]`, is its marker.
    pub(super) fn probe(&mut self, token: u32, logits: &[f32]) {
        let has_choice = self.guide.as_ref().is_some_and(Guide::has_choice);
        if let Some(probe) = &mut self.probe
            && has_choice
            && probe.may_begin(token)
        {
            probe.begin(logits);
        }
    }

    /// Whether the last tokens are part of a call that may be rolled back.
    pub(super) fn is_tentative(&self) -> bool {
        self.probe.as_ref().is_some_and(ToolCallProbe::is_open)
    }

    /// Makes a call that has begun final.
    pub(super) fn commit(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.commit();
        }
    }

    /// Accepts a token that does not end the text, and returns at most `max` tokens that the
    /// grammar forces behind it.
    pub(super) fn accept(&mut self, token: u32, max: usize) -> Result<Vec<u32>, Error> {
        let Some(guide) = &mut self.guide else {
            return Ok(Vec::new());
        };
        guide.accept(token)?;
        let Some(probe) = &mut self.probe else {
            return Ok(guide.forced(max)?);
        };
        probe.push(token, &guide.token_bytes(token));
        force_probed(guide, probe, max)
    }

    /// Fits a draft to the grammar, as [`Guide::fit_guess`] does. Without one, all tokens are
    /// choices.
    pub(super) fn fit(&self, draft: &mut Vec<u32>, max: usize) -> Vec<bool> {
        match &self.guide {
            Some(guide) if !draft.is_empty() => guide.fit_guess(draft, max),
            _ => vec![true; draft.len()],
        }
    }

    /// Whether an end-of-generation token ends the text here: a grammar may have such a token in
    /// its middle.
    pub(super) fn may_end(&self) -> bool {
        self.guide.as_ref().is_none_or(Guide::may_end)
    }

    /// Whether there is a constraint.
    pub(super) fn is_active(&self) -> bool {
        self.guide.is_some()
    }

    /// Whether no token can follow.
    pub(super) fn is_complete(&self) -> bool {
        self.guide.as_ref().is_some_and(Guide::is_complete)
    }

    /// The text that completes a text that was cut, as [`OnLength`] says; empty if no short one was
    /// found.
    pub(super) fn close(
        &mut self,
        decoder: &mut StreamDecoder<Arc<Tokenizer>>,
    ) -> Result<String, Error> {
        let Some(guide) = self
            .guide
            .as_mut()
            .filter(|_| self.on_length != OnLength::Cut)
        else {
            return Ok(String::new());
        };
        if self.on_length == OnLength::Fail {
            return match guide.is_valid()? {
                true => Ok(String::new()),
                false => Err(ConstraintError::Unfinished {
                    n_tokens: guide.n_tokens(),
                }
                .into()),
            };
        }
        let is_call = |text: &[u8]| match self.on_length {
            OnLength::CloseUnlessCall(CallTest(test)) => test(text),
            _ => false,
        };
        let written = guide.text();
        if is_call(&written) {
            return Ok(String::new());
        }
        let parts = match guide.closing() {
            // An error would lose all of the text.
            Err(GuideError::Constraint(ConstraintError::Endless { .. })) => Vec::new(),
            parts => parts?,
        };
        let added = parts.iter().flat_map(|part| match part {
            Closing::Bytes(bytes) => bytes.clone(),
            Closing::Token(id) => guide.token_bytes(*id).into_owned(),
        });
        if is_call(&written.into_iter().chain(added).collect::<Vec<u8>>()) {
            return Ok(String::new());
        }
        let texts = parts.iter().map(|part| match part {
            Closing::Bytes(bytes) => decoder.push_bytes(bytes),
            Closing::Token(id) => decoder.push(*id),
        });
        Ok(texts.collect())
    }
}

/// Forces at most `max` tokens, and shows each to the probe. Tokens of a name are never forced, so
/// that the probe sees the model's logits for each.
fn force_probed(
    guide: &mut Guide,
    probe: &mut ToolCallProbe,
    max: usize,
) -> Result<Vec<u32>, Error> {
    let mut forced = Vec::new();
    while forced.len() < max && !probe.is_in_name() {
        let n = if probe.is_open() {
            1
        } else {
            max - forced.len()
        };
        let next = guide.forced(n)?;
        if next.is_empty() {
            break;
        }
        next.iter()
            .for_each(|&id| probe.push(id, &guide.token_bytes(id)));
        forced.extend(next);
    }
    Ok(forced)
}
