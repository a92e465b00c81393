//! Arrays of metadata as typed views that outlive the index they came from. The elements stay in
//! the file.

use super::cursor::Cursor;
use super::value::{Value, ValueType};
use crate::SharedBytes;
use std::sync::Arc;

/// An array of strings in the file; the index takes 4 or 8 bytes of heap per string. Bytes, not
/// `str`: vocabularies hold invalid UTF-8.
#[derive(Clone)]
pub struct StrArray {
    bytes: SharedBytes,
    /// The position in `bytes` of the length prefix of the first string.
    base: usize,
    /// The positions of the length prefixes of all strings, relative to `base`.
    starts: Starts,
}

impl std::fmt::Debug for StrArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StrArray")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum Starts {
    Narrow(Arc<[u32]>),
    Wide(Arc<[u64]>),
}

impl Starts {
    /// Indexes `len` strings; `None` if they do not fit.
    fn index(payload: &[u8], len: usize) -> Option<Self> {
        let mut cursor = Cursor::over(payload, 0);
        let positions = (0..len).map(|_| {
            let start = cursor.position();
            cursor.string("a string").ok().map(|_| start)
        });
        if u32::try_from(payload.len()).is_ok() {
            let narrow = positions.map(|p| p.map(|p| p as u32));
            Some(Self::Narrow(narrow.collect::<Option<_>>()?))
        } else {
            Some(Self::Wide(positions.collect::<Option<_>>()?))
        }
    }
}

impl StrArray {
    /// Indexes `len` strings in the `payload_bytes` from `base` on; `None` if they do not fit
    /// there.
    pub(in crate::container) fn new(
        bytes: SharedBytes,
        base: usize,
        len: usize,
        payload_bytes: usize,
    ) -> Option<Self> {
        // Each string takes at least its length prefix, which bounds the allocation.
        if len > payload_bytes / 8 {
            return None;
        }
        let payload = {
            let all: &[u8] = (*bytes).as_ref();
            all.get(base..base.checked_add(payload_bytes)?)?
        };
        let starts = Starts::index(payload, len)?;
        Some(Self {
            bytes,
            base,
            starts,
        })
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        match &self.starts {
            Starts::Narrow(s) => s.len(),
            Starts::Wide(s) => s.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// String `i`; `None` from `len` on.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let start = match &self.starts {
            Starts::Narrow(s) => usize::try_from(*s.get(i)?).ok()?,
            Starts::Wide(s) => usize::try_from(*s.get(i)?).ok()?,
        };
        Cursor::over((*self.bytes).as_ref(), self.base.checked_add(start)?)
            .string("a string")
            .ok()
    }

    /// The strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map_while(|i| self.get(i))
    }

    /// Bytes of heap that the index takes.
    pub fn heap_bytes(&self) -> usize {
        match &self.starts {
            Starts::Narrow(s) => size_of_val(&**s),
            Starts::Wide(s) => size_of_val(&**s),
        }
    }
}

/// Element types of [`NumArray`]: `u8`, `u32`, `u64`, `i32`, `f32` and `bool`.
pub trait Number: Copy + sealed::Sealed {
    /// The name in error messages.
    const NAME: &'static str;

    /// The value, if it is a number that fits.
    fn from_value(value: Value<'_>) -> Option<Self>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl Sealed for i32 {}
    impl Sealed for f32 {}
    impl Sealed for bool {}
}

impl Number for u8 {
    const NAME: &'static str = "array of u8";

    fn from_value(value: Value<'_>) -> Option<Self> {
        match value {
            // Some writers mark bytes as signed.
            Value::I8(byte) => Some(byte as u8),
            _ => value.as_int()?.try_into().ok(),
        }
    }
}

impl Number for u32 {
    const NAME: &'static str = "array of u32";

    fn from_value(value: Value<'_>) -> Option<Self> {
        value.as_int()?.try_into().ok()
    }
}

impl Number for u64 {
    const NAME: &'static str = "array of u64";

    fn from_value(value: Value<'_>) -> Option<Self> {
        value.as_int()?.try_into().ok()
    }
}

impl Number for i32 {
    const NAME: &'static str = "array of i32";

    fn from_value(value: Value<'_>) -> Option<Self> {
        value.as_int()?.try_into().ok()
    }
}

impl Number for f32 {
    const NAME: &'static str = "array of f32";

    fn from_value(value: Value<'_>) -> Option<Self> {
        value.as_float()
    }
}

impl Number for bool {
    const NAME: &'static str = "array of bool";

    fn from_value(value: Value<'_>) -> Option<Self> {
        value.as_bool()
    }
}

/// An array of numbers in the file, read as `T`; takes no heap.
#[derive(Clone)]
pub struct NumArray<T> {
    bytes: SharedBytes,
    base: usize,
    len: usize,
    elem: ValueType,
    as_type: std::marker::PhantomData<T>,
}

impl<T> std::fmt::Debug for NumArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NumArray")
            .field("len", &self.len)
            .field("elem", &self.elem)
            .finish_non_exhaustive()
    }
}

impl<T: Number> NumArray<T> {
    /// A view of `len` elements from `base` on. The caller checks that all of them fit `T`.
    pub(in crate::container) fn new(
        bytes: SharedBytes,
        base: usize,
        len: usize,
        elem: ValueType,
    ) -> Self {
        Self {
            bytes,
            base,
            len,
            elem,
            as_type: std::marker::PhantomData,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `i`; `None` from `len` on.
    pub fn get(&self, i: usize) -> Option<T> {
        if i >= self.len {
            return None;
        }
        let size = self.elem.fixed_bytes()?;
        let start = self.base.checked_add(i.checked_mul(size)?)?;
        let all: &[u8] = (*self.bytes).as_ref();
        T::from_value(Value::from_fixed(
            self.elem,
            all.get(start..start.checked_add(size)?)?,
        )?)
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.len).map_while(|i| self.get(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: &[u8] = b"\x02\0\0\0\0\0\0\0ab\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0c";

    fn strings(len: usize) -> Option<StrArray> {
        let bytes: SharedBytes = Arc::new([b"junk", PAYLOAD].concat());
        StrArray::new(bytes, 4, len, PAYLOAD.len())
    }

    #[test]
    fn strings_cost_four_bytes_each() {
        let s = strings(3).unwrap();
        assert_eq!(
            (s.get(0), s.get(1), s.get(2), s.get(3)),
            (Some(&b"ab"[..]), Some(&b""[..]), Some(&b"c"[..]), None)
        );
        assert_eq!(s.heap_bytes(), 12);
    }

    #[test]
    fn payloads_above_4_gib_are_indexed_by_eight_bytes() {
        let mut s = strings(3).unwrap();
        s.starts = Starts::Wide(Arc::new([0, 10, 18]));
        assert!(s.iter().eq([&b"ab"[..], b"", b"c"]));
        assert_eq!(s.heap_bytes(), 24);
    }

    #[test]
    fn strings_that_are_not_there_are_none() {
        assert!(strings(4).is_none() && strings(usize::MAX).is_none());
    }

    #[test]
    fn integers_of_every_width_are_accepted_where_they_fit() {
        let bytes: SharedBytes = Arc::new(vec![0xff, 0xff, 7, 0]);
        let read = |elem| {
            NumArray::<i32>::new(bytes.clone(), 0, 2, elem)
                .iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(read(ValueType::I16), [-1, 7]);
        assert_eq!(read(ValueType::U16), [65535, 7]);
        assert_eq!(
            NumArray::<i32>::new(bytes.clone(), 0, 1, ValueType::I16).get(1),
            None
        );
        assert_eq!(u32::from_value(Value::I16(-1)), None);
        assert_eq!(i32::from_value(Value::U64(1 << 31)), None);
    }
}
