//! Opening a model: one GGUF file or all shards of a split one, and its tensor directory.
//!
//! Files are mapped, which costs nothing until somebody reads. A model that is to be read into
//! memory of our own lets its maps go again ([`ModelFiles::unmapped`]) and keeps only a copy of
//! what stands before the tensors.

use std::{
    borrow::Cow,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use atta_formats::{
    Directory, Gguf, SharedBytes,
    gguf::{shard_file_name, shard_of_file_name},
};

use crate::{
    Budget, Error, Extent, Reservation,
    os::{Map, ReadMethod, Source, check_unchanged},
};

/// The files of one model, open, and what they say about themselves.
pub struct ModelFiles {
    directory: Directory,
    shards: Vec<Shard>,
    _headers: Option<Reservation>,
}

impl std::fmt::Debug for ModelFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelFiles")
            .field("n_shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

struct Shard {
    origin: Origin,
    /// Length of the whole file, bytes.
    len: u64,
    /// When the file was written, as it was opened: whoever opens it again must find the same.
    modified: Option<SystemTime>,
    /// The file, or as much of it as is kept.
    bytes: SharedBytes,
    map: Option<Mapped>,
}

/// What is known of a file without reading its tensors.
pub(crate) struct FileFacts<'a> {
    /// Bytes.
    pub(crate) len: u64,
    /// When it was written, as far as the system knows.
    pub(crate) modified: Option<SystemTime>,
    /// What stands before the tensors.
    pub(crate) header: &'a [u8],
    /// Part of the program.
    pub(crate) is_static: bool,
}

/// A mapped file.
struct Mapped {
    map: Arc<Map>,
    file: File,
}

#[derive(Clone)]
enum Origin {
    File(PathBuf),
    /// Part of the program.
    Static(PathBuf, &'static [u8]),
}

impl ModelFiles {
    /// Maps the model at `path`; of a split model any shard may be named.
    ///
    /// A file must not be truncated or rewritten by another process while it is mapped.
    ///
    /// # Errors
    /// A file that cannot be opened, a shard that is missing, bytes that are no valid GGUF.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let shards = shard_paths(path)
            .iter()
            .map(|path| Shard::map(path))
            .collect::<Result<_, _>>()?;
        Self::parse(path, shards, None)
    }

    /// Takes a model that is part of the program itself; `name` stands in for the path in errors.
    ///
    /// # Errors
    /// [`Error::Format`] if the bytes are no valid GGUF file.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Self, Error> {
        let origin = Origin::Static(name.into(), bytes);
        let len = bytes.len() as u64;
        let shard = Shard {
            origin,
            len,
            modified: None,
            bytes: Arc::new(bytes),
            map: None,
        };
        Self::parse(name.as_ref(), vec![shard], None)
    }

    fn parse(path: &Path, shards: Vec<Shard>, headers: Option<Reservation>) -> Result<Self, Error> {
        let parsed = shards.iter().map(|shard| {
            let format = |source| Error::Format {
                path: shard.path().to_owned(),
                source,
            };
            Gguf::parse(shard.bytes.clone(), shard.len).map_err(format)
        });
        let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        let directory = Directory::from_shards(parsed).map_err(|source| Error::Format {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            directory,
            shards,
            _headers: headers,
        })
    }

    /// The same files without their maps: what stands before the tensors is copied, the tensors are
    /// out of reach until somebody reads them ([`read`](Self::read)).
    ///
    /// # Errors
    /// A budget without room for the copies.
    pub fn unmapped(self, budget: &Budget) -> Result<Self, Error> {
        let ends: Vec<usize> = (0..self.shards.len()).map(|i| self.header_end(i)).collect();
        let copied =
            |(shard, end): (&Shard, &usize)| if shard.map.is_some() { *end as u64 } else { 0 };
        let headers =
            budget.reserve("metadata", self.shards.iter().zip(&ends).map(copied).sum())?;
        let copy = |(shard, &end): (&Shard, &usize)| {
            let bytes: SharedBytes = match &shard.origin {
                Origin::File(_) => Arc::new(shard.bytes()[..end].to_vec()),
                Origin::Static(..) => shard.bytes.clone(),
            };
            let Shard { len, modified, .. } = *shard;
            Shard {
                origin: shard.origin.clone(),
                len,
                modified,
                bytes,
                map: None,
            }
        };
        let shards: Vec<Shard> = self.shards.iter().zip(&ends).map(copy).collect();
        let path = shards[0].path().to_owned();
        drop(self);
        Self::parse(&path, shards, Some(headers))
    }

    /// Where the first tensor of a shard begins.
    fn header_end(&self, shard: usize) -> usize {
        let tensors = self
            .directory
            .tensors()
            .iter()
            .filter(|t| usize::from(t.shard) == shard);
        let bytes = self.shards[shard].bytes();
        tensors
            .map(|t| t.offset as usize)
            .min()
            .unwrap_or(bytes.len())
            .min(bytes.len())
    }

    /// Metadata and the list of tensors.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The length of all files together, bytes.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.len).sum()
    }

    /// Reads every page of mapped files now, so that the first token does not wait for the disk.
    ///
    /// # Errors
    /// [`Error::Prewarm`] with what the system says.
    pub fn prewarm(&self) -> Result<(), Error> {
        self.shards
            .iter()
            .filter_map(|s| s.map.as_ref())
            .try_for_each(|m| m.map.populate())
            .map_err(Error::Prewarm)
    }

    /// Whether mapped files are still what they were when they were mapped, and all that was read
    /// of them could be read.
    ///
    /// # Errors
    /// A file that became shorter, was written to, or could not be read everywhere.
    pub(crate) fn check_unchanged(&self) -> Result<(), Error> {
        self.shards.iter().try_for_each(|shard| {
            let unchanged = shard
                .map
                .as_ref()
                .map_or(Ok(()), |mapped| mapped.check(shard.len, shard.modified));
            unchanged.map_err(|source| Error::Io {
                path: shard.path().to_owned(),
                source,
            })
        })
    }

    /// The bytes of an extent, if they are addressable; `None` if they are not, or lie outside of
    /// the file.
    pub fn bytes(&self, extent: Extent) -> Option<&[u8]> {
        let shard = self.shards.get(usize::from(extent.shard))?;
        let start = usize::try_from(extent.offset).ok()?;
        let end = start.checked_add(usize::try_from(extent.bytes).ok()?)?;
        shard.bytes().get(start..end)
    }

    /// The bytes of an extent, read from the file if they are not addressable.
    ///
    /// # Errors
    /// An extent outside of its file, and what the system says.
    pub fn read(&self, extent: Extent) -> Result<Cow<'_, [u8]>, Error> {
        if let Some(bytes) = self.bytes(extent) {
            return Ok(Cow::Borrowed(bytes));
        }
        self.check(extent)?;
        let shard = &self.shards[usize::from(extent.shard)];
        let mut bytes = vec![0; extent.bytes as usize];
        let io = |source| Error::Io {
            path: shard.path().to_owned(),
            source,
        };
        shard
            .source(None)?
            .read_small(extent.offset, &mut bytes)
            .map_err(io)?;
        Ok(Cow::Owned(bytes))
    }

    /// Refuses an extent outside of its file.
    pub(crate) fn check(&self, extent: Extent) -> Result<(), Error> {
        let len = self
            .shards
            .get(usize::from(extent.shard))
            .map_or(0, |shard| shard.len);
        match extent.offset.checked_add(extent.bytes) {
            Some(end) if end <= len && usize::try_from(extent.bytes).is_ok() => Ok(()),
            _ => Err(self.out_of_file(extent)),
        }
    }

    pub(crate) fn out_of_file(
        &self,
        Extent {
            shard,
            offset,
            bytes,
        }: Extent,
    ) -> Error {
        let file_bytes = self
            .shards
            .get(usize::from(shard))
            .map_or(0, |shard| shard.len);
        Error::OutOfFile {
            shard,
            offset,
            bytes,
            file_bytes,
        }
    }

    /// What is known of each file.
    pub(crate) fn facts(&self) -> impl Iterator<Item = FileFacts<'_>> {
        self.shards.iter().enumerate().map(|(i, shard)| FileFacts {
            len: shard.len,
            modified: shard.modified,
            header: &shard.bytes()[..self.header_end(i)],
            is_static: matches!(shard.origin, Origin::Static(..)),
        })
    }

    /// Opens every shard for reading at given places.
    pub(crate) fn sources(&self, method: Option<ReadMethod>) -> Result<Vec<Source>, Error> {
        self.shards
            .iter()
            .map(|shard| shard.source(method))
            .collect()
    }
}

impl Shard {
    fn map(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let refuse = |why: &str| Err(io(io::Error::new(io::ErrorKind::InvalidInput, why)));
        // A device or a pipe has no length, and might never end; opening a pipe might wait for
        // ever.
        match path.metadata().map_err(io)? {
            meta if meta.is_dir() => {
                return refuse("is a directory: name a .gguf file, or make one by `atta convert`");
            }
            meta if !meta.is_file() => return refuse("is not a regular file"),
            _ => {}
        }
        let file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        let (origin, len) = (Origin::File(path.to_owned()), meta.len());
        if len == 0 {
            return refuse("is empty");
        }
        let map = Arc::new(Map::new(&file).map_err(io)?);
        let bytes = Arc::new(SharedMap(map.clone()));
        Ok(Self {
            origin,
            len,
            modified: meta.modified().ok(),
            bytes,
            map: Some(Mapped { map, file }),
        })
    }

    /// The shard, opened for reading at given places.
    fn source(&self, method: Option<ReadMethod>) -> Result<Source, Error> {
        match &self.origin {
            Origin::Static(name, bytes) => Ok(Source::of_program(name, bytes)),
            Origin::File(path) => {
                let open = Source::open(path, method)
                    .and_then(|s| s.must_be(self.len, self.modified).map(|()| s));
                open.map_err(|source| Error::Io {
                    path: path.clone(),
                    source,
                })
            }
        }
    }

    fn path(&self) -> &Path {
        match &self.origin {
            Origin::File(path) | Origin::Static(path, _) => path,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.as_ref().as_ref()
    }
}

impl Mapped {
    fn check(&self, len: u64, modified: Option<SystemTime>) -> io::Result<()> {
        check_unchanged(&self.file, len, modified)?;
        match self.map.is_damaged() {
            true => Err(io::Error::other("a part of the file cannot be read")),
            false => Ok(()),
        }
    }
}

/// Lets the parsed metadata and the shard share one map.
struct SharedMap(Arc<Map>);

impl AsRef<[u8]> for SharedMap {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().as_ref()
    }
}

/// All files of the model that `path` belongs to, in order: itself, or `NAME-00001-of-00003.gguf`
/// and its siblings. Of a link with another name, the files that it leads to.
fn shard_paths(path: &Path) -> Vec<PathBuf> {
    let real = || path.canonicalize().ok().and_then(|real| siblings(&real));
    siblings(path)
        .or_else(real)
        .unwrap_or_else(|| vec![path.to_owned()])
}

fn siblings(path: &Path) -> Option<Vec<PathBuf>> {
    let (stem, _, count) = shard_of_file_name(path.file_name()?.to_str()?)?;
    Some(
        (0..count)
            .map(|no| path.with_file_name(shard_file_name(stem, no, count)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_any_shard_gives_all_of_them() {
        let paths = shard_paths(Path::new("m/qwen-00002-of-00003.gguf"));
        let names: Vec<_> = paths.iter().map(|p| p.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "m/qwen-00001-of-00003.gguf",
                "m/qwen-00002-of-00003.gguf",
                "m/qwen-00003-of-00003.gguf"
            ]
        );
        assert_eq!(shard_paths(Path::new("qwen-1-of-3.gguf")).len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_with_another_name_leads_to_all_shards() {
        let folder = std::env::temp_dir().join(format!("atta-shards-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("m-00001-of-00002.gguf"), "").unwrap();
        std::os::unix::fs::symlink("m-00001-of-00002.gguf", folder.join("model.gguf")).unwrap();
        let names: Vec<_> = shard_paths(&folder.join("model.gguf"))
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(names, ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let err = ModelFiles::open(Path::new("no/such.gguf")).err().unwrap();
        assert!(err.to_string().starts_with("no/such.gguf: "), "{err}");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_before_it_is_read() {
        for path in [".", "/dev/zero"] {
            assert!(
                matches!(ModelFiles::open(Path::new(path)), Err(Error::Io { .. })),
                "{path}"
            );
        }
    }
}
