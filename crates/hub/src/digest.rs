//! What a file of the Hub is called by its content: SHA-256 of large files, and git's hash of small
//! ones.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use crate::name::is_hash;

/// The hash that a file must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    /// Of the content, of files that the Hub keeps apart from git ("LFS").
    Sha256(String),
    /// SHA-1 of git's header of a blob and the content.
    GitBlob(String),
}

impl Digest {
    /// SHA-256 in hexadecimal digits.
    pub(crate) fn sha256(text: &str) -> Option<Self> {
        is_hash(text, 64).then(|| Self::Sha256(text.to_owned()))
    }

    /// A git object in hexadecimal digits.
    pub(crate) fn git_blob(text: &str) -> Option<Self> {
        is_hash(text, 40).then(|| Self::GitBlob(text.to_owned()))
    }

    /// The digits, which are the name of the blob in the cache.
    pub(crate) fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::GitBlob(hex) => hex,
        }
    }

    /// The digits, if they are SHA-256 of the content.
    pub(crate) fn as_sha256(&self) -> Option<&str> {
        match self {
            Self::Sha256(hex) => Some(hex),
            Self::GitBlob(_) => None,
        }
    }

    /// The start of a computation over a file of `n_bytes`.
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

/// A hash of what has come so far.
pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digits.
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
