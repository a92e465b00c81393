//! `atta run`: the text, and what it does not depend on.

use serde_json::Value;

use crate::program::{Scratch, atta, atta_with_input, model, stdout, text_of};

/// A model whose most probable token never ends the text.
const ENDLESS: &str = "qwen2-untied.gguf";

fn stats(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
#[cfg(feature = "builtin")]
fn without_a_model_the_built_in_one_continues_the_text() {
    let text = stdout(&["run", "-p", "Once upon a time", "-n", "24"]);
    assert!(!text.is_empty() && !text.starts_with("Once upon"), "{text}");
    assert_eq!(
        text,
        stdout(&[
            "run",
            "-p",
            "Once upon a time",
            "-n",
            "24",
            "--weights",
            "resident"
        ])
    );
}

#[test]
#[cfg(not(feature = "builtin"))]
fn without_a_built_in_model_a_file_must_be_named() {
    let error = crate::program::error_of(&atta(&["run", "-p", "x"]), 2);
    assert!(error.contains("no built-in model"), "{error}");
}

#[test]
fn the_same_seed_gives_the_same_text_whatever_the_threads_and_batches() {
    let model = model("llama-plain.gguf");
    let prompt =
        "the king of the land went out to see what there is in the woods and found a stone";
    let run = |more: &[&str]| stdout(&[&["run", &model, "-p", prompt, "-n", "40"], more].concat());
    let expected = run(&["-j", "1"]);
    assert!(!expected.is_empty());
    for more in [
        ["-j", "2"],
        ["-j", "3"],
        ["--batch", "1"],
        ["--batch", "7"],
        ["--batch", "512"],
    ] {
        assert_eq!(run(&more), expected, "{more:?}");
    }
    assert_eq!(run(&["--weights", "resident"]), expected);
    assert_eq!(run(&["--prewarm"]), expected);
    assert_ne!(run(&["--seed", "43"]), expected);
}

#[test]
fn the_prompt_may_come_from_standard_input_as_any_bytes() {
    let model = model(ENDLESS);
    let piped = |input: &[u8]| {
        text_of(&atta_with_input(
            &["run", &model, "-n", "8", "-t", "0"],
            input,
        ))
    };
    assert_eq!(
        piped(b"the stone"),
        stdout(&["run", &model, "-p", "the stone", "-n", "8", "-t", "0"])
    );
    assert!(!piped(b"caf\xe9 \xff\0").is_empty());
}

#[test]
fn no_tokens_is_no_text_and_no_error() {
    let scratch = Scratch::new("no-tokens");
    let path = scratch.path("stats.json");
    assert_eq!(
        stdout(&[
            "run",
            &model(ENDLESS),
            "-p",
            "x",
            "-n",
            "0",
            "--stats-json",
            &path
        ]),
        ""
    );
    let stats = stats(&path);
    assert_eq!(
        (&stats["generated_tokens"], &stats["finish_reason"]),
        (&0.into(), &"length".into())
    );
}

#[test]
fn a_stop_string_ends_the_text_and_is_never_printed_in_part() {
    let model = model(ENDLESS);
    let run = |stops: &[&str]| {
        let mut args = vec!["run", &model, "-p", "x", "-t", "0", "-n", "60"];
        stops.iter().for_each(|stop| args.extend(["--stop", stop]));
        stdout(&args)
    };
    let whole = run(&[]);
    assert!(whole.is_ascii() && whole.len() > 60, "{whole}");
    for at in 20..40 {
        // Cut at every character, so that stop strings begin and end inside of tokens.
        let stop = &whole[at..at + 7];
        let expected = &whole[..whole.find(stop).unwrap()];
        assert_eq!(run(&[stop]), expected, "{stop:?}");
        assert_eq!(run(&["never there", stop]), expected, "{stop:?}");
    }
    // What only begins like a stop string is printed in the end.
    let almost = format!("{}#", &whole[whole.len() - 5..]);
    assert_eq!(run(&[&almost]), whole);
}

#[test]
fn the_context_ends_the_text() {
    let scratch = Scratch::new("context-ends");
    let path = scratch.path("stats.json");
    stdout(&[
        "run",
        &model(ENDLESS),
        "-p",
        "x",
        "-t",
        "0",
        "-n",
        "500",
        "-c",
        "32",
        "--stats-json",
        &path,
    ]);
    let stats = stats(&path);
    assert_eq!(stats["finish_reason"], "length");
    let total =
        stats["prompt_tokens"].as_u64().unwrap() + stats["generated_tokens"].as_u64().unwrap();
    // The last token needs no position.
    assert_eq!(total, 33);
}

#[test]
fn statistics_have_every_key_of_the_contract() {
    let scratch = Scratch::new("stats-keys");
    let path = scratch.file("stats.json", b"old");
    stdout(&[
        "run",
        &model(ENDLESS),
        "-p",
        "x",
        "-n",
        "20",
        "--stats-json",
        &path,
        "--weights",
        "resident",
    ]);
    let stats = stats(&path);
    let keys: Vec<&str> = stats
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "prompt_tokens",
            "cached_tokens",
            "generated_tokens",
            "finish_reason",
            "load_s",
            "restore_s",
            "prefill_s",
            "decode_s",
            "prefill_tok_s",
            "decode_tok_s",
            "peak_rss_bytes",
            "peak_rss_anon_bytes",
            "memory",
            "weights",
            "pinned_bytes",
            "read_bytes",
            "predicted_decode_tok_s",
            "io_wait_s",
            "expert_uses",
            "expert_misses",
            "decode_threads",
            "prompt_threads",
            "speculation"
        ]
    );
    assert!(stats["predicted_decode_tok_s"].is_null() && stats["io_wait_s"].is_number());
    assert!(stats["decode_tok_s"].as_f64().unwrap() > 0.0);
    assert!(stats["weights"] == "resident" && stats["pinned_bytes"].as_u64().unwrap() > 10_000);
    let named = |name: &str| {
        stats["memory"]
            .as_array()
            .unwrap()
            .iter()
            .any(|item| item["name"] == name)
    };
    assert!(named("kv cache") && named("pinned weights"), "{stats:#}");
    assert_eq!(scratch.names(), ["stats.json"]);
}

#[test]
fn the_token_that_ends_the_text_is_counted_and_has_no_text() {
    let scratch = Scratch::new("stats-end");
    let path = scratch.path("stats.json");
    let model = model("llama-plain.gguf");
    let run = |n: &str| {
        stdout(&[
            "run",
            &model,
            "-p",
            "the king",
            "-n",
            n,
            "-c",
            "512",
            "--stats-json",
            &path,
        ])
    };
    let whole = run("500");
    let ended = stats(&path);
    assert_eq!(ended["finish_reason"], "stop");
    let n = ended["generated_tokens"].as_u64().unwrap();
    assert!(n > 1, "{n}");
    assert_eq!(run(&(n - 1).to_string()), whole);
    assert_eq!(
        (
            &stats(&path)["finish_reason"],
            &stats(&path)["generated_tokens"]
        ),
        (&"length".into(), &(n - 1).into())
    );
}

#[test]
#[cfg(feature = "builtin")]
fn statistics_know_a_resident_copy_of_the_built_in_model() {
    let scratch = Scratch::new("stats-builtin");
    let path = scratch.path("stats.json");
    let pinned = |weights: &str| {
        stdout(&[
            "run",
            "-p",
            "Once",
            "-n",
            "2",
            "--weights",
            weights,
            "--stats-json",
            &path,
        ]);
        let stats = stats(&path);
        let named = stats["memory"]
            .as_array()
            .unwrap()
            .iter()
            .find(|item| item["name"] == "pinned weights")
            .cloned();
        (
            stats["pinned_bytes"].as_u64().unwrap(),
            named.map(|item| item["bytes"].as_u64().unwrap()),
        )
    };
    assert_eq!(pinned("mapped"), (0, None));
    // The copy begins and ends its matrices at whole blocks, and leaves out the bytes before them.
    let n_bytes = atta::builtin().bytes.len() as u64;
    let (held, counted) = pinned("resident");
    assert!(
        counted == Some(held) && held.abs_diff(n_bytes) < n_bytes / 8,
        "{held} {n_bytes}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn statistics_know_the_peaks_of_memory() {
    let scratch = Scratch::new("stats-peaks");
    let path = scratch.path("stats.json");
    stdout(&[
        "run",
        &model(ENDLESS),
        "-p",
        "x",
        "-n",
        "20",
        "--stats-json",
        &path,
    ]);
    let stats = stats(&path);
    let bytes = |key: &str| stats[key].as_u64().unwrap();
    assert!(
        0 < bytes("peak_rss_anon_bytes") && bytes("peak_rss_anon_bytes") <= bytes("peak_rss_bytes")
    );
}

#[test]
fn statistics_are_written_on_failure_too() {
    let scratch = Scratch::new("stats-failure");
    let path = scratch.path("stats.json");
    let output = atta(&["run", "no-such.gguf", "-p", "x", "--stats-json", &path]);
    assert_eq!(output.status.code(), Some(1));
    let stats = stats(&path);
    assert_eq!(stats["finish_reason"], "error");
    assert!(
        stats["error"]
            .as_str()
            .unwrap()
            .starts_with("no-such.gguf: ")
    );
}

#[test]
fn reports_go_to_standard_error() {
    let args = ["run", &model(ENDLESS), "-p", "x", "-n", "4", "-t", "0"];
    let output = atta(
        &[
            &args[..],
            &["--verbose", "--mem-report", "-j", "1,2", "--isa", "scalar"],
        ]
        .concat(),
    );
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, atta(&args).stdout);
    let said = crate::program::said(&output);
    for part in [
        "d_model",
        "kernels: scalar, threads: 2",
        "threads: 1 for single tokens, 2 for prompts",
        "tokens/s",
        "kv cache",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    #[cfg(target_os = "linux")]
    for part in ["RssAnon", "RssFile", "RssShmem", "VmHWM"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_text_goes_on_beyond_a_window_and_ends_with_a_context() {
    let scratch = Scratch::new("window");
    let model = model(ENDLESS);
    let path = scratch.path("stats.json");
    let generated = |more: &[&str]| {
        let fixed = [
            "run",
            &model,
            "-p",
            "the stone",
            "-t",
            "0",
            "-n",
            "300",
            "--stats-json",
            &path,
        ];
        let text = stdout(&[&fixed, more].concat());
        let stats = stats(&path);
        assert_eq!(stats["finish_reason"], "length");
        (stats["generated_tokens"].as_u64().unwrap(), text)
    };
    let (n, text) = generated(&["--window", "100"]);
    assert_eq!(n, 300);
    assert_eq!(
        generated(&["-c", "100", "--context-shift", "--batch", "3"]).1,
        text
    );
    assert!(generated(&["-c", "100"]).0 < 100);
}

#[test]
fn smaller_keys_and_values_take_less_memory_and_give_text() {
    let scratch = Scratch::new("kv");
    let model = model(ENDLESS);
    let path = scratch.path("stats.json");
    let kv_bytes = |more: &[&str]| {
        let fixed = [
            "run",
            &model,
            "-p",
            "the stone",
            "-t",
            "0",
            "-n",
            "20",
            "--stats-json",
            &path,
        ];
        assert!(!stdout(&[&fixed, more].concat()).is_empty());
        let stats = stats(&path);
        let items = stats["memory"].as_array().unwrap();
        items
            .iter()
            .find(|item| item["name"] == "kv cache")
            .unwrap()["bytes"]
            .as_u64()
            .unwrap()
    };
    let sizes = ["f32", "f16", "q8", "q4"].map(|kv| {
        kv_bytes(&["--kv", kv, "--kv-edges", "0"].as_slice()[..if kv == "q4" { 4 } else { 2 }])
    });
    assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
}

#[test]
#[cfg(feature = "cli-extras")]
fn without_a_gpu_options_for_it_are_refused_and_off_changes_nothing() {
    let path = model(ENDLESS);
    let args = ["run", &path, "-p", "a", "-n", "4", "-t", "0"];
    let alone = crate::program::error_of(&atta(&[&args[..], &["--gpu-layers", "1"]].concat()), 2);
    assert!(alone.contains("--gpu"), "{alone}");
    let off = stdout(&[&args[..], &["--gpu", "off"]].concat());
    assert_eq!(off, stdout(&args));
}
