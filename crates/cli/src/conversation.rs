//! From a loaded model to a conversation: which template it is held in, and what time it is.

use atta::{
    Engine, SessionOptions,
    chat::{Chat, DateTime, Origin, Template, TemplateChoice},
};

use crate::{args::TemplateName, failure::Failure, input, load};

/// An empty conversation, in the template that was asked for, else the file's, else one that might
/// do.
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

/// The time on the user's clock, as `datetime.now()` in transformers.
fn local_now() -> DateTime {
    let now = chrono::Local::now();
    let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
    DateTime::from_unix_with_offset(seconds, now.offset().local_minus_utc())
}

/// The chosen chat template.
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

/// Says what is done where the file has no template.
fn explain(origin: Origin) {
    let written = match origin {
        Origin::File | Origin::Choice => return,
        Origin::ChatMl => "messages are written as ChatML, whose markers its vocabulary has",
        Origin::Plain => "messages become lines with `User:` and `Assistant:`",
    };
    load::warn(&format!(
        "this model may not be made for chat: it has no chat template, so that {written}; another way can be chosen with \
         --chat-template"
    ));
}
