//! Invitations over loopback, and guests and hosts that lie.

use std::{net::TcpListener, sync::Arc, thread};

use proptest::prelude::*;

use super::{
    exchange::{HELLO_BYTES, Host, PROOF_BYTES, SPAKE_BYTES},
    *,
};
use crate::key::ClusterKey;

fn token() -> JoinToken {
    JoinToken {
        key: ClusterKey::from_bytes([7; 32]),
        address: "10.0.0.1:9990".parse().ok(),
    }
}

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn code(text: &str) -> JoinCode {
    text.parse().unwrap()
}

/// The end of an exchange for a guest, whose proof has passed through `change`.
fn exchanged(
    typed: &JoinCode,
    shown: &JoinCode,
    change: impl Fn(&mut Vec<u8>),
) -> Result<JoinToken, InviteError> {
    let (guest, hello) = Guest::start(typed);
    let (host, message) = Host::start(shown, &hello)?;
    let (opener, mut proof) = guest.prove(&message, &name("pi1"))?;
    change(&mut proof);
    let (name, proof) = proof[1..].split_at(proof.len() - 1 - PROOF_BYTES);
    let sealed = host.seal(name, proof.try_into().unwrap(), &token())?;
    opener.open(&sealed)
}

#[test]
fn the_same_code_brings_the_token_and_another_one_nothing() {
    let shown = code("4821-0937");
    assert_eq!(exchanged(&shown, &shown, |_| ()).unwrap(), token());
    for typed in ["4821-0938", "0000-0000"] {
        let refused = exchanged(&code(typed), &shown, |_| ());
        assert!(matches!(refused, Err(InviteError::Refused)), "{refused:?}");
    }
}

#[test]
fn a_changed_name_or_proof_is_refused() {
    let shown = code("4821-0937");
    for i in 1..4 + PROOF_BYTES {
        let refused = exchanged(&shown, &shown, |proof| proof[i] ^= 1);
        assert!(matches!(refused, Err(InviteError::Refused)), "byte {i}");
    }
}

#[test]
fn a_host_without_the_code_gives_no_token_that_a_guest_takes() {
    let (guest, hello) = Guest::start(&code("4821-0937"));
    let (_, message) = Host::start(&code("1111-1111"), &hello).unwrap();
    let (opener, _) = guest.prove(&message, &name("pi1")).unwrap();
    for sealed in [&[][..], &[0; 16], &[0; 150], &[0; exchange::MAX_SEALED + 1]] {
        assert!(opener.open(sealed).is_err());
    }
}

proptest! {
    #[test]
    fn arbitrary_messages_never_panic(hello: [u8; 32], side: u8, sealed: Vec<u8>) {
        let code = code("4821-0937");
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(b"ATJ1");
        bytes[4] = side;
        bytes[5..].copy_from_slice(&hello);
        if let Ok((host, _)) = Host::start(&code, &bytes) {
            let proof = [side; PROOF_BYTES];
            prop_assert!(host.seal(&sealed, &proof, &token()).is_err());
        }
        let (guest, _) = Guest::start(&code);
        let message: [u8; SPAKE_BYTES] = bytes[4..].try_into().unwrap();
        if let Ok((opener, _)) = guest.prove(&message, &name("pi1")) {
            prop_assert!(opener.open(&sealed).is_err());
        }
    }
}

fn invitation(limits: InvitationLimits) -> Invitation {
    let address = "127.0.0.1:0".parse().unwrap();
    Invitation::open(address, token(), Arc::new(|_| true), limits).unwrap()
}

/// A code that is not this one.
fn other(code: &JoinCode) -> JoinCode {
    let text = code.text();
    let first = if text.starts_with('0') { "1" } else { "0" };
    [first, &text[1..]].concat().parse().unwrap()
}

#[test]
fn one_machine_joins_and_then_the_code_is_over() {
    let invitation = invitation(InvitationLimits::default());
    let address = invitation.address().unwrap();
    let code = invitation.code().clone();
    let host = thread::spawn(move || {
        let mut wrong = Vec::new();
        let end = invitation.wait(&mut |event| wrong.push(event));
        (wrong, end)
    });
    let refused = accept_invitation(address, &other(&code), &name("eve"));
    assert!(matches!(refused, Err(InviteError::Refused)), "{refused:?}");
    // Bytes that are no exchange are no try.
    for noise in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 200]] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(noise).unwrap();
    }
    let joined = accept_invitation(address, &code, &name("pi2")).unwrap();
    assert_eq!(joined, token());
    let (wrong, end) = host.join().unwrap();
    assert_eq!(wrong, [InvitationEvent::WrongCode { left: 2 }]);
    assert_eq!(end, InvitationEvent::Joined(name("pi2")));
    assert!(accept_invitation(address, &code, &name("pi3")).is_err());
}

#[test]
fn three_wrong_codes_end_it_and_so_does_time() {
    let invited = invitation(InvitationLimits::default());
    let address = invited.address().unwrap();
    let right = invited.code().clone();
    let host = thread::spawn(move || invited.wait(&mut |_| ()));
    for _ in 0..3 {
        assert!(accept_invitation(address, &other(&right), &name("eve")).is_err());
    }
    assert_eq!(host.join().unwrap(), InvitationEvent::TooMany);
    assert!(accept_invitation(address, &right, &name("pi2")).is_err());

    let limits = InvitationLimits {
        time: Duration::ZERO,
        ..InvitationLimits::default()
    };
    let end = invitation(limits).wait(&mut |_| ());
    assert_eq!(end, InvitationEvent::Expired);
}

#[test]
fn a_guest_gives_its_token_length_a_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let code = code("4821-0937");
    let shown = code.clone();
    let host = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; HELLO_BYTES];
        stream.read_exact(&mut hello).unwrap();
        let (_, message) = Host::start(&shown, &hello).unwrap();
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut [0; 4 + PROOF_BYTES]).unwrap();
        stream.write_all(&[0xff; 1000]).unwrap();
    });
    let refused = accept_invitation(address, &code, &name("pi1"));
    assert!(matches!(refused, Err(InviteError::Refused)), "{refused:?}");
    host.join().unwrap();
}
