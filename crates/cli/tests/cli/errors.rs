//! Errors: one line on standard error, nothing on standard output, and the right exit code.

use atta_formats::{TensorType, Writer};

use crate::program::{Scratch, atta, atta_with_input, error_of, model};

/// Asserts the exit code and parts of the error line.
fn fails(args: &[&str], code: i32, parts: &[&str]) {
    let error = error_of(&atta(args), code);
    for part in parts {
        assert!(error.contains(part), "{args:?}: {part:?} is not in {error}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for command in [
        &["run", "no-such.gguf", "-p", "x"][..],
        &["inspect", "no-such.gguf"],
        &["bench", "no-such.gguf"],
    ] {
        fails(command, 1, &["no-such.gguf: "]);
    }
    fails(
        &["run", ".", "-p", "x"],
        1,
        &[".: is a directory: name a .gguf file"],
    );
}

#[test]
fn corrupt_files_are_refused_by_every_command() {
    let scratch = Scratch::new("corrupt");
    let whole = std::fs::read(model("llama-plain.gguf")).unwrap();
    let files = [
        ("empty.gguf", Vec::new()),
        ("text.gguf", b"this is no model".to_vec()),
        ("head.gguf", whole[..100].to_vec()),
        ("cut.gguf", whole[..whole.len() - 1000].to_vec()),
        (
            "counts.gguf",
            [&whole[..8], &[0xff; 16], &whole[24..]].concat(),
        ),
    ];
    for (name, bytes) in files {
        let path = scratch.file(name, &bytes);
        let out = scratch.path("out");
        fails(&["run", &path, "-p", "x"], 1, &[name]);
        fails(&["inspect", &path], 1, &[name]);
        fails(&["tokenize", &path, "x"], 1, &[name]);
        fails(&["logits", &path, "--tokens", "1", "-o", &out], 1, &[name]);
    }
}

#[test]
fn an_architecture_that_we_do_not_run_is_named_and_so_are_ours() {
    let scratch = Scratch::new("architecture");
    let mut writer = Writer::new();
    writer.set_str("general.architecture", "from\u{2028}mars");
    writer.set_str("tokenizer.ggml.model", "llama");
    writer.set_strs(
        "tokenizer.ggml.tokens",
        &["<unk>", "<s>", "</s>", "▁", "a", "▁a"],
    );
    writer.set_f32s("tokenizer.ggml.scores", &[0.0, 0.0, 0.0, -1.0, -2.0, -0.5]);
    writer.set_i32s("tokenizer.ggml.token_type", &[2, 3, 3, 1, 1, 1]);
    writer
        .add_tensor("odd.weight", &[2, 32], TensorType::F32)
        .unwrap();
    let layout = writer.finish().unwrap();
    let mut bytes = layout.header;
    bytes.resize(layout.file_bytes as usize, 0);
    let path = scratch.file("mars.gguf", &bytes);

    fails(
        &["run", &path, "-p", "x"],
        1,
        &[
            "mars.gguf: ",
            "unsupported architecture",
            "known: ",
            "llama, ",
        ],
    );
    // Those that need no architecture work all the same.
    let output = atta(&["tokenize", &path, "a a", "--ids"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "[5, 5]\n");
    let output = atta(&["inspect", &path]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("cannot be run here") && said.contains("mars") && !said.contains('\u{2028}'),
        "{said}"
    );
}

#[test]
fn a_prompt_that_is_too_long_says_how_long_and_what_to_do() {
    let model = model("llama-plain.gguf");
    fails(
        &["run", &model, "-p", "a b c d e f g", "-c", "4"],
        1,
        &["the prompt has ", "holds 4", "raise -c"],
    );
    let error = error_of(&atta_with_input(&["run", &model], &[b'a'; 10_000]), 1);
    assert!(error.contains("raise -c"), "{error}");
}

#[test]
fn an_empty_prompt_begins_at_the_begin_token_or_is_refused() {
    assert_eq!(
        atta(&["run", &model("llama-plain.gguf"), "-p", "", "-n", "2"])
            .status
            .code(),
        Some(0)
    );
    let scratch = Scratch::new("no-bos");
    let mut bytes = std::fs::read(model("llama-plain.gguf")).unwrap();
    let key = b"add_bos_token";
    let at = bytes
        .windows(key.len())
        .position(|window| window == key)
        .unwrap()
        + key.len();
    // The type comes first, then the value.
    bytes[at + 4] = 0;
    fails(
        &["run", &scratch.file("no-bos.gguf", &bytes), "-p", ""],
        1,
        &["the prompt is empty"],
    );
}

#[test]
fn wrong_usage_is_told_from_failure() {
    let model = model("llama-plain.gguf");
    let cases: [(&[&str], &str); 19] = [
        (&["--frob"], "no option --frob"),
        (&["-n", "-2"], "'--n-predict <N>'"),
        (&["-n", "1.5"], "'--n-predict <N>'"),
        (&["-c", "0"], "'--ctx-size <CTX>'"),
        (&["-c", "999999999999"], "'--ctx-size <CTX>'"),
        (&["-j", "0"], "'--threads <THREADS>'"),
        (&["--batch", "0"], "'--batch <N>'"),
        (&["--cpus", "2-1"], "'--cpus <LIST>'"),
        (&["--cpus", "0", "-j", "1"], "cannot be used with"),
        (&["--isa", "mmx"], "'--isa <NAME>'"),
        (&["--kv", "q5"], "expected f32, f16, q8 or q4"),
        (&["--kv", "q8", "--kv-edges", "1"], "--kv-edges"),
        (&["--weights", "frozen"], "'--weights <WHERE>'"),
        (&["--ram-budget", "12x"], "K, M, G, T"),
        (&["--ram-budget", "0"], "'--ram-budget <SIZE>'"),
        (&["--top-p", "1.5"], "--top-p is 1.5"),
        (&["-t", "-1"], "-t is -1"),
        (&["--stop", ""], "'--stop <TEXT>'"),
        (&["--json", "--regex", "x"], "cannot be used with"),
    ];
    for (options, part) in cases {
        fails(&[&["run", &model, "-p", "x"], options].concat(), 2, &[part]);
    }
    fails(
        &[
            "run",
            "no-such.gguf",
            "-p",
            "x",
            "--prewarm",
            "--weights",
            "resident",
        ],
        2,
        &["--prewarm", "resident"],
    );
    fails(
        &["bench", &model, "--prewarm", "--weights", "resident"],
        2,
        &["--prewarm", "resident"],
    );
    fails(
        &[
            "run",
            "no-such.gguf",
            "-p",
            "x",
            "--prewarm",
            "--weights",
            "streamed",
        ],
        2,
        &["--prewarm", "streamed"],
    );
    fails(&["logits", &model], 2, &["--tokens <IDS>"]);
    fails(
        &["logits", &model, "--tokens", "1,x", "-o", "out"],
        2,
        &["\"x\" is no token id"],
    );
    fails(
        &["bench", &model, "-p", "0", "-n", "0"],
        2,
        &["nothing to measure"],
    );
}

#[test]
fn what_this_machine_lacks_is_a_failure() {
    let model = model("llama-plain.gguf");
    let foreign = if cfg!(target_arch = "x86_64") {
        "neon"
    } else {
        "avx2"
    };
    fails(
        &["run", &model, "-p", "x", "--isa", foreign],
        1,
        &[foreign, "scalar"],
    );
    fails(
        &["run", &model, "-p", "x", "--cpus", "65000"],
        1,
        &["65000"],
    );
}

/// A model of one layer with half a megabyte of keys and values per position.
#[cfg(any(target_os = "linux", windows))]
fn wide_model() -> Vec<u8> {
    const D_KV: u64 = 128 * 1024;
    let mut writer = Writer::new();
    writer.set_str("general.architecture", "llama");
    for (key, value) in [
        ("block_count", 1),
        ("embedding_length", 32),
        ("feed_forward_length", 32),
        ("context_length", 64),
        ("attention.head_count", 1024),
        ("attention.head_count_kv", 1024),
        ("attention.key_length", 128),
        ("attention.value_length", 128),
        ("rope.dimension_count", 128),
    ] {
        writer.set_u32(&format!("llama.{key}"), value);
    }
    writer.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    writer.set_str("tokenizer.ggml.model", "llama");
    writer.set_strs("tokenizer.ggml.tokens", &["<unk>", "<s>", "</s>", "a"]);
    writer.set_f32s("tokenizer.ggml.scores", &[0.0; 4]);
    let matrices = [
        ("attn_q", D_KV, 32),
        ("attn_k", D_KV, 32),
        ("attn_v", D_KV, 32),
        ("attn_output", 32, D_KV),
    ];
    for (name, d_out, d_in) in matrices
        .into_iter()
        .chain(["ffn_gate", "ffn_up", "ffn_down"].map(|name| (name, 32, 32)))
    {
        writer
            .add_tensor(
                &format!("blk.0.{name}.weight"),
                &[d_out, d_in],
                TensorType::Q4_0,
            )
            .unwrap();
    }
    for name in ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"] {
        writer
            .add_tensor(&format!("{name}.weight"), &[32], TensorType::F32)
            .unwrap();
    }
    writer
        .add_tensor("token_embd.weight", &[4, 32], TensorType::F32)
        .unwrap();
    let layout = writer.finish().unwrap();
    let mut bytes = layout.header;
    bytes.resize(layout.file_bytes as usize, 0);
    bytes
}

#[test]
#[cfg(any(target_os = "linux", windows))]
fn a_context_that_no_machine_holds_is_refused_and_not_tried() {
    let scratch = Scratch::new("wide");
    let path = scratch.file("wide.gguf", &wide_model());
    fails(
        &["run", &path, "-p", "a", "-c", "16777216"],
        1,
        &[
            "not enough memory: this needs at least",
            "-c below 16777216",
        ],
    );
}

#[test]
#[cfg(any(target_os = "linux", windows))]
fn a_benchmark_is_made_in_the_context_that_is_asked_for() {
    let scratch = Scratch::new("wide-bench");
    let path = scratch.file("wide.gguf", &wide_model());
    let bench = ["bench", &path, "-p", "1", "-n", "1", "-r", "1", "-c"];
    fails(
        &[&bench[..], &["16777216"]].concat(),
        1,
        &["not enough memory: this needs at least"],
    );
    assert_eq!(atta(&[&bench[..], &["2"]].concat()).status.code(), Some(0));
    fails(
        &["bench", &path, "-p", "4", "-c", "3"],
        2,
        &["-c 3 is too short"],
    );
}

#[test]
#[cfg(feature = "builtin")]
fn what_does_not_apply_to_the_built_in_model_is_wrong_usage() {
    let scratch = Scratch::new("builtin-prewarm");
    let path = scratch.path("stats.json");
    fails(
        &["run", "-p", "x", "--prewarm", "--stats-json", &path],
        2,
        &["--prewarm", "built-in"],
    );
    assert!(scratch.names().is_empty());
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["run", "-h"],
        &["--version"],
    ] {
        let output = atta(args);
        assert_eq!(
            (output.status.code(), output.stderr.len()),
            (Some(0), 0),
            "{args:?}"
        );
        assert!(!output.stdout.is_empty());
    }
}
