//! `atta serve` from outside: the prompts that it saves by default, and when it saves none.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use serde_json::{Value, json};

use crate::program::{Scratch, command, error_of, model};

const PATIENCE: Duration = Duration::from_secs(60);

const STORIES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/stories.gguf"
);

/// A running server; killed with the test.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    /// Starts with the user directory in the scratch one.
    fn start(scratch: &Scratch, more: &[&str]) -> Self {
        let args = ["serve", STORIES, "--port", "0", "-c", "512", "-j", "1"];
        let mut command = command(&[&args[..], more].concat());
        let mut child = command
            .env("XDG_CACHE_HOME", scratch.path("user"))
            .spawn()
            .unwrap();
        let mut url = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut url).unwrap();
        let address = url.trim().trim_start_matches("http://").to_owned();
        Self { child, address }
    }

    /// The cached tokens of a prompt, and all of them.
    fn n_cached(&self) -> (u64, u64) {
        let prompt = "Once upon a time there was a little fox who lived in a forest. ".repeat(4);
        let body = json!({ "prompt": prompt, "max_tokens": 3, "temperature": 0 }).to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close";
        write!(
            stream,
            "{head}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let usage = &serde_json::from_str::<Value>(body).unwrap()["usage"];
        let n_cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        (n_cached.unwrap(), usage["prompt_tokens"].as_u64().unwrap())
    }

    /// Stops it as a system does; what it has said.
    fn stop(mut self) -> String {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &id]).status();
        assert!(sent.unwrap().success());
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has ended already, perhaps.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_that_was_restarted_does_not_read_the_same_prompt_again() {
    let scratch = Scratch::new("serve-restart");
    let server = Served::start(&scratch, &[]);
    assert_eq!(server.n_cached().0, 0);
    assert_eq!(server.stop(), "");
    let mode = |path: &str| Path::new(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.path("user/atta/prompts")), 0o700);
    let server = Served::start(&scratch, &[]);
    let (n_cached, n_prompt) = server.n_cached();
    assert_eq!(n_cached, n_prompt - 1);
}

#[test]
fn a_server_saves_no_prompts_where_that_is_not_wanted() {
    for flags in [&["--no-cache"][..], &["--cache-size", "0"]] {
        let scratch = Scratch::new("serve-no-cache");
        let server = Served::start(&scratch, flags);
        server.n_cached();
        assert_eq!(server.stop(), "");
        assert!(scratch.names().is_empty(), "{flags:?}");
    }
}

#[test]
fn a_default_directory_that_cannot_be_is_one_line_and_no_error() {
    let scratch = Scratch::new("serve-no-directory");
    scratch.file("user", b"");
    let server = Served::start(&scratch, &[]);
    server.n_cached();
    let said = server.stop();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("prompts are not saved to disk"), "{said}");
}

#[test]
fn a_server_refuses_to_move_keys_that_cannot_move() {
    let gpt2 = model("gpt2.gguf");
    let args = [
        "serve",
        &gpt2,
        "--port",
        "0",
        "--no-cache",
        "--cache-reuse",
        "64",
    ];
    let output = command(&args).output().unwrap();
    let error = error_of(&output, 1);
    assert!(error.contains("its positions are learned"), "{error}");
}
