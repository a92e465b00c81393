//! From MODEL on the command line to a loaded model: a file, or the one in the program if none is named.

use std::{
    io::{self, Write},
    path::Path,
};

use atta::{Engine, LoadOptions};

use crate::{
    args::ModelFlags,
    failure::{Failure, one_line},
};

/// Loads the model; warnings about it go to standard error.
pub(crate) fn engine(model: Option<&Path>, flags: &ModelFlags) -> Result<Engine, Failure> {
    let options = flags.load_options();
    let engine = match model {
        Some(path) => Engine::open(path, &options)?,
        None => built_in(options)?,
    };
    engine.tokenizer().warnings().iter().for_each(|warning| warn(warning));
    Ok(engine)
}

/// What to call the model in messages.
pub(crate) fn name(model: Option<&Path>) -> String {
    model.map_or_else(|| "the built-in model".to_owned(), |path| path.display().to_string())
}

/// A line on standard error that does not end the work.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "atta: warning: {}", one_line(message));
}

#[cfg(feature = "builtin")]
fn built_in(mut options: LoadOptions) -> Result<Engine, Failure> {
    let atta::Builtin { name, bytes } = atta::builtin();
    if options.placement == atta::Placement::Mapped {
        return Ok(Engine::from_static(name, bytes, &options)?);
    }
    // Resident weights are a copy on the heap. It lives as long as the program, and so does its line in the account.
    let budget = options.budget.get_or_insert_with(atta::Budget::unlimited);
    std::mem::forget(budget.reserve("weights", bytes.len() as u64).map_err(atta::Error::from)?);
    Ok(Engine::from_static(name, bytes.to_vec().leak(), &options)?)
}

#[cfg(not(feature = "builtin"))]
fn built_in(_: LoadOptions) -> Result<Engine, Failure> {
    Err(Failure::Usage("this build has no built-in model: name a GGUF file, as in `atta run model.gguf`".to_owned()))
}
