//! `atta run --tools` and `atta chat --tools --tool-cmd`: calls of a model that has never heard of
//! tools.

use serde_json::Value;

use crate::program::{Scratch, atta, atta_with_input, error_of};

const TOOLS: &str = r#"[{"type": "function", "function": {"name": "feed", "parameters": {"type": "object",
    "properties": {"animal": {"enum": ["ant", "owl"]}}, "required": ["animal"]}}}]"#;

fn lines(text: &[u8]) -> Vec<Value> {
    str::from_utf8(text)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// There may be warnings before the error.
fn fails(output: &std::process::Output, code: i32, what: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(code) && errors.lines().last().unwrap().contains(what),
        "{errors}"
    );
}

#[test]
fn calls_are_lines_of_json() {
    let scratch = Scratch::new("calls");
    let tools = scratch.file("tools.json", TOOLS.as_bytes());
    let run = |choice: &str| {
        let output = atta(&[
            "run",
            "-p",
            "Feed!",
            "--tools",
            &tools,
            "--tool-choice",
            choice,
            "-n",
            "400",
        ]);
        assert!(output.status.success(), "{output:?}");
        lines(&output.stdout)
    };
    // A model that calls for ever is cut off, and half a call is dropped.
    for call in run("required")
        .iter()
        .chain(&run("feed"))
        .filter(|line| line.get("content").is_none())
    {
        assert!(call["name"] == "feed" && call["id"].is_string(), "{call}");
        assert!(
            call["arguments"]["animal"] == "ant" || call["arguments"]["animal"] == "owl",
            "{call}"
        );
    }
    assert!(run("none").iter().all(|line| line["content"].is_string()));
}

#[test]
fn tools_come_on_standard_input_too_and_must_be_some() {
    let piped = atta_with_input(
        &[
            "run",
            "-p",
            "Feed!",
            "--tools",
            "-",
            "--tool-choice",
            "feed",
            "-n",
            "300",
        ],
        TOOLS.as_bytes(),
    );
    assert_eq!(lines(&piped.stdout).len(), 1);
    let scratch = Scratch::new("bad-tools");
    let tools = scratch.file("tools.json", TOOLS.as_bytes());
    let bad = scratch.file("bad.json", b"[{\"name\": \"a b\"}]");
    fails(&atta(&["run", "-p", "x", "--tools", &bad]), 1, "a b");
    fails(
        &atta(&["run", "-p", "x", "--tools", &tools, "--tool-choice", "fly"]),
        1,
        "fly",
    );
    // Before anything is said.
    fails(
        &atta_with_input(
            &[
                "chat",
                "--tools",
                &tools,
                "--tool-choice",
                "fly",
                "--tool-cmd",
                "true",
                "--yes",
            ],
            b"",
        ),
        1,
        "fly",
    );
    for wrong in [
        &["--tools", &tools, "--json"][..],
        &["--tool-choice", "none"],
        &["--tools", &tools, "--stop", "x"],
    ] {
        error_of(&atta(&[&["run", "-p", "x"], wrong].concat()), 2);
    }
}

/// A program that is a tool: it says what it was asked.
#[cfg(unix)]
fn program(scratch: &Scratch, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = scratch.file("tool.sh", text.as_bytes());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
#[cfg(unix)]
fn a_program_runs_the_calls_and_the_model_hears_what_it_says() {
    let scratch = Scratch::new("agent");
    let tools = scratch.file("tools.json", TOOLS.as_bytes());
    let log = scratch.path("log");
    let tool = program(
        &scratch,
        &format!("#!/bin/sh\necho \"$1 $(cat)\" | tee -a {log}\n"),
    );
    let saved = scratch.path("chat.json");
    let input = format!("Feed the ant!\n/save {saved}\n");
    let chat = [
        "chat",
        "--tools",
        &tools,
        "--tool-cmd",
        &tool,
        "--yes",
        "-n",
        "120",
        "-c",
        "1900",
        "--seed",
        "5",
    ];
    let output = atta_with_input(&chat, input.as_bytes());
    assert!(output.status.success(), "{output:?}");
    let n_run = std::fs::read_to_string(&log)
        .unwrap_or_default()
        .lines()
        .count();
    let calls = String::from_utf8(output.stderr).unwrap();
    assert_eq!(calls.matches("call: {").count(), n_run, "{calls}");
    let conversation: Value = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
    let heard = conversation
        .to_string()
        .matches("\"role\":\"tool\"")
        .count();
    assert_eq!(heard, n_run, "{conversation}");
}

#[test]
#[cfg(unix)]
fn a_tool_that_must_be_called_is_called_once_for_each_message() {
    let scratch = Scratch::new("must-call");
    let log = scratch.path("log");
    let tool = program(
        &scratch,
        &format!("#!/bin/sh\necho $1 >> {log}\necho '{{\"ok\": true}}'\n"),
    );
    let tools = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/home/tools.json"
    );
    for choice in ["required", "set_light"] {
        let chat = [
            "chat",
            "--tools",
            tools,
            "--tool-cmd",
            &tool,
            "--yes",
            "-t",
            "0",
            "--tool-choice",
            choice,
        ];
        let output = atta_with_input(&chat, b"turn on the kitchen light\nturn it off\n");
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{output:?}"
        );
        assert_eq!(
            std::fs::read_to_string(&log).unwrap(),
            "set_light\nset_light\n",
            "{choice}"
        );
        std::fs::remove_file(&log).unwrap();
    }
}

#[test]
#[cfg(unix)]
fn a_result_that_does_not_fit_is_cut_and_the_message_goes_on() {
    let scratch = Scratch::new("long-result");
    let saved = scratch.path("chat.json");
    // Once: a model that knows no numbers may call again and again.
    let log = scratch.path("log");
    let tool = format!(
        "#!/bin/sh\necho '{{\"ok\": true}}'; [ -e {log} ] || seq -s ' ' 2000 | tee {log}\n"
    );
    let tool = program(&scratch, &tool);
    let all: Vec<Value> =
        serde_json::from_str(include_str!("../../../../examples/home/tools.json")).unwrap();
    let light: Vec<&Value> = all
        .iter()
        .filter(|tool| tool.to_string().contains("\"set_light\""))
        .collect();
    let tools = scratch.file(
        "tools.json",
        serde_json::to_string(&light).unwrap().as_bytes(),
    );
    let chat = [
        "chat",
        "--tools",
        &tools,
        "--tool-cmd",
        &tool,
        "--yes",
        "-t",
        "0",
        "--tool-choice",
        "set_light",
    ];
    let input = format!("turn on the kitchen light\n/save {saved}\n");
    let output = atta_with_input(&chat, input.as_bytes());
    assert!(
        output.status.success() && !output.stdout.is_empty(),
        "{output:?}"
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stderr)
            .matches("do not fit into the context")
            .count(),
        1
    );
    let conversation: Value = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
    let heard = conversation[2]["content"].as_str().unwrap();
    assert!(
        heard.contains("1 2 3 ") && heard.ends_with(" (cut off)"),
        "{heard}"
    );
}

#[test]
fn a_run_that_does_not_begin_leaves_its_statistics() {
    let scratch = Scratch::new("unbegun");
    let stats = scratch.path("stats.json");
    for missing in [
        ["--schema", "no/file"],
        ["--grammar", "no/file"],
        ["--tools", "no/file"],
    ] {
        fails(
            &atta(&[&["run", "-p", "x", "--stats-json", &stats], &missing[..]].concat()),
            1,
            "no/file",
        );
        let written: Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
        assert!(
            written["error"].as_str().unwrap().contains("no/file"),
            "{written}"
        );
        std::fs::remove_file(&stats).unwrap();
    }
}

#[test]
#[cfg(unix)]
fn nothing_is_run_that_nobody_allows() {
    let scratch = Scratch::new("unasked");
    let tools = scratch.file("tools.json", TOOLS.as_bytes());
    let tool = program(&scratch, "#!/bin/sh\nexit 3\n");
    let chat = ["chat", "--tools", &tools, "--tool-cmd", &tool];
    fails(&atta_with_input(&chat, b"hi\n"), 2, "--yes");
    assert!(
        error_of(&atta_with_input(&["chat", "--tools", &tools], b"hi\n"), 2).contains("--tool-cmd")
    );
    error_of(&atta_with_input(&["chat", "--tool-cmd", &tool], b"hi\n"), 2);
}

#[test]
#[cfg(unix)]
fn a_message_without_an_answer_is_none() {
    let scratch = Scratch::new("unanswered");
    let tools = scratch.file("tools.json", TOOLS.as_bytes());
    let saved = scratch.path("chat.json");
    let tool = program(&scratch, "#!/bin/sh\n");
    let input = format!("Feed the ant!\n/save {saved}\n");
    let chat = [
        "chat",
        "--tools",
        &tools,
        "--tool-cmd",
        &tool,
        "--yes",
        "-n",
        "0",
    ];
    let output = atta_with_input(&chat, input.as_bytes());
    assert!(output.status.success(), "{output:?}");
    let conversation: Value = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
    assert_eq!(conversation, Value::Array(vec![]));
}

#[test]
fn answers_of_a_chat_have_the_shape_that_is_asked_for() {
    let output = atta_with_input(&["chat", "--json", "-n", "30"], b"one\ntwo\n");
    assert!(output.status.success());
    let answers = lines(&output.stdout);
    assert!(
        answers.len() == 2 && answers.iter().all(Value::is_object),
        "{answers:?}"
    );
}
