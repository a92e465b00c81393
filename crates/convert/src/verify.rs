//! Compares whole files with the checksums and the hash that they hold.
//!
//! It refuses to know how checksums are laid out; `atta-store` walks the file and compares pieces.
//! The one idea: a file is read once for both, and what the checksums do not cover, the digits of
//! the hash themselves, the hash tells.

use atta_store::{FileVerification, ModelFiles};

/// A file that was compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedFile {
    /// What the checksums say.
    pub checksums: FileVerification,
    /// The BLAKE3 hash of the file, as 64 hexadecimal digits.
    pub root: String,
}

impl VerifiedFile {
    /// Whether every byte is as it was written.
    pub fn is_whole(&self) -> bool {
        self.checksums.damages.is_empty() && self.root == self.checksums.root
    }
}

/// Compares all files of a model with their checksums and hashes. `progress` gets the bytes that
/// were compared so far.
///
/// # Errors
/// Files without checksums, or that cannot be read.
pub fn verify(
    files: &ModelFiles,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<VerifiedFile>, atta_store::Error> {
    let mut done = 0;
    let mut file = |shard| {
        let mut hasher = blake3::Hasher::new();
        let checksums = files.verify_file(shard, |bytes| {
            hasher.update(bytes);
            done += bytes.len() as u64;
            progress(done);
        })?;
        Ok(VerifiedFile {
            checksums,
            root: hasher.finalize().to_hex().to_string(),
        })
    };
    (0..files.directory().n_shards()).map(&mut file).collect()
}
