//! Grammars that allow only valid tool calls, in llguidance's dialect of Lark.
//!
//! Knows no vocabulary but the ids of markers; it only writes text. A lexeme for free text and one
//! that begins a call are matched side by side; free text must not contain the beginning of a call,
//! so after that beginning only a valid call can follow. JSON has at most one space between tokens.

use std::fmt::Write;

use super::{
    CallFormat, Parser, ToolChoice, ToolError, ToolSet,
    braced::is_bare,
    braced_lark::{BracedLark, Field, separated},
    definition::Tool,
    format::BARE_KEYS,
    harmony,
    parameters::{Parameter, RawText, parameters},
    place::{
        ARGS, CALL, FUNCTION, FUNCTION_END, FUNCTIONS, INLINE_TAGS, INVOKE, INVOKE_END,
        INVOKE_TAGS, KEY_TAGS, NAMED_ARGS, NAMED_CALL, NAMED_CALL_END, PYTHON_TAG, QUOTE,
        SECTION_ARGS, SECTION_CALL, SECTION_CALL_END, Syntax, TAGS, Tags, ThinkTags,
    },
};
use atta_constrain::{CallStart, Constraint, NamePlace, Thoughts, schema};

/// Whether thinking precedes the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// The model does not think.
    #[default]
    Never,
    /// Thinking in its tags may come first.
    Maybe,
    /// The prompt has opened its tag: it must be closed.
    Open,
}

impl Thinking {
    /// Derived from a template and its prompt: whether the template knows thinking, and whether the
    /// prompt ends inside or after it.
    pub fn of_prompt(template: &str, prompt: &str) -> Self {
        let prompt = prompt.trim_end();
        let tags = ThinkTags::of_template(template);
        if prompt.ends_with(tags.open()) {
            Self::Open
        } else if tags == ThinkTags::Harmony {
            // Otherwise the prompt ends inside a message.
            match prompt.ends_with(harmony::NEXT_MESSAGE) {
                true => Self::Maybe,
                false => Self::Never,
            }
        } else if prompt.ends_with(tags.close()) {
            Self::Never
        } else if template.contains(tags.open()) || template.contains(tags.close()) {
            Self::Maybe
        } else {
            Self::Never
        }
    }
}

/// What a model may write.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Its call format.
    pub format: CallFormat,
    /// The tools.
    pub tools: &'a ToolSet,
    /// Whether a call is required.
    pub choice: &'a ToolChoice,
    /// Whether it may call more than once. A named tool is called once, and so is any tool in
    /// [`CallFormat::Bare`], whose template refuses messages with more calls, and in
    /// [`CallFormat::Harmony`], where a call ends the answer.
    pub parallel: bool,
    /// Whether it thinks first.
    pub thinking: Thinking,
    /// Constraint on an answer without calls; free text beside calls is excluded then.
    pub reply: Option<&'a Constraint>,
}

impl Rules<'_> {
    /// The grammar; `None` where no tool can be called, unless the model writes a constrained text
    /// into a message with a header. `marker` returns the id of a text that is a control token, and
    /// `None` for other texts.
    ///
    /// # Errors
    /// [`ToolError::Unknown`] if the named tool does not exist, [`ToolError::NoTools`] if a call is
    /// required and there are no tools, [`ToolError::Reply`] if the constraint cannot be combined
    /// with calls, [`ToolError::Keyword`] or [`ToolError::Definition`] for a schema that the call
    /// format cannot keep to.
    pub fn grammar(
        &self,
        marker: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Option<String>, ToolError> {
        let tools = self.tools.callable(self.choice)?;
        if tools.is_empty() && !self.is_reply_alone() {
            return Ok(None);
        }
        let mut lark = Lark {
            rules: self,
            marker,
            text: String::new(),
        };
        match self.constrained_reply() {
            _ if self.format == CallFormat::Harmony => lark.messages(!tools.is_empty())?,
            Some(constraint) => {
                lark.start();
                lark.constrained_answer(constraint)?;
            }
            None => {
                lark.start();
                lark.free_text();
                lark.answer();
            }
        }
        if !tools.is_empty() {
            lark.calls(&tools)?;
        }
        Ok(Some(lark.text))
    }

    /// How a tentative call begins, where calls are optional: with a marker that is one token, for
    /// which `marker` returns the id (a control token or not). If the model thinks, the tags around
    /// the thinking must be tokens too.
    pub fn call_start(&self, marker: &dyn Fn(&str) -> Option<u32>) -> Option<CallStart> {
        let name = match self.format {
            CallFormat::Hermes | CallFormat::MarkedList => NamePlace::FirstValue,
            CallFormat::Tagged | CallFormat::TaggedInline => BEHIND_FUNCTION,
            CallFormat::Invokes => BEHIND_INVOKE,
            CallFormat::NamedSection => BEHIND_NAMED_CALL,
            CallFormat::TaggedKeys => BEHIND_MARKER,
            CallFormat::Braced => BEHIND_CALL,
            CallFormat::Python => BEHIND_BRACKET,
            CallFormat::MarkedName => NamePlace::UpToBracket,
            CallFormat::Section => BEHIND_FUNCTIONS,
            CallFormat::Bare | CallFormat::Harmony | CallFormat::Generic => return None,
        };
        let thoughts = match self.thinking {
            Thinking::Never => None,
            Thinking::Maybe | Thinking::Open => Some(Thoughts {
                begin: marker(self.format.think_tags().open_token().0)?,
                end: marker(self.format.think_tags().close())?,
                open: self.thinking == Thinking::Open,
            }),
        };
        let may_be_text = *self.choice == ToolChoice::Auto;
        marker(self.format.call_marker()?)
            .filter(|_| may_be_text)
            .map(|marker| CallStart {
                marker,
                name,
                thoughts,
            })
    }

    /// The parser for such output. Where nothing can be called, no call is recognized;
    /// `{"response": …}` is recognized if the model was told to use it.
    pub fn parser(&self) -> Parser {
        let is_told = self.format == CallFormat::Generic && !self.tools.is_empty();
        let plain = Syntax::Plain(self.format.think_tags());
        let syntax = match self.choice {
            ToolChoice::None if is_told => Syntax::Reply,
            ToolChoice::None => plain,
            _ if self.tools.is_empty() => plain,
            _ => Syntax::Calls(self.format),
        };
        let parser = match self.format {
            CallFormat::Tagged
            | CallFormat::TaggedKeys
            | CallFormat::TaggedInline
            | CallFormat::Invokes => Parser::of(syntax, self.thinking).with_schemas_of(self.tools),
            _ => Parser::of(syntax, self.thinking),
        };
        match self.constrained_reply() {
            Some(_) => parser.either_calls_or_text(self.tools.names()),
            None => parser,
        }
    }

    /// The constraint of an answer without calls, if there may be such an answer and the grammar
    /// has to write it.
    pub(super) fn constrained_reply(&self) -> Option<&Constraint> {
        let is_beside_calls = *self.choice == ToolChoice::Auto && !self.tools.is_empty();
        self.reply
            .filter(|_| is_beside_calls || self.is_reply_alone())
    }

    /// Whether an answer without calls is a constrained text in a message with a header. Other
    /// constraints than those of JSON are kept to by the whole answer.
    fn is_reply_alone(&self) -> bool {
        let can_call = *self.choice != ToolChoice::None && !self.tools.is_empty();
        let is_json = |reply: &Constraint| {
            matches!(
                reply,
                Constraint::Schema(_) | Constraint::JsonObject | Constraint::JsonValue
            )
        };
        self.format == CallFormat::Harmony && !can_call && self.reply.is_some_and(is_json)
    }

    /// Grammars of the arguments of each tool alone, to find the tool whose schema is refused.
    pub fn arguments(tools: &ToolSet) -> impl Iterator<Item = (&str, String)> {
        tools.tools().iter().map(|tool| {
            (
                tool.name.as_str(),
                format!("start: %json {}\n", tool.arguments),
            )
        })
    }

    pub(super) fn repeats(&self) -> bool {
        self.parallel
            && !matches!(self.format, CallFormat::Bare | CallFormat::Harmony)
            && !matches!(self.choice, ToolChoice::Named(_))
    }
}

/// The name of a call of [`CallFormat::Tagged`].
const BEHIND_FUNCTION: NamePlace = NamePlace::Behind {
    lead: FUNCTION,
    delimiters: b">",
};
/// The name of a call of [`CallFormat::TaggedKeys`], which ends with its line or with a tag.
const BEHIND_MARKER: NamePlace = NamePlace::Behind {
    lead: "",
    delimiters: b"\n<",
};
/// The name of a call of [`CallFormat::Braced`].
const BEHIND_CALL: NamePlace = NamePlace::Behind {
    lead: CALL,
    delimiters: b"{",
};

/// The name of a call of [`CallFormat::Python`].
const BEHIND_BRACKET: NamePlace = NamePlace::Behind {
    lead: "[",
    delimiters: b"(",
};

/// The name of a call of [`CallFormat::Section`].
const BEHIND_FUNCTIONS: NamePlace = NamePlace::Behind {
    lead: FUNCTIONS,
    delimiters: b":",
};

/// The name of a call of [`CallFormat::Invokes`].
const BEHIND_INVOKE: NamePlace = NamePlace::Behind {
    lead: INVOKE,
    delimiters: b">",
};

/// The name of a call of [`CallFormat::NamedSection`].
const BEHIND_NAMED_CALL: NamePlace = NamePlace::Behind {
    lead: NAMED_CALL,
    delimiters: b"{",
};

/// JSON's white space, as the parser skips it.
pub(super) const SPACE: &str = r"[ \t\r\n]*";
/// White space allowed between thinking and a call, and at the beginning.
pub(super) const GAP: &str = r"\n{0,2}";

/// A grammar under construction.
pub(super) struct Lark<'a> {
    pub(super) rules: &'a Rules<'a>,
    marker: &'a dyn Fn(&str) -> Option<u32>,
    text: String,
}

impl Lark<'_> {
    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The start rule, with thinking.
    fn start(&mut self) {
        let (tag, name) = self.think_tags().open_token();
        let open = match self.token(tag) {
            Some(token) if name.is_empty() => token,
            Some(token) => format!("{token} \"{name}\""),
            None => format!("/{SPACE}{}/", regex(self.think_tags().open())),
        };
        self.line(match self.rules.thinking {
            Thinking::Never => "start: answer",
            Thinking::Maybe => "start: (thought_begin thought_end)? answer",
            Thinking::Open => "start: thought_end answer",
        });
        if self.rules.thinking == Thinking::Maybe {
            self.line(&format!("thought_begin: {open}"));
        }
        if self.rules.thinking != Thinking::Never {
            self.thought_end();
        }
    }

    fn thought_end(&mut self) {
        let end = regex(self.think_tags().close());
        match self.token(self.think_tags().close()) {
            Some(token) => {
                self.line(&format!("thought_end: THOUGHT? {token}"));
                self.line(&format!("THOUGHT: /(?s:.+)/ & ~/(?s:.*){end}(?s:.*)/"));
            }
            None => self.line(&format!("thought_end[lazy]: /(?s:.*){end}/")),
        }
    }

    fn think_tags(&self) -> ThinkTags {
        self.rules.format.think_tags()
    }

    /// The part of a lexeme that prevents an answer from beginning with thinking.
    fn not_thought(&self) -> String {
        format!("~/{SPACE}{}(?s:.*)/", regex(self.think_tags().open()))
    }

    /// Text without the beginning of a call or of thinking.
    fn free_text(&mut self) {
        let trigger = match self.rules.format.call_marker() {
            Some(marker) => format!("(?s:.*){}", regex(marker)),
            None if self.rules.format == CallFormat::Bare => {
                let key = format!(r#""(name|arguments|parameters|type"{SPACE}:{SPACE}"function)""#);
                format!(r"{SPACE}({}|\{{{SPACE}{key})", regex(PYTHON_TAG))
            }
            None => format!(r#"{SPACE}\{{{SPACE}"(tool_calls|response)""#),
        };
        let thought = self.not_thought();
        self.line(&format!(
            "TEXT: /(?s:.+)/ & ~/{trigger}(?s:.*)/ & {thought}"
        ));
    }

    /// The answer: text, calls, or text followed by calls.
    fn answer(&mut self) {
        let may_be_text = *self.rules.choice == ToolChoice::Auto;
        if let Some(marker) = self.rules.format.call_marker() {
            return self.marked_answer(marker, may_be_text);
        }
        let is_bare = self.rules.format == CallFormat::Bare;
        self.line(match (may_be_text, is_bare) {
            (false, _) => "answer: calls",
            (true, true) => "answer: TEXT? | calls",
            (true, false) => "answer: calls | response",
        });
        if may_be_text && !is_bare {
            self.response();
        }
    }

    /// An answer that is either calls or a constrained text.
    fn constrained_answer(&mut self, constraint: &Constraint) -> Result<(), ToolError> {
        let is_bare = self.rules.format == CallFormat::Bare;
        let reply = constraint.reply(if is_bare { &BARE_KEYS } else { &[] })?;
        match self.rules.format.call_marker() {
            Some(marker) => self.marked_or_reply(marker),
            None if is_bare => self.line("answer: LINES? (reply | calls)\nLINES: /\\n{1,2}/"),
            None => {
                self.line("answer: calls | response");
                self.line(&format!(
                    r#"response: /{GAP}\{{ ?"response": ?/ reply / ?\}}/"#
                ));
            }
        }
        self.line(&reply);
        Ok(())
    }

    /// A constrained text, or calls behind a marker.
    fn marked_or_reply(&mut self, marker: &str) {
        match self.token(marker) {
            Some(token) => self.line(&format!(
                "answer: LINES? (reply | {token} calls)\nLINES: /\\n{{1,2}}/"
            )),
            None => {
                self.line(&format!(
                    "answer: LINES? reply | /{GAP}{}/ calls\nLINES: /\\n{{1,2}}/",
                    regex(marker)
                ));
            }
        }
    }

    /// An answer whose calls follow a marker.
    fn marked_answer(&mut self, marker: &str, may_be_text: bool) {
        let token = self.token(marker);
        let regex = regex(marker);
        match (token, may_be_text) {
            (Some(token), true) => self.line(&format!("answer: TEXT? ({token} calls)?")),
            (Some(token), false) => self.line(&format!("answer: /\\n{{1,2}}/? {token} calls")),
            (None, true) => {
                self.line("answer: TEXT? | lead calls\nlead[lazy]: LEAD");
                self.line(&format!("LEAD: /(?s:.*){regex}/ & {}", self.not_thought()));
            }
            (None, false) => self.line(&format!("answer: /{GAP}{regex}/ calls")),
        }
    }

    /// A text answer of a model without a call format.
    fn response(&mut self) {
        let string = schema::embedded_string();
        self.line(&format!(
            r#"response: /{GAP}\{{ ?"response": ?/ %json {string} / ?\}}/"#
        ));
    }

    /// The calls, one rule per tool: its name and its arguments belong together. Shared parts are
    /// rules of their own: with 128 tools and 287 tokens, the slowest mask takes 0.1 to 0.3 ms,
    /// against 1.2 to 2.2 ms with one lexeme per tool from the brace on.
    fn calls(&mut self, tools: &[&Tool]) -> Result<(), ToolError> {
        self.sequence();
        let call = match self.rules.format {
            CallFormat::Hermes => r#"/\n?\{ ?"name": ?"/ tool / ?\}/"#.to_owned(),
            CallFormat::Tagged => format!("/\\n?{}/ tool \"{FUNCTION_END}\"", regex(FUNCTION)),
            // Other objects may occur here, so they are told apart token by token.
            CallFormat::Bare if self.rules.constrained_reply().is_some() => {
                r#""{" ("\"type\"" /: ?/ "\"function\"" /, ?/)? "\"name\"" /: ?/ tool "}""#
                    .to_owned()
            }
            CallFormat::Bare => {
                format!(r#"/{GAP}\{{ ?("type": ?"function", ?)?"name": ?"/ tool / ?\}}/"#)
            }
            CallFormat::MarkedList => {
                r#"/ ?\{ ?"name": ?"/ tool /(, ?"id": ?"[a-zA-Z0-9]{9}")? ?\}/"#.to_owned()
            }
            CallFormat::Braced => format!("\"{CALL}\" tool"),
            CallFormat::TaggedKeys => "tool".to_owned(),
            CallFormat::Python => "tool \")\"".to_owned(),
            CallFormat::MarkedName | CallFormat::Harmony => "tool".to_owned(),
            CallFormat::Section => {
                let [begin, end] = [SECTION_CALL, SECTION_CALL_END].map(|text| self.tag(text));
                format!("{begin} \"{FUNCTIONS}\" tool {end}")
            }
            CallFormat::NamedSection => {
                let [begin, end] = [NAMED_CALL, NAMED_CALL_END].map(|text| self.tag(text));
                format!("{begin} tool {end}")
            }
            CallFormat::TaggedInline => {
                let [begin, end] = [FUNCTION, FUNCTION_END].map(regex);
                format!("/\\n?{begin}/ tool /\\n?{end}/")
            }
            CallFormat::Invokes => {
                let [begin, end] = [INVOKE, INVOKE_END].map(regex);
                format!("/\\n?{begin}/ tool /\\n?{end}/")
            }
            CallFormat::Generic => r#"/ ?\{ ?"name": ?"/ tool / ?\}/"#.to_owned(),
        };
        self.line(&format!("call: {call}"));
        let names: Vec<String> = (0..tools.len()).map(|i| format!("tool_{i}")).collect();
        self.line(&format!("tool: {}", names.join(" | ")));
        for (i, tool) in tools.iter().enumerate() {
            let name = self.name(&tool.name);
            self.line(&format!("tool_{i}: {name} args_{i}"));
            match self.rules.format {
                CallFormat::Tagged => self.parameters(i, tool, &TAGS)?,
                CallFormat::TaggedKeys => self.parameters(i, tool, &KEY_TAGS)?,
                CallFormat::TaggedInline => self.parameters(i, tool, &INLINE_TAGS)?,
                CallFormat::Invokes => self.parameters(i, tool, &INVOKE_TAGS)?,
                CallFormat::Python => self.keywords(i, tool)?,
                CallFormat::Braced => {
                    let rules = BracedLark::of_arguments(i, &tool.arguments, self.token(QUOTE));
                    self.line(&rules);
                }
                _ => self.line(&format!("args_{i}: %json {}", tool.arguments)),
            }
        }
        Ok(())
    }

    /// The arguments of a tool as parameters in tags, in the order of its schema.
    fn parameters(&mut self, i: usize, tool: &Tool, tags: &Tags) -> Result<(), ToolError> {
        let mut sequence = String::new();
        for (j, parameter) in parameters(tool)?.iter().enumerate() {
            check_key(tool, parameter, |key| !key.contains(['>', '<', '\n']))?;
            let mark = if parameter.is_required { "" } else { "?" };
            let _ = write!(sequence, " value_{i}_{j}{mark}");
            let begin = self.before_value(parameter.name, tags);
            let end = self.after_value(tags);
            let schema = &parameter.schema;
            self.line(&match &parameter.text {
                Some(text) => format!(
                    "value_{i}_{j}: {begin} text_{i}_{j}\n{}",
                    self.raw_text(i, j, text, tags)
                ),
                None => format!("value_{i}_{j}: {begin} %json {schema} {end}"),
            });
        }
        let sequence = if sequence.is_empty() {
            " \"\""
        } else {
            &sequence
        };
        self.line(&format!("args_{i}:{sequence}"));
        Ok(())
    }

    /// The tags in front of a value, with their key.
    fn before_value(&self, key: &str, tags: &Tags) -> String {
        if tags.value.is_empty() && !tags.has_lines {
            return self.tag_after_line(&format!("{}{key}{}", tags.key, tags.key_end));
        }
        if tags.value.is_empty() {
            return quoted(&format!("{}{key}{}\n", tags.key, tags.key_end));
        }
        let [begin, value] = [tags.key, tags.value].map(|tag| self.tag_after_line(tag));
        format!("{begin} {} {} {value}", quoted(key), self.tag(tags.key_end))
    }

    /// The tag behind a value.
    fn after_value(&self, tags: &Tags) -> String {
        match tags.has_lines {
            true => quoted(&format!("\n{}\n", tags.value_end)),
            false => self.tag(tags.value_end),
        }
    }

    /// A tag, perhaps behind a line break.
    pub(super) fn tag_after_line(&self, tag: &str) -> String {
        match self.token(tag) {
            Some(token) => format!("\"\\n\"? {token}"),
            None => format!("/\\n?{}/", regex(tag)),
        }
    }

    /// A tag, as a token or as text.
    pub(super) fn tag(&self, tag: &str) -> String {
        self.token(tag).unwrap_or_else(|| quoted(tag))
    }

    /// The rule of a raw value, with the tag behind it. It ends with the first such tag, as it does
    /// for the parser.
    fn raw_text(&self, i: usize, j: usize, text: &RawText<'_>, tags: &Tags) -> String {
        let null = if text.is_nullable { "|null" } else { "" };
        let inside = format!("({}{null})", text.regex());
        let tag = regex(tags.value_end);
        if let Some(token) = self.token(tags.value_end) {
            let optional = if text.may_be_empty() { "?" } else { "" };
            return format!(
                "text_{i}_{j}: TEXT_{i}_{j}{optional} {token}\n\
                 TEXT_{i}_{j}: /{inside}/ & /(?s:.+)/ & ~/(?s:.*){tag}(?s:.*)/"
            );
        }
        let end = match tags.has_lines {
            true => format!("\\n{tag}\\n"),
            false => tag.clone(),
        };
        format!(
            "text_{i}_{j}[lazy]: TEXT_{i}_{j}\n\
             TEXT_{i}_{j}: /{inside}{end}/ & ~/(?s:.*){tag}(?s:.*){tag}(?s:.*)/"
        )
    }

    /// The arguments of a tool as keyword arguments of Python, in the order of its schema.
    fn keywords(&mut self, i: usize, tool: &Tool) -> Result<(), ToolError> {
        let mut fields = Vec::new();
        for (j, parameter) in parameters(tool)?.iter().enumerate() {
            check_key(tool, parameter, |key| key.chars().all(is_bare))?;
            let value = match parameter.is_boolean() {
                true => r#""True" | "False""#.to_owned(),
                false => format!("%json {}", parameter.schema),
            };
            self.line(&format!("value_{i}_{j}: {value}"));
            let text = format!("\"{}=\" value_{i}_{j}", parameter.name);
            fields.push(Field {
                text,
                is_required: parameter.is_required,
            });
        }
        let mut rules = Vec::new();
        let sequence = separated(&fields, "/, ?/", |body| {
            let name = format!("rest_{i}_{}", rules.len());
            rules.push(format!("{name}: {body}"));
            name
        });
        self.line(&format!("args_{i}: {sequence}"));
        rules.iter().for_each(|rule| self.line(rule));
        Ok(())
    }

    /// A name, and the text between it and the arguments.
    fn name(&self, name: &str) -> String {
        match self.rules.format {
            CallFormat::Bare if self.rules.constrained_reply().is_some() => {
                format!(r#""\"{name}\"" /, ?/ "\"parameters\"" /: ?/"#)
            }
            CallFormat::Bare => format!(r#""{name}\"" /, ?"parameters": ?/"#),
            CallFormat::Tagged => format!("\"{name}>\\n\""),
            CallFormat::TaggedInline => format!("\"{name}>\""),
            CallFormat::Invokes => quoted(&format!("{name}\">")),
            CallFormat::NamedSection => format!("\"{name}\" {}", self.tag(NAMED_ARGS)),
            // Tags may stand in lines of their own.
            CallFormat::TaggedKeys | CallFormat::Braced => format!("\"{name}\""),
            CallFormat::Python => format!("\"{name}(\""),
            CallFormat::Section => {
                format!("\"{name}:\" /[0-9]{{1,4}}/ {}", self.tag(SECTION_ARGS))
            }
            CallFormat::Harmony => format!("\"{name}\" header"),
            CallFormat::MarkedName => self.token(ARGS).map_or_else(
                || format!("\"{name}{ARGS}\""),
                |token| format!("\"{name}\" {token}"),
            ),
            CallFormat::Hermes | CallFormat::MarkedList | CallFormat::Generic => {
                format!(r#""{name}\"" /, ?"arguments": ?/"#)
            }
        }
    }

    /// A control token in the grammar's syntax.
    pub(super) fn token(&self, marker: &str) -> Option<String> {
        (self.marker)(marker).map(|id| format!("<[{id}]>"))
    }
}

/// A text as a string of the grammar.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Refuses names of parameters that the call format cannot write.
fn check_key(
    tool: &Tool,
    parameter: &Parameter<'_>,
    is_good: impl Fn(&str) -> bool,
) -> Result<(), ToolError> {
    if !parameter.name.is_empty() && is_good(parameter.name) {
        return Ok(());
    }
    Err(ToolError::Definition {
        tool: format!("tool {}", tool.name),
        what: format!(
            "parameters/properties: the name {:?} cannot be written in the model's call format",
            parameter.name
        ),
    })
}

/// A text as a regular expression between slashes.
pub(super) fn regex(text: &str) -> String {
    let mut regex = String::new();
    for c in text.chars() {
        let escape = if r"\/.+*?()[]{}|^$-".contains(c) {
            "\\"
        } else {
            ""
        };
        let _ = write!(regex, "{escape}{c}");
    }
    regex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_shows_whether_thoughts_come() {
        let template = "{{ '<think>' }}";
        assert_eq!(
            Thinking::of_prompt(template, "<|im_start|>assistant\n"),
            Thinking::Maybe
        );
        assert_eq!(
            Thinking::of_prompt(template, "<|im_start|>assistant\n<think>\n"),
            Thinking::Open
        );
        assert_eq!(
            Thinking::of_prompt(template, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
            Thinking::Never
        );
        assert_eq!(
            Thinking::of_prompt("", "<|im_start|>assistant\n"),
            Thinking::Never
        );
        let closing = "{% if '</think>' in content %}";
        assert_eq!(Thinking::of_prompt(closing, "a\n"), Thinking::Maybe);
        let channel = "{{ '<|channel>thought' }}{{ '<|turn>model' }}";
        for (prompt, expected) in [
            ("<|turn>model\n", Thinking::Maybe),
            (
                "<|turn>model\n<|channel>thought\n<channel|>",
                Thinking::Never,
            ),
            ("<|turn>model\n<|channel>thought\n", Thinking::Open),
        ] {
            assert_eq!(Thinking::of_prompt(channel, prompt), expected);
        }
        let harmony = "{{ '<|channel|>analysis<|message|>' }}";
        for (prompt, expected) in [
            ("<|start|>assistant", Thinking::Maybe),
            (
                "<|start|>assistant<|channel|>analysis<|message|>",
                Thinking::Open,
            ),
            (
                "<|start|>assistant<|channel|>final<|message|>It is",
                Thinking::Never,
            ),
        ] {
            assert_eq!(Thinking::of_prompt(harmony, prompt), expected);
        }
    }

    #[test]
    fn a_call_may_be_taken_back_behind_a_token_where_text_may_be_instead() {
        let tools = ToolSet::parse(r#"[{"name": "f"}]"#).unwrap();
        let start = |format, choice: ToolChoice, thinking, marker: &dyn Fn(&str) -> Option<u32>| {
            Rules {
                format,
                tools: &tools,
                choice: &choice,
                parallel: true,
                thinking,
                reply: None,
            }
            .call_start(marker)
        };
        let known = |text: &str| Some(text.len() as u32);
        let of = |format| {
            start(format, ToolChoice::Auto, Thinking::Never, &known)
                .map(|start| (start.marker, start.name))
        };
        let expected = [
            Some((11, NamePlace::FirstValue)),
            Some((11, BEHIND_FUNCTION)),
            Some((11, BEHIND_MARKER)),
            Some((16, BEHIND_FUNCTION)),
            Some((19, BEHIND_INVOKE)),
            Some((12, BEHIND_CALL)),
            Some((19, BEHIND_BRACKET)),
            None,
            Some((12, NamePlace::FirstValue)),
            Some((12, NamePlace::UpToBracket)),
            Some((28, BEHIND_FUNCTIONS)),
            Some((28, BEHIND_NAMED_CALL)),
            None,
            None,
        ];
        assert_eq!(CallFormat::ALL.map(of), expected);
        assert_eq!(
            start(
                CallFormat::Hermes,
                ToolChoice::Auto,
                Thinking::Never,
                &|_| None
            ),
            None
        );
        assert_eq!(
            start(
                CallFormat::Hermes,
                ToolChoice::Required,
                Thinking::Never,
                &known
            ),
            None
        );
        let thinks = |thinking| {
            start(CallFormat::Hermes, ToolChoice::Auto, thinking, &known)
                .unwrap()
                .thoughts
                .unwrap()
        };
        assert_eq!(
            thinks(Thinking::Open),
            Thoughts {
                begin: 7,
                end: 8,
                open: true
            }
        );
        assert!(!thinks(Thinking::Maybe).open);
        let no_tags = |text: &str| (text == "<tool_call>").then_some(1);
        assert_eq!(
            start(
                CallFormat::Hermes,
                ToolChoice::Auto,
                Thinking::Maybe,
                &no_tags
            ),
            None
        );
    }

    #[test]
    fn markers_and_names_mean_themselves_in_a_regular_expression() {
        assert_eq!(regex("</tool_call>"), r"<\/tool_call>");
        assert_eq!(regex("[A]<|b|>.-"), r"\[A\]<\|b\|>\.\-");
    }
}
