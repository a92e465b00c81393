//! Replaces the implementation in programs built without it: the same names, of types that have no
//! values, so that callers need no conditional compilation and the compiler drops their code.

use std::{borrow::Cow, convert::Infallible, sync::Arc};

use atta_store::Budget;
use atta_tokenizer::Tokenizer;

use crate::{Closing, Constraint, ConstraintError, Error};

/// Memory to keep free for constrained texts: none.
pub fn planned_bytes(_n_vocab: usize) -> u64 {
    0
}

/// A vocabulary, ready for grammars. Cannot be made.
pub struct Grammars(Infallible);

impl Grammars {
    /// Makes none.
    ///
    /// # Errors
    /// [`ConstraintError::NotBuilt`], always.
    pub fn new(_: &Arc<Tokenizer>, _: &Budget) -> Result<Self, Error> {
        Err(ConstraintError::NotBuilt.into())
    }
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {}
    }
}

/// The state of one constrained text. Cannot be made.
pub struct Guide(Infallible);

impl std::fmt::Debug for Guide {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {}
    }
}

// Each method is documented at the implementation, `guide.rs`.
#[expect(missing_docs, reason = "no value has these methods")]
impl Guide {
    /// Makes none.
    ///
    /// # Errors
    /// [`ConstraintError::NotBuilt`], always.
    pub fn new(_: &Arc<Grammars>, _: &Constraint) -> Result<Self, Error> {
        Err(ConstraintError::NotBuilt.into())
    }

    pub fn restrict(&mut self, _: &mut [f32]) -> Result<(), ConstraintError> {
        match self.0 {}
    }

    pub fn nearest(&self, _: u32) -> Option<u32> {
        match self.0 {}
    }

    pub fn accept(&mut self, _: u32) -> Result<(), ConstraintError> {
        match self.0 {}
    }

    pub fn forced(&mut self, _: usize) -> Result<Vec<u32>, ConstraintError> {
        match self.0 {}
    }

    pub fn fit_guess(&self, _: &mut Vec<u32>, _: usize) -> Vec<bool> {
        match self.0 {}
    }

    pub fn rollback(&mut self, _: usize) -> Result<(), ConstraintError> {
        match self.0 {}
    }

    pub fn token_bytes(&self, _: u32) -> Cow<'_, [u8]> {
        match self.0 {}
    }

    pub fn has_choice(&self) -> bool {
        match self.0 {}
    }

    pub fn is_complete(&self) -> bool {
        match self.0 {}
    }

    pub fn is_valid(&mut self) -> Result<bool, ConstraintError> {
        match self.0 {}
    }

    pub fn closing(&mut self) -> Result<Vec<Closing>, Error> {
        match self.0 {}
    }

    pub fn text(&self) -> Vec<u8> {
        match self.0 {}
    }

    pub fn n_tokens(&self) -> usize {
        match self.0 {}
    }

    pub fn may_end(&self) -> bool {
        match self.0 {}
    }

    pub fn eog(&self) -> &[u32] {
        match self.0 {}
    }
}
