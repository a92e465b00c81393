//! Answers as server-sent events: each a line of JSON, and `[DONE]` behind the last one.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_core::Stream;
use serde_json::Value;

use crate::answer::{Answers, Happening};

/// How often a line without meaning tells that the server is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Writes what happens to answers.
pub(super) trait Writer: Send + Unpin + 'static {
    /// Before anything has happened.
    fn begin(&mut self) -> Vec<Value>;
    /// Something happened to one of them.
    fn write(&mut self, i: usize, happening: Happening) -> Vec<Value>;
    /// All are complete.
    fn end(&mut self) -> Vec<Value>;
}

struct Events<W> {
    answers: Answers,
    writer: W,
    ready: VecDeque<Value>,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Writing,
    /// `[DONE]` is to come.
    Complete,
    Over,
}

/// The response.
pub(super) fn stream<W: Writer>(answers: Answers, mut writer: W) -> Response {
    let ready = writer.begin().into();
    let events = Events { answers, writer, ready, state: State::Writing };
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

impl<W: Writer> Stream for Events<W> {
    type Item = Result<Event, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(value) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(Event::default().data(value.to_string()))));
            }
            match this.state {
                State::Over => return Poll::Ready(None),
                State::Complete => {
                    this.state = State::Over;
                    return Poll::Ready(Some(Ok(Event::default().data("[DONE]"))));
                }
                State::Writing => {}
            }
            match this.answers.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok((i, happening)))) => this.ready.extend(this.writer.write(i, happening)),
                Poll::Ready(Some(Err(refusal))) => {
                    this.ready.push_back(refusal.to_json());
                    this.state = State::Over;
                }
                Poll::Ready(None) => {
                    this.ready.extend(this.writer.end());
                    this.state = State::Complete;
                }
            }
        }
    }
}
