//! Results: standard output, whose reader may close it at any time, and files, which appear whole
//! or not at all.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, IsTerminal, StdoutLock, Write},
    path::{Path, PathBuf},
};

use crate::{failure::Failure, inputs::InputFiles};

/// Attempts at a free name for a temporary file.
const MAX_ATTEMPTS: u32 = 100;

/// Standard output, buffered until [`flush`](Self::flush).
pub(crate) struct Stdout {
    out: BufWriter<StdoutLock<'static>>,
    /// Whether the output so far ends with a line feed.
    at_line_start: bool,
}

impl Stdout {
    pub(crate) fn lock() -> Self {
        Self {
            out: BufWriter::new(io::stdout().lock()),
            at_line_start: true,
        }
    }

    /// Writes text.
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.at_line_start = text
            .chars()
            .next_back()
            .map_or(self.at_line_start, |c| c == '\n');
        self.out.write_all(text.as_bytes()).map_err(Failure::stdout)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.write(text)?;
        self.write("\n")
    }

    /// Writes the buffer to the system.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::stdout)
    }

    /// Ends an unfinished line on a terminal, where the shell's prompt would follow it.
    pub(crate) fn end_line_on_terminal(&mut self) -> Result<(), Failure> {
        if !self.at_line_start && self.out.get_ref().is_terminal() {
            self.write("\n")?;
        }
        self.flush()
    }
}

/// A file under a temporary name until it is whole.
///
/// An existing pipe or device must not be replaced and is written to directly. So is anything in
/// `/dev`, where `/dev/stdout` may lead to a plain file that the shell has opened.
pub(crate) struct NewFile {
    path: PathBuf,
    temporary: Option<PathBuf>,
    out: BufWriter<File>,
}

impl NewFile {
    /// Creates a file that will be at `path`, which must be none of the inputs.
    pub(crate) fn create(path: &Path, inputs: &InputFiles) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            let why = "standard output is for results: name a file, or ./- for one of that name";
            return Err(Failure::Usage(format!("- is no file to write: {why}")));
        }
        inputs.protect_from(path)?;
        let blame = |error| Failure::at(path, format_args!("cannot write: {error}"));
        let existing = fs::metadata(path).ok();
        if existing
            .as_ref()
            .is_some_and(|meta| !meta.is_file() || path.starts_with("/dev"))
        {
            let file = File::options().append(true).open(path).map_err(blame)?;
            return Ok(Self {
                path: path.to_owned(),
                temporary: None,
                out: BufWriter::new(file),
            });
        }
        // A link is followed, so that the file behind it is replaced and not the link.
        let path = if existing.is_some() {
            fs::canonicalize(path).map_err(blame)?
        } else {
            path.to_owned()
        };
        let (temporary, file) = create_beside(&path).map_err(blame)?;
        Ok(Self {
            path,
            temporary: Some(temporary),
            out: BufWriter::new(file),
        })
    }

    /// Standard output as a file, for a command whose result is bytes.
    pub(crate) fn stdout() -> Result<Self, Failure> {
        #[cfg(unix)]
        let file = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
        #[cfg(windows)]
        let file = std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned();
        let file = file.map_err(Failure::stdout)?;
        Ok(Self {
            path: "standard output".into(),
            temporary: None,
            out: BufWriter::new(file.into()),
        })
    }

    /// Writes bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out
            .write_all(bytes)
            .map_err(|error| self.failed(error))
    }

    /// The failure of a write; a pipe that its reader has closed ends the program quietly.
    fn failed(&self, error: io::Error) -> Failure {
        match (&self.temporary, error.kind()) {
            (None, io::ErrorKind::BrokenPipe) => Failure::ClosedPipe,
            _ => Failure::at(&self.path, format_args!("cannot write: {error}")),
        }
    }

    /// Renames the file once it is on disk: after a power failure there is the old file or the new
    /// one.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| self.failed(error))?;
        if let Some(temporary) = &self.temporary {
            self.out
                .get_ref()
                .sync_all()
                .map_err(|error| self.failed(error))?;
            fs::rename(temporary, &self.path).map_err(|error| self.failed(error))?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // A temporary file that stays does no harm.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Creates a hidden file beside `path`. An existing file is never opened: it may be a planted link,
/// or the file of a killed process with the same id.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut attempt = 0;
    loop {
        let temporary = temporary_name(path, attempt);
        match File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && attempt < MAX_ATTEMPTS =>
            {
                attempt += 1
            }
            Err(error) => return Err(error),
        }
    }
}

fn temporary_name(path: &Path, attempt: u32) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{attempt}.part", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("atta-output-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn a_file_appears_when_it_is_whole_and_not_before() {
        let directory = directory("whole");
        let path = directory.join("a");
        let mut file = NewFile::create(&path, &InputFiles::default()).unwrap();
        file.write(b"12").unwrap();
        assert!(!path.exists());
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"12");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_that_is_given_up_leaves_nothing_and_the_old_one() {
        let directory = directory("given-up");
        let path = directory.join("a");
        fs::write(&path, "old").unwrap();
        let mut file = NewFile::create(&path, &InputFiles::default()).unwrap();
        file.write(b"new").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_link_in_place_of_the_temporary_file_is_not_followed() {
        let directory = directory("planted");
        let path = directory.join("a");
        let victim = directory.join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, temporary_name(&path, 0)).unwrap();
        let mut file = NewFile::create(&path, &InputFiles::default()).unwrap();
        file.write(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_device_is_written_to_and_not_replaced() {
        let mut file = NewFile::create(Path::new("/dev/null"), &InputFiles::default()).unwrap();
        file.write(b"x").unwrap();
        file.finish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_directory_is_no_place_for_a_file() {
        let error = NewFile::create(&std::env::temp_dir(), &InputFiles::default())
            .err()
            .unwrap();
        assert!(matches!(error, Failure::Failed(message) if message.contains("cannot write")));
    }
}
