//! The state of sequences: shared, given back, taken elsewhere; and never wrong.

#[path = "state/moves.rs"]
mod moves;
mod support;

use std::ops::Range;

use atta_model::{
    Batch, Cpu, Error, Executor, ExecutorSize, KvType, Output, SeqId, Share, Want,
    spec::{Positions, QkNorm, Retention, StateKind},
};
use support::{
    Golden, append, bits, cpu, cpu_with, golden, goldens,
    hybrid::{hybrids, sparse},
    some_goldens,
};

/// Fewer where tests run by emulation.
const N_ACTS: usize = if cfg!(target_arch = "x86_64") {
    300
} else {
    60
};

const KINDS: [KvType; 3] = [
    KvType::F32,
    KvType::F16,
    KvType {
        n_edge_layers: 1,
        ..KvType::Q4
    },
];

/// Models whose sequences return to any position; of others see `recurrent.rs`.
fn without_recurrence() -> impl Iterator<Item = Golden> {
    let goldens = some_goldens().into_iter();
    let goldens = goldens.filter(|g| !g.model().spec().is_recurrent());
    goldens.chain([sparse()])
}

fn export(cpu: &Cpu, seq: SeqId, positions: Range<usize>) -> Vec<u8> {
    let mut state = Vec::new();
    cpu.export(seq, positions, &mut state).unwrap();
    state
}

/// A new sequence with a state.
fn import(cpu: &mut Cpu, state: &[u8], n: usize) -> Result<SeqId, Error> {
    let seq = cpu.new_seq()?;
    match cpu.append_state(seq, state, n) {
        Ok(()) => Ok(seq),
        Err(error) => {
            cpu.drop_seq(seq).unwrap();
            Err(error)
        }
    }
}

#[test]
fn an_exported_state_goes_on_elsewhere_in_whole_and_in_part() {
    for g in without_recurrence() {
        let model = g.model();
        for kv in KINDS {
            let mut here = cpu(&model, 1, kv);
            let seq = here.new_seq().unwrap();
            let ids: Vec<u32> = g.tokens.iter().cycle().take(50).copied().collect();
            let expected = append(&mut here, seq, &ids, 64);
            let states = [export(&here, seq, 0..33), export(&here, seq, 33..40)];
            for n in [33, 34, 37, 40] {
                let mut there = cpu(&model, 1, kv);
                let moved = import(&mut there, &states[0], 33).unwrap();
                there.append_state(moved, &states[1], n - 33).unwrap();
                assert_eq!(there.truncate(moved, n).unwrap(), n);
                let got = append(&mut there, moved, &ids[n..], 64);
                assert!(
                    bits(&got) == bits(&expected[n * model.spec().n_vocab..]),
                    "{} {kv:?} {n}",
                    g.name
                );
            }
        }
    }
}

/// An executor of some layers, the embedding before the first.
fn part(g: &Golden, layers: Range<usize>) -> Cpu {
    let share = Share {
        embed: layers.start == 0,
        layers,
        head: false,
    };
    let size = ExecutorSize {
        n_ctx: 128,
        n_batch: 64,
        part: Some(share),
        ..ExecutorSize::default()
    };
    cpu_with(&g.model(), 1, size)
}

#[test]
fn layers_that_are_cut_elsewhere_have_the_same_states() {
    for g in some_goldens().into_iter().chain([sparse()]) {
        let spec = g.model().spec().clone();
        let n = spec.layers.len();
        let cuts: Vec<usize> = (0..n)
            .filter(|&l| l == 0 || spec.may_cut_before(l))
            .collect();
        // All layers in one executor; apart, each with those that it cannot be cut from.
        let mut here = part(&g, 0..n);
        let seq = here.new_seq().unwrap();
        let mut batch = Batch::default();
        for (pos, &token) in g.tokens.iter().cycle().take(50).enumerate() {
            batch.push_token(seq, pos, token, Want::Nothing);
        }
        here.step(&batch, &mut Output::default()).unwrap();
        let ends = cuts[1..].iter().copied().chain([n]);
        let pieces: Vec<Range<usize>> = cuts.iter().copied().zip(ends).map(|(a, b)| a..b).collect();
        let mut states = Vec::new();
        for piece in &pieces {
            let mut bytes = Vec::new();
            here.export_layers(seq, piece.clone(), 0..50, &mut bytes)
                .unwrap();
            let mut apart = part(&g, piece.clone());
            let moved = apart.new_seq().unwrap();
            apart.append_layers(moved, &[&bytes], 50).unwrap();
            let mut again = Vec::new();
            apart.export(moved, 0..50, &mut again).unwrap();
            assert!(again == bytes, "{}: {piece:?}", g.name);
            states.push(bytes);
        }
        let mut there = part(&g, 0..n);
        let moved = there.new_seq().unwrap();
        let states: Vec<&[u8]> = states.iter().map(Vec::as_slice).collect();
        if states.len() > 1 {
            assert!(there.append_layers(moved, &states[1..], 50).is_err());
            assert!(there.append_layers(moved, &states[..1], 50).is_err());
            let swapped: Vec<&[u8]> = states.iter().rev().copied().collect();
            assert!(there.append_layers(moved, &swapped, 50).is_err());
            assert_eq!(there.seqs().len(moved).unwrap(), 0);
        }
        there.append_layers(moved, &states, 50).unwrap();
        assert!(
            export(&there, moved, 0..50) == export(&here, seq, 0..50),
            "{}",
            g.name
        );
    }
}

#[test]
fn a_damaged_state_is_refused_and_changes_nothing() {
    let g = golden("qwen2");
    let model = g.model();
    let mut here = cpu(&model, 1, KvType::F16);
    let seq = here.new_seq().unwrap();
    append(&mut here, seq, &g.tokens, 64);
    let state = export(&here, seq, 0..37);
    let mut there = cpu(&model, 1, KvType::F16);
    for cut in [0, 7, 15, 23, state.len() - 1] {
        assert!(
            matches!(import(&mut there, &state[..cut], 0), Err(Error::State(_))),
            "cut to {cut}"
        );
    }
    let header = 28 + 20 * model.spec().layers.len();
    for byte in 0..header {
        let mut bad = state.clone();
        bad[byte] ^= 1;
        assert!(
            import(&mut there, &bad, 37).is_err(),
            "byte {byte} of the header"
        );
    }
    assert!(
        import(&mut there, &state, 38).is_err(),
        "more positions than it has"
    );
    let later = export(&here, seq, 5..37);
    assert!(
        import(&mut there, &later, 1).is_err(),
        "it does not begin here"
    );
    assert!(
        here.export(seq, 30..g.tokens.len() + 1, &mut Vec::new())
            .is_err()
    );
    let mut f32s = cpu(&model, 1, KvType::F32);
    assert!(matches!(
        import(&mut f32s, &state, 37),
        Err(Error::State(_))
    ));
}

#[test]
fn codes_and_scales_that_attention_could_not_add_are_refused() {
    let g = golden("qwen2");
    let model = g.model();
    let mut here = cpu(&model, 1, KvType::F16);
    let seq = here.new_seq().unwrap();
    append(&mut here, seq, &g.tokens, 64);
    let state = export(&here, seq, 0..37);
    let mut there = cpu(&model, 1, KvType::F16);
    let d_head = model.spec().layers[0].attention().unwrap().d_head;
    let codes = 28 + 20 * model.spec().layers.len();
    let scales = codes + 37 * 2 * d_head;
    let last = state.len() - 4;
    for (at, bytes) in [
        (codes, &i16::MIN.to_le_bytes()[..]),
        (scales - 2, &i16::MIN.to_le_bytes()[..]),
        (scales, &f32::NAN.to_le_bytes()[..]),
        (last, &f32::INFINITY.to_le_bytes()[..]),
    ] {
        let mut bad = state.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        let result = import(&mut there, &bad, 37);
        assert!(matches!(result, Err(Error::State(_))), "byte {at}");
    }
    import(&mut there, &state, 37).unwrap();
}

#[test]
fn a_state_of_other_layers_is_refused() {
    let model = golden("llama-plain").model();
    let part = |layers| {
        cpu_with(
            &model,
            1,
            ExecutorSize {
                part: Some(Share::of_layers(model.spec(), layers)),
                n_ctx: 64,
                ..ExecutorSize::default()
            },
        )
    };
    let mut first = part(0..1);
    let mut second = part(1..2);
    let seq = first.new_seq().unwrap();
    let state = export(&first, seq, 0..0);
    assert!(matches!(
        import(&mut second, &state, 0),
        Err(Error::State(_))
    ));
    assert!(
        import(&mut first, &state, 0).is_err(),
        "it was made for one sequence"
    );
}

#[test]
fn a_state_whose_keys_were_turned_otherwise_is_refused() {
    for (name, takes_it) in [
        ("phi3-short", false),
        ("llama-dynamic-rope", false),
        ("llama-yarn", true),
    ] {
        let g = golden(name);
        let part = |n_ctx| {
            cpu_with(
                &g.model(),
                1,
                ExecutorSize {
                    n_ctx,
                    ..ExecutorSize::default()
                },
            )
        };
        let mut short = part(64);
        let mut long = part(8192);
        let seq = short.new_seq().unwrap();
        append(&mut short, seq, &g.tokens[..20], 20);
        let state = export(&short, seq, 0..20);
        assert_eq!(import(&mut long, &state, 20).is_ok(), takes_it, "{name}");
    }
}

#[test]
fn layers_that_share_keys_and_values_store_them_once() {
    let g = golden("gemma4");
    let model = g.model();
    let spec = model.spec();
    let bytes = spec.state_bytes(KvType::F32, 1);
    let shares = |l: usize| spec.layers[l].attention().unwrap().kv_layer().is_some();
    assert!((0..spec.layers.len()).all(|l| (bytes[l] == 0) == shares(l)));
    let mut cpu = cpu(&model, 1, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    append(&mut cpu, seq, &g.tokens[..10], 10);
    let [none, ten] = [0, 10].map(|n| export(&cpu, seq, 0..n).len() as u64);
    assert_eq!(ten - none, 10 * bytes.iter().sum::<u64>());
}

#[test]
fn filled_positions_are_the_same_however_they_are_added_and_a_text_goes_on_behind_them() {
    for g in goldens() {
        let model = g.model();
        let ids = &g.tokens[..4];
        for kv in KINDS {
            let behind = |parts: &[usize]| {
                let mut cpu = cpu(&model, 1, kv);
                let seq = cpu.new_seq().unwrap();
                parts.iter().for_each(|&n| cpu.fill(seq, n).unwrap());
                bits(&append(&mut cpu, seq, ids, 4))
            };
            let whole = behind(&[40]);
            assert!(whole == behind(&[0, 3, 30, 7]), "{} {kv:?}", g.name);
            // Recurrent states are zero, as before the first position.
            if model.spec().attentions().next().is_some() {
                let empty = behind(&[]);
                assert!(whole != empty, "{} {kv:?}: there is no content", g.name);
            }
            let finite = whole.iter().all(|&x| f32::from_bits(x).is_finite());
            assert!(finite, "{} {kv:?}", g.name);
        }
    }
}

#[test]
fn a_window_of_filled_positions_moves_on_and_a_full_context_is_not_filled() {
    for g in windowed() {
        let model = g.model();
        let mut all = cpu_with(&model, 1, narrow(600, 600, 1));
        let mut few = cpu_with(&model, 1, narrow(600, 1, 1));
        let results = [&mut all, &mut few].map(|cpu| {
            let seq = cpu.new_seq().unwrap();
            cpu.fill(seq, 590).unwrap();
            let full = cpu.fill(seq, 11);
            assert!(matches!(full, Err(Error::ContextFull { n_ctx: 600 })));
            assert_eq!(cpu.seqs().len(seq).unwrap(), 590);
            bits(&append(cpu, seq, &g.tokens[..4], 1))
        });
        assert!(results[0] == results[1], "{}", g.name);
    }
}

#[test]
fn an_encoder_has_no_positions_without_a_text() {
    let g = &support::encoders()[0];
    let mut cpu = cpu(&g.model(), 1, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    assert!(matches!(cpu.fill(seq, 1), Err(Error::NoFill)));
}

/// The tiny models that have layers with a window, and none with a recurrent state.
fn windowed() -> impl Iterator<Item = support::Golden> {
    let window = |l: &atta_model::spec::LayerSpec| {
        let is_windowed = |kind| matches!(kind, StateKind::Kv(Retention::Window(_)));
        l.state_kinds().any(is_windowed)
    };
    goldens().into_iter().filter(move |g| {
        let model = g.model();
        model.spec().layers.iter().any(window) && !model.spec().is_recurrent()
    })
}

fn narrow(n_ctx: usize, n_batch: usize, n_seqs: usize) -> ExecutorSize {
    ExecutorSize {
        n_ctx,
        n_seqs,
        n_batch,
        kv: KvType::F32,
        ..ExecutorSize::default()
    }
}

#[test]
fn layers_with_a_window_keep_what_it_needs_and_no_more() {
    assert!(windowed().count() >= 3);
    for g in windowed() {
        let model = g.model();
        let ids: Vec<u32> = g.tokens.iter().cycle().take(600).copied().collect();
        let mut all = cpu_with(&model, 1, narrow(600, 600, 1));
        let mut few = cpu_with(&model, 1, narrow(600, 1, 1));
        let a = all.new_seq().unwrap();
        let b = few.new_seq().unwrap();
        let expected = append(&mut all, a, &ids, 600);
        assert!(
            bits(&append(&mut few, b, &ids, 1)) == bits(&expected),
            "{}",
            g.name
        );
        let bytes = |n_batch| Cpu::executor_bytes(model.spec(), 1, &narrow(600, n_batch, 1)).state;
        assert!(bytes(1) < bytes(600), "{}", g.name);
    }
}

#[test]
fn what_a_window_gave_back_is_computed_again() {
    for g in windowed() {
        let model = g.model();
        let ids: Vec<u32> = g.tokens.iter().cycle().take(400).copied().collect();
        let mut cpu = cpu_with(&model, 1, narrow(400, 1, 2));
        let seq = cpu.new_seq().unwrap();
        let expected = append(&mut cpu, seq, &ids, 1);
        let fork = cpu.fork(seq).unwrap();
        let near = cpu.truncate(fork, 399).unwrap();
        assert_eq!(near, 399, "{}: a window reaches back by one", g.name);
        let far = cpu.truncate(seq, 200).unwrap();
        assert_eq!(far, 0, "{}", g.name);
        let got = append(&mut cpu, seq, &ids, 1);
        assert!(bits(&got) == bits(&expected), "{}", g.name);
        let got = append(&mut cpu, fork, &ids[399..], 1);
        assert!(
            bits(&got) == bits(&expected[399 * model.spec().n_vocab..]),
            "{}",
            g.name
        );
    }
}

#[test]
fn a_state_without_its_window_is_not_gone_on_from() {
    for g in windowed() {
        let model = g.model();
        let ids: Vec<u32> = g.tokens.iter().cycle().take(400).copied().collect();
        let mut here = cpu_with(&model, 1, narrow(400, 1, 1));
        let seq = here.new_seq().unwrap();
        let expected = append(&mut here, seq, &ids[..399], 1);
        let early = export(&here, seq, 0..200);
        let late = export(&here, seq, 200..399);
        let mut there = cpu_with(&model, 1, narrow(400, 1, 1));
        let moved = there.new_seq().unwrap();
        there.append_state(moved, &early, 200).unwrap();
        let mut batch = Batch::default();
        batch.push_token(moved, 200, ids[200], Want::Nothing);
        assert!(
            matches!(
                there.step(&batch, &mut Output::default()),
                Err(Error::State(_))
            ),
            "{}",
            g.name
        );
        // The last positions are there, and with them the window.
        there.append_state(moved, &late, 199).unwrap();
        assert_eq!(there.truncate(moved, 398).unwrap(), 398);
        let got = append(&mut there, moved, &ids[398..399], 1);
        assert!(
            bits(&got) == bits(&expected[398 * model.spec().n_vocab..]),
            "{}",
            g.name
        );
        assert_eq!(there.truncate(moved, 250).unwrap(), 0);
    }
}

/// Runs the first layer for tokens; what it returns for the last.
fn first_layer(cpu: &mut Cpu, seq: SeqId, ids: &[u32]) -> Vec<f32> {
    let mut batch = Batch::default();
    let mut out = Output::default();
    for &id in ids {
        batch.clear();
        batch.push_token(seq, cpu.seqs().len(seq).unwrap(), id, Want::Hidden);
        cpu.step(&batch, &mut out).unwrap();
    }
    out.hidden(0).to_vec()
}

/// Whether the positions of a model are learned.
fn learns_positions(g: &support::Golden) -> bool {
    matches!(g.model().spec().positions, Positions::Learned(_))
}

/// Whether it has several streams of the residual, which live within a step of all layers.
fn has_streams(g: &Golden) -> bool {
    g.model().spec().alt_up.is_some()
}

/// Whether keys are normalized behind their rotation, so that they cannot be rotated back.
fn norms_rotated(g: &support::Golden) -> bool {
    let model = g.model();
    let mut attentions = model.spec().attentions();
    attentions.any(|a| matches!(a.qk_norm, QkNorm::RotatedPerHead { .. }))
}

/// Whether queries see some positions only.
fn chooses_positions(g: &Golden) -> bool {
    g.model().spec().attentions().any(|a| a.indexer.is_some())
}

/// Whether keys can be moved, and the result seen: what a layer reads is of its tokens and
/// positions alone only in the first one.
fn shifts(g: &Golden) -> bool {
    !learns_positions(g) && !norms_rotated(g) && !has_streams(g) && !chooses_positions(g)
}

#[test]
fn behind_a_gap_the_first_layer_sees_what_it_would_without_the_forgotten() {
    for g in without_recurrence().filter(shifts) {
        let model = g.model();
        let ids: Vec<u32> = g.tokens.iter().cycle().take(128).copied().collect();
        for gap in [4..68, 0..32, 32..96, 5..101, 63..127] {
            let options = ExecutorSize {
                part: Some(Share::of_layers(model.spec(), 0..1)),
                n_recent: Some(0),
                ..narrow(128, 1, 2)
            };
            let mut cpu = cpu_with(&model, 1, options);
            let seq = cpu.new_seq().unwrap();
            let fresh = cpu.new_seq().unwrap();
            first_layer(&mut cpu, seq, &ids[..127]);
            cpu.shift(seq, gap.clone()).unwrap();
            assert_eq!(cpu.seqs().len(seq).unwrap(), 127 - gap.len());
            let got = first_layer(&mut cpu, seq, &ids[127..]);
            let rest: Vec<u32> = ids[..gap.start]
                .iter()
                .chain(&ids[gap.end..])
                .copied()
                .collect();
            let expected = first_layer(&mut cpu, fresh, &rest);
            let error = support::nmse(&got, &expected);
            assert!(error < 1e-9, "{} {gap:?}: {error}", g.name);
        }
    }
}

#[test]
fn a_gap_in_one_sequence_is_none_in_its_forks() {
    for g in [golden("llama-plain")].into_iter().chain(windowed()) {
        let model = g.model();
        let ids: Vec<u32> = g.tokens.iter().cycle().take(128).copied().collect();
        let mut cpu = cpu_with(
            &model,
            1,
            ExecutorSize {
                n_recent: Some(32),
                ..narrow(128, 8, 2)
            },
        );
        let alone = cpu.new_seq().unwrap();
        let expected = append(&mut cpu, alone, &ids, 8);
        cpu.drop_seq(alone).unwrap();
        let seq = cpu.new_seq().unwrap();
        append(&mut cpu, seq, &ids[..120], 8);
        let fork = cpu.fork(seq).unwrap();
        cpu.shift(seq, 4..68).unwrap();
        append(&mut cpu, seq, &ids[..8], 8);
        let got = append(&mut cpu, fork, &ids[120..], 8);
        assert!(
            bits(&got) == bits(&expected[120 * model.spec().n_vocab..]),
            "{}",
            g.name
        );
    }
}

#[test]
fn a_shifted_sequence_does_not_depend_on_how_it_came() {
    for g in [golden("llama-plain")].into_iter().chain(windowed()) {
        let model = g.model();
        let ids: Vec<u32> = g.tokens.iter().cycle().take(300).copied().collect();
        let run = |n_batch| {
            let options = ExecutorSize {
                n_recent: Some(64),
                kv: KvType::F16,
                ..narrow(128, n_batch, 1)
            };
            let mut cpu = cpu_with(&model, 1, options);
            let seq = cpu.new_seq().unwrap();
            append(&mut cpu, seq, &ids[..128], n_batch);
            for part in ids[128..].chunks(64) {
                cpu.shift(seq, 4..68).unwrap();
                append(&mut cpu, seq, part, n_batch);
            }
            append(&mut cpu, seq, &ids[..1], 1)
        };
        assert!(bits(&run(1)) == bits(&run(64)), "{}", g.name);
    }
}

#[test]
fn gaps_that_make_no_sense_are_refused() {
    let model = golden("llama-plain").model();
    let mut cpu = cpu_with(
        &model,
        1,
        ExecutorSize {
            n_recent: Some(0),
            ..narrow(128, 128, 1)
        },
    );
    let seq = cpu.new_seq().unwrap();
    append(&mut cpu, seq, &[1; 100], 128);
    for gap in [0..0, 0..31, 70..102, 96..128] {
        assert!(matches!(cpu.shift(seq, gap), Err(Error::State(_))));
    }
    assert_eq!(cpu.seqs().len(seq).unwrap(), 100);
}

#[test]
fn models_whose_keys_cannot_be_moved_are_refused() {
    for cannot in [learns_positions, norms_rotated, chooses_positions] {
        let g = [sparse()].into_iter().chain(goldens()).find(cannot);
        let g = g.unwrap();
        let pool = std::sync::Arc::new(atta_kernels::Pool::new(std::num::NonZeroUsize::MIN));
        let options = ExecutorSize {
            n_recent: Some(0),
            ..narrow(64, 1, 1)
        };
        let made = Cpu::new(
            g.model(),
            atta_kernels::Kernels::detect(),
            pool,
            &atta_store::Budget::unlimited(),
            options,
        );
        assert!(matches!(made.err(), Some(Error::NoShift(_))), "{}", g.name);
    }
}

/// A small generator of numbers, so that a failure can be had again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// A sequence, and the tokens that it should stand for.
struct Twin {
    seq: SeqId,
    ids: Vec<u32>,
}

/// Does one thing to one of the twins: appends, goes back, forks another, moves over bytes, or
/// begins again.
fn act(cpu: &mut Cpu, twins: &mut [Twin], random: &mut Random, n_vocab: usize) {
    let i = random.below(twins.len());
    let j = random.below(twins.len());
    match random.below(8) {
        0 => {
            let n = random.below(twins[i].ids.len() + 1);
            let kept = cpu.truncate(twins[i].seq, n).unwrap();
            twins[i].ids.truncate(kept);
        }
        1 if i != j => {
            cpu.drop_seq(twins[j].seq).unwrap();
            twins[j] = Twin {
                seq: cpu.fork(twins[i].seq).unwrap(),
                ids: twins[i].ids.clone(),
            };
        }
        2 if i != j => {
            let n = twins[i].ids.len();
            let state = export(cpu, twins[i].seq, 0..n);
            cpu.drop_seq(twins[j].seq).unwrap();
            let seq = import(cpu, &state, n).unwrap();
            let kept = cpu.truncate(seq, n).unwrap();
            twins[j] = Twin {
                seq,
                ids: twins[i].ids[..kept].to_vec(),
            };
        }
        _ => {
            let n = random.below(9).min(128 - twins[i].ids.len());
            let new: Vec<u32> = (0..n).map(|_| random.below(n_vocab) as u32).collect();
            append(cpu, twins[i].seq, &new, 5);
            twins[i].ids.extend(new);
        }
    }
}

#[test]
fn eight_sequences_in_any_order_are_eight_separate_runs() {
    for (seed, g) in [golden("llama-plain")]
        .into_iter()
        .chain(windowed())
        .chain(hybrids())
        .enumerate()
    {
        let (model, n_vocab) = (g.model(), g.model().spec().n_vocab);
        let mut random = Random(seed as u64 + 1);
        let mut cpu = cpu_with(&model, 1, narrow(128, 8, 8));
        let mut twins: Vec<_> = (0..8)
            .map(|_| Twin {
                seq: cpu.new_seq().unwrap(),
                ids: Vec::new(),
            })
            .collect();
        for _ in 0..N_ACTS {
            act(&mut cpu, &mut twins, &mut random, n_vocab);
        }
        for twin in &twins {
            let mut alone = cpu_with(&model, 1, narrow(130, 8, 1));
            let seq = alone.new_seq().unwrap();
            append(&mut alone, seq, &twin.ids, 8);
            let expected = append(&mut alone, seq, &[1], 8);
            cpu.truncate(twin.seq, twin.ids.len().min(127)).unwrap();
            if cpu.seqs().len(twin.seq).unwrap() < twin.ids.len() {
                continue;
            }
            assert!(
                bits(&append(&mut cpu, twin.seq, &[1], 8)) == bits(&expected),
                "{}",
                g.name
            );
        }
    }
}

#[test]
fn a_refused_batch_leaves_the_state_of_a_fork_as_it_was() {
    let g = golden("qwen3");
    let mut cpu = cpu(&g.model(), 1, KvType::F16);
    let trunk = cpu.new_seq().unwrap();
    append(&mut cpu, trunk, &g.tokens[..20], 20);
    let fork = cpu.fork(trunk).unwrap();
    let before = export(&cpu, fork, 0..20);
    let mut batch = Batch::default();
    batch.push_token(fork, 20, g.tokens[20], Want::Nothing);
    batch.push_token(fork, 21, u32::MAX, Want::Nothing);
    assert!(matches!(cpu.submit(&batch), Err(Error::Token { .. })));
    assert!(export(&cpu, fork, 0..20) == before);
}
