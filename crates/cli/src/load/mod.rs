//! From MODEL on the command line to a loaded model: a file, a pulled model, or the built-in one.

mod hints;

use std::{
    borrow::Cow,
    io::{self, Write},
    path::{Path, PathBuf},
};

use atta::{
    Builtin, Engine, Explain, LoadOptions, MemoryPlan, ModelFiles, SessionOptions, WeightsAt,
};

use crate::{
    EXTRAS,
    args::{ModelFlags, WeightsName, flag},
    failure::{Failure, one_line},
    hub, report,
};

pub(crate) use hints::warn_of_length;

/// The error of a build without the built-in model.
const NO_BUILT_IN: &str = "this build has no built-in model (feature `builtin`): name a GGUF file, \
                           as in `atta run model.gguf`";

/// The load options that the flags mean.
///
/// # Errors
/// Flags that have no effect together, or none on this model.
pub(crate) fn options(
    model: Option<&Path>,
    flags: &ModelFlags,
    session: SessionOptions,
) -> Result<LoadOptions, Failure> {
    let refuse = |why: &str| Err(Failure::Usage(why.to_owned()));
    match (model, flags.weights) {
        (None, _) if built_in().is_none() => refuse(NO_BUILT_IN),
        (None, _) if flags.prewarm => {
            refuse("--prewarm reads a file ahead, but the built-in model has none")
        }
        (None, _) if flags.verify => {
            refuse("--verify compares a file with its checksums, but the built-in model has none")
        }
        (_, Some(WeightsName::Resident)) if flags.prewarm => {
            refuse("--prewarm does not apply to --weights resident, which reads all weights anyway")
        }
        (_, Some(WeightsName::Streamed)) if flags.prewarm => {
            refuse("--prewarm does not apply to --weights streamed, which maps nothing")
        }
        _ if flags.edges_are_unused() => refuse("--kv-edges needs --kv q4"),
        _ => Ok(flags.load_options(session)),
    }
}

/// The built-in model, if this build has it.
fn built_in() -> Option<Builtin> {
    #[cfg(feature = "builtin")]
    let builtin = Some(atta::builtin());
    #[cfg(not(feature = "builtin"))]
    let builtin = None;
    builtin
}

/// The built-in model, after [`options`] has checked that this build has it.
fn checked_built_in() -> Builtin {
    built_in().expect("options refuses a build without it")
}

/// Opens a model file for its metadata and tensor directory.
pub(crate) fn files(model: Option<&Path>) -> Result<ModelFiles, Failure> {
    let files = match model {
        Some(model) => ModelFiles::open(&locate(model)?),
        None => {
            let Builtin { name, bytes } =
                built_in().ok_or_else(|| Failure::Usage(NO_BUILT_IN.to_owned()))?;
            ModelFiles::from_static(name, bytes)
        }
    };
    Ok(files.map_err(atta::Error::from)?)
}

/// Loads the model; warnings about it go to standard error.
pub(crate) fn engine(model: Option<&Path>, options: &LoadOptions) -> Result<Engine, Failure> {
    let path = model.map(locate).transpose()?;
    engine_at(path.as_deref(), options).map_err(|error| {
        match hints::longest_context(path.as_deref(), options, &error) {
            Some(n_ctx) => Failure::Failed(format!(
                "{}; the longest context that fits is -c {n_ctx}",
                error.explain(flag)
            )),
            None => error.into(),
        }
    })
}

/// Plans the memory of a model without loading it.
pub(crate) fn plan(path: Option<&Path>, options: &LoadOptions) -> Result<MemoryPlan, atta::Error> {
    match path {
        Some(path) => MemoryPlan::of(path, options),
        None => {
            let Builtin { name, bytes } = checked_built_in();
            MemoryPlan::of_static(name, bytes, options)
        }
    }
}

/// Loads the model of a located file.
pub(crate) fn engine_at(path: Option<&Path>, options: &LoadOptions) -> Result<Engine, atta::Error> {
    let engine = match path {
        Some(path) => Engine::open(path, options)?,
        None => {
            let Builtin { name, bytes } = checked_built_in();
            Engine::from_static(name, bytes, options)?
        }
    };
    engine
        .tokenizer()
        .warnings()
        .iter()
        .for_each(|warning| warn(warning));
    warn_of_assumptions(&engine);
    if options.prewarm && engine.weights_at() != WeightsAt::Mapped {
        warn("--prewarm has no effect: the model does not fit into memory and is streamed");
    }
    report::shrunk(&engine);
    report::reduced(&engine);
    report::streaming(&engine);
    Ok(engine)
}

/// Says what a plain QSF file leaves open and is assumed.
fn warn_of_assumptions(engine: &Engine) {
    let files = engine.model().weights().files();
    let assumed = files.directory().metadata().strs("qsf.assumed");
    for text in assumed.ok().flatten().iter().flat_map(|all| all.iter()) {
        warn(&format!("assumed: {}", String::from_utf8_lossy(text)));
    }
}

/// The name of the model in messages.
pub(crate) fn name(model: Option<&Path>) -> String {
    model.map_or_else(
        || "the built-in model".to_owned(),
        |path| path.display().to_string(),
    )
}

/// The name of the model in output for programs.
pub(crate) fn path_name(model: Option<&Path>) -> Cow<'_, str> {
    model.map_or("built-in model".into(), Path::to_string_lossy)
}

/// Prints a warning to standard error.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "atta: warning: {}", one_line(message));
}

/// The file that MODEL names.
pub(crate) fn locate(model: &Path) -> Result<PathBuf, Failure> {
    if EXTRAS
        && !model.exists()
        && let Some(tip) = hints::for_missing(model)
    {
        return Err(Failure::at(model, tip));
    }
    let path = hub::locate(model)?;
    // Opening a pipe would wait for its other end.
    match path.metadata() {
        Ok(meta) if meta.is_dir() => Err(Failure::at(
            &path,
            "is a directory: name a .gguf file, or make one by `atta convert`",
        )),
        Ok(meta) if !meta.is_file() => Err(Failure::at(
            model,
            "a pipe or a device, expected a GGUF file",
        )),
        _ => Ok(path),
    }
}
