//! The state of one constrained text: which tokens may follow.

use std::{borrow::Cow, sync::Arc};

use atta_store::Reservation;
use llguidance::{Matcher, api::TopLevelGrammar, toktrie::SimpleVob};

use crate::Error;
use crate::{
    Closing, Constraint, ConstraintError, closing,
    grammars::{Grammars, guide_bytes, parser, reason},
};

/// Tokens per word of a mask.
const WORD: usize = u32::BITS as usize;

/// Masks the logits of tokens that may not follow in a constrained text.
pub struct Guide {
    grammars: Arc<Grammars>,
    /// Source of the matcher, for [`closing`](Self::closing).
    grammar: TopLevelGrammar,
    /// Whether the grammar may ask for tokens by name.
    has_names: bool,
    matcher: Matcher,
    /// Allowed tokens, as computed last: one bit per token, and one for the end of text.
    mask: SimpleVob,
    tokens: Vec<u32>,
    _memory: Reservation,
}

impl std::fmt::Debug for Guide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guide")
            .field("n_tokens", &self.tokens.len())
            .finish_non_exhaustive()
    }
}

impl Guide {
    /// Starts a constrained text.
    ///
    /// # Errors
    /// A constraint that cannot be kept to; memory that the budget does not grant.
    pub fn new(grammars: &Arc<Grammars>, constraint: &Constraint) -> Result<Self, Error> {
        let memory = grammars
            .budget
            .reserve("grammar", guide_bytes(constraint.n_bytes()))?;
        let grammar = constraint.grammar()?;
        let mut matcher =
            parser(&grammars.factory, grammar.clone()).map_err(|what| constraint.error(what))?;
        // A grammar that allows no text at all is refused before the prompt is evaluated.
        if let Err(error) = matcher.compute_mask_or_eos() {
            return Err(constraint.error(reason(&error.to_string())).into());
        }
        let mask = grammars.factory.tok_env().tok_trie().alloc_token_set();
        let grammars = Arc::clone(grammars);
        let has_names = constraint.may_name_tokens();
        Ok(Self {
            grammars,
            grammar,
            has_names,
            matcher,
            mask,
            tokens: Vec::new(),
            _memory: memory,
        })
    }

    /// Sets the logits of tokens that may not follow to −∞. `logits`, `[n_vocab]`, may be longer
    /// than the vocabulary; padding is masked too. End-of-generation tokens keep their logits where
    /// the text may end.
    ///
    /// # Errors
    /// [`ConstraintError::Stuck`] if nothing may follow.
    ///
    /// # Panics
    /// If there are fewer logits than tokens.
    pub fn restrict(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError> {
        self.mask = self
            .matcher
            .compute_mask_or_eos()
            .map_err(|error| matcher_error(&error))?;
        let ends: Vec<(u32, f32)> = match self.may_end() {
            true => self
                .eog()
                .iter()
                .map(|&id| (id, logits[id as usize]))
                .collect(),
            false => Vec::new(),
        };
        for (tokens, &word) in logits.chunks_mut(WORD).zip(self.mask.as_slice()) {
            mask_word(tokens, word);
        }
        let n_masked = self.n_vocab().min(logits.len());
        logits[n_masked..].fill(f32::NEG_INFINITY);
        ends.into_iter()
            .for_each(|(id, logit)| logits[id as usize] = logit);
        Ok(())
    }

    /// Returns `token` if it may follow, as [`restrict`](Self::restrict) computed last, else the
    /// first allowed token: a sampler cannot choose from logits that are NaN. `None` if the text
    /// can only end, and the vocabulary has no end-of-generation token.
    pub fn nearest(&self, token: u32) -> Option<u32> {
        let n_vocab = self.n_vocab();
        let eog = self.eog();
        let is_possible = |id: u32| {
            ((id as usize) < n_vocab && self.mask.get(id as usize))
                || (self.may_end() && eog.contains(&id))
        };
        let others = || {
            self.mask
                .first_bit_set()
                .map(|id| id as u32)
                .filter(|&id| is_possible(id))
        };
        let end = || eog.first().copied().filter(|&id| is_possible(id));
        Some(token)
            .filter(|&id| is_possible(id))
            .or_else(others)
            .or_else(end)
    }

    /// Appends a token that may follow and does not end the text.
    ///
    /// # Errors
    /// [`ConstraintError::Stuck`] if it may not follow.
    pub fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        self.tokens.push(token);
        self.matcher
            .consume_token(token)
            .map_err(|error| matcher_error(&error))
    }

    /// Appends and returns the tokens that must follow now, at most `max`, in the tokenization that
    /// the tokenizer would choose.
    ///
    /// # Errors
    /// [`ConstraintError::Stuck`] if the parser state became too complex.
    pub fn forced(&mut self, max: usize) -> Result<Vec<u32>, ConstraintError> {
        if self.is_complete() {
            return Ok(Vec::new());
        }
        let mut tokens = self.matcher.compute_ff_tokens();
        tokens.truncate(max);
        self.tokens.extend_from_slice(&tokens);
        self.matcher
            .consume_tokens(&tokens)
            .map_err(|error| matcher_error(&error))?;
        Ok(tokens)
    }

    /// Fits a guess of the next tokens to the grammar: ends it before the first token that may not
    /// follow, and puts those that must behind each, up to `max` in all. Returns for each token
    /// whether it is a choice; [`forced`](Self::forced) would append the others. The guide itself
    /// stays where it is.
    pub fn fit_guess(&self, guess: &mut Vec<u32>, max: usize) -> Vec<bool> {
        let mut ahead = self.matcher.clone();
        let mut fitted = Vec::with_capacity(max);
        let mut are_choices = Vec::with_capacity(max);
        while fitted.len() < max && !ahead.is_stopped() {
            let rest = guess.strip_prefix(&fitted[..]).unwrap_or_default();
            let choice = rest.get(..1).unwrap_or_default();
            if !consumes(&mut ahead, choice) {
                break;
            }
            fitted.extend_from_slice(choice);
            are_choices.push(true);
            // Once behind each choice, as plain decoding asks for them.
            let forced = ahead.compute_ff_tokens();
            if consumes(&mut ahead, &forced) {
                fitted.extend(forced);
                are_choices.resize(fitted.len(), false);
            }
        }
        fitted.truncate(max);
        are_choices.truncate(max);
        *guess = fitted;
        are_choices
    }

    /// Removes the last `n` tokens.
    ///
    /// # Errors
    /// [`ConstraintError::Stuck`] if there are fewer, or the grammar has `max_tokens=` or `stop=`.
    pub fn rollback(&mut self, n: usize) -> Result<(), ConstraintError> {
        self.matcher
            .rollback(n)
            .map_err(|error| matcher_error(&error))?;
        self.tokens.truncate(self.tokens.len() - n);
        Ok(())
    }

    /// The bytes of a token.
    pub fn token_bytes(&self, token: u32) -> Cow<'_, [u8]> {
        self.grammars.tokenizer.token_bytes(token)
    }

    /// Whether there is more than one way to continue, as [`restrict`](Self::restrict) computed
    /// last; ending the text is one.
    pub fn has_choice(&self) -> bool {
        self.mask.num_set() > 1
    }

    /// Whether nothing can follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// Whether the text may end here.
    ///
    /// # Errors
    /// [`ConstraintError::Stuck`] if the parser state became too complex.
    pub fn is_valid(&mut self) -> Result<bool, ConstraintError> {
        Ok(self.is_complete()
            || self
                .matcher
                .is_accepting()
                .map_err(|error| matcher_error(&error))?)
    }

    /// A short ending that makes the text valid; empty if it is valid.
    ///
    /// # Errors
    /// [`ConstraintError::Endless`] if none was found; memory that the budget does not grant.
    pub fn closing(&mut self) -> Result<Vec<Closing>, Error> {
        if self.is_valid()? {
            return Ok(Vec::new());
        }
        closing::short(&self.grammars, &self.grammar, self.has_names, &self.tokens)
    }

    /// The bytes of the text so far.
    pub fn text(&self) -> Vec<u8> {
        self.tokens
            .iter()
            .flat_map(|&id| self.token_bytes(id).into_owned())
            .collect()
    }

    /// Number of tokens so far.
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the text may end here, as [`restrict`](Self::restrict) computed last.
    pub fn may_end(&self) -> bool {
        self.mask.get(self.n_vocab())
    }

    fn n_vocab(&self) -> usize {
        self.grammars.tokenizer.n_vocab()
    }

    /// The end-of-generation tokens.
    pub fn eog(&self) -> &[u32] {
        self.grammars.tokenizer.eog()
    }
}

/// Whether all of these tokens may follow, and there are some; appends them then.
fn consumes(matcher: &mut Matcher, tokens: &[u32]) -> bool {
    let n_consumed = matcher.try_consume_tokens(tokens);
    !tokens.is_empty() && n_consumed.is_ok_and(|n| n == tokens.len())
}

/// Masks those of 32 logits whose bit in `word` is not set.
fn mask_word(logits: &mut [f32], word: u32) {
    match word {
        u32::MAX => {}
        0 => logits.fill(f32::NEG_INFINITY),
        _ => {
            let masked = logits
                .iter_mut()
                .enumerate()
                .filter(|(i, _)| word >> i & 1 == 0);
            masked.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
        }
    }
}

/// Wraps an error of llguidance.
fn matcher_error(error: &impl ToString) -> ConstraintError {
    ConstraintError::Stuck(reason(&error.to_string()))
}
