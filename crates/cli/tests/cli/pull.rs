//! `atta pull` from a hub on this machine, and pulled models by their names.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
#[cfg(unix)]
use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

#[cfg(unix)]
use crate::{hub::content_from, processes::signal};
use crate::{
    hub::{COMMIT, Reply, Repo, Server, sha256},
    program::{Scratch, command, error_of, model, text_of},
};

/// The golden model under the name of a quantization, and something beside it.
fn repo() -> Repo {
    let bytes = fs::read(model("llama-plain.gguf")).unwrap();
    Repo {
        name: "org/tiny",
        files: vec![("README.md", b"tiny".to_vec()), ("tiny-Q8_0.gguf", bytes)],
    }
}

/// A user whose cache is in `scratch`.
fn user(scratch: &Scratch, endpoint: &str, args: &[&str]) -> Command {
    let mut command = command(args);
    for name in [
        "HF_TOKEN",
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        command.env_remove(name);
    }
    command
        .env("HF_HOME", scratch.path("home"))
        .env("HF_ENDPOINT", endpoint);
    command
}

fn atta(scratch: &Scratch, server: &Server, args: &[&str]) -> Output {
    user(scratch, &server.url, args).output().unwrap()
}

#[test]
fn what_was_pulled_runs_by_its_name() {
    let scratch = Scratch::new("pull-run");
    let repo = repo();
    let server = Server::start(move |request| repo.answer(request));
    let said = text_of(&atta(&scratch, &server, &["pull", "org/tiny"]));
    let path = said.strip_suffix('\n').unwrap();
    let snapshot = format!("home/hub/models--org--tiny/snapshots/{COMMIT}/tiny-Q8_0.gguf");
    assert_eq!(Path::new(path), Path::new(&scratch.path(&snapshot)));

    let n_requests = server.requests().len();
    let expected = text_of(&crate::program::atta(&[
        "run",
        &model("llama-plain.gguf"),
        "-p",
        "the",
        "-n",
        "8",
    ]));
    for name in ["org/tiny", "org/tiny:q8_0", "org/tiny:tiny-Q8_0.gguf", path] {
        assert_eq!(
            text_of(&atta(
                &scratch,
                &server,
                &["run", name, "-p", "the", "-n", "8"]
            )),
            expected,
            "{name}"
        );
    }
    let ids = text_of(&atta(
        &scratch,
        &server,
        &["tokenize", "org/tiny", "the", "--ids"],
    ));
    assert_eq!(
        ids,
        text_of(&crate::program::atta(&[
            "tokenize",
            &model("llama-plain.gguf"),
            "the",
            "--ids"
        ]))
    );
    let inspected = text_of(&atta(&scratch, &server, &["inspect", "org/tiny", "--json"]));
    assert_eq!(
        serde_json::from_str::<Value>(&inspected).unwrap()["model"]["d_model"],
        40
    );
    assert_eq!(
        server.requests().len(),
        n_requests,
        "a run has used the network"
    );
}

#[test]
fn a_pull_is_one_object_on_request_and_says_what_was_there() {
    let scratch = Scratch::new("pull-json");
    let repo = repo();
    let server = Server::start(move |request| repo.answer(request));
    let bytes = fs::read(model("llama-plain.gguf")).unwrap();
    for cached in [false, true] {
        let said = text_of(&atta(
            &scratch,
            &server,
            &["pull", "org/tiny:Q8_0", "--revision", COMMIT, "--json"],
        ));
        let object: Value = serde_json::from_str(&said).unwrap();
        let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["repo", "revision", "commit", "path", "files"]);
        assert_eq!(
            [&object["repo"], &object["revision"], &object["commit"]],
            ["org/tiny", COMMIT, COMMIT]
        );
        let file = &object["files"][0];
        assert_eq!(
            (&file["bytes"], &file["cached"]),
            (&bytes.len().into(), &cached.into())
        );
        assert_eq!(
            (&file["sha256"], &file["path"]),
            (&sha256(&bytes).into(), &object["path"])
        );
    }
}

#[test]
fn a_name_that_is_not_there_says_how_to_get_it_and_what_is() {
    let scratch = Scratch::new("pull-absent");
    let repo = repo();
    let server = Server::start(move |request| repo.answer(request));
    let run = |name: &str| error_of(&atta(&scratch, &server, &["run", name, "-p", "x"]), 1);
    let error = run("org/tiny:q8_0");
    assert!(
        error.contains("`atta pull org/tiny:q8_0`") && error.contains("which is empty"),
        "{error}"
    );
    assert!(server.requests().is_empty());
    assert_eq!(
        atta(&scratch, &server, &["pull", "org/tiny"]).status.code(),
        Some(0)
    );
    let error = run("org/other");
    assert!(
        error.contains("has org/tiny") && error.contains("`atta pull org/other`"),
        "{error}"
    );
    let error = run("org/tiny:q4_0");
    assert!(
        error.contains("there are tiny-Q8_0.gguf") && error.contains("`atta pull org/tiny:q4_0`"),
        "{error}"
    );
    // What ends as a file does is one.
    assert!(!run("models/absent.gguf").contains("atta pull"));
}

#[test]
fn offline_is_what_is_in_the_cache() {
    let scratch = Scratch::new("pull-offline");
    let repo = repo();
    let server = Server::start(move |request| repo.answer(request));
    let offline = |what: &str| {
        user(&scratch, &server.url, &["pull", what])
            .env("HF_HUB_OFFLINE", "1")
            .output()
            .unwrap()
    };
    assert!(error_of(&offline("org/tiny"), 1).contains("HF_HUB_OFFLINE"));
    assert!(server.requests().is_empty());
    let path = text_of(&atta(&scratch, &server, &["pull", "org/tiny"]));
    assert_eq!(text_of(&offline("org/tiny")), path);
    assert!(error_of(&offline("org/tiny:q4_0"), 1).contains("tiny-Q8_0.gguf"));
}

#[test]
fn the_token_comes_from_the_environment_or_its_file() {
    let scratch = Scratch::new("pull-token");
    let server = Server::start(|request| {
        Reply::of(401, request.header("authorization").unwrap_or("nobody"))
    });
    let error = error_of(&atta(&scratch, &server, &["pull", "org/tiny"]), 1);
    assert!(
        error.contains("private or gated") && error.contains("HF_TOKEN"),
        "{error}"
    );
    fs::create_dir(scratch.path("home")).unwrap();
    fs::write(scratch.path("home/token"), "hf_file\n").unwrap();
    error_of(&atta(&scratch, &server, &["pull", "org/tiny"]), 1);
    error_of(
        &user(&scratch, &server.url, &["pull", "org/tiny"])
            .env("HF_TOKEN", "hf_variable")
            .output()
            .unwrap(),
        1,
    );
    let seen: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(
        seen,
        [
            None,
            Some("Bearer hf_file".to_owned()),
            Some("Bearer hf_variable".to_owned())
        ]
    );
}

#[test]
fn what_is_no_name_is_wrong_usage() {
    let scratch = Scratch::new("pull-usage");
    let server = Server::start(|_| Reply::of(500, ""));
    for args in [
        &["pull", "tiny"][..],
        &["pull", "org/../x"],
        &["pull", "a/b:../c"],
        &["pull", "a/b", "--revision", ".."],
    ] {
        error_of(&atta(&scratch, &server, args), 2);
    }
    assert!(server.requests().is_empty());
    let error = error_of(
        &user(&scratch, "huggingface.co", &["pull", "a/b"])
            .output()
            .unwrap(),
        1,
    );
    assert!(error.contains("no URL of a hub"), "{error}");
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_what_has_come_and_the_next_pull_goes_on() {
    let scratch = Scratch::new("pull-interrupt");
    let repo = repo();
    let bytes = fs::read(model("llama-plain.gguf")).unwrap();
    let part = bytes.len() / 2;
    let content = bytes.clone();
    let server = Server::start(move |request| match (request.is_file(), request.start()) {
        (false, _) => repo.answer(request),
        // The rest never comes, and the connection stays.
        (true, None) => Reply {
            stall: true,
            cut: Some(part),
            ..content_from(&content, None)
        },
        (true, start) => content_from(&content, start),
    });
    let child = user(&scratch, &server.url, &["pull", "org/tiny"])
        .spawn()
        .unwrap();
    let blob = scratch.path("home/hub/models--org--tiny/blobs/") + &sha256(&bytes);
    let partial = blob.clone() + ".incomplete";
    let start = Instant::now();
    while fs::metadata(&partial).map_or(0, |meta| meta.len()) < part as u64 {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing came");
        sleep(Duration::from_millis(5));
    }
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (
            output.status.code(),
            output.stdout.len(),
            output.stderr.len()
        ),
        (Some(130), 0, 0)
    );
    assert_eq!(fs::read(&partial).unwrap(), bytes[..part]);

    text_of(&atta(&scratch, &server, &["pull", "org/tiny"]));
    assert_eq!(server.file_requests()[1].start(), Some(part));
    assert_eq!(fs::read(&blob).unwrap(), bytes);
    assert!(!Path::new(&partial).exists());
}
