//! Drafts from a smaller model with the same vocabulary.
//!
//! The draft model has a session of its own, which follows the text. It chooses its best token each
//! time and stops where it is not sure: what the text's sampler draws does not change a draft, and
//! a draft changes no text. One text at a time has the session; others have no drafts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Draft, DraftSource, Drafter};
use crate::{Engine, Error, Session, SessionOptions, log_sum_exp, tokenizer::Tokenizer};

/// A draft ends before a token that the draft model thinks less probable than this.
const MIN_PROBABILITY: f64 = 0.4;

/// A model that drafts, with the memory of one session.
#[derive(Clone, Debug)]
pub struct DraftModel {
    shared: Arc<SharedDraftModel>,
}

#[derive(Debug)]
struct SharedDraftModel {
    engine: Engine,
    /// The session, unless a text has it.
    session: Mutex<Option<Session>>,
    /// A tokenizer that was compared with the draft model's.
    compared: Mutex<Option<Arc<Tokenizer>>>,
}

impl DraftModel {
    /// Creates a source of drafts. `options` should be those of the sessions that write the text;
    /// where the text is longer than the context of this session, there are no drafts.
    ///
    /// # Errors
    /// Those of [`Engine::session`].
    pub fn new(engine: Engine, options: &SessionOptions) -> Result<Self, Error> {
        let session = engine.session(options)?;
        Ok(Self {
            shared: Arc::new(SharedDraftModel {
                engine,
                session: Mutex::new(Some(session)),
                compared: Mutex::default(),
            }),
        })
    }

    /// The draft model.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Compares the vocabularies, by the bytes of all ids; padding at the end of one does not
    /// count.
    ///
    /// # Errors
    /// [`Error::DraftVocabulary`] with the first id that differs.
    pub fn check(&self, target: &Engine) -> Result<(), Error> {
        let mut compared = lock(&self.shared.compared);
        let target = target.tokenizer();
        if compared
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, target))
        {
            return Ok(());
        }
        check_tokens(self.engine().tokenizer(), target)?;
        *compared = Some(Arc::clone(target));
        Ok(())
    }
}

/// Compares vocabularies by the bytes of all ids that both have.
pub(super) fn check_tokens(draft: &Tokenizer, target: &Tokenizer) -> Result<(), Error> {
    let n = draft.n_vocab().min(target.n_vocab()) as u32;
    let differs = |&id: &u32| draft.token_bytes(id) != target.token_bytes(id);
    let Some(id) = (0..n).find(differs) else {
        return Ok(());
    };
    let text = |of: &Tokenizer| String::from_utf8_lossy(&of.token_bytes(id)).into_owned();
    Err(Error::DraftVocabulary {
        id,
        draft: text(draft),
        target: text(target),
    })
}

impl DraftSource for DraftModel {
    fn drafter(&self, target: &Engine) -> Result<Box<dyn Drafter>, Error> {
        self.check(target)?;
        Ok(Box::new(ModelDrafter {
            shared: Arc::clone(&self.shared),
            session: None,
        }))
    }
}

/// Drafts for one text; has the session from its first draft to its end.
struct ModelDrafter {
    shared: Arc<SharedDraftModel>,
    session: Option<Session>,
}

impl ModelDrafter {
    /// The session, if it is free or ours, and if the text fits: `n_more` tokens, too.
    fn session(&mut self, tokens: &[u32], n_more: usize) -> Option<&mut Session> {
        if self.session.is_none() {
            self.session = lock(&self.shared.session).take();
        }
        let session = self.session.as_mut()?;
        let n_vocab = self.shared.engine.spec().n_vocab;
        let is_known = tokens.iter().all(|&id| (id as usize) < n_vocab);
        (is_known && tokens.len() + n_more <= session.n_ctx()).then_some(session)
    }
}

impl Drafter for ModelDrafter {
    fn begin(&mut self, tokens: &[u32]) -> Result<(), Error> {
        match self.session(tokens, 0) {
            Some(session) => follow(session, tokens),
            None => Ok(()),
        }
    }

    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        let Some(session) = self.session(tokens, n_max) else {
            return Ok(());
        };
        follow(session, tokens)?;
        while let Some(next) = session.logits().and_then(sure_token) {
            draft.tokens.push(next);
            if draft.tokens.len() == n_max {
                break;
            }
            session.append(&[next])?;
        }
        Ok(())
    }

    fn draft_ahead(
        &mut self,
        tokens: &[u32],
        n_max: usize,
        draft: &mut Draft,
    ) -> Result<(), Error> {
        self.draft(tokens, n_max, draft)
    }

    fn is_cheap(&self) -> bool {
        false
    }
}

impl Drop for ModelDrafter {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            *lock(&self.shared.session) = Some(session);
        }
    }
}

/// Brings a session to these tokens.
fn follow(session: &mut Session, tokens: &[u32]) -> Result<(), Error> {
    let n_same = session.keep_common(tokens)?;
    session.append(&tokens[n_same..])
}

/// The most probable token, if it is probable enough.
pub(super) fn sure_token(logits: &[f32]) -> Option<u32> {
    let pairs = (0..).zip(logits.iter().copied());
    let (id, best) = pairs.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let probability = (f64::from(best) - log_sum_exp(logits)).exp();
    (probability >= MIN_PROBABILITY).then_some(id)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_drafted_if_it_is_probable_enough() {
        assert_eq!(
            sure_token(&[0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln()]),
            Some(0)
        );
        assert_eq!(sure_token(&[0.3f32.ln(), 0.39f32.ln(), 0.31f32.ln()]), None);
        assert_eq!(sure_token(&[]), None);
    }
}
