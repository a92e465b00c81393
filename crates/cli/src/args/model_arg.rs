//! MODEL on the command line: by its place, or by the name that llama.cpp's users type.

use std::{ffi::OsString, ops::Deref, path::PathBuf};

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

/// The model of a command that has no default.
#[cfg(feature = "convert")]
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelFileArg {
    /// GGUF file (any file of a split model), or ORG/REPO[:QUANT] that was pulled; also by -m or
    /// --model
    #[arg(required_unless_present = "named")]
    model: Option<PathBuf>,
    /// MODEL by its name.
    #[arg(short = 'm', long = "model", value_name = "MODEL", hide = true)]
    #[arg(conflicts_with = "model")]
    named: Option<PathBuf>,
}

#[cfg(feature = "convert")]
impl Deref for ModelFileArg {
    type Target = PathBuf;

    fn deref(&self) -> &PathBuf {
        let given = self.named.as_ref().or(self.model.as_ref());
        given.expect("one of them is required")
    }
}

/// What the first argument is where texts follow MODEL: with `-m`, the first text.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelAndTexts {
    /// `None`: none was given.
    pub(crate) model: Option<PathBuf>,
    pub(crate) texts: Vec<OsString>,
}

impl ModelAndTexts {
    /// Sorts the arguments: those by their places, and the model by its name.
    pub(crate) fn new(
        first: Option<OsString>,
        texts: Vec<OsString>,
        named: Option<PathBuf>,
    ) -> Self {
        match named {
            Some(model) => Self {
                model: Some(model),
                texts: first.into_iter().chain(texts).collect(),
            },
            None => Self {
                model: first.map(PathBuf::from),
                texts,
            },
        }
    }
}
