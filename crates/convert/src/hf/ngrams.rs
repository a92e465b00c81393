//! Embeddings of n-grams: their keys, a few of them tensors in checkpoints, and their table, which
//! checkpoints have in shards.
//!
//! Source: llama.cpp's `conversion/qwen4exp.py`, but for the end of a text: transformers takes the
//! first token of a list.

use atta_formats::TensorType;
use atta_model::TensorReq;

use super::{
    config::Config,
    keys::Keys,
    source_tensor::SourceTensor,
    tensors::{common_type, to_usize},
};
use crate::{
    Error, RowSource, Tensor,
    raw::{Dtype, RawTensors},
};

/// The table, or its shards, without the prefix of the layer.
const TABLE: &str = "ple.ple_embedding.ngram_embedding.";

/// Tensors of whole numbers, and their keys.
const CONSTANTS: [(&str, &str); 3] = [
    ("layer_multipliers", "ple.layer_multipliers"),
    ("ngram_heads_offsets", "ple.head_offsets"),
    ("ngram_heads_vocab_sizes", "ple.head_vocab_sizes"),
];

/// Writes the keys of a model with embeddings of n-grams, and takes the tensors among them.
pub(super) fn write(c: &Config, raw: &mut RawTensors, keys: &mut Keys) -> Result<(), Error> {
    let Some(layer) = layer(c)? else {
        // The fields of n-grams say nothing then.
        c.any(&["heads_per_ngram", "ngram_size", "ple_conv_kernel_size"]);
        c.any(&["ple_embed_dim"]);
        return Ok(());
    };
    keys.array("ple.layers", &[layer]);
    keys.count("ple.conv_kernel", c.count(&["ple_conv_kernel_size"])?);
    keys.count("ple.eos_token_id", eos(c)?);
    if let Some(id) = c.count_opt(&["image_token_id"])? {
        keys.count("ple.image_token_id", id);
    }
    write_widths(c, keys)?;
    for (name, key) in CONSTANTS {
        keys.integers(key, &integers(raw, &format!("ple.ple_embedding.{name}"))?);
    }
    Ok(())
}

/// The layer with embeddings of n-grams; configurations count from 1.
fn layer(c: &Config) -> Result<Option<i32>, Error> {
    const FIELD: &str = "ple_layer_ids";
    let [first, others @ ..] = c.list_opt(FIELD)?.unwrap_or(&[]) else {
        return Ok(None);
    };
    let layer = first.as_u64().filter(|_| others.is_empty());
    let layer = layer.and_then(|l| i32::try_from(l.checked_sub(1)?).ok());
    match (layer, c.get(FIELD)) {
        (None, Some(layers)) => Err(c.unsupported(FIELD, layers)),
        (layer, _) => Ok(layer),
    }
}

/// Writes how long n-grams are, how many tables they have and how wide a row is.
fn write_widths(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let n_tokens = c.count(&["ngram_size"])?;
    let n_each = c.count(&["heads_per_ngram"])?;
    let d_embed = c.count(&["ple_embed_dim", "hidden_size"])?;
    let n_tables = n_tokens.saturating_sub(1).saturating_mul(n_each);
    if n_tables == 0 || !d_embed.is_multiple_of(n_tables) {
        return Err(c.wrong(format!("ple_embed_dim is {d_embed} for {n_tables} tables")));
    }
    keys.count("ple.ngram_size", n_tokens);
    keys.count("ple.heads_per_ngram", n_each);
    keys.count("embedding_length_per_layer_input", d_embed / n_tables);
    Ok(())
}

/// The token that ends a text; the first of a list.
fn eos(c: &Config) -> Result<u64, Error> {
    const FIELD: &str = "eos_token_id";
    let Some((_, value)) = c.any(&[FIELD]) else {
        return Err(c.wrong("eos_token_id is missing, which ends n-grams"));
    };
    let first = value.as_array().map_or(Some(value), |list| list.first());
    let first = first.and_then(|id| id.as_u64());
    first.ok_or_else(|| c.unsupported(FIELD, value))
}

/// Takes a tensor of whole numbers, whose name ends like this.
fn integers(raw: &mut RawTensors, end: &str) -> Result<Vec<u64>, Error> {
    let name = raw
        .names()
        .find(|name| name.ends_with(end))
        .map(str::to_owned);
    let tensor = name.and_then(|name| raw.take(&name));
    let tensor = tensor.ok_or_else(|| Error::Missing.of(end))?;
    let (numbers, _) = tensor.bytes().as_chunks::<8>();
    let number = |bytes: &[u8; 8]| u64::try_from(i64::from_le_bytes(*bytes)).ok();
    let numbers: Option<Vec<u64>> = numbers.iter().map(number).collect();
    let numbers = numbers.filter(|_| tensor.dtype() == Dtype::I64);
    numbers.ok_or_else(|| Error::NotSupported.of(tensor.name()))
}

/// The table of all n-grams: the shards in the order of their numbers, or one tensor. It may have
/// more rows than `req`.
pub(super) fn table(raw: &mut RawTensors, req: &TensorReq) -> Result<Tensor, Error> {
    let mut names: Vec<(u64, String)> = raw
        .names()
        .filter_map(|name| Some((shard(name)?, name.to_owned())))
        .collect();
    names.sort();
    let are_all = (0..).zip(&names).all(|(i, (number, _))| i == *number);
    if names.is_empty() || !are_all {
        return Err(Error::Missing.of(&format!("{TABLE}shard_{}.weight", names.len())));
    }
    let parts = names.iter().filter_map(|(_, name)| raw.take(name));
    joined(req, parts.map(SourceTensor::Plain).collect())
}

/// The number of a shard; 0 of a table that is one tensor.
fn shard(name: &str) -> Option<u64> {
    let (_, end) = name.split_once(TABLE)?;
    match end.strip_suffix("weight")? {
        "" => Some(0),
        shard => shard
            .strip_prefix("shard_")?
            .strip_suffix('.')?
            .parse()
            .ok(),
    }
}

/// The rows of all parts, one behind the other.
fn joined(req: &TensorReq, parts: Vec<SourceTensor>) -> Result<Tensor, Error> {
    let d_row = req.shape[1] as u64;
    let mut n_rows = 0_u64;
    let mut ends = Vec::new();
    for part in &parts {
        let n = part.dims().first().copied().unwrap_or(0);
        part.expect(&[n, d_row])?;
        n_rows = n_rows.saturating_add(n);
        ends.push(n_rows);
    }
    let dims = vec![n_rows, d_row];
    if n_rows < req.shape[0] as u64 {
        let expected = vec![req.shape[0] as u64, d_row];
        let error = Error::Dims {
            expected,
            got: dims,
        };
        return Err(error.of(parts[0].name()));
    }
    let ty: TensorType = common_type(&parts)?;
    let d_row = to_usize(d_row)?;
    Ok(Tensor {
        name: req.name(),
        dims,
        ty,
        rows: Box::new(JoinedRows { parts, ends, d_row }),
    })
}

/// Tensors of equally wide rows, one behind the other.
struct JoinedRows {
    parts: Vec<SourceTensor>,
    /// The row behind the last one of each part.
    ends: Vec<u64>,
    d_row: usize,
}

impl JoinedRows {
    /// The part with a row, and which of its rows that is.
    fn part(&self, row: u64) -> Result<(&SourceTensor, u64), Error> {
        let i = self.ends.partition_point(|&end| end <= row);
        let part = self.parts.get(i).ok_or(Error::NoRow { row })?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Ok((part, row - start))
    }
}

impl RowSource for JoinedRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        for (row, out) in (first..=u64::MAX).zip(out.chunks_mut(self.d_row)) {
            let (part, row) = self.part(row)?;
            part.floats(row * self.d_row as u64, out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::RawTensor;
    use atta_model::{Role, spec::Presence};
    use std::sync::Arc;

    fn shard_of(name: &str, rows: &[f32]) -> RawTensor {
        let bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
        let name = format!("model.layers.1.{TABLE}{name}");
        RawTensor::new(
            &name,
            Dtype::F32,
            &[rows.len() as u64, 1],
            Arc::new(bytes),
            0,
        )
        .unwrap()
    }

    fn table_of(shards: &[(&str, &[f32])]) -> Result<Tensor, Error> {
        let mut raw = RawTensors::default();
        for (name, rows) in shards {
            raw.add(shard_of(name, rows)).unwrap();
        }
        let req = TensorReq {
            role: Role::PerLayerTokenEmbd,
            layer: None,
            first_block: 0,
            shape: vec![4, 1],
            n_parts: 4,
            is_padded: true,
            presence: Presence::Required,
            fused_in: None,
        };
        table(&mut raw, &req)
    }

    #[test]
    fn shards_are_joined_by_their_numbers() {
        // By name, 10 comes before 2.
        let mut names: Vec<String> = (0..11).map(|i| format!("shard_{i}.weight")).collect();
        names.sort();
        let rows: Vec<Vec<f32>> = names
            .iter()
            .map(|name| {
                let number = name
                    .trim_start_matches("shard_")
                    .trim_end_matches(".weight");
                vec![number.parse().unwrap(); 2]
            })
            .collect();
        let shards: Vec<(&str, &[f32])> = names
            .iter()
            .zip(&rows)
            .map(|(name, rows)| (name.as_str(), rows.as_slice()))
            .collect();
        let table = table_of(&shards).unwrap();
        assert_eq!(table.dims, [22, 1]);
        let mut out = [0.0; 22];
        table.rows.read(0, &mut out).unwrap();
        let expected: Vec<f32> = (0..22).map(|i| (i / 2) as f32).collect();
        assert_eq!(out[..], expected);
        assert!(table.rows.read(21, &mut [0.0; 2]).is_err());
    }

    #[test]
    fn a_missing_shard_and_a_short_table_are_refused() {
        let rows: &[f32] = &[1.0; 5];
        assert!(table_of(&[("shard_0.weight", rows), ("shard_2.weight", rows)]).is_err());
        assert!(table_of(&[("shard_0.weight", &rows[..3])]).is_err());
        assert!(table_of(&[("weight", rows)]).is_ok());
    }
}
