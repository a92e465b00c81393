//! The seeds of the fuzz target are what the writer writes, byte for byte. `UPDATE_GOLDEN=1`
//! rewrites them.

use atta_formats::{Gguf, SharedBytes, Split, TensorType, Writer};
use std::path::Path;
use std::sync::Arc;

/// Every kind of metadata value, in both versions' common form.
fn values() -> Writer {
    let mut w = Writer::new();
    w.set_str("general.architecture", "llama");
    w.set_u8("k.u8", 200);
    w.set_u16("k.u16", 60_000);
    w.set_u32("llama.context_length", 4096);
    w.set_i32("k.i32", -7);
    w.set_u64("k.u64", u64::MAX);
    w.set_i64("k.i64", i64::MIN);
    w.set_f32("llama.rope.freq_base", 10_000.0);
    w.set_f64("k.f64", 0.1);
    w.set_bool("tokenizer.ggml.add_bos_token", true);
    w.set_strs(
        "tokenizer.ggml.tokens",
        &[&b"<unk>"[..], b"\xe2\x96\x81a", b"\xff", b""],
    );
    w.set_f32s("tokenizer.ggml.scores", &[0.0, -1.0, -2.0, -3.0]);
    w.set_i32s("tokenizer.ggml.token_type", &[2, 1, 6, 1]);
    w.set_u32s("k.u32s", &[1, u32::MAX]);
    w.set_bools("k.bools", &[true, false]);
    w
}

fn tensors(version: u32, types: &[TensorType]) -> Writer {
    let mut w = Writer::new();
    w.set_version(version).unwrap();
    w.set_str("general.architecture", "qwen3");
    for ty in types {
        w.add_tensor(&format!("blk.0.{ty}.weight"), &[2, 256], *ty)
            .unwrap();
    }
    w.add_tensor("output_norm.weight", &[5], TensorType::F32)
        .unwrap();
    w
}

fn shard() -> Writer {
    let mut w = tensors(3, &[TensorType::Q8_0]);
    w.set_alignment(64).unwrap();
    w.set_split(Split {
        no: 1,
        count: 3,
        n_tensors: Some(9),
    });
    w
}

fn check(name: &str, w: Writer) {
    let layout = w.finish().unwrap();
    let mut file = layout.header;
    file.resize(layout.file_bytes as usize, 0);
    let path = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/seeds/gguf"
    ))
    .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &file).unwrap();
    }
    assert!(
        std::fs::read(&path).unwrap() == file,
        "{name} is not what the writer writes"
    );
    let shared: SharedBytes = Arc::new(file);
    assert_eq!(
        Gguf::parse(shared, layout.file_bytes).unwrap().tensors,
        layout.tensors
    );
}

#[test]
fn written_files_stay_the_same_bytes() {
    use TensorType::*;
    check("values.gguf", values());
    check("quantized-v2.gguf", tensors(2, &[Q4_0, Q4_K, IQ2_XXS]));
    check(
        "quantized-v3.gguf",
        tensors(3, &[Q2_K, Q3_K, Q5_K, Q6_K, F16, BF16]),
    );
    check("shard.gguf", shard());
}
