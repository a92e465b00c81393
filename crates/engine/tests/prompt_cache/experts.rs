//! The usage of experts in a cache directory: a later run begins with the experts that were used.

use std::{fs, path::PathBuf};

use atta_engine::{Engine, LoadOptions, WeightsAt};

use crate::support::*;

/// An engine with experts that are read from the file.
fn streamed() -> Engine {
    let options = LoadOptions {
        weights: Some(WeightsAt::Streamed),
        ..LoadOptions::default()
    };
    Engine::open(&golden("qwen3moe.gguf"), &options).unwrap()
}

fn usage_files(scratch: &Scratch) -> Vec<PathBuf> {
    let mut files = scratch.files();
    files.retain(|path| path.extension().is_some_and(|e| e == "experts"));
    files
}

/// Experts that a new engine did not find in memory, after the rest of a text that is cached.
fn misses(cache: &atta_engine::PromptCache, ids: &[u32]) -> u64 {
    let engine = streamed();
    let (mut session, n, notes) = restored(&engine, cache, ids);
    assert!(notes.is_empty(), "{notes:?}");
    session.append(&ids[n..]).unwrap();
    assert!(bits(session.logits().unwrap()) == fresh(&self::engine("qwen3moe.gguf"), ids));
    let io = engine.model().weights().io();
    assert!(io.n_expert_uses > 0);
    io.n_expert_misses
}

#[test]
fn a_later_run_finds_the_experts_of_an_earlier_one() {
    let scratch = Scratch::new("experts");
    let cache = scratch.directory(u64::MAX);
    let ids = text(1, 200);
    save(&engine("qwen3moe.gguf"), &cache, &ids);
    assert!(usage_files(&scratch).is_empty(), "mapped experts need none");
    assert!(misses(&cache, &ids) > 0);
    save(&streamed(), &cache, &ids);
    let [file] = &usage_files(&scratch)[..] else {
        panic!("{:?}", scratch.files())
    };
    assert_eq!(misses(&cache, &ids), 0);

    let mut bytes = fs::read(file).unwrap();
    bytes[20] ^= 1;
    fs::write(file, bytes).unwrap();
    assert!(misses(&cache, &ids) > 0, "damage costs speed only");
    assert!(!cache.prompts().unwrap().is_empty());
    cache.clear().unwrap();
    assert!(scratch.files().is_empty());
}
