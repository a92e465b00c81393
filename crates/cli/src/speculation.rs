//! `--speculate`: opens the source of drafts.

use std::{path::Path, sync::Arc};

use atta::{
    DraftHead, DraftModel, Engine, LoadOptions, Ngram, SessionOptions, Speculation, WeightsAt,
};

use crate::{
    args::{
        ModelFlags,
        speculation::{DraftsFrom, SpeculationFlags},
    },
    failure::Failure,
    load,
};

/// Speculation as the flags ask for it.
#[derive(Clone)]
pub(crate) struct OpenDrafts {
    pub(crate) speculation: Option<Speculation>,
    model: Option<DraftModel>,
    head: Option<DraftHead>,
}

impl OpenDrafts {
    /// Opens the source. A draft model is loaded before the model, within the same budget.
    pub(crate) fn open(flags: &SpeculationFlags, model: &ModelFlags) -> Result<Self, Failure> {
        let drafts = flags.drafts();
        let none = Self {
            speculation: None,
            model: None,
            head: None,
        };
        Ok(match &drafts.from {
            DraftsFrom::Nowhere => none,
            DraftsFrom::Context => Self {
                speculation: Some(drafts.with(Speculation::new(Ngram))),
                ..none
            },
            DraftsFrom::Model(file) => {
                let source = DraftModel::new(engine(file, model)?, &session(model))?;
                Self {
                    speculation: Some(drafts.with(Speculation::new(source.clone()))),
                    model: Some(source),
                    ..none
                }
            }
            DraftsFrom::Head(file) => {
                let source = DraftHead::new(file.clone(), &session(model));
                Self {
                    speculation: Some(drafts.with(Speculation::new(source.clone()))),
                    head: Some(source),
                    ..none
                }
            }
        })
    }

    /// The options to load the model at `path` with: with room for its head, or beside the draft
    /// model and with its threads.
    pub(crate) fn beside(
        &self,
        path: Option<&Path>,
        options: LoadOptions,
    ) -> Result<LoadOptions, Failure> {
        if let (Some(head), Some(path)) = (&self.head, path) {
            let planned = head.planned_bytes(&load::locate(path)?, &options)?;
            return Ok(LoadOptions {
                spare_bytes: options.spare_bytes.saturating_add(planned),
                ..options
            });
        }
        Ok(self.beside_model(options))
    }

    fn beside_model(&self, options: LoadOptions) -> LoadOptions {
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

    /// Checks that the model has the vocabulary of the draft model; loads its head.
    pub(crate) fn check(&self, engine: &Engine) -> Result<(), atta::Error> {
        match (&self.model, &self.head) {
            (Some(draft), _) => draft.check(engine),
            (None, Some(head)) => head.check(engine),
            (None, None) => Ok(()),
        }
    }
}

/// The session of a draft model.
fn session(model: &ModelFlags) -> SessionOptions {
    model.session_options(atta::KvType::default())
}

/// Loads the draft model. Beside a model that is streamed it stays in memory.
fn engine(file: &Path, model: &ModelFlags) -> Result<Engine, Failure> {
    let options = model.without_adapters().load_options(session(model));
    let is_streamed = options.weights == Some(WeightsAt::Streamed);
    let options = LoadOptions {
        weights: is_streamed.then_some(WeightsAt::Resident),
        prewarm: false,
        ..options
    };
    load::engine(Some(file), &options)
}
