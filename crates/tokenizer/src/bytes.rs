//! The alphabet of byte-level vocabularies: each byte is written as one visible character.
//!
//! Source: `bytes_to_unicode` of GPT-2. Bytes that are visible Latin-1 characters stand for
//! themselves; the other 68 are, in order, the characters from U+0100 on.

/// The character of a byte.
pub fn to_char(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        0..=b' ' => from_u256(u32::from(byte)),
        0x7F..=0xA0 => from_u256(u32::from(byte) - 0x7F + 33),
        0xAD => from_u256(67),
    }
}

/// The byte of a character.
pub fn from_char(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7F).ok(),
        0x143 => Some(0xAD),
        _ => None,
    }
}

fn from_u256(n: u32) -> char {
    char::from_u32(0x100 + n).expect("U+0100 to U+0143 are characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        let mut chars: Vec<char> = (0..=255).map(to_char).collect();
        assert_eq!(
            (to_char(b' '), to_char(b'\n'), to_char(b'a'), to_char(0xAD)),
            ('Ġ', 'Ċ', 'a', 'Ń')
        );
        assert!((0..=255).all(|byte| from_char(to_char(byte)) == Some(byte)));
        chars.sort_unstable();
        chars.dedup();
        assert_eq!(chars.len(), 256);
    }

    #[test]
    fn other_characters_are_no_bytes() {
        assert!(
            [' ', '\u{A0}', '\u{144}', '▁']
                .into_iter()
                .all(|c| from_char(c).is_none())
        );
    }
}
