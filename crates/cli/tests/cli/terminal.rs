//! `atta chat` and `atta picolm` on a terminal: keys, and the screen.

#![cfg(unix)]

use std::process::Command;

use rexpect::{reader::Options, session::PtySession, spawn_with_options};

use crate::{
    chat::{ChatModel, ENDLESS},
    program::Scratch,
};

/// The chat of a tiny model on a terminal, after its first prompt.
fn chat(model: &ChatModel, more: &[&str]) -> PtySession {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atta"));
    // Keys and sequences depend on the kind of the terminal, so the tests set it.
    let n = if more.contains(&"-n") {
        [].as_slice()
    } else {
        &["-n", "8"]
    };
    command
        .args(["chat", &model.path, "-t", "0"])
        .args(n)
        .args(more)
        .env("TERM", "xterm");
    let options = Options::new()
        .timeout_ms(Some(60_000))
        .strip_ansi_escape_codes(true);
    let mut session = spawn_with_options(command, options).unwrap();
    session.exp_string("/help lists").unwrap();
    session.exp_string("> ").unwrap();
    session
}

fn key(session: &mut PtySession, keys: &str) {
    session.send(keys).unwrap();
    session.flush().unwrap();
}

/// The exit code, after all that is still to be said.
fn code(mut session: PtySession) -> i32 {
    session.exp_eof().unwrap();
    // The type of it is nix's, which is none of our dependencies: `Exited(Pid(1234), 0)`.
    let status = format!("{:?}", session.process().wait().unwrap());
    assert!(status.starts_with("Exited("), "{status}");
    status
        .trim_end_matches(')')
        .rsplit(", ")
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn a_message_is_answered_and_the_prompt_comes_back() {
    let model = ChatModel::new("tty-answer");
    let mut session = chat(&model, &[]);
    session.send_line("the king").unwrap();
    session.exp_string("the king").unwrap();
    let answer = session.exp_string("> ").unwrap();
    assert!(answer.trim().len() > 3, "{answer:?}");
    session.send_line("/exit").unwrap();
    assert_eq!(code(session), 0);
}

#[test]
fn ctrl_d_leaves() {
    let model = ChatModel::new("tty-ctrl-d");
    let mut session = chat(&model, &[]);
    session.send_control('d').unwrap();
    assert_eq!(code(session), 0);
}

#[test]
fn ctrl_c_stops_an_answer_and_keeps_the_chat_and_the_second_one_leaves() {
    let model = ChatModel::new("tty-ctrl-c");
    let path = model.scratch.path("stats.json");
    let endless = [
        &["-n", "1000000", "-c", "1000000", "--stats-json", &path],
        &ENDLESS[..],
    ]
    .concat();
    let mut session = chat(&model, &endless);
    for _ in 0..2 {
        session.send_line("the king").unwrap();
        session.exp_regex("the king\r?\n?[\\s\\S]{40}").unwrap();
        session.send_control('c').unwrap();
        session.exp_string("> ").unwrap();
    }
    session.send_control('c').unwrap();
    assert_eq!(code(session), 130);
    let stats: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let turns = stats["turns"].as_array().unwrap();
    assert_eq!(
        (turns.len(), &turns[1]["finish_reason"]),
        (2, &"interrupted".into())
    );
    assert!(
        turns[1]["cached_tokens"].as_u64() > Some(20),
        "the chat was not kept: {turns:?}"
    );
}

#[test]
fn ctrl_c_at_the_prompt_asks_once() {
    let model = ChatModel::new("tty-twice");
    let mut session = chat(&model, &[]);
    session.send_control('c').unwrap();
    session.exp_string("Ctrl-C again leaves").unwrap();
    session.exp_string("> ").unwrap();
    // After another command the question comes again.
    session.send_line("/clear").unwrap();
    session.exp_string("> ").unwrap();
    session.send_control('c').unwrap();
    session.exp_string("Ctrl-C again leaves").unwrap();
    session.exp_string("> ").unwrap();
    session.send_control('c').unwrap();
    assert_eq!(code(session), 130);
}

#[test]
fn earlier_lines_come_back_with_the_arrow_keys() {
    let model = ChatModel::new("tty-history");
    let mut session = chat(&model, &[]);
    session.send_line("/help").unwrap();
    session.exp_string("stops an answer").unwrap();
    session.exp_string("> ").unwrap();
    key(&mut session, "\u{1b}[A\r");
    session.exp_string("stops an answer").unwrap();
    session.exp_string("> ").unwrap();
    session.send_control('d').unwrap();
    assert_eq!(code(session), 0);
}

#[test]
fn a_line_can_be_edited() {
    let model = ChatModel::new("tty-edit");
    let mut session = chat(&model, &[]);
    // Left, left, backspace: the x is gone.
    key(&mut session, "/hexlp\u{1b}[D\u{1b}[D\u{7f}\r");
    session.exp_string("stops an answer").unwrap();
    session.exp_string("> ").unwrap();
    session.send_line("/exit").unwrap();
    assert_eq!(code(session), 0);
}

#[test]
fn what_fails_is_reported_and_the_chat_goes_on() {
    let model = ChatModel::new("tty-errors");
    let mut session = chat(&model, &["-c", "100"]);
    session.send_line("/load nowhere").unwrap();
    session.exp_string("atta: error: nowhere").unwrap();
    session.exp_string("> ").unwrap();
    session.send_line(&"the king ".repeat(60)).unwrap();
    session.exp_string("the context is full").unwrap();
    session.exp_string("> ").unwrap();
    session.send_line("/exit").unwrap();
    assert_eq!(code(session), 0);
}

#[test]
fn an_answer_that_is_cut_off_says_so() {
    let model = ChatModel::new("tty-cut");
    let mut session = chat(&model, &ENDLESS);
    session.send_line("the king").unwrap();
    session.exp_string("(cut off: see -n)").unwrap();
    session.exp_string("> ").unwrap();
    session.send_line("/exit").unwrap();
    assert_eq!(code(session), 0);
}

#[test]
fn ctrl_c_and_ctrl_d_at_the_question_end_the_message_and_keep_the_chat() {
    let scratch = Scratch::new("tty-tools");
    let tools = scratch.file("tools.json", br#"[{"name": "feed"}]"#);
    let missing = scratch.path("missing");
    let saved = scratch.path("saved.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_atta"));
    command
        .args([
            "chat",
            "--tools",
            &tools,
            "--tool-choice",
            "feed",
            "--tool-cmd",
            &missing,
        ])
        .env("TERM", "xterm");
    let options = Options::new()
        .timeout_ms(Some(30_000))
        .strip_ansi_escape_codes(true);
    let mut session = spawn_with_options(command, options).unwrap();
    session.exp_string("> ").unwrap();
    for control in ['c', 'd'] {
        session.send_line("the king").unwrap();
        session.exp_string("run it? [y/N/a: always] ").unwrap();
        session.send_control(control).unwrap();
        session.exp_string("> ").unwrap();
    }
    session.send_line(&format!("/save {saved}")).unwrap();
    session.exp_string("> ").unwrap();
    session.send_line("/exit").unwrap();
    assert_eq!(code(session), 0);
    assert_eq!(std::fs::read_to_string(saved).unwrap().trim(), "[]");
}

#[test]
fn lines_that_arrive_together_are_all_read() {
    let model = ChatModel::new("tty-together");
    let saved = model.scratch.path("saved.json");
    let mut session = chat(&model, &[]);
    key(
        &mut session,
        &format!("the king\rand then\rand so on\r/save {saved}\r/exit\r"),
    );
    assert_eq!(code(session), 0);
    let messages: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    let said = messages
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "user");
    let said: Vec<&str> = said
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["the king", "and then", "and so on"]);
}

/// A chat whose escapes are seen, on a terminal with so many columns.
fn raw_chat(args: &[&str], n_columns: usize, environment: &[(&str, &str)]) -> PtySession {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_atta");
    let script = format!("stty rows 24 cols {n_columns} && exec \"$@\"");
    command.args(["-c", &script, "sh", program]).args(args);
    command.env_remove("NO_COLOR").env("TERM", "xterm");
    command.envs(environment.iter().copied());
    spawn_with_options(command, Options::new().timeout_ms(Some(60_000))).unwrap()
}

const COLOURED: &str = "\u{1b}[1;36m>\u{1b}[0m ";
const DIMMED: &str = "\u{1b}[2m";

#[test]
fn prompt_and_figures_are_coloured_unless_no_color_is_set() {
    let model = ChatModel::new("tty-colour");
    let args = ["chat", &model.path, "-t", "0", "-n", "8"];
    let mut session = raw_chat(&args, 80, &[]);
    let title = session.exp_string(COLOURED).unwrap();
    assert!(title.contains("a context of "), "{title:?}");
    session.send_line("the king").unwrap();
    let answer = session.exp_string(" % of the context)").unwrap();
    assert!(
        answer.contains(DIMMED) && answer.contains(" tokens/s, "),
        "{answer:?}"
    );

    let mut session = raw_chat(&args, 80, &[("NO_COLOR", "1")]);
    session.exp_string("> ").unwrap();
    session.send_line("the king").unwrap();
    let answer = session.exp_string(" % of the context)").unwrap();
    assert!(
        !answer.contains(DIMMED) && !answer.contains("[1;36m"),
        "{answer:?}"
    );

    let quiet = [&args[..], &["--quiet"]].concat();
    let mut session = raw_chat(&quiet, 80, &[]);
    let title = session.exp_string(COLOURED).unwrap();
    session.send_line("the king").unwrap();
    session.send_line("/exit").unwrap();
    let rest = session.exp_eof().unwrap();
    assert!(
        !title.contains("a context of ") && !rest.contains("tokens/s"),
        "{title} {rest}"
    );
}

#[test]
fn lines_of_an_answer_fit_the_terminal() {
    let model = ChatModel::new("tty-wrap");
    let args = [
        "chat",
        &model.path,
        "-t",
        "1",
        "--seed",
        "3",
        "-n",
        "60",
        "--quiet",
    ];
    let args = [&args[..], &ENDLESS].concat();
    let mut session = raw_chat(&args, 30, &[("NO_COLOR", "1")]);
    session.exp_string("> ").unwrap();
    session.send_line("the king").unwrap();
    session.exp_string("the king").unwrap();
    let answer = session.exp_string("(cut off").unwrap();
    // Where a word is carried over, the line ends with the command to wipe it.
    let lines = answer
        .lines()
        .map(|line| line.split('\u{1b}').next().unwrap().trim_end());
    let widths: Vec<usize> = lines.map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|&n| n < 30), "{answer:?}");
    assert!(widths.iter().filter(|&&n| n > 10).count() > 1, "{answer:?}");
}

#[test]
fn thoughts_are_dimmed_or_hidden_and_come_back_on_request() {
    let model = crate::thoughts::ThinkingModel::new("tty-thoughts");
    let mut session = raw_chat(&model.args(&["--quiet"]), 80, &[]);
    session.exp_string(COLOURED).unwrap();
    session.send_line("the king").unwrap();
    session.exp_string("\u{1b}[2mthinking: ").unwrap();
    let answer = session.exp_string(COLOURED).unwrap();
    let (thoughts, answer) = answer.split_once("\n\r\n").expect("a line between them");
    assert!(
        thoughts.contains("\u{1b}[0m") && answer.trim().len() > 3,
        "{answer:?}"
    );
    assert!(
        !answer.split(COLOURED).next().unwrap().contains(DIMMED),
        "{answer:?}"
    );

    let hidden = model.args(&["--quiet", "--hide-thoughts"]);
    let mut session = raw_chat(&hidden, 80, &[("NO_COLOR", "1")]);
    session.exp_string("> ").unwrap();
    session.send_line("the king").unwrap();
    session.exp_string("thinking: 1 tokens").unwrap();
    session.exp_string("\r\u{1b}[K").unwrap();
    let answer = session.exp_string("> ").unwrap();
    session.send_line("/thoughts").unwrap();
    session.exp_string("/thoughts").unwrap();
    let thoughts = session.exp_string("> ").unwrap();
    assert!(
        thoughts.trim().len() > 3 && !answer.contains(thoughts.trim()),
        "{thoughts:?}"
    );
}

#[test]
fn quotes_hold_lines_of_a_message_together() {
    let model = ChatModel::new("tty-quotes");
    let saved = model.scratch.path("saved.json");
    let mut session = chat(&model, &["--quiet"]);
    key(&mut session, "\"\"\"the king\r/and then\"\"\"\r");
    session.exp_string("then").unwrap();
    session.send_line(&format!("/save {saved}")).unwrap();
    session.send_line("/exit").unwrap();
    assert_eq!(code(session), 0);
    let messages: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    assert_eq!(messages[0]["content"], "the king\n/and then");
    assert_eq!(messages.as_array().unwrap().len(), 2);
}

#[test]
fn an_answer_is_written_again_on_request() {
    let model = ChatModel::new("tty-regen");
    let mut session = chat(&model, &["-t", "1", "--seed", "1"]);
    session.send_line("the king").unwrap();
    session.exp_string("tokens/s").unwrap();
    session.exp_string("> ").unwrap();
    session.send_line("/regen").unwrap();
    session.exp_string("tokens/s").unwrap();
    session.exp_string("> ").unwrap();
    session.send_line("/exit").unwrap();
    assert_eq!(code(session), 0);
}

#[test]
#[cfg(feature = "builtin")]
fn always_is_asked_once_and_a_call_that_was_refused_is_not_asked_for_again() {
    let scratch = Scratch::new("tty-consent");
    let tools = scratch.file("tools.json", br#"[{"name": "feed"}]"#);
    let tool = scratch.file("tool", b"#!/bin/sh\necho fed\n");
    std::process::Command::new("chmod")
        .args(["+x", &tool])
        .status()
        .unwrap();
    for (answer, name) in [("a", "always"), ("n", "no")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atta"));
        command
            .args([
                "chat",
                "--tools",
                &tools,
                "--tool-choice",
                "feed",
                "--tool-cmd",
                &tool,
            ])
            .env("TERM", "xterm");
        let options = Options::new()
            .timeout_ms(Some(60_000))
            .strip_ansi_escape_codes(true);
        let mut session = spawn_with_options(command, options).unwrap();
        session.exp_string("> ").unwrap();
        session.send_line("the king").unwrap();
        session.exp_string("run it? [y/N/a: always] ").unwrap();
        session.send_line(answer).unwrap();
        if answer == "a" {
            // The second message leads to a call again, without a question.
            session.exp_string("> ").unwrap();
            session.send_line("the king").unwrap();
            session.exp_string("the king").unwrap();
        }
        let rest = session.exp_string("> ").unwrap();
        assert!(!rest.contains("run it?"), "{name}: {rest}");
        session.send_line("/exit").unwrap();
        assert_eq!(code(session), 0);
    }
}

/// The built-in model on a terminal, from start to end.
#[cfg(feature = "builtin")]
fn story(more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atta"));
    command
        .args(["run", "-p", "Once upon a time", "--verbose"])
        .args(more);
    let options = Options::new()
        .timeout_ms(Some(60_000))
        .strip_ansi_escape_codes(true);
    spawn_with_options(command, options)
        .unwrap()
        .exp_eof()
        .unwrap()
}

#[test]
#[cfg(feature = "builtin")]
fn on_a_terminal_the_seed_is_random_and_said_and_a_text_that_was_cut_off_says_so() {
    let seed = |text: &str| {
        text.split_once("seed: ")
            .unwrap()
            .1
            .lines()
            .next()
            .unwrap()
            .trim()
            .to_owned()
    };
    let one = story(&["-n", "5"]);
    let two = story(&["-n", "5"]);
    assert_ne!(seed(&one), seed(&two));
    assert!(one.contains("(cut off: see -n)"), "{one}");
    assert_eq!(seed(&story(&["-n", "1", "--seed", "7"])), "7");
    let whole = story(&["--seed", "3"]);
    assert!(!whole.contains("cut off"), "{whole}");
}

#[test]
#[cfg(feature = "cli-extras")]
fn a_model_without_a_prompt_on_a_terminal_leads_to_chat() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atta"));
    command.args(["run", &crate::program::model("llama-plain.gguf")]);
    let mut session = spawn_with_options(command, Options::new().timeout_ms(Some(60_000))).unwrap();
    session.exp_string("atta chat ").unwrap();
    assert_eq!(code(session), 2);
}

#[test]
fn a_long_prompt_has_a_bar_that_goes_away_before_the_text() {
    let path = crate::program::model("llama-plain.gguf");
    let prompt = "abc ".repeat(300);
    let args = [
        "run", &path, "-c", "4096", "-t", "0", "-n", "4", "-p", &prompt,
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_atta"));
    command.args(args);
    let options = Options::new().timeout_ms(Some(60_000));
    let seen = spawn_with_options(command, options)
        .unwrap()
        .exp_eof()
        .unwrap();
    // With blanks, since not every console knows escape sequences.
    let (before, after) = seen.rsplit_once("  \r").expect("the bar is wiped");
    assert!(before.contains("\r\rprompt [-----"), "{seen:?}");
    assert!(
        before.contains(" 0 of ") && before.contains("tokens/s, "),
        "{seen:?}"
    );
    assert!(
        before.trim_end_matches(' ').ends_with(" left\r"),
        "nothing is between the bar and its end: {seen:?}"
    );

    let piped = crate::program::atta(&args);
    let stderr = String::from_utf8(piped.stderr).unwrap();
    assert!(
        !stderr.contains("prompt [") && !stderr.contains('\u{1b}'),
        "{stderr:?}"
    );
    let text = String::from_utf8(piped.stdout).unwrap();
    let text = text.trim_end();
    assert!(
        !text.is_empty() && after.starts_with(text),
        "the text follows the bar: {seen:?}"
    );
}

#[test]
fn picolm_asks_for_a_prompt_where_nobody_pipes_one() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atta"));
    command.args(["picolm", &crate::program::model("llama-plain.gguf")]);
    let mut session = spawn_with_options(command, Options::new().timeout_ms(Some(60_000))).unwrap();
    session.exp_string("-p TEXT").unwrap();
    assert_eq!(code(session), 2);
}

#[test]
fn picolm_ends_its_line_on_a_terminal() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atta"));
    let model = crate::program::model("qwen2-untied.gguf");
    command.args(["picolm", &model, "-p", "x", "-t", "0", "-n", "5"]);
    let mut session = spawn_with_options(command, Options::new().timeout_ms(Some(60_000))).unwrap();
    let text = session.exp_eof().unwrap();
    assert!(text.ends_with("\r\n") && text.len() > 3, "{text:?}");
}
