//! A plan names what an engine takes.

use std::{num::NonZeroUsize, path::Path};

use atta_engine::{
    BudgetItem, Engine, LoadOptions, MemoryPlan, SessionOptions, Threads, WeightsAt,
};

fn options(weights: WeightsAt) -> LoadOptions {
    let session = SessionOptions {
        n_ctx: Some(64),
        ..SessionOptions::default()
    };
    let threads = Threads::Count(NonZeroUsize::new(2).unwrap());
    LoadOptions {
        threads,
        weights: Some(weights),
        ram_budget: Some(64 << 20),
        session,
        ..LoadOptions::default()
    }
}

/// Without what depends on the moment, and what only a generation takes.
fn lasting(items: Vec<BudgetItem>) -> Vec<BudgetItem> {
    let is_lasting = |item: &BudgetItem| {
        item.bytes > 0 && !["program and stacks", "sampler"].contains(&item.name)
    };
    items.into_iter().filter(is_lasting).collect()
}

#[test]
fn a_plan_is_what_an_engine_and_its_session_take() {
    for name in ["llama-plain.gguf", "mixtral.gguf"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/golden/models")
            .join(name);
        for weights in [WeightsAt::Mapped, WeightsAt::Resident, WeightsAt::Streamed] {
            let options = options(weights);
            let plan = MemoryPlan::of(&path, &options).unwrap();
            let engine = Engine::open(&path, &options).unwrap();
            let _session = engine.session(&options.session).unwrap();
            assert_eq!(
                lasting(plan.items.clone()),
                lasting(engine.budget().items()),
                "{name} {weights:?}"
            );
            assert_eq!(plan.token_bytes, engine.model().matmul_cost().bytes);
            assert_eq!(
                (plan.mapped_bytes > 0, plan.n_ctx),
                (weights == WeightsAt::Mapped, 64)
            );
            let read = engine
                .prediction()
                .map_or(0.0, |prediction| prediction.read_bytes);
            assert_eq!(plan.read_bytes, read, "{name} {weights:?}");
            assert!(plan.private_bytes() <= plan.limit_bytes);
        }
    }
}

#[test]
fn a_budget_that_is_too_small_is_refused_as_it_is_by_an_engine() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models/llama-plain.gguf");
    let options = LoadOptions {
        ram_budget: Some(1 << 20),
        ..options(WeightsAt::Mapped)
    };
    let error = MemoryPlan::of(&path, &options).unwrap_err().to_string();
    assert!(
        error.starts_with("not enough memory: this needs at least "),
        "{error}"
    );
}
