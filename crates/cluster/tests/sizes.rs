//! The planner's sizes of real models: their bytes, and the places where rings may cut them.

#[allow(dead_code, reason = "shared with other tests")]
mod machines;
#[allow(dead_code, reason = "shared with other tests")]
mod stories;

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use atta_cluster::{
    Cut, JournalOptions, RemoteRing, RemoteRingOptions, RingBackend, RingPlan, model_sizes,
    plan::{
        LinkMeasure, Measures, ModelSizes, NodeMeasure, NodeSpeed, Objective, PlanRequest, plan,
    },
    wire::Dtype,
};
use atta_kernels::{Kernels, Pool};
use atta_model::{Backend, Cpu, ExecutorSize, Footprint, Model, arch, spec::ModelSpec};
use atta_store::{Budget, ModelFiles};
use machines::{Cluster, tls};

fn goldens() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models");
    let files = fs::read_dir(directory).unwrap().map(|f| f.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    files.sort();
    assert!(files.len() > 50);
    files
}

fn open(path: &Path, size: &ExecutorSize) -> (ModelSpec, ModelFiles, ModelSizes) {
    let files = ModelFiles::open(path).unwrap();
    let spec = arch::lower(files.directory().metadata()).unwrap();
    let sizes = model_sizes(&spec, &files, size).unwrap();
    (spec, files, sizes)
}

fn size() -> ExecutorSize {
    ExecutorSize {
        n_ctx: 32,
        n_batch: 8,
        ..ExecutorSize::default()
    }
}

#[test]
fn a_model_may_be_cut_where_rings_accept_the_cut() {
    let one = NonZeroUsize::MIN;
    let pool = Arc::new(Pool::new(one));
    let mut n_refused = 0;
    let mut n_accepted = 0;
    for path in goldens() {
        let (spec, files, sizes) = open(&path, &size());
        let model = Arc::new(Model::load(files, &Budget::unlimited()).unwrap());
        let n = spec.layers.len();
        for l in 0..n {
            let cut = Cut::At(RingPlan {
                n_local: l,
                stages: std::iter::once(l..n).collect(),
            });
            let backend = RingBackend::new(Kernels::detect(), Arc::clone(&pool), one, cut);
            let opened = backend.open(Arc::clone(&model), &size(), &Budget::unlimited());
            let accepted = opened.is_ok();
            let file = path.display();
            assert_eq!(sizes.layers[l].may_cut_before, accepted, "{file}: {l}");
            n_accepted += usize::from(accepted);
            n_refused += usize::from(!accepted);
        }
    }
    assert!(
        n_accepted > 100 && n_refused > 10,
        "{n_accepted} {n_refused}"
    );
}

#[test]
fn keys_values_and_states_are_those_that_an_executor_holds() {
    let size = ExecutorSize {
        n_ctx: 4096,
        n_batch: 32,
        n_checkpoints: 3,
        ..ExecutorSize::default()
    };
    for path in goldens() {
        let (spec, _, sizes) = open(&path, &size);
        if spec.is_encoder() {
            continue;
        }
        let held = |window: Option<u64>| window.map_or(4096, |w| (w + 32 + 32).min(4096));
        let of_layers = sizes.layers.iter().map(|layer| {
            layer.kv_bytes * held(layer.window) + layer.state_bytes * (sizes.n_states + 1)
        });
        let planned: u64 = of_layers.sum();
        let bytes = Cpu::executor_bytes(&spec, 4, &size);
        // Blocks of a group have the window of all of its layers, and whole blocks.
        let most = bytes.state + bytes.state / 20 + 4096;
        let least = bytes.state - bytes.state / 4;
        let file = path.display();
        assert!(
            (least..=most).contains(&planned),
            "{file}: {planned} of {bytes:?}"
        );
        let rows = sizes.scratch_row_bytes * 32 + sizes.fixed_bytes;
        assert!(rows >= bytes.activations, "{file}: {rows} of {bytes:?}");
    }
}

#[test]
fn a_coordinator_takes_the_memory_that_its_plan_says() {
    let cluster = Cluster::new(1, tls);
    let size = ExecutorSize {
        n_ctx: 1024,
        n_batch: 32,
        ..ExecutorSize::default()
    };
    let mut n = 0;
    for path in goldens() {
        let (spec, _, sizes) = open(&path, &size);
        let planned = plan(&sizes, &two_machines(), &request(&size));
        let Ok(plan) = planned else { continue };
        let n_local = plan.stages[0].layers.len();
        let ring = RemoteRing::new(RemoteRingOptions {
            plan: cluster.plan(n_local, &[(0, n_local..spec.layers.len())]),
            ..cluster.options(1, &[])
        });
        ring.journal_in(JournalOptions {
            dir: std::env::temp_dir(),
            budget_bytes: 0,
            segment_len: JournalOptions::SEGMENT_LEN,
            is_continuous: false,
        });
        let bytes = ring.executor_bytes(&spec, &size);
        let taken = bytes.state + bytes.activations;
        let load = &plan.loads[0];
        let planned = load.ram_bytes - load.resident_bytes - (12 << 20);
        let file = path.display();
        assert!(planned >= taken, "{file}: {planned} of {taken}");
        let most = taken + taken / 4 + (1 << 20);
        assert!(planned <= most, "{file}: {planned} of {taken}");
        n += 1;
    }
    assert!(n > 30, "{n} models in rings");
}

/// Two machines with all memory.
fn two_machines() -> Measures {
    let node = |name: &str| NodeMeasure {
        name: name.to_owned(),
        ram_bytes: 1 << 40,
        speed: NodeSpeed::Rates {
            read_bytes_per_s: 1e10,
            macs_per_s: 1e11,
        },
        disk_bytes_per_s: 0.0,
    };
    let link = LinkMeasure {
        rtt_p50: Duration::from_micros(100),
        rtt_p90: Duration::from_micros(100),
        bytes_per_s: 1e8,
    };
    Measures {
        nodes: vec![node("lap"), node("pi1")],
        links: [((0, 1), link)].into(),
    }
}

/// A ring of both, whatever is faster.
fn request(size: &ExecutorSize) -> PlanRequest {
    PlanRequest {
        objective: Objective::Latency,
        n_ctx: size.n_ctx as u64,
        n_seqs: 1,
        n_shared: None,
        n_past: 0,
        n_prompt: 64,
        n_batch: size.n_batch as u64,
        lead_link_bytes: 0,
        stage_link_bytes: 0,
        wire: Dtype::F32,
        lead: Some(0),
        must_use: vec![1],
        max_rounds: 1,
    }
}

#[test]
fn a_tied_head_is_read_but_not_held_twice() {
    let mut n_tied = 0;
    for path in goldens() {
        let (_, files, sizes) = open(&path, &size());
        let is_tied = files.directory().tensor("output.weight").is_none();
        n_tied += usize::from(is_tied);
        let extra = sizes.head_read_bytes - sizes.head_bytes;
        assert_eq!(extra, if is_tied { sizes.embed_bytes } else { 0 });
    }
    assert!(n_tied > 0);
}
