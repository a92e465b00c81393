//! Hints for the user of a model: a tip where MODEL does not exist, the longest context that fits,
//! a warning of a context beyond the training length.
//!
//! Builds without the features `cli-extras` and `analyze` give none.

use std::path::{Path, PathBuf};

use atta::{DEFAULT_N_CTX, Engine, LoadOptions, SessionOptions};

use super::{plan, warn};
use crate::EXTRAS;

/// Context lengths are tried in steps of this many tokens.
const CONTEXT_STEP: usize = 64;

/// The program's private memory differs by some pages from run to run, and the next run shall fit.
const MARGIN_BYTES: u64 = 256 << 10;

/// The longest context that fits into memory, after an error because the requested one does not.
pub(super) fn longest_context(
    path: Option<&Path>,
    options: &LoadOptions,
    error: &atta::Error,
) -> Option<usize> {
    if !cfg!(feature = "analyze") || !matches!(error, atta::Error::TooLittleMemory { .. }) {
        return None;
    }
    let fits = |n_steps: usize| {
        let session = SessionOptions {
            n_ctx: Some(n_steps * CONTEXT_STEP),
            ..options.session.clone()
        };
        let options = LoadOptions {
            session,
            spare_bytes: options.spare_bytes + MARGIN_BYTES,
            ..options.clone()
        };
        plan(path, &options).is_ok()
    };
    let requested = options.session.n_ctx.unwrap_or(DEFAULT_N_CTX);
    let mut fit = 0;
    let mut too_long = requested.div_ceil(CONTEXT_STEP);
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

/// Warns of a context that was asked for and is longer than the model was trained for.
pub(crate) fn warn_of_length(engine: &Engine, n_ctx: Option<usize>) {
    let n_train = engine.spec().n_ctx_train;
    let is_beyond = |n_ctx: &usize| EXTRAS && n_train > 0 && *n_ctx > n_train;
    if let Some(n_ctx) = n_ctx.filter(is_beyond) {
        warn(&format!(
            "-c {n_ctx}: the model was trained for {n_train} positions, and beyond them its text \
             gets worse"
        ));
    }
}

/// A tip for a MODEL that does not exist.
pub(super) fn for_missing(model: &Path) -> Option<String> {
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

/// The most models that an error names.
const MAX_NAMED: usize = 3;

fn is_model(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}

/// The names of the models in the directory of a MODEL that does not exist.
fn models_beside(model: &Path) -> Option<String> {
    let directory = model
        .parent()
        .filter(|path| !path.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let models = std::fs::read_dir(directory)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_model(path));
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
