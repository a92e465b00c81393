//! Meta checkpoints in two files, written by `tests/oracles/pickle_golden.py`.

use std::path::{Path, PathBuf};

use atta_convert::{Checkpoint, Tensor, meta};
use atta_formats::{Gguf, Metadata, TensorType};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/pickle")
        .join(name)
}

/// The tensors in the order of the script, which sorts them by Meta's names.
const NAMES: [&str; 12] = [
    "blk.0.attn_k.weight",
    "blk.0.attn_output.weight",
    "blk.0.attn_q.weight",
    "blk.0.attn_v.weight",
    "blk.0.attn_norm.weight",
    "blk.0.ffn_gate.weight",
    "blk.0.ffn_down.weight",
    "blk.0.ffn_up.weight",
    "blk.0.ffn_norm.weight",
    "output_norm.weight",
    "output.weight",
    "token_embd.weight",
];

fn read(tensor: &Tensor) -> Vec<f32> {
    let mut out = vec![0.0; tensor.dims.iter().product::<u64>() as usize];
    tensor.rows.read(0, &mut out).unwrap();
    out
}

fn metadata(checkpoint: &Checkpoint) -> Metadata {
    let layout = checkpoint.metadata.clone().finish().unwrap();
    Gguf::parse(std::sync::Arc::new(layout.header), layout.file_bytes)
        .unwrap()
        .metadata
}

fn check_weights(checkpoint: &Checkpoint, ty: TensorType) {
    for tensor in checkpoint
        .tensors
        .iter()
        .filter(|tensor| tensor.name != "rope_freqs.weight")
    {
        let number = NAMES.iter().position(|name| *name == tensor.name).unwrap();
        let expected: Vec<f32> = (0..read(tensor).len())
            .map(|i| (i * 7 + number * 13) as f32 % 251.0 - 125.0)
            .collect();
        assert_eq!((read(tensor), tensor.ty), (expected, ty), "{}", tensor.name);
    }
}

#[test]
fn a_llama_2_cuts_its_embedding_by_columns() {
    let checkpoint = meta::open(&path("meta-llama2"), &mut Vec::new()).unwrap();
    assert_eq!((checkpoint.tensors.len(), checkpoint.files.len()), (12, 2));
    check_weights(&checkpoint, TensorType::F16);
    let m = metadata(&checkpoint);
    let counts = [
        "embedding_length",
        "feed_forward_length",
        "vocab_size",
        "context_length",
        "attention.head_count_kv",
    ];
    assert_eq!(
        counts.map(|key| m.u32(&format!("llama.{key}")).unwrap().unwrap()),
        [16, 24, 20, 4096, 2]
    );
    assert_eq!(m.f32("llama.rope.freq_base"), Ok(Some(10_000.0)));
}

#[test]
fn a_llama_3_cuts_its_embedding_by_rows_and_stretches_its_rope() {
    let mut notes = Vec::new();
    let checkpoint = meta::open(&path("meta-llama3"), &mut notes).unwrap();
    assert_eq!(
        notes,
        ["params.json has no context length: 131072 is assumed"]
    );
    check_weights(&checkpoint, TensorType::BF16);
    let factors = checkpoint
        .tensors
        .iter()
        .find(|tensor| tensor.name == "rope_freqs.weight")
        .unwrap();
    // Wavelengths of 6, 167, 4443 and 118,143 positions.
    let [fast, short, middle, slow] = read(factors)[..] else {
        panic!("{:?}", factors.dims)
    };
    assert_eq!((fast, short, slow), (1.0, 1.0, 8.0));
    assert!((middle - 2.6945).abs() < 1e-4, "{middle}");
    assert_eq!(
        metadata(&checkpoint).u32("llama.context_length"),
        Ok(Some(131_072))
    );
}

/// The error for a directory of the script that `change` has modified.
fn refusal(name: &str, change: impl Fn(&Path)) -> String {
    let dir = std::env::temp_dir().join(format!("atta-meta-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for file in ["params.json", "consolidated.00.pth", "consolidated.01.pth"] {
        std::fs::copy(path("meta-llama2").join(file), dir.join(file)).unwrap();
    }
    change(&dir);
    let error = meta::open(&dir, &mut Vec::new()).err().unwrap().to_string();
    std::fs::remove_dir_all(&dir).unwrap();
    error
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let params = |json: &'static str| {
        move |dir: &Path| std::fs::write(dir.join("params.json"), json).unwrap()
    };
    let missing = refusal("missing", |dir| {
        std::fs::remove_file(dir.join("consolidated.01.pth")).unwrap()
    });
    assert!(
        missing.ends_with(
            "tok_embeddings.weight is [20, 8] in each of 1 files, which is no part of 16 columns"
        ),
        "{missing}"
    );
    let none = refusal("none", |dir| {
        std::fs::remove_file(dir.join("consolidated.00.pth")).unwrap()
    });
    assert!(none.contains("consolidated.00.pth"), "{none}");
    let layers = refusal(
        "layers",
        params(r#"{"dim": 16, "n_heads": 2, "n_layers": 2}"#),
    );
    assert!(
        layers.ends_with("layers.1.attention_norm.weight is in 0 of 2 files"),
        "{layers}"
    );
    let heads = refusal(
        "heads",
        params(r#"{"dim": 16, "n_heads": 2, "n_layers": 1, "n_kv_heads": 1}"#),
    );
    assert!(
        heads.ends_with("wk.weight is [8, 16] in each of 2 files, expected [8, 16] in all"),
        "{heads}"
    );
    let vocab = refusal(
        "vocab",
        params(r#"{"dim": 16, "n_heads": 2, "n_layers": 1, "vocab_size": 21}"#),
    );
    assert!(
        vocab.ends_with("params.json has 21 tokens, and the embedding 20"),
        "{vocab}"
    );
    let mixed = refusal("mixed", |dir| {
        std::fs::copy(
            path("meta-llama3/consolidated.01.pth"),
            dir.join("consolidated.01.pth"),
        )
        .unwrap();
    });
    assert!(
        mixed.contains(
            "tok_embeddings.weight is [20, 8] in each of 2 files, expected [20, 16] in all"
        ),
        "{mixed}"
    );
    let extra = refusal("extra", |dir| {
        std::fs::copy(path("plain.bin"), dir.join("consolidated.00.pth")).unwrap();
    });
    assert!(
        extra.contains("layers.0.feed_forward.w1.weight is missing"),
        "{extra}"
    );
}
