//! Blocks of an answer.

use atta_engine::tools::{Piece, ToolCall};
use serde_json::{Value, json};

/// Blocks of a complete answer, in their order.
#[derive(Debug, Default)]
pub(super) struct Content(Vec<Block>);

#[derive(Debug)]
enum Block {
    Thinking(String),
    Text(String),
    Call(ToolCall),
}

impl Content {
    pub(super) fn push(&mut self, piece: Piece) {
        match (piece, self.0.last_mut()) {
            (Piece::Text(text), Some(Block::Text(all)))
            | (Piece::Reasoning(text), Some(Block::Thinking(all))) => {
                all.push_str(&text);
            }
            (Piece::Text(text), _) => self
                .0
                .extend(beginning(&text).map(|text| Block::Text(text.to_owned()))),
            (Piece::Reasoning(text), _) => self
                .0
                .extend(beginning(&text).map(|text| Block::Thinking(text.to_owned()))),
            (Piece::Call(call), _) => self.0.push(Block::Call(call)),
            // What becomes of it, a call or text, comes later.
            (
                Piece::CallBegin { .. } | Piece::CallArguments { .. } | Piece::CallBroken { .. },
                _,
            ) => {}
        }
    }

    pub(super) fn into_json(self) -> Value {
        self.0.into_iter().map(Block::into_json).collect()
    }
}

impl Block {
    fn into_json(self) -> Value {
        match self {
            Self::Thinking(text) => thinking_block(&text),
            Self::Text(text) => text_block(&text),
            Self::Call(ToolCall {
                id,
                name,
                arguments,
            }) => call_block(&id, &name, arguments),
        }
    }
}

/// With what a block of text begins: not with white space, of which alone there is no block.
pub(super) fn beginning(text: &str) -> Option<&str> {
    Some(text.trim_start()).filter(|text| !text.is_empty())
}

pub(super) fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Nobody here signs what a model thinks.
pub(super) fn thinking_block(text: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": "" })
}

/// Ids begin as those of the interface do, unless the model's template wants others.
pub(super) fn call_block(id: &str, name: &str, input: Value) -> Value {
    let id = id
        .strip_prefix("call_")
        .map_or_else(|| id.to_owned(), |rest| format!("toolu_{rest}"));
    json!({ "type": "tool_use", "id": id, "name": name, "input": input })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_calls_begin_as_the_interface_has_them() {
        assert_eq!(call_block("call_00af", "f", json!({}))["id"], "toolu_00af");
        assert_eq!(
            call_block("abcDEF123", "f", json!({}))["id"],
            "abcDEF123",
            "a template may insist on nine"
        );
    }
}
