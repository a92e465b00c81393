//! A conversation in a session whose KV cache is reused from turn to turn.
//!
//! The template renders the whole conversation for every answer. If the result begins with the last
//! prompt and its answer, the token ids of both are kept as the model chose them; otherwise
//! everything is encoded again. The session keeps the common token prefix. So nothing can get out
//! of step: after an error, a new system message or a cleared history the common prefix is just
//! shorter.

use std::{ops::ControlFlow, time::Duration};

use atta_model::AdapterSet;
use atta_tokenizer::{Control, Special};
use serde_json::{Map, Value};

pub use atta_chat::{
    AnswerRules, ChatFormat, ChatInput, ChatPrompt, Conversation, DateTime, Message,
    ModelTemplates, Origin, Prompt, PromptEnd, ReplyOptions, Role, SpecialTexts, Template,
    TemplateChoice, TemplateError, ToolUse, prompt_ids, reasoning,
};

use crate::{
    Constraint, Engine, Error, Event, FinishReason, GenerateOptions, PrefixHit, Session, Summary,
    tools::{Outcome, Piece, TextEnd, Thinking, ToolChoice},
};

/// Receives the events of an answer.
type OnEvent<'a> = dyn FnMut(Event) -> ControlFlow<()> + 'a;

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Text of the model, without leading white space.
    pub text: String,
    /// Statistics; the prompt is the part that had to be evaluated.
    pub summary: Summary,
    /// Tokens of the prompt that were in the session or the prompt cache.
    pub n_cached: usize,
    /// Time to restore them from the prompt cache; zero without one.
    pub restore_time: Duration,
}

/// An event of an answer that may contain tool calls.
#[derive(Clone, Debug)]
pub enum ChatEvent<'a> {
    /// Any event but text.
    Event(Event),
    /// More of the text, the thinking or the calls.
    Piece(&'a Piece),
}

/// An answer with its tool calls.
#[derive(Clone, Debug)]
pub struct CallingReply {
    /// The answer as the model wrote it.
    pub reply: Reply,
    /// Its text, thinking and calls.
    pub outcome: Outcome,
}

/// The last prompt and its answer.
struct LastRender {
    /// As the template may write both: the answer as generated, and without leading white space.
    texts: [String; 2],
    ids: Vec<u32>,
}

/// A conversation.
pub struct Chat {
    session: Session,
    format: ChatFormat,
    system: Option<String>,
    messages: Vec<Message>,
    tools: Option<ToolUse>,
    now: Option<DateTime>,
    variables: Map<String, Value>,
    last: Option<LastRender>,
    cache: Option<crate::PromptCache>,
}

impl std::fmt::Debug for Chat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chat")
            .field("n_messages", &self.messages.len())
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Chat {
    /// An empty conversation in a session of its own.
    pub fn new(session: Session, template: Template) -> Self {
        Self {
            format: ChatFormat::new(session.engine().tokenizer(), template),
            session,
            system: None,
            messages: Vec::new(),
            tools: None,
            now: None,
            variables: Map::new(),
            last: None,
            cache: None,
        }
    }

    /// Sets a prompt cache, from which the state is restored and to which it is saved, message by
    /// message.
    pub fn set_cache(&mut self, cache: crate::PromptCache) {
        self.cache = Some(cache);
    }

    /// Sets the adapters of the next answers. The messages stay, and are evaluated again if others
    /// were in use.
    ///
    /// # Errors
    /// As [`Session::set_adapters`].
    pub fn set_adapters(&mut self, adapters: AdapterSet) -> Result<(), Error> {
        self.session.set_adapters(adapters)
    }

    /// Its session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The messages, without the system message.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Sets or removes the system message; the other messages stay. If the template takes no system
    /// messages, it becomes the beginning of the first user message.
    pub fn set_system(&mut self, text: Option<String>) {
        self.system = text;
    }

    /// Sets the tools for [`answer_calling`](Self::answer_calling). The template tells the model
    /// about them, or the system message if the template knows no tools.
    pub fn set_tools(&mut self, tools: Option<ToolUse>) {
        self.tools = tools;
    }

    /// Sets whether the model may, must or must not call tools, and returns the previous choice;
    /// `None` without tools.
    pub fn set_tool_choice(&mut self, choice: ToolChoice) -> Option<ToolChoice> {
        let tools = self.tools.as_mut()?;
        Some(std::mem::replace(&mut tools.choice, choice))
    }

    /// Sets the current time, for templates that write it.
    pub fn set_now(&mut self, now: Option<DateTime>) {
        self.now = now;
    }

    /// Sets further variables of the template, such as `enable_thinking`.
    pub fn set_variables(&mut self, variables: Map<String, Value>) {
        self.variables = variables;
    }

    /// Whether the template has a switch of this name, such as `enable_thinking`.
    pub fn has_switch(&self, name: &str) -> bool {
        self.format.has_switch(name)
    }

    /// Whether the next answer may begin with thoughts.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn may_think(&self) -> Result<bool, TemplateError> {
        let prompt = ChatFormat::without_marks(&self.marked()?);
        Ok(self.format.thinking(&prompt) != Thinking::Never)
    }

    /// Removes all messages but the system message.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// Replaces the messages.
    pub fn restore(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Appends a message. Nothing is evaluated.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// The prompt of the next answer.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn prompt(&self) -> Result<Prompt, TemplateError> {
        let marked = self.marked()?;
        let text = ChatFormat::without_marks(&marked);
        Ok(Prompt {
            text,
            ids: self.ids(&marked),
        })
    }

    /// Appends a user message, generates the answer, and appends it. Leading white space of the
    /// answer is dropped. Only tokens that the session does not hold are evaluated.
    ///
    /// Nothing in `message` becomes a special token. An interrupted answer is appended as far as it
    /// was generated; if there was none, or after an error, the message is removed again.
    ///
    /// # Errors
    /// Those of [`answer`](Self::answer).
    pub fn say(
        &mut self,
        message: &str,
        options: &GenerateOptions,
        on_event: impl FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Reply, Error> {
        self.messages.push(Message::user(message));
        let reply = self.answer(options, on_event);
        match &reply {
            Ok(reply) if reply.summary.n_generated > 0 => {
                self.messages.push(Message::assistant(&reply.text))
            }
            _ => drop(self.messages.pop()),
        }
        reply
    }

    /// Generates an answer to the messages. It is not part of the conversation until it is
    /// [pushed](Self::push); if the template then renders it as the model wrote it, its state is
    /// reused.
    ///
    /// # Errors
    /// [`Error::Template`] if the template refuses the conversation; [`Error::PromptTooLong`] if it
    /// does not fit the context; those of [`Session::generate`].
    pub fn answer(
        &mut self,
        options: &GenerateOptions,
        mut on_event: impl FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Reply, Error> {
        let prompt = self.marked()?;
        let ids = self.ids(&prompt);
        let n_ctx = self.session.n_ctx();
        if ids.len() > n_ctx && !self.session.shifts() {
            return Err(Error::PromptTooLong {
                n_prompt: ids.len(),
                n_ctx,
            });
        }
        let PrefixHit {
            n_tokens: n_cached,
            time: restore_time,
            notes,
        } = self.keep_prefix(&ids)?;
        for note in notes {
            // The caller can still stop during prefill.
            let _ = on_event(Event::Note(note));
        }
        let mut options = options.clone();
        if options.constraint.is_none() {
            options.stop.extend(self.format.stop().map(str::to_owned));
        }
        let mut said = String::new();
        let mut text = String::new();
        let summary = self.generate(&ids[n_cached..], &options, &mut |event| match event {
            Event::Text(mut piece) => {
                said.push_str(&piece);
                if text.is_empty() {
                    piece = piece.trim_start().to_owned();
                }
                text.push_str(&piece);
                if piece.is_empty() {
                    ControlFlow::Continue(())
                } else {
                    on_event(Event::Text(piece))
                }
            }
            other => on_event(other),
        })?;
        self.keep_render(&prompt, ids, [&said, &text], &summary);
        Ok(Reply {
            text,
            summary,
            n_cached,
            restore_time,
        })
    }

    /// Generates an answer that may call the [tools](Self::set_tools), and appends it. Calls always
    /// match the schemas of their tools. A call that is [cut off](TextEnd::Cut) is dropped from the
    /// outcome and the conversation; only [`Reply::text`] has its text.
    ///
    /// # Errors
    /// [`Error::Tools`] if a schema cannot be enforced or the chosen tool does not exist; those of
    /// [`answer`](Self::answer).
    pub fn answer_calling(
        &mut self,
        options: &GenerateOptions,
        mut on_event: impl FnMut(ChatEvent<'_>) -> ControlFlow<()>,
    ) -> Result<CallingReply, Error> {
        let prompt = self.prompt()?.text;
        let (rules, mut parser) = self.format.rules(&self.input(), &prompt, options.reply())?;
        let options = options.clone().with_rules(rules);
        let answered = self.answer(&options, |event| match event {
            Event::Text(text) => emit_all(&parser.push(&text), &mut on_event),
            other => on_event(ChatEvent::Event(other)),
        });
        let reply = answered
            .map_err(|error| self.session.engine().blame_tool(error, self.tools.as_ref()))?;
        let (pieces, outcome) = parser.finish(reply.summary.text_end());
        // The generation has ended: stopping has no effect.
        let _ = emit_all(&pieces, &mut on_event);
        if reply.summary.n_generated > 0 {
            self.messages.push(message(&outcome));
        }
        Ok(CallingReply { reply, outcome })
    }

    /// Keeps the common prefix of the session, or restores a longer one from the cache.
    fn keep_prefix(&mut self, ids: &[u32]) -> Result<PrefixHit, Error> {
        match &self.cache {
            Some(cache) => self.session.restore(cache, ids),
            None => Ok(PrefixHit {
                n_tokens: self.session.keep_common(ids)?,
                ..PrefixHit::default()
            }),
        }
    }

    fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Summary, Error> {
        if let Some(cache) = &self.cache {
            return self
                .session
                .generate_saving(cache, prompt, options)?
                .run(on_event);
        }
        self.session.generate(prompt, options)?.run(on_event)
    }

    /// Renders the conversation as marked text.
    fn marked(&self) -> Result<String, TemplateError> {
        self.format.marked(&self.input())
    }

    fn input(&self) -> ChatInput<'_> {
        ChatInput {
            messages: &self.messages,
            system: self.system.as_deref(),
            tools: self.tools.as_ref(),
            now: self.now,
            extra: Some(&self.variables),
            end: PromptEnd::Answer,
        }
    }

    /// Keeps the first `n` messages.
    pub fn rewind(&mut self, n: usize) {
        self.messages.truncate(n);
    }

    fn ids(&self, marked: &str) -> Vec<u32> {
        let known = self.last.as_ref();
        let goes_on = known.and_then(|known| {
            Some((
                known,
                known
                    .texts
                    .iter()
                    .find_map(|t| marked.strip_prefix(t.as_str()))?,
            ))
        });
        match goes_on {
            Some((known, rest)) => [&known.ids[..], &self.format.encode_rest(rest)].concat(),
            None => self.format.encode(marked),
        }
    }

    /// Keeps the prompt and its answer with their ids. `said`: the answer as generated, and without
    /// leading white space.
    fn keep_render(&mut self, prompt: &str, mut ids: Vec<u32>, said: [&str; 2], summary: &Summary) {
        if summary.n_generated == 0 {
            return;
        }
        ids.extend(self.answer_ids(ids.len(), said[0], summary));
        let texts = said.map(|answer| format!("{prompt}{}", self.format.mark_answer(answer)));
        self.last = Some(LastRender { texts, ids });
    }

    /// The ids of an answer that began at `start`, without its end-of-generation token.
    fn answer_ids(&self, start: usize, answer: &str, summary: &Summary) -> Vec<u32> {
        let tokenizer = self.session.engine().tokenizer();
        let last: Vec<u32> = summary
            .pending
            .iter()
            .copied()
            .filter(|&id| !tokenizer.is_eog(id))
            .collect();
        let is_ended = summary
            .pending
            .last()
            .is_some_and(|&id| tokenizer.is_eog(id));
        if !is_ended && summary.finish_reason == FinishReason::Stop {
            // A stop string ended it inside a token.
            return tokenizer.encode_after(answer, Special::Plain);
        }
        self.session.tokens()[start..]
            .iter()
            .copied()
            .chain(last)
            .collect()
    }
}

impl GenerateOptions {
    /// The part of these options that concerns the text of an answer.
    pub fn reply(&self) -> ReplyOptions<'_> {
        ReplyOptions {
            constraint: self.constraint.as_ref(),
            on_length: self.on_length,
        }
    }

    /// Applies the rules of an answer: adds stop strings, replaces the constraint, and shows
    /// control tokens, which the parser of the answer needs.
    pub fn with_rules(mut self, rules: AnswerRules) -> Self {
        self.stop.extend(rules.stop);
        Self {
            constraint: rules.constraint,
            on_length: rules.on_length,
            call_start: rules.call_start,
            control: Control::Shown,
            ..self
        }
    }
}

impl Summary {
    /// How the answer ended, for its parser.
    pub fn text_end(&self) -> TextEnd {
        text_end(self.finish_reason, self.stop.as_deref())
    }
}

#[cfg(feature = "batch")]
impl crate::Done {
    /// How the answer ended, for its parser.
    pub fn text_end(&self) -> TextEnd {
        text_end(self.finish_reason, self.stop.as_deref())
    }
}

impl Engine {
    /// The chat templates in the model file.
    pub fn templates(&self) -> ModelTemplates<'_> {
        ModelTemplates {
            tokenizer: self.tokenizer(),
            default: self.chat_template(),
            tool_use: self.chat_template_named("tool_use"),
        }
    }

    /// Replaces an error of the grammar of all tools by one that names the tool to blame.
    pub fn blame_tool(&self, error: Error, tools: Option<&ToolUse>) -> Error {
        let (Error::Constraint(_), Some(tools)) = (&error, tools) else {
            return error;
        };
        let check = |constraint: &Constraint| match self.guide(constraint) {
            Err(Error::Constraint(error)) => Err(error),
            _ => Ok(()),
        };
        ChatFormat::unusable_tool(tools, check).map_or(error, Error::from)
    }
}

/// [`TextEnd::Whole`] if the model or its grammar ended the answer.
fn text_end(finish_reason: FinishReason, stop: Option<&str>) -> TextEnd {
    match (finish_reason, stop) {
        (FinishReason::Stop, None) => TextEnd::Whole,
        _ => TextEnd::Cut,
    }
}

/// An answer as a message.
fn message(outcome: &Outcome) -> Message {
    let reasoning = Some(outcome.reasoning.trim().to_owned()).filter(|text| !text.is_empty());
    Message {
        reasoning,
        ..Message::assistant_calling(&outcome.text, outcome.calls.clone())
    }
}

fn emit_all(
    pieces: &[Piece],
    on_event: &mut dyn FnMut(ChatEvent<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    pieces
        .iter()
        .try_for_each(|piece| on_event(ChatEvent::Piece(piece)))
}
