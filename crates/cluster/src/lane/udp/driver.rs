//! The threads of a port: one receives datagrams, one looks after timers.
//!
//! Both hold the lock of the protocol while they work. Streams that others open are handed over
//! without it, since those who take them may end them.

use std::{
    io,
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use quinn_proto::{ConnectionHandle, DatagramEvent, Incoming};

use super::{
    QuicStream,
    port::{Core, Line, LineId, Reserved, Shared},
    socket::{Arrival, RECEIVE_BYTES},
};

/// Time in which a connection must open its stream.
const OPENING: Duration = Duration::from_secs(3);
/// Wait after an error of the socket, whose next one would come at once.
const RETRY: Duration = Duration::from_millis(50);

/// Starts those that every port has.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Vec<JoinHandle<()>>> {
    let timers = std::thread::Builder::new().name("udp timers".to_owned());
    let timers = timers.spawn({
        let shared = Arc::clone(shared);
        move || keep_time(&shared)
    })?;
    let receiver = Receiver::new(shared);
    let receiving = std::thread::Builder::new().name("udp".to_owned());
    let receiving = receiving.spawn(move || receiver.run());
    let receiving = receiving.inspect_err(|_| {
        shared.is_over.store(true, Ordering::Release);
        shared.timers.notify_all();
    })?;
    Ok(vec![timers, receiving])
}

/// Starts a thread for each queue of a way past the network stack.
#[cfg(target_os = "linux")]
pub(super) fn start_bypass(
    shared: &Arc<Shared>,
    bypass: &Arc<atta_afxdp::Bypass>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let start = |queue| {
        let receiver = Receiver::new(shared);
        let bypass = Arc::clone(bypass);
        let thread = std::thread::Builder::new().name("afxdp".to_owned());
        thread.spawn(move || receiver.run_bypass(&bypass, queue))
    };
    (0..bypass.n_queues()).map(start).collect()
}

/// Serves timers until the port ends.
fn keep_time(shared: &Shared) {
    let mut core = shared.core();
    while !shared.is_over.load(Ordering::Acquire) {
        serve_timers(&mut core, shared);
        core = sleep(core, shared);
    }
}

/// Serves all timers that are due, and says when the next one is.
fn serve_timers(core: &mut Core, shared: &Shared) {
    let now = Instant::now();
    let is_due = |line: &mut Line| line.timeout().is_some_and(|at| at <= now);
    let due: Vec<(ConnectionHandle, LineId)> = core
        .lines
        .iter_mut()
        .filter_map(|(handle, line)| is_due(line).then(|| (*handle, line.id(*handle))))
        .collect();
    for (handle, id) in due {
        let Ok(line) = core.any_line(id) else {
            continue;
        };
        line.connection.handle_timeout(now);
        match line.place_until() {
            Some(until) if until <= now => core.close(id, shared),
            _ => core.drive(handle, shared),
        }
    }
    core.sleeps_until = core.lines.values_mut().filter_map(Line::timeout).min();
}

fn sleep<'a>(core: MutexGuard<'a, Core>, shared: &'a Shared) -> MutexGuard<'a, Core> {
    let Some(at) = core.sleeps_until else {
        let woken = shared.timers.wait(core);
        return woken.unwrap_or_else(PoisonError::into_inner);
    };
    let left = at.saturating_duration_since(Instant::now());
    let woken = shared.timers.wait_timeout(core, left);
    woken.unwrap_or_else(PoisonError::into_inner).0
}

/// A thread that receives.
struct Receiver {
    shared: Arc<Shared>,
}

impl Receiver {
    fn new(shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        Self { shared }
    }

    /// Receives datagrams past the network stack.
    #[cfg(target_os = "linux")]
    fn run_bypass(&self, bypass: &atta_afxdp::Bypass, queue: usize) {
        let mut batch = super::way::Batch::default();
        while !self.shared.is_over.load(Ordering::Acquire) {
            let received = bypass.receive(queue, RETRY, &mut |arrived| batch.push(&arrived));
            if received.is_err() {
                std::thread::sleep(RETRY);
            }
            if !batch.is_empty() {
                self.take(&batch.arrivals(bypass.address()));
                batch.clear();
            }
        }
    }

    fn run(&self) {
        let mut buffer = vec![0; RECEIVE_BYTES];
        while !self.shared.is_over.load(Ordering::Acquire) {
            match self.shared.socket.receive(&mut buffer) {
                Ok(Some(arrival)) => self.take(&[arrival]),
                Ok(None) => {}
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    /// Gives datagrams to their connections.
    fn take(&self, arrivals: &[Arrival<'_>]) {
        let shared = &*self.shared;
        let mut core = shared.core();
        let mut touched: Vec<ConnectionHandle> = Vec::new();
        for arrival in arrivals {
            for datagram in arrival.bytes.chunks(arrival.stride) {
                if let Some(handle) = self.handle(&mut core, arrival, datagram)
                    && !touched.contains(&handle)
                {
                    touched.push(handle);
                }
            }
        }
        let mut opened = Vec::new();
        for handle in touched {
            core.drive(handle, shared);
            opened.extend(self.opened(&mut core, handle));
        }
        drop(core);
        for (stream, place) in opened {
            place(stream);
        }
    }

    /// Gives one datagram to its connection, which has then something to do.
    fn handle(
        &self,
        core: &mut Core,
        arrival: &Arrival<'_>,
        datagram: &[u8],
    ) -> Option<ConnectionHandle> {
        let Arrival { from, to, ecn, .. } = *arrival;
        let now = Instant::now();
        let mut answer = Vec::new();
        let event = core
            .endpoint
            .handle(now, from, to, ecn, datagram.into(), &mut answer);
        match event? {
            DatagramEvent::ConnectionEvent(handle, event) => {
                core.lines.get_mut(&handle)?.connection.handle_event(event);
                Some(handle)
            }
            DatagramEvent::NewConnection(incoming) => self.admit(core, incoming),
            DatagramEvent::Response(transmit) => {
                self.shared.send(&transmit, &answer);
                None
            }
        }
    }

    /// Begins a connection, if the other side gets datagrams at the address from which it sends:
    /// places are few, and others could fill them under false addresses.
    fn admit(&self, core: &mut Core, incoming: Incoming) -> Option<ConnectionHandle> {
        let mut answer = Vec::new();
        if incoming.may_retry() {
            let retry = core.endpoint.retry(incoming, &mut answer);
            if let Ok(transmit) = retry {
                self.shared.send(&transmit, &answer);
            }
            return None;
        }
        // An IPv4 address as IPv6 sockets write it is that address.
        let from = incoming.remote_address().ip().to_canonical();
        let Some(place) = (self.shared.admission)(from) else {
            core.endpoint.ignore(incoming);
            return None;
        };
        let now = Instant::now();
        match core.endpoint.accept(incoming, now, &mut answer, None) {
            Ok((handle, connection)) => {
                core.insert(handle, connection, Some((place, now + OPENING)));
                Some(handle)
            }
            Err(error) => {
                let response = error.response.iter();
                response.for_each(|transmit| self.shared.send(transmit, &answer));
                None
            }
        }
    }

    /// A connection that has opened its stream.
    fn opened(&self, core: &mut Core, handle: ConnectionHandle) -> Option<(QuicStream, Reserved)> {
        let line = core.lines.get_mut(&handle)?;
        let (opened, place) = line.take_opened()?;
        let changed = Arc::clone(&line.changed);
        let id = line.id(handle);
        let stream = QuicStream::new(Arc::clone(&self.shared), id, opened, changed);
        Some((stream, place))
    }
}
