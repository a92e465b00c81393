//! Files of text in UTF-8 or UTF-16.

use std::path::Path;

use super::{TextLimit, read_bytes};
use crate::failure::Failure;

/// Reads a text file, or standard input for `-`. A byte order mark tells UTF-16.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let bytes = read_bytes(path, &TextLimit::of_memory())?;
    decode(bytes).ok_or_else(|| Failure::at(path, "not UTF-8 text"))
}

fn decode(bytes: Vec<u8>) -> Option<String> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes
            .chunks_exact(2)
            .map(|pair| unit([pair[0], pair[1]]))
            .collect();
        String::from_utf16(&units)
            .ok()
            .filter(|_| bytes.len().is_multiple_of(2))
    };
    match &bytes[..] {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        _ => String::from_utf8(bytes).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::without_mark, *};

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text_and_tells_utf_16() {
        let text = |bytes: &[u8]| decode(without_mark(bytes.to_vec()));
        assert_eq!(text(b"\xef\xbb\xbf{}").unwrap(), "{}");
        assert_eq!(text(b"\xff\xfe{\0\xe9\0").unwrap(), "{é");
        assert_eq!(text(b"\xfe\xff\0{\0\xe9").unwrap(), "{é");
        assert_eq!((text(b"\xff\xfe{"), text(b"\xff")), (None, None));
    }
}
