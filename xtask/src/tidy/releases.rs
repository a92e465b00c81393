//! Rules about the files of a release: that installers and recipes name the repository of
//! Cargo.toml, that workflows pin the actions of others by hash, that the site lists every page.
//!
//! It refuses to run anything. The one idea: these files are read by programs that are not here, so
//! the little that can be compared is compared.

use super::Finding;
use anyhow::{Context, Result};
use std::path::Path;

const WORKFLOWS: &str = ".github/workflows";
const SUMMARY: &str = "docs/SUMMARY.md";
/// Files that hold the address of the repository.
const NAMING: [&str; 2] = ["install.sh", "install.ps1"];

pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in files(root, WORKFLOWS)? {
        let text = read(root, &path)?;
        findings.extend(pins(&path, &text));
    }
    let manifest = read(root, "Cargo.toml")?;
    for path in NAMING {
        findings.extend(naming(path, &read(root, path)?, &manifest));
    }
    let mut pages = files(root, "docs")?;
    pages.extend(files(root, "docs/notes")?);
    findings.extend(unlisted(&pages, &read(root, SUMMARY)?));
    Ok(findings)
}

/// Actions of others without the 40 digits of a commit, and the version beside them.
fn pins(path: &str, text: &str) -> Vec<Finding> {
    let uses = (1..).zip(text.lines()).filter_map(|(n, line)| {
        let action = line.split_once("uses: ")?.1;
        (!is_pinned(action)).then_some((n, action))
    });
    uses.map(|(n, action)| {
        let message = format!("`{action}` is not pinned: expected ACTION@COMMIT # VERSION");
        Finding::new(path, n, message)
    })
    .collect()
}

fn is_pinned(action: &str) -> bool {
    let pin = action
        .split_once('@')
        .and_then(|(_, pin)| pin.split_once(" # v"));
    pin.is_some_and(|(commit, version)| {
        commit.len() == 40
            && commit.bytes().all(|b| b.is_ascii_hexdigit())
            && version.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// A file that does not hold the address which `manifest` has.
fn naming(path: &str, text: &str, manifest: &str) -> Option<Finding> {
    let repository = manifest
        .lines()
        .find_map(|line| line.strip_prefix("repository = \"")?.strip_suffix('"'))?;
    let names_it = text.contains(repository);
    (!names_it).then(|| {
        let message = format!("does not name {repository}, the repository of Cargo.toml");
        Finding::new(path, 1, message)
    })
}

/// Pages that the table of contents does not have.
fn unlisted(pages: &[String], summary: &str) -> Vec<Finding> {
    let missing = pages.iter().filter(|page| {
        let name = page.strip_prefix("docs/").unwrap_or(page);
        name.ends_with(".md") && *page != SUMMARY && !summary.contains(&format!("]({name})"))
    });
    missing
        .map(|page| Finding::new(page, 1, format!("is not in {SUMMARY}")))
        .collect()
}

/// Paths of the files in `directory`, from the root.
fn files(root: &Path, directory: &str) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(root.join(directory)).context(directory.to_owned())?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(format!(
                "{directory}/{}",
                entry.file_name().to_string_lossy()
            ));
        }
    }
    Ok(names)
}

fn read(root: &Path, path: &str) -> Result<String> {
    std::fs::read_to_string(root.join(path)).context(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_without_hash_or_version_is_found() {
        let hash = "d23441a48e516b6c34aea4fa41551a30e30af803";
        assert_eq!(pins("a.yml", &format!("  - uses: a/b@{hash} # v6.1.0")), []);
        for bad in [
            "a/b@v4",
            &format!("a/b@{hash}"),
            &format!("a/b@{} # v4", &hash[1..]),
        ] {
            let found = pins("a.yml", &format!("x\n  - uses: {bad}"));
            assert_eq!(found[0].line, 2, "{bad}");
        }
    }

    #[test]
    fn another_repository_is_found() {
        let manifest = "[workspace.package]\nrepository = \"https://a.example/b\"\n";
        assert_eq!(naming("i.sh", "r=https://a.example/b\n", manifest), None);
        let found = naming("i.sh", "r=https://a.example/c\n", manifest).unwrap();
        assert!(found.message.contains("https://a.example/b"));
    }

    #[test]
    fn a_page_that_the_contents_lack_is_found() {
        let pages = ["docs/a.md", "docs/b.md", "docs/d.svg", "docs/notes/c.md"].map(str::to_owned);
        let found = unlisted(&pages, "- [A](a.md)\n- [C](notes/c.md)\n");
        assert_eq!(
            found,
            [Finding::new("docs/b.md", 1, "is not in docs/SUMMARY.md")]
        );
    }
}
