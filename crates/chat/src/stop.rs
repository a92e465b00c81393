//! Finds the stop string of a template by rendering a probe.
//!
//! Usually an end-of-generation token follows an answer, and nothing is needed. But a vocabulary
//! may lack the token that the template writes, and then its text is a stop string.

use atta_tokenizer::{Special, Tokenizer};

use super::{
    message::{Conversation, Message},
    template::Template,
};

/// A user message, an answer and a user message, with texts that no template contains.
const SAID: [&str; 3] = ["atta7first", "atta7answer", "atta7second"];

/// The stop string that ends an answer; `None` where a token does.
pub(super) fn stop_text(tokenizer: &Tokenizer, template: &Template) -> Option<String> {
    let after = after_answer(template)?;
    let ids = tokenizer.encode(after.trim_start(), Special::Parse);
    if ids.first().is_some_and(|&id| tokenizer.is_eog(id)) {
        return None;
    }
    let line = first_line(&after);
    (!line.trim().is_empty()).then(|| line.to_owned())
}

/// Text between an answer and the next user message.
fn after_answer(template: &Template) -> Option<String> {
    let [first, answer, second] = SAID;
    let messages = [
        Message::user(first),
        Message::assistant(answer),
        Message::user(second),
    ];
    let text = template.render(&Conversation::probe(&messages)).ok()?;
    let (_, after) = text.split_once(answer)?;
    Some(after.split_once(second)?.0.to_owned())
}

/// Text up to the end of its first non-empty line.
fn first_line(text: &str) -> &str {
    let start = text.len() - text.trim_start().len();
    let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    text[..end].trim_end()
}

#[cfg(test)]
mod tests {
    use super::super::template::SpecialTexts;
    use super::*;

    #[test]
    fn what_follows_an_answer_is_found_in_the_template() {
        let after = |template: Template| first_line(&after_answer(&template).unwrap()).to_owned();
        assert_eq!(
            after(Template::chatml(SpecialTexts::default())),
            "<|im_end|>"
        );
        assert_eq!(after(Template::plain(SpecialTexts::default())), "\nUser:");
        let inst = "{% for m in messages %}\
                    {{ '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else m.content + '</s>' }}{% endfor %}";
        assert_eq!(
            after(Template::new(inst, SpecialTexts::default()).unwrap()),
            "</s>[INST]"
        );
        let alone = Template::new(
            "{{ raise_exception('no') if messages|length > 1 }}",
            SpecialTexts::default(),
        );
        assert_eq!(after_answer(&alone.unwrap()), None);
    }
}
