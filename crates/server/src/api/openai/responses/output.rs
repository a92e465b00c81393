//! Items of a response while they are written, and the events that tell of them.
//!
//! Knows no model and no connection. At most one item is open: what is of another kind closes it.

use atta_engine::tools::Piece;
use serde_json::{Value, json};

use super::tools::{Form, Names, input_of};

/// An event without what all of them have: its name, and its fields.
pub(super) type Told = (&'static str, Value);

const IN_PROGRESS: &str = "in_progress";
const COMPLETED: &str = "completed";
const INCOMPLETE: &str = "incomplete";

/// What has been written so far.
pub(super) struct Output {
    /// What makes the ids of the items those of this response.
    id: String,
    items: Vec<Value>,
    open: Option<Open>,
    /// Whether texts come with log-probabilities.
    logprobs: bool,
    /// Text that waits for them.
    held: String,
    /// Log-probabilities that wait for their text.
    thoughts: Vec<Value>,
    events: Vec<Told>,
    /// Tools in the form that the client knows.
    names: Names,
}

/// An item that is being written.
struct Open {
    kind: Kind,
    id: String,
    /// Its text, or the arguments of a call.
    text: String,
    logprobs: Vec<Value>,
}

#[derive(PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    Call {
        id: String,
        name: String,
        namespace: Option<String>,
    },
    /// Of a tool that takes any text; it is told of when it is complete.
    Custom {
        id: String,
        name: String,
    },
}

impl Kind {
    fn prefix(&self) -> &'static str {
        match self {
            Self::Reasoning => "rs",
            Self::Message => "msg",
            Self::Call { .. } => "fc",
            Self::Custom { .. } => "ctc",
        }
    }

    /// Names of the events of its text: more of it, and all of it.
    fn events(&self) -> [&'static str; 2] {
        match self {
            Self::Reasoning => [
                "response.reasoning_text.delta",
                "response.reasoning_text.done",
            ],
            Self::Message => ["response.output_text.delta", "response.output_text.done"],
            Self::Call { .. } => [
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
            ],
            Self::Custom { .. } => [
                "response.custom_tool_call_input.delta",
                "response.custom_tool_call_input.done",
            ],
        }
    }
}

impl Open {
    fn is_message(&self) -> bool {
        self.kind == Kind::Message
    }

    /// Its content, if it has parts.
    fn part(&self) -> Option<Value> {
        match self.kind {
            Kind::Reasoning => Some(json!({ "type": "reasoning_text", "text": self.text })),
            Kind::Message => {
                let (text, logprobs) = (&self.text, &self.logprobs);
                Some(
                    json!({ "type": "output_text", "annotations": [], "logprobs": logprobs, "text": text }),
                )
            }
            Kind::Call { .. } | Kind::Custom { .. } => None,
        }
    }

    /// What a client gets of it; its part is told of later than it is itself.
    fn item(&self, status: &str) -> Value {
        let content: Vec<Value> = self
            .part()
            .filter(|_| status != IN_PROGRESS)
            .into_iter()
            .collect();
        let id = &self.id;
        match &self.kind {
            Kind::Reasoning => {
                json!({ "id": id, "type": "reasoning", "summary": [], "content": content, "status": status })
            }
            Kind::Message => {
                json!({ "id": id, "type": "message", "role": "assistant", "content": content, "status": status })
            }
            Kind::Call {
                id: call_id,
                name,
                namespace,
            } => {
                let mut item = json!({
                    "id": id, "type": "function_call", "call_id": call_id, "name": name, "arguments": self.text,
                    "status": status,
                });
                if let Some(namespace) = namespace {
                    item["namespace"] = namespace.as_str().into();
                }
                item
            }
            Kind::Custom { id: call_id, name } => json!({
                "id": id, "type": "custom_tool_call", "call_id": call_id, "name": name, "input": input_of(&self.text),
                "status": status,
            }),
        }
    }
}

impl Output {
    /// Nothing yet; `logprobs`: each piece of text is told of with log-probabilities.
    pub(super) fn new(id: String, logprobs: bool, names: Names) -> Self {
        let (held, thoughts, events) = (String::new(), Vec::new(), Vec::new());
        Self {
            id,
            items: Vec::new(),
            open: None,
            logprobs,
            held,
            thoughts,
            events,
            names,
        }
    }

    /// Items that are complete.
    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    /// What there is to tell since the last time.
    pub(super) fn take_events(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.events)
    }

    /// More was written.
    pub(super) fn piece(&mut self, piece: Piece) {
        match piece {
            Piece::Reasoning(text) => {
                self.go_on(Kind::Reasoning);
                self.delta(&text, Vec::new());
            }
            Piece::Text(text) => self.text(text),
            Piece::CallBegin { id, name, .. } => self.begin(self.called(id, name)),
            Piece::CallArguments { fragment, .. } => self.delta(&fragment, Vec::new()),
            Piece::Call(call) => {
                if self.open.as_ref().is_some_and(|open| open.text.is_empty()) {
                    self.delta(&call.arguments.to_string(), Vec::new());
                }
                self.close(COMPLETED);
            }
            // There is no way to take it back.
            Piece::CallBroken { .. } => self.close(INCOMPLETE),
        }
    }

    /// Log-probabilities of a token, of which the text came before, or comes later where it was
    /// held back.
    pub(super) fn thought(&mut self, entry: Value) {
        if self
            .open
            .as_ref()
            .map_or(self.items.is_empty(), Open::is_message)
        {
            self.thoughts.push(entry);
        }
        if !self.held.is_empty() {
            self.release();
        }
    }

    /// Nothing more is written.
    pub(super) fn end(&mut self, is_cut: bool) {
        if self.open.is_none() && self.items.is_empty() {
            self.begin(Kind::Message);
        }
        self.close(if is_cut { INCOMPLETE } else { COMPLETED });
    }

    fn text(&mut self, text: String) {
        self.go_on(Kind::Message);
        if !self.logprobs {
            return self.delta(&text, Vec::new());
        }
        if !self.held.is_empty() {
            self.release();
        }
        self.held = text;
    }

    /// Tells of the text that waits, with what the model thought of it.
    fn release(&mut self) {
        let (text, thoughts) = (
            std::mem::take(&mut self.held),
            std::mem::take(&mut self.thoughts),
        );
        if !text.is_empty() || !thoughts.is_empty() {
            self.delta(&text, thoughts);
        }
    }

    /// A call in the form that the client knows.
    fn called(&self, id: String, name: String) -> Kind {
        match self.names.form(&name) {
            Some(Form::Custom) => Kind::Custom { id, name },
            Some(Form::Within { namespace, name }) => Kind::Call {
                id,
                name: name.clone(),
                namespace: Some(namespace.clone()),
            },
            None => Kind::Call {
                id,
                name,
                namespace: None,
            },
        }
    }

    /// Opens an item, if none of its kind is open.
    fn go_on(&mut self, kind: Kind) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.begin(kind);
        }
    }

    fn begin(&mut self, kind: Kind) {
        if self.held.is_empty() && !matches!(kind, Kind::Message) {
            // They are of tokens that are no text.
            self.thoughts.clear();
        }
        self.close(COMPLETED);
        let id = format!("{}_{}_{}", kind.prefix(), self.id, self.items.len());
        let open = Open {
            kind,
            id,
            text: String::new(),
            logprobs: Vec::new(),
        };
        if !open.is_message() {
            self.thoughts.clear();
        }
        let added = json!({ "output_index": self.items.len(), "item": open.item(IN_PROGRESS) });
        self.events.push(("response.output_item.added", added));
        if let Some(part) = open.part() {
            self.tell(&open, "response.content_part.added", [("part", part)]);
        }
        self.open = Some(open);
    }

    fn delta(&mut self, text: &str, logprobs: Vec<Value>) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        open.text.push_str(text);
        let [name, _] = open.kind.events();
        match open.kind {
            Kind::Message => self.tell(
                &open,
                name,
                [
                    ("delta", text.into()),
                    ("logprobs", logprobs.clone().into()),
                ],
            ),
            Kind::Reasoning | Kind::Call { .. } => self.tell(&open, name, [("delta", text.into())]),
            Kind::Custom { .. } => {}
        }
        open.logprobs.extend(logprobs);
        self.open = Some(open);
    }

    fn close(&mut self, status: &str) {
        if self.open.as_ref().is_some_and(Open::is_message) {
            self.release();
        }
        let Some(open) = self.open.take() else { return };
        let ([more, name], text) = (open.kind.events(), Value::from(open.text.as_str()));
        match &open.kind {
            Kind::Message => {
                self.tell(
                    &open,
                    name,
                    [("text", text), ("logprobs", open.logprobs.clone().into())],
                );
            }
            Kind::Reasoning => self.tell(&open, name, [("text", text)]),
            Kind::Call { name: called, .. } => {
                self.tell(
                    &open,
                    name,
                    [("name", called.as_str().into()), ("arguments", text)],
                );
            }
            Kind::Custom { .. } => {
                let input = Value::from(input_of(&open.text));
                self.tell(&open, more, [("delta", input.clone())]);
                self.tell(&open, name, [("input", input)]);
            }
        }
        if let Some(part) = open.part() {
            self.tell(&open, "response.content_part.done", [("part", part)]);
        }
        let item = open.item(status);
        self.events.push((
            "response.output_item.done",
            json!({ "output_index": self.items.len(), "item": item }),
        ));
        self.items.push(item);
    }

    /// Tells something of an item that is not among the others yet.
    fn tell<const N: usize>(
        &mut self,
        open: &Open,
        name: &'static str,
        fields: [(&str, Value); N],
    ) {
        let mut event = json!({ "item_id": open.id, "output_index": self.items.len() });
        if open.part().is_some() {
            event["content_index"] = 0.into();
        }
        for (key, value) in fields {
            event[key] = value;
        }
        self.events.push((name, event));
    }
}

#[cfg(test)]
mod tests {
    use atta_engine::tools::ToolCall;

    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn begin(id: &str) -> Piece {
        Piece::CallBegin {
            index: 0,
            id: id.to_owned(),
            name: "find".to_owned(),
        }
    }

    fn arguments(fragment: &str) -> Piece {
        Piece::CallArguments {
            index: 0,
            fragment: fragment.to_owned(),
        }
    }

    fn written(pieces: Vec<Piece>, is_cut: bool) -> Output {
        let mut output = Output::new("x".to_owned(), false, Names::default());
        pieces.into_iter().for_each(|piece| output.piece(piece));
        output.end(is_cut);
        output
    }

    /// Of a field of all items.
    fn all(output: &Output, field: &str) -> Vec<String> {
        output
            .items()
            .iter()
            .map(|item| item[field].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn thoughts_text_and_calls_are_items_of_their_own() {
        let call = ToolCall {
            id: "call_1".to_owned(),
            name: "find".to_owned(),
            arguments: json!({}),
        };
        let thought = Piece::Reasoning("hm".to_owned());
        let output = written(
            vec![
                thought,
                text("a"),
                text("b"),
                begin("call_1"),
                Piece::Call(call),
            ],
            false,
        );
        assert_eq!(
            all(&output, "type"),
            ["reasoning", "message", "function_call"]
        );
        assert_eq!(all(&output, "id"), ["rs_x_0", "msg_x_1", "fc_x_2"]);
        assert_eq!(output.items()[1]["content"][0]["text"], "ab");
        assert_eq!(
            output.items()[2]["arguments"],
            "{}",
            "a call always has arguments that can be read"
        );
    }

    #[test]
    fn the_events_of_an_item_stand_between_its_beginning_and_its_end() {
        let mut output = written(vec![text("a"), text("b")], false);
        let events = output.take_events();
        let names: Vec<_> = events
            .iter()
            .map(|(name, _)| name.trim_start_matches("response."))
            .collect();
        let ends = ["output_text.done", "content_part.done", "output_item.done"];
        let begins = [
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
        ];
        assert_eq!(names, [&begins[..], &ends].concat());
        assert_eq!(events[0].1["item"]["content"], json!([]));
        assert!(
            events[1..6]
                .iter()
                .all(|(_, event)| event["item_id"] == "msg_x_0" && event["content_index"] == 0)
        );
        assert_eq!(events[6].1["item"], output.items()[0]);
    }

    #[test]
    fn what_was_cut_is_incomplete_and_nothing_at_all_is_an_empty_message() {
        assert_eq!(
            all(
                &written(vec![Piece::Reasoning("hm".to_owned()), text("a")], true),
                "status"
            ),
            [COMPLETED, INCOMPLETE]
        );
        let nothing = written(Vec::new(), false);
        assert_eq!(nothing.items()[0]["content"][0]["text"], "");
    }

    #[test]
    fn a_call_that_breaks_is_incomplete() {
        let broken = Piece::CallBroken { index: 0 };
        let output = written(vec![begin("call_1"), arguments("{\"a\": "), broken], true);
        assert_eq!(all(&output, "type"), ["function_call"]);
        assert_eq!(all(&output, "status"), [INCOMPLETE]);
        assert_eq!(all(&output, "arguments"), ["{\"a\": "]);
    }

    #[test]
    fn calls_come_in_the_form_that_the_client_knows() {
        let mut names = Names::default();
        let find = json!({ "type": "function", "name": "find" });
        names.declare(&[
            json!({ "type": "namespace", "name": "agents", "tools": [find] }),
            json!({ "type": "custom", "name": "patch" }),
        ]);
        let mut output = Output::new("x".to_owned(), false, names);
        let begin = |name: &str| Piece::CallBegin {
            index: 0,
            id: "1".to_owned(),
            name: name.to_owned(),
        };
        output.piece(begin("agents.find"));
        output.piece(arguments("{}"));
        output.piece(begin("patch"));
        output.take_events();
        output.piece(arguments(r#"{"input": "a\"#));
        output.piece(arguments(r#"nb"}"#));
        output.end(false);
        let items = output.items();
        assert_eq!(
            (&items[0]["namespace"], &items[0]["name"]),
            (&json!("agents"), &json!("find"))
        );
        assert_eq!(
            (&items[1]["type"], &items[1]["input"]),
            (&json!("custom_tool_call"), &json!("a\nb"))
        );
        let names: Vec<_> = output
            .take_events()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let expected = [
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
        ];
        assert_eq!(names, expected.map(|name| format!("response.{name}")));
    }

    #[test]
    fn log_probabilities_come_with_their_text_and_those_of_calls_do_not_come() {
        let mut output = Output::new("x".to_owned(), true, Names::default());
        output.thought(json!(1));
        output.piece(text("é"));
        output.thought(json!(2));
        output.piece(text("closing"));
        output.piece(begin("call_1"));
        output.thought(json!(3));
        output.end(true);
        assert_eq!(output.items()[0]["content"][0]["logprobs"], json!([1, 2]));
        let deltas: Vec<_> = output
            .take_events()
            .into_iter()
            .filter(|(name, _)| name.ends_with("text.delta"))
            .collect();
        let told: Vec<_> = deltas
            .iter()
            .map(|(_, event)| (&event["delta"], &event["logprobs"]))
            .collect();
        assert_eq!(
            told,
            [
                (&json!("é"), &json!([1, 2])),
                (&json!("closing"), &json!([]))
            ]
        );
    }
}
