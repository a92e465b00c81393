//! Messages of a request, in our own words.
//!
//! There a message is a list of blocks; here it is a text with thoughts and calls, and a result is a message by itself.

use std::collections::HashMap;

use atta_engine::{
    chat::{Message, Role},
    tools::ToolCall,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// A message.
#[derive(Debug, Deserialize)]
pub(super) struct Turn {
    role: Speaker,
    content: Blocks<Block>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    User,
    Assistant,
}

/// Blocks, or a text that stands for a block.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value", bound(deserialize = "B: DeserializeOwned + From<Text>"))]
pub(super) struct Blocks<B>(Vec<B>);

/// What is text wherever it may stand. Fields with an underscore mean nothing to us: the beginning of a prompt is kept
/// anyway, and others are what clients add to blocks of answers when they send them back.
#[derive(Debug, Deserialize)]
pub(super) struct Text {
    text: String,
    #[serde(rename = "cache_control")]
    _cache_control: Option<Value>,
    #[serde(rename = "citations")]
    _citations: Option<[(); 0]>,
    #[serde(rename = "parsed_output")]
    _parsed_output: Option<()>,
}

/// A block where nothing but text may stand.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Plain {
    Text(Text),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text(Text),
    Thinking(Thought),
    /// Thoughts of another model that nobody but itself can read.
    RedactedThinking {
        #[serde(rename = "data")]
        _data: String,
    },
    ToolUse(Call),
    ToolResult(Outcome),
}

#[derive(Debug, Deserialize)]
struct Thought {
    thinking: String,
    #[serde(rename = "signature")]
    _signature: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Call {
    id: String,
    name: String,
    input: Map<String, Value>,
    #[serde(rename = "cache_control")]
    _cache_control: Option<Value>,
    #[serde(rename = "caller")]
    _caller: Option<()>,
    #[serde(rename = "toolset_name")]
    _toolset_name: Option<()>,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    tool_use_id: String,
    content: Option<Blocks<Plain>>,
    is_error: Option<bool>,
    #[serde(rename = "cache_control")]
    _cache_control: Option<Value>,
}

impl<B: DeserializeOwned + From<Text>> TryFrom<Value> for Blocks<B> {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let block = |(i, block)| serde_json::from_value(block).map_err(|error| format!("block {i}: {error}"));
        match value {
            Value::String(text) => Ok(Self(vec![Text::from(text).into()])),
            Value::Array(blocks) => Ok(Self(blocks.into_iter().enumerate().map(block).collect::<Result<_, _>>()?)),
            _ => Err("neither a text nor a list of blocks".to_owned()),
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self { text, _cache_control: None, _citations: None, _parsed_output: None }
    }
}

impl From<Text> for Block {
    fn from(text: Text) -> Self {
        Self::Text(text)
    }
}

impl From<Text> for Plain {
    fn from(text: Text) -> Self {
        Self::Text(text)
    }
}

impl Blocks<Plain> {
    pub(super) fn into_text(self) -> String {
        let texts: Vec<String> = self.0.into_iter().map(|Plain::Text(text)| text.text).collect();
        texts.join("\n")
    }
}

impl Outcome {
    /// Templates have no word for errors.
    fn into_text(self) -> String {
        let text = self.content.map_or_else(String::new, Blocks::into_text);
        if self.is_error == Some(true) { format!("Error: {text}") } else { text }
    }
}

/// The messages of turns. Several of the same speaker in a row are one.
pub(super) fn messages(turns: Vec<Turn>) -> Result<Vec<Message>, Refusal> {
    let mut said = Said::default();
    turns.into_iter().try_for_each(|turn| said.turn(turn))?;
    match said.messages.last().map(|message| message.role) {
        None => Err(Refusal::field("messages", "there are no messages")),
        Some(Role::Assistant) => {
            Err(Refusal::field("messages", "the last message is of the assistant; this server does not go on with it"))
        }
        Some(_) => Ok(said.messages),
    }
}

/// What was said so far.
#[derive(Default)]
struct Said {
    messages: Vec<Message>,
    /// Functions of calls, by their ids.
    names: HashMap<String, String>,
}

impl Said {
    fn turn(&mut self, Turn { role, content: Blocks(blocks) }: Turn) -> Result<(), Refusal> {
        match role {
            Speaker::User if blocks.is_empty() => Err(Refusal::field("messages", "a message of user without content")),
            Speaker::User => blocks.into_iter().try_for_each(|block| self.user(block)),
            Speaker::Assistant => {
                // An answer may be nothing at all.
                self.last(Role::Assistant);
                blocks.into_iter().try_for_each(|block| self.assistant(block))
            }
        }
    }

    fn user(&mut self, block: Block) -> Result<(), Refusal> {
        match block {
            Block::Text(text) => join(&mut self.last(Role::User).content, &text.text),
            Block::ToolResult(outcome) => {
                let id = outcome.tool_use_id.clone();
                let name = self.names.get(&id).ok_or_else(|| {
                    Refusal::field(
                        "messages",
                        format!("a tool_result of {id:?}, but no tool_use before it has that id"),
                    )
                })?;
                self.messages.push(Message::tool(id, name, outcome.into_text()));
            }
            Block::Thinking(_) | Block::RedactedThinking { .. } | Block::ToolUse(_) => {
                return Err(Refusal::field("messages", "a block of user that only the assistant can write"));
            }
        }
        Ok(())
    }

    fn assistant(&mut self, block: Block) -> Result<(), Refusal> {
        let message = self.last(Role::Assistant);
        match block {
            Block::Text(text) => join(&mut message.content, &text.text),
            Block::Thinking(thought) => join(message.reasoning.get_or_insert_default(), &thought.thinking),
            Block::RedactedThinking { .. } => {}
            Block::ToolUse(Call { id, name, input, .. }) => {
                message.tool_calls.push(ToolCall { id: id.clone(), name: name.clone(), arguments: input.into() });
                self.names.insert(id, name);
            }
            Block::ToolResult(_) => return Err(Refusal::field("messages", "a tool_result of the assistant")),
        }
        Ok(())
    }

    /// The last message, or a new one if that is another speaker's.
    fn last(&mut self, role: Role) -> &mut Message {
        if self.messages.last().is_none_or(|message| message.role != role) {
            self.messages.push(Message { role, ..Message::user("") });
        }
        self.messages.last_mut().expect("if there was none, there is one now")
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
    use serde_json::json;

    use super::*;

    fn said(turns: Value) -> Vec<Message> {
        messages(serde_json::from_value(turns).unwrap()).unwrap()
    }

    /// Why turns are not taken, by whoever it is that does not.
    fn refused(turns: Value) -> String {
        match serde_json::from_value(turns) {
            Ok(turns) => messages(turns).unwrap_err().message,
            Err(error) => error.to_string(),
        }
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn a_text_is_a_block_and_speakers_in_a_row_are_one() {
        let turns = json!([
            { "role": "user", "content": "a" },
            { "role": "user", "content": [text("b"), text("c")] },
            { "role": "assistant", "content": [] },
            { "role": "user", "content": "d" },
        ]);
        assert_eq!(said(turns), [Message::user("a\nb\nc"), Message::assistant(""), Message::user("d")]);
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
        let call = |id: &str, name: &str, arguments| ToolCall { id: id.into(), name: name.into(), arguments };
        let calls = vec![call("1", "f", json!({ "x": 1 })), call("2", "g", json!({}))];
        let answer = Message { reasoning: Some("so".into()), ..Message::assistant_calling("b", calls) };
        let results = [Message::tool("2", "g", "c\nd"), Message::tool("1", "f", "Error: broken")];
        let [first, second] = results;
        assert_eq!(said(turns), [Message::user("a"), answer, first, second, Message::user("e")]);
    }

    #[test]
    fn what_has_no_place_is_refused_by_its_name() {
        let image = json!({ "type": "image", "source": {} });
        let inside = |role: &str, block: Value| json!([{ "role": role, "content": [block] }]);
        let result = |content: Value| json!({ "type": "tool_result", "tool_use_id": "1", "content": content });
        for (turns, expected) in [
            (inside("user", image.clone()), "block 0: unknown variant `image`"),
            (inside("user", result(json!([image]))), "unknown variant `image`"),
            (inside("user", result(json!("a"))), "no tool_use before it has that id"),
            (inside("assistant", result(json!("a"))), "a tool_result of the assistant"),
            (inside("user", json!({ "type": "thinking", "thinking": "a" })), "only the assistant"),
            (inside("user", json!({ "type": "text", "text": "a", "x": 1 })), "unknown field `x`"),
            (inside("system", text("a")), "unknown variant `system`"),
            (json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }]), "does not go on"),
            (json!([{ "role": "user", "content": [] }]), "without content"),
            (json!([{ "role": "user", "content": 1 }]), "neither a text nor a list"),
            (json!([]), "there are no messages"),
        ] {
            let message = refused(turns);
            assert!(message.contains(expected), "{message:?}, expected {expected:?}");
        }
    }
}
