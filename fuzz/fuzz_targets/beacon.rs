//! Arbitrary bytes as a beacon, as they are and with a right tag and MAC. A beacon that is read is
//! written back as the same bytes.
#![no_main]

use std::net::IpAddr;

use atta_cluster::beacon::{BEACON_BYTES, Beacon, BeaconKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u8; 16], &[u8])| {
    let (ip, bytes) = input;
    let ip = IpAddr::from(ip);
    let key = BeaconKey::of_invitations();
    if let Some(beacon) = key.open(bytes, ip) {
        assert_eq!(key.seal(&beacon, ip), bytes);
    }
    if let Some(fields) = bytes.first_chunk::<23>() {
        let beacon = Beacon {
            sender: std::array::from_fn(|i| fields[i]),
            port: u16::from_le_bytes([fields[16], fields[17]]),
            is_question: fields[18] & 1 == 1,
            count: u32::from_le_bytes(std::array::from_fn(|i| fields[19 + i])),
        };
        let sealed = key.seal(&beacon, ip);
        assert_eq!(sealed.len(), BEACON_BYTES);
        assert_eq!(key.open(&sealed, ip), Some(beacon));
    }
});
