//! Encodes rendered conversations: only the template may write special tokens.
//!
//! A template produces one string, in which special tokens are recognized by their text. Wherever a
//! message contains such a text, a noncharacter (the mark) is inserted before rendering; the result
//! is split at the marks and encoded in pieces.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use atta_tokenizer::{Special, TokenKind, Tokenizer};
use serde_json::Value;

use super::{
    message::{Conversation, Message, Role},
    template::{SENTINEL, SpecialTexts, Template, TemplateError},
};
use crate::tools::{CallFormat, ToolCall};

/// A conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Output of the template.
    pub text: String,
    /// Its tokens, with begin-of-sequence where the vocabulary wants it.
    pub ids: Vec<u32>,
}

/// Renders and encodes a conversation. Nothing in its messages, tools or variables becomes a
/// special token, except tags of thinking and calls in the model's own messages.
///
/// # Errors
/// Those of [`Template::render`].
pub fn prompt_ids(
    tokenizer: &Tokenizer,
    template: &Template,
    conversation: &Conversation<'_>,
) -> Result<Prompt, TemplateError> {
    let guard = Guard::new(tokenizer, template);
    let marked = guard.render(template, conversation)?;
    let ids = guard.encode(tokenizer, &marked);
    Ok(Prompt {
        text: marked.replace(SENTINEL, ""),
        ids,
    })
}

impl SpecialTexts {
    /// The special texts of a vocabulary.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let text =
            |id: Option<u32>| Some(String::from_utf8_lossy(tokenizer.token_text(id?)).into_owned());
        let [bos, eos] = [tokenizer.bos(), tokenizer.eos()].map(text);
        Self {
            bos,
            eos,
            unknown: text(tokenizer.unknown()),
            padding: text(tokenizer.padding()),
        }
    }
}

/// Texts of tokens that only the template may write.
pub(super) struct Guard {
    /// Those to mark in messages of the model.
    control: Specials,
    /// Those to mark everywhere else.
    all: Specials,
}

impl Guard {
    /// Collects the control tokens and those user-defined tokens that look like template syntax:
    /// `<|…|>`, and tokens that this template names. Other user-defined tokens, such as runs of
    /// spaces or HTML tags, are ordinary text.
    pub(super) fn new(tokenizer: &Tokenizer, template: &Template) -> Self {
        let sources = [template.source(false), template.source(true)];
        // Templates do not look for them in answers.
        let delimiters = match CallFormat::of_template(sources[1]) {
            CallFormat::Harmony => CallFormat::Harmony.markers(),
            _ => &[],
        };
        let is_bracketed =
            |text: &str| (text.starts_with("<|") || text.starts_with("<｜")) && text.ends_with('>');
        let is_named = |text: &str| {
            !text.trim().is_empty() && sources.iter().any(|source| source.contains(text))
        };
        let mut control = Specials::default();
        let mut all = Specials::default();
        for id in 0..tokenizer.n_vocab() as u32 {
            let kind = tokenizer.kind(id);
            let Ok(text) = str::from_utf8(tokenizer.token_text(id)) else {
                continue;
            };
            let is_tag = matches!(text, "<think>" | "</think>");
            match kind {
                _ if text.is_empty() => continue,
                TokenKind::Control | TokenKind::Unknown if !is_tag => control.insert(text),
                TokenKind::Control | TokenKind::Unknown => {}
                TokenKind::UserDefined if delimiters.contains(&text) => control.insert(text),
                TokenKind::UserDefined if is_bracketed(text) || is_named(text) => {}
                _ => continue,
            }
            all.insert(text);
        }
        Self { control, all }
    }

    /// The tokens of a rendered text, with begin-of-sequence once where the vocabulary wants it.
    pub(super) fn encode(&self, tokenizer: &Tokenizer, marked: &str) -> Vec<u32> {
        let pieces = self.all.pieces(marked);
        let (first, rest) = pieces
            .split_first()
            .map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let mut ids = tokenizer.encode(first, Special::Parse);
        ids.extend(
            rest.iter()
                .flat_map(|piece| tokenizer.encode_after(piece, Special::Parse)),
        );
        let Some(bos) = tokenizer.bos() else {
            return ids;
        };
        let n_first = ids.iter().take_while(|&&id| id == bos).count();
        if n_first == 0 && tokenizer.add_bos() {
            ids.insert(0, bos);
        }
        ids.drain(..n_first.saturating_sub(1));
        ids
    }

    /// The tokens of a later part of a rendered text.
    pub(super) fn continued(&self, tokenizer: &Tokenizer, marked: &str) -> Vec<u32> {
        let pieces = self.all.pieces(marked);
        pieces
            .iter()
            .flat_map(|piece| tokenizer.encode_after(piece, Special::Parse))
            .collect()
    }

    /// Renders a conversation with marks in it.
    pub(super) fn render(
        &self,
        template: &Template,
        conversation: &Conversation<'_>,
    ) -> Result<String, TemplateError> {
        let messages: Vec<Message> = conversation
            .messages
            .iter()
            .map(|message| self.message(message))
            .collect();
        let tools: Vec<Value> = conversation
            .tools
            .iter()
            .map(|tool| value_marked(tool, &self.all))
            .collect();
        let extra = conversation
            .extra
            .iter()
            .map(|(name, value)| (name.clone(), value_marked(value, &self.all)));
        let messages = &messages[..];
        let tools = &tools[..];
        let extra = extra.collect();
        template.render(&Conversation {
            messages,
            tools,
            extra,
            ..*conversation
        })
    }

    /// Marks an answer of the model: only inside complete special texts, because templates search
    /// answers for tags.
    pub(super) fn answer(&self, text: &str) -> String {
        self.control.marked_where_found(text)
    }

    fn message(&self, message: &Message) -> Message {
        let is_answer = message.role == Role::Assistant;
        let mark = |text: &String| {
            if is_answer {
                self.answer(text)
            } else {
                self.all.marked(text)
            }
        };
        let call = |call: &ToolCall| ToolCall {
            id: mark(&call.id),
            name: mark(&call.name),
            arguments: value_marked(&call.arguments, &self.all),
        };
        Message {
            role: message.role,
            content: mark(&message.content),
            reasoning: message.reasoning.as_ref().map(mark),
            tool_calls: message.tool_calls.iter().map(call).collect(),
            tool_call_id: message.tool_call_id.as_ref().map(mark),
            name: message.name.as_ref().map(mark),
        }
    }
}

/// Marks all strings of a value, including keys.
fn value_marked(value: &Value, texts: &Specials) -> Value {
    match value {
        Value::String(text) => texts.marked(text).into(),
        Value::Array(items) => items.iter().map(|item| value_marked(item, texts)).collect(),
        Value::Object(pairs) => pairs
            .iter()
            .map(|(key, item)| (texts.marked(key), value_marked(item, texts)))
            .collect(),
        other => other.clone(),
    }
}

/// A set of texts to search for. A vocabulary may have thousands, but few lengths and few first
/// characters.
#[derive(Default)]
struct Specials {
    by_bytes: BTreeMap<usize, HashSet<String>>,
    first: HashSet<char>,
    /// First characters, and punctuation inside.
    telling: HashSet<char>,
}

impl Specials {
    fn insert(&mut self, text: &str) {
        self.first.extend(text.chars().next());
        self.telling.extend(text.chars().next());
        let is_telling =
            |c: &char| !c.is_alphanumeric() && !c.is_whitespace() && !matches!(c, '_' | '-' | '.');
        self.telling.extend(text.chars().filter(is_telling));
        self.by_bytes
            .entry(text.len())
            .or_default()
            .insert(text.to_owned());
    }

    /// Inserts a mark after every character that could belong to a special text, whatever the
    /// template makes of it.
    fn marked(&self, text: &str) -> String {
        self.with_marks(text, |_, c| self.telling.contains(&c))
    }

    /// Inserts a mark after the first character of each special text, and at the end if the text
    /// ends with the beginning of one, which the template might complete.
    fn marked_where_found(&self, text: &str) -> String {
        let mut out = self.with_marks(text, |rest, c| {
            self.first.contains(&c) && self.lengths(rest).next().is_some()
        });
        if self
            .by_bytes
            .values()
            .flatten()
            .any(|special| ends_with_part(text, special))
        {
            out.push(SENTINEL);
        }
        out
    }

    /// Inserts a mark after each character that `is_marked` selects, given the text from there on.
    fn with_marks(&self, text: &str, is_marked: impl Fn(&str, char) -> bool) -> String {
        let text = text.replace(SENTINEL, "\u{FFFD}");
        let mut out = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            out.push(c);
            if is_marked(&text[at..], c) {
                out.push(SENTINEL);
            }
        }
        out
    }

    /// Lengths in bytes of the special texts that begin here.
    fn lengths(&self, text: &str) -> impl Iterator<Item = usize> {
        let sets = self.by_bytes.iter().map(|(&n, specials)| (n, specials));
        let begins =
            sets.filter(|(n, specials)| text.get(..*n).is_some_and(|part| specials.contains(part)));
        begins.map(|(n, _)| n)
    }

    /// Removes the marks and splits the text after the first character of each special text that
    /// contained one.
    fn pieces(&self, marked: &str) -> Vec<String> {
        let mut text = String::with_capacity(marked.len());
        // Ends of characters that a message contributed.
        let mut marks = BTreeSet::new();
        for part in marked.split_inclusive(SENTINEL) {
            text.push_str(part.strip_suffix(SENTINEL).unwrap_or(part));
            if part.ends_with(SENTINEL) {
                marks.insert(text.len());
            }
        }
        let is_foreign = |at: usize| {
            let lengths = || self.lengths(&text[at..]);
            self.first
                .contains(&text[at..].chars().next().unwrap_or_default())
                && lengths().any(|n| marks.range(at + 1..=at + n).next().is_some())
        };
        let found = text
            .char_indices()
            .filter(|(at, _)| is_foreign(*at))
            .map(|(at, c)| at + c.len_utf8());
        let cuts: Vec<usize> = [0].into_iter().chain(found).chain([text.len()]).collect();
        let pieces = cuts.windows(2).map(|cut| text[cut[0]..cut[1]].to_owned());
        pieces.filter(|piece| !piece.is_empty()).collect()
    }
}

/// Whether a text ends with a beginning of `special`.
fn ends_with_part(text: &str, special: &str) -> bool {
    special
        .char_indices()
        .skip(1)
        .any(|(n, _)| text.ends_with(&special[..n]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specials() -> Specials {
        let mut specials = Specials::default();
        ["<|a|>", "</s>"]
            .iter()
            .for_each(|text| specials.insert(text));
        specials
    }

    #[test]
    fn in_an_answer_only_special_texts_are_marked() {
        for (text, want) in [
            ("plain < text", "plain < text"),
            ("x<|a|>y", "x<\u{FDD0}|a|>y"),
            ("<<|a|></s>", "<<\u{FDD0}|a|><\u{FDD0}/s>"),
            ("ends <|a", "ends <|a\u{FDD0}"),
            ("was \u{FDD0} there", "was \u{FFFD} there"),
            ("é</s>é", "é<\u{FDD0}/s>é"),
        ] {
            assert_eq!(specials().marked_where_found(text), want);
        }
    }

    #[test]
    fn special_texts_are_cut_where_any_of_it_is_somebody_elses() {
        let marked = |text: &str| specials().marked(text);
        for (rendered, want) in [
            ("<|a|>x</s>".to_owned(), vec!["<|a|>x</s>"]),
            (marked("x<|a|>y < z"), vec!["x<", "|a|>y < z"]),
            (format!("<{}>", marked("|a|")), vec!["<", "|a|>"]),
            (format!("{}|a|>", marked("<")), vec!["<", "|a|>"]),
            (format!("<|a{}", marked("|>")), vec!["<", "|a|>"]),
            (marked("<|xa|>").replace('x', ""), vec!["<", "|a|>"]),
            (
                format!("{}<|a|>{}", marked("<"), marked("|>")),
                vec!["<<|a|>|>"],
            ),
            (String::new(), vec![]),
        ] {
            assert_eq!(specials().pieces(&rendered), want, "{rendered:?}");
        }
    }
}
