//! Approximate reuse of cached prompts: the field `n_cache_reuse`, as of llama.cpp.
//!
//! Knows the number only. Without the field a request has the server's default, which is exact.

use serde::Deserialize;

use super::{body::whole, error::ApiError};
use crate::models::Model;

/// The name of the field.
const FIELD: &str = "n_cache_reuse";

/// The field of all requests whose answers are computed.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct CacheReuseFields {
    /// Least tokens of a part of a cached prompt that is moved; 0: none is.
    #[serde(default, deserialize_with = "whole")]
    n_cache_reuse: Option<i64>,
}

impl CacheReuseFields {
    /// Whether the request has the field, and not to turn reuse off.
    pub(crate) fn is_wanted(&self) -> bool {
        self.n_cache_reuse.is_some_and(|n| n != 0)
    }

    /// The least tokens of a part that is moved; `None`: the answer is exact.
    ///
    /// # Errors
    /// A negative number, and a model whose keys cannot be moved.
    pub(crate) fn into_least(self, model: &Model) -> Result<Option<usize>, ApiError> {
        let default = model.defaults.cache_reuse;
        let given = self.n_cache_reuse.map(usize::try_from);
        match (given.unwrap_or(Ok(default)), &model.no_cache_reuse) {
            (Ok(0), _) => Ok(None),
            (Ok(_), Some(why)) => Err(ApiError {
                param: Some(FIELD.to_owned()),
                ..ApiError::not_implemented(why.clone())
            }),
            (Ok(n), None) => Ok(Some(n)),
            (Err(_), _) => Err(ApiError::field(
                FIELD,
                "n_cache_reuse is negative, expected 0 or the least tokens of a part",
            )),
        }
    }
}
