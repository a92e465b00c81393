//! Streamed responses: server-sent events, or lines of JSON.
//!
//! Knows no event's meaning: an [`EventWriter`] of each interface turns answers into events.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{
        IntoResponse, Response,
        sse::{self, Sse},
    },
};
use futures_core::Stream;
use serde_json::Value;

use super::{
    answer::{AnswerEvent, Answers},
    error::ApiError,
};

/// How often an idle stream gets a comment, so that proxies do not close it.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// An event of a streamed response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StreamEvent {
    /// The `event:` line of server-sent events, in interfaces that have one.
    pub(crate) name: Option<&'static str>,
    pub(crate) data: String,
}

impl From<Value> for StreamEvent {
    fn from(value: Value) -> Self {
        Self {
            name: None,
            data: value.to_string(),
        }
    }
}

/// Maps the events of answers to those of a client's interface.
pub(crate) trait EventWriter: Send + Unpin + 'static {
    /// Events in front of all others.
    fn begin(&mut self) -> Vec<StreamEvent> {
        Vec::new()
    }

    /// Maps an event of the `i`th answer.
    fn write(&mut self, i: usize, event: AnswerEvent) -> Vec<StreamEvent>;

    /// Events after the end of all answers.
    fn end(&mut self) -> Vec<StreamEvent> {
        Vec::new()
    }

    /// Reports an error; nothing follows it.
    fn fail(&mut self, error: &ApiError) -> Vec<StreamEvent>;
}

struct Events<W> {
    answers: Answers,
    writer: W,
    ready: VecDeque<StreamEvent>,
    has_ended: bool,
}

impl<W: EventWriter> Events<W> {
    fn new(answers: Answers, mut writer: W) -> Self {
        let ready = writer.begin().into();
        Self {
            answers,
            writer,
            ready,
            has_ended: false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            let events = match self.answers.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok((i, event)))) => self.writer.write(i, event),
                Poll::Ready(Some(Err(error))) => {
                    self.has_ended = true;
                    self.writer.fail(&error)
                }
                Poll::Ready(None) => {
                    self.has_ended = true;
                    self.writer.end()
                }
            };
            self.ready.extend(events);
        }
    }
}

/// A response of server-sent events.
pub(crate) fn events<W: EventWriter>(answers: Answers, writer: W) -> Response {
    let events = Sse::new(ServerSent(Events::new(answers, writer)));
    // Nothing is between the reader and its own program.
    #[cfg(feature = "http")]
    let events = events.keep_alive(sse::KeepAlive::new().interval(KEEP_ALIVE));
    events.into_response()
}

/// A response of one line of JSON per event; names of events are dropped.
pub(crate) fn lines<W: EventWriter>(answers: Answers, writer: W) -> Response {
    ndjson(Body::from_stream(Lines(Events::new(answers, writer))))
}

/// A response of one line of JSON.
pub(crate) fn line(value: Value) -> Response {
    ndjson(Body::from(StreamEvent::from(value).data + "\n"))
}

fn ndjson(body: Body) -> Response {
    let mut response = body.into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-ndjson"),
    );
    response
}

struct ServerSent<W>(Events<W>);

impl<W: EventWriter> Stream for ServerSent<W> {
    type Item = Result<sse::Event, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll(cx).map(|event| {
            let StreamEvent { name, data } = event?;
            let event = name.map_or_else(sse::Event::default, |name| {
                sse::Event::default().event(name)
            });
            Some(Ok(event.data(data)))
        })
    }
}

struct Lines<W>(Events<W>);

impl<W: EventWriter> Stream for Lines<W> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let event = self.get_mut().0.poll(cx);
        event.map(|event| event.map(|event| Ok(Bytes::from(event.data + "\n"))))
    }
}
