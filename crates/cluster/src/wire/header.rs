//! The 64 bytes in front of every frame.

use super::{WireError, u16_at, u32_at, u64_at};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;

/// Version of the protocol.
pub const VERSION: u8 = 2;

const MAGIC: [u8; 4] = *b"ATR1";

/// Offset of the header's own checksum.
const CHECKSUM_AT: usize = 60;

/// Declares an enum of codes on the wire, and the reading of one.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident: $int:ty, $field:literal, $expected:literal {
        $($(#[$variant_doc:meta])* $variant:ident = $code:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($int)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $code,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The one with this code.
            ///
            /// # Errors
            /// [`WireError::Field`].
            pub fn of_code(code: $int) -> Result<Self, WireError> {
                match code {
                    $($code => Ok(Self::$variant),)*
                    _ => Err(WireError::field($field, code, $expected)),
                }
            }
        }
    };
}

codes! {
    /// The kind of a frame.
    FrameKind: u8, "kind", "1 to 12" {
        /// Rows on their way to a stage.
        Work = 1,
        /// Rows of the last stage, to the coordinator.
        Result = 2,
        /// A stage has computed a batch.
        Ack = 3,
        /// Asks a link whether it is alive.
        Ping = 4,
        /// The answer to a ping.
        Pong = 5,
        /// A stage refuses a frame; its status says why.
        Nack = 6,
        /// The ring ends.
        Bye = 7,
        /// New state of a stage, for the disk of a neighbour.
        Journal = 8,
        /// Bytes of a model file.
        Part = 9,
        /// Operations that bring a stage to where an epoch begins.
        CatchUp = 10,
        /// Asks a stage to enter an epoch.
        Fence = 11,
        /// The answer to a fence: `acked` and `batch` are epoch and number of the last batch
        /// that the stage applied, 0 where it has no state.
        Fenced = 12,
    }
}

codes! {
    /// The type of the numbers of a row.
    Dtype: u8, "dtype", "0, 1 or 2" {
        /// 4 bytes each.
        F32 = 0,
        /// 2 bytes each.
        F16 = 1,
        /// 1 byte each, and an f16 scale per 32.
        Int8 = 2,
    }
}

codes! {
    /// The outcome of a batch.
    Status: u16, "status", "0 to 5" {
        /// Computed.
        Ok = 0,
        /// Weights could not be read.
        Io = 1,
        /// A row became NaN or infinite.
        NonFinite = 2,
        /// The stage ran out of KV blocks.
        OutOfBlocks = 3,
        /// A frame that the stage cannot follow.
        Refused = 4,
        /// A saved state that the stage does not have.
        NoState = 5,
    }
}

impl Dtype {
    /// Bytes of a row of `d` numbers; `None` if there is no such row.
    pub fn row_bytes(self, d: u16) -> Option<usize> {
        let d = usize::from(d);
        match self {
            Self::F32 => Some(4 * d),
            Self::F16 => Some(2 * d),
            Self::Int8 => d.is_multiple_of(32).then_some(d + 2 * (d / 32)),
        }
    }
}

impl FrameKind {
    /// Whether it carries rows of the residual.
    pub fn has_rows(self) -> bool {
        matches!(self, Self::Work | Self::Result)
    }

    /// Whether it is a header and nothing else.
    pub fn is_bare(self) -> bool {
        use FrameKind::{Ack, Bye, Fence, Fenced, Nack, Ping, Pong};
        matches!(self, Ack | Ping | Pong | Nack | Bye | Fence | Fenced)
    }
}

/// The header of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Type of the rows.
    pub dtype: Dtype,
    /// Flags: [`Self::RESET`].
    pub flags: u8,
    /// Random number of the ring.
    pub ring: u64,
    /// Epoch: raised by every fence.
    pub epoch: u32,
    /// Number of the batch within its epoch; the catch-up is number 1.
    pub batch: u32,
    /// Stage that a frame from the coordinator's side is for, or that an answer is from; from 1.
    pub stage: u16,
    /// Last stage that computes.
    pub until: u16,
    /// Operations.
    pub n_ops: u16,
    /// Runs of rows.
    pub n_runs: u16,
    /// Rows of all runs.
    pub n_rows: u32,
    /// Bytes of data.
    pub data_bytes: u32,
    /// Last batch that the coordinator has collected, or the stage has computed; in the answer to a
    /// fence an epoch.
    pub acked: u32,
    /// Frames that the sender still takes.
    pub credit: u16,
    /// Outcome so far.
    pub status: Status,
    /// Time that stages have computed, µs.
    pub compute_us: u32,
    /// Time that the batch has waited at stages, µs.
    pub queued_us: u32,
    /// Numbers of a row.
    pub d_row: u16,
    /// Time that the batch may take, in units of 10 ms.
    pub deadline_10ms: u16,
}

impl Header {
    /// Flag of a catch-up: the stage drops all sequences first.
    pub const RESET: u8 = 1;

    /// A header of a kind, with zeros in all other fields.
    pub fn new(kind: FrameKind) -> Self {
        Self {
            kind,
            dtype: Dtype::F32,
            flags: 0,
            ring: 0,
            epoch: 0,
            batch: 0,
            stage: 0,
            until: 0,
            n_ops: 0,
            n_runs: 0,
            n_rows: 0,
            data_bytes: 0,
            acked: 0,
            credit: 0,
            status: Status::Ok,
            compute_us: 0,
            queued_us: 0,
            d_row: 0,
            deadline_10ms: 0,
        }
    }

    /// Writes it, with its checksum.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let codes = [VERSION, self.kind as u8, self.dtype as u8, self.flags];
        out.extend(MAGIC);
        out.extend(codes);
        out.extend(self.ring.to_le_bytes());
        out.extend(
            [self.epoch, self.batch]
                .into_iter()
                .flat_map(u32::to_le_bytes),
        );
        let counts = [self.stage, self.until, self.n_ops, self.n_runs];
        out.extend(counts.into_iter().flat_map(u16::to_le_bytes));
        let sizes = [self.n_rows, self.data_bytes, self.acked];
        out.extend(sizes.into_iter().flat_map(u32::to_le_bytes));
        out.extend(self.credit.to_le_bytes());
        out.extend((self.status as u16).to_le_bytes());
        let times = [self.compute_us, self.queued_us];
        out.extend(times.into_iter().flat_map(u32::to_le_bytes));
        out.extend(self.d_row.to_le_bytes());
        out.extend(self.deadline_10ms.to_le_bytes());
        let checksum = crc32c::crc32c(&out[start..]);
        out.extend(checksum.to_le_bytes());
    }

    /// Reads a header and checks what holds for every ring.
    ///
    /// # Errors
    /// Bytes of another protocol, damaged ones, unknown codes.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let magic = super::field(bytes, 0);
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        if bytes[4] != VERSION {
            return Err(WireError::Version {
                got: bytes[4],
                expected: VERSION,
            });
        }
        if crc32c::crc32c(&bytes[..CHECKSUM_AT]) != u32_at(bytes, CHECKSUM_AT) {
            return Err(WireError::Checksum("header"));
        }
        Ok(Self {
            kind: FrameKind::of_code(bytes[5])?,
            dtype: Dtype::of_code(bytes[6])?,
            flags: bytes[7],
            ring: u64_at(bytes, 8),
            epoch: u32_at(bytes, 16),
            batch: u32_at(bytes, 20),
            stage: u16_at(bytes, 24),
            until: u16_at(bytes, 26),
            n_ops: u16_at(bytes, 28),
            n_runs: u16_at(bytes, 30),
            n_rows: u32_at(bytes, 32),
            data_bytes: u32_at(bytes, 36),
            acked: u32_at(bytes, 40),
            credit: u16_at(bytes, 44),
            status: Status::of_code(u16_at(bytes, 46))?,
            compute_us: u32_at(bytes, 48),
            queued_us: u32_at(bytes, 52),
            d_row: u16_at(bytes, 56),
            deadline_10ms: u16_at(bytes, 58),
        })
    }
}
