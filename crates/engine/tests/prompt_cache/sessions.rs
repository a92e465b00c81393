//! Sessions that save while they generate, exports and imports.

use std::{fs, ops::ControlFlow};

use atta_engine::{
    CacheFileError, Engine, Error, Event, GenerateOptions, KvType, Overflow, PromptCache, Sampling,
    SessionOptions,
};

use crate::support::*;

#[test]
fn text_is_the_same_with_a_cache_and_saved_when_the_prompt_was_read() {
    let scratch = Scratch::new("text");
    let engine = engine("qwen2-untied.gguf");
    let ids = text(1, 150);
    let sampling = Sampling {
        seed: 7,
        ..Sampling::default()
    };
    let options = GenerateOptions {
        n_predict: 60,
        sampling,
        ..GenerateOptions::default()
    };
    let cache = scratch.directory(u64::MAX);
    let run = |cache: Option<&PromptCache>, stop_at: usize| {
        let mut session = session(&engine);
        let mut heard = String::new();
        let on_event = |event: Event| {
            match event {
                Event::Text(text) => heard.push_str(&text),
                Event::Note(note) => panic!("{note}"),
                Event::Token { n, .. } if n == stop_at => return ControlFlow::Break(()),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let n_cached = cache.map_or(0, |cache| session.restore(cache, &ids).unwrap().n_tokens);
        let summary = match cache {
            Some(cache) => session
                .generate_saving(cache, &ids[n_cached..], &options)
                .unwrap()
                .run(on_event),
            None => session.generate(&ids, &options).unwrap().run(on_event),
        };
        assert_eq!(summary.unwrap().n_prompt + n_cached, 150);
        (heard, n_cached)
    };
    let (expected, _) = run(None, 0);
    // Ended so soon that only the prompt is worth saving; then at the end.
    assert_eq!(run(Some(&cache), 3).1, 0);
    assert_eq!(cache.prompts().unwrap()[0].n_tokens, 150);
    assert_eq!(run(Some(&cache), 40).1, 149);
    assert_eq!(cache.prompts().unwrap()[0].n_tokens, 189);
    assert_eq!(run(Some(&cache), 0), (expected, 149));
}

/// The notes about a text that is read and not gone on with.
fn notes_of(engine: &Engine, cache: &PromptCache, ids: &[u32]) -> Vec<String> {
    let mut notes = Vec::new();
    let options = GenerateOptions {
        n_predict: 0,
        ..GenerateOptions::default()
    };
    let on_event = |event: Event| {
        if let Event::Note(note) = event {
            notes.push(note);
        }
        ControlFlow::Continue(())
    };
    session(engine)
        .generate_saving(cache, ids, &options)
        .unwrap()
        .run(on_event)
        .unwrap();
    notes
}

#[test]
fn a_text_larger_than_all_may_be_keeps_no_other_from_being_saved() {
    let scratch = Scratch::new("too-large");
    let engine = engine("qwen2-untied.gguf");
    save(&engine, &scratch.directory(u64::MAX), &text(1, 60));
    let cache = scratch.directory(2 * scratch.bytes());
    let notes = notes_of(&engine, &cache, &text(2, 300));
    assert!(
        notes.len() == 1 && notes[0].contains("128 tokens take"),
        "{notes:?}"
    );
    assert!(
        notes_of(&engine, &cache, &text(3, 300)).is_empty(),
        "it was said"
    );
    assert!(notes_of(&engine, &cache, &text(4, 50)).is_empty());
    assert_eq!(hit(&engine, &cache, &text(4, 50)), 49);
}

#[test]
fn after_a_failure_nothing_is_saved_for_a_while() {
    let scratch = Scratch::new("failing");
    let engine = engine("qwen2-untied.gguf");
    let cache = scratch.directory(u64::MAX);
    let path = scratch.0.join("many");
    fs::remove_dir(&path).unwrap();
    assert_eq!(notes_of(&engine, &cache, &text(1, 60)).len(), 1);
    fs::create_dir(&path).unwrap();
    assert!(notes_of(&engine, &cache, &text(2, 60)).is_empty());
    assert!(
        scratch.files().is_empty(),
        "a full disk is not tried for each text"
    );
}

#[test]
fn a_session_goes_on_where_it_was_exported() {
    let engine = engine("gemma3.gguf");
    let ids = text(1, 90);
    let mut here = session(&engine);
    let mut there = session(&engine);
    here.append(&ids[..80]).unwrap();
    let mut bytes = Vec::new();
    here.export(&mut bytes).unwrap();
    assert_eq!(
        (there.import(&bytes).unwrap(), there.tokens()),
        (80, &ids[..80])
    );
    assert!(there.logits().is_none());
    there.append(&ids[80..]).unwrap();
    assert!(bits(there.logits().unwrap()) == fresh(&engine, &ids));
    let mut f32s = session_of(&engine, KvType::F32);
    assert!(matches!(
        f32s.import(&bytes),
        Err(Error::Saved(CacheFileError::Foreign))
    ));
    assert!(matches!(
        there.import(&bytes[..bytes.len() - 1]),
        Err(Error::Saved(CacheFileError::Length))
    ));
    bytes[100] ^= 1;
    assert!(matches!(
        there.import(&bytes),
        Err(Error::Saved(CacheFileError::Checksum))
    ));
    assert_eq!(
        there.tokens().len(),
        90,
        "what was refused has changed nothing"
    );
    let mut small = engine
        .session(&SessionOptions {
            n_ctx: Some(64),
            ..SessionOptions::default()
        })
        .unwrap();
    bytes[100] ^= 1;
    assert!(matches!(
        small.import(&bytes),
        Err(Error::PromptTooLong {
            n_prompt: 80,
            n_ctx: 64
        })
    ));
}

#[test]
fn a_text_longer_than_its_window_is_kept_only_as_far_as_nothing_was_forgotten() {
    let engine = engine("llama-plain.gguf");
    let place = Scratch::new("window");
    let shifting = || {
        let overflow = Overflow::Shift { n_keep: 4 };
        engine
            .session(&SessionOptions {
                n_ctx: Some(100),
                overflow,
                ..SessionOptions::default()
            })
            .unwrap()
    };
    let cache = place.directory(1 << 30);
    let ids = text(1, 180);
    let mut first = shifting();
    first.append(&ids[..90]).unwrap();
    first.save(&cache).unwrap();
    first.append(&ids[90..]).unwrap();
    assert!(first.n_evicted() > 0);
    first.save(&cache).unwrap();
    assert!(matches!(
        first.export(&mut Vec::new()),
        Err(Error::Shifted(_))
    ));
    let mut filled = shifting();
    filled.fill(40).unwrap();
    filled.append(&ids[..20]).unwrap();
    filled.save(&cache).unwrap();
    assert!(matches!(filled.export(&mut Vec::new()), Err(Error::Filled)));
    let zeros = [0; 50];
    assert_eq!(shifting().restore(&cache, &zeros).unwrap().n_tokens, 0);
    assert_eq!(filled.keep_common(&zeros).unwrap(), 0);
    let mut second = shifting();
    assert_eq!(second.restore(&cache, &ids).unwrap().n_tokens, 90);
    second.append(&ids[90..]).unwrap();
    assert_eq!(
        bits(second.logits().unwrap()),
        bits(first.logits().unwrap())
    );
}

#[test]
fn a_prompt_longer_than_its_window_is_saved_before_anything_of_it_is_forgotten() {
    let engine = engine("llama-plain.gguf");
    let place = Scratch::new("before-gap");
    let overflow = Overflow::Shift { n_keep: 4 };
    let shifting = || {
        engine
            .session(&SessionOptions {
                n_ctx: Some(100),
                overflow,
                ..SessionOptions::default()
            })
            .unwrap()
    };
    let options = GenerateOptions {
        n_predict: 60,
        ..GenerateOptions::default()
    };
    // The first is forgotten in part while it is read, the second while the text comes.
    for (n_prompt, seed) in [(180, 1), (80, 2)] {
        let cache = place.directory(1 << 30);
        let ids = text(seed, n_prompt);
        let mut plain = shifting();
        let expected = plain
            .generate(&ids, &options)
            .unwrap()
            .run(|_| ControlFlow::Continue(()))
            .unwrap();
        for n_cached in [0, n_prompt.min(101) - 1] {
            let mut session = shifting();
            assert_eq!(session.restore(&cache, &ids).unwrap().n_tokens, n_cached);
            let on_event = |_: Event| ControlFlow::Continue(());
            let summary = session
                .generate_saving(&cache, &ids[n_cached..], &options)
                .unwrap()
                .run(on_event)
                .unwrap();
            assert_eq!(
                (summary.n_prompt, summary.n_generated),
                (n_prompt - n_cached, expected.n_generated)
            );
            assert!(session.n_evicted() > 0 && session.tokens() == plain.tokens());
        }
        assert!(
            cache
                .prompts()
                .unwrap()
                .iter()
                .any(|prompt| prompt.n_tokens == 100)
        );
    }
}

#[test]
fn short_turns_are_saved_when_they_are_enough_together() {
    let engine = engine("llama-plain.gguf");
    let place = Scratch::new("turns");
    let ids = text(1, 60);
    let cache = place.directory(1 << 30);
    let mut session = session(&engine);
    let options = GenerateOptions {
        n_predict: 1,
        ..GenerateOptions::default()
    };
    let mut n_saved = Vec::new();
    for turn in ids.chunks(6).take(6) {
        session
            .generate_saving(&cache, turn, &options)
            .unwrap()
            .run(|_| ControlFlow::Continue(()))
            .unwrap();
        n_saved.push(
            cache
                .prompts()
                .unwrap()
                .first()
                .map_or(0, |prompt| prompt.n_tokens),
        );
    }
    assert_eq!(n_saved, [0, 0, 18, 18, 18, 36]);
}
