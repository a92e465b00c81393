//! Opening a model: one GGUF file or all shards of a split one, mapped or read to the heap, and its tensor directory.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_formats::{
    Directory, Gguf, SharedBytes,
    gguf::{shard_file_name, shard_of_file_name},
};

use crate::{Budget, Error, Extent, Reservation, os::Map};

/// How the bytes of a file are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// Mapped: no copy, pages come and go with the kernel's page cache.
    #[default]
    Mapped,
    /// Read to the heap once: counts as private memory, never evicted (unless there is swap).
    Resident,
}

/// The files of one model, open, and what they say about themselves.
///
/// A mapped file must not be truncated or rewritten by another process while it is open.
pub struct ModelFiles {
    directory: Directory,
    shards: Vec<Shard>,
}

struct Shard {
    bytes: SharedBytes,
    map: Option<Arc<Map>>,
    reservation: Option<Reservation>,
}

impl ModelFiles {
    /// Opens the model at `path`; of a split model any shard may be named.
    ///
    /// # Errors
    /// A file that cannot be opened, a shard that is missing, bytes that are no valid GGUF, or (resident only) a file
    /// that does not fit into the budget.
    pub fn open(path: &Path, placement: Placement, budget: &Budget) -> Result<Self, Error> {
        let mut shards = Vec::new();
        let mut headers = Vec::new();
        for shard_path in shard_paths(path) {
            let shard = Shard::open(&shard_path, placement, budget)?;
            let header = Gguf::parse(shard.bytes.clone(), shard.bytes.as_ref().as_ref().len() as u64)
                .map_err(|source| Error::Format { path: shard_path, source })?;
            headers.push(header);
            shards.push(shard);
        }
        let directory =
            Directory::from_shards(headers).map_err(|source| Error::Format { path: path.to_owned(), source })?;
        Ok(Self { directory, shards })
    }

    /// Takes a model that is part of the program itself; `name` stands in for the path in errors. Such bytes are
    /// addressable as mapped ones are; a resident model is a copy of them.
    ///
    /// # Errors
    /// [`Error::Format`] if the bytes are no valid GGUF file, or (resident only) a copy that does not fit the budget.
    pub fn from_static(name: &str, bytes: &'static [u8], placement: Placement, budget: &Budget) -> Result<Self, Error> {
        let shard = match placement {
            Placement::Mapped => Shard { bytes: Arc::new(bytes), map: None, reservation: None },
            Placement::Resident => Shard::resident(bytes.len() as u64, budget, |_| Ok(bytes.to_vec()))?,
        };
        let directory = Gguf::parse(shard.bytes.clone(), bytes.len() as u64)
            .and_then(|header| Directory::from_shards(vec![header]))
            .map_err(|source| Error::Format { path: name.into(), source })?;
        Ok(Self { directory, shards: vec![shard] })
    }

    /// Metadata and the list of tensors.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The length of all files together, bytes.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.len()).sum()
    }

    /// Bytes of the heap that hold weights.
    pub fn resident_bytes(&self) -> u64 {
        self.shards.iter().filter_map(|s| s.reservation.as_ref()).map(Reservation::bytes).sum()
    }

    /// Reads every page of mapped files now, so that the first token does not wait for the disk.
    ///
    /// # Errors
    /// [`Error::Prewarm`] with what the system says.
    pub fn prewarm(&self) -> Result<(), Error> {
        self.shards.iter().filter_map(|s| s.map.as_ref()).try_for_each(|m| m.populate()).map_err(Error::Prewarm)
    }

    /// The bytes of an extent; `None` if it lies outside of its file.
    pub fn bytes(&self, extent: Extent) -> Option<&[u8]> {
        let shard = self.shards.get(usize::from(extent.shard))?;
        let start = usize::try_from(extent.offset).ok()?;
        let end = start.checked_add(usize::try_from(extent.bytes).ok()?)?;
        shard.bytes.as_ref().as_ref().get(start..end)
    }

    /// The length of one shard, bytes; 0 if there is no such shard.
    pub(crate) fn shard_bytes(&self, shard: u16) -> u64 {
        self.shards.get(usize::from(shard)).map_or(0, Shard::len)
    }
}

impl Shard {
    fn open(path: &Path, placement: Placement, budget: &Budget) -> Result<Self, Error> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        if !meta.is_file() {
            // A device or a pipe has no length, and might never end.
            return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")));
        }
        match placement {
            // An empty file cannot be mapped; an empty slice gives the parser's "truncated" instead.
            Placement::Mapped if meta.len() > 0 => {
                let map = Arc::new(Map::new(&file).map_err(io)?);
                Ok(Self { bytes: Arc::new(SharedMap(map.clone())), map: Some(map), reservation: None })
            }
            _ => Self::resident(meta.len(), budget, |len| {
                let mut copy = vec![0; len];
                file.read_exact(&mut copy).map_err(io)?;
                Ok(copy)
            }),
        }
    }

    /// A heap copy of `len` bytes, asked of the budget before `copy` makes it.
    fn resident(len: u64, budget: &Budget, copy: impl FnOnce(usize) -> Result<Vec<u8>, Error>) -> Result<Self, Error> {
        let reservation = Some(budget.reserve("weights", len)?);
        let too_large = |_| Error::OverBudget { what: "weights", asked: len, used: 0, limit: usize::MAX as u64 };
        let bytes = copy(usize::try_from(len).map_err(too_large)?)?;
        Ok(Self { bytes: Arc::new(bytes), map: None, reservation })
    }

    fn len(&self) -> u64 {
        self.bytes.as_ref().as_ref().len() as u64
    }
}

/// Lets the parsed metadata and the shard share one map.
struct SharedMap(Arc<Map>);

impl AsRef<[u8]> for SharedMap {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().as_ref()
    }
}

/// All files of the model that `path` belongs to, in order: itself, or `NAME-00001-of-00003.gguf` and its siblings.
fn shard_paths(path: &Path) -> Vec<PathBuf> {
    match path.file_name().and_then(|name| name.to_str()).and_then(shard_of_file_name) {
        Some((stem, _, count)) => (0..count).map(|no| path.with_file_name(shard_file_name(stem, no, count))).collect(),
        None => vec![path.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_any_shard_gives_all_of_them() {
        let paths = shard_paths(Path::new("m/qwen-00002-of-00003.gguf"));
        let names: Vec<_> = paths.iter().map(|p| p.to_str().unwrap()).collect();
        assert_eq!(names, ["m/qwen-00001-of-00003.gguf", "m/qwen-00002-of-00003.gguf", "m/qwen-00003-of-00003.gguf"]);
        assert_eq!(shard_paths(Path::new("qwen-1-of-3.gguf")).len(), 1);
    }

    #[test]
    fn a_missing_file_is_named() {
        let err = ModelFiles::open(Path::new("no/such.gguf"), Placement::Mapped, &Budget::unlimited()).err().unwrap();
        assert!(err.to_string().starts_with("no/such.gguf: "), "{err}");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_before_it_is_read() {
        for path in [".", "/dev/zero"] {
            for placement in [Placement::Mapped, Placement::Resident] {
                let refused = ModelFiles::open(Path::new(path), placement, &Budget::unlimited());
                assert!(matches!(refused, Err(Error::Io { .. })), "{path}");
            }
        }
    }

    #[test]
    fn a_resident_copy_of_built_in_bytes_counts_in_the_budget() {
        let (bytes, len) = minimal();
        let budget = Budget::unlimited();
        let files = ModelFiles::from_static("built-in", bytes, Placement::Resident, &budget).unwrap();
        assert_eq!((files.resident_bytes(), budget.used()), (len, len));
        let files = ModelFiles::from_static("built-in", bytes, Placement::Mapped, &budget).unwrap();
        assert_eq!(files.resident_bytes(), 0);
    }

    /// A GGUF file without tensors.
    fn minimal() -> (&'static [u8], u64) {
        let header = atta_formats::Writer::new().finish().unwrap().header;
        let len = header.len() as u64;
        (header.leak(), len)
    }
}
