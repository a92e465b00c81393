//! `atta inspect` and `atta bench`: the contents of a file, and its speed.

use serde_json::Value;

use atta_formats::Writer;

use crate::program::{Scratch, model, stdout};

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

#[test]
fn a_person_reads_metadata_types_and_the_model() {
    let text = stdout(&["inspect", &model("qwen3.gguf")]);
    for part in [
        "general.architecture",
        "\"qwen3\"",
        "F32",
        "layers 0-",
        "heads",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("blk.0.attn_q.weight"));
    assert!(
        stdout(&["inspect", &model("qwen3.gguf"), "--tensors"]).contains("blk.0.attn_q.weight")
    );
}

#[test]
fn a_program_reads_whole_scalars_and_short_arrays() {
    let object = json(&["inspect", &model("llama-plain.gguf"), "--json"]);
    assert_eq!(object["metadata"]["llama.block_count"], 2);
    assert_eq!(object["metadata"]["tokenizer.ggml.tokens"]["len"], 96);
    assert_eq!(
        object["metadata"]["tokenizer.ggml.tokens"]["first"][1],
        "<s>"
    );
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
    assert!(
        said.contains("\\u009b31m\\u001b[2J\\u202eb\\u200f"),
        "{said}"
    );
    assert_eq!(
        serde_json::from_str::<Value>(&said).unwrap()["metadata"]["general.name"],
        HOSTILE
    );
    for said in [said, stdout(&["inspect", &path])] {
        assert!(
            !said.contains(['\u{9b}', '\u{1b}', '\u{202e}', '\u{200f}']),
            "{said:?}"
        );
    }
}

#[test]
fn tensors_are_listed_on_request() {
    let object = json(&["inspect", &model("llama-plain.gguf"), "--json", "--tensors"]);
    let tensors = object["tensors"].as_array().unwrap();
    assert_eq!(
        tensors.len() as u64,
        object["tensors_total"]["tensors"].as_u64().unwrap()
    );
    let embedding = tensors
        .iter()
        .find(|t| t["name"] == "token_embd.weight")
        .unwrap();
    assert_eq!(
        (&embedding["type"], &embedding["shape"]),
        (&"F32".into(), &serde_json::json!([96, 40]))
    );
}

#[test]
fn a_benchmark_is_one_object() {
    let object = json(&[
        "bench",
        &model("llama-plain.gguf"),
        "-p",
        "8",
        "-n",
        "4",
        "-d",
        "5",
        "-r",
        "2",
        "-j",
        "1,2",
        "--json",
    ]);
    assert!(
        object["prefill_tok_s"].as_f64().unwrap() > 0.0
            && object["decode_tok_s"].as_f64().unwrap() > 0.0
    );
    for (key, expected) in [
        ("n_prompt", 8),
        ("n_gen", 4),
        ("depth", 5),
        ("threads", 2),
        ("decode_threads", 1),
        ("prompt_threads", 2),
    ] {
        assert_eq!(object[key], expected, "{key}");
    }
    assert!(object.get("read_bytes_per_s").is_some() && object.get("int8_mac_per_s").is_some());
    assert!(object["isa"].is_string() && object["decode_split"]["matmul_s"].is_f64());
    let table = stdout(&[
        "bench",
        &model("llama-plain.gguf"),
        "-p",
        "0",
        "-n",
        "4",
        "-r",
        "1",
    ]);
    assert!(
        table.contains("tokens/s") && table.contains("text") && !table.contains("prompt  "),
        "{table}"
    );
}

#[test]
fn a_sweep_has_an_entry_and_a_row_for_each_number_of_threads() {
    let path = model("llama-plain.gguf");
    let sweep = [
        "bench", &path, "-p", "2", "-n", "2", "-r", "1", "--sweep", "2,1,3",
    ];
    let object = json(&[&sweep[..], &["--json"]].concat());
    let entries = object["sweep"].as_array().unwrap();
    assert_eq!(
        entries
            .iter()
            .map(|entry| entry["threads"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [2, 1, 3]
    );
    for rate in [
        "prefill_tok_s",
        "decode_tok_s",
        "prefill_share",
        "decode_share",
    ] {
        assert!(
            entries
                .iter()
                .all(|entry| entry[rate].as_f64().unwrap() > 0.0),
            "{rate}: {entries:?}"
        );
        assert_eq!(
            object[rate], entries[2][rate],
            "details are those of the last one"
        );
    }
    assert_eq!(object["threads"], 3);
    assert_eq!(object["rows"], entries[2]["rows"]);

    let text = stdout(&sweep);
    let (_, table) = text
        .split_once("\nthreads ")
        .expect("the sweep has a table of its own");
    let cells = |row: &str| -> Vec<String> { row.split_whitespace().map(str::to_owned).collect() };
    let rows: Vec<Vec<String>> = table.lines().skip(1).map(cells).collect();
    let heads: Vec<&[String]> = rows.iter().map(|row| &row[..2]).collect();
    assert_eq!(
        heads,
        [
            ["2", "prompt"],
            ["2", "text"],
            ["1", "prompt"],
            ["1", "text"],
            ["3", "prompt"],
            ["3", "text"]
        ],
        "{text}"
    );
    assert!(rows.iter().all(|row| row.len() == 6), "{text}");
}

#[test]
fn a_benchmark_of_lists_has_a_row_for_each_combination() {
    let path = model("llama-plain.gguf");
    let lists = [
        "bench", &path, "-p", "8,3", "-n", "2,4", "-d", "0,70", "-r", "1",
    ];
    let object = json(&[&lists[..], &["--json"]].concat());
    let rows = object["rows"].as_array().unwrap();
    let key = |row: &serde_json::Value| {
        let number = |key: &str| row[key].as_u64().unwrap();
        (
            row["kind"].as_str().unwrap().to_owned(),
            number("n"),
            number("depth"),
        )
    };
    let expected = [0, 70].into_iter().flat_map(|depth| {
        let kinds = [("prompt", 8), ("prompt", 3), ("text", 2), ("text", 4)];
        kinds.map(|(kind, n)| (kind.to_owned(), n, depth))
    });
    assert_eq!(
        rows.iter().map(key).collect::<Vec<_>>(),
        expected.collect::<Vec<_>>()
    );
    assert!(rows.iter().all(|row| row["tok_s"].as_f64().unwrap() > 0.0));
    assert_eq!(object["prefill_tok_s"], rows[0]["tok_s"]);
    assert_eq!(object["decode_tok_s"], rows[2]["tok_s"]);
    let table = stdout(&lists);
    let starts = |name: &str| table.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((starts("prompt"), starts("text")), (4, 4), "{table}");
}

#[cfg(feature = "analyze")]
#[test]
fn what_a_model_would_take_is_itemised_without_loading_it() {
    let path = model("mixtral.gguf");
    let plan = |more: &[&str]| json(&[&["inspect", &path, "--json", "-j", "2"], more].concat());
    let object = plan(&["-c", "64", "--kv", "q8", "--ram-budget", "64M"]);
    let memory = &object["memory"];
    for (key, expected) in [
        ("n_ctx", 64),
        ("limit_bytes", 64 << 20),
        ("read_bytes_per_token", 0),
    ] {
        assert_eq!(memory[key], expected, "{key}");
    }
    assert_eq!(
        [&memory["kv_k"], &memory["kv_v"], &memory["weights"]],
        ["q8", "q8", "mapped"]
    );
    let items = memory["items"].as_array().unwrap();
    let sum: u64 = items
        .iter()
        .map(|item| item["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(memory["private_bytes"], sum);
    assert!(
        items.iter().any(|item| item["name"] == "kv cache"),
        "{items:?}"
    );
    assert_eq!(
        [&object["max_decode_tok_s"], &object["read_bytes_per_s"]],
        [&Value::Null, &Value::Null]
    );
    assert_eq!(object["model"]["layers"][0]["n_experts_used"], 2);

    let streamed = plan(&["--weights", "streamed", "--speed"]);
    assert!(
        streamed["memory"]["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|item| item["name"] == "experts")
    );
    assert!(streamed["max_decode_tok_s"].as_f64().unwrap() > 0.0);
    let small = plan(&["--ram-budget", "1M"]);
    assert!(small["memory"].is_null());
    assert!(
        small["memory_error"]
            .as_str()
            .unwrap()
            .starts_with("not enough memory"),
        "{small}"
    );
}

#[cfg(feature = "analyze")]
#[test]
fn vocabulary_template_and_bytes_are_told_to_people_and_programs() {
    let path = model("llama-plain.gguf");
    let object = json(&["inspect", &path, "--json"]);
    assert_eq!(
        (
            &object["tokenizer"]["n_tokens"],
            &object["tokenizer"]["special"]["bos"]["id"]
        ),
        (&96.into(), &1.into())
    );
    assert!(object["chat_template"].is_null());
    let layers = object["bytes"]["layers"].as_array().unwrap();
    let sum = |row: &Value| -> u64 {
        row.as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| *key != "layer")
            .map(|(_, n)| n.as_u64().unwrap())
            .sum()
    };
    let all = layers.iter().map(sum).sum::<u64>() + sum(&object["bytes"]["outside_layers"]);
    assert_eq!(
        (layers.len(), &object["tensors_total"]["bytes"]),
        (2, &all.into())
    );
    let text = stdout(&["inspect", &path]);
    for part in [
        "memory, for a context of",
        "kv cache",
        "tokenizer: SentencePiece",
        "bos 1",
        "chat template: none",
        "layer 1 ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        text.contains('█')
            && !text.contains('\u{1b}')
            && text.lines().all(|line| line.chars().count() < 200)
    );
}

#[cfg(feature = "analyze")]
#[test]
fn options_that_say_nothing_here_are_refused() {
    let path = model("llama-plain.gguf");
    for option in [&["--prewarm"][..], &["--isa", "scalar"]] {
        crate::program::error_of(
            &crate::program::atta(&[&["inspect", &path], option].concat()),
            2,
        );
    }
}

#[cfg(feature = "analyze")]
#[test]
fn a_file_of_an_unknown_kind_is_shown_as_far_as_it_goes() {
    let scratch = Scratch::new("unknown");
    let mut writer = Writer::new();
    writer.set_str("general.architecture", "nobody-knows");
    writer.set_str(
        "tokenizer.chat_template",
        "{% for m in messages %}<|im_start|>\n{% endfor %}",
    );
    let layout = writer.finish().unwrap();
    let mut bytes = layout.header;
    bytes.resize(layout.file_bytes as usize, 0);
    let path = scratch.file("unknown.gguf", &bytes);
    let object = json(&["inspect", &path, "--json", "--speed"]);
    assert!(
        object["memory"].is_null()
            && object["memory_error"]
                .as_str()
                .unwrap()
                .contains("nobody-knows")
    );
    assert!(object["tokenizer_error"].is_string() && object["max_decode_tok_s"].is_null());
    assert_eq!(
        object["chat_template"]["first_line"],
        "{% for m in messages %}<|im_start|>"
    );
    assert!(object["chat_template"]["error"].is_null());
    assert!(stdout(&["inspect", &path]).contains("model: cannot be run here"));
}
