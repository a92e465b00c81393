//! Speculation: several tokens per reading of the weights, without changing a letter of the text.
//!
//! A *draft* guesses the next tokens. It is evaluated in one batch with the tokens that are known,
//! and the sampler of the text judges it token by token, from the logits that plain decoding has
//! ([`Generation::advance`](crate::generation)); the rest is removed again. This module knows
//! tokens and times: no session, no logits, no clock but for the time that drafting takes. The one
//! idea: a draft is evaluated only where it was *measured* to pay. How often drafts are right is
//! counted without evaluating them, what more rows cost is learned from steps, and an account of
//! lost seconds limits what that may cost ([`StepCosts`]).

mod acceptance;
mod costs;
mod draft_head;
mod draft_model;
mod head_state;
mod hidden;
mod ngram;
mod ratios;
mod speculator;

use std::{fmt, sync::Arc};

pub(crate) use draft_head::LoadedHead;
pub use draft_head::{DraftHead, HeadFile};
pub use draft_model::DraftModel;
pub use hidden::{HiddenSink, TappedRows};
pub use ngram::{EarlierAnswers, Ngram};
pub use ratios::StepRatios;

pub(crate) use costs::{BatchRows, StepCosts, StepTime};
pub(crate) use speculator::{DraftRoom, Speculator};

use crate::{Engine, Error};

/// Maximum tokens of a draft.
pub const MAX_DRAFT: usize = 32;

/// Maximum tokens of a draft by default.
pub const DEFAULT_DRAFT: usize = 8;

/// Classes of drafts; see [`Draft::class`].
pub const N_CLASSES: usize = 4;

/// How a text is speculated. The text does not depend on it.
#[derive(Clone, Debug)]
pub struct Speculation {
    /// Where drafts come from.
    pub source: Arc<dyn DraftSource>,
    /// Maximum tokens of a draft, at most [`MAX_DRAFT`].
    pub n_max: usize,
    /// Which drafts are evaluated.
    pub policy: SpeculationPolicy,
}

/// Which drafts are evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpeculationPolicy {
    /// Those that make the text faster, as measured.
    #[default]
    WherePays,
    /// All: for tests and measurements.
    Always,
}

impl Speculation {
    /// Drafts of this source, where they pay.
    pub fn new(source: impl DraftSource + 'static) -> Self {
        Self {
            source: Arc::new(source),
            n_max: DEFAULT_DRAFT,
            policy: SpeculationPolicy::default(),
        }
    }
}

impl Default for Speculation {
    /// Drafts from the text itself, where they pay.
    fn default() -> Self {
        Self::new(Ngram)
    }
}

/// Where the drafts of texts come from; several texts may share it.
pub trait DraftSource: fmt::Debug + Send + Sync {
    /// Creates the drafter of one text of `target`.
    ///
    /// # Errors
    /// An exceeded memory budget, a source that does not fit the model.
    fn drafter(&self, target: &Engine) -> Result<Box<dyn Drafter>, Error>;
}

/// Guesses how a text goes on.
pub trait Drafter: Send {
    /// Prepares for a text that begins with these tokens, before the first draft. The time that it
    /// takes is not held against the drafts.
    ///
    /// # Errors
    /// A failure that ends speculation for this text; the text goes on.
    fn begin(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let _ = tokens;
        Ok(())
    }

    /// Appends up to `n_max` tokens that may follow `tokens` to an empty draft. `tokens` are all of
    /// the text so far, prompt included; mostly, but not always, they continue those of the call
    /// before. Wrong tokens cost time and never change the text.
    ///
    /// # Errors
    /// A failure that ends speculation for this text; the text goes on.
    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error>;

    /// As [`draft`](Self::draft), but the last of `tokens` are drafts, which may be wrong. Called
    /// for executors that compute several windows of a text at once, such as a ring of
    /// machines. A drafter that needs what the model computed of `tokens` has none.
    ///
    /// # Errors
    /// A failure that ends speculation for this text; the text goes on.
    fn draft_ahead(
        &mut self,
        tokens: &[u32],
        n_max: usize,
        draft: &mut Draft,
    ) -> Result<(), Error> {
        let _ = (tokens, n_max, draft);
        Ok(())
    }

    /// Whether a draft costs next to nothing, so that one may be made at every step and only be
    /// compared with the text.
    fn is_cheap(&self) -> bool {
        true
    }

    /// What takes the hidden states of the text as the model computes them; most drafters want
    /// none.
    fn hidden_sink(&self) -> Option<Arc<dyn HiddenSink>> {
        None
    }

    /// Drafts from these earlier answers, too, and adds the text to them at its end. Most drafters
    /// have no use for them.
    fn remember(&mut self, earlier: Arc<EarlierAnswers>) {
        let _ = earlier;
    }

    /// Takes the whole text after its end; the first `n_prompt` of its tokens were given.
    fn end(&mut self, tokens: &[u32], n_prompt: usize) {
        let _ = (tokens, n_prompt);
    }
}

/// A guess of the next tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// How sure the drafter is, below [`N_CLASSES`]: drafts of one class are counted together.
    pub class: usize,
}

impl Draft {
    fn clear(&mut self) {
        self.tokens.clear();
        self.class = 0;
    }
}

/// Statistics of the speculation of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeculationStats {
    /// Steps that selected tokens.
    pub n_steps: usize,
    /// Tokens of drafts that were evaluated.
    pub n_drafted: usize,
    /// Those that became part of the text.
    pub n_accepted: usize,
    /// Why no draft can be evaluated; `None`: one may be.
    pub off: Option<SpeculationOff>,
}

/// Why a text is not speculated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeculationOff {
    /// The model has recurrent layers, whose state cannot return to a token inside a batch.
    Recurrent,
    /// The memory budget or the batch has no room for the rows of a draft.
    NoRoom,
    /// The executor does not give the hidden states that the drafter reads, as a ring of machines
    /// does not.
    NoStates,
    /// The drafter failed.
    Failed,
}

impl fmt::Display for SpeculationOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recurrent => "recurrent layers",
            Self::NoRoom => "no room for drafts",
            Self::NoStates => "no hidden states of layers on other machines, or of several streams",
            Self::Failed => "the drafter failed",
        })
    }
}
