//! A pull: what a revision is, which of its files are meant, and each of them into the cache.

use std::{path::PathBuf, time::Duration};

use crate::{
    Cache, Error, Options, Request,
    choose::{Choice, choose},
    download::{Download, Observer},
    http::Http,
    listing::{Asking, Entry},
    patience::Patience,
};

/// What happens during a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// It is known what is to be fetched.
    Chosen {
        /// Files, those that are here already included.
        n_files: usize,
        /// Of those that are not here, all together.
        bytes: u64,
    },
    /// A file is begun.
    Begun {
        /// Its path in the repository.
        file: &'a str,
        /// How long it is.
        bytes: u64,
    },
    /// An earlier pull has left a part of the file, which is read.
    Found {
        /// The file.
        file: &'a str,
        /// How much of it was there, as far as it is read.
        bytes: u64,
    },
    /// More of the file is here.
    Received {
        /// The file.
        file: &'a str,
        /// How much of it is here.
        bytes: u64,
    },
    /// Somebody else downloads the same file.
    Waiting,
    /// The connection failed, and will be tried again.
    Retrying {
        /// What happened.
        why: &'a str,
        /// When it goes on.
        pause: Duration,
    },
}

/// What was asked for, on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The commit that the files are of.
    pub commit: String,
    /// What to give to a program: the file, the first of several shards, or the directory of a
    /// checkpoint.
    pub path: PathBuf,
    /// Every file.
    pub files: Vec<PulledFile>,
}

impl Pulled {
    pub(crate) fn new(
        commit: &str,
        snapshot: PathBuf,
        files: Vec<PulledFile>,
        is_checkpoint: bool,
    ) -> Self {
        let first = files
            .first()
            .filter(|_| !is_checkpoint)
            .map(|file| file.path.clone());
        Self {
            commit: commit.to_owned(),
            path: first.unwrap_or(snapshot),
            files,
        }
    }
}

/// A file on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledFile {
    /// In the snapshot of its commit.
    pub path: PathBuf,
    /// How long it is.
    pub bytes: u64,
    /// The hash of its content, of files that the Hub keeps apart from git: all large ones.
    pub sha256: Option<String>,
    /// Whether it was here before.
    pub was_cached: bool,
}

/// The Hub, and the cache that its files go to.
pub struct Hub {
    http: Http,
    cache: Cache,
    n_retries: u32,
    pause: Duration,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub")
            .field("n_retries", &self.n_retries)
            .field("pause", &self.pause)
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// Nothing is asked of anybody yet.
    ///
    /// # Errors
    /// An endpoint that is no address, a token that cannot be one.
    pub fn new(cache: Cache, options: &Options) -> Result<Self, Error> {
        Ok(Self {
            http: Http::new(options)?,
            cache,
            n_retries: options.n_retries,
            pause: options.pause,
        })
    }

    /// Sees to it that what is asked for is in the cache and as it is on the Hub now.
    ///
    /// # Errors
    /// Names that cannot be, an unclear choice, no connection, no permission, a full disk, wrong
    /// bytes.
    pub fn pull(
        &self,
        request: &Request,
        observer: &mut dyn FnMut(Event<'_>),
    ) -> Result<Pulled, Error> {
        let mut asking = Asking {
            http: &self.http,
            request,
            patience: self.patience(),
            observer: &mut *observer,
        };
        let commit = asking.commit()?;
        let entries = asking.entries(&commit)?;
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        let choice = choose(&paths, request.wanted.as_deref()).map_err(|why| Error::Choice {
            repo: request.repo.to_string(),
            why: why.to_string(),
        })?;
        let (chosen, is_checkpoint) = match choice {
            Choice::Files(files) => (files, false),
            Choice::Checkpoint(files) => (files, true),
        };
        let chosen: Vec<&Entry> = chosen
            .iter()
            .filter_map(|path| entries.iter().find(|entry| entry.path == **path))
            .collect();
        observer(self.plan(request, &commit, &chosen));
        let files: Vec<_> = chosen
            .iter()
            .map(|entry| self.file(request, &commit, entry, observer))
            .collect::<Result<_, _>>()?;
        self.cache
            .write_reference(&request.repo, &request.revision, &commit)?;
        Ok(Pulled::new(
            &commit,
            self.cache.snapshot(&request.repo, &commit),
            files,
            is_checkpoint,
        ))
    }

    fn patience(&self) -> Patience {
        Patience::new(self.n_retries, self.pause)
    }

    fn plan(&self, request: &Request, commit: &str, chosen: &[&Entry]) -> Event<'static> {
        let missing = chosen
            .iter()
            .filter(|entry| self.cache.linked(&request.repo, commit, entry).is_none());
        let bytes = missing.fold(0u64, |sum, entry| sum.saturating_add(entry.bytes));
        Event::Chosen {
            n_files: chosen.len(),
            bytes,
        }
    }

    fn file(
        &self,
        request: &Request,
        commit: &str,
        entry: &Entry,
        observer: Observer<'_>,
    ) -> Result<PulledFile, Error> {
        let repo = &request.repo;
        let sha256 = entry.digest.as_sha256().map(str::to_owned);
        if let Some(path) = self.cache.linked(repo, commit, entry) {
            return Ok(PulledFile {
                path,
                bytes: entry.bytes,
                sha256,
                was_cached: true,
            });
        }
        observer(Event::Begun {
            file: &entry.path,
            bytes: entry.bytes,
        });
        let download = Download {
            http: &self.http,
            cache: &self.cache,
            repo,
            commit,
            entry,
        };
        let is_new = download.run(self.patience(), observer)?;
        let path = self.cache.link(repo, commit, entry)?;
        Ok(PulledFile {
            path,
            bytes: entry.bytes,
            sha256,
            was_cached: !is_new,
        })
    }
}
