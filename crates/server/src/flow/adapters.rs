//! The adapters of a request: the field `lora`, as of llama.cpp, and names of models with that of
//! an adapter behind a colon.
//!
//! Knows names and scales. A request that says nothing gets those of `/lora-adapters`.

use atta_engine::{AdapterScale, AdapterSet, Engine};
use serde::Deserialize;

use super::error::ApiError;
use crate::models::Model;

/// The field of all requests whose answers are computed.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct AdapterFields {
    lora: Option<Vec<AdapterChoice>>,
}

/// An adapter by its index or its name, with its scale; 1 if it has none.
#[derive(Debug, Deserialize)]
pub(crate) struct AdapterChoice {
    id: Option<usize>,
    name: Option<String>,
    scale: Option<f32>,
}

impl AdapterFields {
    /// Whether the request has the field.
    pub(crate) fn is_given(&self) -> bool {
        self.lora.is_some()
    }

    /// The adapters of a request; `named` is the one in the name of its model.
    pub(crate) fn into_set(
        self,
        model: &Model,
        named: Option<usize>,
    ) -> Result<AdapterSet, ApiError> {
        let engine = &model.engine;
        match (self.lora, named) {
            (Some(_), Some(_)) => {
                let why = "the name of the model has an adapter already";
                Err(ApiError::field("lora", why))
            }
            (Some(list), None) => chosen(engine, &list),
            (None, Some(adapter)) => {
                let scale = 1.0;
                Ok(engine.adapter_set(&[AdapterScale { adapter, scale }])?)
            }
            (None, None) => Ok(model.adapters()),
        }
    }
}

/// The set of a list; adapters that it does not name have the scale 0.
pub(crate) fn chosen(engine: &Engine, list: &[AdapterChoice]) -> Result<AdapterSet, ApiError> {
    let scales = list.iter().map(|choice| {
        let adapter = match (choice.id, &choice.name) {
            (Some(id), None) => id,
            (None, Some(name)) => engine.adapter_named(name)?,
            _ => return Err(ApiError::field("lora", "expected an id or a name")),
        };
        let scale = choice.scale.unwrap_or(1.0);
        Ok(AdapterScale { adapter, scale })
    });
    let scales = scales.collect::<Result<Vec<_>, ApiError>>()?;
    Ok(engine.adapter_set(&scales)?)
}
