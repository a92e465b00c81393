//! The embedding of a draft head: its own, or that of the model that it drafts for.

use std::sync::Arc;

use super::{MatrixRef, Model};
use crate::Role;

impl Model {
    /// Reads the embedding of another model, if this one has none.
    #[must_use]
    pub fn with_embedding_of(self, other: &Arc<Self>) -> Self {
        let own = self.embed_place();
        let lender = own.is_none().then(|| Arc::clone(other));
        Self { lender, ..self }
    }

    /// The model whose embedding it reads.
    pub(crate) fn embedder(&self) -> &Self {
        self.lender.as_deref().unwrap_or(self)
    }

    /// The token embedding; a draft head may have its own.
    pub(super) fn embed_place(&self) -> Option<MatrixRef> {
        let own = self.layers[0].matrices[Role::NextnEmbedTokens as usize];
        own.or(self.globals.matrices[Role::TokenEmbd as usize])
    }
}
