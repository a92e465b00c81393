//! From a loaded model to a conversation: which template it is held in, and what time it is.

use atta::{
    Engine, SessionOptions,
    chat::{Chat, DateTime, Origin, SpecialTexts, Template},
};

use crate::{args::TemplateChoice, failure::Failure, input, load};

/// An empty conversation, in the template that was asked for, else the file's, else one that might do.
pub(crate) fn open(
    engine: &Engine,
    session: &SessionOptions,
    template: Option<&TemplateChoice>,
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

fn choose(engine: &Engine, choice: Option<&TemplateChoice>) -> Result<Template, Failure> {
    let texts = SpecialTexts::of(engine.tokenizer());
    match choice {
        Some(TemplateChoice::Chatml) => Ok(Template::chatml(texts)),
        Some(TemplateChoice::Plain) => Ok(Template::plain(texts)),
        Some(TemplateChoice::File(path)) => {
            let source = input::read_text(path)?;
            Template::new(&source, texts).map_err(|error| Failure::at(path, error))
        }
        None => {
            let found = Template::of_engine(engine);
            let (template, origin) = found.map_err(|error| Failure::Failed(format!("{error}; see --chat-template")))?;
            explain(origin);
            Ok(template)
        }
    }
}

/// Says what is done where the file has no template.
fn explain(origin: Origin) {
    let written = match origin {
        Origin::File => return,
        Origin::ChatMl => "messages are written as ChatML, whose markers its vocabulary has",
        Origin::Plain => "messages become lines with `User:` and `Assistant:`",
    };
    load::warn(&format!(
        "this model may not be made for chat: it has no chat template, so that {written}; another way can be chosen with \
         --chat-template"
    ));
}
