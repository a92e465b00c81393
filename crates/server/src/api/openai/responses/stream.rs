//! A response as events, each with its name and number.

use serde_json::{Value, json};

use super::{
    head::{self, Head},
    output::Output,
};
use crate::{
    api::openai::response::thought,
    flow::{
        answer::AnswerEvent,
        error::ApiError,
        stream::{Event, EventWriter},
    },
};

/// Writes a response.
pub(super) struct Events {
    head: Head,
    output: Output,
    /// Events so far.
    n: usize,
}

impl Events {
    pub(super) fn new(head: Head, output: Output) -> Self {
        Self { head, output, n: 0 }
    }

    fn event(&mut self, name: &'static str, fields: Value) -> Event {
        let mut data = json!({ "type": name, "sequence_number": self.n });
        self.n += 1;
        if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
            data.extend(fields);
        }
        Event {
            name: Some(name),
            data: data.to_string(),
        }
    }

    /// What has become of the response.
    fn response(&mut self, name: &'static str, response: Value) -> Event {
        self.event(name, json!({ "response": response }))
    }

    /// What the items have to tell.
    fn told(&mut self) -> Vec<Event> {
        self.output
            .take_events()
            .into_iter()
            .map(|(name, fields)| self.event(name, fields))
            .collect()
    }
}

impl EventWriter for Events {
    fn begin(&mut self) -> Vec<Event> {
        let response = self.head.begun();
        let created = self.response("response.created", response.clone());
        vec![created, self.response("response.in_progress", response)]
    }

    fn write(&mut self, _: usize, event: AnswerEvent) -> Vec<Event> {
        match event {
            AnswerEvent::Piece(piece) => self.output.piece(piece),
            AnswerEvent::Logprobs(one) => self.output.thought(thought(&self.head.model, &one)),
            AnswerEvent::End(end) => {
                self.output.end(head::is_cut(&end));
                let mut events = self.told();
                let name = if head::is_cut(&end) {
                    "response.incomplete"
                } else {
                    "response.completed"
                };
                let response = self.head.ended(&end, self.output.items());
                events.push(self.response(name, response));
                return events;
            }
        }
        self.told()
    }

    fn end(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        let response = self.head.failed(error, self.output.items());
        vec![self.response("response.failed", response)]
    }
}
