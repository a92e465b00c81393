//! The items of a response while they are generated, and the events about them.
//!
//! Knows no model and no connection. At most one item is open; output of another kind closes it.

use atta_engine::tools::Piece;
use serde_json::{Value, json};

use super::tools::{ClientTool, ToolNames, input_of};

/// The name of an event and the fields that not all events have.
pub(super) type ItemEvent = (&'static str, Value);

const IN_PROGRESS: &str = "in_progress";
const COMPLETED: &str = "completed";
const INCOMPLETE: &str = "incomplete";

/// The items so far.
pub(super) struct Output {
    /// Part of the ids of all items, unique to this response.
    id: String,
    items: Vec<Value>,
    open: Option<OpenItem>,
    /// Whether text comes with log-probabilities.
    logprobs: bool,
    /// Text that waits for its log-probabilities.
    held: String,
    /// Log-probabilities that wait for their text.
    pending_logprobs: Vec<Value>,
    events: Vec<ItemEvent>,
    names: ToolNames,
}

/// The item that is being generated.
struct OpenItem {
    kind: ItemKind,
    id: String,
    /// The text, or the arguments of a call.
    text: String,
    logprobs: Vec<Value>,
}

#[derive(PartialEq, Eq)]
enum ItemKind {
    Reasoning,
    Message,
    Call {
        id: String,
        name: String,
        namespace: Option<String>,
    },
    /// A call of a custom tool; its input is sent when it is complete.
    Custom {
        id: String,
        name: String,
    },
}

impl ItemKind {
    fn prefix(&self) -> &'static str {
        match self {
            Self::Reasoning => "rs",
            Self::Message => "msg",
            Self::Call { .. } => "fc",
            Self::Custom { .. } => "ctc",
        }
    }

    /// The names of the events about its text: a delta, and the whole.
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

impl OpenItem {
    fn is_message(&self) -> bool {
        self.kind == ItemKind::Message
    }

    /// The content part, if this kind of item has one.
    fn part(&self) -> Option<Value> {
        match self.kind {
            ItemKind::Reasoning => Some(json!({ "type": "reasoning_text", "text": self.text })),
            ItemKind::Message => Some(json!({
                "type": "output_text",
                "annotations": [],
                "logprobs": self.logprobs,
                "text": self.text,
            })),
            ItemKind::Call { .. } | ItemKind::Custom { .. } => None,
        }
    }

    /// The JSON of the item. While it is in progress it has no part, which has events of its own.
    fn item(&self, status: &str) -> Value {
        let content: Vec<Value> = self
            .part()
            .filter(|_| status != IN_PROGRESS)
            .into_iter()
            .collect();
        let id = &self.id;
        match &self.kind {
            ItemKind::Reasoning => {
                json!({ "id": id, "type": "reasoning", "summary": [], "content": content, "status": status })
            }
            ItemKind::Message => {
                json!({ "id": id, "type": "message", "role": "assistant", "content": content, "status": status })
            }
            ItemKind::Call {
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
            ItemKind::Custom { id: call_id, name } => json!({
                "id": id, "type": "custom_tool_call", "call_id": call_id, "name": name, "input": input_of(&self.text),
                "status": status,
            }),
        }
    }
}

impl Output {
    /// With `logprobs`, each piece of text is sent with log-probabilities.
    pub(super) fn new(id: String, logprobs: bool, names: ToolNames) -> Self {
        Self {
            id,
            items: Vec::new(),
            open: None,
            logprobs,
            held: String::new(),
            pending_logprobs: Vec::new(),
            events: Vec::new(),
            names,
        }
    }

    /// The complete items.
    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    /// Takes the events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<ItemEvent> {
        std::mem::take(&mut self.events)
    }

    /// Adds a piece of the answer.
    pub(super) fn piece(&mut self, piece: Piece) {
        match piece {
            Piece::Reasoning(text) => {
                self.ensure_open(ItemKind::Reasoning);
                self.delta(&text, Vec::new());
            }
            Piece::Text(text) => self.text(text),
            Piece::CallBegin { id, name, .. } => self.begin(self.call_item(id, name)),
            Piece::CallArguments { fragment, .. } => self.delta(&fragment, Vec::new()),
            Piece::Call(call) => {
                if self.open.as_ref().is_some_and(|open| open.text.is_empty()) {
                    self.delta(&call.arguments.to_string(), Vec::new());
                }
                self.close(COMPLETED);
            }
            // The client has the fragments already; the call cannot be withdrawn.
            Piece::CallBroken { .. } => self.close(INCOMPLETE),
        }
    }

    /// Adds the log-probabilities of a token. Its text came before, or comes later if the parser
    /// held it back.
    pub(super) fn logprobs(&mut self, entry: Value) {
        if self
            .open
            .as_ref()
            .map_or(self.items.is_empty(), OpenItem::is_message)
        {
            self.pending_logprobs.push(entry);
        }
        if !self.held.is_empty() {
            self.release();
        }
    }

    /// Ends the answer.
    pub(super) fn end(&mut self, is_cut: bool) {
        if self.open.is_none() && self.items.is_empty() {
            self.begin(ItemKind::Message);
        }
        self.close(if is_cut { INCOMPLETE } else { COMPLETED });
    }

    fn text(&mut self, text: String) {
        self.ensure_open(ItemKind::Message);
        if !self.logprobs {
            return self.delta(&text, Vec::new());
        }
        if !self.held.is_empty() {
            self.release();
        }
        self.held = text;
    }

    /// Sends the held text with its log-probabilities.
    fn release(&mut self) {
        let text = std::mem::take(&mut self.held);
        let logprobs = std::mem::take(&mut self.pending_logprobs);
        if !text.is_empty() || !logprobs.is_empty() {
            self.delta(&text, logprobs);
        }
    }

    /// The item for a call of the model's function `name`.
    fn call_item(&self, id: String, name: String) -> ItemKind {
        match self.names.client_tool(&name) {
            Some(ClientTool::Custom) => ItemKind::Custom { id, name },
            Some(ClientTool::InNamespace { namespace, name }) => ItemKind::Call {
                id,
                name: name.clone(),
                namespace: Some(namespace.clone()),
            },
            None => ItemKind::Call {
                id,
                name,
                namespace: None,
            },
        }
    }

    /// Opens an item, unless one of its kind is open.
    fn ensure_open(&mut self, kind: ItemKind) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.begin(kind);
        }
    }

    fn begin(&mut self, kind: ItemKind) {
        if self.held.is_empty() && !matches!(kind, ItemKind::Message) {
            // They belong to tokens that are no text.
            self.pending_logprobs.clear();
        }
        self.close(COMPLETED);
        let id = format!("{}_{}_{}", kind.prefix(), self.id, self.items.len());
        let open = OpenItem {
            kind,
            id,
            text: String::new(),
            logprobs: Vec::new(),
        };
        if !open.is_message() {
            self.pending_logprobs.clear();
        }
        let added = json!({ "output_index": self.items.len(), "item": open.item(IN_PROGRESS) });
        self.events.push(("response.output_item.added", added));
        if let Some(part) = open.part() {
            self.add_event(&open, "response.content_part.added", [("part", part)]);
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
            ItemKind::Message => self.add_event(
                &open,
                name,
                [
                    ("delta", text.into()),
                    ("logprobs", logprobs.clone().into()),
                ],
            ),
            ItemKind::Reasoning | ItemKind::Call { .. } => {
                self.add_event(&open, name, [("delta", text.into())])
            }
            ItemKind::Custom { .. } => {}
        }
        open.logprobs.extend(logprobs);
        self.open = Some(open);
    }

    fn close(&mut self, status: &str) {
        if self.open.as_ref().is_some_and(OpenItem::is_message) {
            self.release();
        }
        let Some(open) = self.open.take() else { return };
        let [delta, name] = open.kind.events();
        let text = Value::from(open.text.as_str());
        match &open.kind {
            ItemKind::Message => {
                self.add_event(
                    &open,
                    name,
                    [("text", text), ("logprobs", open.logprobs.clone().into())],
                );
            }
            ItemKind::Reasoning => self.add_event(&open, name, [("text", text)]),
            ItemKind::Call { name: called, .. } => {
                self.add_event(
                    &open,
                    name,
                    [("name", called.as_str().into()), ("arguments", text)],
                );
            }
            ItemKind::Custom { .. } => {
                let input = Value::from(input_of(&open.text));
                self.add_event(&open, delta, [("delta", input.clone())]);
                self.add_event(&open, name, [("input", input)]);
            }
        }
        if let Some(part) = open.part() {
            self.add_event(&open, "response.content_part.done", [("part", part)]);
        }
        let item = open.item(status);
        self.events.push((
            "response.output_item.done",
            json!({ "output_index": self.items.len(), "item": item }),
        ));
        self.items.push(item);
    }

    /// Adds an event about the open item.
    fn add_event<const N: usize>(
        &mut self,
        open: &OpenItem,
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
        let mut output = Output::new("x".to_owned(), false, ToolNames::default());
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
        let mut names = ToolNames::default();
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
        let mut output = Output::new("x".to_owned(), true, ToolNames::default());
        output.logprobs(json!(1));
        output.piece(text("é"));
        output.logprobs(json!(2));
        output.piece(text("closing"));
        output.piece(begin("call_1"));
        output.logprobs(json!(3));
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
