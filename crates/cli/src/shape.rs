//! `--json`, `--schema`, `--regex`, `--grammar`: what the text must look like, from the files that
//! say so.
//!
//! A build without the feature `constrain` has the options, and refuses them by the name of the
//! feature.

use atta::{GenerateOptions, LoadOptions};

use crate::{args::ShapeFlags, failure::Failure};

/// The options with what is asked for here.
///
/// # Errors
/// A file that cannot be read, and options that contradict each other.
pub(crate) fn apply(
    flags: &ShapeFlags,
    options: GenerateOptions,
) -> Result<GenerateOptions, Failure> {
    if !flags.is_given() {
        return match flags.on_length {
            Some(_) => refuse(
                "--on-length is about --json, --schema, --regex or --grammar: give one of them",
            ),
            None => Ok(options),
        };
    }
    if !options.stop.is_empty() {
        return refuse(
            "--stop would cut a text that must be whole: leave it away, or take the shape of the text away",
        );
    }
    constrained(flags, options)
}

/// The same with memory kept free for that.
pub(crate) fn keep_free(load: LoadOptions, options: &GenerateOptions) -> LoadOptions {
    #[cfg(feature = "constrain")]
    let load = LoadOptions {
        constrained: options.constraint.is_some(),
        ..load
    };
    #[cfg(not(feature = "constrain"))]
    let _ = options;
    load
}

fn refuse<T>(why: &str) -> Result<T, Failure> {
    Err(Failure::Usage(why.to_owned()))
}

#[cfg(not(feature = "constrain"))]
fn constrained(_: &ShapeFlags, _: GenerateOptions) -> Result<GenerateOptions, Failure> {
    refuse("this build writes no constrained texts: it was made without the feature `constrain`")
}

#[cfg(feature = "constrain")]
fn constrained(flags: &ShapeFlags, options: GenerateOptions) -> Result<GenerateOptions, Failure> {
    use crate::args::OnLengthName;
    use atta::OnLength;
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

#[cfg(feature = "constrain")]
fn constraint(flags: &ShapeFlags) -> Result<atta::Constraint, Failure> {
    use crate::{args::JsonKind, input};
    use atta::Constraint;
    if let Some(path) = &flags.schema {
        return schema(path, flags.schema_open);
    }
    if let Some(path) = &flags.grammar {
        let text = input::read_text(path)?;
        let is_called = |name: &str| path.extension().is_some_and(|extension| extension == name);
        // In Lark only a comment or a string has the sign.
        let is_gbnf = is_called("gbnf") || (!is_called("lark") && text.contains("::="));
        return Ok(if is_gbnf {
            Constraint::Gbnf(text)
        } else {
            Constraint::Lark(text)
        });
    }
    Ok(match (&flags.regex, flags.json) {
        (Some(regex), _) => Constraint::Regex(regex.clone()),
        (None, Some(JsonKind::Value)) => Constraint::JsonValue,
        (None, _) => Constraint::JsonObject,
    })
}

/// The schema in a file. What cannot be kept to is an error.
#[cfg(feature = "constrain")]
fn schema(path: &std::path::Path, is_open: bool) -> Result<atta::Constraint, Failure> {
    use atta::{Constraint, OtherProperties, SchemaOptions, Strictness};
    let others = if is_open {
        OtherProperties::Open
    } else {
        OtherProperties::Closed
    };
    let options = SchemaOptions {
        strictness: Strictness::Strict,
        others,
    };
    let (constraint, remarks) = Constraint::from_schema(&crate::input::read_text(path)?, options)
        .map_err(|error| Failure::Failed(error.to_string()))?;
    remarks.iter().for_each(|remark| crate::load::warn(remark));
    Ok(constraint)
}
