//! Answers while they are written: as server-sent events, or as lines of JSON.
//!
//! What an interface says of what happens is its [`EventWriter`]'s to know; here it only goes on its
//! way.

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
        sse::{self, KeepAlive, Sse},
    },
};
use futures_core::Stream;
use serde_json::Value;

use crate::flow::{
    answer::{AnswerEvent, Answers},
    error::ApiError,
};

/// How often a line without meaning tells that the server is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// One message to a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// What kind it is, where an interface says that beside the data.
    pub(crate) name: Option<&'static str>,
    pub(crate) data: String,
}

impl From<Value> for Event {
    fn from(value: Value) -> Self {
        Self {
            name: None,
            data: value.to_string(),
        }
    }
}

/// Writes what happens to answers.
pub(crate) trait EventWriter: Send + Unpin + 'static {
    /// Before anything has happened.
    fn begin(&mut self) -> Vec<Event>;
    /// Something happened to one of them.
    fn write(&mut self, i: usize, event: AnswerEvent) -> Vec<Event>;
    /// All are complete.
    fn end(&mut self) -> Vec<Event>;
    /// One has failed, and nothing comes any more.
    fn fail(&mut self, error: &ApiError) -> Vec<Event>;
}

struct Events<W> {
    answers: Answers,
    writer: W,
    ready: VecDeque<Event>,
    is_over: bool,
}

impl<W: EventWriter> Events<W> {
    fn new(answers: Answers, mut writer: W) -> Self {
        let ready = writer.begin().into();
        Self {
            answers,
            writer,
            ready,
            is_over: false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let events = match self.answers.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok((i, event)))) => self.writer.write(i, event),
                Poll::Ready(Some(Err(error))) => {
                    self.is_over = true;
                    self.writer.fail(&error)
                }
                Poll::Ready(None) => {
                    self.is_over = true;
                    self.writer.end()
                }
            };
            self.ready.extend(events);
        }
    }
}

/// A response of server-sent events.
pub(crate) fn events<W: EventWriter>(answers: Answers, writer: W) -> Response {
    let events = ServerSent(Events::new(answers, writer));
    Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

/// A response of one line for each event, whose names are not told.
pub(crate) fn lines<W: EventWriter>(answers: Answers, writer: W) -> Response {
    of_lines(Body::from_stream(Lines(Events::new(answers, writer))))
}

/// A response of one line.
pub(crate) fn line(value: Value) -> Response {
    of_lines(Body::from(Event::from(value).data + "\n"))
}

fn of_lines(body: Body) -> Response {
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
            let Event { name, data } = event?;
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
        self.get_mut()
            .0
            .poll(cx)
            .map(|event| event.map(|event| Ok(Bytes::from(event.data + "\n"))))
    }
}
