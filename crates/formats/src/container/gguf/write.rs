//! Writing GGUF: builds the header and assigns each tensor its offset. It does no I/O and sees no
//! weights.
//!
//! It refuses whatever [`super::Gguf::parse`] refuses, so that every written file can be read.

use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, Gguf, MAX_ALIGNMENT, Split, tensors, type_id};
use crate::{
    Error, Shape, TensorType, Value, ValueType,
    container::{Container, TensorInfo, metadata::MAX_KEY_BYTES, tensor},
};

/// Collects metadata and tensors in file order.
#[derive(Clone, Debug)]
pub struct Writer {
    version: u32,
    alignment: u64,
    entries: Vec<(String, Payload)>,
    tensors: Vec<TensorInfo>,
}

/// The bytes of a value in the file, its type first.
type Payload = Vec<u8>;

/// The finished header and the offset of each tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// Everything before the tensors' data, padded to the alignment.
    pub header: Vec<u8>,
    /// The tensors in the order in which they were added, with their offsets in the file.
    pub tensors: Vec<TensorInfo>,
    /// Length of the file, with the padding of the last tensor. Padding is zeros.
    pub file_bytes: u64,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident, $arg:ident: $type:ty => $ty:ident, $bytes:expr;)*) => {
        $($(#[$doc])*
        pub fn $name(&mut self, key: &str, $arg: $type) {
            self.put(key, scalar(ValueType::$ty, &$bytes));
        })*
    };
}

macro_rules! array_setters {
    ($($(#[$doc:meta])* $name:ident, $type:ty => $ty:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(&mut self, key: &str, values: &[$type]) {
            let mut payload = array(ValueType::$ty, values.len());
            values.iter().for_each(|v| payload.extend(v.to_le_bytes()));
            self.put(key, payload);
        })*
    };
}

/// Setting a key again replaces its value.
impl Writer {
    /// An empty file of version 3 with an alignment of 32 bytes.
    pub fn new() -> Self {
        Self {
            version: 3,
            alignment: DEFAULT_ALIGNMENT,
            entries: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// Writes another version, 2 or 3.
    ///
    /// # Errors
    /// [`Error::Version`] for any other.
    pub fn set_version(&mut self, version: u32) -> Result<(), Error> {
        if !(2..=3).contains(&version) {
            return Err(Error::Version { got: version });
        }
        self.version = version;
        Ok(())
    }

    /// Aligns tensors to another power of two, in bytes, and says so in the metadata.
    ///
    /// # Errors
    /// [`Error::Alignment`] if it is not a power of two, or above 1 MiB.
    pub fn set_alignment(&mut self, alignment: u32) -> Result<(), Error> {
        let got = u64::from(alignment);
        if !alignment.is_power_of_two() || got > MAX_ALIGNMENT {
            return Err(Error::Alignment {
                got,
                max: MAX_ALIGNMENT,
            });
        }
        self.alignment = got;
        self.put(
            ALIGNMENT_KEY,
            scalar(ValueType::U32, &alignment.to_le_bytes()),
        );
        Ok(())
    }

    /// Makes the file one part of a split model.
    pub fn set_split(&mut self, split: Split) {
        self.set_u16(Split::NO_KEY, split.no);
        self.set_u16(Split::COUNT_KEY, split.count);
        if let Some(n_tensors) = split.n_tensors.and_then(|n| i32::try_from(n).ok()) {
            self.set_i32(Split::TENSORS_KEY, n_tensors);
        }
    }

    setters! {
        /// Sets an unsigned byte.
        set_u8, v: u8 => U8, [v];
        /// Sets an unsigned 16-bit integer.
        set_u16, v: u16 => U16, v.to_le_bytes();
        /// Sets an unsigned 32-bit integer, the usual type of counts.
        set_u32, v: u32 => U32, v.to_le_bytes();
        /// Sets a signed 32-bit integer.
        set_i32, v: i32 => I32, v.to_le_bytes();
        /// Sets an unsigned 64-bit integer.
        set_u64, v: u64 => U64, v.to_le_bytes();
        /// Sets a signed 64-bit integer.
        set_i64, v: i64 => I64, v.to_le_bytes();
        /// Sets a float, the usual type of factors.
        set_f32, v: f32 => F32, v.to_le_bytes();
        /// Sets a double.
        set_f64, v: f64 => F64, v.to_le_bytes();
        /// Sets a bool.
        set_bool, v: bool => Bool, [u8::from(v)];
        /// Sets a string.
        set_str, v: &str => Str, string(v.as_bytes());
        /// Sets a string that may not be UTF-8.
        set_bytes, v: &[u8] => Str, string(v);
    }

    array_setters! {
        /// Sets an array of bytes.
        set_u8s, u8 => U8;
        /// Sets an array of unsigned 32-bit integers.
        set_u32s, u32 => U32;
        /// Sets an array of unsigned 64-bit integers.
        set_u64s, u64 => U64;
        /// Sets an array of signed 32-bit integers.
        set_i32s, i32 => I32;
        /// Sets an array of floats.
        set_f32s, f32 => F32;
    }

    /// Sets an array of bools.
    pub fn set_bools(&mut self, key: &str, values: &[bool]) {
        let mut payload = array(ValueType::Bool, values.len());
        payload.extend(values.iter().map(|&v| u8::from(v)));
        self.put(key, payload);
    }

    /// Sets an array of strings, which need not be UTF-8.
    pub fn set_strs<S: AsRef<[u8]>>(&mut self, key: &str, values: &[S]) {
        let mut payload = array(ValueType::Str, values.len());
        values
            .iter()
            .for_each(|v| payload.extend(string(v.as_ref())));
        self.put(key, payload);
    }

    /// Removes a value; a key that is set again becomes the last one.
    pub fn remove(&mut self, key: &str) {
        self.entries.retain(|(k, _)| k != key);
    }

    /// Sets a value as it was read from another file. For `general.alignment` use
    /// [`Writer::set_alignment`].
    pub fn set_value(&mut self, key: &str, value: Value<'_>) {
        let payload = match value {
            Value::U8(v) => scalar(ValueType::U8, &[v]),
            Value::I8(v) => scalar(ValueType::I8, &v.to_le_bytes()),
            Value::U16(v) => scalar(ValueType::U16, &v.to_le_bytes()),
            Value::I16(v) => scalar(ValueType::I16, &v.to_le_bytes()),
            Value::U32(v) => scalar(ValueType::U32, &v.to_le_bytes()),
            Value::I32(v) => scalar(ValueType::I32, &v.to_le_bytes()),
            Value::F32(v) => scalar(ValueType::F32, &v.to_le_bytes()),
            Value::Bool(v) => scalar(ValueType::Bool, &[u8::from(v)]),
            Value::Str(v) => scalar(ValueType::Str, &string(v.as_bytes())),
            Value::Bytes(v) => scalar(ValueType::Str, &string(v)),
            Value::U64(v) => scalar(ValueType::U64, &v.to_le_bytes()),
            Value::I64(v) => scalar(ValueType::I64, &v.to_le_bytes()),
            Value::F64(v) => scalar(ValueType::F64, &v.to_le_bytes()),
            Value::Array(v) => [&array(v.elem(), v.len()), v.payload()].concat(),
        };
        self.put(key, payload);
    }

    /// Adds a tensor with its dimensions outermost first.
    ///
    /// # Errors
    /// If the name is empty or longer than 63 bytes, or the shape does not go with the type, as in
    /// reading.
    pub fn add_tensor(
        &mut self,
        name: &str,
        dims_outermost_first: &[u64],
        ty: TensorType,
    ) -> Result<(), Error> {
        let dims = dims_outermost_first;
        tensors::check_name_len(0, name.len() as u64)?;
        if dims.len() > Shape::MAX_DIMS {
            return Err(Error::Dims {
                tensor: name.to_owned(),
                got: dims.len() as u64,
                max: Shape::MAX_DIMS as u64,
            });
        }
        let overflow = || Error::ShapeOverflow {
            tensor: name.to_owned(),
            dims: dims.to_vec(),
        };
        let shape = Shape::new(dims).ok_or_else(overflow)?;
        self.tensors
            .push(TensorInfo::new(name.to_owned(), shape, ty)?);
        Ok(())
    }

    /// Builds the header and places the tensors in order.
    ///
    /// # Errors
    /// [`Error::KeyLength`], [`Error::DuplicateTensor`], and [`Error::BytesOverflow`] if the file
    /// would be longer than `i64::MAX`.
    pub fn finish(mut self) -> Result<Layout, Error> {
        tensor::check_names(&self.tensors, &tensor::order_by_name(&self.tensors))?;
        let data_bytes = self.place_tensors()?;
        let header = self.header()?;
        let data_offset = header.len() as u64;
        self.tensors
            .iter_mut()
            .for_each(|t| t.offset += data_offset);
        Ok(Layout {
            header,
            tensors: self.tensors,
            file_bytes: data_offset + data_bytes,
        })
    }

    /// The tensors so far, without offsets.
    pub(super) fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn put(&mut self, key: &str, payload: Payload) {
        match self.entries.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = payload,
            None => self.entries.push((key.to_owned(), payload)),
        }
    }

    /// Gives each tensor its offset from the start of the data and returns the length of the data.
    fn place_tensors(&mut self) -> Result<u64, Error> {
        // Half of what an i64 holds, so that adding the header cannot overflow.
        const MAX_DATA_BYTES: u64 = 1 << 62;
        let mut end = 0u64;
        for t in &mut self.tensors {
            t.offset = end;
            end = (end + t.n_bytes).next_multiple_of(self.alignment);
            if end > MAX_DATA_BYTES {
                return Err(Error::BytesOverflow {
                    tensor: t.name.clone(),
                    dims: t.shape.dims().to_vec(),
                    ty: t.ty,
                });
            }
        }
        Ok(end)
    }

    fn header(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::from(Gguf::MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        for (key, payload) in &self.entries {
            let len = key.len() as u64;
            if len == 0 || len > MAX_KEY_BYTES {
                return Err(Error::KeyLength {
                    at: out.len() as u64,
                    len,
                    max: MAX_KEY_BYTES,
                });
            }
            out.extend(string(key.as_bytes()));
            out.extend(payload);
        }
        self.tensors.iter().for_each(|t| write_entry(&mut out, t));
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        Ok(out)
    }
}

fn write_entry(out: &mut Vec<u8>, t: &TensorInfo) {
    let dims = t.shape.dims();
    out.extend(string(t.name.as_bytes()));
    out.extend((dims.len() as u32).to_le_bytes());
    dims.iter().rev().for_each(|d| out.extend(d.to_le_bytes()));
    out.extend(type_id(t.ty).to_le_bytes());
    out.extend(t.offset.to_le_bytes());
}

fn scalar(ty: ValueType, bytes: &[u8]) -> Payload {
    [&(ty as u32).to_le_bytes(), bytes].concat()
}

/// Type, element type and length of an array; its elements follow.
fn array(elem: ValueType, len: usize) -> Payload {
    let mut payload = scalar(ValueType::Array, &(elem as u32).to_le_bytes());
    payload.extend((len as u64).to_le_bytes());
    payload
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_placed_one_after_the_other_on_the_alignment() {
        let mut w = Writer::new();
        w.set_alignment(64).unwrap();
        w.add_tensor("a", &[3], TensorType::F32).unwrap();
        w.add_tensor("b", &[2, 32], TensorType::Q8_0).unwrap();
        let layout = w.finish().unwrap();
        let data = layout.header.len() as u64;
        assert!(data.is_multiple_of(64));
        assert_eq!(
            (layout.tensors[0].offset, layout.tensors[1].offset),
            (data, data + 64)
        );
        assert_eq!(layout.file_bytes, data + 64 + 128);
    }

    #[test]
    fn what_the_reader_refuses_is_not_written() {
        let mut w = Writer::new();
        assert_eq!(w.set_version(4), Err(Error::Version { got: 4 }));
        assert_eq!(
            w.set_alignment(48),
            Err(Error::Alignment {
                got: 48,
                max: 1 << 20
            })
        );
        assert!(matches!(
            w.add_tensor("", &[1], TensorType::F32),
            Err(Error::NameLength { .. })
        ));
        assert!(matches!(
            w.add_tensor(&"n".repeat(64), &[1], TensorType::F32),
            Err(Error::NameLength { .. })
        ));
        assert!(matches!(
            w.add_tensor("t", &[1; 5], TensorType::F32),
            Err(Error::Dims { got: 5, .. })
        ));
        assert!(matches!(
            w.add_tensor("t", &[1 << 32; 2], TensorType::F32),
            Err(Error::ShapeOverflow { .. })
        ));
        assert!(matches!(
            w.add_tensor("t", &[33], TensorType::Q8_0),
            Err(Error::RowNotBlocks { d: 33, .. })
        ));
        assert!(matches!(
            w.add_tensor("t", &[0], TensorType::F32),
            Err(Error::ZeroDim { axis: 0, .. })
        ));
    }

    #[test]
    fn duplicate_names_and_bad_keys_are_found_at_the_end() {
        let mut w = Writer::new();
        w.set_bool("", true);
        assert!(matches!(
            w.clone().finish(),
            Err(Error::KeyLength { len: 0, .. })
        ));
        w.add_tensor("t", &[1], TensorType::F32).unwrap();
        w.add_tensor("t", &[2], TensorType::F16).unwrap();
        assert_eq!(
            w.finish(),
            Err(Error::DuplicateTensor {
                tensor: "t".to_owned()
            })
        );
    }

    #[test]
    fn a_file_longer_than_can_be_counted_is_refused() {
        let mut w = Writer::new();
        w.add_tensor("a", &[1 << 40, 1 << 20], TensorType::F32)
            .unwrap();
        w.add_tensor("b", &[1], TensorType::F32).unwrap();
        assert!(matches!(w.finish(), Err(Error::BytesOverflow { tensor, .. }) if tensor == "b"));
    }
}
