//! Hashes of whole files, kept so that each file is hashed once.
//!
//! ```text
//! 0   "ATH1"
//! 4   u64 bytes of the file, u64 s and u32 ns of its last change since 1970, u64 inode
//! 32  its index, as a sidecar has it
//! ```
//! Little-endian. Hashes count as long as a file of this path has these properties. A file that was
//! changed without changing any of them is found by nodes whose copies have other hashes.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use super::{PartError, PartIndex, file::at, file::with_suffix};

const MAGIC: &[u8; 4] = b"ATH1";
const N_STAMP: usize = 32;
/// Most bytes of a file of hashes.
const MAX_BYTES: u64 = 64 << 20;

/// Tells a file from its later versions.
type Stamp = [u8; N_STAMP];

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    let modified = metadata.modified()?.duration_since(UNIX_EPOCH);
    let modified = modified.unwrap_or_default();
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0_u64;
    let mut stamp = [0; N_STAMP];
    stamp[..4].copy_from_slice(MAGIC);
    stamp[4..12].copy_from_slice(&metadata.len().to_le_bytes());
    stamp[12..20].copy_from_slice(&modified.as_secs().to_le_bytes());
    stamp[20..24].copy_from_slice(&modified.subsec_nanos().to_le_bytes());
    stamp[24..].copy_from_slice(&inode.to_le_bytes());
    Ok(stamp)
}

/// The file that keeps the hashes of the file at `path`.
fn kept_in(directory: &Path, path: &Path) -> PathBuf {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = blake3::hash(path.as_os_str().as_encoded_bytes());
    directory.join(format!("{}.hash", name.to_hex()))
}

/// The hashes of a file, if they are kept and it has not changed.
pub(super) fn read(directory: &Path, path: &Path) -> Option<PartIndex> {
    let expected = stamp(path).ok()?;
    let mut bytes = Vec::new();
    let file = File::open(kept_in(directory, path)).ok()?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let (found, index) = bytes.split_first_chunk::<N_STAMP>()?;
    let index = PartIndex::parse(index)
        .ok()
        .filter(|_| *found == expected)?;
    (index.file_bytes() == fs::metadata(path).ok()?.len()).then_some(index)
}

/// Keeps the hashes of a file.
///
/// # Errors
/// The error of the system.
pub(super) fn write(directory: &Path, path: &Path, index: &PartIndex) -> Result<(), PartError> {
    let kept = kept_in(directory, path);
    // Others may hash the same file at the same time.
    let writer = (std::process::id(), std::thread::current().id());
    let new = with_suffix(&kept, &format!(".{writer:?}.new"));
    let done = || {
        fs::create_dir_all(directory)?;
        let mut file = File::create(&new)?;
        file.write_all(&stamp(path)?)?;
        file.write_all(&index.to_bytes())?;
        drop(file);
        fs::rename(&new, &kept)
    };
    done().or_else(|source| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&new);
        // Windows replaces no file that is being read, and others may have kept the same hashes.
        match read(directory, path) {
            Some(found) if found == *index => Ok(()),
            _ => Err(at(&kept, source)),
        }
    })
}

#[cfg(test)]
mod tests {
    use atta_store::ModelFiles;

    use super::*;
    use crate::part::index_of;

    #[test]
    fn several_keep_the_hashes_of_a_file_at_once() {
        let directory = std::env::temp_dir().join(format!("atta-kept-{}", std::process::id()));
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
        let files = ModelFiles::open(&model).unwrap();
        let index = &index_of(&files).unwrap()[0];
        let keep = || (0..50).for_each(|_| write(&directory, &model, index).unwrap());
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(keep))));
        assert_eq!(read(&directory, &model).as_ref(), Some(index));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
