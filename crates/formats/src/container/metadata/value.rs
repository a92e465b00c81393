//! Metadata values: the thirteen types of the format, read in place.
//!
//! A value is read twice: once by [`skip`], which checks it while the file is parsed, and then by
//! every getter. Getters check it too and return `None` if it is invalid, since another process can
//! change a mapped file.

use super::MAX_ARRAY_DEPTH;
use super::cursor::Cursor;
use crate::Error;
use std::fmt::{self, Write};

/// The type of a metadata value, with its id in the file.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names of the format")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    Str = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// The type with this id.
    pub fn from_id(id: u32) -> Option<Self> {
        use ValueType::*;
        [
            U8, I8, U16, I16, U32, I32, F32, Bool, Str, Array, U64, I64, F64,
        ]
        .get(id as usize)
        .copied()
    }

    /// A short name, such as `u32` or `str`.
    pub fn name(self) -> &'static str {
        use ValueType::*;
        match self {
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            F32 => "f32",
            Bool => "bool",
            Str => "str",
            Array => "array",
            U64 => "u64",
            I64 => "i64",
            F64 => "f64",
        }
    }

    /// Bytes of a value whose size is fixed; `None` for strings and arrays.
    pub fn fixed_bytes(self) -> Option<usize> {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => Some(1),
            U16 | I16 => Some(2),
            U32 | I32 | F32 => Some(4),
            U64 | I64 | F64 => Some(8),
            Str | Array => None,
        }
    }
}

/// A metadata value; strings and arrays borrow the file.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names of the format")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(&'a str),
    /// A string that is not UTF-8.
    Bytes(&'a [u8]),
    Array(ArrayValue<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// The type in the file.
    pub fn ty(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::Str(_) | Value::Bytes(_) => ValueType::Str,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The name of the type in error messages: `u32`, `array of str`.
    pub fn type_name(&self) -> String {
        match self {
            Value::Array(a) => format!("array of {}", a.elem().name()),
            other => other.ty().name().to_owned(),
        }
    }

    /// A whole number of any type: an integer, a float without a fraction, or a bool as 0 or 1.
    pub(in crate::container) fn as_int(&self) -> Option<i128> {
        match *self {
            Value::Bool(v) => Some(v.into()),
            Value::U8(v) => Some(v.into()),
            Value::I8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::U64(v) => Some(v.into()),
            Value::I64(v) => Some(v.into()),
            Value::F32(v) => whole(v.into()),
            Value::F64(v) => whole(v),
            Value::Str(_) | Value::Bytes(_) | Value::Array(_) => None,
        }
    }

    /// Any number, rounded to f32.
    pub(in crate::container) fn as_float(&self) -> Option<f32> {
        match *self {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            other => other.as_int().map(|v| v as f32),
        }
    }

    /// A bool, or a number that is 0 or 1.
    pub(in crate::container) fn as_bool(&self) -> Option<bool> {
        match self.as_int()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// The value of type `ty` at the cursor, which moves past it.
    pub(in crate::container) fn read(cursor: &mut Cursor<'a>, ty: ValueType) -> Option<Self> {
        match ty {
            ValueType::Str => {
                let bytes = cursor.string("a string").ok()?;
                Some(std::str::from_utf8(bytes).map_or(Value::Bytes(bytes), Value::Str))
            }
            ValueType::Array => ArrayValue::read(cursor, 1).map(Value::Array),
            fixed => Value::from_fixed(
                fixed,
                cursor.take(fixed.fixed_bytes()? as u64, "a number").ok()?,
            ),
        }
    }

    /// A number or bool from exactly its bytes.
    pub(in crate::container) fn from_fixed(ty: ValueType, bytes: &[u8]) -> Option<Self> {
        Some(match ty {
            ValueType::U8 => Value::U8(u8::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U32 => Value::U32(u32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I32 => Value::I32(i32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::Bool => Value::Bool(u8::from_le_bytes(bytes.try_into().ok()?) != 0),
            ValueType::U64 => Value::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I64 => Value::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::Str | ValueType::Array => return None,
        })
    }
}

/// The integer that a float is; `None` for one with a fraction, and for NaN and infinity.
fn whole(v: f64) -> Option<i128> {
    // Conversions saturate, and NaN becomes 0: neither converts back to the same value.
    (v as i64 as f64 == v).then_some((v as i64).into())
}

/// Bytes of an array before its elements: their type and their count.
pub(in crate::container) const ARRAY_HEAD_BYTES: usize = 4 + 8;

/// An array in the file, not decoded.
#[derive(Clone, Copy, PartialEq)]
pub struct ArrayValue<'a> {
    elem: ValueType,
    len: usize,
    /// The bytes of the elements in the file.
    payload: &'a [u8],
}

impl<'a> ArrayValue<'a> {
    /// The type of the elements.
    pub fn elem(&self) -> ValueType {
        self.elem
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let mut cursor = Cursor::over(self.payload, 0);
        let elem = self.elem;
        (0..self.len).map_while(move |_| Value::read(&mut cursor, elem))
    }

    /// The bytes of the elements in the file.
    pub(in crate::container) fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The array at the cursor, which moves past it; `depth` counts from 1.
    fn read(cursor: &mut Cursor<'a>, depth: usize) -> Option<Self> {
        let elem = ValueType::from_id(cursor.u32("an element type").ok()?)?;
        let len = cursor.u64("an array length").ok()?;
        let mut end = cursor.clone();
        skip_elements(&mut end, "", elem, len, depth).ok()?;
        let payload = cursor
            .take(end.position() - cursor.position(), "an array")
            .ok()?;
        Some(Self {
            elem,
            len: usize::try_from(len).ok()?,
            payload,
        })
    }
}

/// Checks the value of type `ty` at the cursor and moves past it. `key` is for errors.
pub(in crate::container) fn skip(
    cursor: &mut Cursor<'_>,
    key: &str,
    ty: ValueType,
) -> Result<(), Error> {
    skip_nested(cursor, key, ty, 0)
}

fn skip_nested(
    cursor: &mut Cursor<'_>,
    key: &str,
    ty: ValueType,
    depth: usize,
) -> Result<(), Error> {
    match ty {
        ValueType::Str => cursor.string("a metadata string").map(drop),
        ValueType::Array => skip_array(cursor, key, depth + 1),
        fixed => skip_elements(cursor, key, fixed, 1, depth),
    }
}

fn skip_array(cursor: &mut Cursor<'_>, key: &str, depth: usize) -> Result<(), Error> {
    if depth > MAX_ARRAY_DEPTH {
        return Err(Error::ArrayDepth {
            key: key.to_owned(),
            max: MAX_ARRAY_DEPTH,
        });
    }
    let id = cursor.u32("the element type of a metadata array")?;
    let elem = ValueType::from_id(id).ok_or_else(|| Error::ValueType {
        key: key.to_owned(),
        id,
    })?;
    let len = cursor.u64("the length of a metadata array")?;
    skip_elements(cursor, key, elem, len, depth)
}

/// Checks `len` elements of an array at this depth and moves past them.
fn skip_elements(
    cursor: &mut Cursor<'_>,
    key: &str,
    elem: ValueType,
    len: u64,
    depth: usize,
) -> Result<(), Error> {
    let Some(size) = elem.fixed_bytes() else {
        // A failed read ends the loop, after at most as many rounds as bytes.
        return (0..len).try_for_each(|_| skip_nested(cursor, key, elem, depth));
    };
    let at = cursor.position();
    let bytes = cursor.take(len.saturating_mul(size as u64), "a metadata value")?;
    match bytes.iter().position(|&b| elem == ValueType::Bool && b > 1) {
        Some(i) => Err(Error::BoolByte {
            key: key.to_owned(),
            at: at + i as u64,
            got: bytes[i],
        }),
        None => Ok(()),
    }
}

/// Printed characters of a longer string.
const SHOWN_CHARS: usize = 60;
/// Printed elements of a longer array.
const SHOWN_ELEMENTS: usize = 3;

/// A short form for humans: long strings and arrays are shortened, control characters escaped.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::Str(v) => write_short(f, v),
            Value::Bytes(v) => write_short(
                f,
                &String::from_utf8_lossy(&v[..v.len().min(4 * SHOWN_CHARS + 4)]),
            ),
            Value::Array(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
        }
    }
}

fn write_short(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars().take(SHOWN_CHARS) {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "{}", c.escape_debug())?,
            c => f.write_char(c)?,
        }
    }
    f.write_str(if text.chars().nth(SHOWN_CHARS).is_some() {
        "…\""
    } else {
        "\""
    })
}

/// `[1, 2, 3]`, or `[1, 2, 3, … 151936 i32]` if shortened.
impl fmt::Display for ArrayValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (i, value) in self.iter().take(SHOWN_ELEMENTS).enumerate() {
            write!(f, "{}{value}", if i > 0 { ", " } else { "" })?;
        }
        if self.len > SHOWN_ELEMENTS {
            write!(f, ", … {} {}", self.len, self.elem.name())?;
        }
        f.write_char(']')
    }
}

impl fmt::Debug for ArrayValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_back_to_their_types() {
        for id in 0..13 {
            assert_eq!(ValueType::from_id(id).map(|ty| ty as u32), Some(id));
        }
        assert_eq!(ValueType::from_id(13), None);
    }

    #[test]
    fn long_strings_are_cut_and_control_characters_escaped() {
        assert_eq!(
            Value::Str("a\"\n\u{1b}ü").to_string(),
            "\"a\\\"\\n\\u{1b}ü\""
        );
        assert_eq!(
            Value::Str(&"é".repeat(60)).to_string(),
            format!("\"{}\"", "é".repeat(60))
        );
        assert_eq!(
            Value::Str(&"é".repeat(61)).to_string(),
            format!("\"{}…\"", "é".repeat(60))
        );
        assert_eq!(Value::Bytes(b"a\xff").to_string(), "\"a\u{fffd}\"");
    }

    #[test]
    fn long_arrays_are_cut_and_counted() {
        let array = |len| ArrayValue {
            elem: ValueType::U8,
            len,
            payload: &[1, 2, 3, 4],
        };
        assert_eq!(Value::Array(array(0)).to_string(), "[]");
        assert_eq!(Value::Array(array(3)).to_string(), "[1, 2, 3]");
        assert_eq!(Value::Array(array(4)).to_string(), "[1, 2, 3, … 4 u8]");
    }
}
