//! The first bytes of a connection, which say what it is for.

use std::io::{self, Read};

use crate::wire::message::RingSecret;

/// What a connection is for.
///
/// ```text
/// "ATL1", u64 ring, u16 from, u16 to, u8 class, secret of 32 bytes
/// "ATM1", u64 ring, u16 from, u16 to, secret of 32 bytes                 "ATQ1"      "ATP1"
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// Frames from one side of a ring to another.
    Rows(RowsHello),
    /// Messages from one member of a group to another.
    Member(MemberHello),
    /// Questions and answers.
    Questions,
    /// One request for bytes of a model, and the answer.
    Parts,
}

/// A connection of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowsHello {
    /// Number of the ring.
    pub(super) ring: u64,
    /// Stage that sends; 0: the coordinator.
    pub(super) from: u16,
    /// Stage that receives; 0: the coordinator.
    pub(super) to: u16,
    /// Which frames it carries.
    pub(super) class: FrameClass,
    /// The ring's secret.
    pub(super) secret: RingSecret,
}

/// A connection of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberHello {
    /// Number of the ring.
    pub(super) ring: u64,
    /// Member that sends.
    pub(super) from: u16,
    /// Member that receives.
    pub(super) to: u16,
    /// The ring's secret.
    pub(super) secret: RingSecret,
}

/// Frames that share a connection. A ping must not wait behind megabytes of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FrameClass {
    /// Those of a header alone.
    Bare,
    /// All others.
    Long,
}

/// The one byte by which a receiver of rows takes a connection. It ends one that it refuses.
pub(super) const ROWS_ACCEPTED: u8 = 1;

const ROWS: [u8; 4] = *b"ATL1";
const MEMBER: [u8; 4] = *b"ATM1";
const QUESTIONS: [u8; 4] = *b"ATQ1";
const PARTS: [u8; 4] = *b"ATP1";

impl Hello {
    /// Its bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Questions => QUESTIONS.to_vec(),
            Self::Parts => PARTS.to_vec(),
            Self::Member(member) => {
                let mut bytes = MEMBER.to_vec();
                bytes.extend(member.ring.to_le_bytes());
                bytes.extend(member.from.to_le_bytes());
                bytes.extend(member.to.to_le_bytes());
                bytes.extend(member.secret.0);
                bytes
            }
            Self::Rows(rows) => {
                let mut bytes = ROWS.to_vec();
                bytes.extend(rows.ring.to_le_bytes());
                bytes.extend(rows.from.to_le_bytes());
                bytes.extend(rows.to.to_le_bytes());
                bytes.push(match rows.class {
                    FrameClass::Bare => 0,
                    FrameClass::Long => 1,
                });
                bytes.extend(rows.secret.0);
                bytes
            }
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// Other bytes; those of the stream.
    pub(super) fn read(stream: &mut dyn Read) -> io::Result<Self> {
        match bytes(stream)? {
            QUESTIONS => Ok(Self::Questions),
            PARTS => Ok(Self::Parts),
            ROWS => Ok(Self::Rows(RowsHello {
                ring: u64::from_le_bytes(bytes(stream)?),
                from: u16::from_le_bytes(bytes(stream)?),
                to: u16::from_le_bytes(bytes(stream)?),
                class: match bytes(stream)? {
                    [0] => FrameClass::Bare,
                    [1] => FrameClass::Long,
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                },
                secret: RingSecret(bytes(stream)?),
            })),
            MEMBER => Ok(Self::Member(MemberHello {
                ring: u64::from_le_bytes(bytes(stream)?),
                from: u16::from_le_bytes(bytes(stream)?),
                to: u16::from_le_bytes(bytes(stream)?),
                secret: RingSecret(bytes(stream)?),
            })),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn bytes<const N: usize>(stream: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellos_come_back_and_other_bytes_are_refused() {
        let rows = Hello::Rows(RowsHello {
            ring: u64::MAX - 1,
            from: 3,
            to: 0,
            class: FrameClass::Long,
            secret: RingSecret([9; 32]),
        });
        let member = Hello::Member(MemberHello {
            ring: 5,
            from: 1,
            to: 2,
            secret: RingSecret([8; 32]),
        });
        for hello in [rows, member, Hello::Questions, Hello::Parts] {
            let bytes = hello.to_bytes();
            assert_eq!(Hello::read(&mut &bytes[..]).unwrap(), hello);
            for n in 0..bytes.len() {
                assert!(Hello::read(&mut &bytes[..n]).is_err(), "{n} bytes");
            }
        }
        let other = Hello::read(&mut &b"GET / HTTP/1.1\r\n"[..]).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::InvalidData);
    }
}
