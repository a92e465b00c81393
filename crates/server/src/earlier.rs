//! Earlier answers of a model, from which later ones are drafted.
//!
//! Each key has answers of its own: the time of an answer tells whether its text was written
//! before, and that is nothing for others to know. Requests without a key have none.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use atta_engine::{EarlierAnswers, Engine};

use crate::access::ClientKey;

/// Keys with earlier answers; those that come later have none.
const MAX_KEYS: usize = 16;

/// The earlier answers of a model, by key.
#[derive(Debug, Default)]
pub(crate) struct EarlierByKey {
    answers: Mutex<HashMap<ClientKey, Arc<EarlierAnswers>>>,
}

impl EarlierByKey {
    /// The earlier answers of a key; `None` if there is no memory for them.
    pub(crate) fn of(&self, key: ClientKey, engine: &Engine) -> Option<Arc<EarlierAnswers>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = answers.get(&key) {
            return Some(Arc::clone(found));
        }
        if answers.len() == MAX_KEYS {
            return None;
        }
        let made = Arc::new(EarlierAnswers::new(engine).ok()?);
        answers.insert(key, Arc::clone(&made));
        Some(made)
    }
}
