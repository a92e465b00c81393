//! Metadata: an index of keys on the heap, values in the file.
//!
//! The encoding is that of GGUF, which other containers embed, so it belongs to none of them.
//!
//! It knows types and nothing of what keys mean. Every getter distinguishes an absent key from a
//! key of the wrong type, because parsers of this format have been exploited by values of the wrong
//! type.
//!
//! Programs that write these files disagree on types, so getters convert a value of any type if
//! nothing is lost: an integer of any width, a whole float or a bool to a number, and an array that
//! repeats one value to that value. An empty array is an array of any type.

mod array;
mod cursor;
mod value;

pub use array::{NumArray, Number, StrArray};
pub(super) use cursor::Cursor;
pub use value::{ArrayValue, Value, ValueType};

use std::{borrow::Cow, ops::Range, sync::Arc};

use crate::{Error, SharedBytes};
use value::ARRAY_HEAD_BYTES;

/// The longest metadata key in bytes, by the specification.
pub const MAX_KEY_BYTES: u64 = (1 << 16) - 1;
/// How deep arrays may be nested; an array of numbers has depth 1. No known file needs more than
/// that.
pub const MAX_ARRAY_DEPTH: usize = 4;

/// The metadata of a file: keys in file order, values read in place. Cloning is cheap.
#[derive(Clone)]
pub struct Metadata {
    bytes: SharedBytes,
    index: Arc<Index>,
}

struct Index {
    entries: Vec<KeyEntry>,
    /// Positions in `entries`, by key.
    by_key: Vec<u32>,
}

struct KeyEntry {
    key: Box<str>,
    ty: ValueType,
    /// The position of the value in the file; of the element type, for an array.
    at: usize,
}

impl Metadata {
    /// Reads and checks `n_keys` entries at the cursor, which reads in `bytes`.
    pub(in crate::container) fn parse(
        bytes: SharedBytes,
        cursor: &mut Cursor<'_>,
        n_keys: u64,
    ) -> Result<Self, Error> {
        // Grown entry by entry, since the count is not trusted.
        let mut entries = Vec::new();
        for _ in 0..n_keys {
            entries.push(parse_entry(cursor)?);
        }
        entries.shrink_to_fit();
        let by_key = sort_by_key(&entries)?;
        Ok(Self {
            bytes,
            index: Arc::new(Index { entries, by_key }),
        })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.index.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.index.entries.is_empty()
    }

    /// The value of a key, whatever its type.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.value(self.find(key)?)
    }

    /// All keys and values in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.index
            .entries
            .iter()
            .filter_map(|entry| Some((&*entry.key, self.value(entry)?)))
    }

    /// A string; `Ok(None)` if the key is absent.
    ///
    /// # Errors
    /// [`Error::MetadataType`] if it is no string, [`Error::MetadataUtf8`] if it is not UTF-8.
    pub fn str(&self, key: &str) -> Result<Option<&str>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Str(text)) => Ok(Some(text)),
            Some(Value::Bytes(_)) => Err(Error::MetadataUtf8 {
                key: key.to_owned(),
            }),
            Some(other) => Err(wrong_type(key, "str", other)),
        }
    }

    /// A string to show to users, with U+FFFD for invalid UTF-8; empty if the key is absent or
    /// holds no string.
    pub fn shown(&self, key: &str) -> Cow<'_, str> {
        match self.get(key) {
            Some(Value::Str(text)) => text.into(),
            Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes),
            _ => "".into(),
        }
    }

    /// A whole number of any type as u32; `Ok(None)` if the key is absent.
    ///
    /// # Errors
    /// [`Error::MetadataType`] if it is no whole number, [`Error::MetadataRange`] if it does not
    /// fit, [`Error::MetadataMixed`] if it is an array of different values.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.int(key, "u32")
    }

    /// A whole number of any type as u64; `Ok(None)` if the key is absent.
    ///
    /// # Errors
    /// As [`Metadata::u32`].
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.int(key, "u64")
    }

    /// A whole number of any type as i64; `Ok(None)` if the key is absent.
    ///
    /// # Errors
    /// As [`Metadata::u32`].
    pub fn i64(&self, key: &str) -> Result<Option<i64>, Error> {
        self.int(key, "i64")
    }

    /// A number of any type, rounded to f32; `Ok(None)` if the key is absent.
    ///
    /// # Errors
    /// [`Error::MetadataType`] if it is no number, [`Error::MetadataMixed`] if it is an array of
    /// different values.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        let Some(value) = self.scalar(key)? else {
            return Ok(None);
        };
        value
            .as_float()
            .map(Some)
            .ok_or_else(|| wrong_type(key, "f32", value))
    }

    /// A bool, or a number that is 0 or 1; `Ok(None)` if the key is absent.
    ///
    /// # Errors
    /// [`Error::MetadataType`] if it is neither, [`Error::MetadataMixed`] if it is an array of
    /// different values.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        let Some(value) = self.scalar(key)? else {
            return Ok(None);
        };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| wrong_type(key, "bool", value))
    }

    /// An array of strings; `Ok(None)` if the key is absent. Every call indexes the array.
    ///
    /// # Errors
    /// [`Error::MetadataType`] if it is anything else.
    pub fn strs(&self, key: &str) -> Result<Option<StrArray>, Error> {
        let Some((array, base)) =
            self.array(key, "array of str", |array| array.elem() == ValueType::Str)?
        else {
            return Ok(None);
        };
        Ok(StrArray::new(
            self.bytes.clone(),
            base,
            array.len(),
            array.payload().len(),
        ))
    }

    /// An array of bytes, or of whole numbers of any type that fit a byte; `Ok(None)` if the key is
    /// absent.
    ///
    /// # Errors
    /// As [`Metadata::u32s`].
    pub fn u8s(&self, key: &str) -> Result<Option<NumArray<u8>>, Error> {
        self.numbers(key)
    }

    /// An array of whole numbers of any type that fit u32; `Ok(None)` if the key is
    /// absent.
    ///
    /// # Errors
    /// [`Error::MetadataType`] if it is no array of numbers, [`Error::MetadataRange`] if one does
    /// not fit.
    pub fn u32s(&self, key: &str) -> Result<Option<NumArray<u32>>, Error> {
        self.numbers(key)
    }

    /// An array of whole numbers of any type that fit u64; `Ok(None)` if the key is
    /// absent.
    ///
    /// # Errors
    /// As [`Metadata::u32s`].
    pub fn u64s(&self, key: &str) -> Result<Option<NumArray<u64>>, Error> {
        self.numbers(key)
    }

    /// An array of whole numbers of any type that fit i32; `Ok(None)` if the key is
    /// absent.
    ///
    /// # Errors
    /// As [`Metadata::u32s`].
    pub fn i32s(&self, key: &str) -> Result<Option<NumArray<i32>>, Error> {
        self.numbers(key)
    }

    /// An array of numbers of any type, rounded to f32; `Ok(None)` if the key is absent.
    ///
    /// # Errors
    /// [`Error::MetadataType`] if it is anything else.
    pub fn f32s(&self, key: &str) -> Result<Option<NumArray<f32>>, Error> {
        self.numbers(key)
    }

    /// An array of bools, or of numbers that are 0 or 1; `Ok(None)` if the key is absent.
    ///
    /// # Errors
    /// As [`Metadata::u32s`].
    pub fn bools(&self, key: &str) -> Result<Option<NumArray<bool>>, Error> {
        self.numbers(key)
    }

    /// Where the bytes of a value of type `ty` are in the file: those of a u32, of a string without
    /// its length, of the elements of an array of u32.
    ///
    /// # Errors
    /// [`Error::MetadataType`] if it has another type.
    pub(in crate::container) fn span(
        &self,
        key: &str,
        ty: ValueType,
    ) -> Result<Option<Range<usize>>, Error> {
        let Some(entry) = self.find(key) else {
            return Ok(None);
        };
        let span = |head: usize, len: usize| entry.at + head..entry.at + head + len;
        match self.value(entry) {
            Some(Value::U32(_)) if ty == ValueType::U32 => Ok(Some(span(0, 4))),
            Some(Value::Str(text)) if ty == ValueType::Str => Ok(Some(span(8, text.len()))),
            Some(Value::Array(array))
                if ty == ValueType::Array && array.elem() == ValueType::U32 =>
            {
                Ok(Some(span(ARRAY_HEAD_BYTES, array.payload().len())))
            }
            Some(other) => Err(wrong_type(key, ty.name(), other)),
            None => Ok(None),
        }
    }

    /// Bytes of heap that the index takes; the file's bytes are not counted.
    pub fn heap_bytes(&self) -> usize {
        let Index { entries, by_key } = &*self.index;
        let keys: usize = entries.iter().map(|e| e.key.len()).sum();
        keys + entries.capacity() * size_of::<KeyEntry>() + by_key.capacity() * size_of::<u32>()
    }

    fn find(&self, key: &str) -> Option<&KeyEntry> {
        let Index { entries, by_key } = &*self.index;
        let found = by_key
            .binary_search_by(|&i| (*entries[i as usize].key).cmp(key))
            .ok()?;
        Some(&entries[by_key[found] as usize])
    }

    fn value(&self, entry: &KeyEntry) -> Option<Value<'_>> {
        Value::read(
            &mut Cursor::over((*self.bytes).as_ref(), entry.at),
            entry.ty,
        )
    }

    fn int<T: TryFrom<i128>>(&self, key: &str, expected: &'static str) -> Result<Option<T>, Error> {
        let Some(value) = self.scalar(key)? else {
            return Ok(None);
        };
        let int = value
            .as_int()
            .ok_or_else(|| wrong_type(key, expected, value))?;
        T::try_from(int)
            .map(Some)
            .map_err(|_| out_of_range(key, expected, value))
    }

    /// The value of a key, or the value that its array repeats, as in files with one value per
    /// layer.
    fn scalar(&self, key: &str) -> Result<Option<Value<'_>>, Error> {
        let value = self.get(key);
        let Some(Value::Array(array)) = value else {
            return Ok(value);
        };
        let first = array.iter().next();
        match first {
            Some(first) if array.iter().any(|other| other != first) => Err(Error::MetadataMixed {
                key: key.to_owned(),
                got: array.to_string(),
            }),
            // Only an empty array is left, which has the wrong type.
            _ => Ok(first.or(value)),
        }
    }

    /// An array that `accepts` its element type or is empty, and the position of its elements.
    fn array(
        &self,
        key: &str,
        expected: &'static str,
        accepts: fn(&ArrayValue<'_>) -> bool,
    ) -> Result<Option<(ArrayValue<'_>, usize)>, Error> {
        let Some(entry) = self.find(key) else {
            return Ok(None);
        };
        match self.value(entry) {
            None => Ok(None),
            Some(Value::Array(array)) if array.is_empty() || accepts(&array) => {
                Ok(Some((array, entry.at + ARRAY_HEAD_BYTES)))
            }
            Some(other) => Err(wrong_type(key, expected, other)),
        }
    }

    fn numbers<T: Number>(&self, key: &str) -> Result<Option<NumArray<T>>, Error> {
        let is_fixed = |array: &ArrayValue<'_>| array.elem().fixed_bytes().is_some();
        let Some((array, base)) = self.array(key, T::NAME, is_fixed)? else {
            return Ok(None);
        };
        if let Some(misfit) = array.iter().find(|&v| T::from_value(v).is_none()) {
            return Err(out_of_range(key, T::NAME, misfit));
        }
        Ok(Some(NumArray::new(
            self.bytes.clone(),
            base,
            array.len(),
            array.elem(),
        )))
    }
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

fn parse_entry(cursor: &mut Cursor<'_>) -> Result<KeyEntry, Error> {
    let key = parse_key(cursor)?;
    let id = cursor.u32("the type of a metadata value")?;
    let ty = ValueType::from_id(id).ok_or_else(|| Error::ValueType {
        key: key.to_owned(),
        id,
    })?;
    let at = cursor.index();
    value::skip(cursor, key, ty)?;
    Ok(KeyEntry {
        key: key.into(),
        ty,
        at,
    })
}

fn parse_key<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Error> {
    let at = cursor.position();
    let len = cursor.u64("the length of a metadata key")?;
    if len == 0 || len > MAX_KEY_BYTES {
        return Err(Error::KeyLength {
            at,
            len,
            max: MAX_KEY_BYTES,
        });
    }
    cursor.name(len, "a metadata key")
}

fn sort_by_key(entries: &[KeyEntry]) -> Result<Vec<u32>, Error> {
    let mut order: Vec<u32> = (0..entries.len() as u32).collect();
    let key = |i: u32| &*entries[i as usize].key;
    order.sort_by_key(|&i| key(i));
    match order.windows(2).find(|pair| key(pair[0]) == key(pair[1])) {
        Some(pair) => Err(Error::DuplicateKey {
            key: key(pair[0]).to_owned(),
        }),
        None => Ok(order),
    }
}

fn wrong_type(key: &str, expected: &'static str, got: Value<'_>) -> Error {
    Error::MetadataType {
        key: key.to_owned(),
        expected,
        got: got.type_name(),
    }
}

fn out_of_range(key: &str, expected: &'static str, got: Value<'_>) -> Error {
    Error::MetadataRange {
        key: key.to_owned(),
        expected,
        got: got.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, Gguf, Metadata, SharedBytes, Value, Writer};
    use std::sync::Arc;

    fn metadata(set: impl FnOnce(&mut Writer)) -> Metadata {
        let mut w = Writer::new();
        set(&mut w);
        let layout = w.finish().unwrap();
        let shared: SharedBytes = Arc::new(layout.header);
        Gguf::parse(shared, layout.file_bytes).unwrap().metadata
    }

    #[test]
    fn absent_keys_are_none_for_every_getter() {
        let m = metadata(|w| w.set_u32("a", 1));
        assert_eq!(
            (m.str("b"), m.u32("b"), m.u64("b"), m.i64("b")),
            (Ok(None), Ok(None), Ok(None), Ok(None))
        );
        assert_eq!(
            (m.f32("b"), m.bool("b"), m.get("")),
            (Ok(None), Ok(None), None)
        );
        assert!(m.strs("b").unwrap().is_none() && m.f32s("b").unwrap().is_none());
    }

    #[test]
    fn integers_that_do_not_fit_are_refused_with_their_value() {
        let m = metadata(|w| {
            w.set_i32("negative", -1);
            w.set_u64("big", 1 << 63);
            w.set_i32s("list", &[5, -6]);
        });
        let range = |key: &str, expected, got: &str| Error::MetadataRange {
            key: key.into(),
            expected,
            got: got.into(),
        };
        assert_eq!(m.u32("negative"), Err(range("negative", "u32", "-1")));
        assert_eq!(m.u64("negative"), Err(range("negative", "u64", "-1")));
        assert_eq!(
            m.i64("big"),
            Err(range("big", "i64", "9223372036854775808"))
        );
        assert_eq!(
            m.u32s("list").err(),
            Some(range("list", "array of u32", "-6"))
        );
        assert_eq!(m.i64("negative"), Ok(Some(-1)));
    }

    /// Writes a number as each type that can hold it.
    fn as_every_type(n: u8) -> Metadata {
        metadata(|w| {
            w.set_u8("u8", n);
            w.set_value("i8", Value::I8(n as i8));
            w.set_u16("u16", n.into());
            w.set_value("i16", Value::I16(n.into()));
            w.set_u32("u32", n.into());
            w.set_i32("i32", n.into());
            w.set_u64("u64", n.into());
            w.set_i64("i64", n.into());
            w.set_f32("f32", n.into());
            w.set_f64("f64", n.into());
            w.set_u32s("array of u32", &[n.into(); 3]);
            w.set_i32s("array of i32", &[n.into(); 3]);
            w.set_f32s("array of f32", &[n.into(); 3]);
            w.set_bool("bool", n == 1);
            w.set_bools("array of bool", &[n == 1; 3]);
        })
    }

    #[test]
    fn a_number_is_read_from_any_type_that_holds_it() {
        for n in [0, 1, 100] {
            let m = as_every_type(n);
            for (key, _) in m.iter().filter(|(key, _)| n < 2 || !key.contains("bool")) {
                let n = u32::from(n);
                assert_eq!(
                    (m.u32(key), m.u64(key)),
                    (Ok(Some(n)), Ok(Some(n.into()))),
                    "{key}"
                );
                assert_eq!(
                    (m.i64(key), m.f32(key)),
                    (Ok(Some(n.into())), Ok(Some(n as f32))),
                    "{key}"
                );
                assert_eq!(m.bool(key).ok(), (n < 2).then_some(Some(n == 1)), "{key}");
                if key.contains("array") {
                    assert!(m.u32s(key).unwrap().unwrap().iter().eq([n; 3]), "{key}");
                    assert!(
                        m.i32s(key).unwrap().unwrap().iter().eq([n as i32; 3]),
                        "{key}"
                    );
                    assert!(
                        m.f32s(key).unwrap().unwrap().iter().eq([n as f32; 3]),
                        "{key}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_would_be_rounded_or_chosen_from_is_refused() {
        let m = metadata(|w| {
            w.set_f32("fraction", 0.5);
            w.set_f32("nan", f32::NAN);
            w.set_f64("infinite", f64::INFINITY);
            w.set_u32s("mixed", &[8, 4]);
            w.set_f32s("fractions", &[1.0, 0.5]);
            w.set_u32s("none", &[]);
        });
        for key in ["fraction", "nan", "infinite", "none"] {
            assert!(
                matches!(m.u32(key), Err(Error::MetadataType { .. })),
                "{key}"
            );
            assert!(m.bool(key).is_err(), "{key}");
        }
        let mixed = m.u32("mixed").unwrap_err().to_string();
        assert_eq!(
            mixed,
            "metadata key mixed: one value for all layers is supported, got [8, 4]"
        );
        assert!(matches!(
            m.u32s("fractions"),
            Err(Error::MetadataRange { .. })
        ));
        assert_eq!(m.f32("fraction"), Ok(Some(0.5)));
    }

    #[test]
    fn an_empty_array_is_one_of_any_type() {
        let m = metadata(|w| {
            w.set_strs::<&str>("strs", &[]);
            w.set_i32s("ints", &[]);
        });
        for key in ["strs", "ints"] {
            assert!(
                m.f32s(key).unwrap().unwrap().is_empty()
                    && m.strs(key).unwrap().unwrap().is_empty()
            );
        }
    }

    #[test]
    fn what_is_only_shown_need_not_be_utf_8() {
        let m = metadata(|w| {
            w.set_bytes("latin", b"caf\xe9");
            w.set_u32("number", 1);
        });
        assert_eq!(
            (&*m.shown("latin"), &*m.shown("number"), &*m.shown("absent")),
            ("caf\u{fffd}", "", "")
        );
    }

    #[test]
    fn keys_come_in_file_order_and_setting_again_replaces() {
        let m = metadata(|w| {
            w.set_u32("b", 1);
            w.set_u32("a", 2);
            w.set_f64("b", 0.5);
        });
        let all: Vec<_> = m.iter().collect();
        assert_eq!(all, [("b", Value::F64(0.5)), ("a", Value::U32(2))]);
        assert_eq!(m.f32("b"), Ok(Some(0.5)));
    }

    #[test]
    fn clones_share_the_index() {
        let m = metadata(|w| w.set_str("k", "v"));
        assert!(Arc::ptr_eq(&m.index, &m.clone().index));
        assert!(m.heap_bytes() > 0);
    }
}
