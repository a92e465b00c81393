//! A response as events, each with a name and a sequence number.

use serde_json::{Value, json};

use super::{
    super::response::logprob_entry,
    envelope::{self, ResponseEnvelope},
    output::Output,
};
use crate::flow::{
    answer::AnswerEvent,
    error::ApiError,
    stream::{EventWriter, StreamEvent},
};

/// Writes the events of a response.
pub(super) struct ResponseWriter {
    envelope: ResponseEnvelope,
    output: Output,
    /// The next sequence number.
    sequence_number: usize,
}

impl ResponseWriter {
    pub(super) fn new(envelope: ResponseEnvelope, output: Output) -> Self {
        Self {
            envelope,
            output,
            sequence_number: 0,
        }
    }

    fn event(&mut self, name: &'static str, fields: Value) -> StreamEvent {
        let mut data = json!({ "type": name, "sequence_number": self.sequence_number });
        self.sequence_number += 1;
        if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
            data.extend(fields);
        }
        StreamEvent {
            name: Some(name),
            data: data.to_string(),
        }
    }

    /// An event that has the whole response.
    fn response_event(&mut self, name: &'static str, response: Value) -> StreamEvent {
        self.event(name, json!({ "response": response }))
    }

    /// The events about the items since the last call.
    fn item_events(&mut self) -> Vec<StreamEvent> {
        let events = self.output.take_events().into_iter();
        events
            .map(|(name, fields)| self.event(name, fields))
            .collect()
    }
}

impl EventWriter for ResponseWriter {
    fn begin(&mut self) -> Vec<StreamEvent> {
        let response = self.envelope.begun();
        let created = self.response_event("response.created", response.clone());
        vec![
            created,
            self.response_event("response.in_progress", response),
        ]
    }

    fn write(&mut self, _: usize, event: AnswerEvent) -> Vec<StreamEvent> {
        match event {
            AnswerEvent::Piece(piece) => self.output.piece(piece),
            AnswerEvent::Logprobs(logprobs) => {
                let entry = logprob_entry(&self.envelope.model, &logprobs);
                self.output.logprobs(entry);
            }
            AnswerEvent::End(end) => {
                let is_cut = envelope::is_cut(&end);
                self.output.end(is_cut);
                let mut events = self.item_events();
                let response = self.envelope.ended(&end, self.output.items());
                let name = match is_cut {
                    true => "response.incomplete",
                    false => "response.completed",
                };
                events.push(self.response_event(name, response));
                return events;
            }
        }
        self.item_events()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<StreamEvent> {
        let response = self.envelope.failed(error, self.output.items());
        vec![self.response_event("response.failed", response)]
    }
}
