//! `atta picolm`, and the program under that name: options as PicoLM has them.

use crate::program::{atta, atta_with_input, error_of, model, stdout, text_of};

/// What a plain nucleus is in the words of `run`.
const NUCLEUS: [&str; 4] = ["--top-k", "0", "--min-p", "0"];

#[test]
fn its_options_mean_what_they_mean_to_picolm() {
    let model = model("llama-plain.gguf");
    let picolm =
        |more: &[&str]| stdout(&[&["picolm", &model, "-p", "the king", "-n", "24"], more].concat());
    let run = |more: &[&str]| {
        stdout(
            &[
                &["run", &model, "-p", "the king", "-n", "24"],
                more,
                &NUCLEUS,
            ]
            .concat(),
        )
    };
    assert_eq!(
        picolm(&[]),
        run(&["--top-p", "0.9", "-t", "0.8", "--seed", "42"])
    );
    assert_eq!(
        picolm(&["-k", "0.4", "-t", "1.5", "-s", "7"]),
        run(&["--top-p", "0.4", "-t", "1.5", "--seed", "7"])
    );
    assert_eq!(picolm(&["-t", "0"]), run(&["-t", "0"]));
    assert_ne!(picolm(&["-s", "1"]), picolm(&["-s", "2"]));
}

#[test]
fn the_prompt_comes_from_standard_input_if_it_is_not_given() {
    let model = model("qwen2-untied.gguf");
    let piped = text_of(&atta_with_input(
        &["picolm", &model, "-n", "8", "-t", "0"],
        b"the stone",
    ));
    assert!(!piped.is_empty());
    assert_eq!(
        piped,
        stdout(&["picolm", &model, "-p", "the stone", "-n", "8", "-t", "0"])
    );
}

#[test]
fn options_may_stand_anywhere_and_threads_change_nothing() {
    let model = model("llama-plain.gguf");
    let expected = stdout(&["picolm", &model, "-p", "x", "-n", "12"]);
    assert_eq!(stdout(&["picolm", "-n", "12", "-p", "x", &model]), expected);
    for more in [["-j", "1"], ["-j", "4"], ["-c", "0"], ["-c", "64"]] {
        assert_eq!(
            stdout(&[&["picolm", &model, "-p", "x", "-n", "12"], &more[..]].concat()),
            expected,
            "{more:?}"
        );
    }
}

#[test]
fn no_more_tokens_than_asked_for() {
    let model = model("qwen2-untied.gguf");
    let text = |n: &str| stdout(&["picolm", &model, "-p", "x", "-t", "0", "-n", n]);
    assert_eq!(text("0"), "");
    assert!(text("5").starts_with(&text("4")) && text("4") != text("5"));
}

#[test]
#[cfg(feature = "constrain")]
fn json_is_what_picoclaw_asks_for() {
    let model = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/stories.gguf"
    );
    for n in ["1", "40", "256"] {
        let output = atta_with_input(
            &["picolm", model, "-n", n, "-j", "4", "--json"],
            b"An object: ",
        );
        let value: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
        assert!(
            output.status.success() && value.is_ok_and(|value| value.is_object()),
            "{output:?}"
        );
    }
}

#[test]
fn an_empty_prompt_is_wrong_usage() {
    let model = model("llama-plain.gguf");
    for output in [
        atta(&["picolm", &model, "-p", ""]),
        atta(&["picolm", &model]),
    ] {
        assert!(error_of(&output, 2).contains("-p TEXT"));
    }
}

#[test]
fn what_picolm_does_not_have_is_refused() {
    let model = model("llama-plain.gguf");
    let error =
        |more: &[&str]| error_of(&atta(&[&["picolm", &model, "-p", "x"], more].concat()), 2);
    assert!(error(&["--top-k", "3"]).contains("there is no option --top-k"));
    assert!(error(&["-k", "40"]).contains("from 0 to 1"));
    assert!(error(&["-t", "-1"]).contains("-t is -1"));
}

#[test]
fn a_model_must_be_named_and_be_there() {
    assert!(error_of(&atta(&["picolm", "-p", "x"]), 2).contains("<MODEL>"));
    assert!(error_of(&atta(&["picolm", "nowhere.gguf", "-p", "x"]), 1).contains("nowhere.gguf"));
    let model = model("llama-plain.gguf");
    let long = "the king of the land ".repeat(40);
    assert!(
        error_of(&atta(&["picolm", &model, "-c", "16", "-p", &long]), 1)
            .contains("the context holds 16")
    );
}

#[test]
#[cfg(unix)]
fn a_link_of_that_name_is_that_command() {
    let scratch = crate::program::Scratch::new("picolm-link");
    let link = scratch.path("picolm");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_atta"), &link).unwrap();
    let model = model("llama-plain.gguf");
    let called = |args: &[&str]| {
        std::process::Command::new(&link)
            .args(args)
            .output()
            .unwrap()
    };
    let by_name = called(&[&model, "-p", "the king", "-n", "12", "-k", "0.5"]);
    assert_eq!(
        text_of(&by_name),
        stdout(&["picolm", &model, "-p", "the king", "-n", "12", "-k", "0.5"])
    );
    let help = called(&["--help"]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("-k <P>"));
    assert_eq!(called(&[]).status.code(), Some(2));
}
