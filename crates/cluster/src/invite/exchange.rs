//! Both sides of an exchange, without a connection: bytes in, bytes out.
//!
//! The proof is a keyed hash, so that it fits one secret only; the token is sealed by
//! ChaCha20-Poly1305 under a key of its own. Both keys are of this exchange alone.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use spake2::{Ed25519Group, Identity, Password, Spake2};

use super::{InviteError, JoinCode};
use crate::{control::NodeName, key::JoinToken};

/// Bytes of a message of SPAKE2: its side, and a point.
pub const SPAKE_BYTES: usize = 33;
/// Bytes of the first message of a guest.
pub const HELLO_BYTES: usize = 4 + SPAKE_BYTES;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Most bytes of a sealed token; one with an address has about 150.
pub const MAX_SEALED: usize = 512;

const MAGIC: [u8; 4] = *b"ATJ1";
/// One message is sealed under each key, which needs no number.
const NONCE: [u8; 12] = [0; 12];

/// The side that has typed the code.
#[derive(Debug)]
pub struct Guest(Spake2<Ed25519Group>);

/// The side that shows the code.
#[derive(Debug)]
pub struct Host(Secret);

/// What both sides share, if their codes were the same.
struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Opens the token that the host sends.
#[derive(Debug)]
pub struct TokenOpener(Secret);

fn identities() -> [Identity; 2] {
    [Identity::new(b"atta guest"), Identity::new(b"atta host")]
}

impl Guest {
    /// Begins; the bytes are for the host.
    pub fn start(code: &JoinCode) -> (Self, [u8; HELLO_BYTES]) {
        let [guest, host] = identities();
        let password = Password::new(code.digits());
        let (spake, message) = Spake2::<Ed25519Group>::start_a(&password, &guest, &host);
        let mut hello = [0; HELLO_BYTES];
        hello[..MAGIC.len()].copy_from_slice(&MAGIC);
        hello[MAGIC.len()..].copy_from_slice(&message);
        (Self(spake), hello)
    }

    /// Proves to a host that the code is known; the bytes are for the host.
    ///
    /// # Errors
    /// Not the message of a host.
    pub fn prove(
        self,
        message: &[u8; SPAKE_BYTES],
        name: &NodeName,
    ) -> Result<(TokenOpener, Vec<u8>), InviteError> {
        let secret = Secret::of(self.0, message)?;
        let name = name.as_str().as_bytes();
        let n = u8::try_from(name.len()).map_err(|_| InviteError::Protocol("a long name"))?;
        let proof = secret.proof(name);
        let bytes = [&[n][..], name, &proof[..]].concat();
        Ok((TokenOpener(secret), bytes))
    }
}

impl TokenOpener {
    /// Opens the token.
    ///
    /// # Errors
    /// It was sealed with another code, or is none.
    pub fn open(&self, sealed: &[u8]) -> Result<JoinToken, InviteError> {
        if sealed.len() > MAX_SEALED {
            return Err(InviteError::Protocol("a long token"));
        }
        let mut bytes = sealed.to_vec();
        let key = self.0.token_key()?;
        let opened = key.open_in_place(nonce(), Aad::from(MAGIC), &mut bytes);
        let opened = opened.map_err(|_| InviteError::Refused)?;
        let text = std::str::from_utf8(opened).ok();
        let token = text.and_then(|text| text.parse().ok());
        token.ok_or(InviteError::Protocol("what it sends is no token"))
    }
}

impl Host {
    /// Begins with the first bytes of a guest; the bytes are for the guest.
    ///
    /// # Errors
    /// Not the message of a guest.
    pub fn start(
        code: &JoinCode,
        hello: &[u8; HELLO_BYTES],
    ) -> Result<(Self, [u8; SPAKE_BYTES]), InviteError> {
        let message = hello.strip_prefix(&MAGIC);
        let message = message.ok_or(InviteError::Protocol("it is no guest"))?;
        let [guest, host] = identities();
        let password = Password::new(code.digits());
        let (spake, ours) = Spake2::<Ed25519Group>::start_b(&password, &guest, &host);
        let secret = Secret::of(spake, message)?;
        let ours = ours.try_into();
        let ours = ours.map_err(|_| InviteError::Protocol("a point of another length"))?;
        Ok((Self(secret), ours))
    }

    /// Seals the token for a guest that has proved the code.
    ///
    /// # Errors
    /// The guest has another code ([`InviteError::Refused`]).
    pub fn seal(
        self,
        name: &[u8],
        proof: &[u8; PROOF_BYTES],
        token: &JoinToken,
    ) -> Result<Vec<u8>, InviteError> {
        // blake3 compares hashes in a time that does not depend on where they differ.
        if self.0.proof_hash(name) != blake3::Hash::from_bytes(*proof) {
            return Err(InviteError::Refused);
        }
        let mut sealed = token.text().into_bytes();
        let key = self.0.token_key()?;
        key.seal_in_place_append_tag(nonce(), Aad::from(MAGIC), &mut sealed)
            .map_err(|_| InviteError::Protocol("the token cannot be sealed"))?;
        Ok(sealed)
    }
}

impl Secret {
    fn of(spake: Spake2<Ed25519Group>, message: &[u8]) -> Result<Self, InviteError> {
        let secret = spake.finish(message).ok();
        let secret = secret.and_then(|secret| secret.try_into().ok());
        secret
            .map(Self)
            .ok_or(InviteError::Protocol("it sends no point of the curve"))
    }

    fn proof_hash(&self, name: &[u8]) -> blake3::Hash {
        let key = blake3::derive_key("atta 2026-11-29 invitation proof v1", &self.0);
        blake3::keyed_hash(&key, name)
    }

    fn proof(&self, name: &[u8]) -> [u8; PROOF_BYTES] {
        *self.proof_hash(name).as_bytes()
    }

    fn token_key(&self) -> Result<LessSafeKey, InviteError> {
        let key = blake3::derive_key("atta 2026-11-29 invitation token v1", &self.0);
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key);
        key.map(LessSafeKey::new)
            .map_err(|_| InviteError::Protocol("a key of another length"))
    }
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key(NONCE)
}
