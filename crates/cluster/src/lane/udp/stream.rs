//! One stream of a connection, read or written by a thread that waits.

use std::{
    io::{self, Read, Write},
    sync::{Arc, Condvar, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use quinn_proto::{ReadError, ReadableError, StreamId, WriteError};

use super::port::{Core, LineId, Shared};

/// How long written bytes may find no room.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// How long the last bytes of a stream may take to arrive.
const DELIVERY: Duration = Duration::from_millis(200);

/// A stream. Dropping it ends its connection.
pub(in crate::lane) struct QuicStream {
    end: QuicEnd,
    id: StreamId,
    changed: Arc<Condvar>,
    until: Option<Instant>,
    /// Bytes that have arrived and were not read.
    arrived: Bytes,
}

/// Ends a connection from elsewhere.
#[derive(Clone)]
pub(in crate::lane) struct QuicEnd {
    shared: Arc<Shared>,
    line: LineId,
}

impl QuicEnd {
    /// Ends the connection at once; those who wait get an error.
    pub(in crate::lane) fn close(&self) {
        self.shared.core().close(self.line, &self.shared);
    }
}

impl QuicStream {
    pub(super) fn new(
        shared: Arc<Shared>,
        line: LineId,
        id: StreamId,
        changed: Arc<Condvar>,
    ) -> Self {
        Self {
            end: QuicEnd { shared, line },
            id,
            changed,
            until: None,
            arrived: Bytes::new(),
        }
    }

    /// What ends the connection.
    pub(in crate::lane) fn end(&self) -> QuicEnd {
        self.end.clone()
    }

    /// Sets when all reading and writing must be done.
    pub(in crate::lane) fn set_deadline(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// Whether the connection is over.
    pub(in crate::lane) fn is_ended(&self) -> bool {
        let QuicEnd { shared, line: id } = &self.end;
        shared.core().line(*id).is_err()
    }

    /// Says that no more comes, and waits a moment until the other side has all bytes.
    pub(in crate::lane) fn finish(&mut self) -> io::Result<()> {
        let QuicEnd { shared, line: id } = &self.end;
        let mut core = shared.core();
        let line = core.line(*id)?;
        let finished = line.connection.send_stream(self.id).finish();
        finished.map_err(io::Error::other)?;
        core.drive_line(*id, shared);
        let until = Some(Instant::now() + DELIVERY);
        while !core.line(*id)?.is_delivered {
            core = self.wait(core, until)?;
        }
        Ok(())
    }

    /// Waits until something has happened.
    fn wait<'a>(
        &self,
        core: MutexGuard<'a, Core>,
        until: Option<Instant>,
    ) -> io::Result<MutexGuard<'a, Core>> {
        let Some(until) = until else {
            let waited = self.changed.wait(core);
            return Ok(waited.unwrap_or_else(PoisonError::into_inner));
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let waited = self.changed.wait_timeout(core, left);
        Ok(waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Waits for the next bytes; none: no more comes. Bytes that have arrived are read also when
    /// the connection is over.
    fn next(&self) -> io::Result<Bytes> {
        let QuicEnd { shared, line: id } = &self.end;
        let mut core = shared.core();
        loop {
            let line = core.any_line(*id)?;
            let is_lost = line.is_lost;
            let mut stream = line.connection.recv_stream(self.id);
            let mut chunks = match stream.read(true) {
                Ok(chunks) => chunks,
                Err(ReadableError::ClosedStream) => return Ok(Bytes::new()),
                Err(error) => return Err(io::Error::other(error)),
            };
            let next = chunks.next(usize::MAX);
            let has_credit = chunks.finalize().should_transmit();
            if has_credit {
                core.drive_line(*id, shared);
            }
            match next {
                Ok(Some(chunk)) => return Ok(chunk.bytes),
                Ok(None) => return Ok(Bytes::new()),
                Err(ReadError::Blocked) if !is_lost => core = self.wait(core, self.until)?,
                Err(_) => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
    }
}

impl Read for QuicStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.arrived.is_empty() && !bytes.is_empty() {
            self.arrived = self.next()?;
        }
        let n = self.arrived.len().min(bytes.len());
        self.arrived.copy_to_slice(&mut bytes[..n]);
        Ok(n)
    }
}

impl Write for QuicStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let QuicEnd { shared, line: id } = &self.end;
        let mut core = shared.core();
        let patience = Instant::now() + UNACKNOWLEDGED;
        let until = self.until.map_or(patience, |until| until.min(patience));
        loop {
            let line = core.line(*id)?;
            match line.connection.send_stream(self.id).write(bytes) {
                Ok(n) => {
                    core.drive_line(*id, shared);
                    return Ok(n);
                }
                Err(WriteError::Blocked) => core = self.wait(core, Some(until))?,
                Err(_) => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for QuicStream {
    fn drop(&mut self) {
        self.end.close();
    }
}
