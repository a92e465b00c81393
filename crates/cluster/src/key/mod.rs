//! The cluster key: 32 random bytes that make a machine a member.
//!
//! Who has the key is a member, and members are equal: everything else (certificates, the
//! beacon's tag and MAC) is derived from it, so that a node has nothing else to keep. The key has a
//! text form to copy by hand and a file of its own. It refuses to know networks; encryption is
//! rustls's, certificates are rcgen's, derivation is BLAKE3's `derive_key`.

mod certificate;
mod file;
#[cfg(test)]
mod tests;
mod text;
mod token;

use std::{fmt, path::PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

pub use certificate::{Identity, is_node_name};
pub(crate) use file::create_private;
pub use token::JoinToken;

/// The key of a cluster. `Debug` prints its public id only; [`text`](Self::text) shows the secret,
/// and so does a message that hands it over.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterKey([u8; ClusterKey::N_BYTES]);

/// What a secret is derived for. Secrets of different purposes tell nothing about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// The public id of the cluster.
    Id,
    /// Seed of the certificate authority.
    Authority,
    /// Seed of the certificate of the node with this name.
    Node(&'a str),
    /// The tag that lets members recognize a beacon.
    BeaconTag,
    /// The key of a beacon's MAC.
    BeaconMac,
}

/// A key that cannot be read, written or used.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system gives no random bytes.
    #[error("the system gives no random bytes for a cluster key")]
    NoRandom,
    /// The text does not begin like a key.
    #[error("not a join token or a cluster key: both begin with `atta1-`")]
    Prefix,
    /// A character that is in no key.
    #[error("join token or key: character {at} is {found:?}, expected a letter or a digit 2 to 7")]
    Character {
        /// The character.
        found: char,
        /// Its place in the text, from 1.
        at: usize,
    },
    /// Characters are missing or too many.
    #[error("join token or key: {found} letters and digits after `atta1-`, expected {expected}")]
    Length {
        /// Characters found, without hyphens and spaces.
        found: usize,
        /// Characters of a key, or of the join token that is nearest in length.
        expected: usize,
    },
    /// The check digits do not fit.
    #[error("join token or key: its check digits do not fit; some character was copied wrongly")]
    Checksum,
    /// A name that no certificate can carry.
    #[error("node name {0:?}: expected 1 to 63 of a-z, 0-9 and hyphens inside")]
    Name(String),
    /// The file of the key can be read by others.
    #[error("{path}: mode {mode:04o} lets others read the cluster key; chmod 600 it", path = .path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file of the key is longer than any key.
    #[error("{path}: is no file of a cluster key", path = .0.display())]
    NotAKeyFile(PathBuf),
    /// The file of the key cannot be read or written.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make the certificate of a node: {0}")]
    Certificate(#[from] rcgen::Error),
    /// rustls refuses the certificates, a bug in atta.
    #[error("cannot use the certificates of the cluster: {0}")]
    Tls(String),
}

impl ClusterKey {
    /// Bytes of a key.
    pub const N_BYTES: usize = 32;

    /// Makes a key from the random bytes of the system.
    ///
    /// # Errors
    /// [`KeyError::NoRandom`].
    pub fn random() -> Result<Self, KeyError> {
        let mut bytes = [0; Self::N_BYTES];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| KeyError::NoRandom)?;
        Ok(Self(bytes))
    }

    /// Takes 32 bytes that are secret and random.
    pub fn from_bytes(bytes: [u8; Self::N_BYTES]) -> Self {
        Self(bytes)
    }

    /// The public id of the cluster: names it in logs and key expressions, tells nothing of the
    /// key.
    pub fn id(&self) -> [u8; 8] {
        let secret = self.secret(Purpose::Id);
        std::array::from_fn(|i| secret[i])
    }

    /// The secret of a purpose: BLAKE3 `derive_key` with a context of its own.
    pub fn secret(&self, purpose: Purpose<'_>) -> [u8; 32] {
        let context = match purpose {
            Purpose::Id => "atta 2026-11-28 cluster id v1",
            Purpose::Authority => "atta 2026-11-28 cluster certificate authority seed v1",
            Purpose::Node(_) => "atta 2026-11-28 cluster node certificate seed v1",
            Purpose::BeaconTag => "atta 2026-11-28 cluster beacon tag v1",
            Purpose::BeaconMac => "atta 2026-11-28 cluster beacon mac v1",
        };
        let name = match purpose {
            Purpose::Node(name) => name,
            _ => "",
        };
        let mut derived = blake3::Hasher::new_derive_key(context);
        derived.update(&self.0).update(name.as_bytes());
        *derived.finalize().as_bytes()
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKey(id {})", hex(&self.id()))
    }
}

/// Lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
