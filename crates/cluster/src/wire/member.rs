//! Messages between the members of a group, which compute a model together: bytes to plain data and
//! back.
//!
//! Knows no links and no model. A message is a head of 24 bytes and what it announces. Bytes come
//! from other machines: every count is compared with [`MemberLimits`] before anything is allocated,
//! and nothing panics.
//!
//! ```text
//!  0  u8   kind   1 columns, 2 failed, 3 command; then 3 zeros
//!  4  u32  n      numbers of columns, the member that is to blame, or bytes of a command
//!  8  u64  batch  of columns and failures: batches that all members have computed before
//! 16  u32  unit   of columns: units of the batch before this one; then 4 zeros
//! 24       n numbers, f32, of each product row by row; or the command: u8 code, its fields
//! ```

use std::ops::Range;

use atta_model::{Batch, Input, Row, SeqId, Want};

use super::{WireError, u32_at, u64_at};
use crate::tensor::{MemberCommand, Message};

/// Bytes of the head of a message.
pub const MESSAGE_HEAD_BYTES: usize = 24;

/// Bytes of a row of a batch.
const ROW_BYTES: usize = 24;
/// Bytes of a command's code and fields before rows.
const COMMAND_BYTES: usize = 32;
/// Bytes of a number.
const NUMBER_BYTES: usize = size_of::<f32>();

/// What messages of a group may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberLimits {
    /// Members.
    pub n_members: usize,
    /// Numbers of the largest unit that one member computes.
    pub n_numbers: usize,
    /// Rows of a batch.
    pub n_batch: usize,
    /// Numbers of an embedding that a row may bring.
    pub d_model: usize,
}

/// What the head of a message announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Columns { n: usize, batch: u64, unit: u32 },
    Failed { batch: u64, member: usize },
    Command { n_bytes: usize },
}

/// The checked head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHead(Kind);

impl MessageHead {
    /// Reads it.
    ///
    /// # Errors
    /// An unknown kind, more than the limits allow, unused fields that are not 0.
    pub fn parse(
        bytes: &[u8; MESSAGE_HEAD_BYTES],
        limits: &MemberLimits,
    ) -> Result<Self, WireError> {
        let n = u32_at(bytes, 4);
        let batch = u64_at(bytes, 8);
        let unit = u32_at(bytes, 16);
        WireError::check_zero("a spare field", u32_at(bytes, 0) >> 8)?;
        WireError::check_zero("a spare field", u32_at(bytes, 20))?;
        let most = |n: usize| n as u64;
        let kind = match bytes[0] {
            1 => {
                WireError::check_max("numbers", n, most(limits.n_numbers))?;
                let n = n as usize;
                Kind::Columns { n, batch, unit }
            }
            2 => {
                WireError::check_max("members", n, most(limits.n_members.saturating_sub(1)))?;
                WireError::check_zero("the unit", unit)?;
                let member = n as usize;
                Kind::Failed { batch, member }
            }
            3 => {
                WireError::check_max("bytes of a command", n, most(limits.command_bytes()))?;
                WireError::check_zero("the batch", batch)?;
                WireError::check_zero("the unit", unit)?;
                let n_bytes = n as usize;
                Kind::Command { n_bytes }
            }
            kind => return Err(WireError::field("the kind", kind, "1, 2 or 3")),
        };
        Ok(Self(kind))
    }

    /// Bytes that follow.
    pub fn body_bytes(&self) -> usize {
        match self.0 {
            Kind::Columns { n, .. } => n * NUMBER_BYTES,
            Kind::Failed { .. } => 0,
            Kind::Command { n_bytes } => n_bytes,
        }
    }

    /// The message with this head.
    ///
    /// # Errors
    /// Another number of bytes, a command that the limits do not allow.
    pub fn message(&self, body: &[u8], limits: &MemberLimits) -> Result<Message, WireError> {
        check_length(body, self.body_bytes())?;
        Ok(match self.0 {
            Kind::Columns { batch, unit, .. } => Message::Columns {
                batch,
                unit,
                numbers: numbers(body).collect(),
            },
            Kind::Failed { batch, member } => Message::Failed { batch, member },
            Kind::Command { .. } => Message::Command(parse_command(body, limits)?.into()),
        })
    }
}

impl MemberLimits {
    /// The most bytes of a command.
    fn command_bytes(&self) -> usize {
        let row = ROW_BYTES.saturating_add(NUMBER_BYTES.saturating_mul(self.d_model));
        COMMAND_BYTES.saturating_add(self.n_batch.saturating_mul(row))
    }

    /// The most bytes of a message.
    pub fn message_bytes(&self) -> usize {
        let columns = NUMBER_BYTES.saturating_mul(self.n_numbers);
        MESSAGE_HEAD_BYTES.saturating_add(columns.max(self.command_bytes()))
    }
}

/// The bytes of a message. A state of a sequence has none: members of other machines take none.
///
/// # Errors
/// [`MemberCommand::Append`]; more of something than 32 bits count.
pub fn write_message(message: &Message) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::new();
    match message {
        Message::Columns {
            batch,
            unit,
            numbers,
        } => {
            bytes.reserve_exact(MESSAGE_HEAD_BYTES + NUMBER_BYTES * numbers.len());
            head(&mut bytes, 1, count(numbers.len())?, *batch, *unit);
            write_numbers(&mut bytes, numbers);
        }
        Message::Failed { batch, member } => head(&mut bytes, 2, count(*member)?, *batch, 0),
        Message::Command(command) => {
            let command = command_bytes(command)?;
            head(&mut bytes, 3, count(command.len())?, 0, 0);
            bytes.extend(command);
        }
    }
    Ok(bytes)
}

fn head(bytes: &mut Vec<u8>, kind: u8, n: u32, batch: u64, unit: u32) {
    bytes.extend([kind, 0, 0, 0]);
    bytes.extend(n.to_le_bytes());
    bytes.extend(batch.to_le_bytes());
    bytes.extend(unit.to_le_bytes());
    bytes.extend([0; 4]);
}

fn count(n: usize) -> Result<u32, WireError> {
    u32::try_from(n).map_err(|_| WireError::TooMany {
        what: "of something",
        n: n as u64,
        max: u32::MAX.into(),
    })
}

fn write_numbers(bytes: &mut Vec<u8>, numbers: &[f32]) {
    numbers.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let chunks = bytes.as_chunks::<NUMBER_BYTES>().0.iter();
    chunks.map(|bytes| f32::from_le_bytes(*bytes))
}

fn check_length(bytes: &[u8], expected: usize) -> Result<(), WireError> {
    match bytes.len() == expected {
        true => Ok(()),
        false => Err(WireError::Length {
            expected,
            got: bytes.len(),
        }),
    }
}

/// A command: its code, up to two sequences, up to two numbers of positions; of a batch, rows and
/// the numbers of embeddings.
fn command_bytes(command: &MemberCommand) -> Result<Vec<u8>, WireError> {
    let none = SeqId {
        index: 0,
        generation: 0,
    };
    let fixed = |code: u8, seqs: [SeqId; 2], counts: [usize; 2]| {
        let mut bytes = vec![code, 0, 0, 0];
        for seq in seqs {
            write_seq(&mut bytes, seq);
        }
        for n in counts {
            bytes.extend(count(n)?.to_le_bytes());
        }
        bytes.extend([0; 4]);
        Ok(bytes)
    };
    match command {
        MemberCommand::New(seq) => fixed(1, [*seq, none], [0; 2]),
        MemberCommand::Fork { from, to } => fixed(2, [*from, *to], [0; 2]),
        MemberCommand::Truncate { seq, n, left } => fixed(3, [*seq, none], [*n, *left]),
        MemberCommand::Shift { seq, evicted } => {
            fixed(4, [*seq, none], [evicted.start, evicted.end])
        }
        MemberCommand::Fill { seq, n } => fixed(5, [*seq, none], [*n, 0]),
        MemberCommand::Drop(seq) => fixed(6, [*seq, none], [0; 2]),
        MemberCommand::Compute(batch) => {
            let counts = [batch.rows.len(), batch.hidden.len()];
            let mut bytes = fixed(7, [none; 2], counts)?;
            for row in &batch.rows {
                write_row(&mut bytes, row)?;
            }
            write_numbers(&mut bytes, &batch.hidden);
            Ok(bytes)
        }
        MemberCommand::Append { .. } => Err(WireError::field("a command", 8u8, "1 to 7")),
    }
}

fn parse_command(bytes: &[u8], limits: &MemberLimits) -> Result<MemberCommand, WireError> {
    let Some((fixed, rest)) = bytes.split_at_checked(COMMAND_BYTES) else {
        check_length(bytes, COMMAND_BYTES)?;
        unreachable!("shorter than that");
    };
    WireError::check_zero("a spare field", u32_at(fixed, 0) >> 8)?;
    WireError::check_zero("a spare field", u32_at(fixed, 28))?;
    let seq = parse_seq(fixed, 4);
    let n = u32_at(fixed, 20) as usize;
    let m = u32_at(fixed, 24) as usize;
    if fixed[0] == 7 {
        let unused = fixed[4..20].iter().map(|byte| u64::from(*byte));
        WireError::check_zero("an unused field", unused.sum::<u64>())?;
        return parse_batch(rest, n, m, limits);
    }
    check_length(rest, 0)?;
    let command = match fixed[0] {
        1 => MemberCommand::New(seq),
        2 => MemberCommand::Fork {
            from: seq,
            to: parse_seq(fixed, 12),
        },
        3 => MemberCommand::Truncate { seq, n, left: m },
        4 => MemberCommand::Shift {
            seq,
            evicted: positions(n, m)?,
        },
        5 => MemberCommand::Fill { seq, n },
        6 => MemberCommand::Drop(seq),
        code => return Err(WireError::field("a command", code, "1 to 7")),
    };
    match command_bytes(&command)? == fixed {
        true => Ok(command),
        false => Err(WireError::field("an unused field", fixed[0], "0")),
    }
}

fn positions(start: usize, end: usize) -> Result<Range<usize>, WireError> {
    match start <= end {
        true => Ok(start..end),
        false => Err(WireError::field("the end", end as u64, "behind the start")),
    }
}

fn write_seq(bytes: &mut Vec<u8>, seq: SeqId) {
    bytes.extend(seq.index.to_le_bytes());
    bytes.extend(seq.generation.to_le_bytes());
}

fn parse_seq(bytes: &[u8], at: usize) -> SeqId {
    SeqId {
        index: u32_at(bytes, at),
        generation: u32_at(bytes, at + 4),
    }
}

/// ```text
/// 0  u32 × 2  sequence      12  u32  token, or number of the embedding
/// 8  u32      position      16  u8   input (1 token, 2 embedding), want, checkpoint, segment
///                           20       zeros
/// ```
fn write_row(bytes: &mut Vec<u8>, row: &Row) -> Result<(), WireError> {
    write_seq(bytes, row.seq);
    bytes.extend(count(row.pos)?.to_le_bytes());
    let input = match row.input {
        Input::Token(id) => (1, id),
        Input::Embedding(i) => (2, count(i)?),
        Input::Hidden(_) | Input::Tapped { .. } | Input::Carried { .. } => {
            return Err(WireError::field("an input", 3u8, "1 or 2"));
        }
    };
    let (kind, value) = input;
    bytes.extend(value.to_le_bytes());
    let want = match row.want {
        Want::Nothing => 0,
        Want::Logits => 1,
        Want::Hidden => 2,
    };
    bytes.extend([kind, want, u8::from(row.is_checkpoint), row.segment]);
    bytes.extend([0; 4]);
    Ok(())
}

fn parse_batch(
    bytes: &[u8],
    n_rows: usize,
    n_numbers: usize,
    limits: &MemberLimits,
) -> Result<MemberCommand, WireError> {
    WireError::check_max("rows", n_rows as u64, limits.n_batch as u64)?;
    let most = n_rows.saturating_mul(limits.d_model);
    WireError::check_max("numbers of embeddings", n_numbers as u64, most as u64)?;
    check_length(bytes, n_rows * ROW_BYTES + n_numbers * NUMBER_BYTES)?;
    let (rows, hidden) = bytes.split_at(n_rows * ROW_BYTES);
    let n_embeddings = n_numbers / limits.d_model.max(1);
    let rows = rows
        .chunks_exact(ROW_BYTES)
        .map(|row| parse_row(row, n_embeddings));
    let batch = Batch {
        rows: rows.collect::<Result<_, _>>()?,
        hidden: numbers(hidden).collect(),
        taps: Vec::new(),
    };
    Ok(MemberCommand::Compute(batch.into()))
}

fn parse_row(bytes: &[u8], n_embeddings: usize) -> Result<Row, WireError> {
    WireError::check_zero("a spare field", u32_at(bytes, 20))?;
    let value = u32_at(bytes, 12);
    Ok(Row {
        seq: parse_seq(bytes, 0),
        pos: u32_at(bytes, 8) as usize,
        input: match bytes[16] {
            1 => Input::Token(value),
            2 if (value as usize) < n_embeddings => Input::Embedding(value as usize),
            kind => {
                return Err(WireError::field(
                    "an input",
                    kind,
                    "1, or 2 with its numbers",
                ));
            }
        },
        want: match bytes[17] {
            0 => Want::Nothing,
            1 => Want::Logits,
            2 => Want::Hidden,
            want => return Err(WireError::field("a wish", want, "0, 1 or 2")),
        },
        is_checkpoint: match bytes[18] {
            0 => false,
            1 => true,
            flag => return Err(WireError::field("a checkpoint", flag, "0 or 1")),
        },
        adapters: atta_model::AdapterSet::EMPTY,
        segment: match bytes[19] {
            segment @ (0 | 1) => segment,
            segment => return Err(WireError::field("a segment", segment, "0 or 1")),
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: MemberLimits = MemberLimits {
        n_members: 3,
        n_numbers: 8,
        n_batch: 4,
        d_model: 2,
    };

    fn read(bytes: &[u8]) -> Result<Message, WireError> {
        let Some((head, body)) = bytes.split_first_chunk() else {
            return Err(WireError::field("the length", 0u8, "24 or more"));
        };
        MessageHead::parse(head, &LIMITS)?.message(body, &LIMITS)
    }

    fn seq(index: u32) -> SeqId {
        SeqId {
            index,
            generation: index + 7,
        }
    }

    fn batch() -> Batch {
        let mut batch = Batch::default();
        batch.push_token(seq(1), 5, 77, Want::Logits);
        batch.mark_checkpoint();
        batch.push_embedding(seq(2), 0, &[0.5, -1.0], Want::Nothing);
        batch.push_token(seq(2), 1, 3, Want::Hidden);
        batch.set_segment(1);
        batch
    }

    fn messages() -> Vec<Message> {
        let commands = [
            MemberCommand::New(seq(1)),
            MemberCommand::Fork {
                from: seq(1),
                to: seq(2),
            },
            MemberCommand::Truncate {
                seq: seq(1),
                n: 9,
                left: 8,
            },
            MemberCommand::Shift {
                seq: seq(3),
                evicted: 4..36,
            },
            MemberCommand::Fill {
                seq: seq(3),
                n: 1000,
            },
            MemberCommand::Drop(seq(4)),
            MemberCommand::Compute(batch().into()),
        ];
        let columns = |numbers: &[f32]| Message::Columns {
            batch: 1 << 40,
            unit: 3,
            numbers: numbers.into(),
        };
        let commands = commands.map(|command| Message::Command(command.into()));
        let others = [
            columns(&[]),
            columns(&[1.5; 8]),
            Message::Failed {
                batch: 9,
                member: 2,
            },
        ];
        commands.into_iter().chain(others).collect()
    }

    #[test]
    fn messages_come_back_and_cut_ones_are_errors() {
        for message in messages() {
            let bytes = write_message(&message).unwrap();
            let again = read(&bytes).unwrap();
            assert_eq!(format!("{again:?}"), format!("{message:?}"));
            assert_eq!(write_message(&again).unwrap(), bytes);
            for n in 0..bytes.len() {
                assert!(read(&bytes[..n]).is_err(), "{n} bytes of {message:?}");
            }
        }
    }

    #[test]
    fn more_than_the_limits_allow_is_an_error_before_the_body() {
        let head = |kind: u8, n: u32| {
            let mut bytes = Vec::new();
            super::head(&mut bytes, kind, n, 0, 0);
            MessageHead::parse(bytes.first_chunk().unwrap(), &LIMITS)
        };
        for (kind, most) in [(1, 8), (2, 2), (3, 32 + 4 * (24 + 8))] {
            assert!(head(kind, most).is_ok(), "{kind}");
            for n in [most + 1, u32::MAX] {
                let error = head(kind, n).unwrap_err();
                assert!(
                    matches!(error, WireError::TooMany { .. }),
                    "{kind}: {error}"
                );
            }
        }
        assert!(head(0, 0).is_err());
        assert!(head(4, 0).is_err());
    }

    #[test]
    fn a_state_is_not_sent() {
        let append = MemberCommand::Append {
            seq: seq(1),
            state: [1].into(),
            n: 1,
        };
        assert!(write_message(&Message::Command(append.into())).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_or_come_back(
            kind in 0u8..5,
            n in 0u32..200,
            mut body in proptest::collection::vec(any::<u8>(), 0..200),
            code in 0u8..9,
        ) {
            if let Some(first) = body.first_mut() {
                *first = code;
            }
            let mut bytes = Vec::new();
            super::head(&mut bytes, kind, n, 0, 0);
            bytes.extend(body);
            if let Ok(message) = read(&bytes) {
                prop_assert_eq!(write_message(&message).unwrap(), bytes);
            }
        }
    }
}
