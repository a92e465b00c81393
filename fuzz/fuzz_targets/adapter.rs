//! Arbitrary bytes as a LoRA adapter of a tiny model: it is refused, or two tokens are evaluated
//! with it, whatever its numbers.
#![no_main]

use std::{io, num::NonZeroUsize, path::Path, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Adapter, AdapterScale, AdapterSet, Batch, Cpu, Executor, ExecutorSize, Model, Output, Want,
};
use atta_store::{Budget, ModelFiles, ModelSource, ReadAt};
use libfuzzer_sys::fuzz_target;

/// Memory for the adapter, and for the executor.
const BUDGET_BYTES: u64 = 16 << 20;

struct Bytes(Vec<u8>);

impl ReadAt for Bytes {
    fn n_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let found = start.and_then(|start| self.0.get(start..)?.get(..buf.len()));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.0)
    }
}

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
        bytes: Arc::new(Bytes(file.to_vec())),
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
