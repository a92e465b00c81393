//! `--speculate`: opens the source of drafts.

use std::sync::Arc;

use atta::{DraftModel, Engine, LoadOptions, Ngram, SessionOptions, Speculation, WeightsAt};

use crate::{
    args::{
        ModelFlags,
        speculation::{Drafts, DraftsFrom, SpeculationFlags},
    },
    failure::Failure,
    load,
};

/// Speculation as the flags ask for it.
#[derive(Clone)]
pub(crate) struct OpenDrafts {
    pub(crate) speculation: Option<Speculation>,
    model: Option<DraftModel>,
}

impl OpenDrafts {
    /// Opens the source. A draft model is loaded before the model, within the same budget.
    pub(crate) fn open(flags: &SpeculationFlags, model: &ModelFlags) -> Result<Self, Failure> {
        let drafts = flags.drafts();
        match &drafts.from {
            DraftsFrom::Nowhere => Ok(Self {
                speculation: None,
                model: None,
            }),
            DraftsFrom::Context => Ok(Self {
                speculation: Some(with(&drafts, Speculation::new(Ngram))),
                model: None,
            }),
            DraftsFrom::Model(file) => {
                let source = DraftModel::new(engine(file, model)?, &session(model))?;
                Ok(Self {
                    speculation: Some(with(&drafts, Speculation::new(source.clone()))),
                    model: Some(source),
                })
            }
        }
    }

    /// The options to load the model with: beside the draft model, and with its threads.
    pub(crate) fn beside(&self, options: LoadOptions) -> LoadOptions {
        let Some(draft) = &self.model else {
            return options;
        };
        let engine = draft.engine();
        LoadOptions {
            pool: Some(Arc::clone(engine.pool())),
            beside: options.beside.saturating_add(engine.budget().used()),
            ..options
        }
    }

    /// Checks that the model has the vocabulary of the draft model.
    pub(crate) fn check(&self, engine: &Engine) -> Result<(), atta::Error> {
        self.model
            .as_ref()
            .map_or(Ok(()), |draft| draft.check(engine))
    }
}

/// The speculation with the length and policy that the flags give.
fn with(drafts: &Drafts, speculation: Speculation) -> Speculation {
    Speculation {
        n_max: drafts.n_max,
        policy: drafts.policy,
        ..speculation
    }
}

/// The session of a draft model.
fn session(model: &ModelFlags) -> SessionOptions {
    model.session_options(atta::KvType::default())
}

/// Loads the draft model. Beside a model that is streamed it stays in memory.
fn engine(file: &std::path::Path, model: &ModelFlags) -> Result<Engine, Failure> {
    let options = model.without_adapters().load_options(session(model));
    let is_streamed = options.weights == Some(WeightsAt::Streamed);
    let options = LoadOptions {
        weights: is_streamed.then_some(WeightsAt::Resident),
        prewarm: false,
        ..options
    };
    load::engine(Some(file), &options)
}
