//! Shared by the tests of directories: the directories of `tests/golden/convert`, the files of
//! `tests/golden/models`, and conversion to a file in memory.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_convert::{Checkpoint, Tensor};
use atta_formats::{Directory, Gguf, TensorInfo, TensorType, decode, f16};
use atta_model::{Model, arch, spec::ModelSpec};
use atta_store::{Budget, ModelFiles};

/// The directories to convert.
pub(crate) fn rows() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/convert");
    let folder = std::env::var_os("HF_ROWS").map_or(own, PathBuf::from);
    let entries = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut rows: Vec<PathBuf> = entries
        .filter(|path| path.join("config.json").is_file())
        .collect();
    rows.sort();
    assert!(!rows.is_empty(), "{}", folder.display());
    rows
}

/// A tiny model with the logits that transformers computes for it.
pub(crate) struct Golden {
    bytes: Vec<u8>,
    directory: Directory,
    pub(crate) tokens: Vec<u32>,
    pub(crate) logits: Vec<f32>,
    /// Of a classifier: the first token of a second text.
    pub(crate) first_of_second: usize,
}

/// The golden model of a directory, whose name is that of the directory up to the first dot.
pub(crate) fn golden(row: &Path) -> Golden {
    let name = row
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .split('.')
        .next()
        .unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models");
    let bytes = fs::read(folder.join(format!("{name}.gguf"))).unwrap();
    let gguf = Gguf::parse(Arc::new(bytes.clone()), bytes.len() as u64).unwrap();
    let index: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("index.json")).unwrap()).unwrap();
    let entry = index["models"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["name"] == name)
        .unwrap()
        .clone();
    let tokens = entry["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect();
    let first_of_second = entry["first_of_second"].as_u64().unwrap_or(0) as usize;
    let logits = fs::read(folder.join(format!("{name}.logits"))).unwrap();
    let logits = logits
        .as_chunks()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect();
    Golden {
        bytes,
        directory: Directory::single(gguf),
        tokens,
        logits,
        first_of_second,
    }
}

impl Golden {
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(crate) fn arch(&self) -> String {
        self.directory
            .metadata()
            .str("general.architecture")
            .unwrap()
            .unwrap()
            .to_owned()
    }

    pub(crate) fn spec(&self) -> ModelSpec {
        arch::lower(self.directory.metadata()).unwrap()
    }

    /// A tensor and its weights.
    pub(crate) fn tensor(&self, name: &str) -> (&TensorInfo, Vec<f32>) {
        let info = self.directory.tensor(name).unwrap();
        let mut weights = vec![0.0; info.shape.n_elements() as usize];
        decode(
            info.ty,
            &self.bytes[info.offset as usize..][..info.n_bytes as usize],
            &mut weights,
        )
        .unwrap();
        (info, weights)
    }
}

/// All weights of a tensor, read by chunks of rows.
pub(crate) fn floats(tensor: &Tensor) -> Vec<f32> {
    let n_rows = tensor.n_rows() as usize;
    let d_row = tensor.d_row() as usize;
    let mut out = vec![0.0; n_rows * d_row];
    for (i, chunk) in out.chunks_mut(7 * d_row).enumerate() {
        tensor.rows.read(7 * i as u64, chunk).unwrap();
    }
    out
}

/// The bytes of a tensor in the file.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    if let Some(stored) = tensor.rows.stored() {
        return stored.to_vec();
    }
    match tensor.ty {
        TensorType::F32 => floats(tensor)
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect(),
        TensorType::BF16 => floats(tensor)
            .iter()
            .flat_map(|&x| f16::f32_to_bf16(x).to_le_bytes())
            .collect(),
        ty => {
            let row_bytes = ty.row_bytes(tensor.d_row() as usize).unwrap();
            let mut out = vec![0; row_bytes * tensor.n_rows() as usize];
            assert!(
                tensor.rows.packed(0, &mut out).unwrap(),
                "{}: {ty}",
                tensor.name
            );
            out
        }
    }
}

/// The GGUF file of a checkpoint.
fn file_of(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut writer = checkpoint.metadata.clone();
    for t in &checkpoint.tensors {
        writer.add_tensor(&t.name, &t.dims, t.ty).unwrap();
    }
    let layout = writer.finish().unwrap();
    let mut file = layout.header;
    file.resize(layout.file_bytes as usize, 0);
    for (info, tensor) in layout.tensors.iter().zip(&checkpoint.tensors) {
        file[info.offset as usize..][..info.n_bytes as usize].copy_from_slice(&bytes(tensor));
    }
    file
}

/// Loads the model of a checkpoint.
pub(crate) fn model(checkpoint: &Checkpoint) -> Model {
    let files = ModelFiles::from_static("converted", file_of(checkpoint).leak()).unwrap();
    Model::load(files, &Budget::unlimited()).unwrap()
}
