//! `atta logits`: raw numbers, compared with those of Hugging Face transformers.

use serde_json::Value;

use crate::program::{Scratch, atta, atta_with_input, error_of, model, text_of};

fn floats(path: &str) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// The squared error relative to the expected power.
fn nmse(got: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let square = |x: f64| x * x;
    let error: f64 = got
        .iter()
        .zip(expected)
        .map(|(g, e)| square(f64::from(g - e)))
        .sum();
    error / expected.iter().map(|e| square(f64::from(*e))).sum::<f64>()
}

/// Those that predict tokens.
fn golden_models() -> Vec<Value> {
    let index = std::fs::read_to_string(model("index.json")).unwrap();
    let index: Value = serde_json::from_str(&index).unwrap();
    let models = index["models"].as_array().unwrap().iter();
    models
        .filter(|golden| golden["encoder"].is_null())
        .cloned()
        .collect()
}

fn tokens(golden: &Value) -> String {
    golden["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

#[test]
fn every_golden_model_agrees_with_its_golden() {
    let scratch = Scratch::new("logits-golden");
    for golden in golden_models() {
        let name = golden["gguf"].as_str().unwrap();
        let out = scratch.path(name);
        let n_tokens = golden["n_tokens"].as_u64().unwrap() as usize;
        // Some ropes are stretched by the length of the context.
        text_of(&atta(&[
            "logits",
            &model(name),
            "--tokens",
            &tokens(&golden),
            "-o",
            &out,
            "-c",
            &n_tokens.to_string(),
        ]));
        let got = floats(&out);
        assert_eq!(got.len(), 96 * n_tokens);
        let error = nmse(&got, &floats(&model(golden["logits"].as_str().unwrap())));
        assert!(error <= 1e-6, "{name}: {error:e}");
    }
}

/// Options that change no byte.
const SAME_BYTES: [[&str; 2]; 6] = [
    ["-j", "2"],
    ["-j", "3"],
    ["--batch", "1"],
    ["--batch", "7"],
    ["--weights", "resident"],
    ["--kv", "f32"],
];

#[test]
fn the_bytes_do_not_depend_on_threads_batches_or_where_weights_are() {
    let scratch = Scratch::new("logits-same");
    let out = scratch.path("out");
    let golden = &golden_models()[0];
    let model = model(golden["gguf"].as_str().unwrap());
    let tokens = tokens(golden);
    let bytes = |more: &[&str]| {
        text_of(&atta(
            &[&["logits", &model, "--tokens", &tokens, "-o", &out], more].concat(),
        ));
        std::fs::read(&out).unwrap()
    };
    let expected = bytes(&["-j", "1"]);
    for more in SAME_BYTES {
        assert_eq!(bytes(&more), expected, "{more:?}");
    }
    assert_ne!(bytes(&["--kv", "f16"]), expected);
    assert_eq!(scratch.names(), ["out"]);
}

#[test]
fn ids_come_from_a_file_or_from_tokenize() {
    let scratch = Scratch::new("logits-ids");
    let model = model("llama-plain.gguf");
    let a = scratch.path("a");
    let b = scratch.path("b");
    let c = scratch.path("c");
    let ids = scratch.file("ids", b"1, 5\n7\n");
    text_of(&atta(&["logits", &model, "--tokens", "1,5,7", "-o", &a]));
    text_of(&atta(&[
        "logits",
        &model,
        "--tokens",
        &format!("@{ids}"),
        "-o",
        &b,
    ]));
    text_of(&atta_with_input(
        &["logits", &model, "--tokens", "-", "-o", &c],
        b"[1, 5, 7]\n",
    ));
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&c).unwrap());
}

#[test]
fn a_failure_leaves_no_file() {
    let scratch = Scratch::new("logits-failure");
    let out = scratch.path("out");
    let model = model("llama-plain.gguf");
    let error = error_of(
        &atta(&["logits", &model, "--tokens", "1,96", "-o", &out]),
        1,
    );
    assert!(error.contains("id 96 is out of range"), "{error}");
    let error = error_of(
        &atta(&["logits", &model, "--tokens", "1,2,3", "-c", "2", "-o", &out]),
        1,
    );
    assert!(error.contains("3 ids, but the context holds 2"), "{error}");
    let error = error_of(
        &atta(&["logits", &model, "--tokens", "1", "-o", "no/such/place"]),
        1,
    );
    assert!(error.contains("no/such/place: cannot write"), "{error}");
    assert!(scratch.names().is_empty());
}
