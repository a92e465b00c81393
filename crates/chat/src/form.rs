//! How a model is talked to: its template, and all that follows from it. No session: the same form
//! serves many conversations.
//!
//! Knows what is said, not how it is evaluated.

use atta_tokenizer::TokenKind;
use serde_json::{Map, Value};

use super::{
    DateTime, Message, Origin, Prompt, Template, TemplateError, ToolUse, calling,
    message::Conversation,
    prompt::Guard,
    repair, stop,
    system::{SystemSupport, Told},
    template::SENTINEL,
};
use crate::{
    Constraint, Control, Engine, Error, GenerateOptions, OnLength,
    tools::{Format, Parser, Rules, Thinking, ToolChoice, ToolError},
};

/// A template, and what was found out about it.
pub struct Form {
    engine: Engine,
    template: Template,
    /// Without native tools, and with some.
    system_support: [SystemSupport; 2],
    guard: Guard,
    /// What has to end an answer as text, because the vocabulary has no token for it.
    stop: Option<String>,
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Form")
            .field("engine", &self.engine)
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

/// What is said to a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said<'a> {
    /// Oldest first.
    pub messages: &'a [Message],
    /// What it is told in front of everything.
    pub system: Option<&'a str>,
    /// What it may call.
    pub tools: Option<&'a ToolUse>,
    /// The time, for templates that tell the model.
    pub now: Option<DateTime>,
    /// Further variables of the template.
    pub extra: Option<&'a Map<String, Value>>,
    /// Where the prompt ends.
    pub end: PromptEnd,
}

/// Where the prompt of a conversation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptEnd {
    /// At the start of the answer (generation prompt).
    #[default]
    Answer,
    /// After the last message.
    LastMessage,
    /// Inside the last message, which the answer continues (prefill).
    WithinLastMessage,
}

/// Marks the end of a message to be continued while the template renders it. Private-use
/// characters, which real text does not contain.
const OPEN_END: &str = "\u{F8FE}\u{F8FD}\u{F8FE}";

/// What has to be done to hear an answer.
pub struct Asked {
    /// The prompt.
    pub prompt: Prompt,
    /// What the answer is held to, beside what was asked for.
    pub options: GenerateOptions,
    /// Who reads it.
    pub parser: Parser,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked")
            .field("prompt", &self.prompt)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Form {
    /// Of this template.
    pub fn new(engine: &Engine, template: Template) -> Self {
        let (tokenizer, template) = (engine.tokenizer(), template.with_empty_tools());
        Self {
            system_support: SystemSupport::of(&template),
            guard: Guard::new(tokenizer, &template),
            stop: stop::stop_text(tokenizer, &template),
            engine: engine.clone(),
            template,
        }
    }

    /// Of the template of the file, or of one that might do.
    ///
    /// # Errors
    /// Those of [`Template::of_engine`].
    pub fn of_engine(engine: &Engine) -> Result<(Self, Origin), TemplateError> {
        let (template, origin) = Template::of_engine(engine)?;
        Ok((Self::new(engine, template), origin))
    }

    /// The prompt of an answer, what the answer is held to, and who reads it. Calls always match
    /// the schemas of their tools; where tools may be called and `options` have a constraint,
    /// the answer is either calls or a text of that constraint.
    ///
    /// # Errors
    /// [`Error::Template`] if the template refuses the conversation, [`Error::Tools`] if a tool is
    /// asked for that is not there or whose schema cannot be kept to, [`Error::Constraint`] if
    /// the constraint cannot stand beside tools, as all but those of JSON cannot.
    pub fn ask(&self, said: &Said<'_>, options: &GenerateOptions) -> Result<Asked, Error> {
        self.check_prefill(said, options)?;
        let marked = self.marked(said)?;
        let text = marked.replace(SENTINEL, "");
        let (mut options, parser) = self.rules(said, &text, options)?;
        if options.constraint.is_none() {
            options.stop.extend(self.stop.clone());
        }
        let ids = self.guard.encode(self.engine.tokenizer(), &marked);
        Ok(Asked {
            prompt: Prompt { text, ids },
            options,
            parser,
        })
    }

    /// The text of the template, as it is where no tools are given.
    pub fn template(&self) -> &str {
        self.template.source(false)
    }

    /// Refuses to continue an answer where its beginning would have to match a grammar.
    fn check_prefill(&self, said: &Said<'_>, options: &GenerateOptions) -> Result<(), Error> {
        if said.end != PromptEnd::WithinLastMessage {
            return Ok(());
        }
        let must_call = said
            .tools
            .is_some_and(|tools| !matches!(tools.choice, ToolChoice::Auto | ToolChoice::None));
        let in_words = said.tools.is_some() && self.format() == Format::Generic;
        let what = match options.constraint.is_some() {
            true => "a format",
            false if must_call => "a required tool call",
            false if in_words => "tools, which this model is told of in words",
            false => return Ok(()),
        };
        Err(TemplateError::Raised(format!(
            "an answer that has begun cannot be continued with {what}"
        ))
        .into())
    }

    /// Whether the template has a switch of this name, such as `enable_thinking`.
    pub fn has_switch(&self, name: &str) -> bool {
        [false, true]
            .into_iter()
            .any(|with_tools| self.template.source(with_tools).contains(name))
    }

    /// What has to end an answer as text.
    pub(super) fn stop(&self) -> Option<&str> {
        self.stop.as_deref()
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// What the answer to a prompt is held to, if to anything, and who reads it.
    pub(super) fn rules(
        &self,
        said: &Said<'_>,
        prompt: &str,
        options: &GenerateOptions,
    ) -> Result<(GenerateOptions, Parser), Error> {
        let none = ToolUse::default();
        let ToolUse {
            tools,
            choice,
            parallel,
        } = said.tools.unwrap_or(&none);
        let format = self.format();
        let thinking = Thinking::of_prompt(self.template.source(true), prompt);
        let tokenizer = self.engine.tokenizer();
        let token = |text: &str, kinds: &[TokenKind]| {
            tokenizer
                .token_id(text)
                .filter(|&id| kinds.contains(&tokenizer.kind(id)))
        };
        let marker = |text: &str| token(text, &[TokenKind::Control]);
        let rules = Rules {
            format,
            tools,
            choice,
            parallel: *parallel,
            thinking,
            reply: options.constraint.as_ref(),
        };
        let calls = said.messages.iter().flat_map(|message| &message.tool_calls);
        let parser = rules
            .parser()
            .after_calls(calls.map(|call| call.id.as_str()));
        let grammar = rules.grammar(&marker).map_err(|error| match error {
            ToolError::Reply(error) => Error::Constraint(error),
            error => error.into(),
        })?;
        let mut options = GenerateOptions {
            control: Control::Shown,
            ..options.clone()
        };
        if let Some(grammar) = grammar {
            options.stop.extend(self.stop_beside_calls());
            options.constraint = Some(Constraint::Lark(grammar));
            let is_closed = options.on_length == OnLength::Close && rules.reply.is_some();
            options.on_length = if is_closed {
                OnLength::CloseReply(format)
            } else {
                OnLength::Cut
            };
            options.call_start = rules
                .call_start(&|text| token(text, &[TokenKind::Control, TokenKind::UserDefined]));
        }
        Ok((options, parser))
    }

    /// What ends an answer as text, unless a call would begin with it: its own grammar ends that
    /// answer.
    fn stop_beside_calls(&self) -> Option<String> {
        let format = self.format();
        let begins_call = |stop: &String| {
            format
                .markers()
                .iter()
                .any(|marker| stop.trim_start().starts_with(marker))
        };
        self.stop.clone().filter(|stop| !begins_call(stop))
    }

    /// How the model writes calls.
    fn format(&self) -> Format {
        Format::of_template(self.template.source(true))
    }

    /// Finds the tool whose schema makes the grammar one that cannot be kept to.
    pub fn blame(&self, error: Error, tools: Option<&ToolUse>) -> Error {
        let (Error::Constraint(_), Some(ToolUse { tools, .. })) = (&error, tools) else {
            return error;
        };
        let culprit = Rules::arguments(tools).find_map(|(tool, lark)| {
            match self.engine.guide(&Constraint::Lark(lark)) {
                Err(Error::Constraint(what)) => Some((tool.to_owned(), what.to_string())),
                _ => None,
            }
        });
        culprit.map_or(error, |(tool, what)| {
            ToolError::Definition { tool, what }.into()
        })
    }

    /// The conversation as the template writes it, with marks in what others have written. It is
    /// adapted as far as the template needs that: see [`SystemSupport`] and [`repair`].
    pub(super) fn marked(&self, said: &Said<'_>) -> Result<String, TemplateError> {
        let is_in_words = said.tools.is_some() && self.format() == Format::Generic;
        let native = said
            .tools
            .filter(|_| !is_in_words)
            .map_or(&[][..], |used| used.tools.definitions());
        let messages = if is_in_words {
            calling::in_words(said.messages)
        } else {
            said.messages.to_vec()
        };
        let instructions = said
            .tools
            .and_then(|used| self.format().instructions(&used.tools));
        let told = Told {
            before: said.system,
            after: instructions.as_deref(),
        };
        let support = self.system_support[usize::from(!native.is_empty())];
        repair::first_accepted(&support.place(&told, messages), |messages| {
            let is_open = said.end == PromptEnd::WithinLastMessage;
            let opened = is_open.then(|| with_open_end(messages));
            let conversation = Conversation {
                messages: opened.as_deref().unwrap_or(messages),
                tools: native,
                add_generation_prompt: said.end == PromptEnd::Answer,
                now: said.now,
                extra: said.extra.cloned().unwrap_or_default(),
            };
            let text = self.guard.render(&self.template, &conversation)?;
            if is_open {
                before_open_end(text)
            } else {
                Ok(text)
            }
        })
    }
}

fn with_open_end(messages: &[Message]) -> Vec<Message> {
    let mut messages = messages.to_vec();
    // No other text may contain the mark.
    messages
        .iter_mut()
        .for_each(|message| message.content = message.content.replace(OPEN_END, ""));
    messages
        .iter_mut()
        .next_back()
        .into_iter()
        .for_each(|last| last.content.push_str(OPEN_END));
    messages
}

fn before_open_end(mut text: String) -> Result<String, TemplateError> {
    let end = text
        .rfind(OPEN_END)
        .ok_or_else(|| TemplateError::Failed(NO_END.to_owned()))?;
    text.truncate(end);
    Ok(text)
}

/// Error: the last message cannot be continued.
const NO_END: &str = "it does not render the end of the message that is to be continued";
