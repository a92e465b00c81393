//! Pipes that close, disks that are full, and Ctrl-C.

#![cfg(unix)]

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    processes::signal,
    program::{Scratch, command, model, said},
};

/// A generation that goes on until it is stopped.
fn endless(more: &[&str]) -> Child {
    let model = model("llama-bias.gguf");
    let args = [
        "run", &model, "-p", "x", "-t", "0", "-n", "1000000", "-c", "1000000",
    ];
    command(&[&args, more].concat()).spawn().unwrap()
}

fn first_byte(child: &mut Child) {
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
}

#[test]
fn a_reader_who_has_enough_ends_it_silently() {
    let scratch = Scratch::new("closed-pipe");
    let path = scratch.path("stats.json");
    let mut child = endless(&["--stats-json", &path]);
    first_byte(&mut child);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(said(&output), "");
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .contains("\"interrupted\"")
    );
}

#[test]
fn every_command_bears_a_closed_pipe() {
    let model = model("llama-plain.gguf");
    let all: [&[&str]; 5] = [
        &["inspect", &model, "--tensors"],
        &["inspect", &model, "--json"],
        &["tokenize", &model, "a b c"],
        &["bench", &model, "-p", "1", "-n", "1"],
        &["--help"],
    ];
    for args in all {
        let mut child = command(args).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), said(&output)),
            (Some(0), String::new()),
            "{args:?}"
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_closed_pipe_by_the_name_of_a_file_is_borne_too() {
    let ids: Vec<String> = (0..200).map(|i| (3 + i % 50).to_string()).collect();
    let args = [
        "logits",
        &model("llama-plain.gguf"),
        "--tokens",
        &ids.join(","),
        "-o",
        "/dev/stdout",
    ];
    let mut child = command(&args).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), said(&output)),
        (Some(0), String::new())
    );
}

#[test]
fn ctrl_c_in_the_last_line_of_a_pipe_is_an_interruption() {
    let model = model("llama-bias.gguf");
    let args = [
        "chat",
        &model,
        "-t",
        "0",
        "-n",
        "1000000",
        "-c",
        "1000000",
        "--logit-bias",
        "2-inf",
    ];
    let mut child = command(&args).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"x\n").unwrap();
    first_byte(&mut child);
    signal(&child, "INT");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_failure() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let model = model("llama-plain.gguf");
    let output = command(&["tokenize", &model, "a"])
        .stdout(full)
        .output()
        .unwrap();
    let error = crate::program::error_of(&output, 1);
    assert!(error.contains("standard output"), "{error}");
}

#[test]
fn ctrl_c_ends_the_text_and_still_writes_statistics() {
    let scratch = Scratch::new("interrupt");
    let path = scratch.path("stats.json");
    let mut child = endless(&["--stats-json", &path]);
    first_byte(&mut child);
    let stats = interrupt(child, &scratch);
    assert!(stats["generated_tokens"].as_u64() > Some(0));
}

/// Presses Ctrl-C once. The program has to end at once with the statistics of `stats.json` and
/// nothing beside them.
fn interrupt(child: Child, scratch: &Scratch) -> Value {
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(said(&output), "");
    let stats: Value =
        serde_json::from_str(&std::fs::read_to_string(scratch.path("stats.json")).unwrap())
            .unwrap();
    assert_eq!(stats["finish_reason"], "interrupted");
    assert!(stats.get("error").is_none());
    assert_eq!(
        stats["peak_rss_anon_bytes"].is_u64(),
        cfg!(target_os = "linux")
    );
    assert!(
        !scratch.names().iter().any(|name| name.ends_with(".part")),
        "{:?}",
        scratch.names()
    );
    stats
}

#[test]
fn ctrl_c_while_standard_input_is_read_still_writes_statistics() {
    let scratch = Scratch::new("interrupt-stdin");
    // With a window the prompt may be longer than the context, so that it is read on.
    let args = [
        "run",
        &model("llama-plain.gguf"),
        "--window",
        "80",
        "--stats-json",
        &scratch.path("stats.json"),
    ];
    let mut child = command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than a pipe holds: once it is written, the program is reading.
    stdin.write_all(&[b'a'; 1 << 18]).unwrap();
    let stats = interrupt(child, &scratch);
    assert_eq!(
        (&stats["prompt_tokens"], &stats["generated_tokens"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn ctrl_c_while_a_file_is_waited_for_still_writes_statistics() {
    let scratch = Scratch::new("interrupt-load");
    // Opening a pipe waits for a writer, as reading from a slow disk would wait.
    let prompt = scratch.path("prompt.txt");
    assert!(
        Command::new("mkfifo")
            .arg(&prompt)
            .status()
            .unwrap()
            .success()
    );
    let child = command(&[
        "run",
        "-f",
        &prompt,
        "--stats-json",
        &scratch.path("stats.json"),
    ])
    .spawn()
    .unwrap();
    let start = Instant::now();
    while !scratch.names().iter().any(|name| name.ends_with(".part")) {
        assert!(start.elapsed() < Duration::from_secs(20), "it never began");
        sleep(Duration::from_millis(5));
    }
    interrupt(child, &scratch);
}
