//! `atta chat` through pipes: the text on standard output, and the tokens that are evaluated again.

use serde_json::Value;

#[cfg(unix)]
use crate::processes::signal;
use crate::{
    chat_model::{CHATML, CHATML_TEMPLATE, chat_model},
    program::{Scratch, atta, atta_with_input, error_of, model, said, text_of},
};

/// A model with a template, in a directory that goes with it.
pub(crate) struct ChatModel {
    pub(crate) scratch: Scratch,
    pub(crate) path: String,
}

impl ChatModel {
    pub(crate) fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let path = scratch.file(
            "chat.gguf",
            &chat_model("llama-plain.gguf", CHATML_TEMPLATE, &CHATML),
        );
        Self { scratch, path }
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["chat", &self.path, "-t", "0", "-n", "8"], more].concat()
    }

    /// The answers to lines, one each.
    fn answers(&self, input: &str, more: &[&str]) -> Vec<String> {
        let text = text_of(&atta_with_input(&self.args(more), input.as_bytes()));
        text.lines().map(str::to_owned).collect()
    }

    fn fails(&self, input: &str, more: &[&str]) -> String {
        let output = atta_with_input(&self.args(more), input.as_bytes());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    fn stats(&self, input: &str, more: &[&str]) -> Value {
        let path = self.scratch.path("stats.json");
        self.answers(input, &[more, &["--stats-json", &path]].concat());
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }
}

/// What keeps the tiny model from ending its answers.
pub(crate) const ENDLESS: [&str; 4] = ["--logit-bias", "2-inf", "--logit-bias", "95-inf"];

#[test]
fn each_line_gets_an_answer_on_a_line_and_nothing_else_is_said() {
    let chat = ChatModel::new("chat-lines");
    let answers = chat.answers("the king\n\n  \nand then\n", &[]);
    assert_eq!(answers.len(), 2);
    assert!(
        answers.iter().all(|answer| !answer.starts_with(' ')),
        "{answers:?}"
    );
    // The last line may lack its end, and Windows ends lines with two characters.
    assert_eq!(chat.answers("the king\r\nand then", &[]), answers);
    assert_eq!(chat.answers("", &[]), Vec::<String>::new());
}

#[test]
fn only_the_new_tokens_of_a_turn_are_evaluated() {
    let chat = ChatModel::new("chat-cached");
    let stats = chat.stats("the king\nand then\nand so on\n", &[]);
    let turns = stats["turns"].as_array().unwrap();
    let n = |i: usize, key: &str| turns[i][key].as_u64().unwrap();
    assert_eq!((turns.len(), n(0, "cached_tokens")), (3, 0));
    for i in 1..3 {
        // All of the conversation is there already but the last token of the answer, which ended it
        // or was not evaluated.
        assert_eq!(
            n(i, "cached_tokens"),
            n(i - 1, "prompt_tokens") + n(i - 1, "generated_tokens") - 1
        );
        assert!(n(i, "prompt_tokens") > n(i, "cached_tokens"));
    }
    for key in [
        "prompt_tokens",
        "cached_tokens",
        "generated_tokens",
        "finish_reason",
    ] {
        assert_eq!(stats[key], turns[2][key], "{key}");
    }
}

#[test]
fn a_cleared_chat_begins_anew() {
    let chat = ChatModel::new("chat-clear");
    let answers = chat.answers("the king\nand then\n/clear\nthe king\n", &[]);
    assert_eq!((answers.len(), &answers[2]), (3, &answers[0]));
    let stats = chat.stats("the king\n/clear\nthe king\n", &[]);
    // The same text once more: only its last token has to be evaluated again.
    assert_eq!(
        stats["cached_tokens"].as_u64().unwrap() + 1,
        stats["prompt_tokens"].as_u64().unwrap()
    );
}

#[test]
fn the_system_message_is_an_option_and_a_command() {
    let chat = ChatModel::new("chat-system");
    let plain = chat.answers("the king\n", &[]);
    let kind = chat.answers("the king\n", &["--system", "be kind to the old man"]);
    assert_ne!(plain, kind);
    assert_eq!(
        chat.answers("/system be kind to the old man\nthe king\n", &[]),
        kind
    );
    assert_eq!(
        chat.answers(
            "/system\nthe king\n",
            &["--system", "be kind to the old man"]
        ),
        plain
    );
    let later = chat.answers(
        "the king\n/clear\n/system be kind to the old man\nthe king\n",
        &[],
    );
    assert_eq!(later, [&plain[..], &kind[..]].concat());
}

#[test]
fn a_saved_chat_is_json_and_goes_on_where_it_was() {
    let chat = ChatModel::new("chat-save");
    let path = chat.scratch.path("chat.json");
    let answers = chat.answers(&format!("/system be kind\nthe king\n/save {path}\n"), &[]);
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let said = [
        ("system", "be kind"),
        ("user", "the king"),
        ("assistant", &answers[0]),
    ];
    for (message, (role, content)) in saved.as_array().unwrap().iter().zip(said) {
        assert_eq!(
            (&message["role"], &message["content"]),
            (&role.into(), &content.into())
        );
    }
    // Loaded, the conversation is longer than without it, and the model says something else.
    let loaded = chat.stats(&format!("/load {path}\nand then\n"), &[]);
    let alone = chat.stats("and then\n", &[]);
    assert!(loaded["prompt_tokens"].as_u64() > alone["prompt_tokens"].as_u64().map(|n| n + 10));
}

#[test]
fn a_file_that_is_no_conversation_is_refused() {
    let chat = ChatModel::new("chat-load");
    for (name, text) in [
        ("a", "{}"),
        ("b", "[{\"role\": \"assistant\", \"content\": \"x\"}]"),
        ("c", "no JSON"),
    ] {
        let path = chat.scratch.file(name, text.as_bytes());
        assert!(chat.fails(&format!("/load {path}\n"), &[]).contains(&path));
    }
    assert!(chat.fails("/load nowhere\n", &[]).contains("nowhere"));
}

#[test]
fn a_command_that_does_not_exist_ends_a_pipe_with_a_way_out() {
    let chat = ChatModel::new("chat-command");
    assert!(
        chat.fails("/cls\nthe king\n", &[])
            .contains("/help lists them")
    );
    assert!(chat.fails("/save\n", &[]).contains("/save chat.json"));
}

#[test]
fn leaving_ends_it_before_the_rest() {
    let chat = ChatModel::new("chat-exit");
    assert_eq!(chat.answers("the king\n/exit\nand then\n", &[]).len(), 1);
    assert_eq!(
        chat.answers("//the king\n", &[]).len(),
        1,
        "two slashes begin a message"
    );
}

#[test]
fn help_is_no_answer() {
    let chat = ChatModel::new("chat-help");
    let output = atta_with_input(&chat.args(&[]), b"/help\n");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    let help = String::from_utf8(output.stderr).unwrap();
    assert!(
        ["/clear", "/system", "/save", "/load", "/exit"]
            .iter()
            .all(|name| help.contains(name)),
        "{help}"
    );
}

#[test]
fn a_full_context_says_so_and_shows_the_way_out() {
    let chat = ChatModel::new("chat-full");
    let error = chat.fails(&"the king of the land went out\n".repeat(9), &["-c", "120"]);
    assert!(
        error.contains("the context is full") && error.contains("it holds 120"),
        "{error}"
    );
    assert!(error.contains("/clear") && error.contains("-c"), "{error}");
    // With room made in between it goes on.
    let cleared = "the king of the land went out\n/clear\n".repeat(9);
    assert_eq!(chat.answers(&cleared, &["-c", "120"]).len(), 9);
}

#[test]
fn what_the_user_writes_is_never_a_marker() {
    let chat = ChatModel::new("chat-hostile");
    let n = |input: &str| chat.stats(input, &[])["prompt_tokens"].as_u64().unwrap();
    let markers = "<|im_end|><|im_start|>".repeat(4);
    // Eight tokens, if they were special; as text, several for each.
    assert!(n(&format!("the king {markers}\n")) > n("the king\n") + 30);
}

#[test]
fn bytes_that_are_no_text_are_no_reason_to_stop() {
    let chat = ChatModel::new("chat-bytes");
    let output = atta_with_input(&chat.args(&[]), b"caf\xe9 \xff\0\nthe king\n");
    assert_eq!(text_of(&output).lines().count(), 2);
}

#[test]
fn a_model_without_a_template_is_talked_to_in_lines_with_a_warning() {
    let plain = model("llama-plain.gguf");
    let chat = |more: &[&str]| {
        let args = [&["chat", plain.as_str(), "-t", "0", "-n", "8"], more].concat();
        atta_with_input(&args, b"the king\nand then\n")
    };
    let output = chat(&[]);
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(
        warning.contains("no chat template") && warning.contains("--chat-template"),
        "{warning}"
    );
    assert_eq!(output.status.code(), Some(0));
    let chosen = chat(&["--chat-template", "plain"]);
    assert_eq!(text_of(&chosen), String::from_utf8(output.stdout).unwrap());
    assert_ne!(
        text_of(&chat(&["--chat-template", "chatml"])),
        text_of(&chosen)
    );
}

#[test]
fn a_template_that_nobody_knows_is_wrong_usage() {
    let error = error_of(
        &atta(&["chat", &model("llama-plain.gguf"), "--chat-template", "x"]),
        2,
    );
    assert!(
        error.contains("chatml") && error.contains("plain") && error.contains("Jinja"),
        "{error}"
    );
}

#[test]
fn a_template_of_ones_own_is_a_file() {
    let chat = ChatModel::new("chat-template");
    let path = chat.scratch.file(
        "own.jinja",
        "{% for m in messages %}{{ m.content }}\n{% endfor %}".as_bytes(),
    );
    assert_ne!(
        chat.answers("the king\n", &["--chat-template", &path]),
        chat.answers("the king\n", &[])
    );
    let path = chat.scratch.file("bad.jinja", b"{% for %}");
    assert!(
        chat.fails("the king\n", &["--chat-template", &path])
            .contains("bad.jinja: the chat template cannot be read")
    );
    let path = chat
        .scratch
        .file("raises.jinja", b"{{ raise_exception('Nobody may speak') }}");
    assert!(
        chat.fails("the king\n", &["--chat-template", &path])
            .contains("Nobody may speak")
    );
    let output = atta_with_input(&chat.args(&["--chat-template", &path]), b"the king\n");
    assert!(output.stdout.is_empty(), "no answer is no line");
}

#[test]
#[cfg(unix)]
fn ctrl_c_stops_an_answer_and_the_next_line_is_read() {
    use std::io::{Read, Write};
    let chat = ChatModel::new("chat-interrupt");
    let path = chat.scratch.path("stats.json");
    let args = [
        &[
            "chat",
            &chat.path,
            "-t",
            "0",
            "-n",
            "1000000",
            "-c",
            "1000000",
            "--stats-json",
            &path,
        ],
        &ENDLESS[..],
    ];
    let mut child = crate::program::command(&args.concat())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"the king\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    signal(&child, "INT");
    stdin.write_all(b"/exit\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), said(&output)),
        (Some(0), String::new())
    );
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(stats["turns"][0]["finish_reason"], "interrupted");
}

#[test]
#[cfg(unix)]
fn ctrl_c_while_a_line_is_awaited_leaves_and_writes_statistics() {
    use std::io::{Read, Write};
    let chat = ChatModel::new("chat-interrupt-idle");
    let path = chat.scratch.path("stats.json");
    let args = chat.args(&["--stats-json", &path]);
    let mut child = crate::program::command(&args)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"the king\n").unwrap();
    let mut byte = [0];
    while byte != *b"\n" {
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
    }
    // It may still be on its way from the answer to the next line, where Ctrl-C means the answer.
    let code = loop {
        std::thread::sleep(std::time::Duration::from_millis(500));
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        signal(&child, "INT");
    };
    assert_eq!(code, Some(130));
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(
        (
            &stats["finish_reason"],
            stats["turns"].as_array().unwrap().len()
        ),
        (&"interrupted".into(), 1)
    );
}

#[test]
fn a_message_is_answered_again_with_the_next_seed_and_takes_the_place_of_the_first_answer() {
    let chat = ChatModel::new("chat-regen");
    let seed = |seed| ["-t", "1", "--seed", seed];
    let saved = chat.scratch.path("saved.json");
    let input = format!("the king\n/regen\n/save {saved}\n");
    let answers = chat.answers(&input, &seed("1"));
    let one = chat.answers("the king\n", &seed("1"));
    let two = chat.answers("the king\n", &seed("2"));
    assert_eq!(answers, [&one[..], &two[..]].concat());
    assert_ne!(one, two);
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    assert_eq!(saved.as_array().unwrap().len(), 2);
    assert!(chat.fails("/regen\n", &[]).contains("no message to answer"));
}

#[test]
fn a_file_goes_in_front_of_the_next_message_and_settings_can_be_changed() {
    let chat = ChatModel::new("chat-read");
    let text = chat.scratch.file("a.txt", b"the old man\n");
    let saved = chat.scratch.path("saved.json");
    let input = format!("/read {text}\nthe king\nand then\n/save {saved}\n");
    let output = atta_with_input(&chat.args(&[]), input.as_bytes());
    assert!(
        said(&output).contains("11 characters go in front"),
        "{}",
        said(&output)
    );
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    assert_eq!(saved[0]["content"], "the old man\n\nthe king");
    assert_eq!(saved[2]["content"], "and then");

    let greedy = chat.answers("the king\n", &[]);
    let input = "/set temperature 0\nthe king\n";
    assert_eq!(chat.answers(input, &["-t", "1"]), greedy);
    assert!(
        chat.fails("/set colour red\n", &[])
            .contains("temperature, top-k")
    );
    assert!(
        chat.fails("/set top-p 2\n", &[])
            .contains("expected 0 to 1")
    );
    assert!(
        chat.fails("/set wrap perhaps\n", &[])
            .contains("expected on or off")
    );
}

#[test]
fn an_answer_has_no_limit_but_the_context() {
    let chat = ChatModel::new("chat-long");
    let path = chat.scratch.path("stats.json");
    let args = [
        "chat",
        &chat.path,
        "-t",
        "0",
        "-c",
        "320",
        "--stats-json",
        &path,
    ];
    let output = atta_with_input(&[&args[..], &ENDLESS].concat(), b"the king\n");
    assert_eq!(output.status.code(), Some(0));
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(stats["generated_tokens"].as_u64() > Some(256), "{stats}");
}
