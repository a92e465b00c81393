//! The only unsafe code: the system call `bpf`, and frames in memory that the system shares.
//!
//! It refuses to know what a frame holds. The one idea: a frame never leaves this file; callers
//! give bytes and get bytes.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use xdp::{
    RingConfigBuilder, Umem, WakableRings,
    nic::NicIndex,
    slab::{HeapSlab, Slab},
    socket::{PollTimeout, XdpSocket, XdpSocketBuilder},
    umem::{FrameSize, UmemCfgBuilder},
};

use crate::filter::Instruction;

/// Frames of a queue, half of them for what arrives. With 4 KiB each they fit in the memory that
/// a process may lock by default.
const N_FRAMES: u32 = 1024;
/// Bytes of its frames.
pub(crate) const QUEUE_BYTES: u64 = N_FRAMES as u64 * 4096;
/// Frames that the system may fill.
const N_FILL: usize = N_FRAMES as usize / 2;
/// Entries of the rings.
const N_RING: u32 = 512;
/// Most frames that are taken at once.
const N_RECEIVED: usize = 64;
/// Most frames that the system sends by one call.
const N_SENT: usize = 32;

/// Commands of the system call.
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROGRAM_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
/// Kinds of maps, programs and places.
const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_OF_XDP: u32 = 6;
const PLACE_OF_XDP: u32 = 37;
/// The program runs behind the driver, which every network card can do, and no link goes down.
const GENERIC: u32 = 2;

/// The arguments of the system call, a block of bytes with fields that differ by command.
#[repr(C, align(8))]
struct Arguments([u8; 128]);

impl Arguments {
    fn new(fields: &[(usize, u32)]) -> Self {
        let mut bytes = [0; 128];
        for (at, value) in fields {
            bytes[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        Self(bytes)
    }

    /// Sets a pointer; what it points to must live until the call is over.
    fn point<T>(&mut self, at: usize, to: *const T) {
        self.0[at..at + 8].copy_from_slice(&(to as u64).to_ne_bytes());
    }

    fn call(&self, command: libc::c_long) -> io::Result<RawFd> {
        // SAFETY: the arguments are as long as said, and all pointers in them are to values of the
        // caller, which outlive the call.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) };
        match RawFd::try_from(result) {
            Ok(result) if result >= 0 => Ok(result),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn open(&self, command: libc::c_long) -> io::Result<OwnedFd> {
        let file = self.call(command)?;
        // SAFETY: the command has opened the file for us.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }
}

/// The sockets of an interface, by the numbers of its queues.
#[derive(Debug)]
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    pub(crate) fn new(n_queues: u32) -> io::Result<Self> {
        let fields = [(0, MAP_OF_SOCKETS), (4, 4), (8, 4), (12, n_queues)];
        Arguments::new(&fields).open(MAP_CREATE).map(Self)
    }

    pub(crate) fn file(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn insert(&self, number: u32, queue: &Queue) -> io::Result<()> {
        let socket = queue.socket.raw_fd();
        let mut arguments = Arguments::new(&[(0, self.file() as u32)]);
        arguments.point(8, &number);
        arguments.point(16, &socket);
        arguments.call(MAP_UPDATE).map(drop)
    }
}

/// A program that looks at the frames of an interface until it is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    _program: OwnedFd,
    _link: OwnedFd,
}

impl Attached {
    pub(crate) fn new(program: &[Instruction], interface: u32) -> io::Result<Self> {
        let n = u32::try_from(program.len()).map_err(io::Error::other)?;
        let mut load = Arguments::new(&[(0, PROGRAM_OF_XDP), (4, n), (68, PLACE_OF_XDP)]);
        load.point(8, program.as_ptr());
        load.point(16, c"Dual MIT/GPL".as_ptr());
        let program = load.open(PROGRAM_LOAD)?;
        let file = program.as_raw_fd() as u32;
        let fields = [(0, file), (4, interface), (8, PLACE_OF_XDP), (12, GENERIC)];
        let link = Arguments::new(&fields).open(LINK_CREATE)?;
        Ok(Self {
            _program: program,
            _link: link,
        })
    }
}

/// The socket of one queue of an interface. It ends before the memory of its frames.
pub(crate) struct Queue {
    socket: XdpSocket,
    state: Mutex<QueueState>,
}

struct QueueState {
    rings: WakableRings,
    umem: Umem,
}

impl Queue {
    pub(crate) fn open(interface: NicIndex, queue: u32) -> io::Result<Self> {
        let memory = UmemCfgBuilder {
            frame_size: FrameSize::FourK,
            frame_count: N_FRAMES,
            ..UmemCfgBuilder::default()
        };
        let umem = Umem::map(memory.build().map_err(io::Error::other)?)?;
        let rings = RingConfigBuilder {
            rx_count: N_RING,
            tx_count: N_RING,
            fill_count: N_RING,
            completion_count: N_RING,
        };
        let rings = rings.build().map_err(io::Error::other)?;
        let mut socket = XdpSocketBuilder::new().map_err(of_socket)?;
        let (rings, mut flags) = socket
            .build_wakable_rings(&umem, rings)
            .map_err(of_socket)?;
        flags.force_copy();
        let mut state = QueueState { rings, umem };
        state.fill(N_FILL);
        Ok(Self {
            socket: socket.bind(interface, queue, flags).map_err(of_socket)?,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for frames, some ms at least.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<bool> {
        self.socket.poll_read(PollTimeout::new(Some(time)))
    }

    /// Gives each frame that has arrived to `take`.
    pub(crate) fn receive(&self, take: &mut dyn FnMut(&[u8])) {
        let mut state = self.state();
        let QueueState { rings, umem } = &mut *state;
        let Some(ring) = &mut rings.rx_ring else {
            return;
        };
        let mut arrived = HeapSlab::with_capacity(N_RECEIVED);
        // SAFETY: the frames are given back below, while their memory is held.
        let n = unsafe { ring.recv(umem, &mut arrived) };
        while let Some(frame) = arrived.pop_back() {
            take(&frame);
            umem.free_packet(frame);
        }
        state.fill(n);
    }

    /// Sends frames that `parts` are put together to. `false`: there is no room for all.
    pub(crate) fn send(&self, frames: &mut dyn Iterator<Item = [&[u8]; 2]>) -> bool {
        let mut state = self.state();
        let mut frames = frames.peekable();
        let mut has_room = true;
        while has_room && frames.peek().is_some() {
            let leaving = state.gather(&mut frames.by_ref().take(N_SENT));
            has_room = leaving.is_some_and(|leaving| state.send(leaving));
        }
        has_room
    }
}

impl QueueState {
    /// Lets the system fill so many frames more.
    fn fill(&mut self, n: usize) {
        let Self { rings, umem, .. } = self;
        // SAFETY: the memory is dropped behind the socket. In copy mode nothing is to be woken.
        let filled = unsafe { rings.fill_ring.enqueue(umem, n, false) };
        debug_assert!(filled.is_ok_and(|filled| filled == n));
    }

    /// Copies frames to memory that is shared. `None`: there is no room for all.
    fn gather(&mut self, frames: &mut dyn Iterator<Item = [&[u8]; 2]>) -> Option<HeapSlab> {
        let Self { rings, umem } = self;
        rings.completion_ring.dequeue(umem, N_RING as usize);
        let mut leaving = HeapSlab::with_capacity(N_SENT);
        let mut has_room = true;
        for [head, body] in frames {
            // SAFETY: the frame is sent or given back while the memory is held.
            let Some(mut frame) = (unsafe { umem.alloc() }) else {
                has_room = false;
                break;
            };
            has_room &= frame.append(head).is_ok() && frame.append(body).is_ok();
            leaving.push_front(frame);
        }
        if !has_room {
            self.give_back(leaving);
            return None;
        }
        Some(leaving)
    }

    /// Sends frames. `false`: not all.
    fn send(&mut self, mut frames: HeapSlab) -> bool {
        if let Some(ring) = &mut self.rings.tx_ring {
            // SAFETY: the memory of the frames is dropped behind the socket. What the system does
            // not send at once it sends with the next frames.
            let _ = unsafe { ring.send(&mut frames, true) };
        }
        let is_sent = frames.is_empty();
        self.give_back(frames);
        is_sent
    }

    fn give_back(&mut self, mut frames: HeapSlab) {
        while let Some(frame) = frames.pop_back() {
            self.umem.free_packet(frame);
        }
    }
}

/// The error of the system in one of the crate.
fn of_socket(error: xdp::socket::SocketError) -> io::Error {
    use xdp::socket::SocketError::{Bind, GetSockOpt, RingMap, SetSockOpt, SocketCreation};
    match error {
        SocketCreation(error) | Bind(error) => error,
        GetSockOpt { inner, .. } | SetSockOpt { inner, .. } | RingMap { inner, .. } => inner,
    }
}
