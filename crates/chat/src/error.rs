//! What can go wrong between a conversation and its prompt.

use atta_constrain::ConstraintError;

use crate::{TemplateError, tools::ToolError};

/// Why a conversation has no prompt.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The chat template cannot be read, or refuses the conversation.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The tools cannot be called.
    #[error(transparent)]
    Tools(#[from] ToolError),
    /// The constraint cannot be kept to.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
}
