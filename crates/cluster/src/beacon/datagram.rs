//! The 48 bytes of a beacon.
//!
//! ```text
//!  0  tag 8        from the key: members recognize beacons of their cluster
//!  8  sender 16    random, for each process
//! 24  u16 port     where the sender takes connections; 0: it only asks
//! 26  u8 version (1), u8 flags (1: who is there?)
//! 28  u32 count    number of the beacon in its process
//! 32  MAC 16       keyed BLAKE3 of bytes 0 to 31 and the 16 bytes of the sender's address
//! ```
//! Little-endian; an IPv4 address is the IPv6 address that stands for it. The MAC keeps beacons
//! from being sent on from other addresses. It proves membership to no connection: that is done by
//! TLS, so a beacon tells an address and nothing else.

use std::net::IpAddr;

use crate::key::{ClusterKey, Purpose};

/// Bytes of a beacon.
pub const BEACON_BYTES: usize = 48;

const VERSION: u8 = 1;
const ASKS: u8 = 1;
const MAC_AT: usize = 32;

/// A process that tells where it is, or asks for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// A random number of the process.
    pub sender: [u8; 16],
    /// The TCP port on which it takes connections; 0: it takes none.
    pub port: u16,
    /// Whether the others shall tell where they are.
    pub is_question: bool,
    /// Number of the beacon in its process.
    pub count: u32,
}

/// What makes beacons of the same group recognize each other.
#[derive(Clone)]
pub struct BeaconKey {
    tag: [u8; 8],
    mac: [u8; 32],
}

impl std::fmt::Debug for BeaconKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeaconKey(..)")
    }
}

impl BeaconKey {
    /// For the nodes of a cluster.
    pub fn of_cluster(key: &ClusterKey) -> Self {
        Self::new(
            &key.secret(Purpose::BeaconTag),
            key.secret(Purpose::BeaconMac),
        )
    }

    /// For machines that have no key yet and look for one that invites. It is no secret.
    pub fn of_invitations() -> Self {
        let public = |context| blake3::derive_key(context, &[]);
        Self::new(
            &public("atta 2026-11-29 invitation beacon tag v1"),
            public("atta 2026-11-29 invitation beacon mac v1"),
        )
    }

    fn new(tag: &[u8; 32], mac: [u8; 32]) -> Self {
        Self {
            tag: std::array::from_fn(|i| tag[i]),
            mac,
        }
    }

    /// The bytes of a beacon that is sent from an address.
    pub fn seal(&self, beacon: &Beacon, from: IpAddr) -> [u8; BEACON_BYTES] {
        let mut bytes = [0; BEACON_BYTES];
        bytes[..8].copy_from_slice(&self.tag);
        bytes[8..24].copy_from_slice(&beacon.sender);
        bytes[24..26].copy_from_slice(&beacon.port.to_le_bytes());
        bytes[26] = VERSION;
        bytes[27] = if beacon.is_question { ASKS } else { 0 };
        bytes[28..MAC_AT].copy_from_slice(&beacon.count.to_le_bytes());
        let mac = self.mac(&bytes[..MAC_AT], from);
        bytes[MAC_AT..].copy_from_slice(&mac);
        bytes
    }

    /// Whether bytes have the length and the tag of a beacon of this group, which costs nothing
    /// to see.
    pub fn has_tag(&self, bytes: &[u8]) -> bool {
        bytes.len() == BEACON_BYTES && bytes.starts_with(&self.tag)
    }

    /// Reads a beacon that came from an address. `None`: of another group, of another version,
    /// sent on from elsewhere, or no beacon.
    pub fn open(&self, bytes: &[u8], from: IpAddr) -> Option<Beacon> {
        let bytes: &[u8; BEACON_BYTES] = bytes.try_into().ok()?;
        let mac = self.mac(&bytes[..MAC_AT], from);
        let differences = mac.iter().zip(&bytes[MAC_AT..]).map(|(a, b)| a ^ b);
        let is_same = std::hint::black_box(differences.fold(0, |all, d| all | d)) == 0;
        let is_known = bytes[26] == VERSION && bytes[27] & !ASKS == 0;
        (is_same && is_known && self.has_tag(bytes)).then(|| Beacon {
            sender: std::array::from_fn(|i| bytes[8 + i]),
            port: u16::from_le_bytes([bytes[24], bytes[25]]),
            is_question: bytes[27] == ASKS,
            count: u32::from_le_bytes(std::array::from_fn(|i| bytes[28 + i])),
        })
    }

    fn mac(&self, bytes: &[u8], from: IpAddr) -> [u8; BEACON_BYTES - MAC_AT] {
        let from = match from {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.mac);
        hasher.update(bytes).update(&from.octets());
        let hash = hasher.finalize();
        std::array::from_fn(|i| hash.as_bytes()[i])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(i: u8) -> BeaconKey {
        BeaconKey::of_cluster(&ClusterKey::from_bytes([i; 32]))
    }

    fn beacon() -> Beacon {
        Beacon {
            sender: *b"a random process",
            port: 9990,
            is_question: true,
            count: 7,
        }
    }

    #[test]
    fn the_layout_is_that_of_the_documents() {
        let ip = "10.0.0.1".parse().unwrap();
        let bytes = key(1).seal(&beacon(), ip);
        assert_eq!(bytes[8..24], *b"a random process");
        assert_eq!(bytes[24..32], [0x06, 0x27, 1, 1, 7, 0, 0, 0]);
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(key(1).open(&bytes, mapped), Some(beacon()));
        assert!(key(1).has_tag(&bytes) && !key(2).has_tag(&bytes));
    }

    #[test]
    fn beacons_of_other_keys_addresses_versions_and_lengths_are_none() {
        let ip = "10.0.0.1".parse().unwrap();
        let bytes = key(1).seal(&beacon(), ip);
        assert_eq!(key(2).open(&bytes, ip), None);
        assert_eq!(BeaconKey::of_invitations().open(&bytes, ip), None);
        assert_eq!(key(1).open(&bytes, "10.0.0.2".parse().unwrap()), None);
        assert_eq!(key(1).open(&bytes[..47], ip), None);
        assert_eq!(key(1).open(&[&bytes[..], &[0]].concat(), ip), None);
        for i in 0..bytes.len() {
            let mut other = bytes;
            other[i] ^= 1;
            assert_eq!(key(1).open(&other, ip), None, "byte {i}");
        }
    }

    proptest! {
        #[test]
        fn beacons_come_back(
            sender: [u8; 16], port: u16, is_question: bool, count: u32, ip: IpAddr,
            secret: [u8; 32],
        ) {
            let beacon = Beacon { sender, port, is_question, count };
            let key = BeaconKey::of_cluster(&ClusterKey::from_bytes(secret));
            let bytes = key.seal(&beacon, ip);
            prop_assert_eq!(key.open(&bytes, ip), Some(beacon));
        }

        #[test]
        fn arbitrary_bytes_are_no_beacon(bytes: Vec<u8>, ip: IpAddr) {
            prop_assert_eq!(key(1).open(&bytes, ip), None);
        }
    }
}
