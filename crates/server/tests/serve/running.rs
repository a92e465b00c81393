//! A server in this process, and raw connections to it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use atta_engine::{BatcherOptions, Engine, LoadOptions, SessionOptions, chat::TemplateChoice};
use atta_server::{ModelSource, ServeError, Server, ServerOptions, Stopper};

use crate::tiny;

/// Answers that end only at their length, which is far away.
pub(crate) const ENDLESS: &str = r#"{"prompt": "Once upon a time", "max_tokens": 4000, "stream": true, "n": 2, "logit_bias": {"2": -100}}"#;

/// The story model, by this name.
pub(crate) fn source(name: &str) -> ModelSource {
    source_within(name, None, options().batcher.session)
}

/// The same, with so much memory for it and all others, and memory kept free for such texts.
pub(crate) fn source_within(
    name: &str,
    ram_budget: Option<u64>,
    session: SessionOptions,
) -> ModelSource {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    let load = LoadOptions {
        ram_budget,
        session,
        ..LoadOptions::default()
    };
    let open = move |beside| {
        Engine::open(
            &path,
            &LoadOptions {
                beside,
                ..load.clone()
            },
        )
    };
    ModelSource {
        names: vec![name.to_owned()],
        template: TemplateChoice::Model,
        talk_window: None,
        open: Box::new(open),
    }
}

/// For texts that are long, and connections that come together.
pub(crate) fn options() -> ServerOptions {
    let usual = tiny::options();
    let session = SessionOptions {
        n_ctx: Some(4096),
        n_batch: Some(64),
        ..usual.batcher.session
    };
    ServerOptions {
        batcher: BatcherOptions {
            session,
            ..usual.batcher
        },
        max_connections: 20,
        read_timeout: Duration::from_millis(500),
        max_time: None,
        grace: Duration::from_millis(300),
        ..usual
    }
}

/// A server in a thread.
pub(crate) struct Running {
    pub(crate) address: String,
    stopper: Stopper,
    thread: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    pub(crate) fn start(options: ServerOptions) -> Self {
        Self::with(vec![source("stories")], options)
    }

    pub(crate) fn with(models: Vec<ModelSource>, options: ServerOptions) -> Self {
        let server = Server::bind(models, options).unwrap();
        let address = server.url().trim_start_matches("http://").to_owned();
        let stopper = server.stopper();
        Self {
            address,
            stopper,
            thread: thread::spawn(move || server.run()),
        }
    }

    /// Sends a request, and does not wait for the answer.
    pub(crate) fn send(&self, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let method = if body.is_empty() { "GET" } else { "POST" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}",
            body.len()
        );
        stream
            .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
            .unwrap();
        stream
    }

    pub(crate) fn ask(&self, path: &str, body: &str) -> String {
        read_all(self.send(path, body))
    }

    pub(crate) fn count(&self, name: &str) -> f64 {
        let text = self.ask("/metrics", "");
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .expect("a metric of that name");
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn stop(self) -> Duration {
        let start = Instant::now();
        self.stopper.stop();
        self.thread.join().unwrap().unwrap();
        start.elapsed()
    }
}

/// All of an answer, with names of headers in small letters, as HTTP compares them.
pub(crate) fn read_all(mut stream: impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return text;
    };
    let small = |line: &str| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
        None => line.to_owned(),
    };
    let head: Vec<String> = head.split("\r\n").map(small).collect();
    format!("{}\r\n\r\n{body}", head.join("\r\n"))
}
