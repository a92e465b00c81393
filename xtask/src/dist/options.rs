//! The options of `cargo xtask dist`, and the names that follow from them.
//!
//! It refuses to touch files. The one idea: a name has no version in it, so that the address of the
//! newest archive never changes; the tag of the release has the version.

use std::path::{Path, PathBuf};

pub(super) const USAGE: &str = "usage: cargo xtask dist --target TARGET [OPTIONS]

  --target TARGET  the target, as rustc calls it
  --board          the program for small boards
  --binary PATH    a program that is built already (default: build it)
  --host PATH      a full program that runs here and writes the manual pages (default: the program)
  --out DIR        where the files go (default: target/dist)";

/// How the files of a release are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArchiveFormat {
    TarGz,
    Zip,
}

/// The options that were typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) target: String,
    pub(super) is_board: bool,
    pub(super) binary: Option<PathBuf>,
    pub(super) host: Option<PathBuf>,
    pub(super) out: PathBuf,
}

impl Options {
    pub(super) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self {
            target: String::new(),
            is_board: false,
            binary: None,
            host: None,
            out: Path::new("target").join("dist"),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--target" => options.target = value()?.clone(),
                "--board" => options.is_board = true,
                "--binary" => options.binary = Some(value()?.into()),
                "--host" => options.host = Some(value()?.into()),
                "--out" => options.out = value()?.into(),
                _ => return Err(format!("unknown option {arg}")),
            }
        }
        is_target(&options.target)
            .then_some(options)
            .ok_or_else(|| "--target needs a name such as x86_64-unknown-linux-musl".to_owned())
    }

    /// The name of the archive without its end, and of the one directory in it.
    pub(super) fn name(&self) -> String {
        let program = if self.is_board { "atta-board" } else { "atta" };
        format!("{program}-{}", self.target)
    }

    pub(super) fn archive(&self) -> String {
        let end = match self.format() {
            ArchiveFormat::TarGz => "tar.gz",
            ArchiveFormat::Zip => "zip",
        };
        format!("{}.{end}", self.name())
    }

    pub(super) fn format(&self) -> ArchiveFormat {
        match self.is_windows() {
            true => ArchiveFormat::Zip,
            false => ArchiveFormat::TarGz,
        }
    }

    /// The file name of the program.
    pub(super) fn program(&self) -> &'static str {
        match self.is_windows() {
            true => "atta.exe",
            false => "atta",
        }
    }

    /// The program of a build, below cargo's target directory.
    pub(super) fn built(&self) -> PathBuf {
        let profile = if self.is_board { "board" } else { "dist" };
        [&self.target, profile, self.program()].iter().collect()
    }

    /// The words behind `cargo` that build the program.
    pub(super) fn build_command(&self) -> Vec<&str> {
        if self.is_board {
            return vec!["board", &self.target, "--locked"];
        }
        let package = ["build", "--locked", "--package", "atta", "--bin", "atta"];
        let profile = ["--profile", "dist", "--target", &self.target];
        [&package[..], &profile[..], self.features()].concat()
    }

    /// The words by which cargo takes the features of the program. One that is linked statically
    /// could not load a driver of GPUs.
    pub(super) fn features(&self) -> &'static [&'static str] {
        match self.is_board {
            true => &["--no-default-features"],
            false if self.target.contains("-musl") => &[],
            false => &["--features", "gpu"],
        }
    }

    fn is_windows(&self) -> bool {
        self.target.contains("-windows-")
    }
}

/// Whether this may be the name of a target; it becomes a part of names of files.
fn is_target(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.split('-').count() >= 3 && text.chars().all(is_part)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::dist) fn parse(text: &str) -> Result<Options, String> {
        let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args)
    }

    #[test]
    fn names_follow_from_target_and_kind() {
        let linux = parse("--target x86_64-unknown-linux-musl").unwrap();
        assert_eq!(linux.archive(), "atta-x86_64-unknown-linux-musl.tar.gz");
        let board = parse("--board --target armv7-unknown-linux-musleabihf").unwrap();
        assert_eq!(board.name(), "atta-board-armv7-unknown-linux-musleabihf");
        let windows = parse("--target aarch64-pc-windows-msvc").unwrap();
        assert_eq!(windows.archive(), "atta-aarch64-pc-windows-msvc.zip");
        assert!(windows.built().ends_with("dist/atta.exe"));
    }

    #[test]
    fn the_profile_is_that_of_the_kind() {
        let words = |text| parse(text).unwrap().build_command().join(" ");
        assert!(
            words("--target a-unknown-linux-musl")
                .ends_with("--profile dist --target a-unknown-linux-musl")
        );
        assert!(words("--target a-unknown-linux-gnu").ends_with("gnu --features gpu"));
        assert!(words("--board --target a-unknown-linux-musl").starts_with("board "));
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, expected) in [
            ("", "--target needs a name"),
            ("--target ../../x", "--target needs a name"),
            ("--target", "--target needs a value"),
            ("--target a-b-c --quick", "unknown option --quick"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
