//! The tensor directory of a GGUF file: entries as they are in the header, then their offsets in
//! the file.

use super::{Cursor, Error, MAX_NAME_BYTES, type_of_id};
use crate::{
    Shape,
    container::{TensorInfo, tensor::check_tensors},
};

/// Reads `n_tensors` entries; `offset` is still relative to the start of the data.
pub(super) fn parse_entries(
    cursor: &mut Cursor<'_>,
    n_tensors: u64,
) -> Result<Vec<TensorInfo>, Error> {
    // Grown entry by entry, since the count is not trusted.
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

/// Checks the length of a name that begins at byte `at`.
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
    // The innermost dimension is first in the file.
    for d in dims.iter_mut().rev() {
        *d = cursor.u64("the dimensions of a tensor")?;
    }
    Shape::new(dims).ok_or_else(|| Error::ShapeOverflow {
        tensor: name.to_owned(),
        dims: dims.to_vec(),
    })
}

/// Turns offsets relative to `data_offset` into offsets in the file and checks them.
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
        t.offset = t.offset.saturating_add(data_offset);
    }
    check_tensors(&tensors, file_bytes)?;
    Ok(tensors)
}
