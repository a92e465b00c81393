//! Files of LoRA adapters for the little model of stories. The tests of *server* use it, too.

use std::{
    fs,
    path::{Path, PathBuf},
};

use atta_engine::ModelFiles;
use atta_formats::{TensorType, Writer};

/// The file of the model.
pub(crate) fn stories() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf")
}

/// Writes an adapter of rank 2 with random matrices for queries and the MLP's last projections.
pub(crate) fn write_adapter(path: &Path, seed: u64) {
    let model = ModelFiles::open(&stories()).unwrap();
    let mut w = Writer::new();
    w.set_str("general.type", "adapter");
    w.set_str("general.architecture", "llama");
    w.set_str("adapter.type", "lora");
    w.set_f32("adapter.lora.alpha", 2.0);
    let is_adapted = |name: &str| name.contains("attn_q.") || name.contains("ffn_down.");
    for t in model
        .directory()
        .tensors()
        .iter()
        .filter(|t| is_adapted(&t.name))
    {
        let [d_out, d_in] = t.shape.dims()[..] else {
            panic!("{}", t.name)
        };
        for (end, dims) in [("lora_a", [2, d_in]), ("lora_b", [d_out, 2])] {
            let name = format!("{}.{end}", t.name);
            w.add_tensor(&name, &dims, TensorType::F32).unwrap();
        }
    }
    let layout = w.finish().unwrap();
    let mut bytes = layout.header.clone();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while bytes.len() < layout.file_bytes as usize {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let x = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        bytes.extend((0.3 * x).to_le_bytes());
    }
    bytes.truncate(layout.file_bytes as usize);
    fs::write(path, bytes).unwrap();
}
