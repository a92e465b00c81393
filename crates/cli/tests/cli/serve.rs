//! `atta serve` from outside: the prompts that it saves by default, and when it saves none.

use std::{os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};

use crate::{
    processes::Server,
    program::{Scratch, command, error_of, model},
};

const STORIES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/stories.gguf"
);

/// Starts a server with the user directory in the scratch one.
fn start(scratch: &Scratch, more: &[&str]) -> Server {
    let args = ["serve", STORIES, "--port", "0", "-c", "512", "-j", "1"];
    let mut command = command(&[&args[..], more].concat());
    command.env("XDG_CACHE_HOME", scratch.path("user"));
    Server::start(command)
}

/// The cached tokens of a prompt, and all of them.
fn n_cached(server: &Server) -> (u64, u64) {
    let prompt = "Once upon a time there was a little fox who lived in a forest. ".repeat(4);
    let body = json!({ "prompt": prompt, "max_tokens": 3, "temperature": 0 }).to_string();
    let (_, answer) = server.ask("/v1/completions", &body);
    let usage = &serde_json::from_str::<Value>(&answer).unwrap()["usage"];
    let n_cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    (n_cached.unwrap(), usage["prompt_tokens"].as_u64().unwrap())
}

#[test]
fn a_server_that_was_restarted_does_not_read_the_same_prompt_again() {
    let scratch = Scratch::new("serve-restart");
    let server = start(&scratch, &[]);
    assert_eq!(n_cached(&server).0, 0);
    assert_eq!(server.stop(), "");
    let mode = |path: &str| Path::new(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.path("user/atta/prompts")), 0o700);
    let server = start(&scratch, &[]);
    let (n_cached, n_prompt) = n_cached(&server);
    assert_eq!(n_cached, n_prompt - 1);
}

#[test]
fn a_server_saves_no_prompts_where_that_is_not_wanted() {
    for flags in [&["--no-cache"][..], &["--cache-size", "0"]] {
        let scratch = Scratch::new("serve-no-cache");
        let server = start(&scratch, flags);
        n_cached(&server);
        assert_eq!(server.stop(), "");
        assert!(scratch.names().is_empty(), "{flags:?}");
    }
}

#[test]
fn a_default_directory_that_cannot_be_is_one_line_and_no_error() {
    let scratch = Scratch::new("serve-no-directory");
    scratch.file("user", b"");
    let server = start(&scratch, &[]);
    n_cached(&server);
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
