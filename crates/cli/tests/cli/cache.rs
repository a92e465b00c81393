//! `--cache` and `atta cache`: text with it is text without it, whatever happened to the files.

use serde_json::Value;

use crate::program::{Scratch, atta, error_of, model, stdout};

const MODEL: &str = "qwen2-untied.gguf";

/// Words that the tiny vocabularies tell apart.
const WORDS: [&str; 4] = ["stone", "king", "land", "woods"];

/// A prompt of a few hundred tokens whose last words depend on `n`.
fn prompt(n: usize) -> String {
    let words = WORDS[n].to_owned() + " and a " + WORDS[(n + 1) % 4];
    format!(
        "{}then the {words}",
        "the king of the land went out to see what there is in the woods and ".repeat(4)
    )
}

fn run(model: &str, prompt: &str, more: &[&str]) -> String {
    stdout(
        &[
            &[
                "run", model, "-p", prompt, "-n", "40", "-c", "1000", "-j", "1", "--seed", "3",
            ],
            more,
        ]
        .concat(),
    )
}

/// The counts of a run with a cache, whose text must be that of one without.
fn counts(prompt: &str, cache: &str) -> (u64, u64) {
    let model = model(MODEL);
    let scratch = Scratch::new("cache-counts");
    let file = scratch.path("stats.json");
    let text = run(&model, prompt, &["--cache", cache, "--stats-json", &file]);
    assert_eq!(text, run(&model, prompt, &[]));
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    (
        stats["prompt_tokens"].as_u64().unwrap(),
        stats["cached_tokens"].as_u64().unwrap(),
    )
}

#[test]
fn the_text_is_the_same_for_a_miss_a_hit_and_a_part_of_one() {
    let scratch = Scratch::new("cache-hit");
    for cache in [scratch.path("file"), scratch.path("directory/")] {
        let (n, miss) = counts(&prompt(1), &cache);
        assert_eq!((miss, counts(&prompt(1), &cache)), (0, (n, n - 1)));
        let (n, part) = counts(&prompt(2), &cache);
        assert!(part > n / 2 && part < n - 1, "{part} of {n}");
        // The token that begins all texts is not worth a file.
        assert_eq!(counts("and so on", &cache).1, 0);
        // The directory still has the others.
        assert_eq!(counts(&prompt(1), &cache).1 > 1, cache.ends_with('/'));
    }
    // A directory without a separator is one, too.
    assert!(counts(&prompt(2), &scratch.path("directory")).1 > 1);
}

#[test]
#[cfg(feature = "chat")]
fn a_chat_goes_on_in_another_process_where_it_was() {
    use crate::{
        chat_model::{CHATML, CHATML_TEMPLATE},
        program::atta_with_input,
    };
    let scratch = Scratch::new("cache-chat");
    let bytes = crate::chat_model::chat_model("llama-plain.gguf", CHATML_TEMPLATE, &CHATML);
    let model = scratch.file("chat.gguf", &bytes);
    let cache = scratch.path("cache/");
    let talk = |input: &str, more: &[&str]| {
        let file = scratch.path("stats.json");
        let args = [
            &[
                "chat",
                &model,
                "-n",
                "20",
                "-t",
                "0",
                "-c",
                "500",
                "--stats-json",
                &file,
            ],
            more,
        ]
        .concat();
        let output = atta_with_input(&args, input.as_bytes());
        assert_eq!(crate::program::said(&output), "");
        let stats: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        (output.stdout, stats)
    };
    let lines = "the king of the land\nand then\n";
    let (expected, without) = talk(lines, &[]);
    let (first, _) = talk(lines, &["--cache", &cache]);
    let (second, with) = talk(lines, &["--cache", &cache]);
    assert_eq!((&first, &second), (&expected, &expected));
    assert!(without["restore_s"] == 0.0 && with["restore_s"].as_f64().unwrap() > 0.0);
    let turns = &with["turns"];
    assert_eq!(
        turns[0]["cached_tokens"].as_u64().unwrap() + 1,
        turns[0]["prompt_tokens"].as_u64().unwrap()
    );
    let args = [
        "chat",
        &model,
        "-n",
        "20",
        "-t",
        "0",
        "-c",
        "500",
        "--cache",
        &cache,
        "--verbose",
    ];
    let said = String::from_utf8(atta_with_input(&args, lines.as_bytes()).stderr).unwrap();
    assert!(
        said.lines().any(|line| line.starts_with("cache: ")),
        "{said}"
    );
}

#[test]
fn the_option_of_picolm_keeps_a_file_and_refuses_those_of_picolm_by_name() {
    let scratch = Scratch::new("cache-picolm");
    let model = model(MODEL);
    let ours = scratch.path("ours");
    let theirs = scratch.file("theirs", b"PCVK\x01\0\0\0 state without tokens");
    let prompt = prompt(1);
    let args = ["picolm", &model, "-p", &prompt, "-n", "20", "-t", "0"];
    let expected = stdout(&args);
    for _ in 0..2 {
        assert_eq!(stdout(&[&args[..], &["--cache", &ours]].concat()), expected);
    }
    let output = atta(&[&args[..], &["--cache", &theirs]].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap()
        ),
        (Some(0), expected)
    );
    assert!(
        stderr.starts_with("atta: warning: ")
            && stderr.contains("PicoLM")
            && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert_eq!(
        std::fs::read(&theirs).unwrap(),
        b"PCVK\x01\0\0\0 state without tokens"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn what_cannot_be_saved_is_one_warning() {
    // No user can create files there, not even root.
    let model = model(MODEL);
    let prompt = prompt(1);
    let args = ["run", &model, "-p", &prompt, "-n", "40", "-t", "0"];
    let output = atta(&[&args[..], &["--cache", "/proc/atta-cache"]].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), stdout(&args));
    assert!(
        stderr.contains("cannot be kept: /proc/atta-cache: ") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn a_path_that_cannot_be_a_cache_is_found_out_before_the_work() {
    let scratch = Scratch::new("cache-path");
    let file = scratch.file("file", b"");
    let fails = |code, more: &[&str]| {
        error_of(
            &atta(&[&["run", &model(MODEL), "-p", "x"], more].concat()),
            code,
        )
    };
    assert!(
        fails(1, &["--cache", &scratch.path("no/file")])
            .contains("folder that it would be in does not exist")
    );
    assert!(
        fails(2, &["--cache", &file, "--cache-size", "1M"])
            .contains("--cache-size limits a directory")
    );
    assert!(fails(2, &["--cache-size", "1M"]).contains("--cache <PATH>"));
    assert!(fails(2, &["--cache", &file, "--cache-size", "256"]).contains("such as 256M"));
    error_of(&atta(&["cache", "rm", &file, ""]), 2);
    assert!(fails(2, &["--cache", &file, "--cache-size", "much"]).contains("such as 256M"));
}

#[test]
fn prompts_are_listed_and_removed_and_nothing_else_is() {
    let scratch = Scratch::new("cache-list");
    let cache = scratch.path("cache/");
    let first = counts(&prompt(1), &cache);
    let _ = counts(&prompt(2), &cache);
    std::fs::write(scratch.path("cache/notes.txt"), "mine").unwrap();
    let list =
        || -> Value { serde_json::from_str(&stdout(&["cache", "ls", &cache, "--json"])).unwrap() };
    let prompts = list()["prompts"].as_array().unwrap().clone();
    assert_eq!(
        (
            prompts.len(),
            stdout(&["cache", "ls", &cache]).lines().count()
        ),
        (2, 2)
    );
    // All but the last token of the text is saved, too. Which one is older, a file system with slow
    // clocks may not know.
    let first = prompts
        .iter()
        .find(|prompt| prompt["tokens"].as_u64() == Some(first.0 + 39))
        .unwrap();
    assert!(prompts[0]["last_use_unix_s"].as_u64() >= prompts[1]["last_use_unix_s"].as_u64());
    let key = first["key"].as_str().unwrap();
    let remove = |args: &[&str]| atta(&[&["cache", "rm", &cache], args].concat());
    assert!(error_of(&remove(&["0123456789"]), 1).contains("no prompt has the key"));
    assert!(error_of(&remove(&[]), 2).contains("<KEY>"));
    assert_eq!(remove(&[&key[..12]]).status.code(), Some(0));
    assert_eq!(list()["prompts"].as_array().unwrap().len(), 1);
    assert!(counts(&prompt(2), &cache).1 > 1);
    assert_eq!(remove(&["--all"]).status.code(), Some(0));
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
    let absent = scratch.path("no");
    assert!(error_of(&atta(&["cache", "ls", &absent]), 1).contains("os error 2"));
    assert!(!std::path::Path::new(&absent).exists());
    let file = scratch.file("mine", b"mine");
    assert!(error_of(&atta(&["cache", "rm", &file, "--all"]), 1).contains("no saved state"));
    assert!(error_of(&atta(&["cache", "ls", &file]), 1).contains("no saved state"));
    assert_eq!(std::fs::read(file).unwrap(), b"mine");
}

#[cfg(unix)]
mod killed {
    use std::{
        fs,
        process::Child,
        thread::sleep,
        time::{Duration, Instant},
    };

    use super::{MODEL, Scratch, model, prompt, run};
    use crate::program::command;

    const N_KILLS: usize = 200;

    /// Moments that are the same in every run of the test.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % n
        }
    }

    fn n_unfinished(cache: &str) -> usize {
        let names = fs::read_dir(cache)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name());
        names
            .filter(|name| name.to_str().is_some_and(|name| name.ends_with(".part")))
            .count()
    }

    /// Waits until a file is being written that was not there before.
    fn until_it_saves(child: &mut Child, cache: &str, n_before: usize) {
        while n_unfinished(cache) <= n_before && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
    }

    /// Half of the kills come at any moment of a run, half while something is written.
    #[test]
    fn a_process_that_is_killed_at_any_moment_leaves_nothing_wrong() {
        let scratch = Scratch::new("cache-killed");
        let model = model(MODEL);
        let mut random = Random(7);
        let prompts: Vec<String> = (0..4).map(prompt).collect();
        let start = Instant::now();
        let expected: Vec<String> = prompts
            .iter()
            .map(|prompt| run(&model, prompt, &["--kv", "f32"]))
            .collect();
        let one_run = start.elapsed() / prompts.len() as u32;
        let mut n_cut = 0;
        for i in 0..N_KILLS {
            let at = random.below(4) as usize;
            let cache = scratch.path(if i % 8 < 4 { "many/" } else { "one" });
            let watched = if i % 8 < 4 {
                cache.clone()
            } else {
                scratch.path("")
            };
            if i % 2 == 0 {
                // Everything has to be saved again.
                let _ = fs::remove_dir_all(scratch.path("many"));
                let _ = fs::remove_file(scratch.path("one"));
            }
            let n_before = n_unfinished(&watched);
            let args = [
                "run",
                &model,
                "-p",
                &prompts[at],
                "-n",
                "40",
                "-c",
                "1000",
                "-j",
                "1",
                "--kv",
                "f32",
            ];
            let mut child = command(&[&args[..], &["--cache", &cache]].concat())
                .spawn()
                .unwrap();
            if i % 4 < 2 {
                until_it_saves(&mut child, &watched, n_before);
                sleep(Duration::from_micros(random.below(2000)));
            } else {
                sleep(one_run.mul_f64(random.below(1000) as f64 / 1000.0));
            }
            child.kill().unwrap();
            child.wait().unwrap();
            n_cut += usize::from(n_unfinished(&watched) > n_before);
            let text = run(&model, &prompts[at], &["--cache", &cache, "--kv", "f32"]);
            assert_eq!(text, expected[at], "kill {i}");
        }
        assert!(n_cut > 0, "no kill came while a file was written");
    }
}
