//! From MODEL on the command line to a loaded model: a file, one that was pulled, or the one in the program if none is
//! named.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use atta::{Engine, LoadOptions, SessionOptions, WeightsAt};

use crate::{
    args::{ModelFlags, WeightsName},
    failure::{Failure, one_line},
    report,
};

/// How the model is to be loaded for a session, or what of it makes no sense for this one.
pub(crate) fn options(
    model: Option<&Path>,
    flags: &ModelFlags,
    session: SessionOptions,
) -> Result<LoadOptions, Failure> {
    let refuse = |why: &str| Err(Failure::Usage(why.to_owned()));
    match (model, flags.weights) {
        (None, _) if cfg!(not(feature = "builtin")) => refuse(
            "this build has no built-in model (feature `builtin`): name a GGUF file, as in `atta run model.gguf`",
        ),
        (None, _) if flags.prewarm => refuse("--prewarm reads a file ahead, but the built-in model has none"),
        (_, Some(WeightsName::Resident)) if flags.prewarm => {
            refuse("--prewarm does not apply to --weights resident, which reads all weights anyway")
        }
        (_, Some(WeightsName::Streamed)) if flags.prewarm => {
            refuse("--prewarm does not apply to --weights streamed, which maps nothing")
        }
        _ if flags.edges_are_idle() => refuse("--kv-edges is about layers that are not q4: give --kv q4"),
        _ => Ok(flags.load_options(session)),
    }
}

/// Loads the model; warnings about it go to standard error.
pub(crate) fn engine(model: Option<&Path>, options: &LoadOptions) -> Result<Engine, Failure> {
    let path = model.map(locate).transpose()?;
    Ok(engine_at(path.as_deref(), options)?)
}

/// The same of a file that is there.
pub(crate) fn engine_at(path: Option<&Path>, options: &LoadOptions) -> Result<Engine, atta::Error> {
    let engine = match path {
        Some(path) => Engine::open(path, options)?,
        None => built_in(options)?,
    };
    engine.tokenizer().warnings().iter().for_each(|warning| warn(warning));
    if options.prewarm && engine.weights_at() != WeightsAt::Mapped {
        warn("--prewarm has no effect: the model does not fit into memory and is streamed");
    }
    report::shrunk(&engine);
    report::streaming(&engine);
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

/// The file that MODEL names.
#[cfg(feature = "pull")]
pub(crate) fn locate(model: &Path) -> Result<PathBuf, Failure> {
    crate::hub::locate(model)
}

/// The file that MODEL names.
#[cfg(not(feature = "pull"))]
pub(crate) fn locate(model: &Path) -> Result<PathBuf, Failure> {
    Ok(model.to_owned())
}

/// The file or directory that SRC names: one that is there, or what was pulled of a repository.
#[cfg(feature = "convert")]
pub(crate) fn locate_source(source: &Path) -> Result<PathBuf, Failure> {
    #[cfg(feature = "pull")]
    let source = crate::hub::locate_source(source)?;
    #[cfg(not(feature = "pull"))]
    let source = source.to_owned();
    Ok(source)
}

#[cfg(feature = "builtin")]
fn built_in(options: &LoadOptions) -> Result<Engine, atta::Error> {
    let atta::Builtin { name, bytes } = atta::builtin();
    Engine::from_static(name, bytes, options)
}

#[cfg(not(feature = "builtin"))]
fn built_in(_: &LoadOptions) -> Result<Engine, atta::Error> {
    unreachable!("options refuses it")
}
