//! Frames that come back as they were, and bytes that are none.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    ring: 0x1234_5678_9abc_def0,
    n_stages: 5,
    n_batch: 24,
    n_seqs: 6,
    n_ctx: 200,
    d_row: 64,
    dtype: Dtype::F32,
};

fn any_op() -> impl Strategy<Value = Op> {
    let seq = || 0..LIMITS.n_seqs;
    let n = || 0..LIMITS.n_ctx;
    let key = any::<StateKey>();
    (0..9, seq(), seq(), n(), (key, any::<u64>())).prop_map(|(kind, seq, to, n, (key, id))| {
        match kind {
            0 => Op::New { seq },
            1 => Op::Fork { from: seq, to },
            2 => Op::Truncate { seq, len: n },
            3 => Op::Shift {
                seq,
                from: n / 2,
                len: n - n / 2,
            },
            4 => Op::Drop { seq },
            5 => Op::Save {
                seq,
                first: n / 3,
                n: n - n / 3,
                key,
            },
            6 => Op::Load {
                seq,
                first: n / 3,
                n: n - n / 3,
                key,
            },
            7 => Op::Export {
                seq,
                first: n / 2,
                n: n - n / 2,
                id,
            },
            _ => Op::Append {
                seq,
                first: n / 2,
                n: n - n / 2,
                id,
            },
        }
    })
}

fn any_run() -> impl Strategy<Value = Run> {
    let fields = (0..LIMITS.n_seqs, any::<u16>(), 1..5_u16, 0..100_u32);
    (fields, any::<[bool; 3]>()).prop_map(
        |((seq, branch, n, pos), [is_wanted, is_checkpoint, is_audited])| Run {
            seq,
            branch,
            n,
            pos,
            is_wanted,
            is_checkpoint,
            is_audited,
        },
    )
}

fn any_header(kind: FrameKind) -> impl Strategy<Value = Header> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    let stage = 1..=LIMITS.n_stages;
    let status = prop::sample::select(Status::ALL);
    (numbers, stage, status, any::<u16>()).prop_map(move |(numbers, stage, status, small)| {
        let (epoch, batch, acked, time) = numbers;
        let has_rows = matches!(kind, FrameKind::Work | FrameKind::Result);
        Header {
            ring: LIMITS.ring,
            epoch,
            batch,
            stage,
            until: if has_rows { LIMITS.n_stages } else { 0 },
            acked,
            credit: small % 5,
            status,
            compute_us: time,
            queued_us: !time,
            d_row: if has_rows { LIMITS.d_row } else { 0 },
            deadline_10ms: small,
            ..Header::new(kind)
        }
    })
}

/// Rows and times of work and results, up to 20 rows.
fn any_rows(header: Header) -> impl Strategy<Value = Frame> {
    let is_work = header.kind == FrameKind::Work;
    let ops = prop::collection::vec(any_op(), 0..if is_work { 9 } else { 1 });
    let runs = prop::collection::vec(any_run(), 0..5);
    (ops, runs, any::<u8>()).prop_map(move |(ops, runs, fill)| {
        let n_times = match header.kind {
            FrameKind::Work => header.stage - 1,
            _ => LIMITS.n_stages,
        };
        let mut frame = Frame {
            ops,
            runs,
            times: vec![StageTime::default(); usize::from(n_times)],
            ..Frame::bare(header.clone())
        };
        let n = 4 * usize::from(LIMITS.d_row) * frame.n_rows();
        frame.data = (0..n).map(|i| fill.wrapping_add(i as u8)).collect();
        frame
    })
}

fn any_frame() -> impl Strategy<Value = Frame> {
    prop::sample::select(FrameKind::ALL).prop_flat_map(|kind| {
        any_header(kind).prop_flat_map(move |header| match kind {
            FrameKind::Work | FrameKind::Result => any_rows(header).boxed(),
            FrameKind::CatchUp => prop::collection::vec(any_op(), 0..40)
                .prop_map(move |ops| Frame {
                    ops,
                    ..Frame::bare(header.clone())
                })
                .boxed(),
            FrameKind::Journal | FrameKind::Part => prop::collection::vec(any::<u8>(), 0..99)
                .prop_map(move |data| Frame {
                    piece: Some(Piece {
                        id: 7,
                        offset: 1 << 40,
                        len: data.len() as u32,
                        seq: 5,
                        first: 100,
                        n: 100,
                    }),
                    data,
                    ..Frame::bare(header.clone())
                })
                .boxed(),
            _ => Just(Frame::bare(header)).boxed(),
        })
    })
}

fn bytes_of(frame: &mut Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    bytes
}

/// A work frame of three rows for stage 2.
fn work() -> Frame {
    let header = Header {
        ring: LIMITS.ring,
        epoch: 3,
        batch: 9,
        stage: 2,
        until: 5,
        d_row: 64,
        ..Header::new(FrameKind::Work)
    };
    let run = Run {
        seq: 1,
        branch: 0,
        n: 3,
        pos: 17,
        is_wanted: true,
        is_checkpoint: false,
        is_audited: false,
    };
    Frame {
        ops: vec![Op::New { seq: 1 }],
        runs: vec![run],
        data: vec![1; 3 * 256],
        times: vec![StageTime::default()],
        ..Frame::bare(header)
    }
}

proptest! {
    #[test]
    fn a_frame_comes_back_as_it_was(mut frame in any_frame()) {
        let mut bytes = bytes_of(&mut frame);
        prop_assert_eq!(bytes.len(), frame.n_bytes());
        prop_assert_eq!(Frame::parse(&bytes, &LIMITS), Ok(frame));
        bytes.push(0);
        let is_length = matches!(Frame::parse(&bytes, &LIMITS), Err(WireError::Length { .. }));
        prop_assert!(is_length);
        bytes.truncate(bytes.len() - 2);
        prop_assert!(Frame::parse(&bytes, &LIMITS).is_err());
    }

    #[test]
    fn a_changed_bit_is_found(
        mut frame in any_frame(), at in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let mut bytes = bytes_of(&mut frame);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Frame::parse(&bytes, &LIMITS).is_err());
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Frame::parse(&bytes, &LIMITS).is_err());
    }

    /// Headers with a right checksum and any counts: what they announce is within the plan.
    #[test]
    fn no_header_announces_more_than_the_plan_allows(
        kind in prop::sample::select(FrameKind::ALL),
        counts in any::<(u16, u16, u32, u32)>(),
        fits in any::<[bool; 4]>(),
    ) {
        let (n_ops, n_runs, n_rows, data_bytes) = counts;
        let small = |n: u32, fits: bool| if fits { n % 300 } else { n };
        let header = Header {
            ring: LIMITS.ring,
            stage: 1,
            until: if matches!(kind, FrameKind::Work | FrameKind::Result) { 5 } else { 0 },
            n_ops: small(n_ops.into(), fits[0]) as u16,
            n_runs: small(n_runs.into(), fits[1]) as u16,
            n_rows: small(n_rows, fits[2]),
            data_bytes: match fits[3] {
                true => small(n_rows, fits[2]).saturating_mul(256),
                false => data_bytes,
            },
            d_row: 64,
            ..Header::new(kind)
        };
        if let Ok(n) = LIMITS.body_bytes(&header) {
            prop_assert!(n <= 512 << 10, "{n} bytes of {header:?}");
        }
    }
}

#[test]
fn fields_lie_where_the_document_says() {
    let bytes = bytes_of(&mut work());
    assert_eq!(&bytes[..8], b"ATR1\x02\x01\x00\x00");
    assert_eq!(bytes[8..16], LIMITS.ring.to_le_bytes());
    assert_eq!(bytes[16..28], [3, 0, 0, 0, 9, 0, 0, 0, 2, 0, 5, 0]);
    assert_eq!(bytes[28..40], [1, 0, 1, 0, 3, 0, 0, 0, 0, 3, 0, 0]);
    assert_eq!(bytes[56..58], [64, 0]);
    assert_eq!(bytes[64..72], [1, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(
        bytes[112..128],
        [1, 0, 0, 0, 0, 0, 3, 0, 17, 0, 0, 0, 1, 0, 0, 0]
    );
    assert_eq!(bytes.len(), 64 + 48 + 16 + 768 + 20 + 4);
}

/// What makes a frame wrong.
type Change<'a> = &'a dyn Fn(&mut Frame);

#[test]
fn what_the_plan_excludes_is_named() {
    let refused = |change: Change<'_>| {
        let mut frame = work();
        change(&mut frame);
        let error = Frame::parse(&bytes_of(&mut frame), &LIMITS).unwrap_err();
        error.to_string()
    };
    let cases: [(Change<'_>, &str); 15] = [
        (&|f| f.header.ring = 1, "ring is 1"),
        (&|f| f.header.stage = 0, "stage is 0"),
        (&|f| f.header.stage = 6, "stage is 6"),
        (&|f| f.header.until = 1, "until is 1"),
        (&|f| f.header.flags = 1, "an unknown flag is 1"),
        (&|f| f.header.dtype = Dtype::F16, "dtype is 1"),
        (&|f| f.header.d_row = 32, "d_row is 32"),
        (
            &|f| f.ops = vec![Op::New { seq: 1 }; 257],
            "257 operations, at most 256",
        ),
        (&|f| f.ops[0] = Op::New { seq: 6 }, "sequence is 6"),
        (
            &|f| f.ops[0] = Op::Truncate { seq: 1, len: 201 },
            "201 positions, at most 200",
        ),
        (&|f| f.runs[0].n = 25, "25 rows, at most 24"),
        (&|f| f.runs[0].pos = 198, "201 positions, at most 200"),
        (&|f| f.data.truncate(767), "data bytes is 767"),
        (&|f| f.times.clear(), "bytes, expected"),
        (&|f| f.runs[0].seq = 9, "sequence is 9"),
    ];
    for (change, expected) in cases {
        let error = refused(change);
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    }
}

#[test]
fn headers_of_others_are_told_apart() {
    let bytes = bytes_of(&mut work());
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        Frame::parse(&bytes, &LIMITS).unwrap_err()
    };
    assert!(matches!(with(0, b'G'), WireError::Magic(_)));
    assert_eq!(
        with(4, 1),
        WireError::Version {
            got: 1,
            expected: 2
        }
    );
    for (at, field) in [(5, "kind"), (6, "dtype"), (46, "status")] {
        let error = with(at, 99);
        assert!(
            matches!(error, WireError::Field { field: f, .. } if f == field),
            "{error}"
        );
    }
    let mut damaged = bytes.clone();
    damaged[20] ^= 1;
    assert_eq!(
        Frame::parse(&damaged, &LIMITS),
        Err(WireError::Checksum("header"))
    );
}

#[test]
fn rows_travel_in_the_type_of_the_plan_or_in_f32() {
    for dtype in [Dtype::F16, Dtype::Int8] {
        let limits = LIMITS.with_dtype(dtype).unwrap();
        for (x, written) in [(0.5_f32, dtype), (1e9, Dtype::F32), (f32::NAN, Dtype::F32)] {
            let mut frame = work();
            frame.header.dtype = dtype;
            frame.data[..4].copy_from_slice(&x.to_le_bytes());
            let bytes = bytes_of(&mut frame);
            let row_bytes = written.row_bytes(LIMITS.d_row).unwrap();
            assert_eq!(frame.header.data_bytes as usize, frame.n_rows() * row_bytes);
            let read = Frame::parse(&bytes, &limits).unwrap();
            assert_eq!(read.header.dtype, written, "{x}");
            assert_eq!(read.data.len(), frame.data.len());
            if written == Dtype::F32 {
                assert_eq!(read.data, frame.data);
            }
        }
    }
    let odd = Limits {
        d_row: 33,
        ..LIMITS
    };
    assert!(odd.with_dtype(Dtype::Int8).is_err());
}

#[test]
fn rows_of_int8_are_whole_blocks() {
    assert_eq!(Dtype::Int8.row_bytes(64), Some(68));
    assert_eq!(Dtype::Int8.row_bytes(65), None);
    assert_eq!(
        (Dtype::F32.row_bytes(5), Dtype::F16.row_bytes(5)),
        (Some(20), Some(10))
    );
}
