//! The state of prompts on disk: whatever is there, logits are those of a session that computed
//! everything itself.
#![cfg(feature = "cache")]

use std::{
    fs,
    ops::ControlFlow,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use atta_engine::{
    Engine, Error, Event, Flaw, GenerateOptions, KvType, LoadOptions, Overflow, PromptCache,
    Sampling, Session, SessionOptions,
};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models")
        .join(name)
}

fn engine(name: &str) -> Engine {
    Engine::open(&golden(name), &LoadOptions::default()).unwrap()
}

fn session_of(engine: &Engine, kv: KvType) -> Session {
    engine
        .session(&SessionOptions {
            n_ctx: Some(700),
            kv,
            ..SessionOptions::default()
        })
        .unwrap()
}

fn session(engine: &Engine) -> Session {
    session_of(engine, KvType::F16)
}

/// Tokens of a text that every `seed` has another one of.
fn text(seed: usize, n: usize) -> Vec<u32> {
    (0..n)
        .map(|i| 3 + ((i * i + 7 * i + seed * 31 + i * seed) % 90) as u32)
        .collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The logits after a text that nobody has seen.
fn fresh(engine: &Engine, ids: &[u32]) -> Vec<u32> {
    let mut session = session(engine);
    session.append(ids).unwrap();
    bits(session.logits().unwrap())
}

/// A new session that takes from the cache what there is; how much that was, and what was said.
fn restored(engine: &Engine, cache: &PromptCache, ids: &[u32]) -> (Session, usize, Vec<String>) {
    let mut session = session(engine);
    let restored = session.restore(cache, ids).unwrap();
    assert_eq!(session.tokens(), &ids[..restored.n_tokens]);
    (session, restored.n_tokens, restored.notes)
}

/// How much of a text a cache has; the logits after the text must be the right ones.
#[track_caller]
fn hit(engine: &Engine, cache: &PromptCache, ids: &[u32]) -> usize {
    let (mut session, n, notes) = restored(engine, cache, ids);
    assert!(notes.is_empty(), "{notes:?}");
    session.append(&ids[n..]).unwrap();
    assert!(
        bits(session.logits().unwrap()) == fresh(engine, ids),
        "logits differ after {n} tokens"
    );
    n
}

fn save(engine: &Engine, cache: &PromptCache, ids: &[u32]) {
    let mut session = session(engine);
    session.append(ids).unwrap();
    session.save(cache).unwrap();
}

/// A directory of a test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("atta-prompt-cache-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PromptCache {
        PromptCache::open(&self.0.join("file"), u64::MAX).unwrap()
    }

    fn directory(&self, limit: u64) -> PromptCache {
        PromptCache::open(&self.0.join("many/"), limit).unwrap()
    }

    /// The files of the directory.
    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.0.join("many"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        files.sort();
        files
    }

    fn bytes(&self) -> u64 {
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
    let (scratch, engine, ids) = (
        Scratch::new("context"),
        engine("llama-plain.gguf"),
        text(1, 300),
    );
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
        let (scratch, engine) = (Scratch::new("windows"), engine(name));
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
        let (scratch, engine, ids) = (Scratch::new("outlives"), engine(name), text(1, 600));
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
    let (scratch, engine, ids) = (
        Scratch::new("shared"),
        engine("llama-plain.gguf"),
        text(1, 256),
    );
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
    let (scratch, engine, ids) = (
        Scratch::new("grows"),
        engine("llama-plain.gguf"),
        text(1, 300),
    );
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
    let (scratch, engine, ids) = (
        Scratch::new("longer"),
        engine("llama-plain.gguf"),
        text(1, 300),
    );
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
    let (ids, plain) = (text(1, 100), engine("llama-plain.gguf"));
    let (file, directory) = (scratch.file(), scratch.directory(u64::MAX));
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
    let (mut stretched, mut other) = (regime(600), regime(601));
    stretched.append(&ids).unwrap();
    stretched.save(&file).unwrap();
    assert_eq!(other.restore(&file, &ids).unwrap().n_tokens, 0);
    assert_eq!(hit(&plain, &directory, &ids), 99);
}

#[test]
fn no_flipped_byte_and_no_cut_changes_a_logit() {
    // Bytes of the magic, the first position, and the key in front.
    const N_FOREIGN: usize = 8 + 4 + 32;
    let (scratch, engine, ids) = (Scratch::new("corrupt"), engine("gemma2.gguf"), text(1, 18));
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

#[test]
fn what_is_damaged_is_saved_again_and_what_is_not_ours_is_left_alone() {
    let (scratch, engine, ids) = (
        Scratch::new("again"),
        engine("llama-plain.gguf"),
        text(1, 200),
    );
    let cache = scratch.directory(u64::MAX);
    save(&engine, &cache, &ids);
    for path in scratch.files() {
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        let (mut session, _, notes) = restored(&engine, &cache, &ids);
        assert_eq!(notes.len(), 1, "{notes:?}");
        session.append(&ids[session.tokens().len()..]).unwrap();
        session.save(&cache).unwrap();
        assert_eq!(hit(&engine, &cache, &ids), 199);
    }
    let file = scratch.0.join("file");
    for (bytes, part) in [
        (&b"PCVK\x01\0\0\0 and so on"[..], "PicoLM"),
        (b"GGUF\0", "no saved state"),
        (b"x", "no saved"),
    ] {
        fs::write(&file, bytes).unwrap();
        let cache = scratch.file();
        let (mut session, n, notes) = restored(&engine, &cache, &ids);
        assert!(
            n == 0 && notes.len() == 1 && notes[0].contains(part),
            "{notes:?}"
        );
        assert!(restored(&engine, &cache, &ids).2.is_empty(), "it was said");
        session.append(&ids).unwrap();
        let error = session.save(&scratch.file()).unwrap_err();
        assert!(
            matches!(error, Error::Cache { .. }) && error.to_string().contains(part),
            "{error}"
        );
        assert_eq!(fs::read(&file).unwrap(), bytes);
        scratch.file().clear().unwrap_err();
    }
}

#[test]
fn what_was_used_least_recently_goes_first_and_never_before_what_stands_on_it() {
    let (scratch, engine) = (Scratch::new("evict"), engine("llama-plain.gguf"));
    let all = scratch.directory(u64::MAX);
    let prompts: Vec<Vec<u32>> = (0..4)
        .map(|seed| [text(1, 128), text(20 + seed, 60)].concat())
        .collect();
    prompts.iter().for_each(|ids| save(&engine, &all, ids));
    for (i, path) in scratch.files().iter().enumerate() {
        // What begins all of them is the oldest.
        let age = Duration::from_secs(if fs::metadata(path).unwrap().len() > 40_000 {
            9000
        } else {
            100 + i as u64
        });
        fs::File::options()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(SystemTime::now() - age)
            .unwrap();
    }
    assert_eq!(hit(&engine, &all, &prompts[2]), 187);
    // To be used says that it was used.
    let (mut used, _, _) = restored(&engine, &all, &prompts[2]);
    used.append(&prompts[2][187..]).unwrap();
    used.save(&all).unwrap();
    let limit = scratch.bytes() * 2 / 3;
    let small = scratch.directory(limit);
    save(&engine, &small, &text(3, 20));
    assert!(scratch.bytes() <= limit);
    assert_eq!(
        (
            hit(&engine, &small, &prompts[2]),
            hit(&engine, &small, &text(3, 20))
        ),
        (187, 19)
    );
    assert!(prompts.iter().all(|ids| hit(&engine, &small, ids) >= 128));
    assert!(prompts.iter().any(|ids| hit(&engine, &small, ids) == 128));
    let none = scratch.directory(1000);
    let mut session = session(&engine);
    session.append(&text(4, 100)).unwrap();
    assert!(
        session
            .save(&none)
            .unwrap_err()
            .to_string()
            .contains("all may have 1000")
    );
}

#[test]
fn a_restored_prompt_is_one_that_was_used() {
    let (scratch, engine, ids) = (
        Scratch::new("used"),
        engine("llama-plain.gguf"),
        text(1, 200),
    );
    let cache = scratch.directory(u64::MAX);
    save(&engine, &cache, &ids);
    for path in scratch.files() {
        fs::File::options()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
    }
    restored(&engine, &cache, &ids);
    for path in scratch.files() {
        assert!(
            fs::metadata(path)
                .unwrap()
                .modified()
                .unwrap()
                .elapsed()
                .unwrap()
                < Duration::from_secs(60)
        );
    }
}

#[test]
fn many_at_once_do_not_disturb_each_other() {
    let (scratch, engine) = (Scratch::new("at-once"), engine("llama-plain.gguf"));
    let expected: Vec<_> = (0..6)
        .map(|seed| fresh(&engine, &text(seed, 150)))
        .collect();
    let worker = |i: usize| {
        // Each has the directory for itself, as far as it knows; there is room for about half of
        // the prompts.
        let (many, file) = (scratch.directory(200_000), scratch.file());
        for round in 0..40 {
            let seed = (round * (i + 1) + i) % 6;
            let cache = if round % 4 == 0 { &file } else { &many };
            let ids = text(seed, 150);
            let mut session = session(&engine);
            let restored = session.restore(cache, &ids).unwrap();
            assert!(restored.notes.is_empty(), "{:?}", restored.notes);
            session.append(&ids[restored.n_tokens..]).unwrap();
            assert!(bits(session.logits().unwrap()) == expected[seed]);
            session.save(cache).unwrap();
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|i| drop(scope.spawn(move || worker(i)))));
    assert!(
        scratch
            .files()
            .iter()
            .all(|path| path.extension().is_some_and(|e| e == "atta"))
    );
}

#[test]
fn unfinished_files_are_removed_when_they_are_old_and_other_files_never() {
    let (scratch, engine) = (Scratch::new("unfinished"), engine("llama-plain.gguf"));
    let cache = scratch.directory(u64::MAX);
    let path = |name: &str| scratch.0.join("many").join(name);
    let id = "0123456789abcdef0123456789abcdef";
    let name = format!("{id}-{id}-20-01234567.atta");
    let (old, new) = (format!(".{name}.12-0.part"), format!(".{name}.13-0.part"));
    let others = ["notes.txt", ".hidden.12-0.part", "0-1.atta"];
    for name in others.iter().copied().chain([old.as_str(), &new]) {
        let file = fs::File::create(path(name)).unwrap();
        if name != new {
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }
    save(&engine, &cache, &text(1, 20));
    assert!(!path(&old).exists() && path(&new).exists());
    let limit = scratch.bytes();
    fs::write(path(&new), vec![0; 100]).unwrap();
    save(&engine, &scratch.directory(limit), &text(1, 20));
    assert!(
        cache.prompts().unwrap().is_empty(),
        "what is being written counts"
    );
    cache.clear().unwrap();
    assert!(others.iter().all(|name| path(name).exists()));
    assert_eq!(scratch.files().len(), 3);
    let file = scratch.file();
    save(&engine, &file, &text(1, 20));
    let (ours, other) = (
        scratch.0.join(".file.1-0.part"),
        scratch.0.join(".file2.1-0.part"),
    );
    [&ours, &other]
        .into_iter()
        .for_each(|path| fs::write(path, "").unwrap());
    file.clear().unwrap();
    assert!(!ours.exists() && other.exists() && !scratch.0.join("file").exists());
}

#[test]
fn prompts_are_removed_one_by_one_but_for_what_they_share() {
    let (scratch, engine) = (Scratch::new("remove"), engine("llama-plain.gguf"));
    let cache = scratch.directory(u64::MAX);
    let prompts = [text(1, 300), [&text(1, 300)[..200], &text(5, 50)].concat()];
    prompts.iter().for_each(|ids| save(&engine, &cache, ids));
    assert!(
        cache
            .remove("")
            .unwrap_err()
            .to_string()
            .contains("2 prompts")
    );
    assert!(
        cache
            .remove("no")
            .unwrap_err()
            .to_string()
            .contains("no prompt")
    );
    let long = cache
        .prompts()
        .unwrap()
        .into_iter()
        .find(|p| p.n_tokens == 300)
        .unwrap();
    cache.remove(&long.key[..8]).unwrap();
    assert_eq!(
        (
            hit(&engine, &cache, &prompts[0]),
            hit(&engine, &cache, &prompts[1])
        ),
        (200, 249)
    );
    cache.remove("").unwrap();
    assert!(scratch.files().is_empty());
}

#[test]
fn text_is_the_same_with_a_cache_and_saved_when_the_prompt_was_read() {
    let (scratch, engine, ids) = (
        Scratch::new("text"),
        engine("qwen2-untied.gguf"),
        text(1, 150),
    );
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
        let (mut session, mut heard) = (session(&engine), String::new());
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

/// What is said of a text that is read and not gone on with.
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
    let (scratch, engine) = (Scratch::new("too-large"), engine("qwen2-untied.gguf"));
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
    let (scratch, engine) = (Scratch::new("failing"), engine("qwen2-untied.gguf"));
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
    let (engine, ids) = (engine("gemma3.gguf"), text(1, 90));
    let (mut here, mut there) = (session(&engine), session(&engine));
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
        Err(Error::Saved(Flaw::Foreign))
    ));
    assert!(matches!(
        there.import(&bytes[..bytes.len() - 1]),
        Err(Error::Saved(Flaw::Length))
    ));
    bytes[100] ^= 1;
    assert!(matches!(
        there.import(&bytes),
        Err(Error::Saved(Flaw::Checksum))
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
fn a_path_that_cannot_be_a_cache_is_an_error_at_once() {
    let scratch = Scratch::new("path");
    for path in ["no/file", "no/directory/"] {
        let error = PromptCache::open(&scratch.0.join(path), 1).err().unwrap();
        assert!(error.to_string().contains("does not exist"), "{error}");
    }
    fs::write(scratch.0.join("file"), "").unwrap();
    assert!(PromptCache::open(&scratch.0.join("file/"), 1).is_err());
    #[cfg(unix)]
    assert!(
        PromptCache::open("/dev/null".as_ref(), 1)
            .err()
            .unwrap()
            .to_string()
            .contains("neither")
    );
}

#[test]
fn a_text_longer_than_its_window_is_kept_only_as_far_as_nothing_was_forgotten() {
    let (engine, place) = (engine("llama-plain.gguf"), Scratch::new("window"));
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
    let (cache, ids) = (place.directory(1 << 30), text(1, 180));
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
    let (engine, place) = (engine("llama-plain.gguf"), Scratch::new("before-gap"));
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
        let (cache, ids) = (place.directory(1 << 30), text(seed, n_prompt));
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
    let (engine, place, ids) = (
        engine("llama-plain.gguf"),
        Scratch::new("turns"),
        text(1, 60),
    );
    let (cache, mut session) = (place.directory(1 << 30), session(&engine));
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

#[test]
fn a_prompt_is_found_among_many_that_stand_at_the_same_place() {
    let (engine, place) = (engine("llama-plain.gguf"), Scratch::new("many"));
    let cache = place.directory(1 << 30);
    let prompt = |seed: usize| {
        (0..40)
            .map(|i| 3 + (seed * (1 + i / 2) + i) as u32 % 90)
            .collect::<Vec<u32>>()
    };
    (0..80).for_each(|seed| save(&engine, &cache, &prompt(seed)));
    assert!((0..80).all(|seed| hit(&engine, &cache, &prompt(seed)) == 39));
}

#[test]
#[cfg(unix)]
fn nobody_else_may_read_what_is_saved() {
    use std::os::unix::fs::PermissionsExt;
    let (engine, scratch) = (engine("llama-plain.gguf"), Scratch::new("private"));
    [scratch.file(), scratch.directory(1 << 30)]
        .iter()
        .for_each(|cache| save(&engine, cache, &text(1, 20)));
    for path in scratch.files().into_iter().chain([scratch.0.join("file")]) {
        assert_eq!(
            fs::metadata(path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
