//! Segments of a journal: what holds behind changes of texts.

use super::*;

const N_LAYERS: usize = 3;

fn journal() -> Journal {
    let options = JournalOptions {
        dir: std::env::temp_dir(),
        budget_bytes: 1 << 20,
        segment_len: 32,
        is_continuous: true,
    };
    Journal::new(&options, N_LAYERS)
}

/// Saves the next positions of a sequence; the state of each layer is its number and `mark`.
fn save(journal: &mut Journal, seq: u32, len: usize, mark: u8) {
    let Op::Export { id, .. } = journal.save(seq, len) else {
        unreachable!()
    };
    let states = [[0, mark], [1, mark], [2, mark]];
    let of = |l: usize| std::iter::once((l, &states[l][..]));
    journal.take(id, &pieces::join(of(1).chain(of(2))));
    journal.take(id, &pieces::join(of(0)));
}

fn layers(journal: &mut Journal, seq: u32, at: usize) -> Option<(usize, Vec<u8>)> {
    let read = journal.read(seq, at)?;
    Some((read.n, read.of(1..2).unwrap()))
}

fn state(mark: u8) -> Vec<u8> {
    pieces::join(std::iter::once((1, &[1, mark][..])))
}

#[test]
fn a_segment_is_kept_when_all_layers_have_come() {
    let mut journal = journal();
    let Op::Export { id, first, n, .. } = journal.save(5, 40) else {
        unreachable!()
    };
    assert_eq!((first, n), (0, 32));
    journal.take(id, &pieces::join((0..2).map(|l| (l, &[7][..]))));
    assert_eq!(journal.n_pending(), 1);
    assert!(journal.read(5, 0).is_none());
    journal.take(id, &pieces::join(std::iter::once((2, &[7][..]))));
    assert_eq!(journal.n_pending(), 0);
    assert_eq!(journal.read(5, 0).map(|read| read.n), Some(32));
    assert_eq!(journal.end(5), 32);
}

#[test]
fn torn_foreign_and_doubled_states_are_dropped() {
    let mut journal = journal();
    for bytes in [
        vec![1, 2, 3],
        pieces::join(std::iter::once((9, &[7][..]))),
        pieces::join([(1, &[7][..]), (1, &[7][..])].into_iter()),
    ] {
        let Op::Export { id, .. } = journal.save(0, 8) else {
            unreachable!()
        };
        journal.take(id, &bytes);
        assert_eq!(journal.n_pending(), 0);
        assert_eq!(journal.end(0), 0);
        journal.take(id + 1, &state(1));
    }
    assert_eq!(journal.end(0), 0);
}

#[test]
fn a_text_that_is_cut_keeps_what_is_before_and_forks_keep_theirs() {
    let mut journal = journal();
    save(&mut journal, 0, 32, 1);
    save(&mut journal, 0, 50, 2);
    journal.fork(0, 1);
    journal.truncate(0, 40);
    assert_eq!(layers(&mut journal, 0, 32), Some((8, state(2))));
    assert_eq!(layers(&mut journal, 1, 32), Some((18, state(2))));
    save(&mut journal, 0, 60, 3);
    assert_eq!(layers(&mut journal, 0, 40), Some((20, state(3))));
    assert_eq!(journal.next_start(0, 33), Some(40));
    journal.truncate(0, 0);
    assert_eq!(layers(&mut journal, 0, 0), None);
    assert_eq!(layers(&mut journal, 1, 0), Some((32, state(1))));
}

#[test]
fn segments_on_their_way_end_with_a_change_behind_which_they_are() {
    let mut journal = journal();
    let Op::Export { id, .. } = journal.save(0, 20) else {
        unreachable!()
    };
    journal.truncate(0, 19);
    journal.take(id, &pieces::join((0..3).map(|l| (l, &[7][..]))));
    assert_eq!(journal.end(0), 0);
    save(&mut journal, 0, 19, 4);
    journal.cancel_all();
    assert_eq!(layers(&mut journal, 0, 0), Some((19, state(4))));
    journal.clear();
    assert_eq!(layers(&mut journal, 0, 0), None);
}

#[test]
fn a_segment_that_does_not_fit_is_not_tried_again_until_one_is_freed() {
    let options = JournalOptions {
        dir: std::env::temp_dir(),
        budget_bytes: 10,
        segment_len: 32,
        is_continuous: true,
    };
    let mut journal = Journal::new(&options, N_LAYERS);
    save(&mut journal, 0, 32, 1);
    save(&mut journal, 1, 32, 2);
    assert!(!journal.has_room());
    assert_eq!((journal.end(0), journal.end(1)), (32, 0));
    journal.truncate(0, 0);
    assert!(journal.has_room());
    save(&mut journal, 1, 32, 3);
    assert_eq!(layers(&mut journal, 1, 0), Some((32, state(3))));
}

#[test]
fn pieces_join_to_what_was_split() {
    let limits = crate::wire::Limits {
        ring: 1,
        n_stages: 2,
        n_batch: 4,
        n_seqs: 2,
        n_ctx: 64,
        d_row: 4,
        dtype: crate::wire::Dtype::F32,
    };
    for n_bytes in [0, 5, crate::wire::MAX_JOURNAL_BYTES, 600_000] {
        let saved = SavedState {
            id: 9,
            seq: 1,
            first: 3,
            n: 4,
            bytes: (0..n_bytes).map(|i| i as u8).collect(),
        };
        let mut frames = split(&saved, &limits, 7, 2);
        let mut joining = Joining::default();
        let last = frames.pop().unwrap();
        for frame in frames.iter().flat_map(|frame| [frame, frame]) {
            let piece = frame.piece.unwrap();
            assert_eq!(joining.take(2, &piece, &frame.data), Ok(None));
        }
        let piece = last.piece.unwrap();
        let whole = joining.take(2, &piece, &last.data);
        assert_eq!(whole, Ok(Some(saved.bytes)));
        let gap = crate::wire::Piece { offset: 1, ..piece };
        assert_eq!(joining.take(2, &gap, &[1]), Err(pieces::TornState));
    }
}
