//! Chat templates: Jinja programs that render a conversation for a model.
//!
//! The result is that of `apply_chat_template` of Hugging Face transformers, byte for byte, errors
//! as errors. A template is untrusted code, so its size and nesting are limited, and it has an
//! allowance of instructions, bytes, and parts of the values it builds. Knows no tokens, files or
//! clock.

mod budget;
mod json;
mod python;
mod source;
mod strftime;

use std::sync::Arc;

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    syntax::SyntaxConfig,
    value::{Kwargs, Rest, Serde, ValueKind},
};
use serde_json::{Map, json};

pub use strftime::DateTime;

use self::budget::{Budget, InputSize, is_namespace, refused};
use super::message::{Conversation, Message};

/// The mark inserted into texts that the template only passes on: a noncharacter.
pub(super) const SENTINEL: char = '\u{FDD0}';

/// Fuel of one rendering: an instruction costs one unit, as do 64 bytes. A message takes a few
/// hundred units.
const FUEL: u64 = 100_000;
/// Additional fuel for each byte of the conversation.
const FUEL_PER_BYTE: u64 = 4;
/// Additional fuel for each pair of messages: Gemma 4 looks back over the whole conversation for
/// each message.
const FUEL_PER_PAIR: u64 = 8;
/// Cap on the pairs of messages that add to the limits, so that the limits stay bounded.
const MAX_PAIRS: u64 = 4_100 * 4_100;
/// Fuel for formatting a date, in addition to that for each byte of its format.
const FUEL_PER_DATE: u64 = 20;
/// Bytes that a string method scans per instruction.
const BYTES_PER_FUEL: u64 = 64;
/// Maximum nesting of macro calls and loops; a call counts four.
const MAX_RECURSION: usize = 200;
/// Name of the template in error messages of the interpreter.
const NAME: &str = "chat template";

/// What went wrong with a template.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template exceeds a size limit.
    #[error("the chat template has more than {limit} {what}")]
    TooLarge {
        /// The quantity.
        what: &'static str,
        /// Its limit.
        limit: usize,
    },
    /// The template is not valid Jinja.
    #[error("the chat template cannot be read: {0}")]
    Syntax(String),
    /// The template refuses the conversation, by `raise_exception`.
    #[error("{0}")]
    Raised(String),
    /// The template failed, or exceeded its allowance.
    #[error("the chat template failed: {0}")]
    Failed(String),
}

impl TemplateError {
    /// Whether a repaired conversation might be accepted; a template that ran out of fuel is not
    /// tried again.
    pub(super) fn may_be_repaired(&self) -> bool {
        match self {
            Self::Raised(_) => true,
            Self::Failed(why) => why != TOO_LONG,
            Self::TooLarge { .. } | Self::Syntax(_) => false,
        }
    }
}

/// Error message of a template that ran out of fuel.
const TOO_LONG: &str = "it takes too long";

/// Texts of the special tokens that templates write, where the vocabulary has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTexts {
    /// `bos_token`: begin of sequence.
    pub bos: Option<String>,
    /// `eos_token`: end of sequence.
    pub eos: Option<String>,
    /// `unk_token`: unknown token.
    pub unknown: Option<String>,
    /// `pad_token`: padding.
    pub padding: Option<String>,
}

/// How a template expects the content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// As a string.
    Text,
    /// As a list with one part `{"type": "text", …}`.
    Parts,
}

/// A chat template, with a second one for conversations with tools if there is one.
#[derive(Clone, Debug)]
pub struct Template {
    program: Program,
    with_tools: Option<Program>,
    texts: SpecialTexts,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`] and [`TemplateError::TooLarge`].
    pub fn new(source: &str, texts: SpecialTexts) -> Result<Self, TemplateError> {
        Ok(Self {
            program: Program::new(source, &texts)?,
            with_tools: None,
            texts,
        })
    }

    /// Adds a template for conversations with tools.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_tool_use(self, source: &str) -> Result<Self, TemplateError> {
        Ok(Self {
            with_tools: Some(Program::new(source, &self.texts)?),
            ..self
        })
    }

    /// Passes an empty list of tools where there are none, if the template fails otherwise:
    /// templates written for tools iterate over `tools` without testing that it is defined.
    pub(super) fn with_empty_tools(mut self) -> Self {
        let messages = [Message::user(PROBE)];
        let conversation = Conversation::probe(&messages);
        if self.render(&conversation).is_err() {
            let mut program = Program {
                no_tools: json!([]),
                ..self.program.clone()
            };
            program.contents = program.probe(&self.texts);
            if program.render(&conversation, &self.texts).is_ok() {
                self.program = program;
            }
        }
        self
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// [`TemplateError::Raised`] if the template refuses the conversation,
    /// [`TemplateError::Failed`] if it fails or exceeds its allowance.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<String, TemplateError> {
        self.program(conversation).render(conversation, &self.texts)
    }

    /// The source; with tools, that of the template for tools.
    pub fn source(&self, with_tools: bool) -> &str {
        let program = self
            .with_tools
            .as_ref()
            .filter(|_| with_tools)
            .unwrap_or(&self.program);
        &program.source
    }

    fn program(&self, conversation: &Conversation<'_>) -> &Program {
        self.with_tools
            .as_ref()
            .filter(|_| !conversation.tools.is_empty())
            .unwrap_or(&self.program)
    }
}

/// A text that no template contains.
const PROBE: &str = "atta7probe";

#[derive(Clone, Debug)]
struct Program {
    source: String,
    /// The source, rewritten for the interpreter.
    rewritten: String,
    contents: Contents,
    /// Value of `tools` where there are none.
    no_tools: serde_json::Value,
}

impl Program {
    fn new(source: &str, texts: &SpecialTexts) -> Result<Self, TemplateError> {
        let rewritten = source::rewrite(source)?;
        let source = source.to_owned();
        let contents = Contents::Text;
        let no_tools = json!(null);
        let mut program = Self {
            source,
            rewritten,
            contents,
            no_tools,
        };
        environment(&Arc::new(Budget::new(InputSize::default())), None)
            .add_template(NAME, &program.rewritten)
            .map_err(|error| TemplateError::Syntax(error.to_string()))?;
        program.contents = program.probe(texts);
        Ok(program)
    }

    /// Content as a string, unless the template only writes parts.
    fn probe(&self, texts: &SpecialTexts) -> Contents {
        let messages = [Message::user(PROBE)];
        let conversation = Conversation::probe(&messages);
        let gets_through = |contents| {
            let program = Self {
                contents,
                ..self.clone()
            };
            let text = program.render(&conversation, texts).unwrap_or_default();
            // In quotes it would be the printed form of a list.
            text.split_once(PROBE)
                .is_some_and(|(_, after)| !after.starts_with(['\'', '"']))
        };
        if !gets_through(Contents::Text) && gets_through(Contents::Parts) {
            Contents::Parts
        } else {
            Contents::Text
        }
    }

    fn render(
        &self,
        conversation: &Conversation<'_>,
        texts: &SpecialTexts,
    ) -> Result<String, TemplateError> {
        let mut context = context(conversation, self.contents, texts);
        if conversation.tools.is_empty() && !conversation.extra.contains_key("tools") {
            context["tools"] = self.no_tools.clone();
        }
        let size = InputSize {
            n_bytes: json_bytes(&context),
            n_pairs: n_pairs(conversation.messages.len()),
        };
        let mut environment = environment(&Arc::new(Budget::new(size)), conversation.now);
        environment.set_fuel(Some(fuel(size)));
        environment
            .add_template(NAME, &self.rewritten)
            .map_err(|error| TemplateError::Syntax(error.to_string()))?;
        let template = environment.get_template(NAME).map_err(failed)?;
        template.render(Value::from(Serde(context))).map_err(failed)
    }
}

/// Fuel for rendering these messages, without tools and variables.
pub(super) fn rendering_fuel(messages: &[Message]) -> u64 {
    let bytes = messages
        .iter()
        .map(|message| json_bytes(&message_json(message, Contents::Text)));
    fuel(InputSize {
        n_bytes: bytes.sum(),
        n_pairs: n_pairs(messages.len()),
    })
}

/// Fuel for rendering this input.
fn fuel(size: InputSize) -> u64 {
    let InputSize { n_bytes, n_pairs } = size;
    FUEL + FUEL_PER_BYTE.saturating_mul(n_bytes as u64) + FUEL_PER_PAIR * n_pairs
}

/// Pairs of messages, capped.
fn n_pairs(n_messages: usize) -> u64 {
    let n = n_messages as u64;
    n.saturating_mul(n).min(MAX_PAIRS)
}

fn failed(error: Error) -> TemplateError {
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return TemplateError::Raised(message.clone());
        }
        source = cause.source();
    }
    match error.kind() {
        ErrorKind::OutOfFuel => TemplateError::Failed(TOO_LONG.to_owned()),
        _ => TemplateError::Failed(error.to_string()),
    }
}

/// The variables of a template.
fn context(
    conversation: &Conversation<'_>,
    contents: Contents,
    texts: &SpecialTexts,
) -> serde_json::Value {
    let messages: Vec<_> = conversation
        .messages
        .iter()
        .map(|message| message_json(message, contents))
        .collect();
    let tools = if conversation.tools.is_empty() {
        json!(null)
    } else {
        json!(conversation.tools)
    };
    // Variables of the caller never replace the conversation.
    let mut context = Map::from_iter([("documents".to_owned(), json!(null))]);
    // The template of Firefunction fails without it; llama.cpp provides it in the same format.
    let datetime = conversation.now.and_then(|now| now.format("%b %d %Y").ok());
    context.extend(datetime.map(|text| ("datetime".to_owned(), json!(text))));
    context.extend(conversation.extra.clone());
    let named = [
        ("bos_token", &texts.bos),
        ("eos_token", &texts.eos),
        ("unk_token", &texts.unknown),
        ("pad_token", &texts.padding),
    ];
    for (name, text) in named {
        context.extend(text.as_ref().map(|text| (name.to_owned(), json!(text))));
    }
    let given = [
        ("messages", json!(messages)),
        ("tools", tools),
        (
            "add_generation_prompt",
            json!(conversation.add_generation_prompt),
        ),
    ];
    context.extend(given.map(|(name, value)| (name.to_owned(), value)));
    context.into()
}

/// A message as transformers passes it on: the reasoning has two names.
fn message_json(message: &Message, contents: Contents) -> serde_json::Value {
    let mut object = message.to_json();
    if contents == Contents::Parts {
        object["content"] = json!([{ "type": "text", "text": message.content }]);
    }
    if let Some(reasoning) = &message.reasoning {
        object["thinking"] = json!(reasoning);
    }
    object
}

/// Bytes of the strings in a value, plus a few for every other part. Recurses as deep as the value.
fn json_bytes(value: &serde_json::Value) -> usize {
    let mut todo = vec![value];
    let mut n_bytes = 0;
    while let Some(value) = todo.pop() {
        n_bytes += 8 + value.as_str().map_or(0, str::len);
        todo.extend(value.as_array().into_iter().flatten());
        todo.extend(value.as_object().into_iter().flat_map(Map::values));
    }
    n_bytes
}

/// Wraps an exception raised by the template.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// The Jinja environment of transformers, with the functions that our rewritten sources call.
fn environment<'s>(budget: &Arc<Budget>, now: Option<DateTime>) -> Environment<'s> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.expect("the ordinary delimiters differ from each other"));
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("trim", python::trim);
    // Removed: lazily built lists, and functions that print without being counted.
    for name in ["chain", "zip", "pprint"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
    environment.add_filter(
        "tojson",
        |value: &Value, args: Rest<Value>, kwargs: Kwargs| json::tojson(value, &args, &kwargs),
    );
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::String | ValueKind::Seq | ValueKind::Map
        )
    });
    environment.add_filter("int", python::int);
    environment.add_filter("float", python::float);
    environment.add_function(source::ITEMS, python::items);
    if let Some(now) = now {
        environment.add_function("strftime_now", move |state: &State, format: &str| {
            state.consume_fuel(FUEL_PER_DATE + format.len() as u64)?;
            now.format(format)
        });
    }
    add_scales(&mut environment, budget);
    environment
}

/// Adds the functions that charge fuel for values.
fn add_scales(environment: &mut Environment<'_>, budget: &Arc<Budget>) {
    let scales = budget.clone();
    let weighed = move |value: Value| scales.weigh(&value).map(|_| value);
    environment.add_filter(source::WEIGHED, weighed.clone());
    environment.add_function(source::WEIGHED, weighed);
    let scales = budget.clone();
    environment.add_function(source::KEPT, move |value: Value, in_namespace: bool| {
        let holds_namespace = scales.weigh(&value)?;
        if holds_namespace && (in_namespace || !is_namespace(&value)) {
            return Err(refused("a namespace cannot be part of a value"));
        }
        Ok(value)
    });
    let scales = budget.clone();
    environment.set_formatter(move |out, state, value| {
        scales.weigh(value)?;
        let float = json::python_float(value).map(Value::from);
        minijinja::escape_formatter(out, state, float.as_ref().unwrap_or(value))
    });
    // In Python, None is not iterable; in Jinja, undefined is.
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && value.try_iter().is_ok()
    });
    for (names, test) in COMPARISONS {
        for name in *names {
            let scales = budget.clone();
            let test = *test;
            environment.add_test(*name, move |a: &Value, b: &Value| {
                scales.weigh(a)?;
                scales.weigh(b)?;
                Ok::<_, Error>(test(a, b))
            });
        }
    }
    let scales = budget.clone();
    environment.add_test("in", move |state: &State, part: &Value, whole: &Value| {
        scales.weigh(part)?;
        scales.weigh(whole)?;
        minijinja::tests::is_in(state, part, whole)
    });
    add_weighing_calls(environment, budget);
}

type Comparison = fn(&Value, &Value) -> bool;

/// The comparison tests with their names.
const COMPARISONS: &[(&[&str], Comparison)] = &[
    (&["eq", "equalto", "=="], |a, b| a == b),
    (&["ne", "!="], |a, b| a != b),
    (&["lt", "lessthan", "<"], |a, b| a < b),
    (&["le", "<="], |a, b| a <= b),
    (&["gt", "greaterthan", ">"], |a, b| a > b),
    (&["ge", ">="], |a, b| a >= b),
];

/// Our functions that compare or print their arguments.
fn add_weighing_calls(environment: &mut Environment<'_>, budget: &Arc<Budget>) {
    let scales = budget.clone();
    environment.add_function("dict", move |args: Rest<Value>, kwargs: Kwargs| {
        args.iter()
            .try_for_each(|arg| scales.weigh(arg).map(drop))?;
        python::dict(args, kwargs)
    });
    let scales = budget.clone();
    environment.add_filter(source::REMAINDER, move |left: &Value, right: &Value| {
        scales.weigh(left)?;
        scales.weigh(right)?;
        python::remainder(left, right)
    });
    let scales = budget.clone();
    environment.set_unknown_method_callback(move |state, value, name, args| {
        for visited in args
            .iter()
            .chain((value.kind() != ValueKind::Map).then_some(value))
        {
            scales.weigh(visited)?;
            // A method may scan every character.
            state.consume_fuel(
                visited
                    .as_str()
                    .map_or(0, |text| text.len() as u64 / BYTES_PER_FUEL),
            )?;
        }
        python::method(state, value, name, args)
    });
}

#[cfg(test)]
mod tests;
