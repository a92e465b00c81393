//! Downloads one file into its blob, resuming after any number of broken connections.
//!
//! Received bytes go to `blobs/<hash>.incomplete`; the next attempt, or the next pull, resumes from
//! there. The hash is computed while bytes arrive; bytes of an earlier pull are read once to be
//! hashed. The file is renamed to `blobs/<hash>` only if its hash is right.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::{
    Error, Event, RepoId,
    cache::{Cache, create_parent},
    digest::Hasher,
    disk::free_bytes,
    http::{GetRequest, Http, HubResponse, RequestError, Subject, broken_connection, hash_of_etag},
    listing::TreeEntry,
    retry::Retries,
    url::Url,
};

/// Size of one read.
const CHUNK_BYTES: usize = 128 << 10;
/// How often a pull tries again to lock a blob that another process is downloading.
const POLL: Duration = Duration::from_millis(100);

/// The download of one file.
pub(crate) struct Download<'a> {
    pub(crate) http: &'a Http,
    pub(crate) cache: &'a Cache,
    pub(crate) repo: &'a RepoId,
    pub(crate) commit: &'a str,
    pub(crate) entry: &'a TreeEntry,
}

/// The ETag of a response, if it stands for exact bytes (a weak one does not).
fn strong_etag(response: &HubResponse) -> Option<String> {
    response
        .header("etag")
        .filter(|etag| etag.starts_with('"'))
        .map(str::to_owned)
}

/// Callback for progress events.
pub(crate) type OnEvent<'a> = &'a mut dyn FnMut(Event<'_>);

impl Download<'_> {
    /// Downloads the blob if it is missing. Returns whether it was.
    pub(crate) fn run(&self, mut retries: Retries, on_event: OnEvent<'_>) -> Result<bool, Error> {
        let blob = self.cache.blob(self.repo, &self.entry.digest);
        if self.is_there(&blob) {
            return Ok(false);
        }
        create_parent(&blob)?;
        let lock = lock(&self.cache.lock(self.repo, &self.entry.digest), on_event)?;
        if self.is_there(&blob) {
            return Ok(false);
        }
        let mut partial = PartialFile::open(lock.partial(&blob), self.entry, on_event)?;
        partial.check_space()?;
        while partial.have < self.entry.bytes {
            match self.attempt(&mut partial, on_event) {
                Ok(()) => {}
                // Keep the partial file: a bad response does not invalidate bytes that will be
                // checked against the hash.
                Err(RequestError::Final(error)) if partial.have > 0 => return Err(error),
                Err(RequestError::Final(error)) => return Err(partial.give_up(error)),
                Err(RequestError::Transient(error)) => {
                    partial.note_progress(&mut retries);
                    retries.back_off(error, on_event)?;
                }
            }
        }
        partial.finish(&blob)?;
        Ok(true)
    }

    fn is_there(&self, blob: &Path) -> bool {
        fs::metadata(blob).is_ok_and(|meta| meta.is_file() && meta.len() == self.entry.bytes)
    }

    fn url(&self) -> Url {
        let repo = self.repo.to_string();
        let parts: Vec<&str> = repo
            .split('/')
            .chain(["resolve", self.commit])
            .chain(self.entry.path.split('/'))
            .collect();
        self.http.endpoint().with_path(&parts)
    }

    /// Receives as many bytes as one connection delivers.
    fn attempt(
        &self,
        partial: &mut PartialFile<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<(), RequestError> {
        let url = self.url();
        let subject = Subject::File(self.repo, &self.entry.path);
        let mut response = self.http.send(&GetRequest {
            url: &url,
            headers: &partial.headers(),
            subject,
        })?;
        self.check_identity(&response)?;
        match response.status() {
            206 if content_range(&response) == Some((partial.have, self.entry.bytes)) => {}
            206 | 416 => {
                partial.restart().map_err(RequestError::Final)?;
                return Err(response.transient("the server does not resume at the requested byte"));
            }
            _ => self.check_whole(&response, partial)?,
        }
        partial.etag = strong_etag(&response);
        copy(&mut response, partial, on_event)
    }

    /// Handles a server that sends the whole file although a range was requested.
    fn check_whole(
        &self,
        response: &HubResponse,
        partial: &mut PartialFile<'_>,
    ) -> Result<(), RequestError> {
        let promised = response
            .header("content-length")
            .and_then(|text| text.trim().parse::<u64>().ok());
        match promised.filter(|&n| n != self.entry.bytes) {
            Some(n) => Err(RequestError::Final(
                self.content(&format!("expected {} bytes, got {n}", self.entry.bytes)),
            )),
            None if partial.have > 0 => partial.restart().map_err(RequestError::Final),
            None => Ok(()),
        }
    }

    /// Compares the hash in the response's headers, if there is one, with that of the listing.
    fn check_identity(&self, response: &HubResponse) -> Result<(), RequestError> {
        let own = response
            .header("etag")
            .filter(|_| self.http.is_ours(&response.url))
            .map(hash_of_etag);
        let known = response
            .linked_etag
            .clone()
            .or(own)
            .filter(|hash| hash.len() == self.entry.digest.hex().len());
        match known.filter(|hash| hash != self.entry.digest.hex()) {
            Some(hash) => Err(RequestError::Final(self.content(&format!(
                "expected the content {}, the server has {hash}",
                self.entry.digest.hex()
            )))),
            None => Ok(()),
        }
    }

    fn content(&self, why: &str) -> Error {
        Error::Content {
            file: format!("{}: {}", self.repo, self.entry.path),
            why: why.to_owned(),
        }
    }
}

/// Start and total length in `Content-Range: bytes 100-199/200`.
fn content_range(response: &HubResponse) -> Option<(u64, u64)> {
    let (range, total) = response
        .header("content-range")?
        .trim()
        .strip_prefix("bytes ")?
        .split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()?))
}

/// Receives bytes until the file is complete or the connection ends.
fn copy(
    response: &mut HubResponse,
    partial: &mut PartialFile<'_>,
    on_event: OnEvent<'_>,
) -> Result<(), RequestError> {
    let url = response.url.clone();
    let mut reader = response.body().as_reader();
    let mut chunk = vec![0; CHUNK_BYTES];
    while partial.have < partial.entry.bytes {
        let rest = usize::try_from(partial.entry.bytes - partial.have).unwrap_or(usize::MAX);
        let n = match reader.read(&mut chunk[..rest.min(CHUNK_BYTES)]) {
            Ok(0) => return Err(broken_connection(&url, "the connection ended too early")),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(broken_connection(&url, &error.to_string())),
        };
        partial.write(&chunk[..n]).map_err(RequestError::Final)?;
        on_event(Event::Received {
            file: &partial.entry.path,
            bytes: partial.have,
        });
    }
    Ok(())
}

/// The `.incomplete` file of a download.
struct PartialFile<'a> {
    entry: &'a TreeEntry,
    path: PathBuf,
    file: File,
    /// Bytes written and hashed.
    have: u64,
    hasher: Hasher,
    /// The largest `have` so far: bytes received again after a restart are no progress.
    most: u64,
    /// ETag of the response that the bytes came from, if they came in this pull; for `If-Range`.
    etag: Option<String>,
}

impl<'a> PartialFile<'a> {
    /// Opens the file, creating it if needed, and hashes the bytes that it has.
    fn open(path: PathBuf, entry: &'a TreeEntry, on_event: OnEvent<'_>) -> Result<Self, Error> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.map_err(Error::at(&path))?;
        let there = file.metadata().map_err(Error::at(&path))?.len();
        let hasher = entry.digest.hasher(entry.bytes);
        let mut partial = Self {
            entry,
            path,
            file,
            have: 0,
            hasher,
            most: 0,
            etag: None,
        };
        if there > entry.bytes {
            partial.restart()?;
        } else {
            partial.hash_existing(on_event)?;
        }
        partial.most = partial.have;
        Ok(partial)
    }

    fn hash_existing(&mut self, on_event: OnEvent<'_>) -> Result<(), Error> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let n = self.file.read(&mut chunk).map_err(Error::at(&self.path))?;
            if n == 0 {
                return Ok(());
            }
            self.hasher.update(&chunk[..n]);
            self.have += n as u64;
            on_event(Event::Resuming {
                file: &self.entry.path,
                bytes: self.have,
            });
        }
    }

    /// Fails if the disk has no space for the rest of the file.
    fn check_space(&self) -> Result<(), Error> {
        let needed = self.entry.bytes - self.have;
        match free_bytes(self.path.parent().unwrap_or(&self.path)) {
            Some(free) if free < needed => Err(Error::DiskFull {
                path: self.path.clone(),
                needed,
                free,
            }),
            _ => Ok(()),
        }
    }

    /// The request headers for the rest of the file.
    fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![("accept-encoding", "identity".to_owned())];
        if self.have > 0 {
            headers.push(("range", format!("bytes={}-", self.have)));
            headers.extend(self.etag.clone().map(|etag| ("if-range", etag)));
        }
        headers
    }

    fn restart(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(Error::at(&self.path))?;
        self.file
            .seek(SeekFrom::Start(0))
            .map_err(Error::at(&self.path))?;
        (self.have, self.hasher) = (0, self.entry.digest.hasher(self.entry.bytes));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file
            .write_all(bytes)
            .map_err(|error| self.write_error(error))?;
        self.hasher.update(bytes);
        self.have += bytes.len() as u64;
        Ok(())
    }

    fn write_error(&self, error: io::Error) -> Error {
        let full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        );
        let free = free_bytes(self.path.parent().unwrap_or(&self.path)).unwrap_or(0);
        match full {
            true => Error::DiskFull {
                path: self.path.clone(),
                needed: self.entry.bytes - self.have,
                free,
            },
            false => Error::at(&self.path)(error),
        }
    }

    fn note_progress(&mut self, retries: &mut Retries) {
        if self.have > self.most {
            self.most = self.have;
            retries.reset();
        }
    }

    /// Removes the partial file and returns the error.
    fn give_up(self, error: Error) -> Error {
        // If it cannot be removed, the next pull fails in the same way.
        let _ = fs::remove_file(&self.path);
        error
    }

    /// Checks the hash and renames the file to `blob`. The data is synced first, so that a power
    /// failure leaves no blob of zeros.
    fn finish(mut self, blob: &Path) -> Result<(), Error> {
        let hasher = std::mem::replace(&mut self.hasher, self.entry.digest.hasher(0));
        let got = hasher.finish();
        if got != self.entry.digest.hex() {
            let why = format!(
                "expected a file with the hash {}, got {got}; the partial download was removed",
                self.entry.digest.hex()
            );
            let error = Error::Content {
                file: self.entry.path.clone(),
                why,
            };
            return Err(self.give_up(error));
        }
        self.file.sync_data().map_err(Error::at(&self.path))?;
        fs::rename(&self.path, blob).map_err(Error::at(blob))
    }
}

/// The lock on a blob: one process at a time downloads it, if the file system supports locks.
struct Lock {
    _file: File,
    is_held: bool,
}

impl Lock {
    /// The path of the partial file. Without a lock its name contains the process id, because two
    /// processes might write it at once.
    fn partial(&self, blob: &Path) -> PathBuf {
        match self.is_held {
            true => blob.with_added_extension("incomplete"),
            false => blob.with_added_extension(format!("{}.incomplete", std::process::id())),
        }
    }
}

/// Locks a blob, waiting for another process that downloads it. The operating system releases the
/// lock when the process ends.
fn lock(path: &Path, on_event: OnEvent<'_>) -> Result<Lock, Error> {
    create_parent(path)?;
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(Error::at(path))?;
    let mut is_told = false;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {}
            Ok(()) => {
                return Ok(Lock {
                    _file: file,
                    is_held: true,
                });
            }
            // Some file systems do not support locks.
            Err(TryLockError::Error(_)) => {
                return Ok(Lock {
                    _file: file,
                    is_held: false,
                });
            }
        }
        if !std::mem::replace(&mut is_told, true) {
            on_event(Event::Waiting);
        }
        thread::sleep(POLL);
    }
}
