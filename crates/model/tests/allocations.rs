//! A step allocates nothing once its buffers are there: neither on the caller's thread nor on a
//! worker's.

mod support;

use std::{alloc::System, sync::Arc};

use atta_model::{Batch, Cpu, Executor, ExecutorSize, KvType, Model, Output, Want};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{
    cpu, cpu_with, goldens, hybrid::hybrids, quantized::Blocks, some_goldens, stories, tokens,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Takes steps of so many rows of one sequence, first those of the warm-up; fails if one of the
/// others allocates.
fn check(mut cpu: Cpu, tokens: &[u32], [warm_up, then]: [&[usize]; 2], name: &str) {
    let seq = cpu.new_seq().unwrap();
    let mut batch = Batch::default();
    let mut out = Output::default();
    let mut step = |n_rows: usize| {
        batch.clear();
        let pos = cpu.seqs().len(seq).unwrap();
        (0..n_rows).for_each(|i| {
            batch.push_token(seq, pos + i, tokens[(pos + i) % tokens.len()], Want::Logits)
        });
        cpu.step(&batch, &mut out).unwrap();
    };
    warm_up.iter().for_each(|&n_rows| step(n_rows));
    let region = Region::new(ALLOCATOR);
    then.iter().for_each(|&n_rows| step(n_rows));
    let change = region.change();
    assert_eq!(
        (change.allocations, change.reallocations),
        (0, 0),
        "{name}: {change:?}"
    );
}

/// Not one of libtest's tests: the allocator counts for all threads, and libtest's own allocates
/// when a test takes more than a minute, as it does where processors are emulated.
fn main() {
    // Past the end of a block, so that a new one is taken on the way.
    let few: Vec<usize> = (0..40).map(|i| 1 + i % 4).collect();
    for g in goldens().into_iter().chain(hybrids()) {
        check(
            cpu(&g.model(), 2, KvType::F16),
            &g.tokens,
            [&[4; 3], &few],
            &g.name,
        );
    }
    for (i, g) in some_goldens().into_iter().enumerate() {
        check_many(&g.quantized([Blocks::Of256, Blocks::Of32][i % 2]), &g.name);
    }
    check_many(&stories(), "stories");
}

/// Of many rows, which take other ways through the kernels than few.
fn check_many(model: &Arc<Model>, name: &str) {
    for kv in [KvType::F16, KvType::Q8] {
        let options = ExecutorSize {
            n_ctx: 512,
            n_batch: 64,
            kv,
            ..ExecutorSize::default()
        };
        let tokens = tokens(model, 512);
        check(
            cpu_with(model, 2, options),
            &tokens,
            [&[64], &[64, 1, 33, 5, 64, 2]],
            name,
        );
    }
}
