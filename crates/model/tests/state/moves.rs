//! Keys and values that stand at other positions of another sequence.

use atta_model::{Error, Executor, ExecutorSize, Share};

use super::{
    chooses_positions, first_layer, learns_positions, narrow, norms_rotated, shifts, sparse,
    support::{self, append, bits, cpu_with, golden, goldens},
    windowed, without_recurrence,
};

#[test]
fn positions_that_were_moved_are_in_the_first_layer_as_if_they_were_computed() {
    for g in without_recurrence().filter(shifts) {
        let model = g.model();
        let ids: Vec<u32> = g.tokens.iter().cycle().take(128).copied().collect();
        for (n, moved) in [(4, 20..72), (51, 9..44)] {
            let part = Some(Share::of_layers(model.spec(), 0..1));
            let mut cpu = cpu_with(
                &model,
                1,
                ExecutorSize {
                    part,
                    ..narrow(128, 1, 3)
                },
            );
            let [from, to, fresh] = [(); 3].map(|()| cpu.new_seq().unwrap());
            first_layer(&mut cpu, from, &ids[..moved.end]);
            let front = &ids[ids.len() - n..];
            first_layer(&mut cpu, to, front);
            cpu.append_moved(from, moved.clone(), to).unwrap();
            assert_eq!(cpu.seqs().len(to).unwrap(), n + moved.len());
            let got = first_layer(&mut cpu, to, &ids[..1]);
            first_layer(&mut cpu, fresh, &[front, &ids[moved.clone()]].concat());
            let expected = first_layer(&mut cpu, fresh, &ids[..1]);
            let error = support::nmse(&got, &expected);
            assert!(error < 1e-9, "{} {n} {moved:?}: {error}", g.name);
        }
    }
}

#[test]
fn a_move_takes_nothing_from_the_sequence_that_has_the_positions() {
    for g in [golden("llama-plain")].into_iter().chain(windowed()) {
        let model = g.model();
        let n_vocab = model.spec().n_vocab;
        let ids: Vec<u32> = g.tokens.iter().cycle().take(128).copied().collect();
        for n in [3, 60, 64] {
            let mut cpu = cpu_with(&model, 1, narrow(128, 8, 3));
            let alone = cpu.new_seq().unwrap();
            let expected = append(&mut cpu, alone, &ids, 8);
            let from = cpu.new_seq().unwrap();
            append(&mut cpu, from, &ids[..120], 8);
            let to = cpu.new_seq().unwrap();
            append(&mut cpu, to, &ids[..n], 8);
            cpu.append_moved(from, n.max(60)..120, to).unwrap();
            let ending = append(&mut cpu, to, &ids[120..], 8);
            let got = append(&mut cpu, from, &ids[120..], 8);
            let expected = bits(&expected[120 * n_vocab..]);
            assert!(bits(&got) == expected, "{} {n}", g.name);
            // Positions that have not moved are exact.
            assert_eq!(bits(&ending) == expected, n >= 60, "{} {n}", g.name);
        }
    }
}

#[test]
fn positions_that_stay_share_their_blocks() {
    let mut cpu = cpu_with(&golden("llama-plain").model(), 1, narrow(128, 8, 2));
    let [from, to] = [(); 2].map(|()| cpu.new_seq().unwrap());
    append(&mut cpu, from, &[1; 128], 8);
    append(&mut cpu, to, &[1; 40], 8);
    let (n_before, _) = cpu.seqs().n_positions();
    cpu.append_moved(from, 40..120, to).unwrap();
    assert_eq!(cpu.seqs().n_positions().0, n_before);
    append(&mut cpu, to, &[1; 8], 8);
    assert_eq!(
        cpu.seqs().n_positions().0,
        n_before + 32,
        "the last block is its own"
    );
}

#[test]
fn moves_that_make_no_sense_change_nothing() {
    for g in [golden("llama-plain")].into_iter().chain(windowed()) {
        let mut cpu = cpu_with(&g.model(), 1, narrow(128, 8, 2));
        let [from, to] = [(); 2].map(|()| cpu.new_seq().unwrap());
        append(&mut cpu, from, &[1; 100], 8);
        append(&mut cpu, to, &[1; 40], 8);
        for (range, seq) in [(0..101, to), (50..60, from)] {
            let moved = cpu.append_moved(from, range, seq);
            assert!(matches!(moved, Err(Error::State(_))), "{}", g.name);
        }
        let moved = cpu.append_moved(from, 0..100, to);
        assert!(
            matches!(moved, Err(Error::ContextFull { .. })),
            "{}",
            g.name
        );
        let lens = [from, to].map(|seq| cpu.seqs().len(seq).unwrap());
        assert_eq!(lens, [100, 40]);
    }
}

#[test]
fn models_whose_keys_cannot_be_moved_say_so() {
    for cannot in [learns_positions, norms_rotated, chooses_positions] {
        let g = [sparse()].into_iter().chain(goldens()).find(cannot);
        let mut cpu = cpu_with(&g.unwrap().model(), 1, narrow(64, 64, 2));
        let [from, to] = [(); 2].map(|()| cpu.new_seq().unwrap());
        append(&mut cpu, from, &[1; 20], 64);
        assert!(matches!(cpu.check_moving(), Err(Error::NoMove(_))));
        let moved = cpu.append_moved(from, 0..20, to);
        assert!(matches!(moved, Err(Error::NoMove(_))));
    }
}
