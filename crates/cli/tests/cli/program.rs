//! Starting the program, and the files it is given.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

/// A golden model.
pub(crate) fn model(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models")
        .join(name);
    path.to_str().unwrap().to_owned()
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atta"));
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs to the end without input.
pub(crate) fn atta(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs to the end with `input` on standard input.
pub(crate) fn atta_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that fails before it reads its input closes the pipe.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// Standard output of a run that must succeed without a word on standard error.
pub(crate) fn stdout(args: &[&str]) -> String {
    text_of(&atta(args))
}

/// Standard error, but for the warning that a context is longer than what the tiny models were
/// trained for.
pub(crate) fn said(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    let lines = stderr
        .split_inclusive('\n')
        .filter(|line| !line.contains("the model was trained for"));
    lines.collect()
}

/// The same of a run that is over.
pub(crate) fn text_of(output: &Output) -> String {
    assert_eq!(said(output), "");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one error line of a run that must fail with `code` and nothing on standard output.
pub(crate) fn error_of(output: &Output, code: i32) -> String {
    let stderr = said(output);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(
        stderr.starts_with("atta: error: ")
            && stderr.ends_with('\n')
            && stderr.lines().count() == 1,
        "{stderr}"
    );
    stderr
}

/// How many directories were made.
static N_SCRATCHES: AtomicUsize = AtomicUsize::new(0);

/// A directory of a test, removed with it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        // Tests run side by side, and some make directories of one name.
        let n = N_SCRATCHES.fetch_add(1, Ordering::Relaxed);
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("atta-cli-{name}-{id}-{n}"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and gives its path.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// Names of all files in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
