//! `atta perplexity`: the figures of llama.cpp's tool, and measurements that go on where they were
//! interrupted.

use std::{fs, path::Path};

use serde_json::Value;

#[cfg(unix)]
use crate::processes::signal;
use crate::program::{Scratch, atta, error_of, model, stdout};

fn golden(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/perplexity")
        .join(name);
    path.to_str().unwrap().to_owned()
}

fn figures(name: &str) -> Value {
    serde_json::from_str::<Value>(&fs::read_to_string(golden("figures.json")).unwrap()).unwrap()
        [name]
        .clone()
}

fn measured(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[&["perplexity"], args, &["--json"]].concat())).unwrap()
}

/// A figure may be off by a hundredth of its error bar.
fn assert_agrees(got: &Value, key: &str, want: &Value) {
    let value = want[0].as_f64().unwrap();
    let bar = want[1].as_f64().unwrap();
    let got = got[key].as_f64().unwrap();
    assert!(
        (got - value).abs() <= 0.01 * bar + 1e-4,
        "{key}: {got}, expected {value} ± {bar}"
    );
}

#[test]
fn perplexity_is_that_of_llama_cpp() {
    let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    for (name, model, text) in [
        (
            "stories",
            stories.to_str().unwrap().to_owned(),
            golden("stories.txt"),
        ),
        (
            "llama-plain",
            model("llama-plain.gguf"),
            golden("letters.txt"),
        ),
    ] {
        let want = figures(name);
        let got = measured(&[&model, "-f", &text, "-c", &want["n_ctx"].to_string()]);
        assert_agrees(&got, "ppl", &want["ppl"]);
        let bar = got["ppl_stderr"].as_f64().unwrap();
        let want = want["ppl"][1].as_f64().unwrap();
        assert!(
            (bar / want - 1.0).abs() < 2e-3,
            "{name}: error bar {bar}, expected {want}"
        );
        assert!(got["kld_mean"].is_null());
    }
}

#[test]
fn divergence_from_logits_that_llama_cpp_saved_is_what_it_says() {
    let want = figures("llama-bias to llama-plain");
    let got = measured(&[
        &model("llama-bias.gguf"),
        "--kld",
        &golden("llama-plain.logits"),
    ]);
    for key in [
        "ppl",
        "ppl_base",
        "ppl_ratio",
        "kld_mean",
        "same_top",
        "delta_p_rms",
    ] {
        assert_agrees(&got, key, &want[key]);
    }
    for key in ["kld_median", "kld_max"] {
        let got = got[key].as_f64().unwrap();
        let want = want[key].as_f64().unwrap();
        assert!(
            (got / want - 1.0).abs() < 1e-3,
            "{key}: {got}, expected {want}"
        );
    }
}

#[test]
fn saved_logits_are_those_of_llama_cpp_but_for_rounding() {
    let scratch = Scratch::new("ppl-save");
    let plain = model("llama-plain.gguf");
    let path = scratch.path("base");
    measured(&[
        &plain,
        "-f",
        &golden("letters.txt"),
        "-c",
        "32",
        "--chunks",
        "12",
        "--save-logits",
        &path,
    ]);
    let got = fs::read(&path).unwrap();
    let want = fs::read(golden("llama-plain.logits")).unwrap();
    assert_eq!(got.len(), want.len());
    let n_head = 20 + 4 * 32 * 12;
    assert_eq!(got[..n_head], want[..n_head]);
    // A model does not diverge from itself, and finds the same tokens best.
    let itself = measured(&[&plain, "--kld", &path, "-f", &golden("letters.txt")]);
    assert!(itself["kld_max"].as_f64().unwrap() < 1e-4, "{itself}");
    assert_eq!(
        (itself["same_top"].as_f64(), itself["n_tokens"].as_u64()),
        (Some(1.0), Some(180))
    );
}

#[test]
fn threads_and_batches_change_no_digit() {
    let plain = model("llama-plain.gguf");
    let text = golden("letters.txt");
    let measure = |more: &[&str]| {
        measured(
            &[
                &[plain.as_str(), "-f", &text, "-c", "48", "--chunks", "5"],
                more,
            ]
            .concat(),
        )
    };
    let expected = measure(&[]);
    for more in [["-j", "1"], ["-j", "3"], ["--batch", "1"], ["--batch", "7"]] {
        assert_eq!(measure(&more), expected, "{more:?}");
    }
}

/// Cuts a journal off after `n` bytes of records, as a kill would.
fn cut(journal: &str, n: usize) {
    let bytes = fs::read(journal).unwrap();
    let n_head = 1 + bytes.iter().position(|&byte| byte == b'\n').unwrap();
    fs::write(journal, &bytes[..n_head + n]).unwrap();
}

#[test]
fn an_interrupted_measurement_goes_on_and_ends_the_same_to_the_last_digit() {
    let scratch = Scratch::new("ppl-resume");
    let plain = model("llama-plain.gguf");
    let text = golden("letters.txt");
    let journal = scratch.path("journal");
    let logits = scratch.path("logits");
    let common = [plain.as_str(), "-f", &text, "-c", "32", "--chunks", "9"];
    let whole = measured(&common);
    let resumed = [
        &common[..],
        &["--resume", &journal, "--save-logits", &logits],
    ]
    .concat();
    assert_eq!(measured(&resumed), whole);
    let whole_logits = fs::read(&logits).unwrap();
    // Four chunks of 15 tokens, and half of the fifth; the logits are cut off elsewhere, or are
    // not.
    for n_logits_more in [0, 100, 1 << 20] {
        cut(&journal, 4 * 15 * 4 + 30);
        let n_logits = (20 + 4 * 32 * 9 + 4 * 15 * 200 + n_logits_more).min(whole_logits.len());
        fs::write(&logits, &whole_logits[..n_logits]).unwrap();
        assert_eq!(measured(&resumed), whole);
        assert!(
            fs::read(&logits).unwrap() == whole_logits,
            "{n_logits_more}"
        );
    }
    // Once all is done, nothing is left to compute.
    assert_eq!(measured(&resumed), whole);
    // Logits that hold less than the journal says cannot be continued.
    fs::write(&logits, &whole_logits[..5000]).unwrap();
    assert!(
        error_of(&atta(&[&["perplexity"], &resumed[..]].concat()), 1).contains("does not hold")
    );
}

#[test]
#[cfg(unix)]
fn ctrl_c_leaves_a_measurement_that_can_go_on() {
    let scratch = Scratch::new("ppl-interrupt");
    let plain = model("llama-plain.gguf");
    let journal = scratch.path("journal");
    let text = scratch.file("text", &fs::read(golden("letters.txt")).unwrap().repeat(4));
    let args = [
        "perplexity",
        &plain,
        "-f",
        &text,
        "-c",
        "32",
        "--resume",
        &journal,
    ];
    let child = crate::program::command(&args).spawn().unwrap();
    let start = std::time::Instant::now();
    while fs::metadata(&journal).map_or(0, |meta| meta.len()) < 1000 {
        assert!(
            start.elapsed() < std::time::Duration::from_secs(60),
            "it never began"
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
    let resumed = measured(&args[1..]);
    assert_eq!(resumed, measured(&args[1..6]));
}

#[test]
fn an_interrupted_comparison_goes_on_too() {
    let scratch = Scratch::new("ppl-resume-kld");
    let bias = model("llama-bias.gguf");
    let base = golden("llama-plain.logits");
    let journal = scratch.path("journal");
    let whole = measured(&[&bias, "--kld", &base]);
    let resumed = [bias.as_str(), "--kld", &base, "--resume", &journal];
    assert_eq!(measured(&resumed), whole);
    cut(&journal, 7 * 15 * 13 + 1);
    assert_eq!(measured(&resumed), whole);
}

#[test]
fn a_model_of_the_same_name_with_other_weights_is_another_measurement() {
    let scratch = Scratch::new("ppl-replaced");
    let mut bytes = fs::read(model("llama-plain.gguf")).unwrap();
    let text = golden("letters.txt");
    let journal = scratch.path("journal");
    let replaced = scratch.file("model.gguf", &bytes);
    let args = [
        "perplexity",
        &replaced,
        "-f",
        &text,
        "-c",
        "32",
        "--resume",
        &journal,
    ];
    assert!(atta(&args).status.success());
    assert!(atta(&args).status.success(), "the same file");
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&replaced, bytes).unwrap();
    assert!(error_of(&atta(&args), 1).contains("model_content"));
}

#[test]
fn a_journal_of_another_measurement_is_refused() {
    let scratch = Scratch::new("ppl-journal");
    let plain = model("llama-plain.gguf");
    let text = golden("letters.txt");
    let journal = scratch.path("journal");
    let resume = |c: &str, path: &str| {
        atta(&[
            "perplexity",
            &plain,
            "-f",
            &text,
            "-c",
            c,
            "--chunks",
            "2",
            "--resume",
            path,
        ])
    };
    assert!(resume("32", &journal).status.success());
    let error = error_of(&resume("16", &journal), 1);
    assert!(error.contains("n_ctx is 32 there and 16 here"), "{error}");
    let foreign = scratch.file("foreign", b"not a journal\n");
    assert!(error_of(&resume("32", &foreign), 1).contains("no file of --resume"));
    assert_eq!(
        fs::read(foreign).unwrap(),
        b"not a journal\n",
        "a file of somebody else was changed"
    );
}

#[test]
fn what_cannot_be_measured_is_an_error_that_says_why() {
    let scratch = Scratch::new("ppl-errors");
    let plain = model("llama-plain.gguf");
    let text = scratch.file("text", b"a few words");
    let base = golden("llama-plain.logits");
    let error = |args: &[&str], code| error_of(&atta(&[&["perplexity"], args].concat()), code);
    assert!(error(&[&plain, "-f", &text], 1).contains("a chunk takes 512"));
    assert!(error(&[&plain, "-f", &text, "-c", "3"], 1).contains("expected at least 4"));
    assert!(error(&[&plain], 2).contains("--file <TEXT>"));
    assert!(
        error(&[&plain, "--kld", &base, "--save-logits", "x"], 2).contains("cannot be used with")
    );
    assert!(error(&[&plain, "--kld", &base, "-c", "64"], 1).contains("-c 32"));
    assert!(error(&[&plain, "--kld", &base, "-f", &text], 1).contains("another text"));
    assert!(error(&[&plain, "-f", "nowhere"], 1).contains("nowhere"));
    let cut = scratch.file("cut", &fs::read(&base).unwrap()[..20_000]);
    assert!(error(&[&plain, "--kld", &cut], 1).contains("20000 bytes of 37556"));
    let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    assert!(
        error(&[stories.to_str().unwrap(), "--kld", &base], 1)
            .contains("96 tokens, and this one has 2048")
    );
}

#[test]
fn people_get_a_table() {
    let text = stdout(&[
        "perplexity",
        &model("llama-bias.gguf"),
        "--kld",
        &golden("llama-plain.logits"),
    ]);
    assert!(
        text.starts_with("perplexity ") && text.contains(" ± ") && text.contains("12 chunks of 32"),
        "{text}"
    );
    assert!(
        text.contains("divergence, mean, nats") && text.contains("same best token"),
        "{text}"
    );
}
