//! Layers of multi-token prediction in Hugging Face directories: the layer is one of its
//! architecture, under llama.cpp's names.
//!
//! The directories are those of `tests/golden/convert`, whose last layer with attention is written
//! a second time as such a layer.

#[allow(dead_code, reason = "shared with other tests")]
mod temp_dir;

use std::{collections::BTreeMap, fs, path::Path};

use atta_convert::{Checkpoint, Tensor, hf};
use atta_model::arch;
use serde_json::{Map, Value, json};
use temp_dir::TempDir;

const D_MODEL: u64 = 32;

/// A safetensors file in memory: for each tensor its entry in the header, and its bytes.
struct Weights(BTreeMap<String, (Value, Vec<u8>)>);

impl Weights {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let (len, rest) = bytes.split_first_chunk::<8>().unwrap();
        let (header, data) = rest.split_at(u64::from_le_bytes(*len) as usize);
        let header: Map<String, Value> = serde_json::from_slice(header).unwrap();
        let tensors = header
            .into_iter()
            .filter(|(name, _)| name != "__metadata__");
        let with_bytes = |(name, entry): (String, Value)| {
            let offset = |i: usize| entry["data_offsets"][i].as_u64().unwrap() as usize;
            let bytes = data[offset(0)..offset(1)].to_vec();
            (name, (entry, bytes))
        };
        Self(tensors.map(with_bytes).collect())
    }

    /// Adds a tensor in BF16 whose elements count up.
    fn add(&mut self, name: &str, shape: &[u64]) {
        let n: u64 = shape.iter().product();
        let bytes = (0..n).flat_map(|i| (0x3f00 + i as u16 % 128).to_le_bytes());
        let entry = json!({"dtype": "BF16", "shape": shape});
        self.0.insert(name.to_owned(), (entry, bytes.collect()));
    }

    /// Adds the tensors of a layer under another prefix.
    fn copy_layer(&mut self, from: &str, to: &str) {
        for (name, tensor) in self.0.clone() {
            if let Some(part) = name.strip_prefix(from) {
                self.0.insert(format!("{to}{part}"), tensor);
            }
        }
    }

    fn write(mut self, path: &Path) {
        let mut data = Vec::new();
        for (entry, bytes) in self.0.values_mut() {
            entry["data_offsets"] = json!([data.len(), data.len() + bytes.len()]);
            data.append(bytes);
        }
        let entries = self.0.into_iter().map(|(name, (entry, _))| (name, entry));
        let header = Value::Object(entries.collect()).to_string();
        let len = (header.len() as u64).to_le_bytes();
        fs::write(path, [&len[..], header.as_bytes(), &data].concat()).unwrap();
    }
}

/// Converts a directory of `tests/golden/convert` with other weights, which are written to
/// `folder`; adds its remarks to `notes`.
fn converted(
    folder: &TempDir,
    row: &str,
    notes: &mut Vec<String>,
    change: impl Fn(&mut Weights),
) -> Checkpoint {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/convert");
    let mut weights = Weights::read(&own.join(row).join("model.safetensors"));
    change(&mut weights);
    let config = own.join(row).join("config.json");
    fs::copy(config, folder.file("config.json")).unwrap();
    weights.write(&folder.file("model.safetensors"));
    hf::open(folder.path(), notes).unwrap()
}

fn qwen(weights: &mut Weights) {
    weights.copy_layer("model.language_model.layers.3.", "mtp.layers.0.");
    weights.add("mtp.fc.weight", &[D_MODEL, 2 * D_MODEL]);
    for norm in ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"] {
        weights.add(&format!("mtp.{norm}.weight"), &[D_MODEL]);
    }
}

/// GLM-4.5 and DeepSeek 3 have the same names.
fn glm(weights: &mut Weights) {
    weights.copy_layer("model.layers.2.", "model.layers.3.");
    weights.add("model.layers.3.eh_proj.weight", &[D_MODEL, 2 * D_MODEL]);
    for norm in ["enorm", "hnorm", "shared_head.norm"] {
        weights.add(&format!("model.layers.3.{norm}.weight"), &[D_MODEL]);
    }
    for table in ["embed_tokens", "shared_head.head"] {
        weights.add(&format!("model.layers.3.{table}.weight"), &[96, D_MODEL]);
    }
}

fn tensor<'a>(checkpoint: &'a Checkpoint, name: &str) -> &'a Tensor {
    let mut tensors = checkpoint.tensors.iter();
    let found = tensors.find(|tensor| tensor.name == name);
    found.unwrap_or_else(|| panic!("{name} is missing"))
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    let mut all = vec![0.0; (tensor.n_rows() * tensor.d_row()) as usize];
    tensor.rows.read(0, &mut all).unwrap();
    all
}

/// Asserts that layer `l` is layer `l - 1` again.
fn assert_copied(checkpoint: &Checkpoint, l: usize) {
    let prefix = format!("blk.{}.", l - 1);
    let mut n = 0;
    for one in &checkpoint.tensors {
        let Some(part) = one.name.strip_prefix(&prefix) else {
            continue;
        };
        let other = tensor(checkpoint, &format!("blk.{l}.{part}"));
        assert_eq!((&one.dims, one.ty), (&other.dims, other.ty), "{part}");
        assert_eq!(floats(one), floats(other), "{part}");
        n += 1;
    }
    assert!(n > 8, "{n} tensors");
}

/// Asserts that the file runs the layer that joins the model at layer `l`.
fn assert_joined(checkpoint: &Checkpoint, l: usize, norm_offset: f32) {
    let metadata = checkpoint.describe().unwrap().metadata;
    let model = arch::lower(&metadata).unwrap();
    assert_eq!((model.layers.len(), model.n_nextn), (l, 1));
    let layer = arch::lower_nextn(&metadata).unwrap();
    assert_eq!(layer.join.unwrap().first_block, l);
    let part = |name: &str| tensor(checkpoint, &format!("blk.{l}.nextn.{name}.weight"));
    assert_eq!(part("eh_proj").dims, [D_MODEL, 2 * D_MODEL]);
    for norm in ["enorm", "hnorm", "shared_head_norm"] {
        assert_eq!(
            floats(part(norm))[..2],
            [0.5, 0.503_906_25].map(|x| x + norm_offset)
        );
    }
}

#[test]
fn the_layer_of_qwen_becomes_a_layer_behind_the_last_one() {
    let folder = TempDir::new("qwen");
    let mut notes = Vec::new();
    let checkpoint = converted(&folder, "qwen35.text.bf16", &mut notes, qwen);
    assert_copied(&checkpoint, 4);
    assert_joined(&checkpoint, 4, 1.0);
    let is_left_out = |note: &String| note.contains("multi-token");
    assert!(!notes.iter().any(is_left_out), "{notes:?}");
}

#[test]
fn the_layer_of_glm_keeps_its_experts_embedding_and_head() {
    let folder = TempDir::new("glm");
    let mut notes = Vec::new();
    let checkpoint = converted(&folder, "glm4moe.nextn.bf16", &mut notes, glm);
    assert_copied(&checkpoint, 3);
    assert_joined(&checkpoint, 3, 0.0);
    for table in ["embed_tokens", "shared_head_head"] {
        let name = format!("blk.3.nextn.{table}.weight");
        assert_eq!(tensor(&checkpoint, &name).dims, [96, D_MODEL]);
    }
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn the_layer_of_deepseek_keeps_its_latent_attention_and_experts() {
    let folder = TempDir::new("deepseek");
    let mut notes = Vec::new();
    let checkpoint = converted(&folder, "deepseek3.bf16", &mut notes, glm);
    assert_copied(&checkpoint, 3);
    assert_joined(&checkpoint, 3, 0.0);
    for part in ["attn_k_b", "attn_v_b", "ffn_gate_exps", "exp_probs_b"] {
        assert!(
            checkpoint
                .tensors
                .iter()
                .any(|tensor| tensor.name.starts_with(&format!("blk.3.{part}.")))
        );
    }
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn a_second_layer_is_left_out_and_noted() {
    let folder = TempDir::new("two");
    let mut notes = Vec::new();
    let checkpoint = converted(&folder, "qwen35.text.bf16", &mut notes, |weights| {
        qwen(weights);
        weights.copy_layer("mtp.layers.0.", "mtp.layers.1.");
    });
    assert_joined(&checkpoint, 4, 1.0);
    let expected = "tensors of multi-token prediction are left out (mtp.)";
    assert!(
        notes.iter().any(|note| note.ends_with(expected)),
        "{notes:?}"
    );
}
