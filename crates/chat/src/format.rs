//! The chat format of a model: its template, and everything that follows from the template.
//!
//! Turns a conversation into a prompt, the rules for the answer and a parser of it. Knows no
//! session: one format serves many conversations.

use std::sync::Arc;

use atta_constrain::{CallStart, CallTest, Constraint, ConstraintError, OnLength};
use atta_tokenizer::{TokenKind, Tokenizer};
use serde_json::{Map, Value};

use crate::{
    DateTime, Error, Message, ModelTemplates, Origin, Prompt, Template, TemplateError, ToolUse,
    calling,
    message::Conversation,
    prompt::Guard,
    repair, stop,
    system::{SystemSupport, Told},
    template::SENTINEL,
    tools::{CallFormat, Parser, Rules, Thinking, ToolChoice, ToolError},
};

/// A chat template with the tokenizer of its model.
pub struct ChatFormat {
    tokenizer: Arc<Tokenizer>,
    template: Template,
    /// Without native tools, and with some.
    system_support: [SystemSupport; 2],
    guard: Guard,
    /// Text that ends an answer, where the vocabulary has no token for it.
    stop: Option<String>,
}

impl std::fmt::Debug for ChatFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatFormat")
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

/// A conversation to be answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatInput<'a> {
    /// Messages, oldest first.
    pub messages: &'a [Message],
    /// System message in front of all others.
    pub system: Option<&'a str>,
    /// Tools that the model may call.
    pub tools: Option<&'a ToolUse>,
    /// Current time, for templates that write it.
    pub now: Option<DateTime>,
    /// Further variables of the template, such as `enable_thinking`.
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

/// What the caller asks of the text of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyOptions<'a> {
    /// Constraint on the text of the answer.
    pub constraint: Option<&'a Constraint>,
    /// What happens when a constrained answer reaches its length limit.
    pub on_length: OnLength,
}

/// Rules for the generation of an answer. The parser needs its control tokens shown.
#[derive(Clone, Debug)]
pub struct AnswerRules {
    /// Stop strings.
    pub stop: Vec<String>,
    /// Constraint on the whole answer, tool calls included.
    pub constraint: Option<Constraint>,
    /// What happens when a constrained answer reaches its length limit.
    pub on_length: OnLength,
    /// How the first tool call begins.
    pub call_start: Option<CallStart>,
}

/// A prompt with the rules for its answer.
pub struct ChatPrompt {
    /// The prompt, as text and as tokens.
    pub prompt: Prompt,
    /// Rules for the answer.
    pub rules: AnswerRules,
    /// Reads thoughts and tool calls in the answer.
    pub parser: Parser,
}

impl std::fmt::Debug for ChatPrompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatPrompt")
            .field("prompt", &self.prompt)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl ChatFormat {
    /// The format of a template.
    pub fn new(tokenizer: &Arc<Tokenizer>, template: Template) -> Self {
        let template = template.with_empty_tools();
        Self {
            system_support: SystemSupport::of(&template),
            guard: Guard::new(tokenizer, &template),
            stop: stop::stop_text(tokenizer, &template),
            tokenizer: Arc::clone(tokenizer),
            template,
        }
    }

    /// The format of a model: that of its own template, or of a fallback.
    ///
    /// # Errors
    /// Those of [`Template::of_model`].
    pub fn of_model(model: &ModelTemplates<'_>) -> Result<(Self, Origin), TemplateError> {
        let (template, origin) = Template::of_model(model)?;
        Ok((Self::new(model.tokenizer, template), origin))
    }

    /// The prompt of an answer, the rules for it and its parser. Calls always match the schemas of
    /// their tools; where tools may be called and `reply` has a constraint, the answer is either
    /// calls or a text of that constraint.
    ///
    /// # Errors
    /// [`Error::Template`] if the template refuses the conversation, [`Error::Tools`] if a tool is
    /// asked for that does not exist or has a schema that cannot be kept to, [`Error::Constraint`]
    /// if the constraint cannot be combined with tools, as all but those of JSON cannot.
    pub fn prompt(
        &self,
        input: &ChatInput<'_>,
        reply: ReplyOptions<'_>,
    ) -> Result<ChatPrompt, Error> {
        self.check_prefill(input, reply.constraint)?;
        let marked = self.marked(input)?;
        let text = Self::without_marks(&marked);
        let (rules, parser) = self.rules(input, &text, reply)?;
        let ids = self.encode(&marked);
        Ok(ChatPrompt {
            prompt: Prompt { text, ids },
            rules,
            parser,
        })
    }

    /// The text of the template, as it is where no tools are given.
    pub fn template(&self) -> &str {
        self.template.source(false)
    }

    /// Refuses to continue an answer where its beginning would have to match a grammar.
    fn check_prefill(
        &self,
        input: &ChatInput<'_>,
        constraint: Option<&Constraint>,
    ) -> Result<(), Error> {
        if input.end != PromptEnd::WithinLastMessage {
            return Ok(());
        }
        let must_call = input
            .tools
            .is_some_and(|tools| !matches!(tools.choice, ToolChoice::Auto | ToolChoice::None));
        let in_words = input.tools.is_some() && self.format() == CallFormat::Generic;
        let what = match constraint.is_some() {
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

    /// Whether the answer to this prompt may begin with thoughts.
    pub fn thinking(&self, prompt: &str) -> Thinking {
        Thinking::of_prompt(self.template.source(true), prompt)
    }

    /// Stop string that ends an answer, for vocabularies without a token that does.
    pub fn stop(&self) -> Option<&str> {
        self.stop.as_deref()
    }

    /// A marked text without its marks.
    pub fn without_marks(marked: &str) -> String {
        marked.replace(SENTINEL, "")
    }

    /// The tokens of a marked text, with begin-of-sequence where the vocabulary wants it.
    pub fn encode(&self, marked: &str) -> Vec<u32> {
        self.guard.encode(&self.tokenizer, marked)
    }

    /// The tokens of a later part of a marked text.
    pub fn encode_rest(&self, marked: &str) -> Vec<u32> {
        self.guard.continued(&self.tokenizer, marked)
    }

    /// An answer of the model as a marked text.
    pub fn mark_answer(&self, answer: &str) -> String {
        self.guard.answer(answer)
    }

    /// The rules and the parser of the answer to a prompt.
    ///
    /// # Errors
    /// Those of [`prompt`](Self::prompt), but for the template's.
    pub fn rules(
        &self,
        input: &ChatInput<'_>,
        prompt: &str,
        reply: ReplyOptions<'_>,
    ) -> Result<(AnswerRules, Parser), Error> {
        let none = ToolUse::default();
        let used = input.tools.unwrap_or(&none);
        let rules = Rules {
            format: self.format(),
            tools: &used.tools,
            choice: &used.choice,
            parallel: used.parallel,
            thinking: self.thinking(prompt),
            reply: reply.constraint,
        };
        let calls = input
            .messages
            .iter()
            .flat_map(|message| &message.tool_calls);
        let parser = rules
            .parser()
            .after_calls(calls.map(|call| call.id.as_str()));
        Ok((self.answer_rules(&rules, reply)?, parser))
    }

    fn answer_rules(
        &self,
        rules: &Rules<'_>,
        reply: ReplyOptions<'_>,
    ) -> Result<AnswerRules, Error> {
        let marker = |text: &str| self.token(text, &[TokenKind::Control]);
        let grammar = rules.grammar(&marker).map_err(|error| match error {
            ToolError::Reply(error) => Error::Constraint(error),
            error => error.into(),
        })?;
        let mut answer = AnswerRules {
            stop: Vec::new(),
            constraint: reply.constraint.cloned(),
            on_length: reply.on_length,
            call_start: None,
        };
        if let Some(grammar) = grammar {
            answer.stop.extend(self.stop_beside_calls());
            answer.constraint = Some(Constraint::Lark(grammar));
            let is_closed = reply.on_length == OnLength::Close && rules.reply.is_some();
            answer.on_length = if is_closed {
                OnLength::CloseUnlessCall(CallTest(rules.format.call_test()))
            } else {
                OnLength::Cut
            };
            let call_marker =
                |text: &str| self.token(text, &[TokenKind::Control, TokenKind::UserDefined]);
            answer.call_start = rules.call_start(&call_marker);
        } else if answer.constraint.is_none() {
            answer.stop.extend(self.stop.clone());
        }
        Ok(answer)
    }

    /// The token with exactly this text, if it is of one of these kinds.
    fn token(&self, text: &str, kinds: &[TokenKind]) -> Option<u32> {
        self.tokenizer
            .token_id(text)
            .filter(|&id| kinds.contains(&self.tokenizer.kind(id)))
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
    fn format(&self) -> CallFormat {
        CallFormat::of_template(self.template.source(true))
    }

    /// Finds the tool whose schema makes the grammar of all tools one that cannot be kept to.
    /// `check` says whether a constraint can be kept to.
    pub fn unusable_tool(
        tools: &ToolUse,
        check: impl Fn(&Constraint) -> Result<(), ConstraintError>,
    ) -> Option<ToolError> {
        Rules::arguments(&tools.tools).find_map(|(tool, lark)| {
            let error = check(&Constraint::Lark(lark)).err()?;
            Some(ToolError::Definition {
                tool: tool.to_owned(),
                what: error.to_string(),
            })
        })
    }

    /// Renders a conversation as a marked text: marks keep texts of others from becoming special
    /// tokens. System messages are placed where the template accepts them, and after a refusal the
    /// conversation is repaired.
    ///
    /// # Errors
    /// What the template raises.
    pub fn marked(&self, input: &ChatInput<'_>) -> Result<String, TemplateError> {
        let is_in_words = input.tools.is_some() && self.format() == CallFormat::Generic;
        let native = input
            .tools
            .filter(|_| !is_in_words)
            .map_or(&[][..], |used| used.tools.definitions());
        let is_in_text = self.format() == CallFormat::Python;
        let messages = match self.format() {
            _ if is_in_words => calling::in_words(input.messages),
            CallFormat::Python => calling::in_text(input.messages),
            CallFormat::Harmony => calling::in_channels(input.messages),
            _ => input.messages.to_vec(),
        };
        let instructions = input
            .tools
            .and_then(|used| self.format().instructions(&used.tools));
        let told = Told {
            before: input.system,
            after: instructions.as_deref(),
        };
        let support = self.system_support[usize::from(!native.is_empty())];
        repair::first_accepted(&support.place(&told, messages), |messages| {
            let is_open = input.end == PromptEnd::WithinLastMessage;
            let opened = is_open.then(|| with_open_end(messages));
            let conversation = Conversation {
                messages: opened.as_deref().unwrap_or(messages),
                tools: native,
                add_generation_prompt: input.end == PromptEnd::Answer,
                now: input.now,
                extra: input.extra.cloned().unwrap_or_default(),
            };
            let mut text = self.guard.render(&self.template, &conversation)?;
            if is_in_text {
                text = calling::with_markers(&text);
            }
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
