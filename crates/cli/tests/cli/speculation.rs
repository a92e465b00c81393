//! `--speculate`: the text is the same from any source of guesses, and the statistics have them.

use serde_json::Value;

use crate::program::{Scratch, atta, error_of, model, stdout};

const PROMPT: &str = "the king of the land and the king of the land and the king of";

fn run(more: &[&str]) -> String {
    let model = model("qwen2-untied.gguf");
    let args = ["run", &model, "-p", PROMPT, "-n", "40", "-j", "1"];
    stdout(&[&args, more].concat())
}

fn stats(scratch: &Scratch, more: &[&str]) -> Value {
    let file = scratch.path("stats.json");
    run(&[more, &["--stats-json", &file]].concat());
    let text = std::fs::read_to_string(&file).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["speculation"].take()
}

#[test]
fn the_text_is_the_same_from_any_source_of_guesses() {
    let draft = format!("draft={},k=4,always", model("qwen2-untied.gguf"));
    for sampling in [["-t", "0"], ["--seed", "5"]] {
        let plain = run(&[&sampling[..], &["--speculate", "off"]].concat());
        for how in ["auto", "ngram,k=16,always", &draft] {
            let drafted = run(&[&sampling[..], &["--speculate", how]].concat());
            assert_eq!(drafted, plain, "{how}");
        }
    }
}

#[test]
fn heads_that_read_the_models_states_change_no_text() {
    let eagle = format!("eagle={}", model("../draft/eagle3.gguf"));
    let text = |model: &str, how: &str| {
        let args = ["run", model, "-p", PROMPT, "-n", "40", "--seed", "5"];
        stdout(&[&args[..], &["--speculate", how]].concat())
    };
    for (target, how) in [
        (model("qwen3-untied.gguf"), eagle.as_str()),
        (model("../draft/qwen35-mtp.gguf"), "mtp,k=2"),
    ] {
        let how = format!("{how},always");
        assert_eq!(text(&target, &how), text(&target, "off"), "{how}");
    }
}

#[test]
fn a_converted_file_keeps_the_layer_that_guesses() {
    let scratch = Scratch::new("converted-mtp");
    let converted = scratch.path("f16.gguf");
    let from = model("../draft/bigrams-mtp.gguf");
    stdout(&["convert", &from, &converted, "--type", "f16"]);
    let text = |how: &str| {
        let file = scratch.path(how);
        let args = ["run", &converted, "-p", PROMPT, "-n", "40", "--seed", "5"];
        let text = stdout(&[&args[..], &["--speculate", how, "--stats-json", &file]].concat());
        let stats = std::fs::read_to_string(&file).unwrap();
        let mut stats: Value = serde_json::from_str(&stats).unwrap();
        (text, stats["speculation"].take())
    };
    let (drafted, stats) = text("mtp,always");
    assert_eq!(drafted, text("off").0);
    let counted = |key: &str| stats[key].as_u64().unwrap();
    assert!(counted("accepted_tokens") > 20, "{stats}");
}

#[test]
fn a_cache_directory_changes_no_text_by_what_steps_took() {
    let scratch = Scratch::new("speculation-cache");
    let cache = scratch.path("cache/");
    let how = ["--speculate", "ngram,always", "-t", "0"];
    let plain = run(&how);
    for _ in 0..2 {
        let cached = run(&[&how[..], &["--cache", &cache]].concat());
        assert_eq!(cached, plain);
    }
}

#[test]
fn the_statistics_count_guesses_and_are_null_without_any() {
    let scratch = Scratch::new("speculation");
    let always = stats(&scratch, &["-t", "0", "--speculate", "ngram,always"]);
    assert!(always["drafted_tokens"].as_u64().unwrap() > 0, "{always}");
    assert_eq!(always["off"], Value::Null);
    assert_eq!(stats(&scratch, &["--speculate", "off"]), Value::Null);
    let recurrent = model("qwen35.gguf");
    let file = scratch.path("recurrent.json");
    stdout(&[
        "run",
        &recurrent,
        "-p",
        "the",
        "-n",
        "2",
        "--stats-json",
        &file,
    ]);
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(json["speculation"]["off"], "recurrent layers");
}

#[test]
fn a_source_that_cannot_be_used_is_an_error() {
    let target = model("qwen2-untied.gguf");
    let run = |how: &str| atta(&["run", &target, "-p", "x", "-n", "1", "--speculate", how]);
    let error = error_of(&run("mtp"), 1);
    let reason = "no layers of multi-token prediction are in the file";
    assert!(error.contains(reason), "{error}");
    let error = error_of(&run(&format!("eagle={target}")), 1);
    assert!(error.contains("known: eagle3"), "{error}");
    let error = error_of(&run("draft=nowhere.gguf"), 1);
    assert!(error.contains("nowhere.gguf"), "{error}");
    let other = format!("draft={}", model("../stories.gguf"));
    let error = error_of(&run(&other), 1);
    assert!(error.contains("another vocabulary: its token"), "{error}");
}
