//! Arbitrary bytes as the messages of the other side while a machine joins by a code. None is taken
//! for a proof or a token.
#![no_main]

use atta_cluster::{
    control::NodeName,
    invite::{
        JoinCode,
        exchange::{Guest, HELLO_BYTES, Host, PROOF_BYTES, SPAKE_BYTES},
    },
    key::{ClusterKey, JoinToken},
};
use libfuzzer_sys::fuzz_target;

type Guesses<'a> = ([u8; 32], [u8; PROOF_BYTES], &'a [u8]);

fuzz_target!(|input: Guesses<'_>| {
    let (point, proof, rest) = input;
    let text = String::from_utf8_lossy(rest);
    if let Ok(code) = text.parse::<JoinCode>() {
        assert!(JoinCode::is_meant_by(&code.text()));
    }
    let code: JoinCode = "4821-0937".parse().expect("eight digits");
    let token = JoinToken {
        key: ClusterKey::from_bytes([7; 32]),
        address: None,
    };
    let mut hello = [0; HELLO_BYTES];
    hello[..5].copy_from_slice(b"ATJ1A");
    hello[5..].copy_from_slice(&point);
    if let Ok((host, _)) = Host::start(&code, &hello) {
        assert!(host.seal(rest, &proof, &token).is_err());
    }
    let mut message = [b'B'; SPAKE_BYTES];
    message[1..].copy_from_slice(&point);
    let name = NodeName::new("pi1").expect("a name");
    let (guest, _) = Guest::start(&code);
    if let Ok((opener, _)) = guest.prove(&message, &name) {
        assert!(opener.open(rest).is_err());
    }
});
