//! The order of the rows of queries and keys: pairs that are rotated together are adjacent in
//! GGUF's llama, and half a head apart in Hugging Face's and in QSF files.

use std::sync::Arc;

use atta_formats::{TensorType, f16::f32_to_f16, qsf::PAIRING_KEY};

use super::{copy_rows, forget, take_rows};
use crate::{Checkpoint, Error, MappedRows, RowSource, Tensor, metadata::parsed};

/// The tensors whose rows are in this order, behind `blk.N.`.
const ROTATED: [&str; 4] = [
    "attn_q.weight",
    "attn_k.weight",
    "attn_q.bias",
    "attn_k.bias",
];

/// An order of the rows of heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HeadOrder {
    /// Both of a pair side by side.
    Adjacent,
    /// The first ones of all pairs, then the second ones.
    Halves,
}

/// A rearrangement of the rows of heads of `d_head`.
#[derive(Clone, Copy)]
struct Rearrangement {
    to: HeadOrder,
    d_head: u64,
}

impl Rearrangement {
    /// The row that becomes row `i`.
    fn source(self, i: u64) -> u64 {
        let first = i / self.d_head * self.d_head;
        let j = i % self.d_head;
        let half = self.d_head / 2;
        match self.to {
            HeadOrder::Adjacent => first + j % 2 * half + j / 2,
            HeadOrder::Halves => first + j % half * 2 + j / half,
        }
    }
}

/// Rows in another order. They keep their type and their bytes.
struct RearrangedRows {
    rows: Box<dyn RowSource>,
    order: Rearrangement,
    d_row: usize,
    row_bytes: usize,
}

impl RowSource for RearrangedRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let mut rows = (first..).zip(out.chunks_exact_mut(self.d_row));
        rows.try_for_each(|(i, row)| self.rows.read(self.order.source(i), row))
    }

    fn packed(&self, first: u64, out: &mut [u8]) -> Result<bool, Error> {
        for (i, row) in (first..).zip(out.chunks_exact_mut(self.row_bytes)) {
            let from = self.order.source(i);
            if !copy_rows(&*self.rows, from, self.row_bytes, row)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Puts the rows of queries and keys into GGUF's order, if a checkpoint has them in that of QSF
/// files, and forgets what a plain QSF file had beside its tensors.
///
/// # Errors
/// Metadata or tensors that do not go together.
pub(super) fn to_adjacent(checkpoint: &mut Checkpoint) -> Result<(), Error> {
    let key = pairing_key(checkpoint)?;
    let metadata = parsed(&checkpoint.metadata)?;
    if metadata.str(&key)?.is_none() {
        return Ok(());
    }
    rearrange(checkpoint, HeadOrder::Adjacent)?;
    checkpoint.metadata.remove(&key);
    forget(&mut checkpoint.metadata);
    Ok(())
}

/// Puts the rows of a llama into the order of QSF files, if they are in GGUF's. Returns false if
/// that is not possible.
///
/// # Errors
/// As [`to_adjacent`].
pub(super) fn to_halves(checkpoint: &mut Checkpoint) -> Result<bool, Error> {
    let key = pairing_key(checkpoint)?;
    if parsed(&checkpoint.metadata)?.str(&key)?.is_some() {
        return Ok(true);
    }
    if !is_rotated_whole(checkpoint)? {
        return Ok(false);
    }
    rearrange(checkpoint, HeadOrder::Halves)?;
    checkpoint.metadata.set_str(&key, "halves");
    Ok(true)
}

fn pairing_key(checkpoint: &Checkpoint) -> Result<String, Error> {
    let metadata = parsed(&checkpoint.metadata)?;
    let arch = metadata.str("general.architecture")?.unwrap_or_default();
    Ok(format!("{arch}.{PAIRING_KEY}"))
}

/// Widths of the heads of each layer, and of their rotated parts.
fn heads(checkpoint: &Checkpoint) -> Result<Vec<[usize; 2]>, Error> {
    let spec = atta_model::arch::lower(&parsed(&checkpoint.metadata)?)?;
    let layers = spec.layers.iter().map(|layer| match layer.attention() {
        Some(attention) => {
            let d_rope = attention.rope.as_ref().map_or(0, |rope| rope.d_rope);
            [attention.d_head, d_rope]
        }
        None => [0, 0],
    });
    Ok(layers.collect())
}

/// Whether all of every head is rotated, in pairs.
fn is_rotated_whole(checkpoint: &Checkpoint) -> Result<bool, Error> {
    let is_whole = |&[d_head, d_rope]: &[usize; 2]| d_head == d_rope && d_head.is_multiple_of(2);
    Ok(heads(checkpoint)?.iter().all(is_whole))
}

fn rearrange(checkpoint: &mut Checkpoint, to: HeadOrder) -> Result<(), Error> {
    let heads = heads(checkpoint)?;
    for tensor in &mut checkpoint.tensors {
        let Some((layer, role)) = layer_and_role(&tensor.name) else {
            continue;
        };
        let d_head = heads.get(layer).map_or(0, |[d_head, _]| *d_head as u64);
        if d_head > 0 && ROTATED.contains(&role) {
            let order = Rearrangement { to, d_head };
            let name = tensor.name.clone();
            rearrange_tensor(tensor, order).map_err(|error| error.of(&name))?;
        }
    }
    Ok(())
}

/// The layer of a tensor, and its name in it.
pub(super) fn layer_and_role(name: &str) -> Option<(usize, &str)> {
    let (layer, role) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, role))
}

fn rearrange_tensor(tensor: &mut Tensor, order: Rearrangement) -> Result<(), Error> {
    if tensor.dims.len() == 1 {
        return rearrange_vector(tensor, order);
    }
    let d_row = tensor.d_row() as usize;
    let row_bytes = tensor.ty.row_bytes(d_row);
    let row_bytes = row_bytes.ok_or_else(|| shape_of(tensor))?;
    if !tensor.n_rows().is_multiple_of(order.d_head) {
        return Err(shape_of(tensor));
    }
    tensor.rows = Box::new(RearrangedRows {
        rows: take_rows(tensor),
        order,
        d_row,
        row_bytes,
    });
    Ok(())
}

/// Rearranges the elements of a bias, which is small.
fn rearrange_vector(tensor: &mut Tensor, order: Rearrangement) -> Result<(), Error> {
    let mut old = vec![0.0; tensor.d_row() as usize];
    tensor.rows.read(0, &mut old)?;
    if !tensor.d_row().is_multiple_of(order.d_head) {
        return Err(shape_of(tensor));
    }
    let new = (0..tensor.d_row()).map(|i| old[order.source(i) as usize]);
    let bytes: Vec<u8> = match tensor.ty {
        TensorType::F16 => new.flat_map(|x| f32_to_f16(x).to_le_bytes()).collect(),
        _ => new.flat_map(f32::to_le_bytes).collect(),
    };
    if tensor.ty != TensorType::F16 {
        tensor.ty = TensorType::F32;
    }
    let rows = MappedRows::new(Arc::new(bytes), 0, &tensor.dims, tensor.ty)?;
    tensor.rows = Box::new(rows);
    Ok(())
}

/// The error of a shape that has no whole heads or blocks.
fn shape_of(tensor: &Tensor) -> Error {
    Error::Shape {
        dims: tensor.dims.clone(),
        ty: tensor.ty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_order_undoes_the_other() {
        let order = |to| Rearrangement { to, d_head: 6 };
        let halves: Vec<u64> = (0..12)
            .map(|i| order(HeadOrder::Halves).source(i))
            .collect();
        assert_eq!(halves, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
        let back = (0..12).map(|i| halves[order(HeadOrder::Adjacent).source(i) as usize]);
        assert!(back.eq(0..12));
    }
}
