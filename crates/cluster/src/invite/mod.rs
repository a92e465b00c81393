//! Joining by a code of eight digits: the key of a cluster for a machine to which a person carries
//! the code.
//!
//! ```text
//! guest                                    host, which shows the code
//!   "ATJ1", SPAKE2 message 33        ──▶
//!                                    ◀──   SPAKE2 message 33
//!   u8 length and name, proof 32     ──▶
//!                                    ◀──   u16 length, the join token sealed
//! ```
//! The connection is plain. SPAKE2 (crate `spake2`, RFC 9382's idea) makes a shared secret of the
//! code: another machine learns from a whole exchange whether one guess was right, and nothing
//! else. The guest proves first, and the host answers no wrong proof; after three of them, five
//! minutes or one guest the code is over. [`exchange`] is bytes, [`JoinCode`] the digits,
//! [`Invitation`] and [`accept_invitation`] the connection.

mod code;
pub mod exchange;
mod host;

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use crate::{control::NodeName, key::JoinToken, lane::tcp::TimedSocket};
use exchange::{Guest, MAX_SEALED};

pub use code::JoinCode;
pub use host::{Invitation, InvitationEvent, InvitationLimits};

/// Time for a whole exchange.
pub(crate) const EXCHANGE: Duration = Duration::from_secs(5);

/// A join by a code that fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InviteError {
    /// Digits are missing, too many, or none.
    #[error("a join code has 8 digits, not {0}")]
    Code(usize),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes for a code")]
    NoRandom,
    /// The other side has another code, or none any more.
    #[error("the other machine refuses the code: it is wrong, used or over")]
    Refused,
    /// Bytes that are no part of an exchange.
    #[error("the other machine does not invite: {0}")]
    Protocol(&'static str),
    /// The connection fails.
    #[error("{address}: {source}")]
    Io {
        /// The other machine.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
}

/// Gets the token of a cluster from a host, by the code that it shows. `name`: what the host calls
/// this machine.
///
/// # Errors
/// No connection, no host, another code.
pub fn accept_invitation(
    address: SocketAddr,
    code: &JoinCode,
    name: &NodeName,
) -> Result<JoinToken, InviteError> {
    let io = |source| InviteError::Io { address, source };
    let tcp = TcpStream::connect_timeout(&address, EXCHANGE).map_err(io)?;
    let mut stream = TimedSocket::new(tcp, Instant::now() + EXCHANGE);
    let (guest, hello) = Guest::start(code);
    stream.write_all(&hello).map_err(io)?;
    let mut theirs = [0; exchange::SPAKE_BYTES];
    // A host whose code is over is not there, or closes.
    stream
        .read_exact(&mut theirs)
        .map_err(|_| InviteError::Refused)?;
    let (sealed_by, proof) = guest.prove(&theirs, name)?;
    stream.write_all(&proof).map_err(io)?;
    let sealed = read_sealed(&mut stream).map_err(|_| InviteError::Refused)?;
    sealed_by.open(&sealed)
}

fn read_sealed(stream: &mut TimedSocket) -> io::Result<Vec<u8>> {
    let mut n = [0; 2];
    stream.read_exact(&mut n)?;
    let n = usize::from(u16::from_le_bytes(n));
    if n > MAX_SEALED {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut sealed = vec![0; n];
    stream.read_exact(&mut sealed)?;
    Ok(sealed)
}

#[cfg(test)]
mod tests;
