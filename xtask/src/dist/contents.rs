//! The files of an archive: the program, licences, what to read first, manual pages, completions.
//!
//! It refuses to pack them. The one idea: a program writes its own manual pages and completions,
//! and where it does not run here, a full program that does (`--host`) writes the same.

use super::archive::Entry;
use super::crates::Crates;
use super::options::Options;
use super::{notices, output};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Permissions of programs and of other files.
const RUNS: u32 = 0o755;
const READS: u32 = 0o644;

/// Files of the repository that every archive has.
const PAGES: [&str; 4] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"];
/// Shells, and the file that each looks for.
const COMPLETIONS: [(&str, &str); 5] = [
    ("bash", "atta"),
    ("elvish", "atta.elv"),
    ("fish", "atta.fish"),
    ("powershell", "_atta.ps1"),
    ("zsh", "_atta"),
];

pub(super) fn gather(
    root: &Path,
    options: &Options,
    program: &Path,
    crates: &Crates,
) -> Result<Vec<Entry>> {
    let mut entries = vec![file(program, options.program(), RUNS)?];
    for page in PAGES {
        entries.push(file(&root.join(page), page, READS)?);
    }
    let notices = notices::gather(root, options, crates)?;
    entries.push(text("THIRD-PARTY.txt", notices.into_bytes()));
    if options.is_board {
        entries.push(file(&root.join("docs/boards.md"), "boards.md", READS)?);
    } else {
        let host = host(options, program)?;
        entries.extend(completions(&host)?);
        entries.extend(manual(root, options, &host)?);
    }
    for entry in &mut entries {
        entry.path = format!("{}/{}", options.name(), entry.path);
    }
    Ok(entries)
}

/// The program that writes manual pages.
fn host(options: &Options, program: &Path) -> Result<PathBuf> {
    if let Some(host) = &options.host {
        return Ok(host.clone());
    }
    let arch = std::env::consts::ARCH;
    let system = std::env::consts::OS.replace("macos", "darwin");
    let target = &options.target;
    if !target.starts_with(arch) || !target.contains(&system) {
        bail!(
            "a program for {target} does not run on {arch} {system}: name one that does by --host"
        );
    }
    Ok(program.to_owned())
}

fn completions(host: &Path) -> Result<Vec<Entry>> {
    let each = COMPLETIONS.iter().map(|(shell, name)| {
        let said = output(Command::new(host).args(["completions", shell]))?;
        Ok(text(&format!("completions/{name}"), said))
    });
    each.collect()
}

/// All manual pages, by way of a directory that is removed again.
fn manual(root: &Path, options: &Options, host: &Path) -> Result<Vec<Entry>> {
    let directory = root
        .join(&options.out)
        .join(format!("{}.man", options.name()));
    output(Command::new(host).arg("man").arg(&directory))?;
    let mut entries = Vec::new();
    for page in std::fs::read_dir(&directory)? {
        let page = page?;
        let name = format!("man/{}", page.file_name().to_string_lossy());
        entries.push(file(&page.path(), &name, READS)?);
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(entries)
}

fn file(path: &Path, name: &str, mode: u32) -> Result<Entry> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(Entry {
        path: name.to_owned(),
        mode,
        bytes,
    })
}

fn text(name: &str, bytes: Vec<u8>) -> Entry {
    Entry {
        path: name.to_owned(),
        mode: READS,
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::tests::parse;
    use super::*;

    #[test]
    fn a_program_for_another_processor_needs_a_host() {
        let options = parse("--target riscv64gc-unknown-none-elf").unwrap();
        let error = host(&options, Path::new("atta")).unwrap_err();
        assert!(error.to_string().ends_with("by --host"), "{error}");
        let options = parse("--target riscv64gc-unknown-none-elf --host x/atta").unwrap();
        let found = host(&options, Path::new("atta")).unwrap();
        assert_eq!(found, Path::new("x/atta"));
    }

    #[test]
    fn a_missing_file_is_an_error_with_its_name() {
        let error = file(Path::new("no/such"), "a", READS).unwrap_err();
        assert!(error.to_string().contains("no/such"), "{error}");
    }
}
