//! The content blocks of an answer.

use atta_engine::tools::{Piece, ToolCall};
use serde_json::{Value, json};

/// The blocks of a complete answer, in order.
#[derive(Debug, Default)]
pub(super) struct Content(Vec<ContentBlock>);

#[derive(Debug)]
enum ContentBlock {
    Thinking(String),
    Text(String),
    Call(ToolCall),
}

impl Content {
    pub(super) fn push(&mut self, piece: Piece) {
        match (piece, self.0.last_mut()) {
            (Piece::Text(text), Some(ContentBlock::Text(all)))
            | (Piece::Reasoning(text), Some(ContentBlock::Thinking(all))) => all.push_str(&text),
            (Piece::Text(text), _) => self
                .0
                .extend(text_of_new_block(&text).map(|text| ContentBlock::Text(text.to_owned()))),
            (Piece::Reasoning(text), _) => self.0.extend(
                text_of_new_block(&text).map(|text| ContentBlock::Thinking(text.to_owned())),
            ),
            (Piece::Call(call), _) => self.0.push(ContentBlock::Call(call)),
            // The parser reports the complete call, or its text, later.
            (
                Piece::CallBegin { .. } | Piece::CallArguments { .. } | Piece::CallBroken { .. },
                _,
            ) => {}
        }
    }

    pub(super) fn into_json(self) -> Value {
        self.0.into_iter().map(ContentBlock::into_json).collect()
    }
}

impl ContentBlock {
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

/// The start of a new block: whitespace in front is dropped, and starts no block alone.
pub(super) fn text_of_new_block(text: &str) -> Option<&str> {
    Some(text.trim_start()).filter(|text| !text.is_empty())
}

pub(super) fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Reasoning is not signed.
pub(super) fn thinking_block(text: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": "" })
}

/// Ids begin with `toolu_`, as Anthropic's do, unless the chat template wants another form.
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
