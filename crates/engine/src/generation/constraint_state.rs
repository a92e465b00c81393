//! What a generation has to keep to, if anything: a guide, what is done where a text is cut, and a
//! call that may be taken back.

use std::sync::Arc;

use atta_tokenizer::{StreamDecoder, Tokenizer};

use super::probe::Backtrack;
use crate::{CallTest, Closing, ConstraintError, Guide, OnLength};
use crate::{Engine, Error, GenerateOptions};

#[derive(Default)]
pub(crate) struct Rules {
    guide: Option<Guide>,
    on_length: OnLength,
    /// Only beside a guide.
    backtrack: Option<Backtrack>,
}

/// A call that was taken back.
pub(crate) struct TakenBack {
    /// Tokens, the marker included.
    pub(crate) n_tokens: usize,
    /// In front of the marker, `[n_vocab]`.
    pub(crate) logits: Vec<f32>,
}

impl Rules {
    pub(crate) fn new(engine: &Engine, options: &GenerateOptions) -> Result<Self, Error> {
        let guide = options
            .constraint
            .as_ref()
            .map(|constraint| engine.guide(constraint))
            .transpose()?;
        let start = options.call_start.filter(|_| guide.is_some());
        let backtrack = start
            .map(|start| Backtrack::new(engine, start))
            .transpose()?;
        Ok(Self {
            guide,
            on_length: options.on_length,
            backtrack,
        })
    }

    /// Makes impossible what may not follow; `logits` are a copy of the `model`'s, \[n_vocab\].
    pub(crate) fn restrict(&mut self, model: &[f32], logits: &mut [f32]) -> Result<(), Error> {
        let Some(guide) = &mut self.guide else {
            return Ok(());
        };
        guide.restrict(logits)?;
        if let Some(backtrack) = &mut self.backtrack {
            backtrack.bar(logits, guide.eog());
            if backtrack.is_in_name() {
                backtrack.narrow(model, logits, |id| guide.token_bytes(id));
            }
        }
        Ok(())
    }

    /// The token itself, or one that may follow; `None` if the text has ended.
    pub(crate) fn nearest(&self, token: u32) -> Option<u32> {
        self.guide
            .as_ref()
            .map_or(Some(token), |guide| guide.nearest(token))
    }

    /// Takes a call back that the model did not mean, as the last [`restrict`](Self::restrict) has
    /// shown, off the end of a text of `n_written` tokens.
    pub(crate) fn take_back(&mut self, n_written: usize) -> Result<Option<TakenBack>, Error> {
        let doubtful = self
            .backtrack
            .as_mut()
            .filter(|backtrack| backtrack.is_doubtful());
        let Some((backtrack, guide)) = doubtful.zip(self.guide.as_mut()) else {
            return Ok(None);
        };
        let taken = backtrack.take_back(n_written);
        guide.rollback(taken.n_tokens)?;
        Ok(Some(taken))
    }

    /// Begins a call that may be taken back if this token, chosen from these logits `[n_vocab]`, is
    /// the marker of one.
    pub(crate) fn begin(&mut self, token: u32, logits: &[f32]) {
        let has_choice = self.guide.as_ref().is_some_and(Guide::has_choice);
        if let Some(backtrack) = self
            .backtrack
            .as_mut()
            .filter(|b| has_choice && b.may_begin(token))
        {
            backtrack.begin(logits);
        }
    }

    /// Whether what is written is part of a call that may be taken back.
    pub(crate) fn holds(&self) -> bool {
        self.backtrack.as_ref().is_some_and(Backtrack::is_open)
    }

    /// Takes no call back that has begun.
    pub(crate) fn settle(&mut self) {
        if let Some(backtrack) = &mut self.backtrack {
            backtrack.settle();
        }
    }

    /// Goes on by a token that does not end the text, and by `max` tokens at most that must follow
    /// it.
    pub(crate) fn follow(&mut self, token: u32, max: usize) -> Result<Vec<u32>, Error> {
        let Some(guide) = &mut self.guide else {
            return Ok(Vec::new());
        };
        guide.accept(token)?;
        let Some(backtrack) = &mut self.backtrack else {
            return Ok(guide.forced(max)?);
        };
        backtrack.push(token, &guide.token_bytes(token));
        let mut forced = Vec::new();
        // What the model thinks of a name is seen only where it is chosen token by token.
        while forced.len() < max && !backtrack.is_in_name() {
            let next = guide.forced(if backtrack.is_open() {
                1
            } else {
                max - forced.len()
            })?;
            if next.is_empty() {
                break;
            }
            next.iter()
                .for_each(|&id| backtrack.push(id, &guide.token_bytes(id)));
            forced.extend(next);
        }
        Ok(forced)
    }

    /// Whether a token that ends generations ends this one here: a grammar may ask for such a token
    /// in its middle.
    pub(crate) fn may_end(&self) -> bool {
        self.guide.as_ref().is_none_or(Guide::may_end)
    }

    /// Whether half a character at the end is no text: a constrained text that was cut is the
    /// beginning of a valid one.
    pub(crate) fn drops_half_characters(&self) -> bool {
        self.guide.is_some()
    }

    /// Whether nothing can follow.
    pub(crate) fn is_complete(&self) -> bool {
        self.guide.as_ref().is_some_and(Guide::is_complete)
    }

    /// The text that makes one complete that was cut.
    pub(crate) fn close(
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
        let is_call = |text: &[u8]| matches!(self.on_length, OnLength::CloseUnlessCall(CallTest(test)) if test(text));
        let written = guide.text();
        if is_call(&written) {
            return Ok(String::new());
        }
        let parts = guide.closing()?;
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
