//! An answer in parts: one block after another, each of which begins, grows and ends.

use atta_engine::tools::Piece;
use serde_json::{Value, json};

use super::{
    content::{beginning, call_block, text_block, thinking_block},
    create::{Ending, Head, usage},
};
use crate::{
    api::flavor::ApiFlavor,
    flow::{
        answer::{AnswerEnd, AnswerEvent},
        error::ApiError,
        stream::{Event, EventWriter},
    },
};

/// Writes an answer in parts.
pub(super) struct Parts {
    head: Head,
    n_prompt: usize,
    blocks: Blocks,
}

/// Where the answer is.
#[derive(Default)]
struct Blocks {
    /// Those that have ended.
    n: usize,
    open: Option<Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

impl Parts {
    pub(super) fn new(head: Head, n_prompt: usize) -> Self {
        Self {
            head,
            n_prompt,
            blocks: Blocks::default(),
        }
    }

    fn finish(&mut self, end: &AnswerEnd) -> Vec<Event> {
        let Ending { reason, stop } = self.head.ending(end);
        let delta = json!({ "stop_reason": reason, "stop_sequence": stop });
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

impl Blocks {
    fn write(&mut self, piece: Piece) -> Vec<Event> {
        match piece {
            Piece::Text(text) => self.grow(Kind::Text, &text),
            Piece::Reasoning(text) => self.grow(Kind::Thinking, &text),
            Piece::CallBegin { id, name, .. } => {
                self.open(Kind::Call, call_block(&id, &name, json!({})))
            }
            Piece::CallArguments { fragment, .. } => vec![self.delta(Kind::Call, &fragment)],
            // One that was cut off stays what it is: there is no way to take it back.
            Piece::Call(_) | Piece::CallBroken { .. } => self.close().into_iter().collect(),
        }
    }

    /// Adds to a block of this kind, and begins it if need be.
    fn grow(&mut self, kind: Kind, text: &str) -> Vec<Event> {
        if self.open == Some(kind) {
            return vec![self.delta(kind, text)];
        }
        let Some(text) = beginning(text) else {
            return Vec::new();
        };
        let empty = if kind == Kind::Thinking {
            thinking_block("")
        } else {
            text_block("")
        };
        let mut events = self.open(kind, empty);
        events.push(self.delta(kind, text));
        events
    }

    fn open(&mut self, kind: Kind, block: Value) -> Vec<Event> {
        let before = self.close();
        self.open = Some(kind);
        let start = event(
            "content_block_start",
            json!({ "index": self.n, "content_block": block }),
        );
        before.into_iter().chain([start]).collect()
    }

    fn delta(&self, kind: Kind, text: &str) -> Event {
        let delta = match kind {
            Kind::Text => json!({ "type": "text_delta", "text": text }),
            Kind::Thinking => json!({ "type": "thinking_delta", "thinking": text }),
            Kind::Call => json!({ "type": "input_json_delta", "partial_json": text }),
        };
        event(
            "content_block_delta",
            json!({ "index": self.n, "delta": delta }),
        )
    }

    fn close(&mut self) -> Option<Event> {
        self.open.take()?;
        self.n += 1;
        Some(event("content_block_stop", json!({ "index": self.n - 1 })))
    }
}

impl EventWriter for Parts {
    /// What of the prompt does not have to be read is known later: the last usage is the right one.
    fn begin(&mut self) -> Vec<Event> {
        let usage = json!({ "input_tokens": self.n_prompt, "output_tokens": 0 });
        vec![event(
            "message_start",
            json!({ "message": self.head.message(json!([]), &Ending::default(), usage) }),
        )]
    }

    fn write(&mut self, _: usize, event: AnswerEvent) -> Vec<Event> {
        match event {
            AnswerEvent::Piece(piece) => self.blocks.write(piece),
            AnswerEvent::Logprobs(_) => Vec::new(),
            AnswerEvent::End(end) => self.finish(&end),
        }
    }

    fn end(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![event("error", ApiFlavor::Anthropic.error(error, None))]
    }
}

/// An event, which says its name once more in its data.
fn event(name: &'static str, data: Value) -> Event {
    let mut typed = json!({ "type": name });
    if let (Value::Object(fields), Value::Object(typed)) = (data, &mut typed) {
        typed.extend(fields);
    }
    Event {
        name: Some(name),
        data: typed.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use atta_engine::tools::ToolCall;

    use super::{super::content::Content, *};

    fn call() -> Vec<Piece> {
        let (id, name) = ("1".to_owned(), "f".to_owned());
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

    fn thoughts_text_and_calls() -> Vec<Piece> {
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

    /// What a client makes of the events.
    fn collected(pieces: Vec<Piece>) -> Vec<Value> {
        let mut blocks = Blocks::default();
        let mut events: Vec<Event> = pieces
            .into_iter()
            .flat_map(|piece| blocks.write(piece))
            .collect();
        events.extend(blocks.close());
        let (mut content, mut input, mut is_open): (Vec<Value>, _, _) =
            (Vec::new(), String::new(), false);
        for Event { name, data } in events {
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
            let (block, delta) = (content.last_mut().unwrap(), &data["delta"]);
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
        thoughts_text_and_calls()
            .into_iter()
            .for_each(|piece| whole.push(piece));
        let parts = collected(thoughts_text_and_calls());
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
