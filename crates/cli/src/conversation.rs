//! Opens a conversation with a loaded model: its chat template, and the local time for the
//! template.

use std::{path::PathBuf, str::FromStr};

use atta::{
    Engine, SessionOptions,
    chat::{Chat, DateTime, Origin, Template, TemplateChoice},
};

use crate::{failure::Failure, input, load};

/// The argument of `--chat-template`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateName {
    Chatml,
    /// Lines with `User:` and `Assistant:`.
    Plain,
    /// A Jinja file.
    File(PathBuf),
}

impl FromStr for TemplateName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "chatml" => Ok(Self::Chatml),
            "plain" => Ok(Self::Plain),
            path if path.contains(['/', '\\', '.']) => Ok(Self::File(path.into())),
            _ => Err(
                "expected chatml, plain, or a file with a template in Jinja, such as ./chat.jinja"
                    .to_owned(),
            ),
        }
    }
}

/// Opens an empty conversation with the given template, else the file's, else a guess.
pub(crate) fn open(
    engine: &Engine,
    session: &SessionOptions,
    template: Option<&TemplateName>,
) -> Result<Chat, Failure> {
    let template = choose(engine, template)?;
    let mut chat = Chat::new(engine.session(session)?, template);
    chat.set_now(Some(local_now()));
    Ok(chat)
}

/// The local time, as `datetime.now()` in transformers.
pub(crate) fn local_now() -> DateTime {
    let now = chrono::Local::now();
    let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
    DateTime::from_unix_with_offset(seconds, now.offset().local_minus_utc())
}

/// The template choice that `--chat-template` means.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn choice(name: Option<&TemplateName>) -> Result<TemplateChoice, Failure> {
    Ok(match name {
        None => TemplateChoice::Model,
        Some(TemplateName::Chatml) => TemplateChoice::ChatMl,
        Some(TemplateName::Plain) => TemplateChoice::Plain,
        Some(TemplateName::File(path)) => TemplateChoice::Source(input::read_text(path)?),
    })
}

fn choose(engine: &Engine, name: Option<&TemplateName>) -> Result<Template, Failure> {
    let found = choice(name)?.template(&engine.templates());
    let (template, origin) = found.map_err(|error| match name {
        Some(TemplateName::File(path)) => Failure::at(path, error),
        _ => Failure::Failed(format!("{error}; see --chat-template")),
    })?;
    explain(origin);
    Ok(template)
}

/// Warns of a guessed template.
fn explain(origin: Origin) {
    let format = match origin {
        Origin::File | Origin::Choice => return,
        Origin::ChatMl => "messages are written as ChatML, whose markers its vocabulary has",
        Origin::Plain => "messages become lines with `User:` and `Assistant:`",
    };
    load::warn(&format!(
        "this model may not be made for chat: it has no chat template, so that {format}; \
         another way can be chosen with --chat-template"
    ));
}
