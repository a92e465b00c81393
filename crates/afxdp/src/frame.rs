//! Ethernet frames with UDP over IPv4 (RFC 768, 791): bytes to fields and back. Checksums of UDP
//! are left out, which IPv4 allows; those who send datagrams protect them.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes before the datagram: Ethernet 14, IPv4 20, UDP 8.
pub(crate) const HEAD_BYTES: usize = 42;
/// Largest datagram, that of usual Ethernet.
pub(crate) const MAX_DATAGRAM: usize = 1472;

/// A hardware address.
pub(crate) type Mac = [u8; 6];

/// What a frame says besides its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) to_mac: Mac,
    pub(crate) from_mac: Mac,
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    /// Two bits of congestion (RFC 3168).
    pub(crate) ecn: u8,
}

impl Head {
    /// The bytes before a datagram of `n` bytes; `None`: it is too long.
    pub(crate) fn to_bytes(self, n: usize) -> Option<[u8; HEAD_BYTES]> {
        let n = u16::try_from(n).ok()?;
        if usize::from(n) > MAX_DATAGRAM {
            return None;
        }
        let mut bytes = [0; HEAD_BYTES];
        bytes[0..6].copy_from_slice(&self.to_mac);
        bytes[6..12].copy_from_slice(&self.from_mac);
        bytes[12..14].copy_from_slice(&[8, 0]);
        // Version 4 with a header of 5 words.
        bytes[14] = 0x45;
        bytes[15] = self.ecn & 3;
        bytes[16..18].copy_from_slice(&(n + 28).to_be_bytes());
        // Not to be cut; 64 hops; UDP.
        bytes[20] = 0x40;
        bytes[22] = 64;
        bytes[23] = 17;
        bytes[26..30].copy_from_slice(&self.from.ip().octets());
        bytes[30..34].copy_from_slice(&self.to.ip().octets());
        let sum = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes[34..36].copy_from_slice(&self.from.port().to_be_bytes());
        bytes[36..38].copy_from_slice(&self.to.port().to_be_bytes());
        bytes[38..40].copy_from_slice(&(n + 8).to_be_bytes());
        Some(bytes)
    }

    /// Reads a frame: its head, and its datagram. `None`: another kind of frame, or one whose
    /// lengths contradict each other.
    pub(crate) fn parse(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = frame.split_first_chunk::<HEAD_BYTES>()?;
        let pair = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let is_udp = pair(12) == 0x800 && head[14] == 0x45 && head[23] == 17;
        let is_whole = pair(20) & 0x3fff == 0;
        let n = usize::from(pair(38)).checked_sub(8)?;
        if !is_udp || !is_whole || usize::from(pair(16)) != n + 28 {
            return None;
        }
        let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
        let head = Self {
            to_mac: *head.first_chunk()?,
            from_mac: *head[6..].first_chunk()?,
            from: SocketAddrV4::new(address(26), pair(34)),
            to: SocketAddrV4::new(address(30), pair(36)),
            ecn: head[15] & 3,
        };
        // Short frames are filled up to 60 bytes.
        Some((head, rest.get(..n)?))
    }
}

/// That of the header of IPv4, whose own field is 0.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            to_mac: [2, 0, 0, 0, 0, 1],
            from_mac: [2, 0, 0, 0, 0, 2],
            from: "10.1.2.3:9990".parse().unwrap(),
            to: "10.1.2.4:41234".parse().unwrap(),
            ecn: 2,
        }
    }

    #[test]
    fn frames_come_back_also_when_they_are_filled_up() {
        for n in [0, 1, 1200, MAX_DATAGRAM] {
            let datagram = vec![7; n];
            let mut frame = head().to_bytes(n).unwrap().to_vec();
            frame.extend(&datagram);
            frame.resize(frame.len().max(60), 0);
            let read = Head::parse(&frame);
            assert_eq!(read, Some((head(), &datagram[..])), "{n}");
        }
        assert_eq!(head().to_bytes(MAX_DATAGRAM + 1), None);
    }

    #[test]
    fn the_checksum_is_that_of_a_known_header() {
        // An example that many texts have: 172.16.10.99 to 172.16.10.12.
        let header = [
            0x45, 0, 0, 0x3c, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0, 0, 0xac, 0x10, 0x0a, 0x63, 0xac,
            0x10, 0x0a, 0x0c,
        ];
        assert_eq!(checksum(&header), 0xb1e6);
    }

    #[test]
    fn lengths_that_lie_and_other_kinds_are_no_datagrams() {
        let mut frame = head().to_bytes(8).unwrap().to_vec();
        frame.extend([0; 8]);
        assert!(Head::parse(&frame).is_some());
        for n in 0..frame.len() {
            assert!(Head::parse(&frame[..n]).is_none(), "{n} bytes");
        }
        for (at, value) in [
            (12, 0x86),
            (14, 0x46),
            (17, 0),
            (20, 0x20),
            (23, 6),
            (39, 7),
        ] {
            let mut other = frame.clone();
            other[at] = value;
            assert!(Head::parse(&other).is_none(), "byte {at}");
        }
    }
}
