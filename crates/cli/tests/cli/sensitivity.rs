//! `atta sensitivity`, `--quality` and `--experts`.

use std::{fs, path::Path};

use serde_json::Value;

use crate::program::{Scratch, atta, error_of, model, said, stdout};

/// Seven layers; two at either end stay.
fn home() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/home.gguf");
    path.to_str().unwrap().to_owned()
}

fn text(scratch: &Scratch) -> String {
    let path = scratch.path("text");
    let text = "Once upon a time there was a little dog. He liked to run in the park. ";
    fs::write(&path, text.repeat(8)).unwrap();
    path
}

#[test]
fn measurements_go_into_a_copy_whose_quality_can_be_chosen() {
    let scratch = Scratch::new("sensitivity");
    let text = text(&scratch);
    let home = home();
    let copy = scratch.path("measured.gguf");
    let args = ["-f", &text, "-c", "32", "--chunks", "2", "-j", "1"];
    let line = [&["sensitivity", &home, "-o", &copy, "--json"], &args[..]].concat();
    let figures: Value = serde_json::from_str(&stdout(&line)).unwrap();
    assert_eq!(figures["n_tokens"], 2 * 15);
    let alone = figures["alone_kld"].as_array().unwrap();
    let tried: Vec<bool> = alone.iter().map(Value::is_f64).collect();
    assert_eq!(tried, [false, false, true, true, true, false, false]);
    let first = &figures["left_out"][0];
    let layer = first["layers"][0].as_u64().unwrap();
    let kld = first["kld"].as_f64().unwrap();
    assert!(kld > 0.0 && first["bytes_ratio"].as_f64().unwrap() < 1.0);
    let quality = (1.0 - kld - 1e-6).to_string();
    let run = [
        "run",
        &copy,
        "--quality",
        &quality,
        "-p",
        "Once",
        "-n",
        "4",
        "--temp",
        "0",
    ];
    let output = atta(&run);
    assert_eq!(output.status.code(), Some(0));
    let start = format!("atta: skipping layers {layer}: KLD {kld:.2}, ppl ");
    assert!(said(&output).starts_with(&start), "{}", said(&output));
    let table = stdout(&[&["sensitivity", &home], &args[..]].concat());
    assert!(table.starts_with("30 tokens scored\nleft out "), "{table}");
    // The divergence is that which `atta perplexity` finds.
    let base = scratch.path("base");
    let perplexity = ["perplexity", &copy, "-c", "32", "--json", "-j", "1"];
    stdout(
        &[
            &perplexity[..],
            &["-f", &text, "--chunks", "2", "--save-logits", &base],
        ]
        .concat(),
    );
    let output = atta(&[&perplexity[..], &["--kld", &base, "--quality", &quality]].concat());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = found["kld_mean"].as_f64().unwrap();
    assert!((found - kld).abs() < 1e-6, "{found}, {kld}");
}

#[test]
fn a_copy_with_other_weights_has_no_measurements() {
    let scratch = Scratch::new("sensitivity-converted");
    let [measured, same, other] =
        ["measured.gguf", "same.gguf", "other.gguf"].map(|name| scratch.path(name));
    let text = text(&scratch);
    let args = [
        "-c", "16", "--chunks", "1", "--layers", "1", "-o", &measured,
    ];
    stdout(&[&["sensitivity", &home(), "-f", &text], &args[..]].concat());
    stdout(&["convert", &measured, &same]);
    let converted = atta(&["convert", &measured, &other, "--type", "q4_0"]);
    assert_eq!(converted.status.code(), Some(0));
    let run = |file: &str| atta(&["run", file, "--quality", "0.01", "-p", "a", "-n", "1"]);
    assert_eq!(run(&same).status.code(), Some(0));
    let error = error_of(&run(&other), 1);
    let advice = "the file has no measurements of it: `atta sensitivity MODEL -f TEXT -o NEW.gguf` \
                  writes a file with them\n";
    assert!(
        error.contains("--quality below 1") && error.ends_with(advice),
        "{error}"
    );
}

#[test]
fn fewer_experts_are_used_and_their_cost_is_said_if_it_is_known() {
    let mixtral = model("mixtral.gguf");
    let args = ["--tokens", "3,4,5", "-o", "-", "--experts"];
    let logits = |n: &str| atta(&[&["logits", &mixtral], &args[..], &[n]].concat());
    let fewer = logits("1");
    let said = said(&fewer);
    let start = "atta: at most 1 experts for each token: the cost was not measured, -";
    assert!(said.starts_with(start), "{said}");
    assert_ne!(fewer.stdout, logits("2").stdout);
    for (file, n, why) in [
        (&mixtral, "3", "--experts is 3, expected 1 to 2\n"),
        (
            &home(),
            "1",
            "--experts is 1, but the model has no experts\n",
        ),
    ] {
        let line = ["run", file, "--experts", n, "-p", "a", "-n", "1"];
        let error = error_of(&atta(&line), 1);
        assert!(error.ends_with(why), "{error}");
    }
}

#[test]
fn parts_of_a_model_are_refused_where_all_of_it_is_meant() {
    let home = home();
    for (line, code, why) in [
        (
            &["imatrix", &home, "-f", "x", "-o", "y", "--quality", "0.9"][..],
            2,
            "`atta imatrix`",
        ),
        (
            &["sensitivity", &home, "-f", "x", "--experts", "1"],
            2,
            "`atta sensitivity`",
        ),
        (
            &["run", &home, "--quality", "0", "-p", "a"],
            2,
            "above 0 and at most 1",
        ),
        (
            &["run", &home, "--ring", "--quality", "0.9", "-p", "a"],
            2,
            "for one machine",
        ),
    ] {
        let output = atta(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
}
