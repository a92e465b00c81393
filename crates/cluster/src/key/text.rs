//! The text form: `atta1-` and 56 characters of base32 in groups of four, 32 bytes of the key and
//! 3 of a checksum.
//!
//! The alphabet is RFC 4648's, A–Z and 2–7. Digits that people misread are taken for them: 0 as O,
//! 1 as I, 8 as B; case, spaces and hyphens do not count.

use std::str::FromStr;

use super::{ClusterKey, KeyError};

const PREFIX: &str = "atta1-";
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Bytes of the checksum.
const N_CHECK: usize = 3;

/// Characters of a key: 35 bytes are 280 bits, 5 of them each.
const N_CHARS: usize = (ClusterKey::N_BYTES + N_CHECK) * 8 / 5;

/// Characters between two hyphens.
const GROUP: usize = 4;

impl ClusterKey {
    /// The key as text, which is as secret as the key.
    pub fn text(&self) -> String {
        let mut bytes = self.0.to_vec();
        bytes.extend(checksum(&self.0));
        let mut text = PREFIX.to_owned();
        for (i, digit) in digits(&bytes).enumerate() {
            if i > 0 && i % GROUP == 0 {
                text.push('-');
            }
            text.push(char::from(ALPHABET[usize::from(digit)]));
        }
        text
    }
}

impl FromStr for ClusterKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let start = text.get(..PREFIX.len()).ok_or(KeyError::Prefix)?;
        if !start.eq_ignore_ascii_case(PREFIX) {
            return Err(KeyError::Prefix);
        }
        let mut digits = Vec::with_capacity(N_CHARS);
        let mut n_found = 0;
        for (i, found) in text.chars().enumerate().skip(PREFIX.len()) {
            if found == '-' || found.is_whitespace() {
                continue;
            }
            let digit = digit(found).ok_or(KeyError::Character { found, at: i + 1 })?;
            n_found += 1;
            if n_found <= N_CHARS {
                digits.push(digit);
            }
        }
        if n_found != N_CHARS {
            return Err(KeyError::Length {
                found: n_found,
                expected: N_CHARS,
            });
        }
        from_digits(&digits)
    }
}

/// The key of exactly [`N_CHARS`] digits.
fn from_digits(digits: &[u8]) -> Result<ClusterKey, KeyError> {
    let mut bytes = [0_u8; ClusterKey::N_BYTES + N_CHECK];
    for (i, digit) in digits.iter().enumerate() {
        for bit in 0..5 {
            let at = i * 5 + bit;
            bytes[at / 8] |= (digit >> (4 - bit) & 1) << (7 - at % 8);
        }
    }
    let mut key = [0; ClusterKey::N_BYTES];
    key.copy_from_slice(&bytes[..ClusterKey::N_BYTES]);
    match bytes[ClusterKey::N_BYTES..] == checksum(&key) {
        true => Ok(ClusterKey(key)),
        false => Err(KeyError::Checksum),
    }
}

/// Five bits each, the highest first.
fn digits(bytes: &[u8]) -> impl Iterator<Item = u8> {
    (0..bytes.len() * 8 / 5).map(move |i| {
        let bits = (i * 5..i * 5 + 5).map(|at| bytes[at / 8] >> (7 - at % 8) & 1);
        bits.fold(0, |digit, bit| digit << 1 | bit)
    })
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

fn checksum(key: &[u8]) -> [u8; N_CHECK] {
    let hash = blake3::derive_key("atta 2026-11-28 cluster key text checksum v1", key);
    std::array::from_fn(|i| hash[i])
}
