//! A conversation: what was said, and a session whose state is reused from turn to turn.
//!
//! Knows no terminal and no files. The one idea: the whole conversation is written down anew by its
//! template for every answer. If that begins with what was written last and the answer to it, the
//! ids of both are kept, as the model chose them; else everything is encoded anew. The session
//! keeps as much of its state as begins the same way. So nothing has to be kept in step: after an
//! error, a new system message or a cleared history the common beginning is simply shorter.

use std::{ops::ControlFlow, time::Duration};

use atta_tokenizer::{Control, Special};
use serde_json::{Map, Value};

pub use atta_chat::{
    AnswerRules, ChatFormat, ChatInput, ChatPrompt, Conversation, DateTime, Message,
    ModelTemplates, Origin, Prompt, PromptEnd, ReplyOptions, Role, SpecialTexts, Template,
    TemplateChoice, TemplateError, ToolUse, prompt_ids,
};

use crate::{
    Constraint, Engine, Error, Event, FinishReason, GenerateOptions, Session, Summary,
    tools::{Outcome, Piece, ToolChoice},
};

/// Whoever hears of an answer.
type OnEvent<'a> = dyn FnMut(Event) -> ControlFlow<()> + 'a;

/// How an answer went.
#[derive(Clone, Debug)]
pub struct Reply {
    /// What the model said, without white space in front.
    pub text: String,
    /// How the generation went; its prompt is what had to be evaluated.
    pub summary: Summary,
    /// Tokens of the conversation that were in the session or a cache already.
    pub n_cached: usize,
    /// How long it took to get them from a cache; zero without one.
    pub restore_time: Duration,
}

/// What a caller hears of an answer that may hold calls.
#[derive(Clone, Debug)]
pub enum Heard<'a> {
    /// Anything but text.
    Event(Event),
    /// More of the answer, its thoughts or its calls.
    Piece(&'a Piece),
}

/// An answer with its calls.
#[derive(Clone, Debug)]
pub struct CallingReply {
    /// How it went; its text is as the model wrote it.
    pub reply: Reply,
    /// What that means.
    pub outcome: Outcome,
}

/// What there is of a conversation before it is read.
#[derive(Default)]
struct Recalled {
    n_tokens: usize,
    time: Duration,
    notes: Vec<String>,
}

/// A prompt and the answer to it.
struct Known {
    /// As the template may write both: with white space in front of the answer as it came, and
    /// without.
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
    extra: Map<String, Value>,
    known: Option<Known>,
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
            extra: Map::new(),
            known: None,
            cache: None,
        }
    }

    /// Has the state of the conversation restored from a cache and saved there, message by message.
    pub fn set_cache(&mut self, cache: crate::PromptCache) {
        self.cache = Some(cache);
    }

    /// The session behind it.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What has been said, without what the model was told in front of it.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What the model was told in front of everything.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Tells the model something in front of everything; `None`: nothing. What has been said stays.
    /// To a template that takes no system messages it is given as the beginning of the first
    /// message of the user.
    pub fn set_system(&mut self, text: Option<String>) {
        self.system = text;
    }

    /// Which tools the model may call, by [`answer_calling`](Self::answer_calling). A template that
    /// writes calls tells the model of them, else the system message does.
    pub fn set_tools(&mut self, tools: Option<ToolUse>) {
        self.tools = tools;
    }

    /// Whether the model may call tools, must, or must not, in the answers to come; how it was.
    /// Without tools, nothing.
    pub fn set_tool_choice(&mut self, choice: ToolChoice) -> Option<ToolChoice> {
        let tools = self.tools.as_mut()?;
        Some(std::mem::replace(&mut tools.choice, choice))
    }

    /// What time it is, for templates that tell the model.
    pub fn set_now(&mut self, now: Option<DateTime>) {
        self.now = now;
    }

    /// Gives a template a variable more, such as `enable_thinking`.
    pub fn set_variable(&mut self, name: impl Into<String>, value: Value) {
        self.extra.insert(name.into(), value);
    }

    /// Forgets what has been said, but not the system message.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// Replaces what has been said.
    pub fn restore(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Adds what somebody said: a user, the model, a tool. Nothing is evaluated.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// The conversation up to where the next answer begins, as the model would read it.
    ///
    /// # Errors
    /// What the template raises.
    pub fn prompt(&self) -> Result<Prompt, TemplateError> {
        let marked = self.marked()?;
        let text = ChatFormat::without_marks(&marked);
        Ok(Prompt {
            text,
            ids: self.ids(&marked),
        })
    }

    /// Says something, and hears the answer by `on_event`, without white space in front. Only what
    /// the session does not hold yet is evaluated.
    ///
    /// Nothing in `message` is a special token. An answer that was interrupted is part of the
    /// conversation as far as it went; a message that was interrupted before its answer began,
    /// and one that failed, is none.
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

    /// Hears an answer to what has been said. It is not part of the conversation until it is
    /// [pushed](Self::push), as text or as the calls that it holds; if the template writes that
    /// as the model did, its state is used again.
    ///
    /// # Errors
    /// [`Error::Template`] if the template refuses the conversation; [`Error::PromptTooLong`] if it
    /// does not fit the context, and nothing is evaluated then; those of [`Session::generate`].
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
        let Recalled {
            n_tokens: n_cached,
            time: restore_time,
            notes,
        } = self.recall(&ids)?;
        for note in notes {
            // Whoever wants to stop says so when the prompt is read.
            let _ = on_event(Event::Note(note));
        }
        let mut options = options.clone();
        if options.constraint.is_none() {
            options.stop.extend(self.format.stop().map(str::to_owned));
        }
        let (mut said, mut text) = (String::new(), String::new());
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
        self.remember(&prompt, ids, [&said, &text], &summary);
        Ok(Reply {
            text,
            summary,
            n_cached,
            restore_time,
        })
    }

    /// Hears an answer to what has been said that may call the tools of
    /// [`set_tools`](Self::set_tools), and makes it part of the conversation. Calls always
    /// match the schemas of their tools. A call that the length limit cuts is text, never
    /// a call with what is left of its arguments. Where nothing can be called, the answer is
    /// whatever the model writes, or what the constraint of the options makes of it.
    ///
    /// # Errors
    /// [`Error::Tools`] if a schema cannot be kept to or a tool is asked for that is not there;
    /// those of [`answer`](Self::answer).
    pub fn answer_calling(
        &mut self,
        options: &GenerateOptions,
        mut on_heard: impl FnMut(Heard<'_>) -> ControlFlow<()>,
    ) -> Result<CallingReply, Error> {
        let prompt = self.prompt()?.text;
        let (rules, mut parser) = self.format.rules(&self.input(), &prompt, options.reply())?;
        let options = options.clone().with_rules(rules);
        let answered = self.answer(&options, |event| match event {
            Event::Text(text) => hear_all(&parser.push(&text), &mut on_heard),
            other => on_heard(Heard::Event(other)),
        });
        let reply = answered
            .map_err(|error| self.session.engine().blame_tool(error, self.tools.as_ref()))?;
        let (pieces, outcome) = parser.finish();
        // The generation has ended, so that nobody can end it.
        let _ = hear_all(&pieces, &mut on_heard);
        if reply.summary.n_generated > 0 {
            self.messages.push(message(&outcome));
        }
        Ok(CallingReply { reply, outcome })
    }

    /// Keeps of the session what begins the same way, or more if a cache has more; what there is to
    /// say about that comes with it.
    fn recall(&mut self, ids: &[u32]) -> Result<Recalled, Error> {
        if let Some(cache) = &self.cache {
            let crate::Restored {
                n_tokens,
                time,
                notes,
            } = self.session.restore(cache, ids)?;
            return Ok(Recalled {
                n_tokens,
                time,
                notes,
            });
        }
        Ok(Recalled {
            n_tokens: self.session.keep_common(ids)?,
            ..Recalled::default()
        })
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

    /// The conversation as the template writes it, with marks in what others have written.
    fn marked(&self) -> Result<String, TemplateError> {
        self.format.marked(&self.input())
    }

    fn input(&self) -> ChatInput<'_> {
        ChatInput {
            messages: &self.messages,
            system: self.system.as_deref(),
            tools: self.tools.as_ref(),
            now: self.now,
            extra: Some(&self.extra),
            end: PromptEnd::Answer,
        }
    }

    /// Takes back what was said after the first `n` messages.
    pub fn rewind(&mut self, n: usize) {
        self.messages.truncate(n);
    }

    fn ids(&self, marked: &str) -> Vec<u32> {
        let known = self.known.as_ref();
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

    /// Keeps what was read and said, with its ids. `said` is the answer as it came and without
    /// white space in front.
    fn remember(&mut self, prompt: &str, mut ids: Vec<u32>, said: [&str; 2], summary: &Summary) {
        if summary.n_generated == 0 {
            return;
        }
        ids.extend(self.answer_ids(ids.len(), said[0], summary));
        let texts = said.map(|answer| format!("{prompt}{}", self.format.mark_answer(answer)));
        self.known = Some(Known { texts, ids });
    }

    /// The ids of an answer that began at `start`, without what ended it.
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
            // A stop string ended it somewhere within the tokens.
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
    /// What these options ask of the text of an answer.
    pub fn reply(&self) -> ReplyOptions<'_> {
        ReplyOptions {
            constraint: self.constraint.as_ref(),
            on_length: self.on_length,
        }
    }

    /// These options with the rules of an answer: stop strings are added, the constraint is
    /// replaced, and control tokens are shown to the parser of the answer.
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

impl Engine {
    /// The chat templates of the file.
    pub fn templates(&self) -> ModelTemplates<'_> {
        ModelTemplates {
            tokenizer: self.tokenizer(),
            default: self.chat_template(),
            tool_use: self.chat_template_named("tool_use"),
        }
    }

    /// Replaces the error of a constraint made of tools by one that names the tool.
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

/// What the model said, as a message of the conversation.
fn message(outcome: &Outcome) -> Message {
    let reasoning = Some(outcome.reasoning.trim().to_owned()).filter(|text| !text.is_empty());
    Message {
        reasoning,
        ..Message::assistant_calling(&outcome.text, outcome.calls.clone())
    }
}

fn hear_all(
    pieces: &[Piece],
    on_heard: &mut dyn FnMut(Heard<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    pieces
        .iter()
        .try_for_each(|piece| on_heard(Heard::Piece(piece)))
}
