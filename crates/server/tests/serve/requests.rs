//! Requests that come slowly, go away, are too large or not allowed: what no client library lets one do.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use atta_server::{Listen, ServeError, Server, ServerOptions};

use crate::running::{ENDLESS, Running, options, source};

#[test]
fn who_goes_away_frees_a_place_and_the_rest_wait_or_are_refused() {
    let server = Running::start(options());
    let first = server.send("/v1/completions", ENDLESS);
    server.wait_until("both answers are written", |server| server.count("atta_jobs_running") == 2.0);
    let second = server.send("/v1/completions", ENDLESS);
    server.wait_until("one request waits", |server| server.count("atta_jobs_waiting") == 2.0);
    let third = server.send("/v1/completions", ENDLESS);
    let refused = server.ask("/v1/completions", ENDLESS);
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after"), "{refused}");
    drop((first, second, third));
    server.wait_until("nothing is written for nobody", |server| {
        server.count("atta_jobs_running") + server.count("atta_jobs_waiting") == 0.0
    });
    assert!(server.ask("/v1/completions", r#"{"prompt": "One day"}"#).starts_with("HTTP/1.1 200"));
    server.stop();
}

#[test]
fn a_server_that_is_stopped_cuts_what_does_not_end() {
    let server = Running::start(options());
    let mut stream = server.send("/v1/completions", ENDLESS);
    server.wait_until("an answer is written", |server| server.count("atta_generated_tokens_total") > 5.0);
    let took = server.stop();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let mut text = Vec::new();
    // Cut or reset: either is an end.
    let _ = stream.read_to_end(&mut text);
    assert!(String::from_utf8_lossy(&text).contains("text_completion"));
}

#[test]
fn slow_and_large_requests_are_not_waited_for() {
    let server = Running::start(options());
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    slow.write_all(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{").unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    let mut silent = TcpStream::connect(&server.address).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(silent.read(&mut answer).unwrap_or(0), 0, "a connection without a request is closed");
    let large = format!(r#"{{"prompt": "{}"}}"#, "a".repeat(100_000));
    assert!(server.ask("/v1/completions", &large).starts_with("HTTP/1.1 413"));
    server.stop();
}

#[test]
fn keys_are_asked_for_everywhere_but_for_health_the_description_and_the_page() {
    let server = Running::start(ServerOptions { api_keys: vec!["secret".to_owned()], ..options() });
    for path in ["/v1/models", "/metrics", "/props", "/nowhere"] {
        assert!(server.ask(path, "").starts_with("HTTP/1.1 401"), "{path}");
    }
    for path in ["/health", "/openapi.json", "/", "/app.js"] {
        assert!(server.ask(path, "").starts_with("HTTP/1.1 200"), "{path}");
    }
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head =
        "GET /v1/models HTTP/1.1\r\nhost: any.example\r\nauthorization: Bearer secret\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    server.stop();
}

#[test]
fn what_would_let_everybody_in_is_refused() {
    let everywhere = Listen::Tcp(SocketAddr::from(([0, 0, 0, 0], 0)));
    let open = ServerOptions { listen: everywhere, ..options() };
    assert!(matches!(Server::bind(vec![source("stories")], open.clone()), Err(ServeError::Open(_))));
    let empty = ServerOptions { api_keys: vec![" ".to_owned()], ..open.clone() };
    assert!(matches!(Server::bind(vec![source("stories")], empty), Err(ServeError::EmptyKey)));
    Running::start(ServerOptions { insecure: true, ..open }).stop();
}
