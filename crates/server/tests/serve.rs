//! A server and raw connections to it: what no client library lets one do.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use atta_engine::{BatcherOptions, Engine, LoadOptions, SessionOptions};
use atta_server::{Listen, Log, ServeError, Server, ServerOptions, Stopper};

/// Answers that end only at their length, which is far away.
const ENDLESS: &str =
    r#"{"prompt": "Once upon a time", "max_tokens": 4000, "stream": true, "n": 2, "logit_bias": {"2": -100}}"#;

fn engine() -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    Engine::open(&path, &LoadOptions::default()).unwrap()
}

fn options() -> ServerOptions {
    let session = SessionOptions { n_ctx: Some(4096), n_forks: 3, n_contexts: Some(2), ..SessionOptions::default() };
    ServerOptions {
        listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
        api_keys: Vec::new(),
        insecure: false,
        names: vec!["stories".to_owned()],
        batcher: BatcherOptions { session, n_jobs: 2, max_gap: Duration::from_millis(50) },
        max_queue: 1,
        max_body: 100_000,
        max_connections: 20,
        read_timeout: Duration::from_millis(500),
        grace: Duration::from_millis(300),
        log: Log::Off,
    }
}

/// A server in a thread.
struct Running {
    address: String,
    stopper: Stopper,
    thread: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    fn start(options: ServerOptions) -> Self {
        let server = Server::bind(&engine(), options).unwrap();
        let address = server.place().trim_start_matches("http://").to_owned();
        let stopper = server.stopper();
        Self { address, stopper, thread: thread::spawn(move || server.run()) }
    }

    /// Sends a request, and does not wait for the answer.
    fn send(&self, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let method = if body.is_empty() { "GET" } else { "POST" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}",
            body.len()
        );
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn ask(&self, path: &str, body: &str) -> String {
        let mut text = String::new();
        self.send(path, body).read_to_string(&mut text).unwrap();
        text
    }

    fn count(&self, name: &str) -> f64 {
        let text = self.ask("/metrics", "");
        let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect("a metric of that name");
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(self) -> Duration {
        let start = Instant::now();
        self.stopper.stop();
        self.thread.join().unwrap().unwrap();
        start.elapsed()
    }
}

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
fn keys_are_asked_for_everywhere_but_for_health_and_the_page() {
    let server = Running::start(ServerOptions { api_keys: vec!["secret".to_owned()], ..options() });
    for path in ["/v1/models", "/metrics", "/props", "/nowhere"] {
        assert!(server.ask(path, "").starts_with("HTTP/1.1 401"), "{path}");
    }
    for path in ["/health", "/", "/app.js"] {
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
    assert!(matches!(Server::bind(&engine(), open.clone()), Err(ServeError::Open(_))));
    let empty = ServerOptions { api_keys: vec![" ".to_owned()], ..open.clone() };
    assert!(matches!(Server::bind(&engine(), empty), Err(ServeError::EmptyKey)));
    Running::start(ServerOptions { insecure: true, ..open }).stop();
}
