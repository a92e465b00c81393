//! Reads Meta's Llama checkpoints: `params.json`, and `consolidated.00.pth` and so on, each with a
//! shard of every matrix.
//!
//! Rows of q and k are in GGUF's order, with adjacent pairs rotated. The dimension along which a
//! matrix is sharded follows from its shape: the shards must form the shape that the model
//! requires. `params.json` has neither the context length nor the rope scaling factor of Llama 3.1
//! and 3.2; `params.rs` knows those of the published models.

mod params;
mod sharded;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_formats::{TensorType, Writer};
use atta_model::{Role, TensorReq, spec::Presence};

use crate::{
    Checkpoint, Error, MappedRows, RowSource, Tensor,
    metadata::parsed,
    pickle,
    raw::{Dtype, RawTensor, RawTensors},
};
use params::Params;
use sharded::{ShardedRows, Sharding, sharding};

/// The most files; the largest model has 16.
const MAX_FILES: usize = 128;

/// Opens a directory without its vocabulary; `llama.vocab_size` is the number of tokens. Adds the
/// assumptions about missing parameters to `notes`.
///
/// # Errors
/// Missing or invalid files; unknown parameters; tensors that are missing, left over or of the
/// wrong shape.
pub fn open(dir: &Path, notes: &mut Vec<String>) -> Result<Checkpoint, Error> {
    let params = Params::read(&dir.join("params.json"))?;
    let mut files = files(dir)?;
    files.iter_mut().for_each(drop_tables);
    drop_tied(&mut files);
    let metadata = metadata(dir, &params, &files)?;
    let spec = atta_model::arch::lower(&parsed(&metadata)?)?;
    let mut tensors = Vec::new();
    for wanted in spec.tensors() {
        match (&wanted.role, &params.rope_factors) {
            (Role::RopeFreqs, None) => {}
            (Role::RopeFreqs, Some(factors)) => tensors.push(rope_factors(&wanted, factors)?),
            _ => tensors.extend(tensor(dir, &wanted, &mut files)?),
        }
    }
    if let Some(name) = files.iter().flat_map(RawTensors::names).next() {
        return Err(wrong(
            dir,
            format!("{name} is no tensor of a supported model"),
        ));
    }
    notes.extend(params.assumptions);
    Ok(Checkpoint {
        metadata,
        tensors,
        files: files.into_iter().flat_map(|file| file.files).collect(),
    })
}

fn wrong(path: &Path, why: String) -> Error {
    Error::File {
        path: path.to_owned(),
        why,
    }
}

fn files(dir: &Path) -> Result<Vec<RawTensors>, Error> {
    let path = |i: usize| -> PathBuf { dir.join(format!("consolidated.{i:02}.pth")) };
    let existing = (0..MAX_FILES).map(path).take_while(|path| path.exists());
    let files = existing
        .map(|path| pickle::open(&path))
        .collect::<Result<Vec<_>, Error>>()?;
    if files.is_empty() {
        pickle::open(&path(0)).map(|file| vec![file])
    } else {
        Ok(files)
    }
}

/// Drops the rope frequencies that models before Llama 3 have, which follow from the parameters.
fn drop_tables(file: &mut RawTensors) {
    file.retain(|name| !name.ends_with("rope.freqs"));
}

/// Drops a head that is equal to the embedding byte for byte.
fn drop_tied(files: &mut [RawTensors]) {
    let is_tied =
        |file: &RawTensors| match (file.get("tok_embeddings.weight"), file.get("output.weight")) {
            (Some(a), Some(b)) => {
                a.dims() == b.dims()
                    && a.dtype() == b.dtype()
                    && (a.at() == b.at() || a.bytes() == b.bytes())
            }
            _ => false,
        };
    if files.iter().all(is_tied) {
        files
            .iter_mut()
            .for_each(|file| drop(file.take("output.weight")));
    }
}

fn metadata(dir: &Path, params: &Params, files: &[RawTensors]) -> Result<Writer, Error> {
    let d_ff = n_rows(dir, files, "layers.0.feed_forward.w1.weight", params)?;
    let n_vocab = n_rows(dir, files, "tok_embeddings.weight", params)?;
    if let Some(expected) = params.n_vocab.filter(|&n| n != n_vocab) {
        return Err(wrong(
            dir,
            format!("params.json has {expected} tokens, and the embedding {n_vocab}"),
        ));
    }
    let mut writer = Writer::new();
    writer.set_str("general.architecture", "llama");
    let counts = [
        ("llama.block_count", params.n_layers),
        ("llama.context_length", params.n_ctx),
        ("llama.embedding_length", params.d_model),
        ("llama.feed_forward_length", d_ff),
        ("llama.attention.head_count", params.n_heads),
        ("llama.attention.head_count_kv", params.n_kv_heads),
        (
            "llama.rope.dimension_count",
            params.d_model / params.n_heads,
        ),
        ("llama.vocab_size", n_vocab),
    ];
    // A count that overflows becomes u32::MAX, which `arch::lower` refuses.
    counts
        .iter()
        .for_each(|&(key, n)| writer.set_u32(key, u32::try_from(n).unwrap_or(u32::MAX)));
    writer.set_f32("llama.rope.freq_base", params.rope_base as f32);
    writer.set_f32("llama.attention.layer_norm_rms_epsilon", params.eps as f32);
    Ok(writer)
}

/// The rows, in all files together, of a matrix with `d_model` columns.
fn n_rows(dir: &Path, files: &[RawTensors], name: &str, params: &Params) -> Result<u64, Error> {
    let part = files[0]
        .get(name)
        .ok_or_else(|| wrong(dir, format!("{name} is missing")))?;
    let n = files.len() as u64;
    match *part.dims() {
        [rows, columns] if columns == params.d_model => Ok(rows.saturating_mul(n)),
        [rows, columns] if columns.checked_mul(n) == Some(params.d_model) => Ok(rows),
        _ => Err(wrong(
            dir,
            format!(
                "{name} is {:?} in each of {n} files, which is no part of {} columns",
                part.dims(),
                params.d_model
            ),
        )),
    }
}

fn rope_factors(wanted: &TensorReq, factors: &[f32]) -> Result<Tensor, Error> {
    let dims = vec![factors.len() as u64];
    let ty = TensorType::F32;
    let bytes: Vec<u8> = factors
        .iter()
        .flat_map(|factor| factor.to_le_bytes())
        .collect();
    let rows = Box::new(MappedRows::new(Arc::new(bytes), 0, &dims, ty)?);
    Ok(Tensor {
        name: wanted.name(),
        dims,
        ty,
        rows,
    })
}

/// Takes a tensor out of all files; `None` if it is optional and absent.
fn tensor(
    dir: &Path,
    wanted: &TensorReq,
    files: &mut [RawTensors],
) -> Result<Option<Tensor>, Error> {
    let Some(name) = name(wanted) else {
        return Ok(None);
    };
    let parts: Vec<RawTensor> = files
        .iter_mut()
        .filter_map(|file| file.take(&name))
        .collect();
    match parts.len() {
        0 if wanted.presence == Presence::Optional => return Ok(None),
        n if n == files.len() => {}
        n => {
            return Err(wrong(
                dir,
                format!("{name} is in {n} of {} files", files.len()),
            ));
        }
    }
    let dims: Vec<u64> = wanted.shape.iter().map(|&d| d as u64).collect();
    let Some(sharding) = sharding(&parts, &dims) else {
        let why = format!(
            "{name} is {:?} in each of {} files, expected {dims:?} in all",
            parts[0].dims(),
            files.len()
        );
        return Err(wrong(dir, why));
    };
    if sharding == Sharding::Replicated && parts.iter().any(|part| part.bytes() != parts[0].bytes())
    {
        return Err(wrong(dir, format!("{name} is not the same in all files")));
    }
    let ty = ty(dir, &parts)?;
    let rows: Box<dyn RowSource> = match (sharding, parts[0].dtype().tensor_type()) {
        (Sharding::Replicated, Some(_)) => {
            Box::new(MappedRows::new(parts[0].file(), parts[0].at(), &dims, ty)?)
        }
        _ => Box::new(ShardedRows { parts, sharding }),
    };
    Ok(Some(Tensor {
        name: wanted.name(),
        dims,
        ty,
        rows,
    }))
}

/// The GGUF type of the parts, which must have the same element type.
fn ty(dir: &Path, parts: &[RawTensor]) -> Result<TensorType, Error> {
    let name = parts[0].name();
    let dtype = parts[0].dtype();
    if let Some(other) = parts.iter().find(|part| part.dtype() != dtype) {
        return Err(wrong(
            dir,
            format!(
                "{name} is {dtype:?} in one file and {:?} in another",
                other.dtype()
            ),
        ));
    }
    match dtype {
        Dtype::F64 => Ok(TensorType::F32),
        _ => dtype
            .tensor_type()
            .ok_or_else(|| Error::Numbers { dtype }.of(name)),
    }
}

/// Meta's name of a tensor.
fn name(wanted: &TensorReq) -> Option<String> {
    let name = match wanted.role {
        Role::TokenEmbd => "tok_embeddings",
        Role::OutputNorm => "norm",
        Role::Output => "output",
        Role::AttnNorm => "attention_norm",
        Role::AttnQ => "attention.wq",
        Role::AttnK => "attention.wk",
        Role::AttnV => "attention.wv",
        Role::AttnOutput => "attention.wo",
        Role::FfnNorm => "ffn_norm",
        Role::FfnGate => "feed_forward.w1",
        Role::FfnDown => "feed_forward.w2",
        Role::FfnUp => "feed_forward.w3",
        _ => return None,
    };
    Some(match wanted.layer {
        Some(l) => format!("layers.{l}.{name}.weight"),
        None => format!("{name}.weight"),
    })
}
