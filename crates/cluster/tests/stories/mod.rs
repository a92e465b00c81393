//! What tests of rings of machines share: a small trained model, and texts of it.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use atta_cluster::{
    PartLinks, RemoteRing,
    control::NodeName,
    node::{LibraryModels, Models},
    part::{Library, LibraryOptions},
};
use atta_engine::{
    Batcher, BatcherOptions, Engine, Event as TextEvent, GenerateOptions, Job, JobId, LoadOptions,
    Sampling, SessionOptions, Update,
};
use atta_kernels::Pool;
use atta_model::Backend;

/// Positions.
pub(crate) const N_CTX: usize = 128;
/// The longest wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The model.
pub(crate) fn path() -> PathBuf {
    directory().join("stories.gguf")
}

/// Where it lies.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// The models in a directory, for a node that keeps no parts.
pub(crate) fn models(directory: PathBuf, links: Arc<dyn PartLinks>) -> Arc<dyn Models> {
    let hashes = format!("atta-test-hashes-{}", std::process::id());
    let library = Library::new(LibraryOptions {
        models: vec![directory],
        parts: None,
        hashes: std::env::temp_dir().join(hashes),
    });
    Arc::new(LibraryModels::new(Arc::new(library), links))
}

/// The name of a node.
pub(crate) fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// One thread.
pub(crate) fn pool() -> Arc<Pool> {
    Arc::new(Pool::new(NonZeroUsize::MIN))
}

/// The model here, or on a ring.
pub(crate) fn engine(ring: Option<RemoteRing>) -> Engine {
    let backend = ring.map(|ring| Arc::new(ring) as Arc<dyn Backend>);
    let options = LoadOptions {
        backend,
        session: session(),
        ..LoadOptions::default()
    };
    Engine::open(&path(), &options).unwrap()
}

/// A short context.
pub(crate) fn session() -> SessionOptions {
    SessionOptions {
        n_ctx: Some(N_CTX),
        ..SessionOptions::default()
    }
}

/// Text `i`, every other one sampled.
pub(crate) fn options(i: usize) -> GenerateOptions {
    GenerateOptions {
        n_predict: 12 + 4 * i,
        sampling: Sampling {
            seed: i as u64,
            temperature: if i.is_multiple_of(2) { 0.0 } else { 1.0 },
            ..Sampling::default()
        },
        ..GenerateOptions::default()
    }
}

/// Text `i` by a session of its own.
pub(crate) fn text(engine: &Engine, i: usize) -> String {
    let mut session = engine.session(&session()).unwrap();
    let prompt = engine.prompt_ids(b"Once upon a time");
    let generation = session.generate(&prompt, &options(i)).unwrap();
    let mut text = String::new();
    generation
        .run(|event| {
            if let TextEvent::Text(piece) = event {
                text.push_str(&piece);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    text
}

/// Four texts by a batcher with room for two at once.
pub(crate) fn together(engine: &Engine) -> Vec<String> {
    together_with(engine, |_| {})
}

/// The same, and a call with the number of every piece of text.
pub(crate) fn together_with(engine: &Engine, mut on: impl FnMut(usize)) -> Vec<String> {
    let mut n_pieces = 0;
    let batcher = BatcherOptions {
        session: SessionOptions {
            n_batch: Some(16),
            n_forks: 2,
            ..session()
        },
        n_jobs: 2,
        max_gap: Duration::from_millis(5),
        cache: None,
    };
    let mut batcher = Batcher::new(engine, &batcher).unwrap();
    let prompt = engine.prompt_ids(b"Once upon a time");
    let jobs: Vec<JobId> = (0..4)
        .map(|i| batcher.submit(Job::new(engine, prompt.clone(), &options(i)).unwrap()))
        .collect::<Result<_, _>>()
        .unwrap();
    let mut texts: HashMap<JobId, String> = HashMap::new();
    while !batcher.is_idle() {
        let mut on = |id, update: Update| {
            match update {
                Update::Event(TextEvent::Text(piece)) => {
                    texts.entry(id).or_default().push_str(&piece);
                    n_pieces += 1;
                    on(n_pieces);
                }
                Update::Failed(error) => panic!("{error}"),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        batcher.step(&mut on).unwrap();
    }
    jobs.iter().map(|id| texts.remove(id).unwrap()).collect()
}

/// Layers of the model.
pub(crate) fn n_layers() -> usize {
    engine(None).spec().layers.len()
}

/// Waits until something is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
