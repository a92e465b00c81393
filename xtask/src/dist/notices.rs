//! The licences of other authors' code in a program, which their terms want beside it.
//!
//! It refuses to judge them (`cargo deny` does). The one idea: each text stands once, below the
//! names of all crates that came with it.

use super::crates::Crates;
use super::options::Options;
use super::{cargo, output, read};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the names of such files begin with, in lower case.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];
/// Licences of what the page of `atta serve` is made from.
const PAGE: &str = "crates/server/web/vendor/LICENSES.txt";

/// Texts, each with the crates that it is of.
type Texts = BTreeMap<String, Vec<String>>;

pub(super) fn gather(root: &Path, options: &Options, crates: &Crates) -> Result<String> {
    let mut command = cargo();
    command.current_dir(root).args(["metadata", "--locked"]);
    command.args(["--format-version=1", "--filter-platform", &options.target]);
    let metadata: Value = serde_json::from_slice(&output(&mut command)?)?;
    let packages = metadata["packages"].as_array();
    let mut texts = Texts::new();
    for package in packages.context("cargo metadata lacks packages")? {
        let key = key(package).context("cargo metadata lacks a name")?;
        if crates.contains_key(&key) && package["source"].is_string() {
            let manifest = package["manifest_path"].as_str().unwrap_or_default();
            add(&mut texts, &key, Path::new(manifest))?;
        }
    }
    let page = match options.is_board {
        true => String::new(),
        false => read(&root.join(PAGE))?,
    };
    Ok(render(&texts, &page))
}

/// Name and version of a package: `serde@1.0.0`.
fn key(package: &Value) -> Option<String> {
    let name = package["name"].as_str()?;
    Some(format!("{name}@{}", package["version"].as_str()?))
}

/// Adds the licences that lie beside `manifest`.
fn add(texts: &mut Texts, key: &str, manifest: &Path) -> Result<()> {
    let directory = manifest
        .parent()
        .context("a manifest lies in a directory")?;
    for path in notices(directory).with_context(|| directory.display().to_string())? {
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        let crates = texts.entry(text.trim().to_owned()).or_default();
        if crates.last().is_none_or(|last| last != key) {
            crates.push(key.to_owned());
        }
    }
    Ok(())
}

/// The files of `directory` that are licences, by name.
fn notices(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        paths.push(entry?.path());
    }
    paths.retain(|path| path.is_file() && is_notice(path));
    paths.sort();
    Ok(paths)
}

fn is_notice(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_lowercase();
    NAMES.iter().any(|start| name.starts_with(start))
}

fn render(texts: &Texts, page: &str) -> String {
    let mut out = "atta is linked from code of other authors. Their licences:\n".to_owned();
    for (text, crates) in texts {
        let mut crates = crates.clone();
        crates.sort();
        out += &format!("\n---- {} ----\n\n{text}\n", crates.join(", "));
    }
    if !page.is_empty() {
        out += &format!("\n---- the page of `atta serve` ----\n\n{}\n", page.trim());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stands_once_below_all_its_crates() {
        let crates = vec!["b@1.0.0".to_owned(), "a@1.0.0".to_owned()];
        let texts = Texts::from([("MIT".to_owned(), crates)]);
        let text = render(&texts, "");
        assert!(
            text.ends_with("\n---- a@1.0.0, b@1.0.0 ----\n\nMIT\n"),
            "{text}"
        );
    }

    #[test]
    fn licences_are_known_by_their_names() {
        for name in ["LICENSE-MIT", "COPYING", "a/b/Licence.txt", "NOTICE"] {
            assert!(is_notice(Path::new(name)), "{name}");
        }
        assert!(!is_notice(Path::new("license/Cargo.toml")));
    }
}
