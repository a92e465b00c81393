//! The Hugging Face cache directory, in the layout of `huggingface_hub`, which other programs
//! share: `models--ORG--NAME/blobs/<hash>` holds file contents, `snapshots/<commit>/<path>` are
//! symbolic links to blobs, and `refs/<revision>` holds the commit that a branch or tag resolved to
//! last.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    Error, Pulled, PulledFile, RepoId, Request, Revision,
    digest::Digest,
    listing::TreeEntry,
    name::{check_path, is_commit, is_hash, native},
    select::{Selection, select},
};

/// How many names are tried for a temporary link.
const MAX_ATTEMPTS: u32 = 100;
/// How many levels of subdirectories of a snapshot are listed.
const MAX_DEPTH: usize = 8;
/// How many entries of a directory, and files of a snapshot, are listed.
const MAX_FILES: usize = 100_000;
/// Longer files in `refs` are ignored, bytes.
const MAX_REF_BYTES: u64 = 256;

/// A Hugging Face cache directory (`HF_HUB_CACHE`).
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// A cached file of a repository.
#[derive(Clone, Debug)]
pub struct CachedFile {
    /// Its path in the repository.
    pub name: String,
    /// Its path in the cache.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// When its content was written, if the system tells it.
    pub modified: Option<SystemTime>,
}

impl CachedFile {
    fn of(name: String, path: PathBuf) -> Result<Self, Error> {
        let meta = fs::metadata(&path).map_err(Error::at(&path))?;
        Ok(Self {
            name,
            path,
            bytes: meta.len(),
            modified: meta.modified().ok(),
        })
    }
}

impl Cache {
    /// The cache in the directory `root`, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory of the cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All cached repositories, sorted.
    ///
    /// # Errors
    /// The cache directory exists but cannot be read.
    pub fn repositories(&self) -> Result<Vec<RepoId>, Error> {
        let mut repos: Vec<RepoId> = names(&self.root)?
            .iter()
            .filter_map(|name| RepoId::from_directory(name))
            .collect();
        repos.sort();
        Ok(repos)
    }

    /// All cached files of a repository, sorted by name; of a file in several snapshots the newest.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn files(&self, repo: &RepoId) -> Result<Vec<CachedFile>, Error> {
        let request = Request {
            repo: repo.clone(),
            file_or_quant: None,
            revision: Revision::default(),
        };
        let mut files = BTreeMap::new();
        for commit in self.commits(&request)? {
            let snapshot = self.snapshot(repo, &commit);
            let mut names = Vec::new();
            list(&snapshot, "", MAX_DEPTH, &mut names)?;
            for name in names {
                let path = snapshot.join(native(&name));
                files.entry(name).or_insert(path);
            }
        }
        let files = files.into_iter();
        files
            .map(|(name, path)| CachedFile::of(name, path))
            .collect()
    }

    /// Removes a repository, and returns how many bytes its files had; `None` if it is not cached.
    ///
    /// # Errors
    /// A file that cannot be removed. A process that is pulling the repository may begin anew.
    pub fn remove(&self, repo: &RepoId) -> Result<Option<u64>, Error> {
        let directory = self.repo(repo);
        if !directory.is_dir() {
            return Ok(None);
        }
        let bytes = self.files(repo)?.iter().map(|file| file.bytes).sum();
        fs::remove_dir_all(&directory).map_err(Error::at(&directory))?;
        // Locks that stay do no harm.
        let _ = fs::remove_dir_all(self.root.join(".locks").join(repo.directory()));
        Ok(Some(bytes))
    }

    /// Removes the files that a request names with their contents, and returns how many bytes they
    /// had; `None` if the repository is not cached.
    ///
    /// # Errors
    /// The request matches no cached file, or several; a file that cannot be removed.
    pub fn remove_files(&self, request: &Request) -> Result<Option<u64>, Error> {
        let Some(pulled) = self.find(request)? else {
            return Ok(None);
        };
        let repo = self.repo(&request.repo);
        let repo = fs::canonicalize(&repo).map_err(Error::at(repo))?;
        for PulledFile { path, .. } in &pulled.files {
            let blob = fs::canonicalize(path).map_err(Error::at(path))?;
            fs::remove_file(path).map_err(Error::at(path))?;
            // On systems without symbolic links the file was its own content, and a link that leads
            // out of the repository is not ours.
            if blob.starts_with(&repo) && blob.exists() {
                fs::remove_file(&blob).map_err(Error::at(&blob))?;
            }
        }
        Ok(Some(pulled.files.iter().map(|file| file.bytes).sum()))
    }

    /// Resolves a request against the cache, without network. Looks in the snapshot of the
    /// requested revision first. If the revision is the default one, looks in the other snapshots
    /// of the repository too, newest first. `None` if no snapshot of the repository is cached.
    ///
    /// # Errors
    /// The request matches no cached file, or several; the message lists the cached ones.
    pub fn find(&self, request: &Request) -> Result<Option<Pulled>, Error> {
        let mut found = None;
        for commit in self.commits(request)? {
            match self.find_in(request, &commit) {
                Ok(pulled) => return Ok(Some(pulled)),
                // The error of the first snapshot, that of the requested revision, is reported.
                Err(error) => found = found.or(Some(error)),
            }
        }
        found.map_or(Ok(None), Err)
    }

    fn find_in(&self, request: &Request, commit: &str) -> Result<Pulled, Error> {
        let snapshot = self.snapshot(&request.repo, commit);
        let mut paths = Vec::new();
        list(&snapshot, "", MAX_DEPTH, &mut paths)?;
        let names: Vec<&str> = paths.iter().map(String::as_str).collect();
        let selection =
            select(&names, request.file_or_quant.as_deref()).map_err(|why| Error::Selection {
                repo: request.repo.to_string(),
                why: format!("in the cache {why}"),
            })?;
        let (chosen, is_checkpoint) = match selection {
            Selection::Files(files) => (files, false),
            Selection::Checkpoint(files) => (files, true),
        };
        let files: Vec<_> = chosen
            .iter()
            .map(|path| pulled_file(snapshot.join(native(path))))
            .collect::<Result<_, _>>()?;
        Ok(Pulled::new(commit, snapshot, files, is_checkpoint))
    }

    /// The commits with a cached snapshot: that of the requested revision first, then by age.
    fn commits(&self, request: &Request) -> Result<Vec<String>, Error> {
        let directory = self.repo(&request.repo).join("snapshots");
        let mut commits: Vec<String> = names(&directory)?
            .into_iter()
            .filter(|name| is_commit(name))
            .collect();
        let asked = self.commit_of(&request.repo, &request.revision);
        let is_only = request.revision != Revision::default();
        commits.retain(|commit| !is_only || Some(commit) == asked.as_ref());
        commits.sort_by_cached_key(|commit| {
            let age = age(&directory.join(commit));
            (Some(commit) != asked.as_ref(), age)
        });
        Ok(commits)
    }

    /// The commit that a revision resolved to last.
    fn commit_of(&self, repo: &RepoId, revision: &Revision) -> Option<String> {
        if revision.is_commit() {
            return Some(revision.as_str().to_owned());
        }
        let path = self.ref_path(repo, revision);
        let is_short = fs::metadata(&path).is_ok_and(|meta| meta.len() <= MAX_REF_BYTES);
        let text = if is_short {
            fs::read_to_string(path).ok()?
        } else {
            return None;
        };
        Some(text.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// Writes the commit of a revision to `refs`.
    pub(crate) fn write_ref(
        &self,
        repo: &RepoId,
        revision: &Revision,
        commit: &str,
    ) -> Result<(), Error> {
        if revision.is_commit() {
            return Ok(());
        }
        let path = self.ref_path(repo, revision);
        create_parent(&path)?;
        let temporary = path.with_file_name(format!(".{commit}.{}", std::process::id()));
        fs::write(&temporary, commit).map_err(Error::at(&temporary))?;
        fs::rename(&temporary, &path).map_err(Error::at(path))
    }

    fn repo(&self, repo: &RepoId) -> PathBuf {
        self.root.join(repo.directory())
    }

    fn ref_path(&self, repo: &RepoId, revision: &Revision) -> PathBuf {
        self.repo(repo).join("refs").join(native(revision.as_str()))
    }

    pub(crate) fn snapshot(&self, repo: &RepoId, commit: &str) -> PathBuf {
        self.repo(repo).join("snapshots").join(commit)
    }

    /// The path of the blob of a complete file.
    pub(crate) fn blob(&self, repo: &RepoId, digest: &Digest) -> PathBuf {
        self.repo(repo).join("blobs").join(digest.hex())
    }

    /// The lock file that the process downloading this blob holds, at the path that
    /// `huggingface_hub` uses.
    pub(crate) fn lock(&self, repo: &RepoId, digest: &Digest) -> PathBuf {
        self.root
            .join(".locks")
            .join(repo.directory())
            .join(format!("{}.lock", digest.hex()))
    }

    /// Links a blob into the snapshot of a commit and returns the path of the link.
    pub(crate) fn link(
        &self,
        repo: &RepoId,
        commit: &str,
        entry: &TreeEntry,
    ) -> Result<PathBuf, Error> {
        let link = self.snapshot(repo, commit).join(native(&entry.path));
        let up = "../".repeat(2 + entry.path.matches('/').count());
        // A link of Windows with other separators leads nowhere.
        let target = native(&format!("{up}blobs/{}", entry.digest.hex()));
        if fs::read_link(&link).is_ok_and(|there| there == target) {
            return Ok(link);
        }
        create_parent(&link)?;
        let blob = self.blob(repo, &entry.digest);
        let temporary = link_beside(&link, &target, &blob).map_err(Error::at(&link))?;
        fs::rename(&temporary, &link).map_err(Error::at(&link))?;
        Ok(link)
    }

    /// The path of a file in a snapshot, if it is cached and its length is right.
    pub(crate) fn cached_file(
        &self,
        repo: &RepoId,
        commit: &str,
        entry: &TreeEntry,
    ) -> Option<PathBuf> {
        let path = self.snapshot(repo, commit).join(native(&entry.path));
        fs::metadata(&path)
            .is_ok_and(|meta| meta.is_file() && meta.len() == entry.bytes)
            .then_some(path)
    }
}

/// Creates a link to `blob` under a temporary name beside `link` and returns its path; the caller
/// renames it. Existing files are never written to: a process with our id, in another container or
/// killed earlier, may have left a link to the same blob under that name.
fn link_beside(link: &Path, target: &Path, blob: &Path) -> io::Result<PathBuf> {
    let name = blob.file_name().unwrap_or_default().to_string_lossy();
    let mut attempt = 0;
    loop {
        let temporary = link.with_file_name(format!(".{name}.{}.{attempt}", std::process::id()));
        let made = leading_link(target, &temporary).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Err(error),
            _ => fs::hard_link(blob, &temporary).or_else(|_| copy_new(blob, &temporary)),
        });
        match made {
            Ok(()) => return Ok(temporary),
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && attempt < MAX_ATTEMPTS =>
            {
                attempt += 1
            }
            Err(error) => return Err(error),
        }
    }
}

/// Creates a symbolic link that leads to a file: Wine says that it has made one and makes none.
fn leading_link(target: &Path, link: &Path) -> io::Result<()> {
    symlink(target, link)?;
    fs::metadata(link)
        .map(drop)
        .inspect_err(|_| drop(fs::remove_file(link)))
}

/// Copies to a file that must not exist yet.
fn copy_new(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut new = File::create_new(to)?;
    io::copy(&mut from, &mut new)
        .map(drop)
        .inspect_err(|_| drop(fs::remove_file(to)))
}

/// Creates the parent directory of a file.
pub(crate) fn create_parent(path: &Path) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(Error::at(parent))
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The time since a path was written; `None` if it is not known.
fn age(path: &Path) -> Option<Duration> {
    let written = fs::metadata(path).and_then(|meta| meta.modified()).ok()?;
    SystemTime::now().duration_since(written).ok()
}

/// The names in a directory; none if the directory does not exist.
fn names(directory: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::at(directory))?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.take(MAX_FILES).collect())
}

/// Appends the paths of all files below `directory`. Dangling links are skipped.
fn list(
    directory: &Path,
    prefix: &str,
    depth: usize,
    paths: &mut Vec<String>,
) -> Result<(), Error> {
    for name in names(directory)? {
        let below = directory.join(&name);
        let path = format!("{prefix}{name}");
        let Ok(meta) = fs::metadata(&below) else {
            continue;
        };
        if meta.is_dir() && depth > 0 {
            list(&below, &format!("{path}/"), depth - 1, paths)?;
        } else if meta.is_file() && paths.len() < MAX_FILES && check_path("file", &path).is_ok() {
            paths.push(path);
        }
    }
    Ok(())
}

/// Describes a cached file. Its SHA-256 is the name of its blob, if that name is one.
fn pulled_file(path: PathBuf) -> Result<PulledFile, Error> {
    let bytes = fs::metadata(&path).map_err(Error::at(&path))?.len();
    let blob = fs::canonicalize(&path).ok();
    let sha256 = blob
        .as_deref()
        .and_then(Path::file_name)
        .and_then(|name| name.to_str());
    let sha256 = sha256.filter(|name| is_hash(name, 64)).map(str::to_owned);
    Ok(PulledFile {
        path,
        bytes,
        sha256,
        from_cache: true,
    })
}
