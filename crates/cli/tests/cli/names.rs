//! Names that people type: commands for pulled models, help, versions, completions, manual pages.

use std::{fs, path::Path, process::Output};

use serde_json::Value;

use crate::program::{Scratch, command, error_of, model, stdout, text_of};

/// Runs with the cache of a user who has pulled a tiny model, in two types.
fn with_cache(scratch: &Scratch, args: &[&str]) -> Output {
    let mut command = command(args);
    command
        .env_remove("HF_HUB_CACHE")
        .env("HF_HOME", scratch.path("home"));
    command.output().unwrap()
}

/// A cache in the layout of Hugging Face's programs.
fn pulled(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let repo = scratch.path("home/hub/models--org--tiny");
    let snapshot = format!("{repo}/snapshots/{}", "a".repeat(40));
    fs::create_dir_all(format!("{repo}/blobs")).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    for (blob, file) in [("b8", "tiny-Q8_0.gguf"), ("b4", "tiny-Q4_0.gguf")] {
        fs::copy(model("llama-plain.gguf"), format!("{repo}/blobs/{blob}")).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(format!("../../blobs/{blob}"), format!("{snapshot}/{file}"))
            .unwrap();
        #[cfg(not(unix))]
        fs::rename(format!("{repo}/blobs/{blob}"), format!("{snapshot}/{file}")).unwrap();
    }
    scratch
}

fn names(scratch: &Scratch) -> Vec<String> {
    let listed = text_of(&with_cache(scratch, &["list", "--json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let models = listed["models"].as_array().unwrap().iter();
    models
        .map(|model| model["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn pulled_models_are_listed_by_names_that_other_commands_take() {
    let scratch = pulled("names-list");
    let expected = ["org/tiny:tiny-Q4_0.gguf", "org/tiny:tiny-Q8_0.gguf"];
    assert_eq!(names(&scratch), expected);
    let table = text_of(&with_cache(&scratch, &["ls"]));
    assert!(
        table.lines().count() == 2 && table.contains(" KiB"),
        "{table}"
    );
    for name in names(&scratch) {
        let shown = text_of(&with_cache(&scratch, &["show", &name]));
        assert!(shown.contains("llama"), "{shown}");
    }
}

#[test]
fn a_model_is_removed_alone_or_with_its_repository() {
    let scratch = pulled("names-rm");
    let removed = with_cache(&scratch, &["rm", "org/tiny:q4_0"]);
    assert_eq!(removed.status.code(), Some(0));
    assert_eq!(names(&scratch), ["org/tiny:tiny-Q8_0.gguf"]);
    let repo = scratch.path("home/hub/models--org--tiny");
    assert!(
        !fs::exists(format!("{repo}/blobs/b4")).unwrap(),
        "its bytes are still there"
    );
    assert_eq!(
        with_cache(&scratch, &["rm", "org/tiny"]).status.code(),
        Some(0)
    );
    assert!(!fs::exists(repo).unwrap());
    assert_eq!(names(&scratch), Vec::<String>::new());
    let error = error_of(&with_cache(&scratch, &["rm", "org/tiny"]), 1);
    assert!(error.contains("org/tiny: not in the cache"), "{error}");
}

#[test]
#[cfg(unix)]
fn a_link_that_leads_out_of_the_cache_is_removed_without_its_file() {
    let scratch = pulled("names-link");
    let precious = scratch.file("precious.gguf", b"x");
    let snapshot = format!("home/hub/models--org--tiny/snapshots/{}", "a".repeat(40));
    let link = scratch.path(&format!("{snapshot}/own.gguf"));
    std::os::unix::fs::symlink(&precious, &link).unwrap();
    let removed = with_cache(&scratch, &["rm", "org/tiny:own.gguf"]);
    assert_eq!(removed.status.code(), Some(0));
    assert!(fs::exists(precious).unwrap() && !fs::exists(link).unwrap());
}

#[test]
fn help_and_the_version_are_commands_too() {
    assert_eq!(stdout(&["help", "run"]), stdout(&["run", "--help"]));
    let version = stdout(&["version"]);
    assert!(version.starts_with(&stdout(&["--version"])), "{version}");
    let object: Value = serde_json::from_str(&stdout(&["version", "--json"])).unwrap();
    assert_eq!(object["version"], env!("CARGO_PKG_VERSION"));
    assert!(object["kernels"].as_array().unwrap().len() > 1);
}

#[test]
fn the_model_is_shown_once_in_help_and_everyday_options_come_first() {
    let help = stdout(&["run", "-h"]);
    let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
    let everyday = [
        "--prompt <",
        "--n-predict <",
        "--temperature <",
        "--ctx-size <",
        "--threads <",
    ];
    for option in everyday {
        assert_eq!(help.matches(option).count(), 1, "{option}");
        assert!(at(option) < at("Sampling:"), "{option}: {help}");
    }
    assert_eq!(help.matches("--model").count(), 1, "{help}");
}

#[test]
fn shells_complete_commands_and_options() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = stdout(&["completions", shell]);
        assert!(
            script.contains("temperature") && script.contains("pull"),
            "{shell}"
        );
    }
    assert!(error_of(&crate::program::atta(&["completions", "dosh"]), 2).contains("bash"));
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = Scratch::new("names-man");
    let directory = scratch.path("man1");
    let first = stdout(&["man", &directory]);
    let expected = Path::new(&directory).join("atta.1");
    assert_eq!(Path::new(first.trim_end()), expected);
    for page in ["atta.1", "atta-run.1", "atta-cache-ls.1"] {
        let text = fs::read_to_string(format!("{directory}/{page}")).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
    }
}

#[test]
fn an_option_in_the_wrong_place_is_answered_with_the_right_one() {
    let error = |args: &[&str]| error_of(&crate::program::atta(args), 2);
    let elsewhere = error(&["bench", "--temperature", "1"]);
    assert!(
        elsewhere.contains("`atta run`") && !elsewhere.contains("experts"),
        "{elsewhere}"
    );
    assert!(error(&["run", "--n-gpu-layers", "9"]).contains("--gpu-layers"));
    assert!(!error(&["run", "--foo"]).contains("tip"));
}
