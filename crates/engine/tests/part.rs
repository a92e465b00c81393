//! A backend that runs most layers elsewhere: the engine binds, counts and reads only the part that
//! this machine runs.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_engine::{Budget, Engine, LoadOptions, SessionOptions, WeightsAt};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, CpuBackend, Error, Executor, ExecutorBytes, ExecutorSize, Footprint, Model, Share,
    spec::ModelSpec,
};
use atta_store::ModelFiles;

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf")
}

/// Computes all layers of a model of its own, and calls the first one the part of this machine.
#[derive(Debug)]
struct Elsewhere {
    backend: CpuBackend,
    whole: Arc<Model>,
}

impl Elsewhere {
    fn new() -> Self {
        let files = ModelFiles::open(&path()).unwrap();
        let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
        Self {
            backend: CpuBackend::new(Kernels::detect(), pool),
            whole: Arc::new(Model::load(files, &Budget::unlimited()).unwrap()),
        }
    }
}

fn first_layer() -> Share {
    Share {
        layers: 0..1,
        embed: true,
        head: true,
    }
}

impl Footprint for Elsewhere {
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        self.backend.executor_bytes(spec, size)
    }

    fn part(&self, _: &ModelSpec) -> Share {
        first_layer()
    }
}

impl Backend for Elsewhere {
    fn open(
        &self,
        model: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, Error> {
        assert_eq!(*model.share(), first_layer());
        self.backend.open(Arc::clone(&self.whole), size, budget)
    }
}

fn engine(is_part: bool, weights: WeightsAt, ram_budget: Option<u64>) -> Engine {
    let elsewhere = || Arc::new(Elsewhere::new()) as Arc<dyn Backend>;
    let options = LoadOptions {
        backend: is_part.then(elsewhere),
        weights: Some(weights),
        prewarm: weights == WeightsAt::Mapped,
        ram_budget,
        session: session(),
        ..LoadOptions::default()
    };
    Engine::open(&path(), &options).unwrap()
}

fn session() -> SessionOptions {
    SessionOptions {
        n_ctx: Some(64),
        ..SessionOptions::default()
    }
}

fn logits(engine: &Engine) -> Vec<f32> {
    let mut session = engine.session(&session()).unwrap();
    session.append(&[1, 5, 2, 9]).unwrap();
    session.logits().unwrap().to_vec()
}

fn bytes_of(engine: &Engine, name: &str) -> u64 {
    let items = engine.budget().items();
    let items = items.iter().filter(|item| item.name == name);
    items.map(|item| item.bytes).sum()
}

#[test]
fn the_engine_keeps_only_the_part_of_this_machine() {
    for weights in [WeightsAt::Mapped, WeightsAt::Resident, WeightsAt::Streamed] {
        let [part, whole] = [true, false].map(|is_part| engine(is_part, weights, None));
        let costs = [&part, &whole].map(|engine| engine.model().matmul_cost().bytes);
        assert!(costs[0] < costs[1], "{costs:?}");
        let vectors = [&part, &whole].map(|engine| bytes_of(engine, "norms and biases"));
        assert!(vectors[0] < vectors[1], "{vectors:?}");
        let pinned = [&part, &whole].map(|engine| bytes_of(engine, "pinned weights"));
        assert_eq!(pinned[0] < pinned[1], weights != WeightsAt::Mapped);
        if weights == WeightsAt::Streamed {
            let speeds = [&part, &whole].map(|engine| engine.prediction().unwrap());
            assert!(speeds[0].decode_tok_s > 0.0 && speeds[1].decode_tok_s > 0.0);
            assert_eq!(part.predicted_tok_s(), None);
            assert_eq!(whole.predicted_tok_s(), Some(speeds[1].decode_tok_s));
        }
        assert_eq!(logits(&part), logits(&whole));
    }
}
