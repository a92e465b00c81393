//! Directories that transformers wrote, compared with the GGUF files that
//! `tests/oracles/models_golden.py` wrote of the same models: tensors must be equal bit for bit,
//! and metadata must lower to the same spec.
//!
//! `HF_ROWS=DIR cargo test -p atta-convert --test hf` tests the directories in `DIR` instead of
//! those of the repository.

mod support;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use atta_convert::{Checkpoint, Tensor, hf, safetensors};
use atta_formats::{Gguf, Metadata, TensorType, Value, decode, f16};
use atta_model::{
    arch, oracle,
    spec::{ModelSpec, Outputs},
};
use support::{Golden, floats, golden, rows};

#[test]
fn what_is_converted_is_the_same_model() {
    for row in rows() {
        let golden = golden(&row);
        let got = converted(&row);
        same_tensors(&row, &golden, &got);
        assert_eq!(spec_of(&got), golden.spec(), "{}", row.display());
    }
}

/// Whether a key that is missing means the same, or atta reads another one instead.
fn is_unread(key: &str, value: &Value<'_>) -> bool {
    let is_none = key.ends_with(".rope.scaling.type") && *value == Value::Str("none");
    is_none || key.ends_with(".classifier.pooling_type")
}

/// The golden has the keys of llama.cpp's converter.
#[test]
fn metadata_has_the_keys_of_the_golden() {
    for row in rows() {
        let golden = golden(&row);
        let prefix = format!("{}.", golden.arch());
        let got = metadata_of(&converted(&row));
        let wanted = golden.directory().metadata().iter();
        let wanted: Vec<_> = wanted.filter(|(key, _)| key.starts_with(&prefix)).collect();
        assert!(wanted.len() > 5, "{}: {} keys", row.display(), wanted.len());
        let other =
            |key: &str, value: &_| got.get(key).as_ref() != Some(value) && !is_unread(key, value);
        let others: Vec<_> = wanted
            .iter()
            .filter(|(key, value)| other(key, value))
            .collect();
        assert!(others.is_empty(), "{}: {others:?}", row.display());
    }
}

#[test]
fn parts_that_are_left_out_are_noted() {
    let rows = rows();
    let expected: [(&str, &[&str]); 2] = [
        (
            "qwen35.text.bf16",
            &[
                "1 tensors of other modalities are left out (visual.)",
                "1 tensors of multi-token prediction are left out (mtp.)",
            ],
        ),
        (
            "glm4moe.nextn.bf16",
            &["1 tensors of multi-token prediction are left out (layers)"],
        ),
    ];
    for (name, expected) in expected {
        let Some(row) = rows.iter().find(|row| row.ends_with(name)) else {
            continue;
        };
        let mut notes = Vec::new();
        hf::open(row, &mut notes).unwrap();
        assert_eq!(notes, expected, "{name}");
    }
}

#[test]
fn all_that_keeps_a_directory_from_being_converted_is_listed() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/convert/qwen3.bf16");
    assert!(hf::problems(&from).is_empty());
    let folder = std::env::temp_dir().join(format!("atta-problems-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(
        from.join("model.safetensors"),
        folder.join("model.safetensors"),
    )
    .unwrap();
    let config = std::fs::read_to_string(from.join("config.json")).unwrap();
    let config = config
        .replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1")
        .replace("\"vocab_size\": 96", "\"vocab_size\": 95")
        .replacen('{', "{\"is_causal\": false,", 1);
    std::fs::write(folder.join("config.json"), config).unwrap();
    let found: Vec<String> = hf::problems(&folder)
        .iter()
        .map(ToString::to_string)
        .collect();
    std::fs::remove_dir_all(&folder).unwrap();
    for expected in [
        "is_causal is false",
        "model.embed_tokens.weight: ",
        "model.layers.1.mlp.up_proj.weight: ",
        "model.layers.1.self_attn.q_norm.weight: ",
    ] {
        assert!(
            found.iter().any(|e| e.contains(expected)),
            "{expected}: {found:#?}"
        );
    }
}

/// A Qwen4Exp whose configuration has another text in one place.
fn altered_qwen4exp(from: &str, to: &str) -> Checkpoint {
    altered("qwen4exp-ngrams.bf16", from, to)
}

/// How many altered checkpoints were made.
static N_ALTERED: AtomicUsize = AtomicUsize::new(0);

/// A checkpoint whose configuration has another text in one place.
fn altered(row: &str, from: &str, to: &str) -> Checkpoint {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/convert");
    let own = own.join(row);
    let config = std::fs::read_to_string(own.join("config.json")).unwrap();
    assert!(config.contains(from), "{from}");
    let n = N_ALTERED.fetch_add(1, Ordering::Relaxed);
    let name = format!("atta-{row}-{n}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), config.replace(from, to)).unwrap();
    let weights = "model.safetensors";
    std::fs::copy(own.join(weights), folder.join(weights)).unwrap();
    let got = converted(&folder);
    // Windows keeps a file that is mapped.
    let removed = std::fs::remove_dir_all(&folder);
    assert!(removed.is_ok() || cfg!(windows), "{removed:?}");
    got
}

#[test]
fn kimi_linear_as_transformers_saves_it_is_the_same_model() {
    let row = "kimi-linear.bf16";
    let usual = altered(row, "{", "{");
    // Of two fields of one name the later one is read.
    let end = "\"short_conv_kernel_size\": 3\n }";
    let sizes = r#""linear_num_heads": 4, "linear_head_dim": 12, "linear_conv_kernel_dim": 3"#;
    let saved = format!("{end}, \"linear_attn_config\": null, {sizes}");
    let saved = altered(row, end, &saved);
    assert_eq!(spec_of(&saved), spec_of(&usual));
}

#[test]
fn configurations_of_qwen4exp_are_read_as_transformers_does() {
    let usual = altered_qwen4exp("{", "{");
    for (from, to) in [
        ("indexed_attention", "full_attention"),
        ("\"eos_token_id\": 90", "\"eos_token_id\": [90, 2]"),
    ] {
        let got = altered_qwen4exp(from, to);
        assert_eq!(spec_of(&got), spec_of(&usual), "{to}");
    }
}

#[test]
fn every_architecture_is_converted() {
    let names: Vec<String> = rows()
        .iter()
        .chain(&quantized())
        .map(|row| arch_of(&converted(row)))
        .collect();
    for row in arch::REGISTRY {
        assert!(names.iter().any(|name| name == row.name), "{}", row.name);
    }
}

#[test]
fn what_is_converted_runs() {
    for row in rows() {
        let golden = golden(&row);
        let model = support::model(&converted(&row));
        let tokens = &golden.tokens;
        let logits = match model.spec().head.outputs {
            Outputs::Logits => oracle::logits(&model, tokens),
            Outputs::Hidden => oracle::normed(&model, tokens),
            Outputs::Dense(_) => oracle::dense(&model, tokens),
            Outputs::Scores(_) => oracle::scores(&model, tokens, golden.first_of_second),
        };
        let logits = logits.unwrap();
        let error: f64 = logits
            .iter()
            .zip(&golden.logits)
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum();
        let nmse = error
            / golden
                .logits
                .iter()
                .map(|&b| f64::from(b).powi(2))
                .sum::<f64>();
        // Golden directories in BF16 are rounded, so their logits differ; their weights are tested
        // above.
        assert!(
            nmse < if is_rounded(&row) { 1.0 } else { 1e-9 },
            "{}: {nmse:e}",
            row.display()
        );
    }
}

/// Quantized matrices have the values that transformers decodes, in whatever type they are
/// converted to.
#[test]
fn quantized_weights_keep_their_values() {
    for row in quantized() {
        let got = converted(&row);
        let expected = safetensors::open(&row.join("expected.safetensors")).unwrap();
        for name in expected.names() {
            let want = expected.get(name).unwrap();
            let at = format!("{}: {name}", row.display());
            let tensor = got
                .tensors
                .iter()
                .find(|t| t.name == name)
                .unwrap_or_else(|| panic!("{at}"));
            assert_eq!(tensor.dims, want.dims(), "{at}");
            let mut weights = vec![0.0; want.dims().iter().product::<u64>() as usize];
            want.floats(0, &mut weights).unwrap();
            let factor = factor_of(&got, name);
            for (a, b) in floats(tensor).into_iter().zip(weights) {
                let a = factor * a;
                assert!((a - b).abs() <= 1e-6 * b.abs(), "{at}: {a} {b}");
            }
        }
        for (ty, rows) in FLOATS_OF_FOUR_BITS {
            let has_it = got.tensors.iter().any(|t| t.ty == *ty);
            assert_eq!(has_it, rows.iter().any(|name| row.ends_with(name)));
        }
        support::model(&got);
    }
}

/// Directories whose matrices become such blocks.
const FLOATS_OF_FOUR_BITS: &[(TensorType, &[&str])] = &[
    (TensorType::MXFP4, &["mxfp4"]),
    (TensorType::NVFP4, &["nvfp4", "nvfp4-modelopt"]),
];

/// What a matrix is multiplied by, as a tensor beside it says.
fn factor_of(checkpoint: &Checkpoint, matrix: &str) -> f32 {
    let name = matrix.replace(".weight", ".scale");
    let scale = checkpoint.tensors.iter().find(|t| t.name == name);
    scale.map_or(1.0, |scale| floats(scale)[0])
}

/// The types that integers of a directory become: blocks that hold exactly the same weights, where
/// there are such blocks.
const TYPES_OF_INTEGERS: &[(&str, TensorType)] = &[
    ("awq", TensorType::Q5_0),
    ("gptq", TensorType::Q5_0),
    ("gptq-3", TensorType::Q4_0),
    ("gptq-8-shuffled", TensorType::F32),
    ("gptq-symmetric", TensorType::Q4_0),
    ("mlx", TensorType::Q4_1),
    ("mlx-3", TensorType::Q4_1),
    ("w4a16", TensorType::Q4_0),
    ("w4a16-zeros", TensorType::Q5_0),
    ("w8a8", TensorType::Q8_0),
];

#[test]
fn integers_move_into_blocks_that_hold_them() {
    for &(row, ty) in TYPES_OF_INTEGERS {
        let all = quantized();
        let got = converted(all.iter().find(|path| path.ends_with(row)).unwrap());
        for name in ["blk.0.attn_k.weight", "blk.0.ffn_down.weight"] {
            let tensor = got.tensors.iter().find(|t| t.name == name).unwrap();
            assert_eq!(tensor.ty, ty, "{row}: {name}");
            if ty != TensorType::F32 {
                assert_eq!(packed(tensor), floats(tensor), "{row}: {name}");
            }
        }
    }
}

/// The weights of a tensor, by way of the blocks that a file gets.
fn packed(tensor: &Tensor) -> Vec<f32> {
    let row_bytes = tensor.ty.row_bytes(tensor.d_row() as usize).unwrap();
    let mut blocks = vec![0; tensor.n_rows() as usize * row_bytes];
    assert!(tensor.rows.packed(0, &mut blocks).unwrap());
    let mut weights = vec![0.0; (tensor.n_rows() * tensor.d_row()) as usize];
    decode(tensor.ty, &blocks, &mut weights).unwrap();
    weights
}

/// Directories of quantized models.
fn quantized() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/convert/quantized");
    std::fs::read_dir(own)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

fn converted(row: &Path) -> Checkpoint {
    let mut notes = Vec::new();
    let got = hf::open(row, &mut notes).unwrap_or_else(|e| panic!("{}: {e}", row.display()));
    assert!(
        !notes.iter().any(|note| note.contains("not read")),
        "{}: {notes:?}",
        row.display()
    );
    got
}

fn is_rounded(row: &Path) -> bool {
    row.to_string_lossy().ends_with(".bf16")
}

/// Dimensions without outermost ones of 1.
fn rows_of(dims: &[u64]) -> &[u64] {
    match dims {
        [1, rest @ ..] if !rest.is_empty() => rows_of(rest),
        _ => dims,
    }
}

fn same_tensors(row: &Path, golden: &Golden, got: &Checkpoint) {
    let names: Vec<&str> = got.tensors.iter().map(|t| t.name.as_str()).collect();
    let mut expected: Vec<&str> = golden
        .directory()
        .tensors()
        .iter()
        .map(|t| t.name.as_str())
        .collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sorted, expected, "{}", row.display());
    for tensor in &got.tensors {
        let at = format!("{}: {}", row.display(), tensor.name);
        let (info, mut want) = golden.tensor(&tensor.name);
        // llama.cpp's converter wrote the gate of a shared expert as a vector, and now as a row.
        assert_eq!(rows_of(&tensor.dims), rows_of(info.shape.dims()), "{at}");
        if is_rounded(row) && !tensor.name.starts_with("rope_") {
            want.iter_mut()
                .for_each(|x| *x = f16::bf16_to_f32(f16::f32_to_bf16(*x)));
        }
        let is_kept = tensor.dims.len() < 2
            || tensor.name.contains("gate_inp")
            || tensor.name.contains("conv1d")
            || tensor.name.ends_with("_norm.weight")
            || tensor.name.contains(".altup_")
            || tensor.name.contains(".ssm_") && is_of_heads(&tensor.name)
            || tensor.name.ends_with("shortconv.conv.weight")
            || tensor.name.ends_with("_exps.bias");
        let tables = ["position_embd.weight", "token_types.weight"];
        // The head of a classifier is multiplied once per text.
        let of_text = ["cls.", "dense_"];
        let is_kept = is_kept
            || tables.contains(&tensor.name.as_str())
            || of_text.iter().any(|head| tensor.name.starts_with(head));
        let ty = if is_rounded(row) && !is_kept {
            TensorType::BF16
        } else {
            TensorType::F32
        };
        assert_eq!(tensor.ty, ty, "{at}");
        // Some norms have 1 added, and decays are exponents. In the golden that was done before
        // rounding, here after it.
        // So are the multipliers of Falcon-H1.
        let is_norm = tensor.name.ends_with("_norm.weight") || tensor.name.contains(".ple_norm_");
        let is_changed = is_norm && adds_one(&golden.arch()) || golden.arch() == "falcon-h1";
        let is_exponent = tensor.name.ends_with("ssm_a");
        // And llama.cpp's converter computes factors of ropes in f32, atta in f64.
        let is_rope = tensor.name == "rope_freqs.weight";
        if is_rope || is_exponent || is_rounded(row) && is_changed {
            // Without rounding, the last bit of an exponent depends on the C library.
            let tolerance = match is_rounded(row) && !is_rope {
                true => 0.01,
                false => 1e-6,
            };
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < tolerance * b.abs().max(1.0);
            assert!(floats(tensor).iter().zip(&want).all(near), "{at}");
            continue;
        }
        assert!(
            floats(tensor)
                .iter()
                .map(|x| x.to_bits())
                .eq(want.iter().map(|x| x.to_bits())),
            "{at}"
        );
        if let Some(stored) = tensor.rows.stored() {
            let mut again = vec![0.0; want.len()];
            decode(tensor.ty, stored, &mut again).unwrap();
            assert_eq!(again, want, "{at}");
        }
    }
}

/// Whether a tensor of a state space is of its heads.
fn is_of_heads(name: &str) -> bool {
    ["ssm_a", "ssm_d", "ssm_norm.weight"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Whether norms of an architecture have 1 added.
fn adds_one(arch: &str) -> bool {
    let others = ["nemotron", "qwen3next", "qwen4exp"];
    arch.starts_with("gemma") || arch.starts_with("qwen35") || others.contains(&arch)
}

fn metadata_of(got: &Checkpoint) -> Metadata {
    let header = got.metadata.clone().finish().unwrap().header;
    let n_bytes = header.len() as u64;
    Gguf::parse(Arc::new(header), n_bytes).unwrap().metadata
}

fn spec_of(got: &Checkpoint) -> ModelSpec {
    arch::lower(&metadata_of(got)).unwrap()
}

fn arch_of(got: &Checkpoint) -> String {
    metadata_of(got)
        .str("general.architecture")
        .unwrap()
        .unwrap()
        .to_owned()
}
