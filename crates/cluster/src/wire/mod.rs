//! Frames of a ring: bytes to plain data and back.
//!
//! Knows no model, link or clock. A frame is a header of 64 bytes, then operations on sequences,
//! runs of rows, their data and a checksum ([docs/cluster-protocol.md]). Bytes come from other
//! machines: every count is compared with the [`Limits`] of the plan before anything is allocated,
//! and nothing panics.
//!
//! [docs/cluster-protocol.md]: https://github.com/atta-llm/atta/blob/main/docs/cluster-protocol.md

mod error;
mod frame;
mod header;
mod member;
pub mod message;
mod op;
mod run;

pub use error::WireError;
pub use frame::{Frame, Limits, Piece, StageTime};
pub use header::{Dtype, FrameKind, HEADER_BYTES, Header, Status, VERSION};
pub use member::{MESSAGE_HEAD_BYTES, MemberLimits, MessageHead, write_message};
pub use op::{OP_BYTES, Op};
pub use run::{RUN_BYTES, Run};

/// Most operations of a work frame.
pub const MAX_OPS: usize = 256;

/// Most operations of a catch-up frame.
pub const MAX_CATCH_UP_OPS: usize = 4096;

/// Most payload bytes of a journal frame.
pub const MAX_JOURNAL_BYTES: usize = 256 << 10;

/// Most payload bytes of a part frame.
pub const MAX_PART_BYTES: usize = 64 << 10;

/// The little-endian field of `N` bytes at `at`; the caller knows that it is there.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..]
        .first_chunk()
        .expect("records have a fixed length")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

#[cfg(test)]
mod tests;
