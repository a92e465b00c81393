//! Parses calls, thinking and text in the output of a model, while it is generated.
//!
//! Knows no tools and no grammar. Every character is looked at once, and `held` is exactly the text
//! not yet emitted or consumed. Calls are removed from it, everything else is emitted as text; only
//! markers and adjacent white space are dropped.

use std::sync::Arc;

use serde_json::{Value, from_str};

use super::{
    CallFormat, Outcome, Piece, Thinking, ToolCall, ToolSet,
    braced::{BracedScan, BracedSyntax},
    call::CallScan,
    definition::{is_name, is_name_char},
    harmony,
    ids::{IdForm, Ids},
    json::{Json, is_space},
    parameters::ValueForms,
    piece::Pieces,
    place::{
        ARGS, BRACED_CALL, CALL_ID, FUNCTIONS, INLINE_CALL, INLINE_TAGS, INVOKE_TAGS, INVOKES,
        KEY_TAGS, NAMED_ARGS, NAMED_CALL, NAMED_SECTION, Next, PYTHON_CALLS, ParserPlace, SECTION,
        Syntax, TAGS, TOOL_CALL, TOOL_CALLS, Tags, ThinkTags,
    },
    tagged::TaggedScan,
};

/// Maximum length of a name before its arguments, with its id, in characters.
const MAX_HEAD_CHARS: usize = 288;

/// Parses the output of a model, piece by piece.
///
/// The result does not depend on how the input was split, except for how [`Piece::Text`],
/// [`Piece::Reasoning`] and [`Piece::CallArguments`] are split.
#[derive(Clone, Debug)]
pub struct Parser {
    syntax: Syntax,
    state: State,
    /// Text that may still become a marker or a call, with leading white space.
    held: String,
    /// End of the white space in `held`.
    token: usize,
    ids: Ids,
    pieces: Pieces,
    /// Names of calls, where an answer is either calls or a text without calls.
    either: Option<Vec<String>>,
    /// How the values of parameters are written.
    forms: Arc<ValueForms>,
}

/// How the output of a model ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEnd {
    /// By the model or its grammar: held text that is not a complete call is text.
    Whole,
    /// By a limit, a stop string or the caller: a call that has begun is dropped.
    Cut,
}

#[derive(Clone, Debug)]
enum State {
    Expect(ParserPlace),
    Text,
    Reasoning,
    /// A name between a marker and the arguments.
    Head,
    /// A call, and the state after it.
    Call(Box<CallScan>, ParserPlace),
    /// A string that is the answer; `held` is an incomplete escape.
    Reply,
    /// A value that is the answer, inside an object.
    Value(Json),
}

impl Parser {
    /// A parser for an answer that may call tools. Unexpected thinking is recognized too.
    pub fn new(format: CallFormat, thinking: Thinking) -> Self {
        Self::of(Syntax::Calls(format), thinking)
    }

    /// A parser for an answer that calls nothing.
    pub(crate) fn without_calls(format: CallFormat) -> Self {
        Self::of(Syntax::Plain(format.think_tags()), Thinking::Maybe)
    }

    pub(super) fn of(syntax: Syntax, thinking: Thinking) -> Self {
        let state = match thinking {
            Thinking::Open => State::Reasoning,
            Thinking::Maybe | Thinking::Never => State::Expect(ParserPlace::Start),
        };
        let ids = Ids::new(match syntax {
            Syntax::Calls(CallFormat::Section) => IdForm::Function,
            syntax if is_marked(syntax) => IdForm::Nine,
            _ => IdForm::Word,
        });
        let pieces = Pieces::default();
        Self {
            syntax,
            state,
            held: String::new(),
            token: 0,
            ids,
            pieces,
            either: None,
            forms: Arc::default(),
        }
    }

    /// Reads the values of parameters as the schemas of these tools say.
    pub(super) fn with_schemas_of(self, tools: &ToolSet) -> Self {
        Self {
            forms: Arc::new(ValueForms::of(tools)),
            ..self
        }
    }

    /// Parses an answer that is either calls of these names or a text.
    pub(super) fn either_calls_or_text<'a>(self, names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            either: Some(names.map(str::to_owned).collect()),
            ..self
        }
    }

    /// Avoids the ids of earlier calls in the conversation, and continues numbering after them.
    pub fn after_calls<'a>(mut self, ids: impl IntoIterator<Item = &'a str>) -> Self {
        ids.into_iter().for_each(|id| self.ids.take(id));
        self
    }

    /// Makes the ids of calls differ from those of other conversations. Ids written by the model
    /// are kept.
    pub fn with_id_seed(mut self, seed: u64) -> Self {
        self.ids.set_seed(seed);
        self
    }

    /// Takes more output and returns the pieces that are certain now.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        text.chars().for_each(|c| self.take(c));
        self.tell_of_call();
        self.pieces.take()
    }

    /// Ends the output, and returns the last pieces and the whole answer.
    pub fn finish(mut self, end: TextEnd) -> (Vec<Piece>, Outcome) {
        match end {
            TextEnd::Whole => self.emit_held(),
            TextEnd::Cut => self.drop_begun_call(),
        }
        self.pieces.finish()
    }

    /// Emits the held text as text.
    fn emit_held(&mut self) {
        match &self.state {
            State::Reasoning => self.give(self.held.len()),
            State::Expect(place) if place.follows_marker() => {
                self.pieces.text(&self.held[self.token..])
            }
            _ => self.give_up(),
        }
    }

    /// Drops a call that has begun, with its marker, and emits other held text.
    fn drop_begun_call(&mut self) {
        match &self.state {
            State::Call(scan, _) if scan.given.is_some() => self.pieces.broken(),
            State::Expect(_) if self.is_plain() => self.give_up(),
            State::Expect(_) | State::Head | State::Call(..) | State::Reply | State::Value(_) => {}
            State::Reasoning => self.give(self.held.len()),
            // One character may be anything; more of a marker is a marker.
            State::Text if self.held[self.token..].chars().nth(1).is_none() => {
                self.give(self.held.len())
            }
            State::Text => {}
        }
    }

    /// Whether text has no markers but those of thinking.
    fn is_plain(&self) -> bool {
        matches!(self.syntax, Syntax::Plain(tags) if tags != ThinkTags::Harmony)
    }

    fn take(&mut self, c: char) {
        match &self.state {
            State::Expect(place) => self.expect(*place, c),
            State::Text | State::Reasoning => self.running(c),
            State::Head => self.head(c),
            State::Call(..) => self.call(c),
            State::Reply => self.reply(c),
            State::Value(_) => self.value(c),
        }
    }

    /// A character where only certain texts are expected.
    fn expect(&mut self, place: ParserPlace, c: char) {
        self.held.push(c);
        if is_space(c) && self.token + 1 == self.held.len() {
            self.token += 1;
            return;
        }
        let token = &self.held[self.token..];
        let expected = place.expected(self.syntax);
        if let Some((_, next)) = expected.iter().find(|(text, _)| *text == token) {
            self.go(*next);
        } else if place == ParserPlace::List
            && is_marked(self.syntax)
            && token.chars().all(is_name_char)
        {
            self.state = State::Head;
        } else if !expected.iter().any(|(text, _)| text.starts_with(token)) {
            self.unexpected(place);
        }
    }

    /// Handles an unexpected token: it becomes text, and perhaps the beginning of a marker.
    fn unexpected(&mut self, place: ParserPlace) {
        let token = self.held.split_off(self.token);
        if place.follows_marker() {
            self.held.clear();
        }
        self.read_again(&token);
    }

    fn go(&mut self, next: Next) {
        match next {
            Next::To(ParserPlace::ReplyQuote) if self.either.is_some() => {
                self.enter(State::Value(Json::behind_key()))
            }
            Next::To(place) => {
                self.state = State::Expect(place);
                self.token = self.held.len();
            }
            Next::Done(place) => self.enter(State::Expect(place)),
            Next::Reasoning => self.enter(State::Reasoning),
            Next::Reply => self.enter(State::Reply),
            Next::Text => self.enter(State::Text),
            Next::Name => {
                self.state = State::Head;
                self.token = self.held.len();
            }
            Next::Call(after) => self.begin_call(after),
        }
    }

    /// Enters a state with nothing held.
    fn enter(&mut self, state: State) {
        self.held.clear();
        self.token = 0;
        self.state = state;
    }

    /// A character of text or thinking.
    fn running(&mut self, c: char) {
        if is_space(c) {
            self.give_token();
            self.held.push(c);
            self.token = self.held.len();
            return;
        }
        self.held.push(c);
        let Some((marker, next)) = self.marker() else {
            return self.give_token();
        };
        while !marker.starts_with(&self.held[self.token..]) {
            self.give_char();
        }
        if self.held[self.token..] == *marker {
            self.go(next);
        }
    }

    /// The marker that ends text or thinking, and the next state.
    fn marker(&self) -> Option<(&'static str, Next)> {
        match (&self.state, self.syntax) {
            (State::Reasoning, syntax) => {
                Some((syntax.think_tags().close(), Next::Done(ParserPlace::Answer)))
            }
            (_, Syntax::Calls(CallFormat::TaggedKeys)) => {
                Some((TOOL_CALL, Next::Call(ParserPlace::Next)))
            }
            (_, Syntax::Calls(CallFormat::Python)) => {
                Some((PYTHON_CALLS, Next::To(ParserPlace::List)))
            }
            (_, Syntax::Calls(CallFormat::Braced)) => {
                Some((BRACED_CALL, Next::To(ParserPlace::Object)))
            }
            (_, Syntax::Calls(CallFormat::Hermes | CallFormat::Tagged)) => {
                Some((TOOL_CALL, Next::To(ParserPlace::Object)))
            }
            (_, Syntax::Calls(CallFormat::Section)) => Some((SECTION, Next::To(ParserPlace::List))),
            (_, Syntax::Calls(CallFormat::NamedSection)) => {
                Some((NAMED_SECTION, Next::To(ParserPlace::List)))
            }
            (_, Syntax::Calls(CallFormat::TaggedInline)) => {
                Some((INLINE_CALL, Next::To(ParserPlace::Object)))
            }
            (_, Syntax::Calls(CallFormat::Invokes)) => {
                Some((INVOKES, Next::To(ParserPlace::Object)))
            }
            // A constrained text is the last message.
            (_, syntax) if syntax.think_tags() == ThinkTags::Harmony => self
                .either
                .is_none()
                .then_some((harmony::END, Next::Done(ParserPlace::Answer))),
            (_, syntax) => is_marked(syntax).then_some((TOOL_CALLS, Next::To(ParserPlace::List))),
        }
    }

    /// Emits all held text, if it is more than white space.
    fn give_token(&mut self) {
        if self.token < self.held.len() {
            self.give(self.held.len());
        }
    }

    /// Emits the white space and one character after it.
    fn give_char(&mut self) {
        let n_bytes = self.held[self.token..]
            .chars()
            .next()
            .map_or(0, char::len_utf8);
        self.give(self.token + n_bytes);
    }

    /// Emits the beginning of the held text; white space before all thinking is dropped.
    fn give(&mut self, n_bytes: usize) {
        let text = &self.held[..n_bytes];
        match self.state {
            State::Reasoning if self.pieces.has_reasoning() => self.pieces.reasoning(text),
            State::Reasoning => self.pieces.reasoning(text.trim_start_matches(is_space)),
            _ => self.pieces.text(text),
        }
        self.held.drain(..n_bytes);
        self.token = 0;
    }

    /// A character of a name, or behind it.
    fn head(&mut self, c: char) {
        if is_marked(self.syntax) {
            return self.bracketed_head(c);
        }
        let is_part = is_name_char(c) || c == ':' && has_index(self.syntax);
        if is_part && self.held.len() - self.token < MAX_HEAD_CHARS {
            return self.held.push(c);
        }
        self.state = State::Expect(ParserPlace::Header);
        self.token = self.held.len();
        self.take(c);
    }

    /// A character between `[TOOL_CALLS]` and `[ARGS]`: of a name, or of an id after `[CALL_ID]`.
    fn bracketed_head(&mut self, c: char) {
        self.held.push(c);
        let head = &self.held[self.token..];
        let bracket = head.rfind('[');
        let goes_on = match bracket.map(|at| &head[at..]) {
            None => is_name_char(c),
            Some(tail) => {
                ARGS.starts_with(tail) || CALL_ID.starts_with(tail) || follows_call_id(tail)
            }
        };
        if !goes_on || head.len() > MAX_HEAD_CHARS {
            let n_again = bracket.map_or(c.len_utf8(), |at| head.len() - at);
            self.break_off(n_again);
        } else if let Some(head) = head.strip_suffix(ARGS) {
            match named(head) {
                Some(scan) => self.state = State::Call(Box::new(scan), ParserPlace::Next),
                None => self.break_off(0),
            }
        }
    }

    /// A call begins with the text that was held last.
    fn begin_call(&mut self, after: ParserPlace) {
        let Some(scan) = self.new_call() else {
            return self.break_off(0);
        };
        let begins_with_brace = self.held.ends_with('{');
        self.state = State::Call(Box::new(scan), after);
        if begins_with_brace {
            self.scan('{');
        }
    }

    /// The scanner of a call that begins behind the held text; `None` if it has no good name.
    fn new_call(&self) -> Option<CallScan> {
        let start = self.held.len();
        if let Some(tags) = self.tags() {
            let scan = TaggedScan::new(tags, start, Arc::clone(&self.forms));
            return Some(CallScan::tagged(scan));
        }
        Some(match self.syntax {
            Syntax::Calls(CallFormat::NamedSection) => return named_before_arguments(&self.held),
            Syntax::Calls(CallFormat::Section | CallFormat::Harmony) => {
                return function(&self.held, has_index(self.syntax));
            }
            Syntax::Calls(CallFormat::Braced) => {
                CallScan::braced(BracedScan::new(BracedSyntax::Gemma, start))
            }
            Syntax::Calls(CallFormat::Python) => {
                CallScan::braced(BracedScan::new(BracedSyntax::Python, start))
            }
            syntax if is_marked(syntax) => CallScan::object_with_id(),
            _ => CallScan::object(),
        })
    }

    /// The tags of a call whose parameters stand in tags.
    fn tags(&self) -> Option<&'static Tags> {
        let Syntax::Calls(format) = self.syntax else {
            return None;
        };
        match format {
            CallFormat::Tagged => Some(&TAGS),
            CallFormat::TaggedKeys => Some(&KEY_TAGS),
            CallFormat::TaggedInline => Some(&INLINE_TAGS),
            CallFormat::Invokes => Some(&INVOKE_TAGS),
            _ => None,
        }
    }

    fn call(&mut self, c: char) {
        self.held.push(c);
        self.scan(c);
    }

    /// Passes the last held character to the call.
    fn scan(&mut self, c: char) {
        let State::Call(scan, after) = &mut self.state else {
            return;
        };
        let after = *after;
        let pushed = scan.push(&self.held, c);
        let is_known = |names: &Vec<String>| {
            scan.name().is_empty() || names.iter().any(|name| name == scan.name())
        };
        match pushed {
            Ok(_) if !self.either.as_ref().is_none_or(is_known) => self.break_off(0),
            Ok(false) => {}
            Ok(true) => match scan.arguments(&self.held) {
                Ok(arguments) => self.complete(arguments, after),
                Err(_) => self.break_off(0),
            },
            Err(_) => self.break_off(c.len_utf8()),
        }
    }

    /// A call is complete.
    fn complete(&mut self, arguments: Value, after: ParserPlace) {
        self.tell_of_call();
        if let State::Call(scan, _) = &self.state {
            let id = scan.id().unwrap_or_default().to_owned();
            let name = scan.name().to_owned();
            self.pieces.call(ToolCall {
                id,
                name,
                arguments,
            });
        }
        self.enter(State::Expect(after));
    }

    /// The held text is not a call after all; its last `n_again` bytes are read anew.
    fn break_off(&mut self, n_again: usize) {
        let again = self.held.split_off(self.held.len() - n_again);
        self.tell_of_call();
        self.read_again(&again);
    }

    /// Emits the held text except for white space at its end, which may precede a marker beginning
    /// in `again`.
    fn read_again(&mut self, again: &str) {
        let n_solid = self.held.trim_end_matches(is_space).len();
        let space = self.held.split_off(n_solid);
        self.give_up();
        self.enter(State::Text);
        if self.either.is_some() {
            self.syntax = Syntax::Plain(self.syntax.think_tags());
        }
        space
            .chars()
            .chain(again.chars())
            .for_each(|c| self.take(c));
    }

    /// All held text is text; cancels a call that was announced.
    fn give_up(&mut self) {
        if matches!(&self.state, State::Call(scan, _) if scan.given.is_some()) {
            self.pieces.broken();
        }
        self.pieces.text(&self.held);
    }

    /// Announces the current call and emits its arguments so far.
    fn tell_of_call(&mut self) {
        let State::Call(scan, _) = &mut self.state else {
            return;
        };
        if !scan.can_begin() {
            return;
        }
        let given = scan.given.unwrap_or_else(|| {
            let id = self.ids.give(scan.id(), scan.name());
            scan.set_id(id.clone());
            self.pieces.begin(id, scan.name().to_owned());
            0
        });
        let arguments = scan.arguments_text(&self.held);
        self.pieces.arguments(&arguments[given..]);
        scan.given = Some(arguments.len());
    }

    /// A character of an answer in quotation marks.
    fn reply(&mut self, c: char) {
        if !self.held.is_empty() || c == '\\' {
            self.escape(c);
        } else if c == '"' {
            self.enter(State::Expect(ParserPlace::ObjectEnd));
        } else if c < ' ' {
            self.enter(State::Text);
            self.take(c);
        } else {
            self.pieces.text(c.encode_utf8(&mut [0; 4]));
        }
    }

    /// A character of an answer that is a JSON value, up to the brace after it.
    fn value(&mut self, c: char) {
        let State::Value(json) = &mut self.state else {
            return;
        };
        let is_between =
            is_space(c) && json.depth() == 1 && (json.awaits_value() || json.is_after_value());
        let pushed = json.push(c);
        let is_done = json.is_done();
        match pushed {
            Ok(()) if is_done => self.enter(State::Expect(ParserPlace::Next)),
            Ok(()) if is_between => {}
            Ok(()) => self.pieces.text(c.encode_utf8(&mut [0; 4])),
            Err(_) => {
                self.enter(State::Text);
                self.take(c);
            }
        }
    }

    /// A character of an escape, which ends where it is complete or invalid.
    fn escape(&mut self, c: char) {
        self.held.push(c);
        if let Ok(text) = from_str::<String>(&format!("\"{}\"", self.held)) {
            self.pieces.text(&text);
            self.enter(State::Reply);
        } else if from_str::<String>(&format!("\"{}", self.held))
            .is_err_and(|error| !error.is_eof())
        {
            self.break_off(0);
        }
    }
}

/// Whether calls follow `[TOOL_CALLS]`.
fn is_marked(syntax: Syntax) -> bool {
    matches!(
        syntax,
        Syntax::Calls(CallFormat::MarkedList | CallFormat::MarkedName)
    )
}

/// Whether an index follows the name of a call.
fn has_index(syntax: Syntax) -> bool {
    syntax == Syntax::Calls(CallFormat::Section)
}

/// The call in whose header a function is named, with an index or without.
fn function(header: &str, has_index: bool) -> Option<CallScan> {
    let (_, rest) = header.split_once(FUNCTIONS)?;
    let is_part = |c: char| is_name_char(c) || c == ':' && has_index;
    let head = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
    if !has_index {
        return is_name(head).then(|| CallScan::arguments_of(head.to_owned(), None));
    }
    let (name, index) = head.rsplit_once(':')?;
    let is_index = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    let id = format!("{FUNCTIONS}{head}");
    (is_name(name) && is_index).then(|| CallScan::arguments_of(name.to_owned(), Some(id)))
}

/// The call of [`CallFormat::NamedSection`] whose arguments begin.
fn named_before_arguments(held: &str) -> Option<CallScan> {
    let (_, name) = held.strip_suffix(NAMED_ARGS)?.rsplit_once(NAMED_CALL)?;
    let name = name.trim_end_matches(is_space);
    is_name(name).then(|| CallScan::arguments_of(name.to_owned(), None))
}

/// The call whose name, and perhaps id, precede `[ARGS]`.
fn named(head: &str) -> Option<CallScan> {
    let (name, id) = head.split_once(CALL_ID).unwrap_or((head, ""));
    let id = Some(id).filter(|id| !id.is_empty());
    let is_call = is_name(name) && id.is_none_or(is_name);
    is_call.then(|| CallScan::arguments_of(name.to_owned(), id.map(str::to_owned)))
}

/// Whether a text is the marker of an id and a beginning of the id.
fn follows_call_id(tail: &str) -> bool {
    tail.strip_prefix(CALL_ID)
        .is_some_and(|id| id.chars().all(is_name_char))
}
