//! The tensor directory of one file: entries as they stand in the header, then their place in the
//! file.
//!
//! It checks geometry only: sizes, alignment, that all data lies in the file and that no two
//! tensors share a byte.

use super::cursor::Cursor;
use super::{Error, MAX_NAME_BYTES, type_of_id};
use crate::{Shape, TensorType};

/// One tensor: what it is called, its shape, and where its bytes are.
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
    /// A tensor at no place yet.
    pub(super) fn new(name: String, shape: Shape, ty: TensorType) -> Result<Self, Error> {
        check_rows(&name, &shape, ty)?;
        let n_bytes = (shape.n_elements() / ty.block_len() as u64)
            .checked_mul(ty.block_bytes() as u64)
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

fn check_rows(name: &str, shape: &Shape, ty: TensorType) -> Result<(), Error> {
    if let Some(axis) = shape.dims().iter().position(|&d| d == 0) {
        return Err(Error::ZeroDim {
            tensor: name.to_owned(),
            axis,
        });
    }
    let d = shape.dims().last().copied().unwrap_or(1);
    if !d.is_multiple_of(ty.block_len() as u64) {
        return Err(Error::RowNotBlocks {
            tensor: name.to_owned(),
            d,
            ty,
        });
    }
    Ok(())
}

/// Reads `n_tensors` entries; `offset` is still relative to the start of the data.
pub(super) fn parse_entries(
    cursor: &mut Cursor<'_>,
    n_tensors: u64,
) -> Result<Vec<TensorInfo>, Error> {
    // Grown as entries are found, since the count is only a claim.
    let mut tensors = Vec::new();
    for _ in 0..n_tensors {
        tensors.push(parse_entry(cursor)?);
    }
    tensors.shrink_to_fit();
    Ok(tensors)
}

fn parse_entry(cursor: &mut Cursor<'_>) -> Result<TensorInfo, Error> {
    let name = parse_name(cursor)?;
    let shape = parse_shape(cursor, name)?;
    let id = cursor.u32("the type of a tensor")?;
    let ty = type_of_id(id).ok_or_else(|| Error::UnknownType {
        tensor: name.to_owned(),
        id,
    })?;
    let offset = cursor.u64("the offset of a tensor")?;
    Ok(TensorInfo {
        offset,
        ..TensorInfo::new(name.to_owned(), shape, ty)?
    })
}

fn parse_name<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Error> {
    let at = cursor.position();
    let len = cursor.u64("the length of a tensor name")?;
    check_name_len(at, len)?;
    cursor.name(len, "a tensor name")
}

/// Whether a name that begins at byte `at` may have this length.
pub(super) fn check_name_len(at: u64, len: u64) -> Result<(), Error> {
    if len == 0 || len > MAX_NAME_BYTES {
        return Err(Error::NameLength {
            at,
            len,
            max: MAX_NAME_BYTES,
        });
    }
    Ok(())
}

fn parse_shape(cursor: &mut Cursor<'_>, name: &str) -> Result<Shape, Error> {
    let n_dims = cursor.u32("the dimension count of a tensor")?;
    if n_dims as usize > Shape::MAX_DIMS {
        return Err(Error::Dims {
            tensor: name.to_owned(),
            got: n_dims.into(),
            max: Shape::MAX_DIMS as u64,
        });
    }
    let mut dims = [0; Shape::MAX_DIMS];
    let dims = &mut dims[..n_dims as usize];
    // The file has the innermost dimension first.
    for d in dims.iter_mut().rev() {
        *d = cursor.u64("the dimensions of a tensor")?;
    }
    Shape::new(dims).ok_or_else(|| Error::ShapeOverflow {
        tensor: name.to_owned(),
        dims: dims.to_vec(),
    })
}

/// Turns relative offsets into offsets in the file and checks them against it and each other.
pub(super) fn place(
    mut tensors: Vec<TensorInfo>,
    data_offset: u64,
    alignment: u64,
    file_bytes: u64,
) -> Result<Vec<TensorInfo>, Error> {
    for t in &mut tensors {
        if !t.offset.is_multiple_of(alignment) {
            return Err(Error::Misaligned {
                tensor: t.name.clone(),
                offset: t.offset,
                alignment,
            });
        }
        let offset = data_offset.checked_add(t.offset);
        let end = offset
            .and_then(|o| o.checked_add(t.n_bytes))
            .unwrap_or(u64::MAX);
        if end > file_bytes || end == u64::MAX {
            return Err(Error::TensorPastEnd {
                tensor: t.name.clone(),
                end,
                file_bytes,
            });
        }
        t.offset += data_offset;
    }
    check_overlap(&tensors)?;
    check_names(&tensors, &order_by_name(&tensors))?;
    Ok(tensors)
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

pub(super) fn check_codecs(tensors: &[TensorInfo]) -> Result<(), Error> {
    match tensors.iter().find(|t| !t.ty.has_codec()) {
        Some(t) => Err(Error::UnsupportedType {
            tensor: t.name.clone(),
            ty: t.ty,
        }),
        None => Ok(()),
    }
}
