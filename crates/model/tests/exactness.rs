//! Logits are a function of the sequence alone, to the last bit: not of threads, chunks,
//! neighbours, or where the weights and the layers are.

mod support;

use std::{collections::HashSet, num::NonZeroUsize, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Batch, Cpu, CpuBackend, Error, Executor, ExecutorSize, KvType, Model, Output, SeqId,
    Share, Ticket, Want, spec::ModelSpec,
};
use atta_store::Budget;
use support::{
    Golden, append, bits, cpu, cpu_by, forward, golden, goldens, hybrid::hybrids,
    quantized::Blocks, some_goldens, stories, tokens,
};

/// Of kinds of keys and values; where tests run by emulation fewer, in which every type has its
/// place.
const KINDS: &[KvType] = if cfg!(target_arch = "x86_64") {
    &[
        KvType::F32,
        KvType::F16,
        KvType::Q8,
        KvType {
            n_edge_layers: 0,
            ..KvType::Q4
        },
    ]
} else {
    &[
        KvType::F16,
        KvType {
            v: KvType::Q4.v,
            n_edge_layers: 0,
            ..KvType::Q8
        },
    ]
};

#[test]
fn threads_and_chunks_do_not_change_a_bit() {
    for g in goldens().into_iter().chain(hybrids()) {
        let model = g.model();
        for &kv in KINDS {
            let run = |n_threads, n_batch| {
                let mut cpu = cpu(&model, n_threads, kv);
                let seq = cpu.new_seq().unwrap();
                bits(&append(&mut cpu, seq, &g.tokens, n_batch))
            };
            let expected = run(1, g.tokens.len());
            for (n_threads, n_batch) in [(1, 1), (1, 7), (2, 13), (3, 1), (4, g.tokens.len())] {
                assert!(
                    run(n_threads, n_batch) == expected,
                    "{} {kv:?}: -j {n_threads} --batch {n_batch}",
                    g.name
                );
            }
        }
    }
}

#[test]
fn neighbours_do_not_change_a_bit() {
    for g in goldens().into_iter().chain(hybrids()) {
        let model = g.model();
        let expected = bits(&forward(&model, &g.tokens));
        let mut cpu = cpu(&model, 2, KvType::F32);
        let a = cpu.new_seq().unwrap();
        let b = cpu.new_seq().unwrap();
        let mut batch = Batch::default();
        let mut out = Output::default();
        let mut logits = Vec::new();
        // Sequence b holds the same tokens backwards, and runs ahead by three positions a step.
        let backwards: Vec<u32> = g.tokens.iter().rev().copied().collect();
        for (pos, &id) in g.tokens.iter().enumerate() {
            batch.clear();
            for ahead in (3 * pos..3 * pos + 3).filter(|&p| p < backwards.len()) {
                batch.push_token(b, ahead, backwards[ahead], Want::Nothing);
            }
            batch.push_token(a, pos, id, Want::Logits);
            cpu.step(&batch, &mut out).unwrap();
            logits.extend_from_slice(out.logits(batch.rows.len() - 1));
        }
        assert!(bits(&logits) == expected, "{}", g.name);
    }
}

/// A model in pieces: executors of a range of layers each, in order, that hand hidden states on.
struct Ring(Vec<Box<dyn Executor>>);

impl Ring {
    /// Up to three pieces of a model that `of_share` gives whole or in part.
    fn of(spec: &ModelSpec, of_share: impl Fn(Share) -> Arc<Model>) -> Self {
        let n = spec.layers.len();
        let cuts = [0, 1.min(n - 1), (n / 2 + 1).min(n - 1), n];
        let ranges = cuts
            .windows(2)
            .filter(|cut| cut[0] < cut[1])
            .map(|cut| cut[0]..cut[1]);
        Self::of_shares(
            ranges.map(|layers| Share::of_layers(spec, layers)),
            of_share,
        )
    }

    fn of_shares(
        shares: impl Iterator<Item = Share>,
        of_share: impl Fn(Share) -> Arc<Model>,
    ) -> Self {
        let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
        let backend: Box<dyn Backend> = Box::new(CpuBackend::new(Kernels::detect(), pool));
        let piece = |part: Share| {
            let model = of_share(part.clone());
            let size = ExecutorSize {
                n_ctx: 128,
                n_seqs: 4,
                kv: KvType::F32,
                part: Some(part),
                ..ExecutorSize::default()
            };
            backend.open(model, &size, &Budget::unlimited()).unwrap()
        };
        Self(shares.map(piece).collect())
    }

    /// Does the same with all pieces, which have the same sequences.
    fn all<T: PartialEq + std::fmt::Debug>(
        &mut self,
        mut what: impl FnMut(&mut dyn Executor) -> T,
    ) -> T {
        let results: Vec<T> = self
            .0
            .iter_mut()
            .map(|piece| what(piece.as_mut()))
            .collect();
        assert!(
            results.windows(2).all(|pair| pair[0] == pair[1]),
            "{results:?}"
        );
        results.into_iter().next().unwrap()
    }

    /// Truncates a sequence to what all pieces keep: those without recurrent layers keep more.
    fn truncate(&mut self, seq: SeqId, n: usize) -> usize {
        let mut left = n;
        loop {
            let kept = self.0.iter().map(|p| p.seqs().keeps(seq, left).unwrap());
            match kept.min() {
                Some(kept) if kept < left => left = kept,
                _ => break,
            }
        }
        self.all(|piece| piece.truncate(seq, left).unwrap())
    }

    /// Appends tokens of several sequences; the logits of all of them, in the order of the rows.
    fn append(&mut self, rows: &[(SeqId, &[u32])]) -> Vec<f32> {
        let mut batch = Batch::default();
        for &(seq, tokens) in rows {
            let pos = self.0[0].seqs().len(seq).unwrap();
            tokens
                .iter()
                .enumerate()
                .for_each(|(i, &id)| batch.push_token(seq, pos + i, id, Want::Hidden));
        }
        let mut out = Output::default();
        let last = self.0.len() - 1;
        for (i, piece) in self.0.iter_mut().enumerate() {
            if i == last {
                batch
                    .rows
                    .iter_mut()
                    .for_each(|row| row.want = Want::Logits);
            }
            let ticket = piece.submit(&batch).unwrap();
            piece.collect(ticket, &mut out).unwrap();
            if i < last {
                let rows = std::mem::take(&mut batch.rows);
                batch.clear();
                rows.iter().enumerate().for_each(|(i, row)| {
                    batch.push_hidden(row.seq, row.pos, out.hidden(i), row.want)
                });
            }
        }
        (0..batch.rows.len())
            .flat_map(|i| out.logits(i).to_vec())
            .collect()
    }
}

#[test]
fn layer_ranges_on_several_executors_equal_the_whole() {
    let all = goldens().into_iter().chain(hybrids());
    for g in all.filter(Golden::is_separable) {
        let model = g.model();
        let n_vocab = model.spec().n_vocab;
        let half = g.tokens.len() / 2;
        let other = [&g.tokens[..half], &g.tokens[..half]].concat();
        let [expected, forked] =
            [&g.tokens[..], &other].map(|tokens| bits(&forward(&model, tokens)));
        let part = |share: Share| Arc::new(g.part(share));
        let rings = [
            Ring::of(model.spec(), |_| model.clone()),
            Ring::of(model.spec(), part),
        ];
        for mut ring in rings {
            let trunk = ring.all(|piece| piece.new_seq().unwrap());
            let mut got = Vec::new();
            let mut rest = &g.tokens[..half];
            let mut n = 1;
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(n.min(rest.len()));
                got.extend(ring.append(&[(trunk, chunk)]));
                (rest, n) = (after, n % 4 + 2);
            }
            let fork = ring.all(|piece| piece.fork(trunk).unwrap());
            let both = ring.append(&[(trunk, &g.tokens[half..]), (fork, &other[half..])]);
            let (ours, theirs) = both.split_at((g.tokens.len() - half) * n_vocab);
            got.extend_from_slice(ours);
            assert!(bits(&got) == expected, "{}", g.name);
            assert!(
                bits(theirs) == forked[half * n_vocab..],
                "{}: the fork",
                g.name
            );
            let left = ring.truncate(trunk, half - 1);
            ring.all(|piece| piece.drop_seq(fork).unwrap());
            let again = ring.append(&[(trunk, &g.tokens[left..])]);
            assert!(
                bits(&again) == expected[left * n_vocab..],
                "{}: behind {left} positions",
                g.name
            );
        }
    }
}

#[test]
fn a_head_without_layers_computes_the_logits_of_the_whole() {
    let all = goldens().into_iter().chain(hybrids());
    for g in all.filter(Golden::is_separable) {
        let model = g.model();
        let n = model.spec().layers.len();
        let layers = Share {
            layers: 0..n,
            embed: true,
            head: false,
        };
        let head = Share {
            layers: n..n,
            embed: false,
            head: true,
        };
        let part = |share: Share| Arc::new(g.part(share));
        let mut ring = Ring::of_shares([layers, head].into_iter(), part);
        let seq = ring.all(|piece| piece.new_seq().unwrap());
        let got = ring.append(&[(seq, &g.tokens)]);
        assert!(
            bits(&got) == bits(&forward(&model, &g.tokens)),
            "{}",
            g.name
        );
    }
}

#[test]
fn a_batch_in_flight_is_collected_once_and_its_sequences_are_busy() {
    let g = golden("qwen3");
    let mut cpu = cpu(&g.model(), 1, KvType::F32);
    let [seq, idle] = [cpu.new_seq().unwrap(), cpu.new_seq().unwrap()];
    let mut batch = Batch::default();
    let mut out = Output::default();
    batch.push_token(seq, 0, g.tokens[0], Want::Logits);
    let ticket = cpu.submit(&batch).unwrap();
    let Ticket(n) = ticket;
    let copy = Ticket(1);
    assert_eq!((n, cpu.depth(), cpu.seqs().len(seq).unwrap()), (1, 1, 1));
    assert!(matches!(cpu.submit(&batch), Err(Error::Busy)));
    assert!(matches!(cpu.step(&batch, &mut out), Err(Error::Busy)));
    assert!(
        matches!(cpu.truncate(seq, 0), Err(Error::Busy))
            && matches!(cpu.drop_seq(seq), Err(Error::Busy))
    );
    cpu.drop_seq(idle).unwrap();
    assert!(matches!(
        cpu.collect(Ticket(2), &mut out),
        Err(Error::Ticket(2))
    ));
    cpu.collect(copy, &mut out).unwrap();
    assert!(bits(out.logits(0)) == bits(&forward(&g.model(), &g.tokens[..1])));
    assert!(matches!(
        cpu.collect(Ticket(1), &mut out),
        Err(Error::Ticket(1))
    ));
    assert_eq!(cpu.truncate(seq, 0).unwrap(), 0);
}

#[test]
fn a_fork_shares_its_past_and_goes_its_own_way() {
    let g = golden("qwen3");
    let model = g.model();
    for &kv in KINDS {
        let mut cpu = cpu(&model, 1, kv);
        let alone = cpu.new_seq().unwrap();
        let expected = append(&mut cpu, alone, &g.tokens, 128);
        let n_vocab = model.spec().n_vocab;
        // 20 positions: the fork happens in the middle of a block, which both then write to.
        let trunk = cpu.new_seq().unwrap();
        append(&mut cpu, trunk, &g.tokens[..20], 128);
        let fork = cpu.fork(trunk).unwrap();
        let other: Vec<u32> = g.tokens[20..].iter().rev().copied().collect();
        append(&mut cpu, trunk, &other, 5);
        let got = append(&mut cpu, fork, &g.tokens[20..], 3);
        assert!(bits(&got) == bits(&expected[20 * n_vocab..]), "{kv:?}");
    }
}

#[test]
fn truncating_takes_back_exactly_what_came_after() {
    let g = golden("llama3-rope");
    let model = g.model();
    let expected = bits(&forward(&model, &g.tokens));
    let mut cpu = cpu(&model, 2, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    append(
        &mut cpu,
        seq,
        &g.tokens.iter().rev().copied().collect::<Vec<_>>(),
        64,
    );
    for keep in [0, 1, 31, 32, 33] {
        cpu.truncate(seq, 0).unwrap();
        append(&mut cpu, seq, &g.tokens[..keep], 64);
        append(&mut cpu, seq, &g.tokens[..5], 64);
        cpu.truncate(seq, keep).unwrap();
        let got = append(&mut cpu, seq, &g.tokens[keep..], 64);
        assert!(
            bits(&got) == expected[keep * model.spec().n_vocab..],
            "{keep}"
        );
    }
}

#[test]
fn a_refused_batch_changes_nothing() {
    let g = golden("llama-plain");
    let model = g.model();
    let mut cpu = cpu(&model, 1, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    let n_vocab = model.spec().n_vocab as u32;
    append(&mut cpu, seq, &g.tokens[..3], 64);
    let mut out = Output::default();
    let refused = |rows: &[(usize, u32)]| {
        let mut batch = Batch::default();
        rows.iter()
            .for_each(|&(pos, id)| batch.push_token(seq, pos, id, Want::Logits));
        batch
    };
    let too_many: Vec<_> = (3..200).map(|pos| (pos, 1)).collect();
    let overfull: Vec<_> = (3..130).map(|pos| (pos, 1)).collect();
    for rows in [
        &[(3, 1), (5, 1)][..],
        &[(2, 1)],
        &[(3, 1), (4, n_vocab)],
        &too_many,
        &overfull,
    ] {
        assert!(cpu.step(&refused(rows), &mut out).is_err());
        assert_eq!(cpu.seqs().len(seq).unwrap(), 3);
    }
    let got = append(&mut cpu, seq, &g.tokens[3..], 64);
    assert!(bits(&got) == bits(&forward(&model, &g.tokens)[3 * n_vocab as usize..]));
}

#[test]
fn sequences_that_are_gone_are_not_found_and_their_room_is_free_again() {
    let model = golden("llama-plain").model();
    let mut cpu = cpu(&model, 1, KvType::F16);
    for _ in 0..10 {
        let seqs: Vec<_> = (0..4).map(|_| cpu.new_seq().unwrap()).collect();
        assert!(matches!(cpu.new_seq(), Err(Error::NoRoomForSequence(4))));
        for &seq in &seqs {
            append(&mut cpu, seq, &[1; 128], 64);
        }
        seqs.iter().for_each(|&seq| cpu.drop_seq(seq).unwrap());
        assert!(matches!(cpu.seqs().len(seqs[0]), Err(Error::NoSequence(_))));
    }
}

/// Longer than a batch of 512, and than four of the chunks in which attention is computed; where
/// tests run by emulation longer than a block of keys.
const N_LONG: usize = if cfg!(target_arch = "x86_64") {
    520
} else {
    40
};

/// Models of quantized matrices: K-quants without and with experts, blocks of 32, and a file of
/// Q8_0 as people have it.
fn quantized_models() -> Vec<(&'static str, Arc<Model>)> {
    let wide = |name, blocks| (name, golden(name).quantized(blocks));
    let mut all = vec![
        wide("llama-plain", Blocks::Of256),
        wide("gpt-oss", Blocks::Of32),
    ];
    if cfg!(target_arch = "x86_64") {
        all.extend([wide("qwen2moe", Blocks::Of256), ("stories", stories())]);
    }
    all
}

/// An executor with room for two long sequences.
fn long(kernels: Kernels, model: &Arc<Model>, n_threads: usize) -> Cpu {
    let options = ExecutorSize {
        n_ctx: 544,
        n_seqs: 2,
        n_batch: 512,
        ..ExecutorSize::default()
    };
    cpu_by(kernels, model, n_threads, options)
}

/// The bits of a long text's logits by the best instruction set, in batches as large as they can
/// be. Of a model that always says the same they would be equal whatever is broken.
fn expected_of(model: &Arc<Model>, tokens: &[u32]) -> Vec<u32> {
    let mut cpu = long(Kernels::detect(), model, 1);
    let seq = cpu.new_seq().unwrap();
    let logits = append(&mut cpu, seq, tokens, 512);
    assert!(logits.iter().all(|z| z.is_finite()));
    let different: HashSet<_> = logits.chunks(model.spec().n_vocab).map(bits).collect();
    assert_eq!(
        different.len(),
        tokens.len(),
        "every token says something else"
    );
    bits(&logits)
}

/// The logits of a text whose rows come alone, then a few at a time, then all together: every path
/// of the kernels once.
fn in_portions(cpu: &mut Cpu, tokens: &[u32]) -> Vec<f32> {
    let seq = cpu.new_seq().unwrap();
    let mut left = tokens;
    let mut logits = Vec::new();
    for n in [1, 1, 1, 2, 3, 4, 5, 7, tokens.len()] {
        let (portion, rest) = left.split_at(n.min(left.len()));
        logits.extend(append(cpu, seq, portion, 512));
        left = rest;
    }
    logits
}

#[test]
fn threads_and_batches_do_not_change_a_bit_of_quantized_models() {
    for (name, model) in quantized_models() {
        let tokens = tokens(&model, N_LONG);
        let expected = expected_of(&model, &tokens);
        for (n_threads, n_batch) in [(1, 1), (1, 7), (4, 1), (4, 7), (4, 512)] {
            let mut cpu = long(Kernels::detect(), &model, n_threads);
            let seq = cpu.new_seq().unwrap();
            let got = append(&mut cpu, seq, &tokens, n_batch);
            assert!(
                bits(&got) == expected,
                "{name}: -j {n_threads} --batch {n_batch}"
            );
        }
    }
}

#[test]
fn instruction_sets_do_not_change_a_bit_of_quantized_models() {
    for (name, model) in quantized_models() {
        let tokens = tokens(&model, N_LONG);
        let expected = expected_of(&model, &tokens);
        for isa in Kernels::available() {
            // The plain loops take ten times as long: by them the first chunk of attention and a
            // bit of the next.
            let is_plain = ["scalar", "sse41"].contains(&isa);
            let (n, n_threads) = if is_plain {
                (N_LONG.min(136), &[4][..])
            } else {
                (N_LONG, &[1, 4][..])
            };
            for &n_threads in n_threads {
                let mut cpu = long(Kernels::named(isa).unwrap(), &model, n_threads);
                let got = bits(&in_portions(&mut cpu, &tokens[..n]));
                assert!(got == expected[..got.len()], "{name}: {isa} -j {n_threads}");
            }
        }
    }
}

#[test]
fn instruction_sets_do_not_change_a_bit_of_any_architecture() {
    for (i, g) in some_goldens().iter().enumerate() {
        let model = g.quantized([Blocks::Of32, Blocks::Of256][i % 2]);
        let tokens = tokens(&model, 40);
        let kv = KINDS[i / 2 % KINDS.len()];
        let run = |isa| {
            let options = ExecutorSize {
                n_ctx: 64,
                kv,
                ..ExecutorSize::default()
            };
            bits(&in_portions(
                &mut cpu_by(Kernels::named(isa).unwrap(), &model, 1, options),
                &tokens,
            ))
        };
        let expected = run("scalar");
        for isa in Kernels::available()
            .into_iter()
            .filter(|&isa| isa != "scalar")
        {
            assert!(run(isa) == expected, "{}: {isa}, {kv:?}", g.name);
        }
    }
}

/// The logits of the first of two texts that share batches: so many rows of each, in turn as long
/// as there are any.
fn beside(cpu: &mut Cpu, [ours, theirs]: [&[u32]; 2], [n_ours, n_theirs]: [usize; 2]) -> Vec<f32> {
    let a = cpu.new_seq().unwrap();
    let b = cpu.new_seq().unwrap();
    let mut batch = Batch::default();
    let mut out = Output::default();
    let mut logits = Vec::new();
    let mut theirs = theirs.chunks(n_theirs);
    for ours in ours.chunks(n_ours) {
        batch.clear();
        let at = [cpu.seqs().len(a).unwrap(), cpu.seqs().len(b).unwrap()];
        let theirs = theirs.next().unwrap_or_default();
        for i in 0..ours.len().max(theirs.len()) {
            theirs
                .get(i)
                .into_iter()
                .for_each(|&id| batch.push_token(b, at[1] + i, id, Want::Logits));
            ours.get(i)
                .into_iter()
                .for_each(|&id| batch.push_token(a, at[0] + i, id, Want::Logits));
        }
        cpu.step(&batch, &mut out).unwrap();
        let rows = batch
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.seq == a);
        rows.for_each(|(i, _)| logits.extend_from_slice(out.logits(i)));
    }
    logits
}

#[test]
fn neighbours_do_not_change_a_bit_of_quantized_models() {
    for (name, model) in quantized_models() {
        // As many as fill a batch with those of the neighbour, and some.
        let tokens = tokens(&model, N_LONG.min(300));
        let expected = expected_of(&model, &tokens);
        let others: Vec<u32> = tokens.iter().rev().copied().collect();
        for n_rows in [[1, 1], [7, 5], [256, 256]] {
            let mut cpu = long(Kernels::detect(), &model, 2);
            let got = beside(&mut cpu, [&tokens, &others], n_rows);
            assert!(bits(&got) == expected, "{name}: {n_rows:?} rows");
        }
    }
}
