//! Texts of a request, or what they are as tokens.

use serde::Deserialize;

use crate::{models::Model, refusal::Refusal};

/// One or several, all of the same kind.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Prompt {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    ManyTokens(Vec<Vec<u32>>),
}

/// What a request may have of them.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// The field that they stand in.
    pub(super) field: &'static str,
    pub(super) max: usize,
}

impl Prompt {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(_) | Self::Tokens(_) => 1,
            Self::Texts(texts) => texts.len(),
            Self::ManyTokens(all) => all.len(),
        }
    }

    /// Whether one of them is of no characters or tokens.
    pub(super) fn has_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Texts(texts) => texts.iter().any(String::is_empty),
            Self::Tokens(ids) => ids.is_empty(),
            Self::ManyTokens(all) => all.iter().any(Vec::is_empty),
        }
    }

    /// The tokens of each; `of` makes them of a text.
    pub(super) fn into_ids(
        self,
        model: &Model,
        Limits { field, max }: Limits,
        of: impl Fn(&[u8]) -> Vec<u32>,
    ) -> Result<Vec<Vec<u32>>, Refusal> {
        let n = self.len();
        if !(1..=max).contains(&n) {
            return Err(Refusal::field(field, format!("{n} texts, expected 1 to {max}")));
        }
        let prompts = match self {
            Self::Text(text) => vec![of(text.as_bytes())],
            Self::Texts(texts) => texts.iter().map(|text| of(text.as_bytes())).collect(),
            Self::Tokens(ids) => vec![ids],
            Self::ManyTokens(all) => all,
        };
        let n_vocab = model.engine.spec().n_vocab;
        match prompts.iter().flatten().find(|&&id| id as usize >= n_vocab) {
            Some(id) => Err(Refusal::field(field, format!("token {id}, of a model that has {n_vocab}"))),
            None => Ok(prompts),
        }
    }
}
