//! `--lora`: adapters of peft, beside a model, merged into it, and in a conversation.

use std::path::Path;

use crate::{
    chat::ChatModel,
    program::{Scratch, atta, atta_with_input, error_of, model, said, text_of},
};

/// A directory of peft with an adapter of the golden model of that name.
fn peft(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/lora");
    path.join(name).to_str().unwrap().to_owned()
}

/// The adapter of a golden model as a GGUF file.
fn adapter(scratch: &Scratch, name: &str) -> String {
    let out = scratch.path(&format!("{name}-adapter.gguf"));
    let base = model(&format!("{name}.gguf"));
    let output = atta(&["convert", &peft(name), &out, "--base", &base]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    out
}

/// The logits of a few tokens with further options.
fn logits(scratch: &Scratch, path: &str, more: &[&str]) -> Vec<u8> {
    let out = scratch.path("logits");
    let args = ["logits", path, "--tokens", "1,5,9,30", "-o", &out];
    text_of(&atta(&[&args, more].concat()));
    std::fs::read(out).unwrap()
}

#[test]
fn adapters_change_logits_by_their_scales_and_merged_files_have_the_same() {
    let scratch = Scratch::new("lora-scales");
    let base = model("qwen2.gguf");
    let file = adapter(&scratch, "qwen2");
    let plain = logits(&scratch, &base, &[]);
    let adapted = logits(&scratch, &base, &["--lora", &file]);
    assert!(plain != adapted);
    let none = format!("{file}:0");
    assert_eq!(logits(&scratch, &base, &["--lora", &none]), plain);
    let named = format!("x={file}:1");
    let resident = ["--lora", &named, "--weights", "resident", "-j", "2"];
    assert_eq!(logits(&scratch, &base, &resident), adapted);
    let merged = scratch.path("merged.gguf");
    text_of(&atta(&["convert", &base, &merged, "--lora", &file]));
    let by_weights = logits(&scratch, &merged, &[]);
    let floats = |bytes: &[u8]| -> Vec<f64> {
        let all = bytes.as_chunks().0.iter();
        all.map(|&b| f64::from(f32::from_le_bytes(b))).collect()
    };
    let [a, b] = [&by_weights, &adapted].map(|bytes| floats(bytes));
    let error: f64 = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum();
    assert!(
        error < 1e-11 * b.iter().map(|b| b * b).sum::<f64>(),
        "{error:e}"
    );
    let quantized = scratch.path("quantized.gguf");
    let args = [
        "convert", &base, &quantized, "--lora", &file, "--type", "q8_0",
    ];
    assert_eq!(atta(&args).status.code(), Some(0));
    assert!(logits(&scratch, &quantized, &[]) != plain);
}

#[test]
fn a_conversation_goes_on_with_other_adapters() {
    let chat = ChatModel::new("lora-chat");
    let file = adapter(&chat.scratch, "llama-plain");
    let named = format!("a={file}");
    let answers = |lora: &[&str], input: &str| {
        let args = [
            "chat",
            &chat.path,
            "-t",
            "0",
            "-n",
            "8",
            "--logit-bias",
            "2-inf",
        ];
        let output = atta_with_input(&[&args, lora].concat(), input.as_bytes());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        (
            String::from_utf8(output.stdout.clone()).unwrap(),
            said(&output),
        )
    };
    let with = answers(&["--lora", &named], "the king\n").0;
    let without = answers(&[], "the king\n").0;
    assert!(with != without, "{with}");
    let lines = "/lora none\nthe king\n/lora\n";
    let (text, notices) = answers(&["--lora", &named], lines);
    assert_eq!(text, without);
    assert!(notices.contains("a  not in use"), "{notices}");
    let (text, notices) = answers(
        &["--lora", &named],
        "/lora none\n/lora a:1\n/lora\nthe king\n",
    );
    assert_eq!(text, with);
    assert!(notices.contains("a  scale 1"), "{notices}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let scratch = Scratch::new("lora-refused");
    let base = model("qwen2.gguf");
    let file = adapter(&scratch, "qwen3");
    let run = |more: &[&str]| {
        let args = ["logits", &base, "--tokens", "1", "-o", "/dev/null"];
        atta(&[&args, more].concat())
    };
    let error = error_of(&run(&["--lora", &file]), 1);
    assert!(error.contains("expected \"qwen2\""), "{error}");
    let error = error_of(&run(&["--lora", &base]), 1);
    assert!(error.contains("expected \"adapter\""), "{error}");
    let error = error_of(&run(&["--lora", &format!("{file}:inf")]), 2);
    assert!(error.contains("finite"), "{error}");
    let error = error_of(&atta(&["run", &file, "-p", "x"]), 1);
    assert!(error.contains("LoRA adapter"), "{error}");
    let out = scratch.path("out.gguf");
    let error = error_of(&atta(&["convert", &peft("qwen2"), &out]), 1);
    assert!(error.contains("name its base model"), "{error}");
    let error = error_of(&atta(&["convert", &base, &out, "--base", &base]), 1);
    assert!(error.contains("adapter_config.json"), "{error}");
    let typed = [
        "convert",
        &peft("qwen2"),
        &out,
        "--base",
        &base,
        "--type",
        "q8_0",
    ];
    let error = error_of(&atta(&typed), 2);
    assert!(error.contains("--type does not apply"), "{error}");
    let args = ["imatrix", &base, "-f", &base, "-o", &out, "--lora", &file];
    let error = error_of(&atta(&args), 2);
    assert!(error.contains("--lora does not apply"), "{error}");
}
