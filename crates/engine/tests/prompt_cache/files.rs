//! Files of a cache: damage, eviction, removal, permissions.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use atta_engine::{Error, PromptCache};

use crate::support::*;

#[test]
fn what_is_damaged_is_saved_again_and_what_is_not_ours_is_left_alone() {
    let scratch = Scratch::new("again");
    let engine = engine("llama-plain.gguf");
    let ids = text(1, 200);
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
fn a_session_keeps_its_tokens_where_the_saved_ones_are_damaged() {
    let engine = engine("llama-plain.gguf");
    let ids = text(1, 200);
    for name in ["file", "directory"] {
        let scratch = Scratch::new(&format!("keeps-{name}"));
        let cache = match name {
            "file" => scratch.file(),
            _ => scratch.directory(u64::MAX),
        };
        save(&engine, &cache, &ids);
        let files = match name {
            "file" => vec![scratch.0.join("file")],
            _ => scratch.files(),
        };
        for path in files {
            let mut bytes = fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(&path, bytes).unwrap();
        }
        let mut session = session(&engine);
        session.append(&ids[..50]).unwrap();
        let restored = session.restore(&cache, &ids).unwrap();
        assert_eq!((restored.n_tokens, restored.notes.len()), (50, 1), "{name}");
        assert_eq!(session.tokens(), &ids[..50]);
        session.append(&ids[50..]).unwrap();
        assert!(bits(session.logits().unwrap()) == fresh(&engine, &ids));
    }
}

#[test]
fn what_was_used_least_recently_goes_first_and_never_before_what_stands_on_it() {
    let scratch = Scratch::new("evict");
    let engine = engine("llama-plain.gguf");
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
    let scratch = Scratch::new("used");
    let engine = engine("llama-plain.gguf");
    let ids = text(1, 200);
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
    let scratch = Scratch::new("at-once");
    let engine = engine("llama-plain.gguf");
    let expected: Vec<_> = (0..6)
        .map(|seed| fresh(&engine, &text(seed, 150)))
        .collect();
    let worker = |i: usize| {
        // Each has the directory for itself, as far as it knows; there is room for about half of
        // the prompts.
        let many = scratch.directory(200_000);
        let file = scratch.file();
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
    let scratch = Scratch::new("unfinished");
    let engine = engine("llama-plain.gguf");
    let cache = scratch.directory(u64::MAX);
    let path = |name: &str| scratch.0.join("many").join(name);
    let id = "0123456789abcdef0123456789abcdef";
    let name = format!("{id}-{id}-20-01234567.atta");
    let old = format!(".{name}.12-0.part");
    let new = format!(".{name}.13-0.part");
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
    let ours = scratch.0.join(".file.1-0.part");
    let other = scratch.0.join(".file2.1-0.part");
    [&ours, &other]
        .into_iter()
        .for_each(|path| fs::write(path, "").unwrap());
    file.clear().unwrap();
    assert!(!ours.exists() && other.exists() && !scratch.0.join("file").exists());
}

#[test]
fn prompts_are_removed_one_by_one_but_for_what_they_share() {
    let scratch = Scratch::new("remove");
    let engine = engine("llama-plain.gguf");
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
fn a_prompt_is_found_among_many_that_stand_at_the_same_place() {
    let engine = engine("llama-plain.gguf");
    let place = Scratch::new("many");
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
    let engine = engine("llama-plain.gguf");
    let scratch = Scratch::new("private");
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
