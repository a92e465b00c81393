//! Sessions, prompt cache and batcher on a model with recurrent layers, which return to checkpoints
//! instead of any position. The model is made here: no architecture has such layers yet.

use std::{
    collections::HashMap,
    fs,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use atta_model::{
    Backend, CpuBackend, Error as ModelError, Executor, ExecutorBytes, ExecutorSize, Footprint,
    Model, Observer, Phase,
    spec::{Mixer, ModelSpec, ShortConv},
};
use atta_store::{Budget, ModelFiles};

use crate::{
    Batcher, BatcherOptions, Engine, Event, GenerateOptions, Job, JobId, LoadOptions, Media,
    Overflow, PromptCache, Sampling, Session, SessionOptions, Text, Update,
};

use self::random_file::random_file;

#[path = "../../model/tests/support/random_file.rs"]
mod random_file;

const N_CTX: usize = 512;

/// Runs another model than it is given, of the same vocabulary.
#[derive(Debug)]
struct Instead {
    backend: CpuBackend,
    model: Arc<Model>,
}

impl Footprint for Instead {
    fn executor_bytes(&self, _: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes {
        self.backend.executor_bytes(self.model.spec(), size)
    }
}

impl Backend for Instead {
    fn open(
        &self,
        _: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, ModelError> {
        self.backend.open(Arc::clone(&self.model), size, budget)
    }
}

/// The story model's tokenizer, and a random model of attention and short convolutions.
fn engine() -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    let engine = Engine::open(&path, &LoadOptions::default()).unwrap();
    let spec = hybrid_spec(&engine);
    let files = ModelFiles::from_static("hybrid", random_file(&spec).leak()).unwrap();
    let model = Model::with_spec(spec, files, &Budget::unlimited()).unwrap();
    let backend = CpuBackend::new(engine.kernels(), Arc::clone(engine.pool()));
    engine.with_backend(Arc::new(Instead {
        backend,
        model: Arc::new(model),
    }))
}

/// The spec of an engine's model with a short convolution in every other layer.
fn hybrid_spec(engine: &Engine) -> ModelSpec {
    let mut spec = engine.spec().clone();
    for (l, layer) in spec
        .layers
        .iter_mut()
        .enumerate()
        .filter(|(l, _)| l % 2 == 0)
    {
        layer.mixer = Mixer::ShortConv(ShortConv { n_taps: 3 + l });
    }
    spec
}

fn options() -> SessionOptions {
    SessionOptions {
        n_ctx: Some(N_CTX),
        n_batch: Some(96),
        ..SessionOptions::default()
    }
}

/// Tokens of a text that differs for every seed behind the first `n_common`.
fn text(seed: usize, n_common: usize, n: usize) -> Vec<u32> {
    let id = |i: usize| match i < n_common {
        true => 10 + (i * i % 200) as u32,
        false => 10 + ((i * 7 + seed * 31) % 200) as u32,
    };
    (0..n).map(id).collect()
}

fn bits(session: &Session) -> Vec<u32> {
    let logits = session.logits().unwrap();
    logits.iter().map(|x| x.to_bits()).collect()
}

fn fresh(engine: &Engine, ids: &[u32]) -> Vec<u32> {
    let mut session = engine.session(&options()).unwrap();
    session.append(ids).unwrap();
    bits(&session)
}

#[test]
fn a_session_goes_on_from_a_checkpoint() {
    let engine = engine();
    let ids = text(1, 0, 300);
    let mut session = engine.session(&options()).unwrap();
    session.append(&ids).unwrap();
    ids[..20]
        .iter()
        .for_each(|&id| session.append(&[id]).unwrap());
    // Another answer to the same prompt.
    assert_eq!(session.keep_common(&ids).unwrap(), 299);
    session.append(&ids[299..]).unwrap();
    assert!(bits(&session) == fresh(&engine, &ids));
    let mut other = ids[..200].to_vec();
    other.extend([3, 4, 5]);
    assert_eq!(session.keep_common(&other).unwrap(), 128);
    session.append(&other[128..]).unwrap();
    assert!(bits(&session) == fresh(&engine, &other));
    session.roll_back(2, true).unwrap();
    assert!(bits(&session) == fresh(&engine, &other[..201]));
    let shifts = SessionOptions {
        overflow: Overflow::Shift { n_keep: 4 },
        ..options()
    };
    assert!(engine.session(&shifts).is_err());
}

#[test]
fn tokens_of_an_answer_do_not_displace_checkpoints_of_the_prompt() {
    let engine = engine();
    let ids = text(1, 0, 300);
    let mut session = engine.session(&options()).unwrap();
    session.append(&ids).unwrap();
    for _ in 0..50 {
        session.append_generated(&[7, 8, 9]).unwrap();
    }
    let executor = session.executor();
    let checkpoints = executor.seqs().checkpoints(session.seq, &(0..450)).unwrap();
    let positions: Vec<usize> = checkpoints.map(|(pos, _)| pos).collect();
    assert_eq!(positions, [128, 256, 299, 384, 450]);
}

/// Panics at a phase of a step.
struct PanicsAt(Option<Phase>);

impl Observer for PanicsAt {
    fn enter(&mut self, phase: Phase) {
        assert!(Some(phase) != self.0, "a panic of the test");
    }
}

#[test]
fn a_step_that_panics_leaves_the_session_as_it_was() {
    let engine = engine();
    let ids = text(1, 0, 40);
    for phase in [Phase::Matmul, Phase::Attention, Phase::Idle] {
        let mut session = engine.session(&options()).unwrap();
        session.append(&ids[..20]).unwrap();
        session.observe(Box::new(PanicsAt(Some(phase))));
        let append = AssertUnwindSafe(|| session.append(&ids[20..]));
        assert!(catch_unwind(append).is_err());
        session.observe(Box::new(PanicsAt(None)));
        assert_eq!(session.tokens(), &ids[..20]);
        session.append(&ids[20..]).unwrap();
        assert!(bits(&session) == fresh(&engine, &ids), "{phase:?}");
    }
}

/// A directory of a test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("atta-hybrid-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Restores what a cache has of a text, and compares the logits after the text.
#[track_caller]
fn hit(engine: &Engine, cache: &PromptCache, ids: &[u32]) -> usize {
    let mut session = engine.session(&options()).unwrap();
    let restored = session.restore(cache, ids).unwrap();
    assert!(restored.notes.is_empty(), "{:?}", restored.notes);
    session.append(&ids[restored.n_tokens..]).unwrap();
    assert!(
        bits(&session) == fresh(engine, ids),
        "after {}",
        restored.n_tokens
    );
    restored.n_tokens
}

#[test]
fn a_prompt_cache_keeps_checkpoints() {
    let engine = engine();
    let scratch = Scratch::new("cache");
    for path in ["file", "many/"] {
        let cache = PromptCache::open(&scratch.0.join(path), u64::MAX).unwrap();
        let ids = text(1, 250, 300);
        let mut session = engine.session(&options()).unwrap();
        session.append(&ids).unwrap();
        session.save(&cache).unwrap();
        // A text that goes on, the same prompt, and others that begin like it.
        let longer = [&ids[..], &[7, 8, 9]].concat();
        assert_eq!(hit(&engine, &cache, &longer), 300, "{path}");
        assert_eq!(hit(&engine, &cache, &ids), 299, "{path}");
        assert_eq!(hit(&engine, &cache, &text(2, 250, 300)), 128, "{path}");
        assert_eq!(hit(&engine, &cache, &text(2, 100, 300)), 0, "{path}");
        session.append(&text(3, 0, 100)).unwrap();
        session.save(&cache).unwrap();
        let all = [session.tokens(), &[3]].concat();
        assert_eq!(hit(&engine, &cache, &all), 400, "{path}");
    }
}

/// The state of a text in bytes, and a session that has it after these steps.
fn exported(engine: &Engine, steps: &[&[u32]]) -> (Vec<u8>, Session) {
    let mut session = engine.session(&options()).unwrap();
    steps.iter().for_each(|ids| session.append(ids).unwrap());
    let mut bytes = Vec::new();
    session.export(&mut bytes).unwrap();
    (bytes, session)
}

#[test]
fn a_prompt_is_saved_once_though_its_exports_have_different_checkpoints() {
    let engine = engine();
    let scratch = Scratch::new("once");
    let ids = text(1, 0, 300);
    let mut sessions = [
        exported(&engine, &[&ids]),
        exported(&engine, &[&ids[..40], &ids[40..270], &ids[270..]]),
    ];
    sessions.sort_by_key(|(bytes, _)| bytes.len());
    let [(less, first), (more, second)] = &mut sessions;
    assert!(less.len() < more.len(), "they have different checkpoints");
    for path in ["file", "many/"] {
        let path = scratch.0.join(path);
        let cache = PromptCache::open(&path, u64::MAX).unwrap();
        first.save(&cache).unwrap();
        let saved = contents(&path);
        second.save(&cache).unwrap();
        assert!(contents(&path) == saved, "{path:?}");
        assert_eq!(hit(&engine, &cache, &ids), 299);
    }
}

/// The bytes of a file, or of the files of a directory by name.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths = match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => vec![path.to_owned()],
    };
    paths.sort();
    let bytes = |path: PathBuf| (path.clone(), fs::read(&path).unwrap());
    paths.into_iter().map(bytes).collect()
}

#[test]
fn a_session_is_exported_and_imported() {
    let engine = engine();
    let ids = text(1, 0, 200);
    let mut here = engine.session(&options()).unwrap();
    here.append(&ids).unwrap();
    let mut bytes = Vec::new();
    here.export(&mut bytes).unwrap();
    let mut there = engine.session(&options()).unwrap();
    assert_eq!(there.import(&bytes).unwrap(), 200);
    there.append(&[5]).unwrap();
    here.append(&[5]).unwrap();
    assert!(bits(&there) == bits(&here));
}

/// A prompt, and how its text is sampled.
struct Wish {
    prompt: Vec<u32>,
    options: GenerateOptions,
}

fn wish(i: usize) -> Wish {
    let sampling = Sampling {
        seed: i as u64,
        temperature: 1.0,
        ..Sampling::default()
    };
    Wish {
        prompt: text(i / 2, 140 + 20 * (i % 3), 150 + 40 * (i % 4)),
        options: GenerateOptions {
            n_predict: 12 + i,
            sampling,
            ..GenerateOptions::default()
        },
    }
}

/// The text of a session of its own.
fn alone(engine: &Engine, wish: &Wish) -> String {
    let mut session = engine.session(&options()).unwrap();
    let mut text = String::new();
    for event in session.generate(&wish.prompt, &wish.options).unwrap() {
        if let Event::Text(piece) = event.unwrap() {
            text.push_str(&piece);
        }
    }
    text
}

/// The texts of jobs by a batcher, in their order.
fn batched(batcher: &mut Batcher, jobs: Vec<Job>) -> Vec<String> {
    let ids = jobs.into_iter().map(|job| batcher.submit(job).unwrap());
    let ids: Vec<JobId> = ids.collect();
    let mut texts: HashMap<JobId, String> = HashMap::new();
    while !batcher.is_idle() {
        let on_update = &mut |id, update: Update<'_>| {
            match update {
                Update::Event(Event::Text(piece)) => texts.entry(id).or_default().push_str(&piece),
                Update::Failed(error) => panic!("{error}"),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        batcher.step(on_update).unwrap();
    }
    let text = |id| texts.remove(id).unwrap_or_default();
    ids.iter().map(text).collect()
}

fn batcher(engine: &Engine, n_contexts: usize, cache: Option<Arc<PromptCache>>) -> Batcher {
    let session = SessionOptions {
        n_forks: 4,
        n_contexts: Some(n_contexts),
        ..options()
    };
    let options = BatcherOptions {
        session,
        n_jobs: 3,
        max_gap: Duration::from_secs(1),
        cache,
    };
    Batcher::new(engine, &options).unwrap()
}

#[test]
fn a_batcher_writes_what_each_text_would_have_been_alone() {
    let engine = engine();
    let scratch = Scratch::new("batcher");
    let directory = PromptCache::open(&scratch.0.join("many/"), u64::MAX).unwrap();
    let wishes: Vec<Wish> = (0..10).map(wish).collect();
    for (n_contexts, cache) in [(4, None), (2, Some(Arc::new(directory)))] {
        let mut batcher = batcher(&engine, n_contexts, cache);
        let job = |w: &Wish| Job::new(&engine, w.prompt.clone(), &w.options).unwrap();
        let texts = batched(&mut batcher, wishes.iter().map(job).collect());
        assert!(batcher.counts().n_reused > 0, "prefixes are shared");
        for (wish, text) in wishes.iter().zip(texts) {
            assert_eq!(text, alone(&engine, wish), "{n_contexts} contexts");
        }
    }
}

#[test]
fn a_prompt_goes_on_from_the_border_of_another_one() {
    let engine = engine();
    let mut batcher = batcher(&engine, 4, None);
    for (seed, expected) in [(1, 0), (2, 150)] {
        let before = batcher.counts().n_reused;
        let wish = Wish {
            prompt: text(seed, 150, 400),
            ..wish(seed)
        };
        let job = Job::new(&engine, wish.prompt.clone(), &wish.options).unwrap();
        let texts = batched(&mut batcher, vec![job.with_border(150)]);
        assert_eq!(texts, [alone(&engine, &wish)]);
        assert_eq!(batcher.counts().n_reused - before, expected);
    }
}

/// The scaled embeddings of tokens by the model of [`engine`], in place of the tokens.
fn embedded(engine: &Engine, ids: &[u32]) -> Arc<[f32]> {
    let file = random_file(&hybrid_spec(engine)).leak();
    let files = ModelFiles::from_static("hybrid", file).unwrap();
    let info = files.directory().tensor("token_embd.weight").unwrap();
    let d = engine.spec().d_model;
    let scale = engine.spec().embed_scale;
    let row = |at: u64, i: u32| {
        let numbers = file[at as usize + 4 * d * i as usize..][..4 * d].as_chunks();
        numbers.0.iter().map(|&x| f32::from_le_bytes(x))
    };
    // The mean row of the table is a tensor of its own, if there is one.
    let mean = files.directory().tensor("token_embd.mean");
    let mean = mean.map_or_else(|| vec![0.0; d], |mean| row(mean.offset, 0).collect());
    let rows = ids.iter().flat_map(|&id| row(info.offset, id).zip(&mean));
    rows.map(|(x, mean)| scale * (x + mean)).collect()
}

#[test]
fn media_are_shared_by_their_hashes() {
    let engine = engine();
    let d_model = engine.spec().d_model;
    let with_media = |wish: &Wish, hash: u8, medium: &[u32]| {
        let mut text = Text::from(wish.prompt[..20].to_vec());
        let media = Media {
            hash: [hash; 32],
            token: 3,
            embeddings: embedded(&engine, medium),
        };
        text.push_media(media, d_model);
        text.push_tokens(&wish.prompt[140..]);
        Job::new(&engine, text, &wish.options).unwrap()
    };
    let mut batcher = batcher(&engine, 4, None);
    let a = wish(0);
    let b = wish(1);
    let medium = &a.prompt[20..140];
    let expected = [alone(&engine, &a), alone(&engine, &b)];
    let got = batched(&mut batcher, vec![with_media(&a, 1, medium)]);
    assert_eq!(got, expected[..1]);
    let before = batcher.counts().n_reused;
    let got = batched(&mut batcher, vec![with_media(&b, 1, medium)]);
    assert_eq!(got, expected[1..]);
    assert_eq!(batcher.counts().n_reused, before + 128, "the same medium");
    let before = batcher.counts().n_reused;
    batched(&mut batcher, vec![with_media(&a, 2, &a.prompt[..120])]);
    assert_eq!(batcher.counts().n_reused, before, "another medium");
    let mut narrow = Text::from(vec![5]);
    let embeddings = Arc::from(vec![0.0; d_model - 1]);
    let media = Media {
        hash: [0; 32],
        token: 3,
        embeddings,
    };
    narrow.push_media(media, d_model - 1);
    let job = Job::new(&engine, narrow, &a.options).unwrap();
    assert!(batcher.submit(job).is_err());
}
