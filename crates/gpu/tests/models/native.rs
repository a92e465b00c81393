//! The tests, and the drivers that they run on.

mod adapters;
mod bits;
mod host;
mod states;

use atta_formats::Directory;
use atta_gpu::{GpuBackend, GpuPlan, GpuShare, GpuWish, NativeHost, OpenGpu, Opener, SharedHost};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Batch, CpuBackend, Error as ModelError, Executor, ExecutorSize, KvType, Model, Output,
    SeqId, Want,
};
use atta_store::Budget;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;

/// A test of a host.
struct Test {
    name: &'static str,
    run: fn(&SharedHost),
}

const TESTS: [Test; 22] = [
    Test {
        name: "every golden has the CPU's logits, cut at every layer",
        run: bits::all_goldens,
    },
    Test {
        name: "quantized models have the CPU's logits",
        run: bits::quantized,
    },
    Test {
        name: "heads with a mean row apart have the CPU's logits",
        run: bits::means,
    },
    Test {
        name: "adapters of some rows have the CPU's logits",
        run: adapters::rows,
    },
    Test {
        name: "a device that is lost beside adapters changes no bit",
        run: adapters::loss,
    },
    Test {
        name: "batches and chunks change no bit",
        run: bits::chunks,
    },
    Test {
        name: "neighbours change no bit",
        run: bits::neighbours,
    },
    Test {
        name: "weights in many buffers, and rows in slices, have the CPU's logits",
        run: host::small_buffers,
    },
    Test {
        name: "experts of a layer in several buffers have the CPU's logits",
        run: host::divided_experts,
    },
    Test {
        name: "a step is one submission and one wait, and a second executor compiles nothing",
        run: host::counters,
    },
    Test {
        name: "tokens are recorded while the one before is computed",
        run: host::ahead,
    },
    Test {
        name: "a second engine of a process opens and compiles nothing, and shares the memory",
        run: host::sharing,
    },
    Test {
        name: "a trial tells the speed of both, and that bits are equal",
        run: host::trials,
    },
    Test {
        name: "a device that is lost at any call of a text changes no bit of it",
        run: host::losses,
    },
    Test {
        name: "nor does one that is destroyed",
        run: host::destruction,
    },
    Test {
        name: "nor does one that is lost for good, whose layers the CPU takes over",
        run: host::fallback,
    },
    Test {
        name: "nor does one that is lost twice",
        run: host::second_loss,
    },
    Test {
        name: "forks and truncations are those of the CPU",
        run: states::forks,
    },
    Test {
        name: "states of recurrent layers fork, and texts return to them, as on the CPU",
        run: states::recurrent_forks,
    },
    Test {
        name: "shifts and moves are those of the CPU",
        run: states::shifts,
    },
    Test {
        name: "positions of no text are those of the CPU",
        run: states::fills,
    },
    Test {
        name: "states move between the CPU and the GPU",
        run: states::moves,
    },
];

pub(crate) fn main() -> ExitCode {
    let adapters = NativeHost::adapters();
    let n_required = std::env::var("ATTA_REQUIRE_GPU").map_or(0, |n| n.parse().unwrap_or(1));
    if adapters.len() < n_required {
        println!("FAILED: {} GPUs, {n_required} are required", adapters.len());
        return ExitCode::FAILURE;
    }
    if adapters.is_empty() {
        println!("no driver of a GPU: {} tests skipped", TESTS.len());
    }
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for index in 0..adapters.len() {
        let host = SharedHost::new(NativeHost::open(index).unwrap());
        println!("\n{:?}", host.info());
        for test in TESTS.iter().filter(|test| test.name.contains(&wanted)) {
            let start = std::time::Instant::now();
            (test.run)(&host);
            println!("{} … ok ({} ms)", test.name, start.elapsed().as_millis());
        }
    }
    ExitCode::SUCCESS
}

/// The plain instruction set, whose sums of floats are those of the kernels.
fn plain() -> Kernels {
    Kernels::named("scalar").unwrap()
}

fn size(kv: KvType) -> ExecutorSize {
    ExecutorSize {
        n_ctx: 128,
        n_seqs: 4,
        n_batch: 96,
        kv,
        ..ExecutorSize::default()
    }
}

fn pool() -> Arc<Pool> {
    Arc::new(Pool::new(NonZeroUsize::MIN))
}

fn cpu(model: &Arc<Model>, size: &ExecutorSize) -> Box<dyn Executor> {
    let model = Arc::clone(model);
    CpuBackend::new(plain(), pool())
        .open(model, size, &Budget::unlimited())
        .unwrap()
}

/// An executor whose last `n_layers` layers are on the GPU.
fn gpu(
    host: &SharedHost,
    model: &Arc<Model>,
    n_layers: usize,
    size: &ExecutorSize,
) -> Box<dyn Executor> {
    let host = host.clone();
    gpu_by(Box::new(move || Ok(opened(&host))), model, n_layers, size)
}

/// A host with all of its memory.
fn opened(host: &SharedHost) -> OpenGpu {
    OpenGpu {
        host: host.clone(),
        budget: Budget::unlimited(),
    }
}

/// The same on a GPU that `open` opens, again and again, and that is never given up.
fn gpu_by(
    open: Opener,
    model: &Arc<Model>,
    n_layers: usize,
    size: &ExecutorSize,
) -> Box<dyn Executor> {
    let backend = backend(open, model, n_layers, size, |loss| panic!("{loss}"));
    let opened = backend.open(Arc::clone(model), size, &Budget::unlimited());
    opened.unwrap_or_else(|error| panic!("{n_layers} layers: {error}"))
}

/// A backend with the last `n_layers` layers on a GPU.
fn backend(
    open: Opener,
    model: &Arc<Model>,
    n_layers: usize,
    size: &ExecutorSize,
    on_fallback: impl Fn(&ModelError) + Send + Sync + 'static,
) -> GpuBackend {
    let wish = GpuWish {
        n_layers: Some(n_layers),
        max_bytes: None,
    };
    let share = GpuShare { n_layers };
    let plan = GpuPlan::of(model.spec(), directory(model), &wish, size);
    let plan = plan.unwrap_or_else(|error| panic!("{share:?}: {error}"));
    GpuBackend::new(open, plain(), pool(), plan, Box::new(on_fallback)).unwrap()
}

fn directory(model: &Model) -> &Directory {
    model.weights().files().directory()
}

/// Why GPUs cannot run a model whole.
fn lacks(model: &Model, kv: KvType) -> Option<String> {
    lacks_in(model, model.spec().layers.len(), kv)
}

/// Why GPUs cannot run the last layers of a model.
fn lacks_in(model: &Model, n_layers: usize, kv: KvType) -> Option<String> {
    let share = GpuShare { n_layers };
    let checked = share.check(model.spec(), kv, directory(model));
    checked.err().map(|error| error.to_string())
}

/// Appends tokens in chunks; the bits of the logits of all of them.
fn append(executor: &mut dyn Executor, seq: SeqId, ids: &[u32], n_batch: usize) -> Vec<u32> {
    let mut batch = Batch::default();
    let mut out = Output::default();
    let mut logits = Vec::new();
    for chunk in ids.chunks(n_batch) {
        batch.clear();
        let pos = executor.seqs().len(seq).unwrap();
        let rows = chunk.iter().zip(pos..);
        rows.for_each(|(&id, pos)| batch.push_token(seq, pos, id, Want::Logits));
        executor.step(&batch, &mut out).unwrap();
        (0..chunk.len()).for_each(|i| logits.extend(crate::support::bits(out.logits(i))));
    }
    logits
}

/// The bits of the logits of tokens in a sequence of their own.
fn logits(executor: &mut dyn Executor, ids: &[u32], n_batch: usize) -> Vec<u32> {
    let seq = executor.new_seq().unwrap();
    let logits = append(executor, seq, ids, n_batch);
    executor.drop_seq(seq).unwrap();
    logits
}

/// Fails with the first element that differs.
fn same(what: &str, got: &[u32], expected: &[u32]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let mut pairs = got.iter().zip(expected).enumerate();
    if let Some((at, (got, expected))) = pairs.find(|(_, (got, expected))| got != expected) {
        panic!("{what}: logit {at} is {got:#010x}, expected {expected:#010x}");
    }
}
