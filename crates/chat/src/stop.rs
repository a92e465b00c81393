//! What ends an answer, found by looking at what a template writes after one.
//!
//! Knows templates and the ends of generations. Mostly that is a token after which every generation
//! ends, and there is nothing to do; but a vocabulary may lack the token that a template writes,
//! and then its text is what has to be watched for.

use atta_tokenizer::{Special, Tokenizer};

use super::{
    message::{Conversation, Message},
    template::Template,
};

/// A user, an answer, and a user again, in words that no template writes.
const SAID: [&str; 3] = ["atta7first", "atta7answer", "atta7second"];

/// The text that has to end an answer, because no token does.
pub(super) fn stop_text(tokenizer: &Tokenizer, template: &Template) -> Option<String> {
    let after = after_answer(template)?;
    let ids = tokenizer.encode(after.trim_start(), Special::Parse);
    if ids.first().is_some_and(|&id| tokenizer.is_eog(id)) {
        return None;
    }
    let line = first_line(&after);
    (!line.trim().is_empty()).then(|| line.to_owned())
}

/// What stands between an answer and what is said next.
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

/// Up to the end of the first line that is not empty.
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
