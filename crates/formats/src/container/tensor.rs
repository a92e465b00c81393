//! A tensor of a container, and the checks of a list of them.
//!
//! It checks geometry only: sizes, that all data lies in the file and that no two tensors share a
//! byte.

use crate::{Error, Shape, TensorType};

/// One tensor: its name, shape and type, and where its bytes are.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Its dimensions, outermost first.
    pub shape: Shape,
    /// How its weights are stored.
    pub ty: TensorType,
    /// Which file of a split model it is in, from 0.
    pub shard: u16,
    /// Where its data begins, in bytes from the start of its file.
    pub offset: u64,
    /// Bytes of data, without padding.
    pub n_bytes: u64,
}

impl TensorInfo {
    /// A tensor whose offset is not known yet, or is relative.
    pub(super) fn new(name: String, shape: Shape, ty: TensorType) -> Result<Self, Error> {
        let d = check_rows(&name, &shape, ty)?;
        let row_bytes = usize::try_from(d).ok().and_then(|d| ty.row_bytes(d));
        let n_bytes = row_bytes
            .and_then(|n| (n as u64).checked_mul(shape.n_elements() / d))
            .filter(|&n| i64::try_from(n).is_ok());
        let Some(n_bytes) = n_bytes else {
            return Err(Error::BytesOverflow {
                tensor: name,
                dims: shape.dims().to_vec(),
                ty,
            });
        };
        Ok(Self {
            name,
            shape,
            ty,
            shard: 0,
            offset: 0,
            n_bytes,
        })
    }
}

/// The weights of a row, which are not 0.
fn check_rows(name: &str, shape: &Shape, ty: TensorType) -> Result<u64, Error> {
    if let Some(axis) = shape.dims().iter().position(|&d| d == 0) {
        return Err(Error::ZeroDim {
            tensor: name.to_owned(),
            axis,
        });
    }
    let d = shape.dims().last().copied().unwrap_or(1);
    if !d.is_multiple_of(ty.row_unit() as u64) {
        return Err(Error::RowNotBlocks {
            tensor: name.to_owned(),
            d,
            ty,
        });
    }
    Ok(d)
}

/// Checks that the data of all tensors lies in the file, that no two of them overlap, and that all
/// names differ.
pub(super) fn check_tensors(tensors: &[TensorInfo], file_bytes: u64) -> Result<(), Error> {
    for t in tensors {
        let end = t.offset.saturating_add(t.n_bytes);
        if end > file_bytes || end == u64::MAX {
            return Err(Error::TensorPastEnd {
                tensor: t.name.clone(),
                end,
                file_bytes,
            });
        }
    }
    check_overlap(tensors)?;
    check_names(tensors, &order_by_name(tensors))
}

/// No tensor is empty, so that two which begin at the same byte overlap too.
fn check_overlap(tensors: &[TensorInfo]) -> Result<(), Error> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset);
    match by_offset
        .windows(2)
        .find(|pair| pair[1].offset - pair[0].offset < pair[0].n_bytes)
    {
        Some(pair) => Err(Error::Overlap {
            tensor: pair[1].name.clone(),
            other: pair[0].name.clone(),
            offset: pair[1].offset,
        }),
        None => Ok(()),
    }
}

/// Positions of the tensors, ordered by name.
pub(super) fn order_by_name(tensors: &[TensorInfo]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..tensors.len() as u32).collect();
    order.sort_by_key(|&i| tensors[i as usize].name.as_str());
    order
}

/// Whether all names differ; `order` is that of [`order_by_name`].
pub(super) fn check_names(tensors: &[TensorInfo], order: &[u32]) -> Result<(), Error> {
    let name = |i: u32| &tensors[i as usize].name;
    match order.windows(2).find(|pair| name(pair[0]) == name(pair[1])) {
        Some(pair) => Err(Error::DuplicateTensor {
            tensor: name(pair[0]).clone(),
        }),
        None => Ok(()),
    }
}
