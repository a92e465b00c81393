//! Atomic replacement of files: written under a temporary name, synced to disk, and renamed.
//!
//! A killed process leaves a temporary file, which later processes remove once it is old.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

/// Age since the last write at which an unfinished file counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(600);

/// Extension of unfinished files.
const ENDING: &str = ".part";

/// Maximum number of temporary names that are tried.
const MAX_ATTEMPTS: u32 = 100;

/// Waits for readers of a file that is replaced, and the time of each.
const MAX_WAITS: u32 = 50;
const WAIT: Duration = Duration::from_millis(10);

/// Writes a file atomically, and replaces an existing one.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    // Resolves links, so that the target is replaced and not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (mut unfinished, mut file) = create_beside(&path)?;
    write(&mut file)?;
    file.sync_all()?;
    rename(&unfinished.path, &path)?;
    unfinished.is_renamed = true;
    Ok(())
}

/// Renames to a file that another process may be reading: where Windows refuses that, a moment
/// later.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    for _ in 0..MAX_WAITS {
        match fs::rename(from, to) {
            Err(error) if cfg!(windows) && error.kind() == io::ErrorKind::PermissionDenied => {
                thread::sleep(WAIT);
            }
            done => return done,
        }
    }
    fs::rename(from, to)
}

/// A temporary file, removed on drop unless it was renamed.
struct Unfinished {
    path: PathBuf,
    is_renamed: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_renamed {
            // If that fails, it is removed later as abandoned.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates a new hidden file beside `path`.
fn create_beside(path: &Path) -> io::Result<(Unfinished, File)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut attempt = 0;
    loop {
        let other =
            path.with_file_name(format!(".{name}.{}-{attempt}{ENDING}", std::process::id()));
        match private().open(&other) {
            Ok(file) => {
                return Ok((
                    Unfinished {
                        path: other,
                        is_renamed: false,
                    },
                    file,
                ));
            }
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && attempt < MAX_ATTEMPTS =>
            {
                attempt += 1
            }
            Err(error) => return Err(error),
        }
    }
}

/// Options that create a file readable only by its owner, since it contains prompts.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// The name of the final file, if this is the name of an unfinished one.
pub(crate) fn unfinished(name: &str) -> Option<&str> {
    let (name, numbers) = name
        .strip_prefix('.')?
        .strip_suffix(ENDING)?
        .rsplit_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    numbers
        .split_once('-')
        .filter(|(a, b)| is_number(a) && is_number(b))
        .map(|_| name)
}

/// Removes an unfinished file if it is abandoned.
pub(crate) fn remove_abandoned(path: &Path) {
    let written = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    let age = written
        .ok()
        .and_then(|time| SystemTime::now().duration_since(time).ok());
    if age.is_some_and(|age| age > ABANDONED) {
        // Another process may have removed it.
        let _ = fs::remove_file(path);
    }
}

/// Sets the time of last use of a file to now, if the system allows it.
pub(crate) fn touch(path: &Path) {
    let open = File::options().append(true).open(path);
    let _ = open.and_then(|file| file.set_modified(SystemTime::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_files_are_known_by_their_names() {
        assert_eq!(unfinished(".prompt.bin.123-0.part"), Some("prompt.bin"));
        for name in [
            "prompt.bin.123-0.part",
            ".prompt.123.part",
            ".prompt.12a-0.part",
            ".prompt.-.part",
            ".part",
            "x",
        ] {
            assert_eq!(unfinished(name), None, "{name}");
        }
    }

    #[test]
    fn a_write_that_fails_leaves_what_was_there_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("atta-whole-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("file");
        let write =
            |text: &'static str| replace(&path, |file| io::Write::write_all(file, text.as_bytes()));
        write("old").unwrap();
        replace(&path, |file| {
            io::Write::write_all(file, b"new").and(Err(io::Error::other("no")))
        })
        .unwrap_err();
        assert_eq!(
            (
                fs::read_to_string(&path).unwrap(),
                fs::read_dir(&folder).unwrap().count()
            ),
            ("old".into(), 1)
        );
        write("new").unwrap();
        #[cfg(unix)]
        assert_eq!(
            std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap()) & 0o777,
            0o600
        );
        assert_eq!(
            (
                fs::read_to_string(&path).unwrap(),
                fs::read_dir(&folder).unwrap().count()
            ),
            ("new".into(), 1)
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_what_is_old_is_abandoned() {
        let path =
            std::env::temp_dir().join(format!(".atta-abandoned.{}-0.part", std::process::id()));
        let file = File::create(&path).unwrap();
        remove_abandoned(&path);
        assert!(path.exists());
        file.set_modified(SystemTime::now() - 2 * ABANDONED)
            .unwrap();
        // Windows may keep a file that is open.
        drop(file);
        remove_abandoned(&path);
        assert!(!path.exists());
    }
}
