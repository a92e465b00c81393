//! What a generation has to keep to, if anything: a guide, and what is done where a text is cut. Without the feature
//! `constrain` there is nothing to keep to.

use std::sync::Arc;

use atta_tokenizer::{StreamDecoder, Tokenizer};

#[cfg(feature = "constrain")]
use crate::{Closing, ConstraintError, Guide, OnLength};
use crate::{Engine, Error, GenerateOptions};

#[derive(Default)]
pub(crate) struct Rules {
    #[cfg(feature = "constrain")]
    guide: Option<Guide>,
    #[cfg(feature = "constrain")]
    on_length: OnLength,
}

#[cfg(feature = "constrain")]
impl Rules {
    pub(crate) fn new(engine: &Engine, options: &GenerateOptions) -> Result<Self, Error> {
        let guide = options.constraint.as_ref().map(|constraint| engine.guide(constraint)).transpose()?;
        Ok(Self { guide, on_length: options.on_length })
    }

    /// Makes impossible what may not follow; `logits` \[n_vocab\].
    pub(crate) fn restrict(&mut self, logits: &mut [f32]) -> Result<(), Error> {
        if let Some(guide) = &mut self.guide {
            guide.restrict(logits)?;
        }
        Ok(())
    }

    /// The token itself, or one that may follow; `None` if the text has ended.
    pub(crate) fn nearest(&self, token: u32) -> Option<u32> {
        self.guide.as_ref().map_or(Some(token), |guide| guide.nearest(token))
    }

    /// Goes on by a token that does not end the text, and by `max` tokens at most that must follow it.
    pub(crate) fn follow(&mut self, token: u32, max: usize) -> Result<Vec<u32>, Error> {
        let Some(guide) = &mut self.guide else { return Ok(Vec::new()) };
        guide.accept(token)?;
        Ok(guide.forced(max)?)
    }

    /// Whether a token that ends generations ends this one here: a grammar may ask for such a token in its middle.
    pub(crate) fn may_end(&self) -> bool {
        self.guide.as_ref().is_none_or(Guide::may_end)
    }

    /// Whether half a character at the end is no text: a constrained text that was cut is the beginning of a valid one.
    pub(crate) fn drops_half_characters(&self) -> bool {
        self.guide.is_some()
    }

    /// Whether nothing can follow.
    pub(crate) fn is_complete(&self) -> bool {
        self.guide.as_ref().is_some_and(Guide::is_complete)
    }

    /// The text that makes one complete that was cut.
    pub(crate) fn close(&mut self, decoder: &mut StreamDecoder<Arc<Tokenizer>>) -> Result<String, Error> {
        let Some(guide) = self.guide.as_mut().filter(|_| self.on_length != OnLength::Cut) else {
            return Ok(String::new());
        };
        if self.on_length == OnLength::Fail {
            return match guide.is_valid()? {
                true => Ok(String::new()),
                false => Err(ConstraintError::Unfinished { n_tokens: guide.n_tokens() }.into()),
            };
        }
        let parts = guide.closing()?;
        let texts = parts.iter().map(|part| match part {
            Closing::Bytes(bytes) => decoder.push_bytes(bytes),
            Closing::Token(id) => decoder.push(*id),
        });
        Ok(texts.collect())
    }
}

#[cfg(not(feature = "constrain"))]
impl Rules {
    pub(crate) fn new(_: &Engine, _: &GenerateOptions) -> Result<Self, Error> {
        Ok(Self::default())
    }

    pub(crate) fn restrict(&mut self, _: &mut [f32]) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn nearest(&self, token: u32) -> Option<u32> {
        Some(token)
    }

    pub(crate) fn follow(&mut self, _: u32, _: usize) -> Result<Vec<u32>, Error> {
        Ok(Vec::new())
    }

    pub(crate) fn may_end(&self) -> bool {
        true
    }

    pub(crate) fn drops_half_characters(&self) -> bool {
        false
    }

    pub(crate) fn is_complete(&self) -> bool {
        false
    }

    pub(crate) fn close(&mut self, _: &mut StreamDecoder<Arc<Tokenizer>>) -> Result<String, Error> {
        Ok(String::new())
    }
}
