//! `cargo xtask tidy`: the house rules that a program can check.
//!
//! This file reads the tree and gathers findings; what each rule says is in the module named after
//! it. The one idea: a check is a pure function from what was read to findings, so that each has a
//! test that shows it a bad sample.

mod arch_names;
mod files;
mod functions;
mod manifests;
mod output;
mod readme;
mod unsafety;
mod wording;

use crate::source::Source;
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::fmt;
use std::path::Path;

/// A rule broken at a place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Everything that is wrong, sorted by place, and the figures that the rules are about.
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    n_files: usize,
    lengths: functions::Lengths,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        writeln!(
            f,
            "tidy: {} findings in {} files; {}",
            self.findings.len(),
            self.n_files,
            self.lengths
        )
    }
}

/// A Rust file of the tree: path from the root, and text.
type File = (String, String);

/// Checks the repository at `root`.
pub(crate) fn run(root: &Path) -> Result<Report> {
    let mut files = Vec::new();
    read_tree(root, root, &mut files)?;
    let sources = parse(&files);
    let lengths = functions::Lengths::measure(&sources);

    let mut findings: Vec<Finding> = sources.iter().flat_map(check_source).collect();
    findings.extend(lengths.check());
    findings.extend(manifests::check(root)?);
    findings.extend(readme::check(
        &std::fs::read_to_string(root.join("README.md")).unwrap_or_default(),
    ));
    findings.sort();
    Ok(Report {
        findings,
        n_files: files.len(),
        lengths,
    })
}

fn check_source(source: &Source<'_>) -> Vec<Finding> {
    let checks = [
        files::check,
        functions::check,
        unsafety::check,
        arch_names::check,
        wording::check,
        output::check,
    ];
    checks.iter().flat_map(|check| check(source)).collect()
}

/// The sources with out-of-line test modules marked as tests.
fn parse(files: &[File]) -> Vec<Source<'_>> {
    let mut sources: Vec<Source<'_>> = files
        .iter()
        .map(|(path, text)| Source::new(path, text))
        .collect();
    let tests: HashSet<String> = sources.iter().flat_map(Source::test_module_paths).collect();
    sources
        .iter_mut()
        .filter(|s| tests.contains(s.path))
        .for_each(Source::mark_as_test);
    sources
}

/// Reads all `.rs` files below `dir`, but for build outputs and hidden directories.
fn read_tree(root: &Path, dir: &Path, files: &mut Vec<File>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                read_tree(root, &path, files)?;
            }
        } else if name.ends_with(".rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            files.push((relative(root, &path), text));
        }
    }
    Ok(())
}

/// `path` from `root`, with `/` on every system.
fn relative(root: &Path, path: &Path) -> String {
    let inner = path.strip_prefix(root).unwrap_or(path);
    inner
        .components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect::<Vec<_>>()
        .join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `line: message` of each finding that `check` makes in a file.
    pub(super) fn findings(
        check: fn(&Source<'_>) -> Vec<Finding>,
        path: &str,
        text: &str,
    ) -> Vec<String> {
        check(&Source::new(path, text))
            .iter()
            .map(|f| format!("{}: {}", f.line, f.message))
            .collect()
    }

    #[test]
    fn a_finding_prints_as_one_line() {
        assert_eq!(
            Finding::new("a/b.rs", 3, "is bad").to_string(),
            "a/b.rs:3: is bad"
        );
    }

    #[test]
    fn every_source_check_is_wired_in() {
        let bad = "fn f() { println!(); dbg!(1); let qwen2 = unsafe { 1 }; }";
        let messages: Vec<String> = check_source(&Source::new("crates/model/src/lib.rs", bad))
            .into_iter()
            .map(|f| f.message)
            .collect();
        for part in ["//!", "`println!`", "`dbg!`", "qwen2", "SAFETY", "forbid"] {
            assert!(
                messages.iter().any(|m| m.contains(part)),
                "{part}: {messages:?}"
            );
        }
    }

    #[test]
    fn a_test_module_in_its_own_file_is_no_library_code() {
        let files = [
            ("crates/a/src/lib.rs", "#[cfg(test)] mod cases;"),
            ("crates/a/src/cases.rs", "fn f() {}"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        assert!(parse(&files)[1].in_test(0));
    }
}
