//! `cargo xtask tidy`: the house rules that a program can check.
//!
//! This file reads the tree and gathers findings; each rule has a module named after it. The one
//! idea: a check is a pure function from text to findings, so that each has a test that shows it a
//! bad sample.

mod arch_names;
mod backends;
mod counts;
mod files;
mod flags;
mod functions;
mod homonyms;
mod known;
mod manifests;
mod output;
mod prose;
mod readme;
mod releases;
mod tuples;
mod unsafety;
mod widths;
mod wording;

use crate::page::Page;
use crate::source::RustFile;
use anyhow::{Context, Result};
use counts::Counts;
use functions::{LINES, Sizes, TOKENS};
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
    /// Known breaches, up to the number that `known` allows for a rule and a crate.
    pub(crate) pending: Vec<RuleFindings>,
    n_files: usize,
    lines: Sizes,
    tokens: Sizes,
    words: Counts,
}

impl Report {
    /// How often each rule is known to be broken and each word is used, by crate.
    pub(crate) fn counts(&self) -> String {
        format!("{}\n{}", Counts::of_findings(&self.pending), self.words)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        writeln!(
            f,
            "tidy: {} findings in {} files; of functions {}, {}",
            self.findings.len(),
            self.n_files,
            self.lines,
            self.tokens
        )?;
        let n_known: usize = self.pending.iter().map(|rule| rule.findings.len()).sum();
        writeln!(f, "tidy: {n_known} known breaches (--pending, --counts)")
    }
}

/// A text file of the tree: path from the root, and text.
type File = (String, String);

/// Checks the repository at `root`.
pub(crate) fn run(root: &Path) -> Result<Report> {
    let mut files = Vec::new();
    read_tree(root, root, &mut files)?;
    let (rust, markdown): (Vec<File>, Vec<File>) = files
        .into_iter()
        .partition(|(path, _)| path.ends_with(".rs"));
    let sources = parse(&rust);
    let pages: Vec<Page<'_>> = markdown
        .iter()
        .map(|(path, text)| Page::new(path, text))
        .collect();
    let lines = Sizes::measure(&sources, LINES);
    let tokens = Sizes::measure(&sources, TOKENS);

    let mut findings: Vec<Finding> = sources.iter().flat_map(check_source).collect();
    findings.extend(lines.check());
    findings.extend(manifests::check(root)?);
    findings.extend(releases::check(root)?);
    findings.extend(readme::check(
        &std::fs::read_to_string(root.join("README.md")).unwrap_or_default(),
    ));
    let (new, pending) = known::split(counted_rules(&sources, &pages));
    findings.extend(new);
    findings.extend(tokens.check());
    findings.sort();
    Ok(Report {
        findings,
        pending,
        n_files: rust.len() + markdown.len(),
        words: Counts::of_words(&sources, &pages),
        lines,
        tokens,
    })
}

fn check_source(source: &RustFile<'_>) -> Vec<Finding> {
    let checks = [
        files::check,
        functions::check_lines,
        unsafety::check,
        arch_names::check,
        wording::check,
        output::check,
    ];
    checks.iter().flat_map(|check| check(source)).collect()
}

/// What a rule has found.
pub(crate) struct RuleFindings {
    rule: &'static str,
    pub(crate) findings: Vec<Finding>,
}

/// The rules that the code does not keep everywhere yet.
fn counted_rules(sources: &[RustFile<'_>], pages: &[Page<'_>]) -> Vec<RuleFindings> {
    let each = |check: fn(&RustFile<'_>) -> Vec<Finding>| sources.iter().flat_map(check).collect();
    let pages = |check: fn(&Page<'_>) -> Vec<Finding>| pages.iter().flat_map(check).collect();
    let rules: [(&'static str, Vec<Finding>); 9] = [
        ("tokens", each(functions::check_tokens)),
        ("tuples", each(tuples::check)),
        ("homonyms", homonyms::check(sources)),
        ("prose", each(prose::check)),
        ("prose of pages", pages(prose::check_page)),
        ("widths", each(widths::check)),
        ("widths of pages", pages(widths::check_page)),
        ("flags", each(flags::check)),
        ("backends", each(backends::check)),
    ];
    rules
        .into_iter()
        .map(|(rule, findings)| RuleFindings { rule, findings })
        .collect()
}

/// The sources with out-of-line test modules marked as tests.
fn parse(files: &[File]) -> Vec<RustFile<'_>> {
    let mut sources: Vec<RustFile<'_>> = files
        .iter()
        .map(|(path, text)| RustFile::new(path, text))
        .collect();
    let tests: HashSet<String> = sources
        .iter()
        .flat_map(RustFile::test_module_paths)
        .collect();
    sources
        .iter_mut()
        .filter(|s| tests.contains(s.path))
        .for_each(RustFile::mark_as_test);
    sources
}

/// Reads all `.rs` and `.md` files below `dir`, but for build outputs and hidden directories.
fn read_tree(root: &Path, dir: &Path, files: &mut Vec<File>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !["target", "node_modules"].contains(&&*name) && !name.starts_with('.') {
                read_tree(root, &path, files)?;
            }
        } else if name.ends_with(".rs") || name.ends_with(".md") {
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
        check: fn(&RustFile<'_>) -> Vec<Finding>,
        path: &str,
        text: &str,
    ) -> Vec<String> {
        check(&RustFile::new(path, text))
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
        let messages: Vec<String> = check_source(&RustFile::new("crates/model/src/lib.rs", bad))
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
