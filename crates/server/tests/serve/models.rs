//! Several models, their memory, and how long an answer may take.

use std::{
    fs,
    io::Read,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use atta_engine::{Engine, Error, LoadOptions, PromptCache, chat::TemplateChoice};
use atta_server::{ModelSource, ServeError, Server, ServerOptions};

use crate::running::{ENDLESS, Running, options, source, source_within};

const SHORT: &str = r#"{"model": "NAME", "prompt": "One day", "max_tokens": 4}"#;

fn short(name: &str) -> String {
    SHORT.replace("NAME", name)
}

fn assert_ok(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn models_are_told_apart_by_their_names() {
    let server = Running::with(vec![source("first"), source("second")], options());
    assert!(
        server.count("atta_models_loaded") == 1.0,
        "the second is not loaded before it is asked for"
    );
    for name in ["second", "first"] {
        let answer = server.ask("/v1/completions", &short(name));
        assert_ok(&answer);
        assert!(answer.contains(&format!(r#""model":"{name}""#)), "{answer}");
    }
    assert!(
        server
            .ask("/v1/completions", &short("third"))
            .starts_with("HTTP/1.1 404")
    );
    assert!(server.count("atta_models_loaded") == 2.0);
    let without = server.ask(
        "/v1/completions",
        r#"{"prompt": "One day", "max_tokens": 2}"#,
    );
    assert!(without.contains(r#""model":"first""#), "{without}");
    assert!(server.ask("/v1/models", "").contains("second"));
    assert!(
        server
            .ask("/props?model=second", "")
            .contains(r#""n_ctx":4096"#)
    );
    server.stop();
}

#[test]
fn a_model_that_cannot_be_loaded_is_no_reason_to_try_again_and_names_no_file() {
    let missing = Path::new("/secret/place/model.gguf");
    let gone = ModelSource {
        names: vec!["gone".to_owned()],
        template: TemplateChoice::Model,
        talk_window: None,
        open: Box::new(|_| Engine::open(missing, &LoadOptions::default())),
    };
    let server = Running::with(vec![source("first"), gone], options());
    let refused = server.ask("/v1/completions", &short("gone"));
    assert!(
        refused.starts_with("HTTP/1.1 500") && !refused.contains("retry-after"),
        "{refused}"
    );
    assert!(
        refused.contains("gone") && !refused.contains("secret"),
        "{refused}"
    );
    server.stop();
}

#[test]
fn names_are_different() {
    let twice = Server::bind(vec![source("same"), source("same")], options());
    assert!(matches!(twice, Err(ServeError::SameName(_))));
    assert!(matches!(
        Server::bind(Vec::new(), options()),
        Err(ServeError::NoModel)
    ));
}

#[test]
fn a_model_makes_room_for_another_one_but_not_while_it_answers() {
    // So much that what other tests of this process take is little beside it; it is not touched.
    let mut options = options();
    options.batcher.session.n_contexts = Some(40);
    options.batcher.session.n_forks = 39;
    let within = |name, budget| source_within(name, budget, options.batcher.session.clone());
    let alone = Running::with(vec![within("alone", None)], options.clone());
    let bytes = alone.count("atta_memory_bytes");
    alone.stop();
    let budget = Some((1.5 * bytes) as u64);
    let too_little = || Error::TooLittleMemory {
        budget: 1 << 30,
        smallest: 1 << 40,
        suggestions: Vec::new(),
    };
    let huge = ModelSource {
        names: vec!["huge".to_owned()],
        template: TemplateChoice::Model,
        talk_window: None,
        open: Box::new(move |_| Err(too_little())),
    };
    let server = Running::with(
        vec![within("first", budget), within("second", budget), huge],
        options.clone(),
    );
    let endless = server.send("/v1/completions", ENDLESS);
    server.wait_until("an answer is written", |server| {
        server.count("atta_generated_tokens_total") > 5.0
    });
    let refused = server.ask("/v1/completions", &short("second"));
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"),
        "{refused}"
    );
    assert!(refused.contains("memory"), "{refused}");
    drop(endless);
    server.wait_until("nothing is written for nobody", |server| {
        server.count("atta_jobs_running") == 0.0
    });
    for name in ["second", "first", "second"] {
        assert_ok(&server.ask("/v1/completions", &short(name)));
        assert!(
            server.count("atta_models_loaded") == 1.0,
            "there is room for one"
        );
        assert!(server.count("atta_memory_bytes") <= 1.5 * bytes);
    }
    assert!(
        server
            .ask("/v1/completions", &short("huge"))
            .starts_with("HTTP/1.1 503")
    );
    assert!(
        server.count("atta_models_loaded") == 1.0,
        "no model goes for one that does not fit even so"
    );
    server.stop();
}

#[test]
fn a_model_that_nobody_uses_goes_and_comes_back() {
    let server = Running::start(ServerOptions {
        idle_unload: Some(Duration::from_millis(300)),
        ..options()
    });
    let first = server.ask("/v1/completions", &short("stories"));
    assert_ok(&first);
    server.wait_until("what was written is counted", |server| {
        server.count("atta_jobs_running") == 0.0
    });
    let written = server.count("atta_generated_tokens_total");
    server.wait_until("the model is gone", |server| {
        server.count("atta_models_loaded") == 0.0
    });
    assert!(
        server.count("atta_memory_bytes") == 0.0
            && server.count("atta_generated_tokens_total") == written
    );
    assert!(server.ask("/props", "").contains(r#""n_ctx":null"#));
    assert_ok(&server.ask("/v1/completions", &short("stories")));
    assert!(server.count("atta_generated_tokens_total") > written);
    server.stop();
}

#[test]
fn a_model_stays_as_long_as_its_last_user_wanted() {
    let server = Running::start(options());
    let ask = |keep_alive: &str| {
        server.ask(
            "/api/generate",
            &format!(r#"{{"model": "stories:latest", "keep_alive": {keep_alive}}}"#),
        )
    };
    assert!(ask("0").contains(r#""done_reason":"unload""#));
    server.wait_until("the model is gone", |server| {
        server.count("atta_models_loaded") == 0.0
    });
    let bye = r#"{"model": "stories", "keep_alive": 0, "stream": false, "messages": []}"#;
    for again in [ask("0"), server.ask("/api/chat", bye)] {
        assert_ok(&again);
        assert!(again.contains(r#""done_reason":"unload""#), "{again}");
        assert!(
            server.count("atta_models_loaded") == 0.0,
            "a model that is to leave is not loaded for it"
        );
    }
    assert!(
        server
            .ask("/api/chat", &bye.replace("stories", "third"))
            .starts_with("HTTP/1.1 404")
    );
    assert!(ask(r#""1h""#).contains(r#""done_reason":"load""#));
    assert!(!server.ask("/api/ps", "").contains(r#""expires_at":"9999"#));
    assert_ok(&server.ask("/v1/completions", &short("stories")));
    assert!(
        server.ask("/api/ps", "").contains(r#""expires_at":"9999"#),
        "the server's own time counts again"
    );
    server.stop();
}

#[test]
fn an_answer_that_takes_too_long_ends_as_at_its_length() {
    let server = Running::start(ServerOptions {
        max_time: Some(Duration::from_millis(400)),
        max_queue: 1,
        ..options()
    });
    let start = Instant::now();
    let running = server.send("/v1/completions", ENDLESS);
    server.wait_until("both answers are written", |server| {
        server.count("atta_jobs_running") == 2.0
    });
    let waiting = server.send("/v1/completions", ENDLESS);
    for mut stream in [running, waiting] {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(
            text.matches(r#""finish_reason":"length""#).count() == 2 && text.contains("[DONE]"),
            "{text}"
        );
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    server.stop();
}

#[test]
fn what_was_read_outlives_the_server() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept-texts/");
    let _ = fs::remove_dir_all(&path);
    let mut options = options();
    options.batcher.cache = Some(Arc::new(PromptCache::open(&path, 1 << 30).unwrap()));
    let prompt = "Once upon a time there was a fox who lived in a forest. ".repeat(5);
    let ask = format!(r#"{{"prompt": "{prompt}", "max_tokens": 4, "temperature": 0}}"#);
    let answers = [0, 1].map(|_| {
        let server = Running::start(options.clone());
        let answer = server.ask("/v1/completions", &ask);
        let restored = server.count("atta_prompt_tokens_restored_total");
        server.stop();
        (answer, restored)
    });
    assert!(answers[0].1 == 0.0 && answers[1].1 > 50.0, "{answers:?}");
    assert!(
        answers[1]
            .0
            .contains(&format!(r#""cached_tokens":{}"#, answers[1].1)),
        "{answers:?}"
    );
    let text = |answer: &str| {
        answer
            .split(r#""text":"#)
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .unwrap()
            .to_owned()
    };
    assert_eq!(text(&answers[0].0), text(&answers[1].0));
}

#[test]
fn who_has_priority_begins_first() {
    let mut options = options();
    options.batcher.n_jobs = 1;
    let server = Running::start(ServerOptions {
        max_queue: 2,
        ..options
    });
    let first = server.send(
        "/v1/completions",
        &ENDLESS.replace(r#""n": 2"#, r#""n": 1"#),
    );
    server.wait_until("an answer is written", |server| {
        server.count("atta_jobs_running") == 1.0
    });
    let ask = |tier: &str, n_waiting: f64| {
        let stream = server.send(
            "/v1/chat/completions",
            &format!(
                r#"{{"messages": [{{"role": "user", "content": "Hi"}}], "service_tier": "{tier}", "max_tokens": 800,
                    "logit_bias": {{"2": -100}}}}"#
            ),
        );
        server.wait_until("it waits", |server| {
            server.count("atta_jobs_waiting") == n_waiting
        });
        stream
    };
    let waiting = [ask("flex", 1.0), ask("priority", 2.0)];
    drop(first);
    let ends = waiting.map(|mut stream| {
        thread::spawn(move || {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.contains(r#""completion_tokens":800"#), "{text}");
            Instant::now()
        })
    });
    let [flex, priority] = ends.map(|thread| thread.join().unwrap());
    assert!(priority < flex);
    server.stop();
}
