//! The events of a streamed answer: each block has a start, deltas and a stop.

use atta_engine::tools::Piece;
use serde_json::{Value, json};

use super::{
    content::{call_block, text_block, text_of_new_block, thinking_block},
    response::{Ending, MessageEnvelope, usage},
};
use crate::{
    api::flavor::ApiFlavor,
    flow::{
        answer::{AnswerEnd, AnswerEvent},
        error::ApiError,
        stream::{EventWriter, StreamEvent},
    },
};

/// Writes the events of a message.
pub(super) struct MessageWriter {
    envelope: MessageEnvelope,
    n_prompt: usize,
    blocks: BlockWriter,
}

/// Writes the events of the blocks.
#[derive(Default)]
struct BlockWriter {
    /// Number of finished blocks.
    n_done: usize,
    open: Option<BlockKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    Call,
}

impl MessageWriter {
    pub(super) fn new(envelope: MessageEnvelope, n_prompt: usize) -> Self {
        Self {
            envelope,
            n_prompt,
            blocks: BlockWriter::default(),
        }
    }

    fn finish(&mut self, end: &AnswerEnd) -> Vec<StreamEvent> {
        let ending = self.envelope.ending(end);
        let delta = json!({
            "stop_reason": ending.reason,
            "stop_sequence": ending.stop_sequence,
        });
        let last = event(
            "message_delta",
            json!({ "delta": delta, "usage": usage(&end.done) }),
        );
        self.blocks
            .close()
            .into_iter()
            .chain([last, event("message_stop", json!({}))])
            .collect()
    }
}

impl BlockWriter {
    fn write(&mut self, piece: Piece) -> Vec<StreamEvent> {
        match piece {
            Piece::Text(text) => self.grow(BlockKind::Text, &text),
            Piece::Reasoning(text) => self.grow(BlockKind::Thinking, &text),
            Piece::CallBegin { id, name, .. } => {
                self.open(BlockKind::Call, call_block(&id, &name, json!({})))
            }
            Piece::CallArguments { fragment, .. } => vec![self.delta(BlockKind::Call, &fragment)],
            // The client has the fragments already; a call that was cut cannot be withdrawn.
            Piece::Call(_) | Piece::CallBroken { .. } => self.close().into_iter().collect(),
        }
    }

    /// Adds text to a block of this kind, and starts the block if necessary.
    fn grow(&mut self, kind: BlockKind, text: &str) -> Vec<StreamEvent> {
        if self.open == Some(kind) {
            return vec![self.delta(kind, text)];
        }
        let Some(text) = text_of_new_block(text) else {
            return Vec::new();
        };
        let empty = if kind == BlockKind::Thinking {
            thinking_block("")
        } else {
            text_block("")
        };
        let mut events = self.open(kind, empty);
        events.push(self.delta(kind, text));
        events
    }

    fn open(&mut self, kind: BlockKind, block: Value) -> Vec<StreamEvent> {
        let before = self.close();
        self.open = Some(kind);
        let start = event(
            "content_block_start",
            json!({ "index": self.n_done, "content_block": block }),
        );
        before.into_iter().chain([start]).collect()
    }

    fn delta(&self, kind: BlockKind, text: &str) -> StreamEvent {
        let delta = match kind {
            BlockKind::Text => json!({ "type": "text_delta", "text": text }),
            BlockKind::Thinking => json!({ "type": "thinking_delta", "thinking": text }),
            BlockKind::Call => json!({ "type": "input_json_delta", "partial_json": text }),
        };
        event(
            "content_block_delta",
            json!({ "index": self.n_done, "delta": delta }),
        )
    }

    fn close(&mut self) -> Option<StreamEvent> {
        self.open.take()?;
        self.n_done += 1;
        Some(event(
            "content_block_stop",
            json!({ "index": self.n_done - 1 }),
        ))
    }
}

impl EventWriter for MessageWriter {
    /// The number of cached tokens is not known yet; `message_delta` has the final usage.
    fn begin(&mut self) -> Vec<StreamEvent> {
        let usage = json!({ "input_tokens": self.n_prompt, "output_tokens": 0 });
        vec![event(
            "message_start",
            json!({ "message": self.envelope.message(json!([]), &Ending::default(), usage) }),
        )]
    }

    fn write(&mut self, _: usize, event: AnswerEvent) -> Vec<StreamEvent> {
        match event {
            AnswerEvent::Piece(piece) => self.blocks.write(piece),
            AnswerEvent::Logprobs(_) => Vec::new(),
            AnswerEvent::End(end) => self.finish(&end),
        }
    }

    fn fail(&mut self, error: &ApiError) -> Vec<StreamEvent> {
        vec![event("error", ApiFlavor::Anthropic.error(error, None))]
    }
}

/// An event; its data repeat its name.
fn event(name: &'static str, data: Value) -> StreamEvent {
    let mut typed = json!({ "type": name });
    if let (Value::Object(fields), Value::Object(typed)) = (data, &mut typed) {
        typed.extend(fields);
    }
    StreamEvent {
        name: Some(name),
        data: typed.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use atta_engine::tools::ToolCall;

    use super::{super::content::Content, *};

    fn call() -> Vec<Piece> {
        let id = "1".to_owned();
        let name = "f".to_owned();
        let arguments = |fragment: &str| Piece::CallArguments {
            index: 0,
            fragment: fragment.to_owned(),
        };
        let whole = ToolCall {
            id: id.clone(),
            name: name.clone(),
            arguments: json!({ "x": 1 }),
        };
        vec![
            Piece::CallBegin { index: 0, id, name },
            arguments("{\"x\":"),
            arguments(" 1}"),
            Piece::Call(whole),
        ]
    }

    fn reasoning_text_and_calls() -> Vec<Piece> {
        let texts = [
            Piece::Reasoning("so".into()),
            Piece::Text("\n".into()),
            Piece::Text(" a".into()),
        ];
        let more = [Piece::Text("b ".into())];
        texts
            .into_iter()
            .chain(more)
            .chain(call())
            .chain([Piece::Text("\n".into())])
            .chain(call())
            .collect()
    }

    /// The blocks that a client assembles from the events.
    fn collected(pieces: Vec<Piece>) -> Vec<Value> {
        let mut blocks = BlockWriter::default();
        let mut events: Vec<StreamEvent> = pieces
            .into_iter()
            .flat_map(|piece| blocks.write(piece))
            .collect();
        events.extend(blocks.close());
        let mut content: Vec<Value> = Vec::new();
        let mut input = String::new();
        let mut is_open = false;
        for StreamEvent { name, data } in events {
            let data: Value = serde_json::from_str(&data).unwrap();
            assert!(
                data["type"] == name.unwrap() && is_open == (name != Some("content_block_start")),
                "{data}"
            );
            is_open = name != Some("content_block_stop");
            if name == Some("content_block_start") {
                assert_eq!(data["index"], content.len());
                content.push(data["content_block"].clone());
                continue;
            }
            assert_eq!(data["index"], content.len() - 1);
            let block = content.last_mut().unwrap();
            let delta = &data["delta"];
            for field in ["text", "thinking"] {
                if let Some(more) = delta[field].as_str() {
                    block[field] = format!("{}{more}", block[field].as_str().unwrap()).into();
                }
            }
            input.push_str(delta["partial_json"].as_str().unwrap_or_default());
            if !is_open && !input.is_empty() {
                block["input"] = serde_json::from_str(&std::mem::take(&mut input)).unwrap();
            }
        }
        content
    }

    #[test]
    fn the_parts_are_the_blocks_of_the_whole() {
        let mut whole = Content::default();
        reasoning_text_and_calls()
            .into_iter()
            .for_each(|piece| whole.push(piece));
        let parts = collected(reasoning_text_and_calls());
        assert_eq!(Value::from(parts.clone()), whole.into_json());
        assert_eq!(parts.len(), 4);
        assert_eq!(parts[1]["text"], "a".to_owned() + "b ");
        assert_eq!(parts[3]["input"], json!({ "x": 1 }));
    }

    #[test]
    fn white_space_alone_is_no_block() {
        assert!(collected(vec![Piece::Text(" \n".into())]).is_empty());
    }
}
