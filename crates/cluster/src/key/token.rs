//! What a new node is told: the key and, where it is known, an address of a node.
//!
//! ```text
//! 32 bytes of the key        and an IPv4 address: 4, u16 port        or IPv6: 16, u16 port
//! ```
//! As text it is that of a key, longer by the address. It is as secret as the key.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use super::{
    ClusterKey, KeyError,
    text::{decode, encode},
};

const V4: usize = ClusterKey::N_BYTES + 4 + 2;
const V6: usize = ClusterKey::N_BYTES + 16 + 2;

/// A key, and an address of a node of its cluster. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// The key.
    pub key: ClusterKey,
    /// Where a node takes connections; `None`: it must be found otherwise.
    pub address: Option<SocketAddr>,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken")
            .field("key", &self.key)
            .field("address", &self.address)
            .finish()
    }
}

impl JoinToken {
    /// The token as text.
    pub fn text(&self) -> String {
        let mut bytes = self.key.0.to_vec();
        if let Some(address) = self.address {
            match address.ip() {
                IpAddr::V4(ip) => bytes.extend(ip.octets()),
                IpAddr::V6(ip) => bytes.extend(ip.octets()),
            }
            bytes.extend(address.port().to_le_bytes());
        }
        encode(&bytes)
    }
}

impl FromStr for JoinToken {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = decode(text, &[ClusterKey::N_BYTES, V4, V6])?;
        let (key, address) = bytes.split_at(ClusterKey::N_BYTES);
        let mut of_key = [0; ClusterKey::N_BYTES];
        of_key.copy_from_slice(key);
        let address = address.split_last_chunk::<2>().and_then(|(ip, port)| {
            let v4 = <[u8; 4]>::try_from(ip).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(ip).map(IpAddr::from);
            let ip = v4.or(v6).ok()?;
            Some(SocketAddr::new(ip, u16::from_le_bytes(*port)))
        });
        Ok(Self {
            key: ClusterKey(of_key),
            address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_with_and_without_an_address() {
        let key = ClusterKey::from_bytes(std::array::from_fn(|i| 7 * i as u8));
        let addresses = ["10.0.0.7:9990", "[fe80::1]:1"].map(|text| text.parse().ok());
        for address in [None].into_iter().chain(addresses) {
            let token = JoinToken {
                key: key.clone(),
                address,
            };
            let text = token.text();
            assert_eq!(text.parse::<JoinToken>().unwrap(), token, "{text}");
            assert_eq!(text.to_lowercase().parse::<JoinToken>().unwrap(), token);
            // A key alone is a token, and a longer one is no key.
            assert_eq!(text.parse::<ClusterKey>().is_ok(), address.is_none());
            // Every changed digit is found.
            for i in 6..text.len() {
                let mut other = text.clone().into_bytes();
                if other[i] != b'-' {
                    other[i] = if other[i] == b'A' { b'C' } else { b'A' };
                    let other = String::from_utf8(other).unwrap();
                    assert!(other.parse::<JoinToken>().is_err(), "{other}");
                }
            }
            assert!(!format!("{token:?}").contains(&text[6..20]));
        }
    }
}
