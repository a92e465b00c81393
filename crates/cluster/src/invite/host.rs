//! The side that invites: a listener for one code, one guest, some tries and some minutes.
//!
//! One guest at a time is heard, for a few seconds, and all that it may send has a length of its
//! own.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::{
    EXCHANGE, InviteError, JoinCode,
    exchange::{HELLO_BYTES, Host, PROOF_BYTES},
};
use crate::{
    control::NodeName,
    key::JoinToken,
    lane::tcp::{IsAllowed, TimedSocket},
};

/// Time between two looks at the listener.
const POLL: Duration = Duration::from_millis(50);
/// Most bytes of a name, as in certificates.
const MAX_NAME: usize = 63;

/// How long a code holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvitationLimits {
    /// Time.
    pub time: Duration,
    /// Wrong proofs.
    pub n_tries: u32,
}

impl Default for InvitationLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(300),
            n_tries: 3,
        }
    }
}

/// What happens to an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvitationEvent {
    /// A machine of this name has the token: the end.
    Joined(NodeName),
    /// A guest had another code.
    WrongCode {
        /// Further tries.
        left: u32,
    },
    /// No tries are left: the end.
    TooMany,
    /// The time is over: the end.
    Expired,
}

/// Invites one machine.
pub struct Invitation {
    listener: TcpListener,
    code: JoinCode,
    token: JoinToken,
    is_allowed: IsAllowed,
    limits: InvitationLimits,
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invitation")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Invitation {
    /// Listens with a code at random, for guests of some addresses.
    ///
    /// # Errors
    /// The address cannot be listened on; no random bytes.
    pub fn open(
        address: SocketAddr,
        token: JoinToken,
        is_allowed: IsAllowed,
        limits: InvitationLimits,
    ) -> Result<Self, InviteError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        Ok(Self {
            listener: listen().map_err(|source| InviteError::Io { address, source })?,
            code: JoinCode::random()?,
            token,
            is_allowed,
            limits,
        })
    }

    /// The code to show.
    pub fn code(&self) -> &JoinCode {
        &self.code
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The error of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for the guest; tells wrong codes. Gives the event that ends it.
    pub fn wait(self, on_wrong: &mut dyn FnMut(InvitationEvent)) -> InvitationEvent {
        let end = Instant::now() + self.limits.time;
        let mut left = self.limits.n_tries;
        while Instant::now() < end {
            let Ok((socket, from)) = self.listener.accept() else {
                thread::sleep(POLL);
                continue;
            };
            if !(self.is_allowed)(from.ip().to_canonical()) {
                continue;
            }
            match self.receive(socket) {
                Ok(name) => return InvitationEvent::Joined(name),
                Err(InviteError::Refused) => {
                    left = left.saturating_sub(1);
                    if left == 0 {
                        return InvitationEvent::TooMany;
                    }
                    on_wrong(InvitationEvent::WrongCode { left });
                }
                // No guess was made.
                Err(_) => {}
            }
        }
        InvitationEvent::Expired
    }

    /// One exchange; its name if the guest had the code.
    fn receive(&self, socket: TcpStream) -> Result<NodeName, InviteError> {
        let address = socket.peer_addr().unwrap_or(([0, 0, 0, 0], 0).into());
        let io = |source| InviteError::Io { address, source };
        // Accepted sockets are as the listener is on some systems.
        socket.set_nonblocking(false).map_err(io)?;
        socket.set_write_timeout(Some(EXCHANGE)).map_err(io)?;
        let mut stream = TimedSocket::new(socket, Instant::now() + EXCHANGE);
        let mut hello = [0; HELLO_BYTES];
        stream.read_exact(&mut hello).map_err(io)?;
        let (host, ours) = Host::start(&self.code, &hello)?;
        stream.write_all(&ours).map_err(io)?;
        let mut n = [0];
        stream.read_exact(&mut n).map_err(io)?;
        let n = usize::from(n[0]);
        if n > MAX_NAME {
            return Err(InviteError::Protocol("a long name"));
        }
        let mut name = vec![0; n];
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut name).map_err(io)?;
        stream.read_exact(&mut proof).map_err(io)?;
        let sealed = host.seal(&name, &proof, &self.token)?;
        let length = u16::try_from(sealed.len()).unwrap_or(u16::MAX);
        let answer = [&length.to_le_bytes()[..], &sealed].concat();
        stream.write_all(&answer).map_err(io)?;
        let name = std::str::from_utf8(&name).ok();
        let name = name.and_then(|name| NodeName::new(name).ok());
        name.ok_or(InviteError::Protocol("a name that is none"))
    }
}
