//! Opening a model: one GGUF file or all shards of a split one, mapped or read to the heap, and its tensor directory.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_formats::{Directory, Gguf, SharedBytes};

use crate::{Budget, Error, Extent, Reservation, os::Map};

/// The most shards a split model may have.
const MAX_SHARDS: u32 = 999;

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
    placement: Placement,
}

struct Shard {
    bytes: SharedBytes,
    map: Option<Arc<Map>>,
    _reservation: Option<Reservation>,
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
        for shard_path in shard_paths(path)? {
            let shard = Shard::open(&shard_path, placement, budget)?;
            let header = Gguf::parse(shard.bytes.clone(), shard.bytes.as_ref().as_ref().len() as u64)
                .map_err(|source| Error::Format { path: shard_path, source })?;
            headers.push(header);
            shards.push(shard);
        }
        let directory =
            Directory::from_shards(headers).map_err(|source| Error::Format { path: path.to_owned(), source })?;
        Ok(Self { directory, shards, placement })
    }

    /// Takes a model that is part of the program itself; `name` stands in for the path in errors.
    ///
    /// # Errors
    /// [`Error::Format`] if the bytes are no valid GGUF file.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Self, Error> {
        let bytes: SharedBytes = Arc::new(bytes);
        let len = bytes.as_ref().as_ref().len() as u64;
        let directory = Gguf::parse(bytes.clone(), len)
            .and_then(|header| Directory::from_shards(vec![header]))
            .map_err(|source| Error::Format { path: name.into(), source })?;
        Ok(Self {
            directory,
            shards: vec![Shard { bytes, map: None, _reservation: None }],
            placement: Placement::Mapped,
        })
    }

    /// Metadata and the list of tensors.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// How the bytes are held.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// The length of all files together, bytes.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.len()).sum()
    }

    /// Bytes of the heap that hold weights.
    pub fn resident_bytes(&self) -> u64 {
        self.shards.iter().filter_map(|s| s._reservation.as_ref()).map(Reservation::bytes).sum()
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
        if meta.is_dir() {
            return Err(io(io::Error::new(io::ErrorKind::IsADirectory, "is a directory, expected a GGUF file")));
        }
        match placement {
            // An empty file cannot be mapped; an empty slice gives the parser's "truncated" instead.
            Placement::Mapped if meta.len() > 0 => {
                let map = Arc::new(Map::new(&file).map_err(io)?);
                Ok(Self { bytes: Arc::new(SharedMap(map.clone())), map: Some(map), _reservation: None })
            }
            _ => {
                let reservation = budget.reserve("weights", meta.len())?;
                let mut bytes = Vec::with_capacity(meta.len() as usize);
                file.read_to_end(&mut bytes).map_err(io)?;
                Ok(Self { bytes: Arc::new(bytes), map: None, _reservation: Some(reservation) })
            }
        }
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
fn shard_paths(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let Some((stem, n)) = path.file_name().and_then(|f| f.to_str()).and_then(split_name) else {
        return Ok(vec![path.to_owned()]);
    };
    if n == 0 || n > MAX_SHARDS {
        return Err(Error::Shards {
            path: path.to_owned(),
            what: format!("the name says {n} shards, expected 1 to {MAX_SHARDS}"),
        });
    }
    Ok((1..=n).map(|i| path.with_file_name(format!("{stem}-{i:05}-of-{n:05}.gguf"))).collect())
}

/// Takes `NAME-00002-of-00003.gguf` apart into `NAME` and 3.
fn split_name(file_name: &str) -> Option<(&str, u32)> {
    let rest = file_name.strip_suffix(".gguf")?;
    let (rest, n) = rest.rsplit_once("-of-")?;
    let (stem, i) = rest.rsplit_once('-')?;
    let digits = |s: &str| (s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?;
    let (_, n): (u32, u32) = (digits(i)?, digits(n)?);
    Some((stem, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_any_shard_gives_all_of_them() {
        let paths = shard_paths(Path::new("m/qwen-00002-of-00003.gguf")).unwrap();
        let names: Vec<_> = paths.iter().map(|p| p.to_str().unwrap()).collect();
        assert_eq!(names, ["m/qwen-00001-of-00003.gguf", "m/qwen-00002-of-00003.gguf", "m/qwen-00003-of-00003.gguf"]);
        assert_eq!(shard_paths(Path::new("qwen-1-of-3.gguf")).unwrap().len(), 1);
        assert!(shard_paths(Path::new("qwen-00001-of-00000.gguf")).is_err());
    }

    #[test]
    fn a_missing_file_is_named() {
        let err = ModelFiles::open(Path::new("no/such.gguf"), Placement::Mapped, &Budget::unlimited()).err().unwrap();
        assert!(err.to_string().starts_with("no/such.gguf: "), "{err}");
    }

    #[test]
    fn a_directory_is_refused() {
        assert!(ModelFiles::open(Path::new("."), Placement::Mapped, &Budget::unlimited()).is_err());
    }
}
