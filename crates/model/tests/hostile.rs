//! Every key that an architecture reads, with every kind of value: an error, or a model that
//! evaluates three tokens in little memory.

mod support;

use std::{alloc::System, collections::BTreeSet, fs, path::Path, sync::Arc};

use atta_formats::{Metadata, Writer};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Batch, Cpu, Error, Executor, ExecutorSize, Model, Output, Want, arch,
    spec::{ModelSpec, Outputs},
};
use atta_store::Budget;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use support::{Golden, goldens_and_encoders};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What one file may allocate, all allocations together.
const MAX_BYTES: usize = 128 << 20;

/// What a file says of a key.
type Change = Box<dyn Fn(&mut Writer, &str)>;

/// Numbers at the bounds of the accepted ranges.
fn numbers() -> Vec<Change> {
    let counts = [0, 1, 2, 3, 4, 7, 64, 65, 4096, 1 << 24, 1 << 25, u32::MAX];
    let mut changes: Vec<Change> = Vec::new();
    for n in counts {
        changes.push(Box::new(move |w, key| w.set_u32(key, n)));
    }
    for is_so in [true, false] {
        changes.push(Box::new(move |w, key| w.set_bool(key, is_so)));
    }
    changes.push(Box::new(Writer::remove));
    changes.push(Box::new(|w, key| w.set_u64(key, u64::MAX)));
    changes.push(Box::new(|w, key| w.set_i32(key, -1)));
    changes
}

fn floats() -> impl Iterator<Item = Change> {
    let floats = [0.0, -1.0, 1e-45, 0.5, 3e38, f32::NAN, f32::INFINITY];
    let set = |x: f32| -> Change { Box::new(move |w, key| w.set_f32(key, x)) };
    floats.into_iter().map(set)
}

/// Lists that are too short, too long, or of odd values.
fn lists(n_layers: usize) -> Vec<Change> {
    let lengths = [0, 1, n_layers - 1, n_layers, n_layers + 1, 1000];
    let mut changes: Vec<Change> = lengths.into_iter().flat_map(lists_of).collect();
    // One layer unlike the others.
    changes.push(Box::new(move |w, key| {
        let mixed: Vec<i32> = (0..n_layers).map(|l| i32::from(l > 0)).collect();
        w.set_i32s(key, &mixed);
    }));
    changes
}

fn lists_of(n: usize) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for value in [0, 1, 2, 1 << 24, i32::MAX, -1] {
        changes.push(Box::new(move |w, key| w.set_i32s(key, &vec![value; n])));
    }
    for value in [0.0, 0.5, f32::NAN] {
        changes.push(Box::new(move |w, key| w.set_f32s(key, &vec![value; n])));
    }
    for value in [true, false] {
        changes.push(Box::new(move |w, key| w.set_bools(key, &vec![value; n])));
    }
    changes
}

/// Texts in the code of the architectures that may be keys, so that no list of keys can lack one.
fn keys() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/arch");
    let files = fs::read_dir(folder).unwrap();
    let sources = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let mut keys = BTreeSet::new();
    for source in sources {
        let texts = source.split('"').filter(|text| is_key(text));
        keys.extend(texts.map(str::to_owned));
    }
    keys
}

fn is_key(text: &str) -> bool {
    let is_in_key = |c: char| c.is_ascii_lowercase() || "._".contains(c) || c.is_ascii_digit();
    !text.is_empty() && text.chars().all(is_in_key)
}

/// The full names of the keys that matter to a model: those whose removal or a text in their place
/// changes it or is an error.
fn keys_read(g: &Golden, keys: &BTreeSet<String>) -> Vec<String> {
    let own = g.model().spec().clone();
    let full = keys.iter().map(|key| match key.starts_with("xielu.") {
        true => key.clone(),
        false => format!("{}.{key}", g.arch),
    });
    let is_read = |key: &String| {
        let set = |w: &mut Writer| w.set_strs(key, &["?"]);
        arch::lower(&g.metadata("", set)).ok() != Some(own.clone())
    };
    full.filter(is_read).collect()
}

struct Case<'a> {
    golden: &'a Golden,
    own: ModelSpec,
    pool: Arc<Pool>,
}

impl Case<'_> {
    /// The model of such metadata and the tensors of the golden file.
    fn run(&self, metadata: &Metadata) -> Result<(), Error> {
        let spec = arch::lower(metadata)?;
        if spec == self.own {
            return Ok(());
        }
        let budget = Budget::limited(MAX_BYTES as u64);
        let model = Model::with_spec(spec, self.golden.files(), &budget)?;
        self.evaluate(Arc::new(model), &budget)
    }

    fn evaluate(&self, model: Arc<Model>, budget: &Budget) -> Result<(), Error> {
        let size = ExecutorSize {
            n_ctx: 32,
            n_batch: 4,
            ..ExecutorSize::default()
        };
        let want = match model.spec().head.outputs {
            Outputs::Logits => Want::Logits,
            _ => Want::Hidden,
        };
        let pool = Arc::clone(&self.pool);
        let mut cpu = Cpu::new(model, Kernels::detect(), pool, budget, size)?;
        let seq = cpu.new_seq()?;
        let mut batch = Batch::default();
        let first = self.golden.tokens.iter().take(3).enumerate();
        first.for_each(|(pos, &id)| batch.push_token(seq, pos, id, want));
        cpu.step(&batch, &mut Output::default())
    }

    fn check(&self, key: &str, change: &Change) {
        let metadata = self.golden.metadata("", |w| change(w, key));
        let before = ALLOCATOR.stats().bytes_allocated;
        let done = self.run(&metadata);
        // The counter wraps where words have 32 bits.
        let n_bytes = ALLOCATOR.stats().bytes_allocated.wrapping_sub(before);
        let name = &self.golden.name;
        assert!(
            n_bytes < MAX_BYTES,
            "{name}: {key}: {n_bytes} bytes, {done:?}"
        );
    }
}

/// One test, because the allocator counts for all threads.
#[test]
fn every_value_of_every_key_is_an_error_or_a_model() {
    let keys = keys();
    let numbers: Vec<Change> = numbers().into_iter().chain(floats()).collect();
    let mut seen = BTreeSet::new();
    for golden in goldens_and_encoders() {
        seen.insert(golden.arch.clone());
        let own = golden.model().spec().clone();
        let lists = lists(own.layers.len());
        let case = Case {
            golden: &golden,
            own,
            pool: Arc::new(Pool::new(std::num::NonZeroUsize::MIN)),
        };
        for key in keys_read(&golden, &keys) {
            let changes = numbers.iter().chain(&lists);
            changes.for_each(|change| case.check(&key, change));
        }
    }
    assert!(arch::REGISTRY.iter().all(|row| seen.contains(row.name)));
}
