//! One file from the Hub to its blob, through any number of cut connections.
//!
//! What has come is in `blobs/<hash>.incomplete`, where the next attempt, or the next pull, goes on
//! with it. The hash is computed on the way; what was there before is read once. Only a file whose
//! hash is right gets its name.

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
    http::{Answer, Get, Http, Subject, Trouble, hash_of_etag, hitch},
    listing::Entry,
    patience::Patience,
    url::Url,
};

/// Bytes taken at once.
const CHUNK_BYTES: usize = 128 << 10;
/// How often a pull looks whether the other one is done.
const POLL: Duration = Duration::from_millis(100);

/// A file that is to be downloaded.
pub(crate) struct Download<'a> {
    pub(crate) http: &'a Http,
    pub(crate) cache: &'a Cache,
    pub(crate) repo: &'a RepoId,
    pub(crate) commit: &'a str,
    pub(crate) entry: &'a Entry,
}

/// Who hears of progress: bytes of this file that are there.
pub(crate) type Observer<'a> = &'a mut dyn FnMut(Event<'_>);

impl Download<'_> {
    /// Sees to it that the blob is there; `false` if it was already.
    pub(crate) fn run(
        &self,
        mut patience: Patience,
        observer: Observer<'_>,
    ) -> Result<bool, Error> {
        let blob = self.cache.blob(self.repo, &self.entry.digest);
        if self.is_there(&blob) {
            return Ok(false);
        }
        create_parent(&blob)?;
        let lock = lock(&self.cache.lock(self.repo, &self.entry.digest), observer)?;
        if self.is_there(&blob) {
            return Ok(false);
        }
        let mut partial = Partial::open(lock.partial(&blob), self.entry, observer)?;
        partial.check_space()?;
        while partial.have < self.entry.bytes {
            match self.attempt(&mut partial, observer) {
                Ok(()) => {}
                // What has come is named by its hash: an answer that is wrong says nothing about
                // it.
                Err(Trouble::Final(error)) if partial.have > 0 => return Err(error),
                Err(Trouble::Final(error)) => return Err(partial.give_up(error)),
                Err(Trouble::Hitch(hitch)) => {
                    partial.note_progress(&mut patience);
                    patience.bear(hitch, observer)?;
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

    /// Takes as much as one connection gives.
    fn attempt(&self, partial: &mut Partial<'_>, observer: Observer<'_>) -> Result<(), Trouble> {
        let url = self.url();
        let subject = Subject::File(self.repo, &self.entry.path);
        let mut answer = self.http.send(&Get {
            url: &url,
            headers: &partial.headers(),
            subject,
        })?;
        self.check_identity(&answer)?;
        match answer.status() {
            206 if content_range(&answer) == Some((partial.have, self.entry.bytes)) => {}
            206 | 416 => {
                partial.restart().map_err(Trouble::Final)?;
                return Err(answer.hitch("the server does not go on where we are"));
            }
            _ => self.check_whole(&answer, partial)?,
        }
        partial.etag = answer
            .header("etag")
            .filter(|etag| etag.starts_with('"'))
            .map(str::to_owned);
        copy(&mut answer, partial, observer)
    }

    /// A server that sends the file from its start, whatever we asked for.
    fn check_whole(&self, answer: &Answer, partial: &mut Partial<'_>) -> Result<(), Trouble> {
        let promised = answer
            .header("content-length")
            .and_then(|text| text.trim().parse::<u64>().ok());
        match promised.filter(|&n| n != self.entry.bytes) {
            Some(n) => Err(Trouble::Final(
                self.content(&format!("expected {} bytes, got {n}", self.entry.bytes)),
            )),
            None if partial.have > 0 => partial.restart().map_err(Trouble::Final),
            None => Ok(()),
        }
    }

    /// The Hub says what it is about to send. It must be what it has listed.
    fn check_identity(&self, answer: &Answer) -> Result<(), Trouble> {
        let own = answer
            .header("etag")
            .filter(|_| self.http.is_ours(&answer.url))
            .map(hash_of_etag);
        let known = answer
            .linked_etag
            .clone()
            .or(own)
            .filter(|hash| hash.len() == self.entry.digest.hex().len());
        match known.filter(|hash| hash != self.entry.digest.hex()) {
            Some(hash) => Err(Trouble::Final(self.content(&format!(
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

/// Start and total of `Content-Range: bytes 100-199/200`.
fn content_range(answer: &Answer) -> Option<(u64, u64)> {
    let (range, total) = answer
        .header("content-range")?
        .trim()
        .strip_prefix("bytes ")?
        .split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()?))
}

/// Takes bytes until the file is whole, or no more come.
fn copy(
    answer: &mut Answer,
    partial: &mut Partial<'_>,
    observer: Observer<'_>,
) -> Result<(), Trouble> {
    let url = answer.url.clone();
    let mut reader = answer.body().as_reader();
    let mut chunk = vec![0; CHUNK_BYTES];
    while partial.have < partial.entry.bytes {
        let rest = usize::try_from(partial.entry.bytes - partial.have).unwrap_or(usize::MAX);
        let n = match reader.read(&mut chunk[..rest.min(CHUNK_BYTES)]) {
            Ok(0) => return Err(hitch(&url, "the connection ended too early")),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(hitch(&url, &error.to_string())),
        };
        partial.write(&chunk[..n]).map_err(Trouble::Final)?;
        observer(Event::Received {
            file: &partial.entry.path,
            bytes: partial.have,
        });
    }
    Ok(())
}

/// The file that grows.
struct Partial<'a> {
    entry: &'a Entry,
    path: PathBuf,
    file: File,
    /// Bytes that are there and hashed.
    have: u64,
    hasher: Hasher,
    /// The most that was ever there: what a server sends again is no progress.
    most: u64,
    /// What the server called the content that we have a part of, in this pull.
    etag: Option<String>,
}

impl<'a> Partial<'a> {
    /// Goes on with what is there.
    fn open(path: PathBuf, entry: &'a Entry, observer: Observer<'_>) -> Result<Self, Error> {
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
            partial.hash_what_is_there(observer)?;
        }
        partial.most = partial.have;
        Ok(partial)
    }

    fn hash_what_is_there(&mut self, observer: Observer<'_>) -> Result<(), Error> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let n = self.file.read(&mut chunk).map_err(Error::at(&self.path))?;
            if n == 0 {
                return Ok(());
            }
            self.hasher.update(&chunk[..n]);
            self.have += n as u64;
            observer(Event::Found {
                file: &self.entry.path,
                bytes: self.have,
            });
        }
    }

    /// Refuses what the disk cannot hold before it is asked for.
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

    /// What to ask for.
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

    fn note_progress(&mut self, patience: &mut Patience) {
        if self.have > self.most {
            self.most = self.have;
            patience.restore();
        }
    }

    /// Removes what is no part of the file.
    fn give_up(self, error: Error) -> Error {
        // If it stays, the next pull finds out the same.
        let _ = fs::remove_file(&self.path);
        error
    }

    /// Gives the file its name, if it is the right one. It is on the disk by then: a power cut
    /// leaves no blob of zeros.
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

/// That nobody else downloads the same content, as far as the file system can say so.
struct Lock {
    _file: File,
    is_held: bool,
}

impl Lock {
    /// Where what has come of a blob is kept. Without a lock it is ours alone: two that write one
    /// file would not notice.
    fn partial(&self, blob: &Path) -> PathBuf {
        match self.is_held {
            true => blob.with_added_extension("incomplete"),
            false => blob.with_added_extension(format!("{}.incomplete", std::process::id())),
        }
    }
}

/// Waits until nobody else downloads the same content. The system lets go of the lock when we end,
/// however that is.
fn lock(path: &Path, observer: Observer<'_>) -> Result<Lock, Error> {
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
            // Some file systems know no locks.
            Err(TryLockError::Error(_)) => {
                return Ok(Lock {
                    _file: file,
                    is_held: false,
                });
            }
        }
        if !std::mem::replace(&mut is_told, true) {
            observer(Event::Waiting);
        }
        thread::sleep(POLL);
    }
}
