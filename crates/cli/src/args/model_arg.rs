//! MODEL on the command line: by its place, or by the name that llama.cpp's users type.

use std::{ops::Deref, path::PathBuf};

use clap::Args;

/// The model of a command; `None` stands for the built-in one.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModelArg {
    /// GGUF file (any file of a split model), or ORG/REPO[:QUANT] that was pulled; also by -m or
    /// --model [default: the built-in model]
    model: Option<PathBuf>,
    /// MODEL by its name.
    #[arg(short = 'm', long = "model", value_name = "MODEL", hide = true)]
    #[arg(conflicts_with = "model")]
    named: Option<PathBuf>,
}

impl ModelArg {
    /// The path or name that was given.
    pub(crate) fn into_path(self) -> Option<PathBuf> {
        self.named.or(self.model)
    }
}

impl Deref for ModelArg {
    type Target = Option<PathBuf>;

    fn deref(&self) -> &Option<PathBuf> {
        match self.named {
            Some(_) => &self.named,
            None => &self.model,
        }
    }
}
