//! Suspended sessions: without memory meanwhile, and with the same bits afterwards.

use std::{fs, path::Path};

use atta_engine::{
    CacheFileError, Engine, Error, Event, GenerateOptions, Overflow, Sampling, Session,
    SessionOptions,
};

use crate::support::*;

/// Attention, sliding windows, recurrent layers.
const MODELS: [&str; 3] = ["qwen2-untied.gguf", "gemma3.gguf", "qwen3next.gguf"];

fn used(engine: &Engine) -> u64 {
    engine.budget().used()
}

#[test]
fn a_session_has_no_memory_while_it_is_suspended_and_the_same_bits_afterwards() {
    let scratch = Scratch::new("suspended");
    let path = scratch.0.join("state");
    for model in MODELS {
        let engine = engine(model);
        let ids = text(1, 90);
        for file in [None, Some(path.as_path())] {
            let before = used(&engine);
            let mut session = session(&engine);
            session.append(&ids[..80]).unwrap();
            let with_memory = used(&engine);
            let logits = bits(session.logits().unwrap());
            session.suspend(file).unwrap();
            session.suspend(file).unwrap();
            assert!(used(&engine) < before + (with_memory - before) / 8);
            assert_eq!(path.exists(), file.is_some());
            let error = session.append(&ids[80..]).unwrap_err();
            assert!(error.is_about_suspension(), "{error}");
            session.resume().unwrap();
            session.resume().unwrap();
            assert_eq!(session.tokens(), &ids[..80]);
            assert!(bits(session.logits().unwrap()) == logits, "{model}: kept");
            session.append(&ids[80..]).unwrap();
            let now = bits(session.logits().unwrap());
            assert!(now == fresh(&engine, &ids), "{model}: {file:?}");
            assert!(!path.exists(), "its state is that of a text that goes on");
        }
    }
}

/// The text of a generation that is suspended at every fourth event, to a file and without in turn.
fn text_with_pauses(session: &mut Session, file: Option<&Path>) -> String {
    let options = GenerateOptions {
        n_predict: 24,
        sampling: Sampling {
            seed: 3,
            ..Sampling::default()
        },
        ..GenerateOptions::default()
    };
    let ids = text(1, 40);
    let mut heard = String::new();
    let mut generate = session.generate(&ids, &options).unwrap();
    for i in 0.. {
        if let Some(path) = file.filter(|_| i % 4 == 3) {
            generate.suspend((i % 8 == 3).then_some(path)).unwrap();
            assert!(generate.is_suspended());
            generate.resume().unwrap();
        }
        match generate.next().transpose().unwrap() {
            Some(Event::Text(text)) => heard.push_str(&text),
            Some(_) => {}
            None => return heard,
        }
    }
    heard
}

#[test]
fn a_generation_that_is_suspended_between_events_writes_the_same_text() {
    let scratch = Scratch::new("generating");
    for model in MODELS {
        let engine = engine(model);
        let expected = text_with_pauses(&mut session(&engine), None);
        let path = scratch.0.join("state");
        let found = text_with_pauses(&mut session(&engine), Some(&path));
        assert_eq!(found, expected, "{model}");
    }
}

#[test]
fn a_file_that_is_damaged_or_gone_is_replaced_by_evaluating_the_text_again() {
    let scratch = Scratch::new("damaged");
    let path = scratch.0.join("state");
    let engine = engine("qwen2-untied.gguf");
    let ids = text(1, 50);
    for is_damaged in [true, false] {
        let mut session = session(&engine);
        session.append(&ids[..40]).unwrap();
        session.suspend(Some(&path)).unwrap();
        if is_damaged {
            let mut bytes = fs::read(&path).unwrap();
            bytes[300] ^= 1;
            fs::write(&path, bytes).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        session.resume().unwrap();
        session.append(&ids[40..]).unwrap();
        assert!(bits(session.logits().unwrap()) == fresh(&engine, &ids));
    }
}

#[test]
fn a_later_process_imports_the_file_of_one_that_was_ended() {
    let scratch = Scratch::new("ended");
    let path = scratch.0.join("state");
    let engine = engine("gemma3.gguf");
    let ids = text(1, 90);
    let mut ended = session(&engine);
    ended.append(&ids[..80]).unwrap();
    ended.suspend(Some(&path)).unwrap();
    drop(ended);
    let mut later = session(&engine);
    assert_eq!(later.import(&fs::read(&path).unwrap()).unwrap(), 80);
    later.append(&ids[80..]).unwrap();
    assert!(bits(later.logits().unwrap()) == fresh(&engine, &ids));
}

fn shifted(engine: &Engine, ids: &[u32]) -> Session {
    let options = SessionOptions {
        n_ctx: Some(128),
        overflow: Overflow::Shift { n_keep: 4 },
        ..SessionOptions::default()
    };
    let mut session = engine.session(&options).unwrap();
    session.append(ids).unwrap();
    session
}

#[test]
fn a_shifted_context_is_suspended_to_a_file_and_no_other_way() {
    let scratch = Scratch::new("shifted");
    let path = scratch.0.join("state");
    let engine = engine("qwen2-untied.gguf");
    let ids = text(1, 210);
    let expected = bits(shifted(&engine, &ids).logits().unwrap());
    let mut session = shifted(&engine, &ids[..150]);
    let error = session.suspend(None).unwrap_err();
    assert!(matches!(error, Error::Irreproducible));
    session.suspend(Some(&path)).unwrap();
    let state = fs::read(&path).unwrap();
    let imported = shifted(&engine, &[]).import(&state);
    assert!(matches!(
        imported,
        Err(Error::Saved(CacheFileError::Foreign))
    ));
    fs::write(&path, &state[..state.len() - 1]).unwrap();
    let error = session.resume().unwrap_err();
    assert!(matches!(error, Error::Saved(CacheFileError::Length)));
    assert!(session.is_suspended(), "there is no other state");
    fs::write(&path, &state).unwrap();
    session.resume().unwrap();
    session.append(&ids[150..]).unwrap();
    assert!(bits(session.logits().unwrap()) == expected);
}

#[test]
fn tokens_are_removed_while_a_session_is_suspended() {
    let scratch = Scratch::new("removed");
    let path = scratch.0.join("state");
    let engine = engine("qwen3next.gguf");
    let ids = text(1, 60);
    let mut session = session(&engine);
    session.append(&text(1, 80)).unwrap();
    session.suspend(Some(&path)).unwrap();
    assert_eq!(session.truncate(50).unwrap(), 50);
    assert!(!path.exists(), "it has the state of more");
    session.resume().unwrap();
    session.append(&ids[50..]).unwrap();
    assert!(bits(session.logits().unwrap()) == fresh(&engine, &ids));
}

#[test]
fn forks_and_files_of_another_kind_are_reasons_not_to_suspend() {
    let scratch = Scratch::new("reasons");
    let path = scratch.0.join("letter");
    fs::write(&path, "a letter").unwrap();
    let engine = engine("qwen2-untied.gguf");
    let options = SessionOptions {
        n_ctx: Some(64),
        n_forks: 1,
        ..SessionOptions::default()
    };
    let mut session = engine.session(&options).unwrap();
    session.append(&text(1, 10)).unwrap();
    let error = session.suspend(Some(&path)).unwrap_err();
    assert!(error.to_string().contains("letter"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a letter");
    let fork = session.fork().unwrap();
    assert!(matches!(session.suspend(None), Err(Error::Forked)));
    drop(fork);
    session.suspend(None).unwrap();
}
