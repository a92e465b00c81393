//! Bytes as hexadecimal digits in messages.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        to_hex(&digest.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        of_hex(&text).map(Self)
    }
}

/// The secret of a ring's connections. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RingSecret(pub [u8; 32]);

impl fmt::Debug for RingSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RingSecret(..)")
    }
}

impl RingSecret {
    /// Whether both are the same, in a time that does not depend on where they differ.
    pub fn is_same(&self, other: &Self) -> bool {
        let differences = self.0.iter().zip(other.0).map(|(a, b)| a ^ b);
        std::hint::black_box(differences.fold(0, |all, d| all | d)) == 0
    }
}

impl From<RingSecret> for String {
    fn from(secret: RingSecret) -> Self {
        to_hex(&secret.0)
    }
}

impl TryFrom<String> for RingSecret {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        of_hex(&text).map(Self)
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_hex(text: &str) -> Result<[u8; 32], &'static str> {
    const EXPECTED: &str = "expected 64 hexadecimal digits";
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return Err(EXPECTED);
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |i: usize| char::from(pair[i]).to_digit(16).ok_or(EXPECTED);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Ok(bytes)
}
