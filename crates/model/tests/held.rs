//! Wherever weights lie, and however little of them is in memory at a time, the logits are the same
//! bytes.

mod support;

use std::sync::Arc;

use atta_model::{BoundTensor, Error, Executor, KvType, Model, Role, Share, oracle};
use atta_store::{Budget, ReadMethod, ResidencyBytes, ResidencyPolicy, Streamed};
use support::{Golden, append, bits, cpu, forward, golden, goldens_and_encoders};

fn holding(
    chunk_bytes: usize,
    pinned_bytes: u64,
    n_slots: usize,
    n_experts: usize,
) -> ResidencyPolicy {
    ResidencyPolicy {
        chunk_bytes: Some(chunk_bytes),
        pinned_bytes,
        n_slots,
        n_experts,
        n_moving: 0,
        method: None,
    }
}

fn held(g: &Golden, holding: &ResidencyPolicy, budget: &Budget) -> Arc<Model> {
    let files = g.files().unmapped(budget).unwrap();
    let source =
        |files, plan| Ok::<_, Error>(Box::new(Streamed::new(files, plan, holding, budget)?) as _);
    Arc::new(Model::with_source(g.model().spec().clone(), files, budget, source).unwrap())
}

#[test]
fn every_model_gives_the_same_bits_held_whole_in_part_or_not_at_all() {
    for g in goldens_and_encoders() {
        let expected = bits(&g.by_forward(&g.model()));
        let n_used = g
            .model()
            .spec()
            .layers
            .iter()
            .filter_map(|l| l.moe())
            .map(|m| m.n_used)
            .max()
            .unwrap_or(0);
        let nothing = holding(4096, 0, 2, n_used);
        for holding in [
            ResidencyPolicy::whole(),
            nothing,
            ResidencyPolicy {
                n_moving: 6,
                ..holding(10_000, 60_000, 3, n_used + 1)
            },
            holding(1 << 20, 1, 4, 64),
        ] {
            let model = held(&g, &holding, &Budget::unlimited());
            assert!(
                bits(&g.by_forward(&model)) == expected,
                "{} {holding:?}",
                g.name
            );
        }
    }
}

#[test]
fn neither_batches_nor_threads_nor_other_sequences_change_what_is_read() {
    for name in ["qwen2", "qwen3moe", "gemma2"] {
        let g = golden(name);
        let expected = forward(&g.model(), &g.tokens);
        let n_used = g
            .model()
            .spec()
            .layers
            .iter()
            .filter_map(|l| l.moe())
            .map(|m| m.n_used)
            .max()
            .unwrap_or(0);
        let model = held(&g, &holding(8192, 30_000, 2, n_used), &Budget::unlimited());
        for (n_threads, n_batch) in [(1, 1), (3, 7), (2, 64)] {
            let mut cpu = cpu(&model, n_threads, KvType::F32);
            let a = cpu.new_seq().unwrap();
            let b = cpu.new_seq().unwrap();
            let half = g.tokens.len() / 2;
            let mut got = append(&mut cpu, a, &g.tokens[..half], n_batch);
            append(&mut cpu, b, &g.tokens[3..9], 2);
            got.extend(append(&mut cpu, a, &g.tokens[half..], n_batch));
            assert!(
                bits(&got) == bits(&expected),
                "{name} {n_threads} {n_batch}"
            );
        }
    }
}

#[test]
fn two_executors_share_weights_that_are_read() {
    let g = golden("mixtral");
    let expected = bits(&g.by_forward(&g.model()));
    let n_used = g.model().spec().layers[0].moe().unwrap().n_used;
    let model = held(&g, &holding(4096, 20_000, 2, n_used), &Budget::unlimited());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!(bits(&g.by_forward(&model)) == expected));
        }
    });
}

#[test]
fn the_oracle_reads_chunks_too() {
    let g = golden("qwen2moe");
    let model = held(&g, &holding(4096, 0, 2, 64), &Budget::unlimited());
    assert!(
        oracle::logits(&model, &g.tokens).unwrap()
            == oracle::logits(&g.model(), &g.tokens).unwrap()
    );
}

#[test]
fn what_is_held_counts_in_the_budget_and_does_not_exceed_it() {
    let g = golden("qwen2");
    let budget = Budget::unlimited();
    let model = held(&g, &ResidencyPolicy::whole(), &budget);
    let item = |name| {
        budget
            .items()
            .iter()
            .find(|item| item.name == name)
            .map(|item| item.bytes)
    };
    assert!(
        item("pinned weights") > Some(100_000) && item("metadata") > Some(1000),
        "{:?}",
        budget.items()
    );
    assert_eq!(model.weights().io().pass_bytes, 0);
    drop(model);
    assert!(budget.items().is_empty());

    let budget = Budget::limited(50_000);
    let files = g.files().unmapped(&budget).unwrap();
    let source = |files, plan| {
        Ok::<_, Error>(Box::new(Streamed::new(
            files,
            plan,
            &ResidencyPolicy::whole(),
            &budget,
        )?) as _)
    };
    let refused = Model::with_source(g.model().spec().clone(), files, &budget, source)
        .err()
        .unwrap();
    assert!(
        matches!(
            refused,
            Error::Store(atta_store::Error::OverBudget {
                what: "pinned weights",
                ..
            })
        ),
        "{refused}"
    );
}

#[test]
fn every_way_to_read_that_works_here_reads_the_same() {
    let g = golden("qwen2");
    let expected = bits(&g.by_forward(&g.model()));
    let budget = Budget::unlimited();
    let mut n_working = 0;
    for method in ReadMethod::ALL {
        let holding = ResidencyPolicy {
            method: Some(method),
            ..holding(8192, 20_000, 2, 0)
        };
        let files = g.files().unmapped(&budget).unwrap();
        let source = |files, plan| {
            Ok::<_, Error>(Box::new(Streamed::new(files, plan, &holding, &budget)?) as _)
        };
        if let Ok(model) = Model::with_source(g.model().spec().clone(), files, &budget, source) {
            n_working += 1;
            assert!(
                bits(&forward(&Arc::new(model), &g.tokens)) == expected,
                "{method:?}"
            );
        }
    }
    // Reading through the page cache works everywhere.
    assert!(n_working >= 1);
}

#[test]
fn a_part_of_a_model_has_and_counts_its_own_layers_only() {
    for g in goldens_and_encoders()
        .into_iter()
        .filter(Golden::is_separable)
    {
        let spec = g.model().spec().clone();
        let n = spec.layers.len();
        // The bytes that are held of it, of all of its chunks, and of its matrices.
        let measured = |share: Share| {
            let budget = Budget::unlimited();
            let holding = ResidencyPolicy::whole();
            let mut sizes = ResidencyBytes::default();
            let source = |files, plan| {
                sizes = ResidencyBytes::of(&plan, &holding);
                Ok::<_, Error>(Box::new(Streamed::new(files, plan, &holding, &budget)?) as _)
            };
            let files = g.files().unmapped(&budget).unwrap();
            let before = budget.used();
            let model = Model::with_share(spec.clone(), share, files, &budget, source).unwrap();
            (budget.used() - before, sizes.all, model)
        };
        let (held, all, whole) = measured(Share::whole(&spec));
        let parts = [0..1, 1..n].map(|layers| measured(Share::of_layers(&spec, layers)));
        let tied = match whole.tensor(Role::Output, None) {
            Some(_) => 0,
            None => {
                let Some(BoundTensor::Matrix { table, .. }) = whole.tensor(Role::TokenEmbd, None)
                else {
                    panic!()
                };
                table.extent.bytes
            }
        };
        // A table that is head and embedding is there twice; rows of it may be held in larger
        // chunks.
        let both = parts.iter().map(|(_, all, _)| all).sum::<u64>();
        assert!(
            both == all || (tied > 0 && (all + tied..all + 2 * tied).contains(&both)),
            "{}: {both}, {all}",
            g.name
        );
        assert!(parts.iter().all(|(part, ..)| *part < held), "{}", g.name);
        for (l, there) in [(0, 0), (n - 1, 1)] {
            let norm = |model: &Model| {
                model
                    .tensor(Role::FfnDown, Some(l))
                    .or(model.tensor(Role::FfnDownExps, Some(l)))
                    .or(model.tensor(Role::SsmOut, Some(l)))
                    .is_some()
            };
            assert!(
                norm(&whole) && norm(&parts[there].2) && (n == 1 || !norm(&parts[1 - there].2)),
                "{}",
                g.name
            );
        }
        assert!(
            parts[0].2.tensor(Role::OutputNorm, None).is_none(),
            "{}",
            g.name
        );
    }
}
