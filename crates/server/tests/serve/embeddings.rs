//! Texts as vectors, beside texts that are written.

use std::time::Duration;

use atta_engine::Pooling;
use atta_server::ServerOptions;
use serde_json::Value;

use crate::running::{ENDLESS, Running, options};

/// The answer to a request, and its status.
fn ask(server: &Running, body: &str) -> (u16, Value) {
    let answer = server.ask("/v1/embeddings", body);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head[9..12].parse().unwrap(),
        serde_json::from_str(body).unwrap(),
    )
}

/// The vectors of an answer.
fn vectors(server: &Running, body: &str) -> Vec<Value> {
    let (status, answer) = ask(server, body);
    assert_eq!(status, 200, "{answer}");
    answer["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["embedding"].clone())
        .collect()
}

#[test]
fn a_list_is_what_each_of_its_texts_is_alone_even_beside_others() {
    let server = Running::start(options());
    let one = |text: &str| vectors(&server, &format!(r#"{{"input": "{text}"}}"#)).remove(0);
    let alone = ["One day", "a fox", "One day a fox"].map(one);
    let list = r#"{"input": ["One day", "a fox", "One day a fox"], "user": "somebody", "dimensions": null}"#;
    assert_eq!(vectors(&server, list), alone);
    let endless = server.send(
        "/v1/completions",
        &ENDLESS.replace(r#""n": 2"#, r#""n": 1"#),
    );
    server.wait_until("an answer is written", |server| {
        server.count("atta_generated_tokens_total") > 5.0
    });
    assert_eq!(vectors(&server, list), alone);
    drop(endless);
    server.stop();
}

#[test]
fn the_pooling_is_that_of_the_request_then_of_the_server_then_of_the_model() {
    let server = Running::start(options());
    let of = |server: &Running, fields: &str| {
        vectors(server, &format!(r#"{{"input": "One day"{fields}}}"#))
    };
    let all = ["last", "mean", "cls"].map(|name| of(&server, &format!(r#", "pooling": "{name}""#)));
    assert!(all[0] != all[1] && all[1] != all[2] && all[2] != all[0]);
    assert_eq!(of(&server, ""), all[0]);
    server.stop();
    let server = Running::start(ServerOptions {
        pooling: Some(Pooling::Mean),
        ..options()
    });
    assert_eq!(of(&server, ""), all[1]);
    assert_eq!(of(&server, r#", "pooling": "last""#), all[0]);
    server.stop();
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    let server = Running::start(options());
    let nested = r#"{"input": [1, [1]]}"#;
    let too_many = format!(r#"{{"input": [{}"a"]}}"#, r#""a","#.repeat(2048));
    let too_long = format!(r#"{{"input": [{}1]}}"#, "1,".repeat(5000));
    for (body, param) in [
        (r#"{"input": ""}"#, "input"),
        (r#"{"input": []}"#, "input"),
        (r#"{"input": ["a", ""]}"#, "input"),
        (r#"{"input": [[]]}"#, "input"),
        (r#"{"input": [1, 99999999]}"#, "input"),
        (r#"{"input": {"image": "/etc/passwd"}}"#, "input"),
        (r#"{"model": "stories"}"#, "input"),
        (nested, "input"),
        (&too_many, "input"),
        (r#"{"input": "a", "dimensions": 3}"#, "dimensions"),
        (
            r#"{"input": "a", "encoding_format": "int8"}"#,
            "encoding_format",
        ),
        (r#"{"input": "a", "pooling": "rank"}"#, "pooling"),
    ] {
        let (status, answer) = ask(&server, body);
        assert_eq!(
            (status, answer["error"]["param"].as_str()),
            (400, Some(param)),
            "{body:.60}: {answer}"
        );
    }
    let (status, answer) = ask(&server, &too_long);
    let error = &answer["error"];
    assert_eq!(
        (status, &error["param"], &error["code"]),
        (400, &"input".into(), &"context_length_exceeded".into())
    );
    server.stop();
}

#[test]
fn there_is_no_half_answer_when_the_time_is_up() {
    let server = Running::start(ServerOptions {
        max_time: Some(Duration::ZERO),
        ..options()
    });
    let (status, answer) = ask(&server, r#"{"input": ["One day", "a fox"]}"#);
    assert_eq!(status, 503, "{answer}");
    assert!(server.count("atta_jobs_running") == 0.0);
    server.stop();
}
