//! Content hashes of files on the Hub: SHA-256 for LFS files, git's blob hash for others.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use crate::name::is_hash;

/// The expected hash of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    /// SHA-256 of the content, for LFS files.
    Sha256(String),
    /// SHA-1 of git's blob header and the content, for files in git itself.
    GitBlob(String),
}

impl Digest {
    /// Parses a SHA-256 in lower-case hexadecimal.
    pub(crate) fn sha256(text: &str) -> Option<Self> {
        is_hash(text, 64).then(|| Self::Sha256(text.to_owned()))
    }

    /// Parses a git object id in lower-case hexadecimal.
    pub(crate) fn git_blob(text: &str) -> Option<Self> {
        is_hash(text, 40).then(|| Self::GitBlob(text.to_owned()))
    }

    /// The hash in hexadecimal, which is the name of the blob in the cache.
    pub(crate) fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::GitBlob(hex) => hex,
        }
    }

    /// The hash in hexadecimal, if it is a SHA-256.
    pub(crate) fn as_sha256(&self) -> Option<&str> {
        match self {
            Self::Sha256(hex) => Some(hex),
            Self::GitBlob(_) => None,
        }
    }

    /// Starts hashing a file of `n_bytes`.
    pub(crate) fn hasher(&self, n_bytes: u64) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher(Context::new(&SHA256)),
            Self::GitBlob(_) => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {n_bytes}\0").as_bytes());
                Hasher(context)
            }
        }
    }
}

/// An incremental hash.
pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash in hexadecimal.
    pub(crate) fn finish(self) -> String {
        self.0
            .finish()
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: &Digest, bytes: &[u8]) -> String {
        let mut hasher = digest.hasher(bytes.len() as u64);
        hasher.update(bytes);
        hasher.finish()
    }

    #[test]
    fn the_empty_file_has_its_known_names() {
        let sha = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(&Digest::sha256(sha).unwrap(), b""), sha);
        // `git hash-object /dev/null`
        let git = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        assert_eq!(hex(&Digest::git_blob(git).unwrap(), b""), git);
    }

    #[test]
    fn what_is_no_hash_names_no_file() {
        assert_eq!(Digest::sha256("../../etc/passwd"), None);
        assert_eq!(Digest::git_blob(&"G".repeat(40)), None);
    }
}
