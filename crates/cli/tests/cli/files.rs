//! Files that are read and written: none that is read is overwritten, and a text that cannot fit is
//! refused while it is read.

use std::fs;
#[cfg(unix)]
use std::process::Stdio;

#[cfg(unix)]
use crate::program::command;
use crate::program::{Scratch, atta, error_of, model, stdout};
#[cfg(any(
    feature = "builtin",
    feature = "chat",
    feature = "cli-extras",
    feature = "perplexity"
))]
use crate::program::{atta_with_input, text_of};

/// A model that a test may lose.
fn copy(scratch: &Scratch) -> String {
    scratch.file("m.gguf", &fs::read(model("llama-plain.gguf")).unwrap())
}

#[test]
fn no_output_overwrites_a_model() {
    let scratch = Scratch::new("files-model");
    let path = copy(&scratch);
    let whole = fs::read(model("llama-plain.gguf")).unwrap();
    let text = scratch.file("text", &b"the king of the land ".repeat(20));
    let other = model("qwen2.gguf");
    for command in [
        &["logits", &path, "--tokens", "1,2", "-o", &path][..],
        &["run", &path, "-p", "x", "-n", "1", "--stats-json", &path],
        // One that the command does not read is a model, too.
        &["run", &other, "-p", "x", "-n", "1", "--stats-json", &path],
        #[cfg(feature = "perplexity")]
        &[
            "perplexity",
            &path,
            "-f",
            &text,
            "-c",
            "16",
            "--save-logits",
            &path,
        ],
        #[cfg(feature = "convert")]
        &[
            "imatrix", &path, "-f", &text, "-c", "16", "--force", "-o", &path,
        ],
        #[cfg(feature = "convert")]
        &["convert", &path, &path, "--force"],
    ] {
        let error = error_of(&atta(command), 1);
        assert!(error.contains("give another name"), "{command:?}: {error}");
        assert!(fs::read(&path).unwrap() == whole, "{command:?}");
    }
    let _ = text;
}

#[test]
#[cfg(all(feature = "chat", feature = "builtin"))]
fn a_chat_is_not_saved_over_a_model_and_a_saved_one_can_be() {
    let scratch = Scratch::new("files-save");
    let (path, saved) = (copy(&scratch), scratch.path("chat.json"));
    let output = atta_with_input(&["chat", "-n", "1"], format!("/save {path}\n").as_bytes());
    assert!(error_of(&output, 1).contains("it is a model"));
    let lines = format!("/save {saved}\n/load {saved}\n/save {saved}\n");
    assert_eq!(
        text_of(&atta_with_input(&["chat", "-n", "1"], lines.as_bytes())),
        ""
    );
}

#[test]
#[cfg(feature = "constrain")]
fn no_output_overwrites_a_text_that_is_read() {
    let scratch = Scratch::new("files-text");
    let schema = scratch.file("s.json", b"{\"type\": \"integer\"}");
    let model = model("llama-plain.gguf");
    let args = [
        "run",
        &model,
        "-p",
        "x",
        "--schema",
        &schema,
        "-n",
        "3",
        "--stats-json",
        &schema,
    ];
    assert!(error_of(&atta(&args), 1).contains("this command reads it"));
    assert_eq!(fs::read(&schema).unwrap(), b"{\"type\": \"integer\"}");
}

#[test]
fn a_file_called_by_a_hyphen_is_standard_output_or_an_error() {
    let model = model("llama-plain.gguf");
    let logits = atta(&["logits", &model, "--tokens", "1,2", "-o", "-"]);
    assert_eq!(
        (logits.status.code(), logits.stdout.len()),
        (Some(0), 2 * 96 * 4)
    );
    let error = error_of(
        &atta(&["run", &model, "-p", "x", "-n", "1", "--stats-json", "-"]),
        2,
    );
    assert!(error.contains("name a file"), "{error}");
}

#[test]
#[cfg(feature = "perplexity")]
fn the_text_of_a_measurement_may_come_on_standard_input() {
    let scratch = Scratch::new("files-stdin");
    let model = model("llama-plain.gguf");
    let text = b"the king of the land ".repeat(20);
    let file = scratch.file("text", &text);
    let piped = atta_with_input(&["perplexity", &model, "-f", "-", "-c", "16"], &text);
    assert_eq!(
        text_of(&piped),
        stdout(&["perplexity", &model, "-f", &file, "-c", "16"])
    );
}

#[test]
#[cfg(unix)]
fn a_text_without_end_is_refused_while_it_is_read() {
    let mut yes = std::process::Command::new("yes")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let endless = yes.stdout.take().unwrap();
    let output = command(&["run", &model("llama-plain.gguf"), "-n", "1"])
        .stdin(endless)
        .output()
        .unwrap();
    let error = error_of(&output, 1);
    assert!(
        error.contains("the text has more than") && error.contains("raise -c"),
        "{error}"
    );
    yes.kill().unwrap();
    yes.wait().unwrap();
}

#[test]
#[cfg(feature = "cli-extras")]
fn a_file_stands_behind_the_prompt() {
    let scratch = Scratch::new("files-joined");
    let model = model("qwen2-untied.gguf");
    let file = scratch.file("text", b"\xef\xbb\xbfthe land");
    let run = |more: &[&str]| stdout(&[&["run", &model, "-n", "8", "-t", "0"], more].concat());
    let joined = run(&["-p", "the king\n\nthe land"]);
    assert_eq!(run(&["-p", "the king", "-f", &file]), joined);
    let piped = [
        "run", &model, "-n", "8", "-t", "0", "-p", "the king", "-f", "-",
    ];
    assert_eq!(text_of(&atta_with_input(&piped, b"the land")), joined);
    assert_eq!(run(&["-f", &file]), run(&["-p", "the land"]));
}

#[test]
#[cfg(all(unix, feature = "cli-extras"))]
fn standard_input_that_is_not_read_is_said_to_be_and_not_waited_for() {
    let scratch = Scratch::new("files-ignored");
    let file = fs::File::open(scratch.file("text", b"a long document")).unwrap();
    let args = ["run", &model("llama-plain.gguf"), "-p", "x", "-n", "1"];
    let output = command(&args).stdin(file).output().unwrap();
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("-f - puts it behind the prompt")
    );
    // A pipe that stays open and empty.
    let mut sleep = std::process::Command::new("sleep")
        .arg("600")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = command(&args)
        .stdin(sleep.stdout.take().unwrap())
        .output()
        .unwrap();
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
#[cfg(unix)]
fn a_pipe_is_no_model_and_is_not_waited_for() {
    let scratch = Scratch::new("files-fifo");
    let path = scratch.path("f.gguf");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    assert!(error_of(&atta(&["run", &path, "-p", "x"]), 1).contains("a pipe or a device"));
}

#[test]
#[cfg(all(feature = "chat", feature = "builtin"))]
fn byte_order_marks_are_no_part_of_what_is_read() {
    let scratch = Scratch::new("files-bom");
    let marked = |name: &str, text: &str| scratch.file(name, format!("\u{feff}{text}").as_bytes());
    let schema = marked("s.json", "{\"enum\": [7]}");
    let load = marked("l.json", "[]");
    let grammar = marked("g.gbnf", "root ::= \"a\"\r\n");
    let saved = scratch.path("saved.json");
    assert_eq!(
        stdout(&["run", "-p", "J:", "--schema", &schema, "-n", "9"]),
        "7"
    );
    assert_eq!(
        stdout(&["run", "-p", "J:", "--grammar", &grammar, "-n", "9"]),
        "a"
    );
    let wide = "{\"enum\": [7]}".encode_utf16().flat_map(u16::to_le_bytes);
    let wide = scratch.file(
        "u16.json",
        &b"\xff\xfe".iter().copied().chain(wide).collect::<Vec<u8>>(),
    );
    assert_eq!(
        stdout(&["run", "-p", "J:", "--schema", &wide, "-n", "9"]),
        "7"
    );
    let lines = format!("\u{feff}hello\r\n/save {saved}\r\n/load {load}\r\n");
    text_of(&atta_with_input(&["chat", "-n", "3"], lines.as_bytes()));
    assert!(fs::read_to_string(saved).unwrap().contains("\"hello\""));
}

#[test]
#[cfg(feature = "cli-extras")]
fn errors_say_what_may_have_been_meant() {
    let scratch = Scratch::new("files-tips");
    let path = copy(&scratch);
    let error = |model: &str| error_of(&atta(&["run", model, "-p", "x"]), 1);
    assert!(error("Once upon a time").contains("given with -p"));
    assert!(error(path.strip_suffix(".gguf").unwrap()).contains("m.gguf"));
    assert!(error(&scratch.path("n.gguf")).contains("beside it there is"));
    assert!(error("llama3").contains("atta pull"));
}

#[test]
#[cfg(feature = "analyze")]
fn a_context_that_does_not_fit_is_an_error_with_one_that_does() {
    let model = model("llama-plain.gguf");
    let run = |n_ctx: &str| {
        atta(&[
            "run",
            &model,
            "-p",
            "x",
            "-n",
            "1",
            "-c",
            n_ctx,
            "--ram-budget",
            "32M",
        ])
    };
    let error = error_of(&run("1000000"), 1);
    let (_, longest) = error
        .trim()
        .split_once("the longest context that fits is -c ")
        .expect(&error);
    assert_eq!(run(longest).status.code(), Some(0));
    // The hint leaves a margin for memory that differs from run to run.
    let longest: usize = longest.parse().unwrap();
    let more = longest + longest / 20;
    assert_eq!(run(&more.to_string()).status.code(), Some(1));
}

#[test]
#[cfg(feature = "builtin")]
fn commands_take_the_built_in_model_where_none_is_named() {
    let scratch = Scratch::new("files-built-in");
    let out = scratch.path("out");
    assert!(stdout(&["inspect"]).contains("llama"));
    assert!(text_of(&atta_with_input(&["tokenize", "--ids"], b"Hello")).starts_with('['));
    stdout(&["logits", "--tokens", "1,2", "-o", &out]);
    assert!(fs::metadata(&out).unwrap().len() > 8);
    assert!(stdout(&["bench", "-p", "4", "-n", "2", "-r", "1"]).contains("tok"));
}

#[test]
fn help_is_a_command_too() {
    assert_eq!(stdout(&["help", "run"]), stdout(&["run", "--help"]));
}
