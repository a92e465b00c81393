//! Arbitrary bytes as a LoRA adapter of a tiny model: it is refused, or two tokens are evaluated
//! with it, whatever its numbers.
#![no_main]

use std::{num::NonZeroUsize, path::Path, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Adapter, AdapterScale, AdapterSet, Batch, Cpu, Executor, ExecutorSize, Model, Output, Want,
};
use atta_store::{Budget, ModelFiles, ModelSource};
use libfuzzer_sys::fuzz_target;

/// Memory for the adapter, and for the executor.
const BUDGET_BYTES: u64 = 16 << 20;

fn base() -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/models/qwen2.gguf");
    let files = ModelFiles::open(&path).expect("a golden file");
    Model::load(files, &Budget::unlimited()).expect("a golden model")
}

fn run(model: Model, adapter: Adapter) {
    let model = Arc::new(model.with_adapters(vec![adapter]));
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let size = ExecutorSize {
        n_ctx: 8,
        n_seqs: 1,
        n_batch: 4,
        ..ExecutorSize::default()
    };
    let budget = Budget::limited(BUDGET_BYTES);
    let Ok(mut cpu) = Cpu::new(model, Kernels::detect(), pool, &budget, size) else {
        return;
    };
    let seq = cpu.new_seq().expect("the first sequence");
    let mut set = AdapterSet::EMPTY;
    let first = AdapterScale {
        adapter: 0,
        scale: 0.5,
    };
    set.push(first).expect("one adapter");
    let mut batch = Batch::default();
    for (pos, id) in [1, 5].into_iter().enumerate() {
        batch.push_token(seq, pos, id, Want::Logits);
        batch.set_adapters(set);
    }
    cpu.step(&batch, &mut Output::default()).expect("rows that fit");
}

fuzz_target!(|file: &[u8]| {
    let source = ModelSource {
        name: "adapter".to_owned(),
        bytes: Arc::new(file.to_vec()),
    };
    let Ok(files) = ModelFiles::from_sources(vec![source], &Budget::unlimited()) else {
        return;
    };
    let model = base();
    let budget = Budget::limited(BUDGET_BYTES);
    if let Ok(adapter) = Adapter::load(model.spec(), "qwen2", &files, &budget) {
        run(model, adapter);
    }
});
