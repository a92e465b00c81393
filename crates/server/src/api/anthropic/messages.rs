//! Messages of Anthropic, mapped to the engine's.
//!
//! A message of Anthropic is a list of blocks; one of the engine is a text with reasoning and
//! calls, and each tool result is a message. Blocks that the model cannot read are dropped from
//! earlier turns, and refused in the last one.

use std::collections::HashMap;

use atta_engine::{
    chat::{Message, PromptEnd, Role},
    tools::ToolCall,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::blocks::{Block, at, blocks, texts};
use crate::flow::{error::ApiError, warnings::Warnings};

/// The start of a system block that Claude Code adds for its accounting. It differs in each
/// request, so that with it no prompt could reuse the prefix of the one before.
const BILLING: &str = "x-anthropic-billing-header:";

/// A message.
#[derive(Debug, Deserialize)]
pub(super) struct WireMessage {
    role: Speaker,
    content: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    User,
    Assistant,
    System,
}

/// Reasoning.
#[derive(Debug, Deserialize)]
struct ThinkingBlock {
    thinking: String,
}

#[derive(Debug, Deserialize)]
struct ToolUseBlock {
    id: String,
    name: String,
    input: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ToolResultBlock {
    tool_use_id: String,
    content: Option<Value>,
    is_error: Option<bool>,
}

/// A summary of earlier messages.
#[derive(Debug, Deserialize)]
struct CompactionBlock {
    content: Option<String>,
}

/// Maps the field `system`.
pub(super) fn system(
    content: Option<Value>,
    warnings: &Warnings,
) -> Result<Option<String>, ApiError> {
    let Some(Value::Array(mut list)) = content else {
        return texts(content, "system", warnings);
    };
    let n_blocks = list.len();
    list.retain(|block| {
        !block["text"]
            .as_str()
            .is_some_and(|text| text.starts_with(BILLING))
    });
    if list.len() < n_blocks {
        warnings.add(format!(
            "system: the block {BILLING} is left out: no prompt could reuse the one before"
        ));
    }
    texts(Some(Value::Array(list)), "system", warnings)
}

/// Maps the messages of a request. Consecutive messages of the same role are joined.
pub(super) fn messages(
    list: Vec<WireMessage>,
    warnings: &Warnings,
) -> Result<Vec<Message>, ApiError> {
    let last = list
        .iter()
        .rposition(|message| message.role == Speaker::Assistant)
        .map_or(0, |i| i + 1);
    let mut mapper = MessageMapper {
        messages: Vec::new(),
        names: HashMap::new(),
        warnings,
        is_last: false,
    };
    for (i, message) in list.into_iter().enumerate() {
        mapper.is_last = i >= last;
        mapper.message(i, message)?;
    }
    if mapper.messages.is_empty() {
        return Err(ApiError::field("messages", "there are no messages"));
    }
    Ok(mapper.messages)
}

/// Where the prompt ends: a last message of the assistant is the start of the answer.
pub(super) fn end(messages: &[Message]) -> Result<PromptEnd, ApiError> {
    match messages.last() {
        Some(last) if !last.tool_calls.is_empty() => Err(ApiError::field(
            "messages",
            "the last message has tool_use: its results are missing",
        )),
        Some(last) if last.role == Role::Assistant => Ok(PromptEnd::WithinLastMessage),
        _ => Ok(PromptEnd::Answer),
    }
}

/// Maps messages one after another.
struct MessageMapper<'a> {
    messages: Vec<Message>,
    /// The function names of calls, by id.
    names: HashMap<String, String>,
    warnings: &'a Warnings,
    /// Whether the message belongs to the turn that the model answers now.
    is_last: bool,
}

impl MessageMapper<'_> {
    fn message(
        &mut self,
        i: usize,
        WireMessage { role, content }: WireMessage,
    ) -> Result<(), ApiError> {
        let place = format!("messages[{i}]");
        let blocks = blocks(content, &format!("{place}.content"))?;
        match role {
            Speaker::User if blocks.is_empty() => {
                Err(at(&place, "a message of user without content"))
            }
            Speaker::User => blocks.iter().try_for_each(|block| self.user(block)),
            Speaker::System => blocks.iter().try_for_each(|block| self.system(block)),
            Speaker::Assistant => {
                // An answer may have no blocks.
                self.last(Role::Assistant);
                blocks.iter().try_for_each(|block| self.assistant(block))
            }
        }
    }

    fn user(&mut self, block: &Block) -> Result<(), ApiError> {
        match block.kind.as_str() {
            "tool_result" => return self.result(block),
            "thinking" | "redacted_thinking" | "tool_use" => {
                return Err(block.error("a block of user that only the assistant can write"));
            }
            _ => {}
        }
        match block.text(self.warnings)? {
            Some(text) => join(&mut self.last(Role::User).content, &text),
            None if self.is_last => return Err(block.unreadable()),
            None => {
                // The message stays, even if none of its blocks does.
                self.last(Role::User);
                block.leave_out(self.warnings);
            }
        }
        Ok(())
    }

    fn system(&mut self, block: &Block) -> Result<(), ApiError> {
        match block.text(self.warnings)? {
            Some(text) => join(&mut self.last(Role::System).content, &text),
            None => block.leave_out(self.warnings),
        }
        Ok(())
    }

    fn result(&mut self, block: &Block) -> Result<(), ApiError> {
        let outcome: ToolResultBlock = block.read(self.warnings)?;
        let id = outcome.tool_use_id.clone();
        let Some(name) = self.names.get(&id) else {
            return Err(block.error(format!(
                "a tool_result of {id:?}, but no tool_use before it has that id"
            )));
        };
        let message = Message::tool(id, name, outcome.into_text(block, self.warnings)?);
        self.messages.push(message);
        Ok(())
    }

    fn assistant(&mut self, block: &Block) -> Result<(), ApiError> {
        match block.kind.as_str() {
            "thinking" => {
                let ThinkingBlock { thinking } = block.read(self.warnings)?;
                join(
                    self.last(Role::Assistant).reasoning.get_or_insert_default(),
                    &thinking,
                );
            }
            // Encrypted reasoning of another model.
            "redacted_thinking" => {}
            "tool_use" => self.call(block)?,
            "tool_result" => return Err(block.error("a tool_result of the assistant")),
            "compaction" => {
                let CompactionBlock { content } = block.read(self.warnings)?;
                content
                    .into_iter()
                    .for_each(|text| join(&mut self.last(Role::Assistant).content, &text));
            }
            _ => match block.text(self.warnings)? {
                Some(text) => join(&mut self.last(Role::Assistant).content, &text),
                None => block.leave_out(self.warnings),
            },
        }
        Ok(())
    }

    fn call(&mut self, block: &Block) -> Result<(), ApiError> {
        let ToolUseBlock { id, name, input } = block.read(self.warnings)?;
        let arguments = match input.unwrap_or_else(|| json!({})) {
            Value::Object(fields) => fields,
            other => {
                block.warn("its input is no object, and taken as a text", self.warnings);
                as_object(other)
            }
        };
        self.names.insert(id.clone(), name.clone());
        self.last(Role::Assistant).tool_calls.push(ToolCall {
            id,
            name,
            arguments: arguments.into(),
        });
        Ok(())
    }

    /// The last message if it has this role, else a new one.
    fn last(&mut self, role: Role) -> &mut Message {
        if self
            .messages
            .last()
            .is_none_or(|message| message.role != role)
        {
            self.messages.push(Message {
                role,
                ..Message::user("")
            });
        }
        self.messages
            .last_mut()
            .expect("if there was none, there is one now")
    }
}

impl ToolResultBlock {
    /// The text for the model. Errors begin with `Error: `, because the engine has no flag for
    /// them. A block without text leaves a line that says so, because the model waits for a result.
    fn into_text(self, block: &Block, warnings: &Warnings) -> Result<String, ApiError> {
        let mut all = String::new();
        for part in block.within("content", self.content)? {
            match part.text(warnings)? {
                Some(text) => join(&mut all, &text),
                None => {
                    part.leave_out(warnings);
                    join(
                        &mut all,
                        &format!(
                            "[a block of type {:?} that this model cannot read]",
                            part.kind
                        ),
                    );
                }
            }
        }
        Ok(if self.is_error == Some(true) {
            format!("Error: {all}")
        } else {
            all
        })
    }
}

/// The arguments of a call whose input is no object, because it was cut: chat templates want an
/// object.
fn as_object(input: Value) -> Map<String, Value> {
    let text = match input {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(fields)) => fields,
        _ if text.trim().is_empty() => Map::new(),
        _ => Map::from_iter([("input".to_owned(), text.into())]),
    }
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mapped messages, or the error, and the warnings.
    fn read(turns: Value) -> (Result<Vec<Message>, String>, Vec<String>) {
        let warnings = Warnings::default();
        let read = match serde_json::from_value(turns) {
            Ok(turns) => messages(turns, &warnings).map_err(|error| error.message),
            Err(error) => Err(error.to_string()),
        };
        (read, warnings.take())
    }

    fn said(turns: Value) -> Vec<Message> {
        read(turns).0.unwrap()
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    fn image() -> Value {
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "" } })
    }

    fn tool_use(id: &str, input: Value) -> Value {
        json!({ "type": "tool_use", "id": id, "name": "f", "input": input, "caller": { "type": "direct" } })
    }

    #[test]
    fn a_text_is_a_block_and_speakers_in_a_row_are_one() {
        let turns = json!([
            { "role": "user", "content": "a" },
            { "role": "user", "content": [text("b"), text("c")] },
            { "role": "assistant", "content": [] },
            { "role": "user", "content": "d" },
        ]);
        assert_eq!(
            said(turns),
            [
                Message::user("a\nb\nc"),
                Message::assistant(""),
                Message::user("d")
            ]
        );
    }

    #[test]
    fn a_system_message_stays_where_it_stands() {
        let turns = json!([
            { "role": "user", "content": "a" },
            { "role": "system", "content": [text("b")] },
            { "role": "assistant", "content": "c" },
            { "role": "user", "content": "d" },
            { "role": "system", "content": "e" },
        ]);
        let user = Message::user;
        let system = Message::system;
        assert_eq!(
            said(turns),
            [
                user("a"),
                system("b"),
                Message::assistant("c"),
                user("d"),
                system("e")
            ]
        );
    }

    #[test]
    fn the_block_that_accounts_for_a_request_is_no_system_text() {
        let warnings = Warnings::default();
        let blocks = json!([
            text("x-anthropic-billing-header: cc_version=2.1; cch=0f;"),
            text("Be kind.")
        ]);
        assert_eq!(
            system(Some(blocks), &warnings).unwrap().as_deref(),
            Some("Be kind.")
        );
        assert_eq!(warnings.take().len(), 1);
        assert_eq!(
            system(Some("a".into()), &warnings).unwrap().as_deref(),
            Some("a")
        );
        assert_eq!(system(None, &warnings).unwrap(), None);
    }

    #[test]
    fn thoughts_calls_and_results_have_their_places() {
        let turns = json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "so", "signature": "" },
                { "type": "redacted_thinking", "data": "x" },
                { "type": "text", "text": "b", "citations": null },
                { "type": "tool_use", "id": "1", "name": "f", "input": { "x": 1 } },
                { "type": "tool_use", "id": "2", "name": "g", "input": {} },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "2", "content": [text("c"), text("d")] },
                { "type": "tool_result", "tool_use_id": "1", "content": "broken", "is_error": true },
                text("e"),
            ] },
        ]);
        let call = |id: &str, name: &str, arguments| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments,
        };
        let calls = vec![call("1", "f", json!({ "x": 1 })), call("2", "g", json!({}))];
        let answer = Message {
            reasoning: Some("so".into()),
            ..Message::assistant_calling("b", calls)
        };
        let results = [
            Message::tool("2", "g", "c\nd"),
            Message::tool("1", "f", "Error: broken"),
        ];
        let [first, second] = results;
        assert_eq!(
            said(turns),
            [
                Message::user("a"),
                answer,
                first,
                second,
                Message::user("e")
            ]
        );
    }

    #[test]
    fn an_input_that_is_no_object_is_a_text() {
        for (input, expected) in [
            (
                json!("{\"room\": \"ki"),
                json!({ "input": "{\"room\": \"ki" }),
            ),
            (json!("{\"room\": \"attic\"}"), json!({ "room": "attic" })),
            (json!(""), json!({})),
            (json!(null), json!({})),
            (json!([1]), json!({ "input": "[1]" })),
        ] {
            let turns = json!([
                { "role": "user", "content": "a" },
                { "role": "assistant", "content": [tool_use("1", input)] },
                { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "1" }] },
            ]);
            assert_eq!(said(turns)[1].tool_calls[0].arguments, expected);
        }
    }

    #[test]
    fn what_a_model_cannot_read_is_left_out_of_earlier_turns_with_a_warning() {
        let search =
            json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": {} });
        let found = json!({ "type": "web_search_tool_result", "tool_use_id": "s", "content": [] });
        let (read, warnings) = read(json!([
            { "role": "user", "content": [image()] },
            { "role": "assistant", "content": [search, found, text("b"), { "type": "compaction", "content": "c" }] },
            { "role": "user", "content": "d" },
        ]));
        assert_eq!(
            read.unwrap(),
            [
                Message::user(""),
                Message::assistant("b\nc"),
                Message::user("d")
            ]
        );
        let of = |kind: &str| {
            format!("messages[].content[]: a {kind} block is left out: this model reads text only")
        };
        assert_eq!(
            warnings,
            ["image", "server_tool_use", "web_search_tool_result"].map(of)
        );
    }

    #[test]
    fn a_result_that_a_model_cannot_read_says_so() {
        let (read, warnings) = read(json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": [tool_use("1", json!({}))] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "1", "content": [text("page 1"), image()] },
            ] },
        ]));
        let expected = "page 1\n[a block of type \"image\" that this model cannot read]";
        assert_eq!(read.unwrap()[2], Message::tool("1", "f", expected));
        assert!(
            warnings.iter().any(|warning| warning.contains("image")),
            "{warnings:?}"
        );
    }

    #[test]
    fn a_last_message_of_the_assistant_begins_the_answer_unless_it_has_calls() {
        let [user, said] = [Message::user("a"), Message::assistant("b")];
        let call = ToolCall {
            id: "1".into(),
            name: "f".into(),
            arguments: json!({}),
        };
        let calls = Message {
            tool_calls: vec![call],
            ..Message::assistant("")
        };
        assert_eq!(end(std::slice::from_ref(&user)).unwrap(), PromptEnd::Answer);
        assert_eq!(
            end(&[user.clone(), said]).unwrap(),
            PromptEnd::WithinLastMessage
        );
        assert!(
            end(&[user, calls])
                .unwrap_err()
                .message
                .contains("results are missing")
        );
    }

    #[test]
    fn what_has_no_place_is_refused_by_its_name() {
        let inside = |role: &str, block: Value| json!([{ "role": role, "content": [block] }]);
        let result = |content: Value| json!({ "type": "tool_result", "tool_use_id": "1", "content": content });
        for (turns, expected) in [
            (
                inside("user", image()),
                "messages[0].content[0]: this model reads text only, and no image block",
            ),
            (
                inside(
                    "user",
                    json!({ "type": "document", "source": { "type": "url" } }),
                ),
                "no document block",
            ),
            (
                inside("user", result(json!("a"))),
                "no tool_use before it has that id",
            ),
            (
                inside("assistant", result(json!("a"))),
                "a tool_result of the assistant",
            ),
            (
                inside("user", json!({ "type": "thinking", "thinking": "a" })),
                "only the assistant",
            ),
            (inside("tool", text("a")), "unknown variant `tool`"),
            (
                json!([{ "role": "user", "content": [] }]),
                "without content",
            ),
            (
                json!([{ "role": "user", "content": 1 }]),
                "neither a text nor a list",
            ),
            (json!([]), "there are no messages"),
        ] {
            let message = read(turns).0.unwrap_err();
            assert!(
                message.contains(expected),
                "{message:?}, expected {expected:?}"
            );
        }
    }
}
