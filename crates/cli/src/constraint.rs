//! `--json`, `--schema`, `--regex`, `--grammar`: the constraint that they mean, read from its file.

use std::path::Path;

use atta::{
    Constraint, GenerateOptions, LoadOptions, OnLength, OtherProperties, SchemaOptions, Strictness,
};

use crate::{
    args::constraint::{ConstraintFlags, JsonKind, OnLengthName},
    failure::Failure,
    input, load,
};

/// The options with the constraint that the flags choose.
///
/// # Errors
/// A file that cannot be read, and options that contradict each other.
pub(crate) fn apply(
    flags: &ConstraintFlags,
    options: GenerateOptions,
) -> Result<GenerateOptions, Failure> {
    if !flags.is_given() {
        return match flags.on_length {
            Some(_) => refuse("--on-length needs --json, --schema, --regex or --grammar"),
            None => Ok(options),
        };
    }
    if !options.stop.is_empty() {
        return refuse("--stop would cut constrained output: leave one of them out");
    }
    let on_length = match flags.on_length {
        None | Some(OnLengthName::Close) => OnLength::Close,
        Some(OnLengthName::Cut) => OnLength::Cut,
        Some(OnLengthName::Fail) => OnLength::Fail,
    };
    Ok(GenerateOptions {
        constraint: Some(constraint(flags)?),
        on_length,
        ..options
    })
}

/// The load options with memory reserved for the constraint of `options`.
pub(crate) fn reserve(load: LoadOptions, options: &GenerateOptions) -> LoadOptions {
    LoadOptions {
        constrained: options.constraint.is_some(),
        ..load
    }
}

fn refuse<T>(why: &str) -> Result<T, Failure> {
    Err(Failure::Usage(why.to_owned()))
}

fn constraint(flags: &ConstraintFlags) -> Result<Constraint, Failure> {
    if let Some(path) = &flags.schema {
        return schema(path, flags.schema_open);
    }
    if let Some(path) = &flags.grammar {
        return grammar(path);
    }
    Ok(match (&flags.regex, flags.json) {
        (Some(regex), _) => Constraint::Regex(regex.clone()),
        (None, Some(JsonKind::Value)) => Constraint::JsonValue,
        (None, _) => Constraint::JsonObject,
    })
}

/// The grammar in a file: GBNF or Lark by its extension, else by its rules.
fn grammar(path: &Path) -> Result<Constraint, Failure> {
    let text = input::read_text(path)?;
    let ends_in = |name: &str| path.extension().is_some_and(|extension| extension == name);
    // In Lark, `::=` occurs only in comments and strings.
    let is_gbnf = ends_in("gbnf") || (!ends_in("lark") && text.contains("::="));
    Ok(if is_gbnf {
        Constraint::Gbnf(text)
    } else {
        Constraint::Lark(text)
    })
}

/// The schema in a file. A keyword that cannot be enforced is an error.
fn schema(path: &Path, is_open: bool) -> Result<Constraint, Failure> {
    let others = if is_open {
        OtherProperties::Open
    } else {
        OtherProperties::Closed
    };
    let options = SchemaOptions {
        strictness: Strictness::Strict,
        others,
    };
    let (constraint, remarks) = Constraint::from_schema(&input::read_text(path)?, options)
        .map_err(|error| Failure::Failed(error.to_string()))?;
    remarks.iter().for_each(|remark| load::warn(remark));
    Ok(constraint)
}
