//! The crates whose code is in a program, as `cargo tree` lists them.
//!
//! It refuses to resolve anything itself: features and targets are cargo's to know. The one idea:
//! `--prefix depth` makes a tree of lines, whose depths give the arrows.

use super::options::Options;
use super::{cargo, output};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The format of a line behind its depth.
const FORMAT: &str = "{p}\t{l}\t{r}";

/// A crate and the crates that it uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LinkedCrate {
    pub(super) name: String,
    pub(super) version: String,
    /// An expression of SPDX, empty where the crate names none.
    pub(super) license: String,
    pub(super) repository: String,
    /// Names with versions: `serde@1.0.0`.
    pub(super) uses: Vec<String>,
}

/// Crates by name and version, the first of them `atta`.
pub(super) type Crates = BTreeMap<String, LinkedCrate>;

/// Asks cargo for the crates that the program is linked from; what only compiles them is left out.
pub(super) fn read(root: &Path, options: &Options) -> Result<Crates> {
    let mut command = cargo();
    command.current_dir(root).args(["tree", "--locked"]);
    command.args(["--package", "atta", "--target", &options.target]);
    command.args(["--edges", "normal,no-proc-macro"]);
    command.args(["--prefix", "depth", "--format", FORMAT]);
    command.args(options.features());
    let text = String::from_utf8(output(&mut command)?).context("output of cargo tree")?;
    parse(&text)
}

fn parse(text: &str) -> Result<Crates> {
    let mut crates = Crates::new();
    // The crates above the line, from the root on.
    let mut above: Vec<String> = Vec::new();
    for line in text.lines() {
        let (depth, found) =
            line_crate(line).with_context(|| format!("output of cargo tree: {line:?}"))?;
        let key = format!("{}@{}", found.name, found.version);
        above.truncate(depth);
        let user = above.last().and_then(|user| crates.get_mut(user));
        if let Some(user) = user.filter(|user| !user.uses.contains(&key)) {
            user.uses.push(key.clone());
        }
        crates.entry(key.clone()).or_insert(found);
        above.push(key);
    }
    crates.values_mut().for_each(|found| found.uses.sort());
    Ok(crates)
}

/// Depth and crate of a line such as `2serde v1.0.0 (*)`.
fn line_crate(line: &str) -> Option<(usize, LinkedCrate)> {
    let start = line.find(|c: char| !c.is_ascii_digit())?;
    let mut columns = line[start..].split('\t');
    let mut words = columns.next()?.split(' ');
    // A crate that was listed above ends with this mark, behind the last column.
    let mut column = || columns.next().map(|text| text.trim_end_matches(" (*)"));
    let found = LinkedCrate {
        name: words.next()?.to_owned(),
        version: words.next()?.strip_prefix('v')?.to_owned(),
        // Before SPDX, `/` stood for `OR`.
        license: column()?.replace('/', " OR "),
        repository: column()?.to_owned(),
        uses: Vec::new(),
    };
    Some((line[..start].parse().ok()?, found))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::dist) const TREE: &str = "0atta v0.1.0 (/x/cli)\tMIT OR Apache-2.0\t
1b v2.0.0\tMIT/Apache-2.0\thttps://b.example
2c v3.0.0\tISC\t
1c v3.0.0\tISC\t (*)
";

    pub(in crate::dist) fn sample() -> Crates {
        parse(TREE).unwrap()
    }

    #[test]
    fn depths_become_arrows() {
        let crates = sample();
        assert_eq!(crates["atta@0.1.0"].uses, ["b@2.0.0", "c@3.0.0"]);
        assert_eq!(crates["b@2.0.0"].uses, ["c@3.0.0"]);
        assert_eq!(crates.len(), 3);
    }

    #[test]
    fn licences_are_expressions_of_spdx() {
        assert_eq!(sample()["b@2.0.0"].license, "MIT OR Apache-2.0");
        assert_eq!(sample()["c@3.0.0"].repository, "");
    }

    #[test]
    fn a_line_that_is_no_crate_is_an_error() {
        let error = parse("0atta\n").unwrap_err();
        assert!(error.to_string().contains("\"0atta\""), "{error}");
    }
}
