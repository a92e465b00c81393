//! From MODEL on the command line to a loaded model: a file, one that was pulled, or the one in the
//! program if none is named.

use std::{
    borrow::Cow,
    io::{self, Write},
    path::{Path, PathBuf},
};

#[cfg(feature = "survey")]
use atta::MemoryPlan;
use atta::{Engine, LoadOptions, ModelFiles, SessionOptions, WeightsAt};

use crate::{
    args::{ModelFlags, WeightsName},
    failure::{Failure, one_line},
    report,
};

/// What a build without that model says.
const NO_BUILT_IN: &str = "this build has no built-in model (feature `builtin`): name a GGUF file, as in `atta run model.gguf`";

/// How the model is to be loaded for a session, or what of it makes no sense for this one.
pub(crate) fn options(
    model: Option<&Path>,
    flags: &ModelFlags,
    session: SessionOptions,
) -> Result<LoadOptions, Failure> {
    let refuse = |why: &str| Err(Failure::Usage(why.to_owned()));
    match (model, flags.weights) {
        (None, _) if cfg!(not(feature = "builtin")) => refuse(NO_BUILT_IN),
        (None, _) if flags.prewarm => {
            refuse("--prewarm reads a file ahead, but the built-in model has none")
        }
        (_, Some(WeightsName::Resident)) if flags.prewarm => {
            refuse("--prewarm does not apply to --weights resident, which reads all weights anyway")
        }
        (_, Some(WeightsName::Streamed)) if flags.prewarm => {
            refuse("--prewarm does not apply to --weights streamed, which maps nothing")
        }
        _ if flags.edges_are_idle() => {
            refuse("--kv-edges is about layers that are not q4: give --kv q4")
        }
        _ => Ok(flags.load_options(session)),
    }
}

/// What a model's file holds, but for the weights.
pub(crate) fn files(model: Option<&Path>) -> Result<ModelFiles, Failure> {
    match model {
        Some(model) => Ok(ModelFiles::open(&locate(model)?).map_err(atta::Error::from)?),
        None => built_in_files(),
    }
}

/// Loads the model; warnings about it go to standard error.
pub(crate) fn engine(model: Option<&Path>, options: &LoadOptions) -> Result<Engine, Failure> {
    let path = model.map(locate).transpose()?;
    engine_at(path.as_deref(), options).map_err(|error| {
        #[cfg(feature = "survey")]
        if let Some(n_ctx) = longest_context(path.as_deref(), options, &error) {
            return Failure::Failed(format!(
                "{error}; the longest context that fits is -c {n_ctx}"
            ));
        }
        error.into()
    })
}

/// Contexts are tried in steps of so many tokens.
#[cfg(feature = "survey")]
const CONTEXT_STEP: usize = 64;

/// Tokens of a context at most, without `-c`.
#[cfg(feature = "survey")]
const DEFAULT_N_CTX: usize = 4096;

/// The longest context that would have fitted where the one that was asked for did not.
#[cfg(feature = "survey")]
fn longest_context(
    path: Option<&Path>,
    options: &LoadOptions,
    error: &atta::Error,
) -> Option<usize> {
    if !matches!(error, atta::Error::TooLittleMemory { .. }) {
        return None;
    }
    let fits = |n_steps: usize| {
        let session = SessionOptions {
            n_ctx: Some(n_steps * CONTEXT_STEP),
            ..options.session.clone()
        };
        plan(
            path,
            &LoadOptions {
                session,
                ..options.clone()
            },
        )
        .is_ok()
    };
    let asked = options.session.n_ctx.unwrap_or(DEFAULT_N_CTX);
    let (mut fit, mut too_long) = (0, asked.div_ceil(CONTEXT_STEP));
    while too_long - fit > 1 {
        let middle = fit.midpoint(too_long);
        if fits(middle) {
            fit = middle
        } else {
            too_long = middle
        }
    }
    (fit > 0).then_some(fit * CONTEXT_STEP)
}

/// What a model would take.
#[cfg(feature = "survey")]
pub(crate) fn plan(path: Option<&Path>, options: &LoadOptions) -> Result<MemoryPlan, atta::Error> {
    match path {
        Some(path) => MemoryPlan::of(path, options),
        #[cfg(feature = "builtin")]
        None => MemoryPlan::of_static(atta::builtin().name, atta::builtin().bytes, options),
        #[cfg(not(feature = "builtin"))]
        None => unreachable!("options refuses it"),
    }
}

/// The same of a file that is there.
pub(crate) fn engine_at(path: Option<&Path>, options: &LoadOptions) -> Result<Engine, atta::Error> {
    let engine = match path {
        Some(path) => Engine::open(path, options)?,
        None => built_in(options)?,
    };
    engine
        .tokenizer()
        .warnings()
        .iter()
        .for_each(|warning| warn(warning));
    if options.prewarm && engine.weights_at() != WeightsAt::Mapped {
        warn("--prewarm has no effect: the model does not fit into memory and is streamed");
    }
    report::shrunk(&engine);
    report::streaming(&engine);
    Ok(engine)
}

/// Warns of a context that was asked for and is longer than the model has ever seen.
#[cfg(feature = "comfort")]
pub(crate) fn warn_of_length(engine: &Engine, n_ctx: Option<usize>) {
    let n_train = engine.spec().n_ctx_train;
    if let Some(n_ctx) = n_ctx.filter(|&n_ctx| n_ctx > n_train && n_train > 0) {
        warn(&format!(
            "-c {n_ctx}: the model was trained for {n_train} positions, and beyond them its text gets worse"
        ));
    }
}

/// Programs for small boards have no room for that.
#[cfg(not(feature = "comfort"))]
pub(crate) fn warn_of_length(_: &Engine, _: Option<usize>) {}

/// What to call the model in messages.
pub(crate) fn name(model: Option<&Path>) -> String {
    model.map_or_else(
        || "the built-in model".to_owned(),
        |path| path.display().to_string(),
    )
}

/// The same as a path, for other programs.
pub(crate) fn path_name(model: Option<&Path>) -> Cow<'_, str> {
    model.map_or("built-in model".into(), Path::to_string_lossy)
}

/// A line on standard error that does not end the work.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "atta: warning: {}", one_line(message));
}

/// The file that MODEL names.
pub(crate) fn locate(model: &Path) -> Result<PathBuf, Failure> {
    #[cfg(feature = "comfort")]
    if !model.exists()
        && let Some(tip) = tip(model)
    {
        return Err(Failure::at(model, tip));
    }
    #[cfg(feature = "pull")]
    let path = crate::hub::locate(model)?;
    #[cfg(not(feature = "pull"))]
    let path = model.to_owned();
    // To open a pipe waits for its other end.
    match path.metadata() {
        Ok(meta) if !meta.is_file() && !meta.is_dir() => Err(Failure::at(
            model,
            "a pipe or a device, expected a GGUF file",
        )),
        _ => Ok(path),
    }
}

/// What may have been meant by a MODEL that is not there.
#[cfg(feature = "comfort")]
fn tip(model: &Path) -> Option<String> {
    let text = model.to_string_lossy();
    if text.contains(char::is_whitespace) && !text.ends_with(".gguf") {
        return Some("there is no such file; a text to continue is given with -p TEXT".to_owned());
    }
    let with_end = PathBuf::from(format!("{text}.gguf"));
    if with_end.exists() {
        return Some(format!("there is no such file, but {}", with_end.display()));
    }
    let is_plain = !text.contains(['/', '\\', ':']);
    let beside = models_beside(model).filter(|_| is_plain || text.ends_with(".gguf"));
    match (beside, is_plain && !text.ends_with(".gguf")) {
        (Some(names), _) => Some(format!("there is no such file; beside it there is {names}")),
        (None, true) => Some(
            "there is no such file; `atta pull ORG/REPO` gets a model from Hugging Face".to_owned(),
        ),
        (None, false) => None,
    }
}

/// How many models an error names.
#[cfg(feature = "comfort")]
const MAX_NAMED: usize = 3;

/// Models in the directory where one was looked for.
#[cfg(feature = "comfort")]
fn models_beside(model: &Path) -> Option<String> {
    let directory = model
        .parent()
        .filter(|path| !path.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let paths = std::fs::read_dir(directory)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    let models = paths.filter(|path| {
        path.extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
    });
    let mut names: Vec<String> = models.map(|path| path.display().to_string()).collect();
    names.sort();
    let more = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    (!names.is_empty()).then(|| names.join(", ") + &more)
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

#[cfg(feature = "builtin")]
fn built_in_files() -> Result<ModelFiles, Failure> {
    let atta::Builtin { name, bytes } = atta::builtin();
    Ok(ModelFiles::from_static(name, bytes).map_err(atta::Error::from)?)
}

#[cfg(not(feature = "builtin"))]
fn built_in_files() -> Result<ModelFiles, Failure> {
    Err(Failure::Usage(NO_BUILT_IN.to_owned()))
}

#[cfg(not(feature = "builtin"))]
fn built_in(_: &LoadOptions) -> Result<Engine, atta::Error> {
    unreachable!("options refuses it")
}
