//! Later parts of cached prompts, reused where a request or the server allows it.

use atta_server::{Defaults, Server, ServerOptions};
use serde_json::{Value, json};

use crate::tiny;

/// A prompt whose second line changes.
fn prompt(line: &str) -> String {
    let rest = "The little fox lived in a forest and looked for a key. ".repeat(8);
    format!("Once upon a time.\n{line}\n{rest}")
}

fn ask(server: &Server, path: &'static str, body: Value) -> (u16, Value, Vec<String>) {
    let answer = server.answer(path, body.to_string().into_bytes());
    let body = serde_json::from_slice(&answer.body).unwrap();
    (answer.status, body, answer.warnings)
}

/// The cached and the approximate tokens of an answer by OpenAI's interface.
fn counts(server: &Server, line: &str, n_cache_reuse: Option<i64>) -> (u64, u64) {
    let body = json!({ "prompt": prompt(line), "max_tokens": 2, "n_cache_reuse": n_cache_reuse });
    let (status, answer, warnings) = ask(server, "/v1/completions", body);
    assert_eq!((status, warnings), (200, vec![]), "{answer}");
    let details = &answer["usage"]["prompt_tokens_details"];
    let count = |name: &str| details[name].as_u64().unwrap();
    (count("cached_tokens"), count("approximate_tokens"))
}

#[test]
fn a_request_may_allow_approximate_reuse_and_is_told_how_much() {
    let server = tiny::server();
    assert_eq!(counts(&server, "Day one.", None), (0, 0));
    let (n_exact, n_approximate) = counts(&server, "The second day.", Some(0));
    assert!(n_exact < 12 && n_approximate == 0);
    let (n_cached, n_approximate) = counts(&server, "It was day three.", Some(32));
    assert!(n_approximate > 60 && n_cached - n_approximate < 12);
    assert_eq!(
        counts(&server, "It was day three.", None).1,
        0,
        "exact by default"
    );
}

#[test]
fn the_default_of_the_server_holds_for_requests_without_the_field() {
    let defaults = Defaults {
        cache_reuse: 32,
        ..Defaults::default()
    };
    let server = tiny::server_with(ServerOptions {
        defaults,
        ..tiny::options()
    });
    counts(&server, "Day one.", None);
    assert!(counts(&server, "The second day.", None).1 > 60);
    assert_eq!(counts(&server, "It was day three.", Some(0)).1, 0);
}

#[test]
fn timings_and_other_interfaces_count_approximate_tokens_too() {
    let server = tiny::server();
    let ask_llama = |line: &str| {
        let body = json!({ "prompt": prompt(line), "n_predict": 1, "n_cache_reuse": 32 });
        ask(&server, "/completion", body).1["timings"]["cache_approximate_n"].clone()
    };
    assert_eq!(ask_llama("Day one."), 0);
    assert!(ask_llama("The second day.").as_u64().unwrap() > 60);
    let content = prompt("Who?");
    let body = json!({
        "model": "tools", "max_tokens": 1, "messages": [{ "role": "user", "content": content }]
    });
    let (_, answer, _) = ask(&server, "/v1/messages", body);
    assert_eq!(answer["usage"]["cache_read_approximate_tokens"], 0);
}

#[test]
fn a_wrong_number_is_refused_and_one_without_effect_is_warned_of() {
    let server = tiny::server();
    let body = json!({ "prompt": "Once", "n_cache_reuse": -1 });
    let (status, answer, _) = ask(&server, "/v1/completions", body);
    assert_eq!(
        (status, &answer["error"]["param"]),
        (400, &json!("n_cache_reuse"))
    );
    for (path, body) in [
        (
            "/v1/embeddings",
            json!({ "input": "Once", "n_cache_reuse": 64 }),
        ),
        (
            "/tokenize",
            json!({ "content": "Once", "n_cache_reuse": 64 }),
        ),
    ] {
        let (status, _, warnings) = ask(&server, path, body);
        assert_eq!(status, 200, "{path}");
        assert!(
            warnings.concat().contains("n_cache_reuse changes nothing"),
            "{path}"
        );
    }
}
