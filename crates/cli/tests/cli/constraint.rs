//! `--json`, `--schema`, `--regex`, `--grammar`: the printed text has the form that was asked for,
//! whatever the logits are.

use serde_json::Value;

use crate::program::{Scratch, atta, atta_with_input, error_of, stdout};

fn json(args: &[&str]) -> Value {
    let text = stdout(&[&["run", "-p", "Once upon a time"], args].concat());
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?} of {args:?}"))
}

#[test]
fn json_is_an_object_unless_any_value_will_do() {
    for seed in ["1", "2", "3"] {
        assert!(json(&["--json", "-n", "30", "--seed", seed]).is_object());
        json(&["--json=value", "-n", "30", "-t", "2", "--seed", seed]);
    }
    assert!(json(&["--json", "-n", "0"]).is_object());
}

#[test]
fn a_schema_comes_from_a_file_or_standard_input() {
    let scratch = Scratch::new("schema");
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    let path = scratch.file("schema.json", schema.as_bytes());
    assert!(json(&["--schema", &path, "-n", "12"])["n"].is_number());
    let piped = atta_with_input(
        &["run", "-p", "a", "-n", "12", "--schema", "-"],
        schema.as_bytes(),
    );
    let value: Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert!(piped.status.success() && value["n"].is_number());
    let error = error_of(&atta(&["run", "--schema", "-"]), 2);
    assert!(error.contains("give the prompt with -p"), "{error}");
}

#[test]
fn keywords_that_cannot_be_kept_to_are_named() {
    let scratch = Scratch::new("keywords");
    let path = scratch.file(
        "schema.json",
        br#"{"properties":{"a":{"type":"array","uniqueItems":true}}}"#,
    );
    let output = atta(&["run", "-p", "a", "--schema", &path]);
    let error = error_of(&output, 1);
    assert!(
        error.contains("/properties/a: the keyword \"uniqueItems\" is not supported"),
        "{error}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn objects_have_no_properties_but_those_listed_unless_they_are_opened() {
    let scratch = Scratch::new("open");
    let path = scratch.file(
        "schema.json",
        br#"{"properties":{"a":{"type":"null"}},"type":"object","minProperties":1}"#,
    );
    assert_eq!(
        json(&["--schema", &path, "-n", "40"]),
        serde_json::json!({"a": null})
    );
    let path = scratch.file(
        "open.json",
        br#"{"properties":{"a":{"type":"null"}},"type":"object","required":["a"]}"#,
    );
    assert!(json(&["--schema", &path, "--schema-open", "-n", "12"]).is_object());
    error_of(&atta(&["run", "-p", "a", "--schema-open"]), 2);
}

#[test]
fn grammars_are_told_apart_by_name_or_by_what_is_in_them() {
    let scratch = Scratch::new("grammar");
    let run = |name: &str, text: &str| {
        let path = scratch.file(name, text.as_bytes());
        stdout(&["run", "-p", "a", "--grammar", &path, "-n", "40"])
    };
    let gbnf = "root ::= \"yes\" | \"no\"";
    let lark = "start: \"yes\" | \"no\"";
    for text in [
        run("a.gbnf", gbnf),
        run("b.txt", gbnf),
        run("c.lark", lark),
        run("d", lark),
    ] {
        assert!(text == "yes" || text == "no", "{text}");
    }
    assert_eq!(stdout(&["run", "-p", "a", "--regex", "-{3}x"]), "---x");
}

#[test]
fn what_happens_at_the_length_is_for_the_user_to_say() {
    let run = |what: &str| {
        atta(&[
            "run",
            "-p",
            "a",
            "--json",
            "-n",
            "3",
            "-t",
            "0",
            "--on-length",
            what,
        ])
    };
    assert!(serde_json::from_slice::<Value>(&run("close").stdout).is_ok());
    let cut = run("cut");
    let failed = run("fail");
    assert!(cut.status.success() && serde_json::from_slice::<Value>(&cut.stdout).is_err());
    assert_eq!(
        (failed.status.code(), &failed.stdout),
        (Some(1), &cut.stdout)
    );
    assert!(String::from_utf8_lossy(&failed.stderr).contains("not complete after 3 tokens"));
}

#[test]
fn options_that_contradict_a_shape_are_wrong_usage() {
    let wrong: [&[&str]; 5] = [
        &["--json", "--stop", "x"],
        &["--json", "--regex", "x"],
        &["--on-length", "cut"],
        &["--grammar", "g", "--schema", "s"],
        &["--json=array"],
    ];
    for args in wrong {
        error_of(&atta(&[&["run", "-p", "a"], args].concat()), 2);
    }
}

#[test]
#[cfg(feature = "cache")]
fn a_cache_changes_nothing() {
    let scratch = Scratch::new("cached");
    let cache = format!("{}/", scratch.path("cache"));
    let args = [
        "run",
        "-p",
        "Once upon a time there was a little girl who lived in a house near the woods",
        "--json",
    ];
    let plain = stdout(&args);
    for _ in 0..2 {
        assert_eq!(stdout(&[&args[..], &["--cache", &cache]].concat()), plain);
    }
}
