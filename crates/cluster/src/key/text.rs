//! The text form: `atta1-` and 56 characters of base32 in groups of four, 32 bytes of the key and
//! 3 of a checksum. A join token is longer by the bytes of an address ([`super::JoinToken`]).
//!
//! The alphabet is RFC 4648's, A–Z and 2–7. Digits that people misread are taken for them: 0 as O,
//! 1 as I, 8 as B; case, spaces and hyphens do not count.

use std::str::FromStr;

use super::{ClusterKey, KeyError};

const PREFIX: &str = "atta1-";
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// Bytes of the checksum.
const N_CHECK: usize = 3;
/// Characters between two hyphens.
const GROUP: usize = 4;

impl ClusterKey {
    /// The key as text, which is as secret as the key.
    pub fn text(&self) -> String {
        encode(&self.0)
    }
}

impl FromStr for ClusterKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = decode(text, &[Self::N_BYTES])?;
        let mut key = [0; Self::N_BYTES];
        key.copy_from_slice(&bytes);
        Ok(Self(key))
    }
}

impl From<ClusterKey> for String {
    fn from(key: ClusterKey) -> Self {
        key.text()
    }
}

impl TryFrom<String> for ClusterKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

/// Bytes and their checksum as text.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut checked = bytes.to_vec();
    checked.extend(checksum(bytes));
    let mut text = PREFIX.to_owned();
    for (i, digit) in digits(&checked).enumerate() {
        if i > 0 && i % GROUP == 0 {
            text.push('-');
        }
        text.push(char::from(ALPHABET[usize::from(digit)]));
    }
    text
}

/// The bytes of a text, if they are as many as one of `lengths` and their checksum is right.
pub(super) fn decode(text: &str, lengths: &[usize]) -> Result<Vec<u8>, KeyError> {
    let text = text.trim();
    let start = text.get(..PREFIX.len()).ok_or(KeyError::Prefix)?;
    if !start.eq_ignore_ascii_case(PREFIX) {
        return Err(KeyError::Prefix);
    }
    let most_chars = lengths.iter().copied().map(n_chars).max().unwrap_or(0);
    let mut digits = Vec::with_capacity(most_chars);
    let mut found_chars = 0;
    for (i, found) in text.chars().enumerate().skip(PREFIX.len()) {
        if found == '-' || found.is_whitespace() {
            continue;
        }
        let digit = digit(found).ok_or(KeyError::Character { found, at: i + 1 })?;
        found_chars += 1;
        if found_chars <= most_chars {
            digits.push(digit);
        }
    }
    let expected = lengths.iter().map(|&length| (n_chars(length), length));
    let expected = expected.min_by_key(|(n_chars, _)| n_chars.abs_diff(found_chars));
    match expected {
        Some((n_chars, length)) if n_chars == found_chars => from_digits(&digits, length),
        expected => Err(KeyError::Length {
            found: found_chars,
            expected: expected.map_or(0, |(n_chars, _)| n_chars),
        }),
    }
}

/// Characters of so many bytes and their checksum, 5 bits each.
fn n_chars(n_bytes: usize) -> usize {
    ((n_bytes + N_CHECK) * 8).div_ceil(5)
}

/// The `n_bytes` bytes that exactly [`n_chars`] digits stand for.
fn from_digits(digits: &[u8], n_bytes: usize) -> Result<Vec<u8>, KeyError> {
    let mut bytes = vec![0_u8; (digits.len() * 5).div_ceil(8)];
    for (i, digit) in digits.iter().enumerate() {
        for bit in 0..5 {
            let at = i * 5 + bit;
            bytes[at / 8] |= (digit >> (4 - bit) & 1) << (7 - at % 8);
        }
    }
    let spare = bytes.split_off(n_bytes + N_CHECK);
    let check = bytes.split_off(n_bytes);
    match check == checksum(&bytes) && spare.iter().all(|&byte| byte == 0) {
        true => Ok(bytes),
        false => Err(KeyError::Checksum),
    }
}

/// Five bits each, the highest first; zeros fill the last digit.
fn digits(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let bit = |at: usize| {
        let byte = bytes.get(at / 8).copied().unwrap_or(0);
        byte >> (7 - at % 8) & 1
    };
    (0..(bytes.len() * 8).div_ceil(5))
        .map(move |i| (i * 5..i * 5 + 5).fold(0, |digit, at| digit << 1 | bit(at)))
}

fn digit(found: char) -> Option<u8> {
    let letter = match found.to_ascii_uppercase() {
        '0' => 'O',
        '1' => 'I',
        '8' => 'B',
        other => other,
    };
    let place = ALPHABET.iter().position(|c| char::from(*c) == letter);
    place.and_then(|place| u8::try_from(place).ok())
}

fn checksum(bytes: &[u8]) -> [u8; N_CHECK] {
    let hash = blake3::derive_key("atta 2026-11-28 cluster key text checksum v1", bytes);
    std::array::from_fn(|i| hash[i])
}
