//! `atta inspect` and `atta bench`: what is in a file, and how fast it is.

use serde_json::Value;

use crate::program::{model, stdout};

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

#[test]
fn a_person_reads_metadata_types_and_the_model() {
    let text = stdout(&["inspect", &model("qwen3.gguf")]);
    for part in ["general.architecture", "\"qwen3\"", "F32", "layers 0-", "heads"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("blk.0.attn_q.weight"));
    assert!(stdout(&["inspect", &model("qwen3.gguf"), "--tensors"]).contains("blk.0.attn_q.weight"));
}

#[test]
fn a_program_reads_whole_scalars_and_short_arrays() {
    let object = json(&["inspect", &model("llama-plain.gguf"), "--json"]);
    assert_eq!(object["metadata"]["llama.block_count"], 2);
    assert_eq!(object["metadata"]["tokenizer.ggml.tokens"]["len"], 96);
    assert_eq!(object["metadata"]["tokenizer.ggml.tokens"]["first"][1], "<s>");
    assert_eq!(object["model"]["d_model"], 40);
    assert_eq!(object["tensors_total"], object["tensors_by_type"]["F32"]);
    assert!(object.get("tensors").is_none());
    let keys: Vec<_> = object["metadata"].as_object().unwrap().keys().collect();
    assert!(keys.is_sorted());
}

#[test]
fn tensors_are_listed_on_request() {
    let object = json(&["inspect", &model("llama-plain.gguf"), "--json", "--tensors"]);
    let tensors = object["tensors"].as_array().unwrap();
    assert_eq!(tensors.len() as u64, object["tensors_total"]["tensors"].as_u64().unwrap());
    let embedding = tensors.iter().find(|t| t["name"] == "token_embd.weight").unwrap();
    assert_eq!((&embedding["type"], &embedding["shape"]), (&"F32".into(), &serde_json::json!([96, 40])));
}

#[test]
fn a_benchmark_is_one_object() {
    let object =
        json(&["bench", &model("llama-plain.gguf"), "-p", "8", "-n", "4", "-d", "5", "-r", "2", "-j", "2", "--json"]);
    assert!(object["prefill_tok_s"].as_f64().unwrap() > 0.0 && object["decode_tok_s"].as_f64().unwrap() > 0.0);
    for (key, expected) in [("n_prompt", 8), ("n_gen", 4), ("depth", 5), ("threads", 2)] {
        assert_eq!(object[key], expected, "{key}");
    }
    assert!(object["isa"].is_string() && object["decode_split"]["matmul_s"].is_f64());
    let table = stdout(&["bench", &model("llama-plain.gguf"), "-p", "0", "-n", "4", "-r", "1"]);
    assert!(table.contains("tokens/s") && table.contains("text") && !table.contains("prompt  "), "{table}");
}
