//! What `cargo xtask tidy --counts` prints: how often a rule is broken, and how often a word is
//! used, by crate.
//!
//! It refuses to judge. The one idea: the words that people search for must be in the prose, and
//! only a count shows whether they are.

use super::RuleFindings;
use crate::page::Page;
use crate::paragraph::{Paragraph, comments, paragraphs};
use crate::source::RustFile;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Words of the field, that comments should hold, and of a private language, that they should not.
const WORDS: [&str; 19] = [
    "scheduler",
    "admits",
    "evicts",
    "evicted",
    "preempts",
    "kv cache",
    "prefix cache",
    "prefill",
    "decode",
    "slot",
    "log-probability",
    "log-probabilities",
    "stop string",
    "chat template",
    "nobody",
    "somebody",
    "whoever",
    "of which",
    "what is",
];

/// How many of something each crate has, by the name of the thing.
pub(crate) struct Counts {
    by_name: Vec<(&'static str, BTreeMap<String, usize>)>,
}

impl Counts {
    pub(super) fn of_findings(rules: &[RuleFindings]) -> Self {
        let rows = rules.iter().map(|rule| {
            let areas = rule.findings.iter().map(|f| area(&f.path));
            (rule.rule, tally(areas))
        });
        Self {
            by_name: rows.collect(),
        }
    }

    pub(super) fn of_words(sources: &[RustFile<'_>], pages: &[Page<'_>]) -> Self {
        let of_sources = sources.iter().map(|s| (area(s.path), comments(s)));
        let of_pages = pages.iter().map(|p| (area(p.path), paragraphs(p.prose())));
        let prose: Vec<(String, Vec<Paragraph>)> = of_sources.chain(of_pages).collect();
        let rows = WORDS.iter().map(|word| {
            let areas = prose.iter().flat_map(|(area, paragraphs)| {
                let uses = paragraphs.iter().flat_map(|p| p.lines_with(word));
                uses.map(|_| area.clone())
            });
            (*word, tally(areas))
        });
        Self {
            by_name: rows.collect(),
        }
    }
}

/// The crate of a file, or the top directory, or the file.
pub(super) fn area(path: &str) -> String {
    let inner = path.strip_prefix("crates/").unwrap_or(path);
    inner.split('/').next().unwrap_or(inner).to_owned()
}

fn tally(areas: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    areas.for_each(|area| *counts.entry(area).or_default() += 1);
    counts
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let areas: BTreeSet<&String> = self.by_name.iter().flat_map(|(_, n)| n.keys()).collect();
        write!(f, "{:17} {:>6}", "", "all")?;
        areas.iter().try_for_each(|area| write!(f, " {area:>6}"))?;
        writeln!(f)?;
        for (name, counts) in &self.by_name {
            write!(f, "{name:17} {:6}", counts.values().sum::<usize>())?;
            for area in &areas {
                let width = area.len().max(6);
                write!(f, " {:width$}", counts.get(*area).unwrap_or(&0))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Finding, *};

    #[test]
    fn words_are_counted_by_crate() {
        let sources = [
            RustFile::new("crates/engine/src/a.rs", "// The scheduler evicts.\n"),
            RustFile::new("crates/model/src/a.rs", "// The scheduler.\n"),
        ];
        let pages = [Page::new("README.md", "scheduler")];
        let printed = Counts::of_words(&sources, &pages).to_string();
        let row = printed.lines().find(|line| line.starts_with("scheduler"));
        let numbers: Vec<&str> = row.unwrap().split_whitespace().collect();
        assert_eq!(numbers, ["scheduler", "3", "1", "1", "1"]);
    }

    #[test]
    fn findings_are_counted_by_rule() {
        let rules = [RuleFindings {
            rule: "widths",
            findings: vec![Finding::new("docs/a.md", 1, "wide")],
        }];
        let printed = Counts::of_findings(&rules).to_string();
        assert!(
            printed.ends_with("widths                 1      1\n"),
            "{printed}"
        );
    }
}
