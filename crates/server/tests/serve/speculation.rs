//! Guesses in answers: they never change one, are counted, and come from no other client's answers.

use std::io::Write;

use atta_engine::{Speculation, SpeculationPolicy};
use atta_server::{Defaults, ServerOptions};
use serde_json::{Value, json};

use crate::running::{Running, options, read_all};

/// A server that evaluates every guess, and has two keys.
fn guessing() -> ServerOptions {
    let speculation = Speculation {
        policy: SpeculationPolicy::Always,
        ..Speculation::default()
    };
    let defaults = Defaults {
        speculation: Some(speculation),
        ..Defaults::default()
    };
    ServerOptions {
        api_keys: vec!["one".to_owned(), "two".to_owned()],
        defaults,
        ..options()
    }
}

/// An answer and its `usage.completion_tokens_details`.
struct Answer {
    text: String,
    n_accepted: u64,
    n_rejected: u64,
}

/// The answer to the same request, with a key and perhaps another source of guesses.
fn ask(server: &Running, key: &str, speculation: Option<&str>) -> Answer {
    let body = json!({
        "prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "speculation": speculation
    });
    let body = body.to_string();
    let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         authorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let response = read_all(stream);
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(body).unwrap();
    let details = &answer["usage"]["completion_tokens_details"];
    let count = |name: &str| details[name].as_u64().unwrap();
    Answer {
        text: answer["choices"][0]["text"].to_string(),
        n_accepted: count("accepted_prediction_tokens"),
        n_rejected: count("rejected_prediction_tokens"),
    }
}

#[test]
fn an_answer_is_guessed_from_earlier_ones_of_its_key_and_stays_the_same() {
    let server = Running::start(guessing());
    let plain = ask(&server, "one", Some("off"));
    assert_eq!((plain.n_accepted, plain.n_rejected), (0, 0));
    let first = ask(&server, "one", None);
    let second = ask(&server, "one", None);
    assert!(second.n_accepted > first.n_accepted + 10);
    let of_other = ask(&server, "two", None);
    assert_eq!(of_other.n_accepted, first.n_accepted);
    for answer in [first, second, of_other] {
        assert_eq!(answer.text, plain.text);
    }
    server.stop();
}

#[test]
fn a_source_of_guesses_that_is_not_there_is_refused_by_its_field() {
    let server = Running::start(options());
    let body = r#"{"prompt": "Once", "max_tokens": 1, "speculation": "oracle"}"#;
    let response = server.ask("/v1/completions", body);
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    assert!(response.contains("speculation"), "{response}");
    server.stop();
}
