//! Base64 with padding (RFC 4648).

/// Decodes a text. Fails with a message if it is no base64.
pub(in crate::vocab) fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    let body = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    if !text.len().is_multiple_of(4) || body.len() % 4 == 1 {
        return Err(format!("{} characters are no base64", text.len()));
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in body.chunks(4) {
        let mut bits = 0;
        for &c in group {
            bits = bits << 6
                | sextet(c)
                    .ok_or_else(|| format!("{:?} is no character of base64", char::from(c)))?;
        }
        let [_, all @ ..] = (bits << (6 * (4 - group.len()))).to_be_bytes();
        bytes.extend_from_slice(&all[..group.len() - 1]);
    }
    Ok(bytes)
}

fn sextet(c: u8) -> Option<u32> {
    let value = match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn bytes_come_back_whatever_their_number() {
        assert_eq!(decode(b"aGVsbG8="), Ok(b"hello".to_vec()));
        assert_eq!(decode(b"IQ=="), Ok(b"!".to_vec()));
        assert_eq!(decode(b"/+8A"), Ok(vec![0xFF, 0xEF, 0x00]));
        assert_eq!(decode(b""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        assert!(decode(b"IQ").unwrap_err().contains("2 characters"));
        assert!(decode(b"I===").is_err() && decode(b"====").is_err());
        assert!(decode(b"I!==").unwrap_err().contains("'!'"));
        assert!(decode(b"=IQ=").is_err());
    }
}
