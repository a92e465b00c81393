//! Files that appear whole or not at all: written under another name, given to the disk, and
//! renamed.
//!
//! A process that is killed leaves a file of the other name, which somebody else removes when it
//! has grown old.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Nobody is still writing a file that was last written to so long ago.
const ABANDONED: Duration = Duration::from_secs(600);

/// What the name of an unfinished file ends with.
const ENDING: &str = ".part";

/// How many names of unfinished files may be taken before we give up.
const MAX_ATTEMPTS: u32 = 100;

/// Writes a file, in the place of one that may be there.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    // A link is followed, so that the file behind it is replaced and not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (mut unfinished, mut file) = create_beside(&path)?;
    write(&mut file)?;
    file.sync_all()?;
    fs::rename(&unfinished.path, &path)?;
    unfinished.is_renamed = true;
    Ok(())
}

/// A file of another name, removed with this value.
struct Unfinished {
    path: PathBuf,
    is_renamed: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_renamed {
            // If it stays, it is abandoned.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates a hidden file beside `path`. Nothing that is there already is opened.
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

/// How a file is created that nobody else may read: prompts are in it.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Whether a name is that of an unfinished file, and of which one.
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

/// Removes an unfinished file that nobody is writing any more.
pub(crate) fn remove_abandoned(path: &Path) {
    let written = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    let age = written
        .ok()
        .and_then(|time| SystemTime::now().duration_since(time).ok());
    if age.is_some_and(|age| age > ABANDONED) {
        // Somebody else may have been faster.
        let _ = fs::remove_file(path);
    }
}

/// Says that a file was used now, as far as the system lets us.
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
        remove_abandoned(&path);
        assert!(!path.exists());
    }
}
