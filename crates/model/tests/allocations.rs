//! A step allocates nothing once its buffers are there: neither on the caller's thread nor on a worker's.

mod support;

use std::alloc::System;

use atta_model::{Batch, Executor, KvType, Output, Want};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{cpu, goldens};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_step_allocates_nothing_after_warm_up() {
    for g in goldens() {
        let mut cpu = cpu(&g.model(), 2, KvType::F16);
        let seq = cpu.new_seq().unwrap();
        let (mut batch, mut out) = (Batch::default(), Output::default());
        let mut step = |cpu: &mut atta_model::Cpu, n_rows: usize| {
            batch.clear();
            let pos = cpu.len(seq).unwrap();
            (0..n_rows).for_each(|i| batch.push_token(seq, pos + i, g.tokens[i], Want::Logits));
            cpu.step(&batch, &mut out).unwrap();
        };
        (0..3).for_each(|_| step(&mut cpu, 4));
        let region = Region::new(ALLOCATOR);
        // Past the end of a block, so that a new one is taken on the way.
        (0..40).for_each(|i| step(&mut cpu, 1 + i % 4));
        let change = region.change();
        assert_eq!((change.allocations, change.reallocations), (0, 0), "{}: {change:?}", g.name);
    }
}
