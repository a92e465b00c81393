//! A pull: resolve the revision, select files, download each of them into the cache.

use std::{path::PathBuf, time::Duration};

use crate::{
    Cache, Error, HubOptions, Request,
    download::{Download, OnEvent},
    http::Http,
    listing::{HubApi, TreeEntry},
    retry::Retries,
    select::{Selection, select},
};

/// Progress of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The files of the pull are known.
    Selected {
        /// Selected files, including those in the cache.
        n_files: usize,
        /// Total length of those not in the cache.
        bytes: u64,
    },
    /// The download of a file starts.
    Started {
        /// Path of the file in the repository.
        file: &'a str,
        /// Length of the file.
        bytes: u64,
    },
    /// An earlier pull left a part of the file, which is being hashed.
    Resuming {
        /// Path of the file in the repository.
        file: &'a str,
        /// Bytes hashed so far.
        bytes: u64,
    },
    /// Bytes of the file arrived.
    Received {
        /// Path of the file in the repository.
        file: &'a str,
        /// Bytes of the file on disk.
        bytes: u64,
    },
    /// Another process is downloading the same file; this one waits for it.
    Waiting,
    /// A request failed and will be retried.
    Retrying {
        /// The error.
        why: &'a str,
        /// The pause before the retry.
        pause: Duration,
    },
}

/// The files of a request in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The commit of the files.
    pub commit: String,
    /// The path to load or convert: the file, the first of several shards, or the directory of a
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

/// A file in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledFile {
    /// Path in the snapshot of its commit.
    pub path: PathBuf,
    /// Length of the file.
    pub bytes: u64,
    /// SHA-256 of the content, for LFS files (all large ones).
    pub sha256: Option<String>,
    /// Whether the file was in the cache before the pull.
    pub from_cache: bool,
}

/// A client of the Hub with the cache that it downloads to.
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
    /// Creates a client. Nothing is sent yet.
    ///
    /// # Errors
    /// An endpoint that is no URL, or a token with invalid characters.
    pub fn new(cache: Cache, options: &HubOptions) -> Result<Self, Error> {
        Ok(Self {
            http: Http::new(options)?,
            cache,
            n_retries: options.n_retries,
            pause: options.pause,
        })
    }

    /// Downloads the files of a request that the cache lacks, at the commit that the revision has
    /// now.
    ///
    /// # Errors
    /// Invalid names, no file or several that match, no connection, no permission, a full disk,
    /// wrong content.
    pub fn pull(
        &self,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Pulled, Error> {
        let mut api = HubApi {
            http: &self.http,
            request,
            retries: self.retries(),
            on_event: &mut *on_event,
        };
        let commit = api.commit()?;
        let entries = api.entries(&commit)?;
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        let selection =
            select(&paths, request.file_or_quant.as_deref()).map_err(|why| Error::Selection {
                repo: request.repo.to_string(),
                why: why.to_string(),
            })?;
        let (chosen, is_checkpoint) = match selection {
            Selection::Files(files) => (files, false),
            Selection::Checkpoint(files) => (files, true),
        };
        let chosen: Vec<&TreeEntry> = chosen
            .iter()
            .filter_map(|path| entries.iter().find(|entry| entry.path == **path))
            .collect();
        on_event(self.plan(request, &commit, &chosen));
        let files: Vec<_> = chosen
            .iter()
            .map(|entry| self.file(request, &commit, entry, on_event))
            .collect::<Result<_, _>>()?;
        self.cache
            .write_ref(&request.repo, &request.revision, &commit)?;
        Ok(Pulled::new(
            &commit,
            self.cache.snapshot(&request.repo, &commit),
            files,
            is_checkpoint,
        ))
    }

    fn retries(&self) -> Retries {
        Retries::new(self.n_retries, self.pause)
    }

    fn plan(&self, request: &Request, commit: &str, chosen: &[&TreeEntry]) -> Event<'static> {
        let missing = chosen.iter().filter(|entry| {
            self.cache
                .cached_file(&request.repo, commit, entry)
                .is_none()
        });
        let bytes = missing.fold(0u64, |sum, entry| sum.saturating_add(entry.bytes));
        Event::Selected {
            n_files: chosen.len(),
            bytes,
        }
    }

    fn file(
        &self,
        request: &Request,
        commit: &str,
        entry: &TreeEntry,
        on_event: OnEvent<'_>,
    ) -> Result<PulledFile, Error> {
        let repo = &request.repo;
        let sha256 = entry.digest.as_sha256().map(str::to_owned);
        if let Some(path) = self.cache.cached_file(repo, commit, entry) {
            return Ok(PulledFile {
                path,
                bytes: entry.bytes,
                sha256,
                from_cache: true,
            });
        }
        on_event(Event::Started {
            file: &entry.path,
            bytes: entry.bytes,
        });
        let is_new = Download {
            http: &self.http,
            cache: &self.cache,
            repo,
            commit,
            entry,
        }
        .run(self.retries(), on_event)?;
        let path = self.cache.link(repo, commit, entry)?;
        Ok(PulledFile {
            path,
            bytes: entry.bytes,
            sha256,
            from_cache: !is_new,
        })
    }
}
