//! The protocol by hand: one side at a time, event by event.

use super::*;
use crate::wire::{Dtype, StageTime};

const LIMITS: Limits = Limits {
    ring: 5,
    n_stages: 2,
    n_batch: 8,
    n_seqs: 4,
    n_ctx: 64,
    d_row: 1,
    dtype: Dtype::F32,
};

const TIMING: Timing = Timing {
    lap: Duration::from_millis(10),
    row: Duration::from_millis(1),
    slack: Duration::from_millis(50),
    fence: Duration::from_millis(100),
    ping: None,
    orphan: Duration::from_secs(60),
};

fn ms(n: u64) -> Time {
    Duration::from_millis(n)
}

fn run(seq: u32, pos: u32, n: u16) -> Run {
    Run {
        seq,
        branch: 0,
        n,
        pos,
        is_wanted: true,
        is_checkpoint: false,
        is_audited: false,
    }
}

fn work(serial: u64, ops: &[Op], pos: u32) -> Work {
    Work {
        serial,
        ops: ops.to_vec(),
        runs: vec![run(0, pos, 1)],
        data: vec![0; 4],
    }
}

fn frame(kind: FrameKind, epoch: u32, batch: u32, stage: u16) -> Frame {
    LIMITS.bare(kind, epoch, batch, stage)
}

fn work_frame(epoch: u32, batch: u32, stage: u16) -> Frame {
    let mut frame = frame(FrameKind::Work, epoch, batch, stage);
    frame.header.until = 2;
    frame.runs = vec![run(0, batch, 1)];
    frame.data = vec![0; 4];
    frame.times = vec![StageTime::default(); usize::from(stage) - 1];
    frame
}

fn result(epoch: u32, batch: u32, pos: u32) -> Frame {
    let mut frame = frame(FrameKind::Result, epoch, batch, 2);
    frame.runs = vec![run(0, pos, 1)];
    frame.data = vec![0; 4];
    frame
}

/// Stage 1, fenced into an epoch.
fn node(epoch: u32) -> Node {
    let mut node = Node::new(LIMITS, TIMING, 1);
    let served = None;
    let fenced = NodeAction::Fenced(FenceAnswer { epoch, served });
    assert_eq!(node.on(ms(0), NodeEvent::Fence { epoch }), [fenced]);
    node
}

fn done() -> NodeEvent {
    NodeEvent::Computed(Outcome::Computed {
        runs: vec![run(0, 0, 1)],
        data: vec![0; 4],
        status: Status::Ok,
    })
}

/// The kinds of the frames that a stage sends, and their receivers.
fn sent(actions: &[NodeAction]) -> Vec<(FrameKind, Peer, Status)> {
    let frames = actions.iter().filter_map(|action| match action {
        NodeAction::Send { to, frame } => Some((frame.header.kind, *to, frame.header.status)),
        _ => None,
    });
    frames.collect()
}

fn computes(actions: &[NodeAction]) -> Option<u32> {
    actions.iter().find_map(|action| match action {
        NodeAction::Compute(frame) => Some(frame.header.batch),
        _ => None,
    })
}

const COORDINATOR: Peer = Peer::Coordinator;

#[test]
fn work_that_comes_before_its_catch_up_waits() {
    let mut node = node(1);
    let actions = node.on(ms(1), NodeEvent::Frame(work_frame(1, 2, 1)));
    assert!(actions.is_empty());
    let catch_up = frame(FrameKind::CatchUp, 1, CATCH_UP, 1);
    let actions = node.on(ms(2), NodeEvent::Frame(catch_up));
    assert_eq!(computes(&actions), Some(CATCH_UP));
    let actions = node.on(ms(3), done());
    assert_eq!(computes(&actions), Some(2));
    let actions = node.on(ms(4), done());
    let expected = [
        (FrameKind::Ack, COORDINATOR, Status::Ok),
        (FrameKind::Work, Peer::Stage(2), Status::Ok),
    ];
    assert_eq!(sent(&actions), expected);
}

#[test]
fn a_gap_is_a_nack_and_the_epoch_is_over() {
    let mut node = node(1);
    let nack = [(FrameKind::Nack, COORDINATOR, Status::Ok)];
    let actions = node.on(ms(1), NodeEvent::Frame(work_frame(1, 3, 1)));
    assert_eq!(sent(&actions), nack);
    for frame in [work_frame(1, 2, 1), frame(FrameKind::CatchUp, 1, 1, 1)] {
        assert!(node.on(ms(2), NodeEvent::Frame(frame)).is_empty());
    }
    assert_eq!((node.counts().n_refused, node.counts().n_stale), (1, 2));
    // A stage that began anew has no epoch: its nack is of that of the frame, which counts.
    let mut other = Node::new(LIMITS, TIMING, 1);
    let actions = other.on(ms(1), NodeEvent::Frame(work_frame(7, 2, 1)));
    let nack = frame(FrameKind::Nack, 7, 2, 1);
    let to = COORDINATOR;
    assert_eq!(actions, [NodeAction::Send { to, frame: nack }]);
}

#[test]
fn frames_beyond_the_credit_are_refused() {
    let mut node = node(1);
    for batch in [2, 3] {
        let actions = node.on(ms(1), NodeEvent::Frame(work_frame(1, batch, 1)));
        assert!(actions.is_empty());
    }
    let actions = node.on(ms(1), NodeEvent::Frame(work_frame(1, 4, 1)));
    let refused = [(FrameKind::Nack, COORDINATOR, Status::Refused)];
    assert_eq!(sent(&actions), refused);
}

#[test]
fn a_stage_without_credit_keeps_its_batch_and_computes_no_other() {
    let mut node = node(1);
    node.on(ms(1), NodeEvent::Frame(frame(FrameKind::CatchUp, 1, 1, 1)));
    node.on(ms(1), done());
    for batch in 2..=5 {
        node.on(ms(1), NodeEvent::Frame(work_frame(1, batch, 1)));
        node.on(ms(2), done());
    }
    // 4 is computed and waits, 5 is not computed.
    assert_eq!(node.n_held(), 2);
    let ack = frame(FrameKind::Ack, 1, 2, 2);
    let actions = node.on(ms(3), NodeEvent::Frame(ack));
    let passed = [(FrameKind::Work, Peer::Stage(2), Status::Ok)];
    assert_eq!(
        (sent(&actions), computes(&actions)),
        (passed.to_vec(), Some(5))
    );
}

#[test]
fn a_fence_is_answered_behind_the_computation_and_its_result_stays() {
    let mut node = node(1);
    node.on(ms(1), NodeEvent::Frame(frame(FrameKind::CatchUp, 1, 1, 1)));
    node.on(ms(1), done());
    node.on(ms(1), NodeEvent::Frame(work_frame(1, 2, 1)));
    assert!(node.on(ms(2), NodeEvent::Fence { epoch: 2 }).is_empty());
    let epoch = 2;
    let served = Some((1, 2));
    let fenced = NodeAction::Fenced(FenceAnswer { epoch, served });
    assert_eq!(node.on(ms(3), done()), [fenced]);
    let actions = node.on(ms(4), NodeEvent::Frame(work_frame(1, 3, 1)));
    assert!(actions.is_empty() && node.counts().n_stale == 1);
}

#[test]
fn a_stage_that_hears_nothing_drops_its_state() {
    let mut node = node(1);
    node.on(ms(1), NodeEvent::Frame(frame(FrameKind::CatchUp, 1, 1, 1)));
    node.on(ms(1), done());
    assert_eq!(node.next_wake(), Some(ms(60_001)));
    node.on(ms(1000), NodeEvent::Frame(frame(FrameKind::Ping, 1, 1, 1)));
    assert!(node.on(ms(60_001), NodeEvent::Tick).is_empty());
    let actions = node.on(ms(61_000), NodeEvent::Tick);
    assert_eq!(actions, [NodeAction::DropState]);
    let epoch = 2;
    let served = None;
    let fenced = NodeAction::Fenced(FenceAnswer { epoch, served });
    assert_eq!(node.on(ms(61_001), NodeEvent::Fence { epoch }), [fenced]);
}

/// Answers the fence of the current epoch for both stages; what follows.
fn answer(c: &mut Coordinator, now: Time, served: [Option<(u32, u32)>; 2]) -> Vec<Action> {
    let epoch = c.epoch();
    let mut actions = Vec::new();
    for (stage, served) in (1..).zip(served) {
        let answer = FenceAnswer { epoch, served };
        actions.extend(c.on(now, Event::Fenced { stage, answer }));
    }
    actions
}

/// Epochs, numbers and operations of the frames of a kind that are sent to a stage.
fn frames(actions: &[Action], kind: FrameKind, to: u16) -> Vec<(u32, u32, Vec<Op>)> {
    let frames = actions.iter().filter_map(|action| match action {
        Action::Send { stage, frame } if *stage == to && frame.header.kind == kind => {
            let h = &frame.header;
            Some((h.epoch, h.batch, frame.ops.clone()))
        }
        _ => None,
    });
    frames.collect()
}

const NEW: Op = Op::New { seq: 0 };
const FORK: Op = Op::Fork { from: 0, to: 1 };
const BACK: Op = Op::Truncate { seq: 0, len: 0 };

/// A coordinator that serves, with two batches on their way.
fn serving() -> Coordinator {
    let mut c = Coordinator::new(LIMITS, TIMING);
    let fences = c.on(ms(0), Event::Submit(work(1, &[NEW], 0)));
    assert_eq!(fences.len(), 2);
    let actions = answer(&mut c, ms(1), [None, None]);
    assert_eq!(
        frames(&actions, FrameKind::CatchUp, 2),
        [(1, 1, vec![NEW, BACK])]
    );
    assert_eq!(frames(&actions, FrameKind::Work, 1), [(1, 2, vec![])]);
    let actions = c.on(ms(2), Event::Submit(work(2, &[FORK], 1)));
    assert_eq!(frames(&actions, FrameKind::Work, 1), [(1, 3, vec![FORK])]);
    c
}

#[test]
fn a_late_batch_is_a_fence_and_each_stage_gets_what_it_lacks() {
    let mut c = serving();
    assert!(c.on(ms(50), Event::Tick).is_empty());
    let wake = c.next_wake().unwrap();
    let fences = c.on(wake, Event::Tick);
    assert!(matches!(
        fences[..],
        [Action::Fence { stage: 1, epoch: 2 }, Action::Fence { .. }]
    ));
    // Stage 1 has computed both, stage 2 the first.
    let actions = answer(&mut c, wake, [Some((1, 3)), Some((1, 2))]);
    assert_eq!(
        frames(&actions, FrameKind::CatchUp, 1),
        [(2, 1, vec![BACK])]
    );
    assert_eq!(
        frames(&actions, FrameKind::CatchUp, 2),
        [(2, 1, vec![FORK, BACK])]
    );
    let again = [(2, 2, vec![]), (2, 3, vec![])];
    assert_eq!(frames(&actions, FrameKind::Work, 1), again);
    assert!(c.on(wake, Event::Frame(result(1, 2, 0))).is_empty() && c.counts().n_stale == 1);
    let actions = c.on(wake, Event::Frame(result(2, 2, 0)));
    assert!(matches!(actions[..], [Action::Result { serial: 1, .. }]));
    // A result is missing.
    let actions = c.on(wake, Event::Frame(result(2, 4, 2)));
    assert!(matches!(actions[..], [Action::Fence { epoch: 3, .. }, _]));
}

#[test]
fn a_stage_without_state_empties_all() {
    let mut c = serving();
    c.on(ms(3), Event::Down { stage: 2 });
    let actions = answer(&mut c, ms(4), [Some((1, 3)), None]);
    assert_eq!(frames(&actions, FrameKind::CatchUp, 1), [(2, 1, vec![])]);
    let resets = actions.iter().filter(|action| match action {
        Action::Send { frame, .. } => frame.header.flags == Header::RESET,
        _ => false,
    });
    assert_eq!(
        (resets.count(), actions.last()),
        (2, Some(&Action::Rebuild))
    );
    assert_eq!((c.n_pending(), c.counts().n_rebuilds), (0, 1));
    // The reset of stage 1 may be lost: it has an old state and must be emptied once more.
    c.on(ms(5), Event::Submit(work(3, &[NEW], 0)));
    c.on(ms(6), Event::Frame(frame(FrameKind::Nack, 2, 2, 1)));
    let actions = answer(&mut c, ms(7), [Some((1, 3)), Some((2, 1))]);
    let flags = actions.iter().filter_map(|action| match action {
        Action::Send { frame, .. } => Some(frame.header.flags),
        _ => None,
    });
    assert_eq!(flags.collect::<Vec<_>>()[..2], [Header::RESET, 0]);
    assert!(!actions.contains(&Action::Rebuild));
}

#[test]
fn three_fences_without_a_result_are_the_end_until_the_next_submission() {
    let mut c = serving();
    c.on(ms(3), Event::Down { stage: 1 });
    let mut actions = Vec::new();
    for i in 0..4 {
        actions = c.on(ms(200 * (i + 1)), Event::Tick);
    }
    assert!(actions.is_empty(), "it gave up before: {actions:?}");
    assert_eq!((c.n_pending(), c.next_wake()), (0, None));
    let actions = c.on(ms(2000), Event::Submit(work(3, &[], 0)));
    assert!(matches!(
        actions[..],
        [Action::Fence { .. }, Action::Fence { .. }]
    ));
    let actions = answer(&mut c, ms(2001), [Some((1, 3)), Some((1, 2))]);
    assert_eq!(actions.last(), Some(&Action::Rebuild));
}

#[test]
fn results_of_other_rows_are_not_accepted() {
    let mut c = serving();
    let actions = c.on(ms(3), Event::Frame(result(1, 2, 7)));
    assert!(matches!(actions[..], [Action::Fence { .. }, _]));
    let mut c = serving();
    let mut none = result(1, 2, 0);
    none.runs.clear();
    let actions = c.on(ms(3), Event::Frame(none));
    assert!(matches!(actions[..], [Action::Fence { .. }, _]));
}

#[test]
fn a_silent_link_is_a_fence() {
    let ping = Some(ms(10));
    let mut c = Coordinator::new(
        LIMITS,
        Timing {
            ping,
            lap: ms(10_000),
            ..TIMING
        },
    );
    c.on(ms(0), Event::Submit(work(1, &[NEW], 0)));
    answer(&mut c, ms(1), [None, None]);
    let mut fenced_at = None;
    for i in 1..20 {
        let actions = c.on(ms(10 * i), Event::Tick);
        c.on(ms(10 * i), Event::Frame(frame(FrameKind::Pong, 1, 1, 1)));
        let is_fence = |action: &Action| matches!(action, Action::Fence { .. });
        if actions.iter().any(is_fence) {
            fenced_at = fenced_at.or(Some(i));
        }
    }
    assert_eq!(fenced_at, Some(5), "four pings of stage 2 had no answer");
}

#[test]
fn a_stage_that_stays_silent_ends_the_repair_unless_it_was_never_there() {
    let timing = Timing {
        ping: Some(ms(10)),
        lap: ms(10_000),
        ..TIMING
    };
    let given_up_at = |was_there: bool| {
        let mut c = Coordinator::new(LIMITS, timing);
        c.on(ms(0), Event::Submit(work(1, &[NEW], 0)));
        if was_there {
            answer(&mut c, ms(1), [None, None]);
        }
        (1..40).find(|i| {
            let actions = c.on(ms(10 * i), Event::Tick);
            c.on(ms(10 * i), Event::Frame(frame(FrameKind::Pong, 1, 1, 1)));
            actions.iter().any(|a| matches!(a, Action::GiveUp(_)))
        })
    };
    assert_eq!(given_up_at(true), Some(13), "twelve pings had no answer");
    assert_eq!(given_up_at(false), Some(30), "three fences had none");
}
