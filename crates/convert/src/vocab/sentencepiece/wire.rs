//! The wire format of Protocol Buffers, as far as SentencePiece models use it.
//!
//! Knows no message types. The one idea: an iterator over the fields of a message that borrows
//! their contents, without copies or allocation.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding>.

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum FieldValue<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64,
    /// A string, bytes or a nested message.
    Bytes(&'a [u8]),
}

/// The fields of a message, in order. Ends with an error at invalid bytes.
pub(super) struct WireFields<'a> {
    rest: &'a [u8],
    n_bytes: usize,
}

impl<'a> WireFields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self {
            rest: message,
            n_bytes: message.len(),
        }
    }

    fn field(&mut self) -> Option<(u64, FieldValue<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => FieldValue::Varint(self.varint()?),
            1 => self.take(8).map(|_| FieldValue::Fixed64)?,
            2 => {
                let len = self.varint()?;
                FieldValue::Bytes(self.take(len)?)
            }
            5 => FieldValue::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for i in 0..10 {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7F) << (7 * i);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, n: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(n).ok()?)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Iterator for WireFields<'a> {
    /// Field number and value, or the offset of an invalid field.
    type Item = Result<(u64, FieldValue<'a>), usize>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.n_bytes - self.rest.len();
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field.ok_or(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Vec<Result<(u64, FieldValue<'_>), usize>> {
        WireFields::of(bytes).collect()
    }

    #[test]
    fn fields_of_every_kind_are_read() {
        let bytes = [
            0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1D, 0, 0, 0x80, 0x3F, 0x21, 0, 0, 0, 0, 0, 0,
            0, 0,
        ];
        let expected = [
            (1, FieldValue::Varint(150)),
            (2, FieldValue::Bytes(b"hi")),
            (3, FieldValue::Fixed32(0x3F80_0000)),
            (4, FieldValue::Fixed64),
        ];
        assert_eq!(fields(&bytes), expected.map(Ok));
    }

    #[test]
    fn truncated_and_oversized_fields_end_with_their_offset() {
        assert_eq!(
            fields(&[0x08, 1, 0x12, 200, 1, 0]),
            [Ok((1, FieldValue::Varint(1))), Err(2)]
        );
        assert_eq!(
            fields(&[
                0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1
            ]),
            [Err(0)]
        );
        assert_eq!(
            (fields(&[0xFF; 12]), fields(&[0x0B]), fields(&[0x1D, 0])),
            (vec![Err(0)], vec![Err(0)], vec![Err(0)])
        );
    }
}
