//! Members compute the bits of one machine: of every tiny model, whatever the division.

mod members;
mod own_types;
#[path = "../../model/tests/support/mod.rs"]
mod support;

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use atta_cluster::tensor::{
    LinkExchange, LocalMembers, MemberLinks, Message, TensorExecutor, ThreadLinks, split,
};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Batch, BoundTensor, Cpu, Error, Executor, ExecutorSize, KvType, Member, MemberPart, Model,
    Output, Placement, RowSplit, Share, Want,
};
use atta_store::{Budget, ModelFiles, Plan, ResidencyPolicy, Streamed, Weights};
use members::{N_CTX, append_ragged, member_of, row_split, run, size};
use own_types::OwnTypes;
use support::{Golden, bits, cpu_with, encoders, golden, goldens, hybrid::hybrids, tokens};

fn models(g: &Golden, model: &Model, split: &RowSplit) -> Result<Vec<Arc<Model>>, Error> {
    let share = Share::whole(model.spec());
    let one = |i| member_of(model, g.files(), share.clone(), split, i);
    (0..split.n_members()).map(one).collect()
}

fn local() -> LocalMembers {
    LocalMembers {
        kernels: Kernels::detect(),
        n_threads: NonZeroUsize::MIN,
    }
}

fn start(models: &[Arc<Model>], size: &ExecutorSize) -> TensorExecutor {
    let members = local().open(models, size, &Budget::unlimited()).unwrap();
    TensorExecutor::start(members).unwrap()
}

fn check(g: &Golden, kv: KvType, divisions: &[&[u32]]) {
    let model = g.model();
    let size = size(kv, 32);
    for first in [1, 5] {
        let expected = run(&mut cpu_with(&model, 1, size.clone()), &g.tokens, first);
        for speeds in divisions {
            let models = models(g, &model, &row_split(speeds)).unwrap();
            let got = run(&mut start(&models, &size), &g.tokens, first);
            assert!(got == expected, "{} {kv:?} {speeds:?} {first}", g.name);
        }
    }
}

// Half of the models each, for two processors.
#[test]
fn every_model_has_the_bits_of_one_machine() {
    goldens().iter().step_by(2).for_each(check_divisions);
}

#[test]
fn the_other_models_have_the_bits_of_one_machine() {
    goldens()
        .iter()
        .skip(1)
        .step_by(2)
        .for_each(check_divisions);
    hybrids().iter().for_each(check_divisions);
}

fn check_divisions(g: &Golden) {
    check(g, KvType::F32, &[&[1], &[1, 1], &[3, 1], &[1; 3], &[1; 4]]);
}

#[test]
fn experts_windows_and_recurrent_states_with_quantized_keys() {
    for name in ["qwen3moe", "gpt-oss", "gemma3", "qwen35", "falcon-h1"] {
        for kv in [KvType::F16, KvType::Q8, KvType::Q4] {
            check(&golden(name), kv, &[&[1, 1], &[1, 2, 1]]);
        }
    }
}

#[test]
fn encoders_have_the_bits_of_one_machine() {
    for g in encoders() {
        let model = g.model();
        let size = size(KvType::F32, N_CTX);
        let hidden = |executor: &mut dyn Executor| {
            let mut batch = Batch::default();
            let mut out = Output::default();
            let seq = executor.new_seq().unwrap();
            g.push_rows(&mut batch, seq);
            executor.step(&batch, &mut out).unwrap();
            let rows = (0..g.tokens.len()).flat_map(|i| out.hidden(i).to_vec());
            bits(&rows.collect::<Vec<_>>())
        };
        let expected = hidden(&mut cpu_with(&model, 1, size.clone()));
        let models = models(&g, &model, &row_split(&[1, 1, 1])).unwrap();
        assert!(hidden(&mut start(&models, &size)) == expected, "{}", g.name);
    }
}

#[test]
fn states_shifts_and_filled_positions_are_those_of_one_machine() {
    let g = golden("llama3-rope");
    let model = g.model();
    let size = ExecutorSize {
        n_recent: Some(32),
        n_ctx: 96,
        ..size(KvType::F16, 32)
    };
    let tokens: Vec<u32> = g.tokens.iter().cycle().take(120).copied().collect();
    let run = |executor: &mut dyn Executor| {
        let seq = executor.new_seq().unwrap();
        let mut logits = append_ragged(executor, seq, &tokens[..64], 5);
        let mut state = Vec::new();
        executor.export(seq, 0..64, &mut state).unwrap();
        executor.drop_seq(seq).unwrap();
        let seq = executor.new_seq().unwrap();
        executor.append_state(seq, &state, 60).unwrap();
        logits.extend(append_ragged(executor, seq, &tokens[60..90], 5));
        executor.shift(seq, 4..36).unwrap();
        logits.extend(append_ragged(executor, seq, &tokens[90..], 3));
        let filled = executor.new_seq().unwrap();
        executor.fill(filled, 40).unwrap();
        logits.extend(append_ragged(executor, filled, &tokens[..8], 3));
        bits(&logits)
    };
    let expected = run(&mut cpu_with(&model, 1, size.clone()));
    let models = models(&g, &model, &row_split(&[1, 1])).unwrap();
    assert!(run(&mut start(&models, &size)) == expected);
}

#[test]
fn a_part_of_the_layers_is_divided_too() {
    let g = golden("qwen3");
    let model = g.model();
    let share = Share::of_layers(model.spec(), 1..model.spec().layers.len());
    let size = ExecutorSize {
        part: Some(share.clone()),
        ..size(KvType::F32, 32)
    };
    let split = row_split(&[2, 1]);
    let one = |i| member_of(&model, g.files(), share.clone(), &split, i).unwrap();
    let run = |executor: &mut dyn Executor| {
        let seq = executor.new_seq().unwrap();
        let d = model.spec().d_model;
        let mut batch = Batch::default();
        for pos in 0..5 {
            let x: Vec<f32> = (0..d).map(|i| (i + pos) as f32 / 64.0).collect();
            batch.push_hidden(seq, pos, &x, Want::Logits);
        }
        let mut out = Output::default();
        executor.step(&batch, &mut out).unwrap();
        bits(out.logits(4))
    };
    let expected = run(&mut cpu_with(&model, 1, size.clone()));
    assert!(run(&mut start(&[one(0), one(1)], &size)) == expected);
}

/// The matrix of a role at one machine or member: its rows (of one expert), the bytes of a row, and
/// the bytes that are held.
fn held_matrix(model: &Model, matrix: &split::MatrixRows) -> Option<[u64; 3]> {
    match model.tensor(matrix.role, matrix.layer)? {
        BoundTensor::Matrix {
            ty,
            d_out,
            d_in,
            table,
            ..
        } => {
            let row_bytes = ty.row_bytes(d_in).unwrap() as u64;
            Some([d_out as u64, row_bytes, table.n_bytes()])
        }
        BoundTensor::Vector(_) => None,
    }
}

#[test]
fn a_member_holds_its_rows_of_divided_matrices_and_nothing_else_of_them() {
    for g in goldens().into_iter().chain(encoders()).chain(hybrids()) {
        let whole = g.model();
        let split = row_split(&[1, 1, 2]);
        let models = models(&g, &whole, &split).unwrap();
        for matrix in split::matrices(whole.spec(), &split) {
            let Some([d_out, row_bytes, _]) = held_matrix(&whole, &matrix) else {
                continue;
            };
            let moe = matrix.layer.and_then(|l| whole.spec().layers[l].moe());
            let n_experts = match matrix.role.placement() {
                Placement::Experts => moe.unwrap().n_experts as u64,
                _ => 1,
            };
            for (i, model) in models.iter().enumerate() {
                let own = matrix.members.as_ref().map(|rows| rows[i].len() as u64);
                let [d_own, _, n_bytes] = held_matrix(model, &matrix).unwrap();
                assert_eq!(d_own, own.unwrap_or(d_out), "{} {matrix:?}", g.name);
                if own.is_some() {
                    let expected = d_own * row_bytes * n_experts;
                    assert_eq!(n_bytes, expected, "{} {matrix:?}", g.name);
                }
            }
        }
    }
}

#[test]
fn the_budget_of_a_member_counts_its_rows() {
    for name in ["qwen3", "qwen3moe", "gpt-oss"] {
        let g = golden(name);
        let whole = g.model();
        let used = |split: &RowSplit, i| {
            let budget = Budget::unlimited();
            let part = MemberPart {
                share: Share::whole(whole.spec()),
                member: Member::new(split.clone(), i).unwrap(),
            };
            let policy = ResidencyPolicy::whole();
            let source = |files, plan| {
                let weights = Streamed::new(files, plan, &policy, &budget)?;
                Ok::<Box<dyn Weights>, Error>(Box::new(weights))
            };
            let spec = whole.spec().clone();
            let model = Model::with_member(spec, part, g.files(), &budget, source).unwrap();
            let used = budget.used();
            drop(model);
            used
        };
        let all = used(&row_split(&[1]), 0);
        let split = row_split(&[1, 3]);
        let [small, large] = [0, 1].map(|i| used(&split, i));
        // Slots begin and end at disk blocks, and matrices that are not divided are at both.
        assert!(
            small < large && large < all,
            "{name}: {small} {large} {all}"
        );
    }
}

/// Holds as little as possible in memory: every group is read in pieces.
fn streamed(files: ModelFiles, plan: Plan) -> Result<Box<dyn Weights>, Error> {
    let policy = ResidencyPolicy {
        chunk_bytes: Some(4096),
        pinned_bytes: 0,
        n_slots: 2,
        n_experts: 4,
        n_moving: 0,
        method: None,
    };
    let weights = Streamed::new(files, plan, &policy, &Budget::unlimited())?;
    Ok(Box::new(weights))
}

#[test]
fn weights_that_are_read_in_pieces_give_the_bits_of_one_machine() {
    for name in ["llama3-rope", "qwen3moe", "gpt-oss", "minicpm3", "qwen35"] {
        let g = golden(name);
        let model = g.model();
        let size = size(KvType::F16, 32);
        let expected = run(&mut cpu_with(&model, 1, size.clone()), &g.tokens, 5);
        let split = row_split(&[1, 2]);
        let one = |index| {
            let files = g.files().unmapped(&Budget::unlimited()).unwrap();
            let part = MemberPart {
                share: Share::whole(model.spec()),
                member: Member::new(split.clone(), index).unwrap(),
            };
            let spec = model.spec().clone();
            let budget = Budget::unlimited();
            Arc::new(Model::with_member(spec, part, files, &budget, streamed).unwrap())
        };
        let got = run(&mut start(&[one(0), one(1)], &size), &g.tokens, 5);
        assert!(got == expected, "{name}");
    }
}

#[test]
fn rows_of_every_matrix_are_divided_in_whole_blocks() {
    for g in goldens() {
        let model = g.model();
        for speeds in [&[1][..], &[1, 1], &[3, 1], &[1, 2, 1], &[1; 4]] {
            let split = row_split(speeds);
            for matrix in split::matrices(model.spec(), &split) {
                let Some(members) = &matrix.members else {
                    assert!(!matrix.role.is_divided() || !split.divides(matrix.n_rows));
                    continue;
                };
                let mut row = 0;
                for rows in members {
                    assert_eq!(rows.start, row, "{} {matrix:?}", g.name);
                    let is_whole = rows.end.is_multiple_of(split.block(matrix.n_rows));
                    assert!(is_whole || rows.end == matrix.n_rows, "{matrix:?}");
                    row = rows.end;
                }
                assert_eq!(row, matrix.n_rows, "{} {matrix:?}", g.name);
            }
        }
    }
}

/// MemberLinks that count the numbers that a member gets, and lose the rest after some messages.
struct Counted {
    links: ThreadLinks,
    n_numbers: Arc<AtomicU64>,
    n_messages: Arc<AtomicU64>,
    /// Messages until this member is gone.
    n_left: u64,
}

impl MemberLinks for Counted {
    fn send(&mut self, to: usize, message: Message) {
        self.links.send(to, message);
    }

    fn recv(&mut self, from: usize) -> Option<Message> {
        self.n_left = self.n_left.checked_sub(1)?;
        let message = self.links.recv(from)?;
        if let Message::Columns { numbers, .. } = &message {
            self.n_numbers
                .fetch_add(numbers.len() as u64, Ordering::Relaxed);
            self.n_messages.fetch_add(1, Ordering::Relaxed);
        }
        Some(message)
    }
}

/// Two members of a model; number `counted` gets at most `n_left` messages.
fn counted(g: &Golden, counted: usize, n_left: u64) -> (TensorExecutor, [Arc<AtomicU64>; 2]) {
    let model = g.model();
    let models = models(g, &model, &row_split(&[1, 1])).unwrap();
    let counts = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let open = |(i, links)| {
        let n_left = if i == counted { n_left } else { u64::MAX };
        let [n_numbers, n_messages] = match i == counted {
            true => counts.clone(),
            false => Default::default(),
        };
        let links = Counted {
            links,
            n_numbers,
            n_messages,
            n_left,
        };
        let exchange = Box::new(LinkExchange::new(links, i));
        let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
        let budget = Budget::unlimited();
        let size = size(KvType::F32, 32);
        Cpu::new_member(
            models[i].clone(),
            Kernels::detect(),
            pool,
            &budget,
            size,
            exchange,
        )
    };
    let links = ThreadLinks::mesh(2).into_iter().enumerate();
    let members = links.map(open).collect::<Result<Vec<_>, _>>().unwrap();
    (TensorExecutor::start(members).unwrap(), counts)
}

#[test]
fn a_member_that_fails_anywhere_is_an_error_of_the_batch() {
    let g = golden("qwen3");
    let one_token = |executor: &mut TensorExecutor, seq, pos| {
        let mut batch = Batch::default();
        batch.push_token(seq, pos, 1, Want::Logits);
        executor.step(&batch, &mut Output::default())
    };
    let (mut executor, [_, n_messages]) = counted(&g, 1, u64::MAX);
    let seq = executor.new_seq().unwrap();
    one_token(&mut executor, seq, 0).unwrap();
    drop(executor);
    let n = n_messages.load(Ordering::Relaxed);
    assert!(n > 4, "{n} messages");
    for (member, n_left) in [0, 1].into_iter().flat_map(|m| (0..n).map(move |n| (m, n))) {
        let (mut executor, _) = counted(&g, member, n_left);
        let seq = executor.new_seq().unwrap();
        let is_last = member == 1 && n_left + 1 == n;
        let error = match one_token(&mut executor, seq, 0) {
            // It fails when it waits for the end of the batch, which the lead has then seen.
            Ok(()) if is_last => one_token(&mut executor, seq, 1).unwrap_err(),
            done => done.unwrap_err(),
        };
        assert!(matches!(error, Error::Lost(_)), "{error}");
        let n_kept = usize::from(is_last);
        assert_eq!(
            executor.seqs().len(seq).unwrap(),
            n_kept,
            "{member} {n_left}"
        );
    }
}

#[test]
fn a_token_costs_as_many_numbers_as_planned() {
    for name in ["qwen3", "qwen3moe", "minicpm3", "qwen35"] {
        let g = golden(name);
        for member in [0, 1] {
            let (mut executor, [n_numbers, n_messages]) = counted(&g, member, u64::MAX);
            let seq = executor.new_seq().unwrap();
            let mut batch = Batch::default();
            batch.push_token(seq, 0, 1, Want::Logits);
            executor.step(&batch, &mut Output::default()).unwrap();
            drop(executor);
            let cost = split::exchange_cost(g.model().spec(), &row_split(&[1, 1]), member);
            let got = [&n_messages, &n_numbers].map(|n| n.load(Ordering::Relaxed) as usize);
            assert_eq!(got, [cost.n_units, cost.n_received], "{name} {member}");
        }
    }
}

#[test]
fn what_is_no_division_is_refused() {
    let g = golden("qwen3");
    let model = g.model();
    let even = models(&g, &model, &row_split(&[1, 1])).unwrap();
    let uneven = models(&g, &model, &row_split(&[3, 1])).unwrap();
    let size = size(KvType::F32, 16);
    for wrong in [
        &even[..1],
        &[even[1].clone(), even[0].clone()],
        &[even[0].clone(), uneven[1].clone()],
        std::slice::from_ref(&model),
        &[],
    ] {
        let error = local()
            .open(wrong, &size, &Budget::unlimited())
            .unwrap_err();
        assert!(error.to_string().contains("one division"), "{error}");
    }
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let alone = Cpu::new(
        even[0].clone(),
        Kernels::detect(),
        pool,
        &Budget::unlimited(),
        size,
    );
    assert!(alone.unwrap_err().to_string().contains("other members"));
    let error = models(&g, &model, &row_split(&[1000, 1])).unwrap_err();
    assert!(error.to_string().contains("too few rows"), "{error}");
}

/// Tokens per second of one sequence, the best of some runs.
fn decode_rate(executor: &mut dyn Executor, tokens: &[u32]) -> f64 {
    let mut out = Output::default();
    let rate = |_| {
        let seq = executor.new_seq().unwrap();
        let start = Instant::now();
        for (pos, &id) in tokens.iter().enumerate() {
            let mut batch = Batch::default();
            batch.push_token(seq, pos, id, Want::Logits);
            executor.step(&batch, &mut out).unwrap();
        }
        let seconds = start.elapsed().as_secs_f64();
        executor.drop_seq(seq).unwrap();
        tokens.len() as f64 / seconds
    };
    (0..3).map(rate).fold(0.0, f64::max)
}

/// Run with a model: `TENSOR_MODEL=FILE cargo test -p atta-cluster --test tensor -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement, which needs a model file and an idle machine"]
fn two_members_beside_one_process() {
    let path = std::env::var("TENSOR_MODEL").expect("TENSOR_MODEL names a file");
    let files = || ModelFiles::open(path.as_ref()).unwrap();
    let model = Arc::new(Model::load(files(), &Budget::unlimited()).unwrap());
    let share = Share::whole(model.spec());
    let split = row_split(&[1, 1]);
    let one = |i| member_of(&model, files(), share.clone(), &split, i).unwrap();
    let members = [one(0), one(1)];
    let tokens = tokens(&model, 64);
    let size = size(KvType::F16, 32);
    let cost = split::exchange_cost(model.spec(), &split, 0);
    println!("{cost:?} for each token");
    for _ in 0..5 {
        let alone = decode_rate(&mut cpu_with(&model, 1, size.clone()), &tokens);
        let threads = decode_rate(&mut cpu_with(&model, 2, size.clone()), &tokens);
        let both = decode_rate(&mut start(&members, &size), &tokens);
        println!(
            "1 thread {alone:.1} tok/s, 2 threads {threads:.1} ({:.2}), 2 members {both:.1} ({:.2})",
            threads / alone,
            both / alone
        );
    }
}

#[test]
fn models_in_t3_with_mean_rows_apart_are_divided_by_rows_too() {
    let both = ["token_embd.mean", "output.mean"];
    for (name, means) in [("llama-yarn", &both[..]), ("smollm3", &both[..1])] {
        let file = OwnTypes::new(name, means);
        let open = || ModelFiles::open(file.path()).unwrap();
        let model = Arc::new(Model::load(open(), &Budget::unlimited()).unwrap());
        let size = size(KvType::F16, 32);
        let tokens = golden(name).tokens;
        let expected = run(&mut cpu_with(&model, 1, size.clone()), &tokens, 5);
        let split = row_split(&[1, 2]);
        let share = || Share::whole(model.spec());
        let member = |i| member_of(&model, open(), share(), &split, i).unwrap();
        let got = run(&mut start(&[member(0), member(1)], &size), &tokens, 5);
        assert!(got == expected, "{name}");
    }
}
