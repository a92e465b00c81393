//! Restored prefixes: how long they are, and that their logits are right.

use std::{fs, time::SystemTime};

use atta_engine::{Engine, KvType, LoadOptions, SessionOptions};

use crate::support::*;

#[test]
fn what_a_text_has_in_common_with_one_that_was_saved_is_used_to_the_token() {
    for name in [
        "llama-plain.gguf",
        "qwen2.gguf",
        "gpt2.gguf",
        "phi3-long.gguf",
        "llama-dynamic-rope.gguf",
    ] {
        let scratch = Scratch::new("common");
        let engine = engine(name);
        if engine.spec().n_ctx_train < 700 && name == "gpt2.gguf" {
            // It has learned fewer positions.
            continue;
        }
        let ids = text(1, 300);
        for cache in [scratch.file(), scratch.directory(u64::MAX)] {
            assert_eq!(hit(&engine, &cache, &ids), 0);
            save(&engine, &cache, &ids);
            assert_eq!(
                hit(&engine, &cache, &ids),
                299,
                "the last token is computed"
            );
            assert_eq!(
                hit(&engine, &cache, &[ids.as_slice(), &[5, 6, 7]].concat()),
                300
            );
            for n in [1, 2, 16, 17, 20, 127, 128, 129, 200, 255, 256, 257] {
                // So few that they are not worth a file.
                let or_none = |n: usize| if n < 16 { 0 } else { n };
                assert_eq!(hit(&engine, &cache, &ids[..n]), or_none(n - 1), "{name}");
                let other = [&ids[..n], &[ids[n] % 90 + 4, 8, 9]].concat();
                assert_eq!(hit(&engine, &cache, &other), or_none(n), "{name}");
            }
            assert_eq!(hit(&engine, &cache, &text(2, 40)), 0);
        }
    }
}

#[test]
fn a_text_may_be_longer_than_the_context_that_wants_its_beginning() {
    let scratch = Scratch::new("context");
    let engine = engine("llama-plain.gguf");
    let ids = text(1, 300);
    let cache = scratch.file();
    save(&engine, &cache, &ids);
    let mut small = engine
        .session(&SessionOptions {
            n_ctx: Some(200),
            ..SessionOptions::default()
        })
        .unwrap();
    assert_eq!(small.restore(&cache, &ids[..190]).unwrap().n_tokens, 189);
    small.append(&ids[189..190]).unwrap();
    assert!(bits(small.logits().unwrap()) == fresh(&engine, &ids[..190]));
}

#[test]
fn windows_are_restored_where_they_are_complete_and_computed_again_elsewhere() {
    for name in [
        "gemma2.gguf",
        "gemma3.gguf",
        "mistral.gguf",
        "gpt-oss.gguf",
        "olmo3.gguf",
    ] {
        let scratch = Scratch::new("windows");
        let engine = engine(name);
        let ids = text(1, 400);
        for cache in [scratch.file(), scratch.directory(u64::MAX)] {
            let mut long = engine
                .session(&SessionOptions {
                    n_ctx: Some(700),
                    n_batch: Some(8),
                    ..SessionOptions::default()
                })
                .unwrap();
            long.append(&ids).unwrap();
            long.save(&cache).unwrap();
            assert_eq!(
                hit(&engine, &cache, &[ids.as_slice(), &[5, 6]].concat()),
                400,
                "{name}"
            );
            // Whether a window is there or not, logits are right.
            for n in (1..400).step_by(33) {
                hit(&engine, &cache, &ids[..n]);
            }
            // A session that has all of it replaces one that has not.
            save(&engine, &cache, &ids[..100]);
            assert_eq!(hit(&engine, &cache, &ids[..100]), 99, "{name}");
        }
    }
}

#[test]
fn a_directory_keeps_a_shorter_state_with_whole_windows_and_a_file_the_newer_one() {
    for name in ["gemma3.gguf", "llama-plain.gguf"] {
        let scratch = Scratch::new("outlives");
        let engine = engine(name);
        let ids = text(1, 600);
        for cache in [scratch.file(), scratch.directory(u64::MAX)] {
            let mut session = engine
                .session(&SessionOptions {
                    n_ctx: Some(700),
                    n_batch: Some(8),
                    ..SessionOptions::default()
                })
                .unwrap();
            for n in [20, 110, 600] {
                session.append(&ids[session.tokens().len()..n]).unwrap();
                session.save(&cache).unwrap();
            }
            let has_windows = name == "gemma3.gguf";
            assert_eq!(
                hit(&engine, &cache, &ids[..110]) > 0,
                cache.is_directory() || !has_windows,
                "{name}"
            );
            assert_eq!(
                hit(&engine, &cache, &[ids.as_slice(), &[5, 6]].concat()),
                600,
                "{name}"
            );
        }
    }
}

#[test]
fn what_several_prompts_share_is_stored_once() {
    let scratch = Scratch::new("shared");
    let engine = engine("llama-plain.gguf");
    let ids = text(1, 256);
    let cache = scratch.directory(u64::MAX);
    let prompt = |seed| [ids.as_slice(), &text(seed, 50)].concat();
    (0..4).for_each(|seed| save(&engine, &cache, &prompt(10 + seed)));
    assert_eq!(scratch.files().len(), 2 + 4);
    let prompts = cache.prompts().unwrap();
    assert_eq!(prompts.len(), 4);
    assert!(
        prompts
            .iter()
            .all(|p| p.n_tokens == 306 && p.bytes < scratch.bytes())
    );
    (0..4).for_each(|seed| assert_eq!(hit(&engine, &cache, &prompt(10 + seed)), 305));
}

#[test]
fn a_prompt_that_goes_on_leaves_no_shorter_copies_of_itself() {
    let scratch = Scratch::new("grows");
    let engine = engine("llama-plain.gguf");
    let ids = text(1, 300);
    let cache = scratch.directory(u64::MAX);
    for n in [20, 90, 128, 140, 300] {
        save(&engine, &cache, &ids[..n]);
        assert_eq!(scratch.files().len(), n.div_ceil(128), "{n}");
    }
    let files = scratch.files();
    [20, 200, 300]
        .into_iter()
        .for_each(|n| save(&engine, &cache, &ids[..n]));
    assert_eq!(scratch.files(), files, "nothing new was there to be saved");
}

#[test]
fn a_file_keeps_the_longer_of_two_states_of_one_text() {
    let scratch = Scratch::new("longer");
    let engine = engine("llama-plain.gguf");
    let ids = text(1, 300);
    let cache = scratch.file();
    [300, 100]
        .into_iter()
        .for_each(|n| save(&engine, &cache, &ids[..n]));
    assert_eq!(hit(&engine, &cache, &ids), 299);
    save(&engine, &cache, &text(2, 50));
    assert_eq!(
        (
            hit(&engine, &cache, &ids),
            hit(&engine, &cache, &text(2, 50))
        ),
        (0, 49)
    );
}

#[test]
fn a_state_of_another_model_type_or_rope_is_not_used() {
    let scratch = Scratch::new("other");
    let ids = text(1, 100);
    let plain = engine("llama-plain.gguf");
    let file = scratch.file();
    let directory = scratch.directory(u64::MAX);
    [&file, &directory]
        .into_iter()
        .for_each(|cache| save(&plain, cache, &ids));
    let copy = scratch.0.join("copy.gguf");
    fs::copy(golden("llama-plain.gguf"), &copy).unwrap();
    fs::File::options()
        .append(true)
        .open(&copy)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    let copy = Engine::open(&copy, &LoadOptions::default()).unwrap();
    let scalar = LoadOptions {
        isa: Some("scalar".to_owned()),
        ..LoadOptions::default()
    };
    let scalar = Engine::open(&golden("llama-plain.gguf"), &scalar).unwrap();
    for (mut session, what) in [
        (session_of(&plain, KvType::F32), "type"),
        (session(&engine("llama-bias.gguf")), "model"),
        (session(&copy), "time"),
        (session(&scalar), "instruction set"),
    ] {
        let file = scratch.file();
        let from_file = session.restore(&file, &ids).unwrap();
        assert_eq!(from_file.n_tokens, 0, "{what}");
        assert!(
            from_file.notes[0].contains("another model"),
            "{:?}",
            from_file.notes
        );
        assert!(
            session.restore(&file, &ids).unwrap().notes.is_empty(),
            "it was said"
        );
        // Others may well have the same directory.
        let from_directory = session.restore(&directory, &ids).unwrap();
        assert_eq!(
            (from_directory.n_tokens, from_directory.notes.len()),
            (0, 0),
            "{what}"
        );
    }
    let regime = |n_ctx| {
        let engine = engine("llama-dynamic-rope.gguf");
        engine
            .session(&SessionOptions {
                n_ctx: Some(n_ctx),
                ..SessionOptions::default()
            })
            .unwrap()
    };
    let mut stretched = regime(600);
    let mut other = regime(601);
    stretched.append(&ids).unwrap();
    stretched.save(&file).unwrap();
    assert_eq!(other.restore(&file, &ids).unwrap().n_tokens, 0);
    assert_eq!(hit(&plain, &directory, &ids), 99);
}

#[test]
fn no_flipped_byte_and_no_cut_changes_a_logit() {
    // Bytes of the magic, the first position, and the key in front.
    const N_FOREIGN: usize = 8 + 4 + 32;
    let scratch = Scratch::new("corrupt");
    let engine = engine("gemma2.gguf");
    let ids = text(1, 18);
    for cache in [scratch.file(), scratch.directory(u64::MAX)] {
        save(&engine, &cache, &ids);
        let path = if cache.is_directory() {
            scratch.files().remove(0)
        } else {
            scratch.0.join("file")
        };
        let good = fs::read(&path).unwrap();
        let mut session = session(&engine);
        let mut n_silent = 0;
        let mut check = |bytes: &[u8], what: String| {
            fs::write(&path, bytes).unwrap();
            session.truncate(0).unwrap();
            let restored = session.restore(&cache, &ids).unwrap();
            assert!(
                restored.n_tokens == 0 && restored.notes.len() <= 1,
                "{what}: {restored:?}"
            );
            n_silent += usize::from(restored.notes.is_empty());
            assert!(
                restored.notes.iter().all(|note| !note.contains('\n')),
                "{what}"
            );
        };
        for i in 0..good.len() {
            let mut flipped = good.clone();
            flipped[i] ^= 1 << (i % 8);
            check(&flipped, format!("byte {i}"));
            check(&good[..i], format!("cut at {i}"));
        }
        // With another one of the first 16 tokens it is another text, and an empty file is none. Of
        // a key it is said once that it is that of another model.
        assert_eq!(
            n_silent,
            if cache.is_directory() {
                64
            } else {
                65 + N_FOREIGN - 1
            }
        );
        fs::write(&path, &good).unwrap();
        assert_eq!(hit(&engine, &cache, &ids), 17);
    }
}
