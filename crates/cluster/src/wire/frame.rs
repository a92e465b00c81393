//! A whole frame: header, operations, runs, data, times.

use super::{
    Dtype, FrameKind, HEADER_BYTES, Header, MAX_CATCH_UP_OPS, MAX_JOURNAL_BYTES, MAX_OPS,
    MAX_PART_BYTES, OP_BYTES, Op, RUN_BYTES, Run, WireError, rows, u32_at, u64_at,
};

/// Bytes of the times of a stage.
const TIME_BYTES: usize = 20;

/// Bytes in front of the payload of a journal or part frame.
const PIECE_BYTES: usize = 32;

const CHECKSUM_BYTES: usize = 4;

/// What the plan of a ring allows in its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of the ring.
    pub ring: u64,
    /// Stages.
    pub n_stages: u16,
    /// Rows per batch.
    pub n_batch: u32,
    /// Sequences.
    pub n_seqs: u32,
    /// Positions per sequence.
    pub n_ctx: u32,
    /// Numbers of a row.
    pub d_row: u16,
    /// Type of the numbers between machines. A frame with numbers that it lacks has f32.
    pub dtype: Dtype,
}

/// What a stage did for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTime {
    /// Computed, µs.
    pub compute_us: u32,
    /// Waited, µs.
    pub queued_us: u32,
    /// Bytes of the frame that it sent on.
    pub bytes_out: u32,
    /// [`Frame::audit_digest`] of the rows that came.
    pub digest: u64,
}

/// The head of the payload of a journal or part frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What the payload belongs to.
    pub id: u64,
    /// Its offset there.
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
    /// Sequence of a journal.
    pub seq: u32,
    /// First position of a journal.
    pub first: u32,
    /// Positions of a journal.
    pub n: u32,
}

/// A frame. The counts in its header follow from the other fields and are filled in when it is
/// written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Header.
    pub header: Header,
    /// Operations, before the rows.
    pub ops: Vec<Op>,
    /// Rows.
    pub runs: Vec<Run>,
    /// Head of the payload, of journal and part frames only.
    pub piece: Option<Piece>,
    /// `[n_rows, d_row]` of little-endian f32, of work and results, or the payload of a piece. It
    /// is written with the type that the header names.
    pub data: Vec<u8>,
    /// Of the stages behind the batch: in a result all, in work those before the receiver.
    pub times: Vec<StageTime>,
}

impl Limits {
    /// The same with rows of another type between machines.
    ///
    /// # Errors
    /// Rows that the type does not divide into blocks.
    pub fn with_dtype(self, dtype: Dtype) -> Result<Self, WireError> {
        match dtype.row_bytes(self.d_row) {
            Some(_) => Ok(Self { dtype, ..self }),
            None => Err(WireError::field("d_row", self.d_row, "blocks of 32")),
        }
    }

    /// Fails for a sequence that the plan does not have.
    pub(super) fn check_seq(&self, seq: u32) -> Result<(), WireError> {
        match seq < self.n_seqs {
            true => Ok(()),
            false => Err(WireError::field("sequence", seq, "one of the plan")),
        }
    }

    /// Bytes of the body that a header announces, each term within the plan.
    ///
    /// # Errors
    /// A count, a stage or a type that the plan or the kind of the frame excludes.
    pub fn body_bytes(&self, h: &Header) -> Result<usize, WireError> {
        self.check_place(h)?;
        self.check_counts(h)?;
        let n_times = self.n_times(h);
        let body = OP_BYTES * usize::from(h.n_ops)
            + RUN_BYTES * usize::from(h.n_runs)
            + h.data_bytes as usize
            + TIME_BYTES * n_times;
        Ok(match h.kind.is_bare() {
            true => 0,
            false => body + CHECKSUM_BYTES,
        })
    }

    /// Number of the times in a frame with this header.
    fn n_times(&self, h: &Header) -> usize {
        match h.kind {
            FrameKind::Result => usize::from(self.n_stages),
            FrameKind::Work => usize::from(h.stage.saturating_sub(1)),
            _ => 0,
        }
    }

    fn check_place(&self, h: &Header) -> Result<(), WireError> {
        if h.ring != self.ring {
            return Err(WireError::field("ring", h.ring, "that of the plan"));
        }
        if !(1..=self.n_stages).contains(&h.stage) {
            return Err(WireError::field("stage", h.stage, "one of the plan"));
        }
        let computes = matches!(h.kind, FrameKind::Work | FrameKind::Result);
        let until = if computes {
            h.stage..=self.n_stages
        } else {
            0..=0
        };
        if !until.contains(&h.until) {
            return Err(WireError::field("until", h.until, "a stage not before"));
        }
        let known = match h.kind {
            FrameKind::CatchUp => Header::RESET,
            _ => 0,
        };
        WireError::check_zero("an unknown flag", h.flags & !known)
    }

    fn check_counts(&self, h: &Header) -> Result<(), WireError> {
        let max_ops = match h.kind {
            FrameKind::Work => MAX_OPS,
            FrameKind::CatchUp => MAX_CATCH_UP_OPS,
            _ => 0,
        };
        WireError::check_max("operations", h.n_ops, max_ops as u64)?;
        let has_rows = h.kind.has_rows();
        let max_rows = if has_rows { self.n_batch } else { 0 };
        WireError::check_max("rows", h.n_rows, max_rows)?;
        WireError::check_max("runs", h.n_runs, h.n_rows)?;
        match h.kind {
            FrameKind::Journal => check_piece_bytes(h, MAX_JOURNAL_BYTES),
            FrameKind::Part => check_piece_bytes(h, MAX_PART_BYTES),
            _ if has_rows => self.check_rows(h),
            _ => WireError::check_zero("data bytes", h.data_bytes),
        }
    }

    fn check_rows(&self, h: &Header) -> Result<(), WireError> {
        if ![self.dtype, Dtype::F32].contains(&h.dtype) {
            return Err(WireError::field(
                "dtype",
                h.dtype as u8,
                "that of the plan, or 0",
            ));
        }
        if h.d_row != self.d_row {
            return Err(WireError::field("d_row", h.d_row, "that of the plan"));
        }
        let row_bytes = h.dtype.row_bytes(h.d_row);
        let row_bytes = row_bytes.ok_or(WireError::field("d_row", h.d_row, "blocks of 32"))?;
        match u64::from(h.n_rows) * row_bytes as u64 == u64::from(h.data_bytes) {
            true => Ok(()),
            false => Err(WireError::field(
                "data bytes",
                h.data_bytes,
                "rows times row bytes",
            )),
        }
    }
}

/// Fails for a journal or part frame without a head, or with too much behind it.
fn check_piece_bytes(h: &Header, max: usize) -> Result<(), WireError> {
    if (h.data_bytes as usize) < PIECE_BYTES {
        return Err(WireError::field("data bytes", h.data_bytes, "32 or more"));
    }
    let max = (PIECE_BYTES + max) as u64;
    WireError::check_max("data bytes", h.data_bytes, max)
}

impl Frame {
    /// A frame of a header alone.
    pub fn bare(header: Header) -> Self {
        Self {
            header,
            ops: Vec::new(),
            runs: Vec::new(),
            piece: None,
            data: Vec::new(),
            times: Vec::new(),
        }
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.runs.iter().map(|run| usize::from(run.n)).sum()
    }

    /// The rows of some runs, each `[d_row]`, in order.
    pub fn rows_of(&self, is_meant: impl Fn(&Run) -> bool) -> impl Iterator<Item = &[u8]> {
        rows_of(&self.runs, &self.data, is_meant)
    }

    /// A digest of the rows of audited runs; 0 if there are none.
    pub fn audit_digest(&self) -> u64 {
        digest_of(self.rows_of(|run| run.is_audited))
    }

    /// Bytes of the frame when written; with rows of fewer bits it has fewer.
    pub fn n_bytes(&self) -> usize {
        if self.header.kind.is_bare() {
            return HEADER_BYTES;
        }
        let piece = self.piece.map_or(0, |_| PIECE_BYTES);
        HEADER_BYTES
            + OP_BYTES * self.ops.len()
            + RUN_BYTES * self.runs.len()
            + piece
            + self.data.len()
            + TIME_BYTES * self.times.len()
            + CHECKSUM_BYTES
    }

    /// Its rows in the type that its header names, if that is not theirs. The header names f32 if
    /// the type lacks numbers for some.
    fn narrowed(&mut self) -> Option<Vec<u8>> {
        if !self.header.kind.has_rows() || self.header.dtype == Dtype::F32 {
            return None;
        }
        let data = rows::narrowed(&self.data, self.header.dtype);
        if data.is_none() {
            self.header.dtype = Dtype::F32;
        }
        data
    }

    /// Appends its bytes. The counts of its header are set from the other fields, and its type is
    /// f32 if its own lacks numbers.
    ///
    /// # Panics
    /// If it has more operations, rows or data than the header can count.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        const FITS: &str = "a frame is within its plan";
        let piece = self.piece.map_or(0, |_| PIECE_BYTES);
        self.header.n_ops = self.ops.len().try_into().expect(FITS);
        self.header.n_runs = self.runs.len().try_into().expect(FITS);
        self.header.n_rows = self.n_rows().try_into().expect(FITS);
        let narrowed = self.narrowed();
        let data = narrowed.as_deref().unwrap_or(&self.data);
        self.header.data_bytes = (piece + data.len()).try_into().expect(FITS);
        out.reserve(self.n_bytes());
        self.header.write(out);
        if self.header.kind.is_bare() {
            return;
        }
        let start = out.len();
        self.ops.iter().for_each(|op| op.write(out));
        self.runs.iter().for_each(|run| run.write(out));
        if let Some(piece) = &self.piece {
            piece.write(out);
        }
        out.extend_from_slice(data);
        for time in &self.times {
            let fields = [time.compute_us, time.queued_us, time.bytes_out];
            out.extend(fields.into_iter().flat_map(u32::to_le_bytes));
            out.extend(time.digest.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&out[start..]);
        out.extend(checksum.to_le_bytes());
    }

    /// Reads a frame that is all of `bytes`.
    ///
    /// # Errors
    /// Bytes that are no frame of this plan.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let short = WireError::Length {
            expected: HEADER_BYTES,
            got: bytes.len(),
        };
        let (head, body) = bytes.split_first_chunk().ok_or(short)?;
        let header = Header::parse(head)?;
        let n = limits.body_bytes(&header)?;
        if body.len() != n {
            return Err(WireError::Length {
                expected: HEADER_BYTES + n,
                got: bytes.len(),
            });
        }
        let frame = Self::bare(header);
        match body.split_last_chunk() {
            None => Ok(frame),
            Some((body, &checksum)) if crc32c::crc32c(body) == u32::from_le_bytes(checksum) => {
                frame.with_body(body, limits)
            }
            Some(_) => Err(WireError::Checksum("body")),
        }
    }

    /// Reads the body, whose length and checksum are right.
    fn with_body(mut self, body: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let h = &self.header;
        let (ops, rest) = body.split_at(OP_BYTES * usize::from(h.n_ops));
        let (runs, rest) = rest.split_at(RUN_BYTES * usize::from(h.n_runs));
        let (data, times) = rest.split_at(h.data_bytes as usize);
        let parse_op = |bytes| Op::parse(bytes, limits);
        self.ops = ops
            .chunks_exact(OP_BYTES)
            .map(parse_op)
            .collect::<Result<_, _>>()?;
        let parse_run = |bytes| Run::parse(bytes, limits);
        self.runs = runs
            .chunks_exact(RUN_BYTES)
            .map(parse_run)
            .collect::<Result<_, _>>()?;
        if self.n_rows() as u64 != u64::from(self.header.n_rows) {
            return Err(WireError::field(
                "rows of all runs",
                self.n_rows() as u64,
                "n_rows",
            ));
        }
        let time = |bytes: &[u8]| StageTime {
            compute_us: u32_at(bytes, 0),
            queued_us: u32_at(bytes, 4),
            bytes_out: u32_at(bytes, 8),
            digest: u64_at(bytes, 12),
        };
        self.times = times.chunks_exact(TIME_BYTES).map(time).collect();
        let is_piece = matches!(self.header.kind, FrameKind::Journal | FrameKind::Part);
        let data = if is_piece {
            let (head, payload) = data.split_at(PIECE_BYTES);
            self.piece = Some(Piece::parse(head, payload, limits)?);
            payload
        } else {
            data
        };
        self.data = match self.header.kind.has_rows() {
            true => rows::widened(data, self.header.dtype),
            false => data.to_vec(),
        };
        Ok(self)
    }
}

/// The rows of some of these runs, in order; `data` has all.
pub(crate) fn rows_of<'a>(
    runs: &'a [Run],
    data: &'a [u8],
    is_meant: impl Fn(&Run) -> bool,
) -> impl Iterator<Item = &'a [u8]> {
    let n_rows: usize = runs.iter().map(|run| usize::from(run.n)).sum();
    let rows = data.chunks_exact((data.len() / n_rows.max(1)).max(1));
    let is_meant = runs
        .iter()
        .flat_map(move |run| std::iter::repeat_n(is_meant(run), run.n.into()));
    rows.zip(is_meant)
        .filter_map(|(row, is_meant)| is_meant.then_some(row))
}

/// The first 8 bytes of BLAKE3 over some rows; 0 if there are none.
pub fn digest_of<'a>(rows: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return 0;
    }
    let mut hasher = blake3::Hasher::new();
    rows.for_each(|row| {
        hasher.update(row);
    });
    u64_at(hasher.finalize().as_bytes(), 0)
}

impl Piece {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(
            [self.id, self.offset]
                .into_iter()
                .flat_map(u64::to_le_bytes),
        );
        let fields = [self.len, self.seq, self.first, self.n];
        out.extend(fields.into_iter().flat_map(u32::to_le_bytes));
    }

    /// Reads the [`PIECE_BYTES`] bytes in front of a payload.
    fn parse(bytes: &[u8], payload: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let piece = Self {
            id: u64_at(bytes, 0),
            offset: u64_at(bytes, 8),
            len: u32_at(bytes, 16),
            seq: u32_at(bytes, 20),
            first: u32_at(bytes, 24),
            n: u32_at(bytes, 28),
        };
        if piece.len as usize != payload.len() {
            return Err(WireError::field(
                "length of a piece",
                piece.len,
                "that of its payload",
            ));
        }
        limits.check_seq(piece.seq)?;
        let end = u64::from(piece.first) + u64::from(piece.n);
        WireError::check_max("positions", end, limits.n_ctx)?;
        Ok(piece)
    }
}
