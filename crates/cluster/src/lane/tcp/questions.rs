//! Questions to nodes and their answers: a length and so many bytes, several in turn on one
//! connection.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    hello::Hello,
    stream::{Protection, Stream, read_message, write_message},
};
use crate::control::{Answerer, MAX_MESSAGE, NodeName};

/// How long a connection stays open between two questions.
const IDLE: Duration = Duration::from_secs(20);
/// Most connections that are kept for the next question.
const MAX_KEPT: usize = 64;

/// The node at the other end.
type Place = (SocketAddr, Option<NodeName>);

/// Connections that wait for the next question.
#[derive(Default)]
pub(super) struct KeptConnections(Mutex<HashMap<Place, Kept>>);

struct Kept {
    stream: Box<dyn Stream>,
    since: Instant,
}

impl KeptConnections {
    fn take(&self, place: &Place) -> Option<Box<dyn Stream>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The other side ends them at that age.
        kept.retain(|_, kept| kept.since.elapsed() < IDLE / 2);
        kept.remove(place).map(|kept| kept.stream)
    }

    fn put(&self, place: Place, stream: Box<dyn Stream>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MAX_KEPT {
            let since = Instant::now();
            kept.insert(place, Kept { stream, since });
        }
    }

    /// Asks a node.
    ///
    /// # Errors
    /// No connection, another node, no answer in time.
    pub(super) fn ask(
        &self,
        protection: &Protection,
        place: Place,
        question: &[u8],
        deadline: Duration,
    ) -> io::Result<Vec<u8>> {
        let until = Instant::now() + deadline;
        if let Some(mut stream) = self.take(&place)
            && let Ok(answer) = exchange(stream.as_mut(), question, until)
        {
            self.put(place, stream);
            return Ok(answer);
        }
        // The other side had ended it, or this is the first one.
        let left = until.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(1));
        let mut stream = protection.dial(place.0, place.1.as_ref(), &Hello::Questions, left)?;
        let answer = exchange(stream.as_mut(), question, until)?;
        self.put(place, stream);
        Ok(answer)
    }
}

fn exchange(stream: &mut dyn Stream, question: &[u8], until: Instant) -> io::Result<Vec<u8>> {
    stream.set_deadline(Some(until));
    write_message(stream, question)?;
    read_message(stream, MAX_MESSAGE)
}

/// Answers the questions of one connection until it ends or none comes.
pub(super) fn answer_all(stream: &mut dyn Stream, answerer: &Answerer) -> io::Result<()> {
    loop {
        stream.set_deadline(Some(Instant::now() + IDLE));
        let question = read_message(stream, MAX_MESSAGE)?;
        write_message(stream, &answerer(&question))?;
    }
}
