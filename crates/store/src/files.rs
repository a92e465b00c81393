//! Opening a model: one file or all shards of a split one, and its tensor directory.
//!
//! Files are mapped, which reads nothing until bytes are accessed. A model that is to be read into
//! private memory drops its maps ([`ModelFiles::unmapped`]) and keeps only a copy of the
//! bytes before the tensors.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_formats::{
    Contents, Directory, SharedBytes,
    gguf::{Checksums, shard_file_names},
    is_scattered,
    qsf::Header,
};

use crate::{
    Budget, Error, Extent, MappedFile, ReadAt, ReadMethod, Reservation,
    checks::{Checks, ShardChecks},
    source::Source,
};

/// Bytes read at first of a source that is not addressable, to find the metadata.
const FIRST_READ_BYTES: u64 = 1 << 20;

/// The smallest pages of memory.
const PAGE_BYTES: usize = 4 << 10;

/// The files of one model, open, with their metadata and tensor directory.
pub struct ModelFiles {
    directory: Directory,
    shards: Vec<Shard>,
    /// Bytes that a part of the files lacks, in order.
    holes: Vec<Hole>,
    checks: Arc<Checks>,
    _headers: Vec<Reservation>,
}

impl std::fmt::Debug for ModelFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelFiles")
            .field("n_shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

/// A tensor that a part of a model's files lacks: its bytes read as zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The absent bytes.
    pub extent: Extent,
    /// Name of the tensor, for errors.
    pub tensor: String,
}

/// One file of a model that is not read from the file system.
#[derive(Clone)]
pub struct ModelSource {
    /// Stands in for the path in errors.
    pub name: String,
    /// The bytes of the file.
    pub bytes: Arc<dyn ReadAt>,
}

impl std::fmt::Debug for ModelSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelSource")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

struct Shard {
    source: Source,
    /// The bytes that the directory points into: the whole file if it is addressable, otherwise a
    /// copy of the bytes before its tensors.
    start: SharedBytes,
}

impl ModelFiles {
    /// Maps the model at `path`; of a split model any shard may be named.
    ///
    /// A file must not be truncated or rewritten by another process while it is mapped.
    ///
    /// # Errors
    /// A file that cannot be opened, a shard that is missing, bytes that are no valid model file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let shards = shard_paths(path)
            .iter()
            .map(|path| Ok(Shard::addressable(map(path)?)))
            .collect::<Result<_, _>>()?;
        Self::parse(path, shards, Vec::new())
    }

    /// Maps a part of the model at `path`: files of the full length, in which the tensors of
    /// `holes` are absent. To read or to plan with one of them is [`Error::Absent`].
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_part(path: &Path, mut holes: Vec<Hole>) -> Result<Self, Error> {
        holes.sort_by_key(|hole| (hole.extent.shard, hole.extent.offset));
        Ok(Self {
            holes,
            ..Self::open(path)?
        })
    }

    /// Takes a model that is built into the program; `name` stands in for the path in errors.
    ///
    /// # Errors
    /// [`Error::Format`] if the bytes are no valid model file.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Self, Error> {
        let shard = Shard::addressable(Source::other(name, Arc::new(bytes)));
        Self::parse(name.as_ref(), vec![shard], Vec::new())
    }

    /// Opens a model from other sources than files: one, or all shards in order. Of a source that
    /// is not addressable the metadata is copied, under the budget; tensors are accessible by
    /// [`read`](Self::read) and by streamed weights.
    ///
    /// # Errors
    /// A source that cannot be read, a budget too small for the copies, bytes that are no valid
    /// model file.
    ///
    /// ```
    /// use std::{io, sync::Arc};
    ///
    /// use atta_formats::{TensorType, Writer};
    /// use atta_store::{Budget, ModelFiles, ModelSource, ReadAt};
    ///
    /// /// Bytes of another device, which are copied when they are read.
    /// struct Remote(Vec<u8>);
    ///
    /// impl ReadAt for Remote {
    ///     fn n_bytes(&self) -> u64 {
    ///         self.0.len() as u64
    ///     }
    ///
    ///     fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    ///         let found = self.0.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
    ///         buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut writer = Writer::new();
    /// writer.add_tensor("output.weight", &[2, 4], TensorType::F32)?;
    /// let layout = writer.finish()?;
    /// let mut bytes = layout.header;
    /// bytes.resize(layout.file_bytes as usize, 0);
    ///
    /// let source = ModelSource {
    ///     name: "remote".to_owned(),
    ///     bytes: Arc::new(Remote(bytes)),
    /// };
    /// let files = ModelFiles::from_sources(vec![source], &Budget::unlimited())?;
    /// assert_eq!(files.directory().tensors()[0].name, "output.weight");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_sources(sources: Vec<ModelSource>, budget: &Budget) -> Result<Self, Error> {
        let mut headers = Vec::new();
        let shard = |ModelSource { name, bytes }| {
            let source = Source::other(name, bytes);
            if source.bytes().is_some() {
                return Ok(Shard::addressable(source));
            }
            let (start, reserved) = read_start(&source, budget)?;
            headers.push(reserved);
            Ok(Shard { source, start })
        };
        let shards: Vec<Shard> = sources
            .into_iter()
            .map(shard)
            .collect::<Result<_, Error>>()?;
        let first = shards.first().map(|shard| shard.source.path().to_owned());
        Self::parse(&first.unwrap_or_default(), shards, headers)
    }

    fn parse(path: &Path, shards: Vec<Shard>, headers: Vec<Reservation>) -> Result<Self, Error> {
        let parsed = shards.iter().map(Shard::contents);
        let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        let checks = shards.iter().zip(&parsed);
        let checks = checks.map(|(shard, contents)| shard.checks(contents));
        let checks = Checks {
            shards: checks.collect(),
        };
        let directory = Directory::from_shards(parsed).map_err(|source| Error::Format {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            directory,
            shards,
            holes: Vec::new(),
            checks: Arc::new(checks),
            _headers: headers,
        })
    }

    /// Returns the same files without their maps: the bytes before the tensors are copied, and
    /// tensors are accessible by [`read`](Self::read) only.
    ///
    /// # Errors
    /// A budget too small for the copies; a file that cannot be opened again or changed.
    pub fn unmapped(self, budget: &Budget) -> Result<Self, Error> {
        let (shards, headers) = self.unmapped_shards(budget)?;
        let path = shards[0].source.path().to_owned();
        let holes = self.holes;
        drop((self.directory, self.shards));
        Ok(Self {
            holes,
            ..Self::parse(&path, shards, vec![headers])?
        })
    }

    /// The same files once more, without maps, for a part of the model that is kept elsewhere.
    ///
    /// # Errors
    /// As [`unmapped`](Self::unmapped).
    pub fn reopened(&self, budget: &Budget) -> Result<Self, Error> {
        let (shards, headers) = self.unmapped_shards(budget)?;
        let path = shards[0].source.path().to_owned();
        Ok(Self {
            holes: self.holes.clone(),
            ..Self::parse(&path, shards, vec![headers])?
        })
    }

    /// Its files without their maps, and the memory of the bytes before the tensors.
    fn unmapped_shards(&self, budget: &Budget) -> Result<(Vec<Shard>, Reservation), Error> {
        let sources = self.unmapped_sources(None)?;
        let copied = self.copied_bytes(&sources)?;
        let headers = budget.reserve("metadata", copied)?;
        let shard = |(i, source): (usize, Source)| match source.bytes() {
            Some(_) => Shard::addressable(source),
            None => Shard {
                source,
                start: Arc::new(self.header(i).to_vec()),
            },
        };
        let shards = sources.into_iter().enumerate().map(shard);
        Ok((shards.collect(), headers))
    }

    /// Bytes of metadata that are copied where sources are not addressable.
    fn copied_bytes(&self, sources: &[Source]) -> Result<u64, Error> {
        let mut copied = 0;
        for (i, source) in sources.iter().enumerate() {
            if source.bytes().is_none() {
                let header = self.header(i);
                copied += header.len() as u64 + n_scattered(source, header)?;
            }
        }
        Ok(copied)
    }

    /// The bytes before the first tensor of a shard.
    pub(crate) fn header(&self, shard: usize) -> &[u8] {
        let start = self.shards[shard].start();
        let tensors = self.directory.tensors().iter();
        let end = tensors
            .filter(|t| usize::from(t.shard) == shard)
            .map(|t| t.offset as usize)
            .min();
        &start[..end.map_or(start.len(), |end| end.min(start.len()))]
    }

    /// Metadata and the list of tensors.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The length of all files together, bytes.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.source.n_bytes()).sum()
    }

    /// Whether all bytes are addressable without a read.
    pub fn is_addressable(&self) -> bool {
        let mut sources = self.shards.iter().map(|shard| &shard.source);
        sources.all(|source| source.bytes().is_some())
    }

    /// Whether the metadata of a file is all over it, so that the bytes before its tensors do not
    /// say what they are.
    pub fn is_scattered(&self) -> bool {
        let mut starts = self.shards.iter().map(Shard::start);
        starts.any(is_scattered)
    }

    /// Reads every page of mapped files now, so that the first token does not wait for the disk.
    ///
    /// # Errors
    /// [`Error::Prewarm`] with the error of the system.
    pub fn prewarm(&self) -> Result<(), Error> {
        self.shards
            .iter()
            .try_for_each(|shard| shard.source.prewarm())
            .map_err(Error::Prewarm)
    }

    /// Reads the pages of some extents of mapped files now; extents that are not addressable are
    /// left alone.
    pub fn prewarm_extents(&self, extents: impl Iterator<Item = Extent>) {
        for bytes in extents.filter_map(|extent| self.bytes(extent)) {
            let touched = bytes.iter().step_by(PAGE_BYTES).chain(bytes.last());
            std::hint::black_box(touched.fold(0, |all, byte| all ^ byte));
        }
    }

    /// Checks that the files are still those that were opened, and that all reads so far
    /// succeeded.
    ///
    /// # Errors
    /// A file that became shorter, was written to, or could not be read everywhere.
    pub(crate) fn check_unchanged(&self) -> Result<(), Error> {
        self.shards
            .iter()
            .try_for_each(|shard| at(&shard.source, shard.source.check_unchanged()))
    }

    /// The bytes of an extent, if they are addressable; `None` if they are not, are absent, or lie
    /// outside of the file.
    pub fn bytes(&self, extent: Extent) -> Option<&[u8]> {
        if self.hole(extent).is_some() {
            return None;
        }
        let shard = self.shards.get(usize::from(extent.shard))?;
        let start = usize::try_from(extent.offset).ok()?;
        let end = start.checked_add(usize::try_from(extent.bytes).ok()?)?;
        shard.start().get(start..end)
    }

    /// The bytes of an extent, read from the file if they are not addressable.
    ///
    /// # Errors
    /// An extent outside of its file or absent from it, and the error of the system.
    pub fn read(&self, extent: Extent) -> Result<Cow<'_, [u8]>, Error> {
        if let Some(bytes) = self.bytes(extent) {
            return Ok(Cow::Borrowed(bytes));
        }
        self.check(extent)?;
        let source = &self.shards[usize::from(extent.shard)].source;
        let mut bytes = vec![0; extent.bytes as usize];
        at(source, source.read_exact_at(extent.offset, &mut bytes))?;
        self.checks.check(extent, &bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Whether all files hold checksums, with which streamed bytes are compared.
    pub fn has_checksums(&self) -> bool {
        self.checks.shards.iter().all(Option::is_some)
    }

    /// The checksums of all files, for bytes that are read.
    pub(crate) fn checks(&self) -> Arc<Checks> {
        self.checks.clone()
    }

    /// The checksums of a file.
    ///
    /// # Errors
    /// [`Error::NoChecksums`]; [`Error::Format`] if it has those of other tensors.
    pub(crate) fn checks_of(&self, shard: u16) -> Result<&ShardChecks, Error> {
        let found = self.checks.shards.get(usize::from(shard));
        if let Some(Some(checks)) = found {
            return Ok(checks);
        }
        let source = self.source(shard);
        let contents = Contents::parse(
            self.shards[usize::from(shard)].start.clone(),
            source.n_bytes(),
        );
        let path = source.path().to_owned();
        match contents.and_then(|contents| Checksums::of(&contents)) {
            Err(source) => Err(Error::Format { path, source }),
            Ok(_) => Err(Error::NoChecksums { path }),
        }
    }

    /// Compares the bytes before the tensors with their checksums, where files have them.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(crate) fn check_headers(&self) -> Result<(), Error> {
        let checks = self.checks.shards.iter().zip(self.headers());
        let mut checks = checks.filter_map(|(checks, header)| Some((checks.as_ref()?, header)));
        checks.try_for_each(|(checks, header)| checks.check_header(header))
    }

    /// The bytes of a shard.
    pub(crate) fn source(&self, shard: u16) -> &Source {
        &self.shards[usize::from(shard)].source
    }

    /// The first hole that an extent touches.
    fn hole(&self, extent: Extent) -> Option<&Hole> {
        let end_of = |extent: &Extent| extent.offset.saturating_add(extent.bytes);
        let place = |hole: &Hole| (hole.extent.shard, end_of(&hole.extent));
        let before = (extent.shard, extent.offset);
        let next = self.holes.partition_point(|hole| place(hole) <= before);
        let next = self.holes.get(next)?;
        let touches = next.extent.shard == extent.shard && next.extent.offset < end_of(&extent);
        touches.then_some(next)
    }

    /// Refuses an extent outside of its file, or absent from it.
    pub(crate) fn check(&self, extent: Extent) -> Result<(), Error> {
        if let Some(hole) = self.hole(extent) {
            return Err(Error::Absent {
                path: self.shards[usize::from(extent.shard)]
                    .source
                    .path()
                    .to_owned(),
                tensor: hole.tensor.clone(),
            });
        }
        let end = extent.offset.checked_add(extent.bytes);
        match end {
            Some(end)
                if end <= self.shard_bytes(extent.shard)
                    && usize::try_from(extent.bytes).is_ok() =>
            {
                Ok(())
            }
            _ => Err(self.out_of_file(extent)),
        }
    }

    pub(crate) fn out_of_file(&self, extent: Extent) -> Error {
        Error::OutOfFile {
            shard: extent.shard,
            offset: extent.offset,
            bytes: extent.bytes,
            file_bytes: self.shard_bytes(extent.shard),
        }
    }

    /// The length of a shard, bytes; 0 if there is no such shard.
    pub fn shard_bytes(&self, shard: u16) -> u64 {
        let shard = self.shards.get(usize::from(shard));
        shard.map_or(0, |shard| shard.source.n_bytes())
    }

    /// The bytes before the tensors of each shard.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.shards.len()).map(|shard| self.header(shard))
    }

    /// Opens every file for reads by `method`, or by the first method that works.
    ///
    /// # Errors
    /// The error of the system; a file that changed since it was opened.
    pub(crate) fn unmapped_sources(
        &self,
        method: Option<ReadMethod>,
    ) -> Result<Vec<Source>, Error> {
        self.shards
            .iter()
            .map(|shard| at(&shard.source, shard.source.unmapped(method)))
            .collect()
    }
}

impl Shard {
    /// A shard whose bytes are all addressable.
    fn addressable(source: Source) -> Self {
        Self {
            start: Arc::new(AllBytes(source.clone())),
            source,
        }
    }

    /// Its checksums. Those of other tensors are an error only where the caller needs them.
    fn checks(&self, contents: &Contents) -> Option<ShardChecks> {
        let checksums = Checksums::of(contents).ok().flatten()?;
        let names = contents.tensors.iter().map(|t| t.name.clone()).collect();
        Some(ShardChecks::new(
            self.source.path().to_owned(),
            checksums,
            names,
        ))
    }

    fn start(&self) -> &[u8] {
        self.start.as_ref().as_ref()
    }

    /// Metadata and tensors of the file.
    fn contents(&self) -> Result<Contents, Error> {
        let is_addressable = self.source.bytes().is_some();
        let parsed = match is_scattered(self.start()) && !is_addressable {
            true => scattered(&self.source, &mut 0)?,
            false => Contents::parse(self.start.clone(), self.source.n_bytes()),
        };
        parsed.map_err(|source| Error::Format {
            path: self.source.path().to_owned(),
            source,
        })
    }
}

/// Metadata and tensors of a source that is not addressable and has its metadata all over it; adds
/// the bytes that were read to `n_read`.
fn scattered(
    source: &Source,
    n_read: &mut u64,
) -> Result<Result<Contents, atta_formats::Error>, Error> {
    let mut failed = None;
    let mut read = |offset, n| -> Option<SharedBytes> {
        let mut bytes = vec![0; n];
        *n_read += n as u64;
        match source.read_exact_at(offset, &mut bytes) {
            Ok(()) => Some(Arc::new(bytes)),
            Err(error) => {
                failed = Some(error);
                None
            }
        }
    };
    let contents = Contents::scattered(source.n_bytes(), &mut read);
    match failed {
        Some(error) => at(source, Err(error)),
        None => Ok(contents),
    }
}

/// The header of a file with its metadata all over it, whose metadata is reserved.
fn scattered_start(
    source: &Source,
    mut bytes: Vec<u8>,
    budget: &Budget,
) -> Result<(SharedBytes, Reservation), Error> {
    let n_bytes = n_scattered(source, &bytes)?;
    bytes.truncate(Header::BYTES);
    let copied = budget.reserve("metadata", n_bytes)?;
    Ok((Arc::new(bytes), copied))
}

/// Bytes of metadata all over a source that begins with `head`; 0 if it is all at the start.
fn n_scattered(source: &Source, head: &[u8]) -> Result<u64, Error> {
    let mut n_read = 0;
    if is_scattered(head) {
        // The caller reads it again, and adds the name to the error.
        let _ = scattered(source, &mut n_read)?;
    }
    Ok(n_read)
}

/// All bytes of an addressable source, for the metadata that points into them.
struct AllBytes(Source);

impl AsRef<[u8]> for AllBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes().unwrap_or(&[])
    }
}

/// Maps one file of a model.
fn map(path: &Path) -> Result<Source, Error> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let refuse = |why: &str| Err(io(io::Error::new(io::ErrorKind::InvalidInput, why)));
    if path.metadata().map_err(io)?.is_dir() {
        return refuse("is a directory, expected a file");
    }
    let file = MappedFile::open(path).map_err(io)?;
    if file.bytes().is_empty() {
        return refuse("is empty");
    }
    Ok(Source::mapped(path, file))
}

/// Reads the bytes of a source before its tensors; all that was read of one that is no model.
fn read_start(source: &Source, budget: &Budget) -> Result<(SharedBytes, Reservation), Error> {
    let mut n = FIRST_READ_BYTES.min(source.n_bytes());
    loop {
        let reserved = budget.reserve("metadata", n)?;
        let len = usize::try_from(n).map_err(|_| io::ErrorKind::OutOfMemory.into());
        let mut bytes = vec![0; at(source, len)?];
        at(source, source.read_exact_at(0, &mut bytes))?;
        if is_scattered(&bytes) {
            return scattered_start(source, bytes, budget);
        }
        let bytes = Arc::new(bytes);
        match Contents::parse(bytes.clone(), source.n_bytes()) {
            Ok(contents) => {
                let end = contents.tensors.iter().map(|t| t.offset).min();
                let end = end.map_or(n, |end| end.min(n));
                let copied = budget.reserve("metadata", end)?;
                return Ok((Arc::new(bytes[..end as usize].to_vec()), copied));
            }
            Err(atta_formats::Error::Truncated { needed }) if n < source.n_bytes() => {
                n = needed.max(n.saturating_mul(2)).min(source.n_bytes());
            }
            // The caller parses it again, and adds the name to the error.
            Err(_) => return Ok((bytes, reserved)),
        }
    }
}

/// Adds the name of the source to its error.
pub(crate) fn at<T>(source: &Source, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|error| Error::Io {
        path: source.path().to_owned(),
        source: error,
    })
}

/// All files of the model that `path` belongs to, in order: itself, or all shards. A link with
/// another name is followed.
fn shard_paths(path: &Path) -> Vec<PathBuf> {
    let real = || path.canonicalize().ok().and_then(|real| siblings(&real));
    siblings(path)
        .or_else(real)
        .unwrap_or_else(|| vec![path.to_owned()])
}

fn siblings(path: &Path) -> Option<Vec<PathBuf>> {
    let names = shard_file_names(path.file_name()?.to_str()?)?;
    Some(names.map(|name| path.with_file_name(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_tensors_are_errors_with_their_names_mapped_or_not() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/golden/models/llama-plain.gguf");
        let whole = ModelFiles::open(&path).unwrap();
        let extents = whole.directory().tensors().iter().map(|t| Extent {
            shard: t.shard,
            offset: t.offset,
            bytes: t.n_bytes,
        });
        let extents: Vec<Extent> = extents.collect();
        let hole = |i: usize| Hole {
            extent: extents[i],
            tensor: whole.directory().tensors()[i].name.clone(),
        };
        let part = ModelFiles::open_part(&path, vec![hole(3), hole(1)]).unwrap();
        let unmapped = ModelFiles::open_part(&path, vec![hole(1), hole(3)]).unwrap();
        for part in [part, unmapped.unmapped(&Budget::unlimited()).unwrap()] {
            for (i, extent) in extents.iter().enumerate() {
                let last = Extent {
                    offset: extent.offset + extent.bytes - 1,
                    bytes: 1,
                    ..*extent
                };
                for extent in [*extent, last] {
                    let read = part.read(extent);
                    match i {
                        1 | 3 => assert!(
                            matches!(&read, Err(Error::Absent { tensor, .. })
                                if *tensor == hole(i).tensor),
                            "{read:?}"
                        ),
                        _ => assert_eq!(read.unwrap(), whole.read(extent).unwrap()),
                    }
                }
            }
        }
    }

    #[test]
    fn the_name_of_any_shard_gives_all_of_them() {
        let paths = shard_paths(Path::new("m/qwen-00002-of-00003.gguf"));
        let expected = [
            "m/qwen-00001-of-00003.gguf",
            "m/qwen-00002-of-00003.gguf",
            "m/qwen-00003-of-00003.gguf",
        ];
        assert_eq!(paths, expected.map(PathBuf::from));
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
