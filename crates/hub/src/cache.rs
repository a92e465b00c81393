//! The cache on disk, as Hugging Face's own programs have it, so that they see what we pulled and
//! we see what they did: `models--ORG--NAME/blobs/<hash>` are contents, `snapshots/<commit>/<path>`
//! are links to them, and `refs/<revision>` is the commit that a branch or tag was when it was
//! asked for last.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    Error, Pulled, PulledFile, RepoId, Request, Revision,
    choose::{Choice, choose},
    digest::Digest,
    listing::Entry,
    name::{check_path, is_commit, is_hash, native},
};

/// How many names that others have taken are passed by.
const MAX_ATTEMPTS: u32 = 100;
/// How deep directories of a repository are looked into.
const MAX_DEPTH: usize = 8;
/// How many files of a snapshot are looked at.
const MAX_FILES: usize = 100_000;
/// The longest file in `refs` that is read, bytes.
const MAX_REF_BYTES: u64 = 256;

/// A directory with repositories.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache at `root`, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Every repository of which something is here, sorted.
    ///
    /// # Errors
    /// The directory is there and cannot be read.
    pub fn repositories(&self) -> Result<Vec<RepoId>, Error> {
        let mut repos: Vec<RepoId> = names(&self.root)?
            .iter()
            .filter_map(|name| RepoId::of_directory(name))
            .collect();
        repos.sort();
        Ok(repos)
    }

    /// What a request means, of what is here; nothing is asked of any server. The revision that is
    /// asked for goes first, the other snapshots of the repository follow, newest first, unless
    /// a commit is named.
    ///
    /// `None` if nothing of that repository is here.
    ///
    /// # Errors
    /// No choice can be made among what is here, which the message lists.
    pub fn find(&self, request: &Request) -> Result<Option<Pulled>, Error> {
        let mut found = None;
        for commit in self.commits(request)? {
            match self.find_in(request, &commit) {
                Ok(pulled) => return Ok(Some(pulled)),
                // What the revision itself lacks says most.
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
        let choice = choose(&names, request.wanted.as_deref()).map_err(|why| Error::Choice {
            repo: request.repo.to_string(),
            why: format!("in the cache {why}"),
        })?;
        let (chosen, is_checkpoint) = match choice {
            Choice::Files(files) => (files, false),
            Choice::Checkpoint(files) => (files, true),
        };
        let files: Vec<_> = chosen
            .iter()
            .map(|path| found_file(snapshot.join(native(path))))
            .collect::<Result<_, _>>()?;
        Ok(Pulled::new(commit, snapshot, files, is_checkpoint))
    }

    /// Commits that are here, the one of the revision first.
    fn commits(&self, request: &Request) -> Result<Vec<String>, Error> {
        let directory = self.repo(&request.repo).join("snapshots");
        let mut commits: Vec<String> = names(&directory)?
            .into_iter()
            .filter(|name| is_commit(name))
            .collect();
        let asked = self.commit_of(&request.repo, &request.revision);
        let is_only = request.revision != Revision::default();
        commits.retain(|commit| !is_only || Some(commit) == asked.as_ref());
        let age = |commit: &String| {
            let written = fs::metadata(directory.join(commit)).and_then(|meta| meta.modified());
            written
                .ok()
                .and_then(|time| SystemTime::now().duration_since(time).ok())
        };
        commits.sort_by_cached_key(|commit| (Some(commit) != asked.as_ref(), age(commit)));
        Ok(commits)
    }

    /// The commit that a revision was when it was asked for last.
    fn commit_of(&self, repo: &RepoId, revision: &Revision) -> Option<String> {
        if revision.is_commit() {
            return Some(revision.as_str().to_owned());
        }
        let path = self.reference(repo, revision);
        let is_short = fs::metadata(&path).is_ok_and(|meta| meta.len() <= MAX_REF_BYTES);
        let text = if is_short {
            fs::read_to_string(path).ok()?
        } else {
            return None;
        };
        Some(text.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// Notes what commit a revision is.
    pub(crate) fn write_reference(
        &self,
        repo: &RepoId,
        revision: &Revision,
        commit: &str,
    ) -> Result<(), Error> {
        if revision.is_commit() {
            return Ok(());
        }
        let path = self.reference(repo, revision);
        create_parent(&path)?;
        let temporary = path.with_file_name(format!(".{commit}.{}", std::process::id()));
        fs::write(&temporary, commit).map_err(Error::at(&temporary))?;
        fs::rename(&temporary, &path).map_err(Error::at(path))
    }

    fn repo(&self, repo: &RepoId) -> PathBuf {
        self.root.join(repo.directory())
    }

    fn reference(&self, repo: &RepoId, revision: &Revision) -> PathBuf {
        self.repo(repo).join("refs").join(native(revision.as_str()))
    }

    pub(crate) fn snapshot(&self, repo: &RepoId, commit: &str) -> PathBuf {
        self.repo(repo).join("snapshots").join(commit)
    }

    /// Where content is when it is whole.
    pub(crate) fn blob(&self, repo: &RepoId, digest: &Digest) -> PathBuf {
        self.repo(repo).join("blobs").join(digest.hex())
    }

    /// The file that whoever downloads this content has locked; where Python's library has it.
    pub(crate) fn lock(&self, repo: &RepoId, digest: &Digest) -> PathBuf {
        self.root
            .join(".locks")
            .join(repo.directory())
            .join(format!("{}.lock", digest.hex()))
    }

    /// Puts a blob under its path into the snapshot of a commit, and gives that path.
    pub(crate) fn link(
        &self,
        repo: &RepoId,
        commit: &str,
        entry: &Entry,
    ) -> Result<PathBuf, Error> {
        let link = self.snapshot(repo, commit).join(native(&entry.path));
        let up = "../".repeat(2 + entry.path.matches('/').count());
        let target = format!("{up}blobs/{}", entry.digest.hex());
        if fs::read_link(&link).is_ok_and(|there| there == Path::new(&target)) {
            return Ok(link);
        }
        create_parent(&link)?;
        let blob = self.blob(repo, &entry.digest);
        let temporary =
            link_beside(&link, (Path::new(&target), &blob)).map_err(Error::at(&link))?;
        fs::rename(&temporary, &link).map_err(Error::at(&link))?;
        Ok(link)
    }

    /// The file of a snapshot as it is here, whoever put it there, if its length is right.
    pub(crate) fn linked(&self, repo: &RepoId, commit: &str, entry: &Entry) -> Option<PathBuf> {
        let path = self.snapshot(repo, commit).join(native(&entry.path));
        fs::metadata(&path)
            .is_ok_and(|meta| meta.is_file() && meta.len() == entry.bytes)
            .then_some(path)
    }
}

/// Makes a link to a blob beside the place where it is to be, since another pull may do the same,
/// and gives its path. Nothing that is there is written to: a pull of the same number, in another
/// container or killed, may have left a link to the very blob.
fn link_beside(link: &Path, (target, blob): (&Path, &Path)) -> io::Result<PathBuf> {
    let name = blob.file_name().unwrap_or_default().to_string_lossy();
    let mut attempt = 0;
    loop {
        let temporary = link.with_file_name(format!(".{name}.{}.{attempt}", std::process::id()));
        let made = symlink(target, &temporary).or_else(|error| match error.kind() {
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

/// Copies to a file that is not there yet.
fn copy_new(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, mut new) = (File::open(from)?, File::create_new(to)?);
    io::copy(&mut from, &mut new)
        .map(drop)
        .inspect_err(|_| drop(fs::remove_file(to)))
}

/// Creates the directory that a file is to be in.
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

/// Names in a directory, which need not exist.
fn names(directory: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::at(directory))?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.take(MAX_FILES).collect())
}

/// Paths of all files below `directory`; a link whose blob is gone is none.
fn list(
    directory: &Path,
    prefix: &str,
    depth: usize,
    paths: &mut Vec<String>,
) -> Result<(), Error> {
    for name in names(directory)? {
        let (below, path) = (directory.join(&name), format!("{prefix}{name}"));
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

/// A file that is here. Its hash is the name of its blob, if that is one.
fn found_file(path: PathBuf) -> Result<PulledFile, Error> {
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
        was_cached: true,
    })
}
