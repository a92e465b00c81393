//! Engines, texts and directories of these tests.

use std::{fs, path::PathBuf};

use atta_engine::{Engine, KvType, LoadOptions, PromptCache, Session, SessionOptions};

pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models")
        .join(name)
}

pub(crate) fn engine(name: &str) -> Engine {
    Engine::open(&golden(name), &LoadOptions::default()).unwrap()
}

pub(crate) fn session_of(engine: &Engine, kv: KvType) -> Session {
    engine
        .session(&SessionOptions {
            n_ctx: Some(700),
            kv,
            ..SessionOptions::default()
        })
        .unwrap()
}

pub(crate) fn session(engine: &Engine) -> Session {
    session_of(engine, KvType::F16)
}

/// Tokens of a text that every `seed` has another one of.
pub(crate) fn text(seed: usize, n: usize) -> Vec<u32> {
    (0..n)
        .map(|i| 3 + ((i * i + 7 * i + seed * 31 + i * seed) % 90) as u32)
        .collect()
}

pub(crate) fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The logits after a text that was not seen before.
pub(crate) fn fresh(engine: &Engine, ids: &[u32]) -> Vec<u32> {
    let mut session = session(engine);
    session.append(ids).unwrap();
    bits(session.logits().unwrap())
}

/// A new session that takes all it can from the cache; how much that is, and the notes.
pub(crate) fn restored(
    engine: &Engine,
    cache: &PromptCache,
    ids: &[u32],
) -> (Session, usize, Vec<String>) {
    let mut session = session(engine);
    let restored = session.restore(cache, ids).unwrap();
    assert_eq!(session.tokens(), &ids[..restored.n_tokens]);
    (session, restored.n_tokens, restored.notes)
}

/// How much of a text a cache has; the logits after the text must be the right ones.
#[track_caller]
pub(crate) fn hit(engine: &Engine, cache: &PromptCache, ids: &[u32]) -> usize {
    let (mut session, n, notes) = restored(engine, cache, ids);
    assert!(notes.is_empty(), "{notes:?}");
    session.append(&ids[n..]).unwrap();
    assert!(
        bits(session.logits().unwrap()) == fresh(engine, ids),
        "logits differ after {n} tokens"
    );
    n
}

pub(crate) fn save(engine: &Engine, cache: &PromptCache, ids: &[u32]) {
    let mut session = session(engine);
    session.append(ids).unwrap();
    session.save(cache).unwrap();
}

/// A directory of a test, removed with it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("atta-prompt-cache-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self) -> PromptCache {
        PromptCache::open(&self.0.join("file"), u64::MAX).unwrap()
    }

    pub(crate) fn directory(&self, limit: u64) -> PromptCache {
        PromptCache::open(&self.0.join("many/"), limit).unwrap()
    }

    /// The files of the directory.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.0.join("many"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        files.sort();
        files
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files()
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .sum()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
