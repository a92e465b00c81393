//! `atta inspect` and `atta bench`: what is in a file, and how fast it is.

use serde_json::Value;

use atta_formats::Writer;

use crate::program::{Scratch, model, stdout};

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
fn what_a_hostile_file_says_cannot_steer_a_terminal() {
    const HOSTILE: &str = "a\u{9b}31m\u{1b}[2J\u{202e}b\u{200f}\n";
    let scratch = Scratch::new("hostile");
    let mut writer = Writer::new();
    writer.set_str("general.architecture", "llama");
    writer.set_str("general.name", HOSTILE);
    let layout = writer.finish().unwrap();
    let mut bytes = layout.header;
    bytes.resize(layout.file_bytes as usize, 0);
    let path = scratch.file("hostile.gguf", &bytes);

    let said = stdout(&["inspect", &path, "--json"]);
    assert!(said.contains("\\u009b31m\\u001b[2J\\u202eb\\u200f"), "{said}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["metadata"]["general.name"], HOSTILE);
    for said in [said, stdout(&["inspect", &path])] {
        assert!(!said.contains(['\u{9b}', '\u{1b}', '\u{202e}', '\u{200f}']), "{said:?}");
    }
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
    assert!(object.get("read_bytes_per_s").is_some() && object.get("int8_mac_per_s").is_some());
    assert!(object["isa"].is_string() && object["decode_split"]["matmul_s"].is_f64());
    let table = stdout(&["bench", &model("llama-plain.gguf"), "-p", "0", "-n", "4", "-r", "1"]);
    assert!(table.contains("tokens/s") && table.contains("text") && !table.contains("prompt  "), "{table}");
}
