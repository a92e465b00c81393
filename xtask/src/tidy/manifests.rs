//! Rules about Cargo.toml files: which crate may use which, and that every dependency is accounted
//! for.
//!
//! It refuses to parse TOML: `cargo metadata` says what the manifests mean. The one idea: the
//! arrows between crates are a table, the same as in ARCHITECTURE.md, and a crate that is not in it
//! cannot be built upon.

use super::{Finding, relative};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const DOC: &str = "docs/dependencies.md";
const EVERY: &[&str] = &["*"];
/// What each package may use of the others outside its tests.
const ARROWS: [(&str, &[&str]); 21] = [
    ("atta-formats", &[]),
    ("atta-tokenizer", &["atta-formats"]),
    ("atta-kernels", &["atta-formats"]),
    (
        "atta-gpu",
        &["atta-model", "atta-store", "atta-kernels", "atta-formats"],
    ),
    ("atta-store", &["atta-formats"]),
    (
        "atta-model",
        &["atta-store", "atta-kernels", "atta-formats"],
    ),
    (
        "atta-constrain",
        &["atta-formats", "atta-store", "atta-tokenizer"],
    ),
    ("atta-chat", &["atta-constrain", "atta-tokenizer"]),
    (
        "atta-engine",
        &[
            "atta-chat",
            "atta-constrain",
            "atta-model",
            "atta-store",
            "atta-tokenizer",
            "atta-kernels",
            "atta-formats",
        ],
    ),
    (
        "atta-eval",
        &["atta-engine", "atta-model", "atta-store", "atta-kernels"],
    ),
    (
        "atta-convert",
        &[
            "atta-engine",
            "atta-model",
            "atta-store",
            "atta-kernels",
            "atta-formats",
            "atta-tokenizer",
        ],
    ),
    ("atta-afxdp", &[]),
    (
        "atta-cluster",
        &[
            "atta-afxdp",
            "atta-model",
            "atta-store",
            "atta-kernels",
            "atta-formats",
        ],
    ),
    ("atta-hub", &[]),
    ("atta-server", &["atta-engine", "atta-store"]),
    ("atta-capi", &["atta-engine", "atta-server"]),
    ("atta-web", &["atta-capi", "atta-engine", "atta-gpu"]),
    ("atta", EVERY),
    (
        "atta-benches",
        &["atta-engine", "atta-model", "atta-kernels", "atta-formats"],
    ),
    ("atta-fuzz", EVERY),
    ("xtask", &[]),
];

/// One Cargo.toml.
#[derive(Debug)]
struct Package {
    name: String,
    /// From the repository root.
    path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    /// Whether it is a package of this repository, by path.
    is_local: bool,
    /// Whether only tests, examples and benchmarks see it.
    is_dev: bool,
}

pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut packages = metadata(root, "Cargo.toml")?;
    if root.join("fuzz/Cargo.toml").exists() {
        packages.extend(metadata(root, "fuzz/Cargo.toml")?);
    }
    let doc = std::fs::read_to_string(root.join(DOC)).unwrap_or_default();
    let mut findings: Vec<Finding> = packages.iter().flat_map(arrows).collect();
    findings.extend(cycle(&packages));
    findings.extend(documented(&packages, &doc));
    for finding in &mut findings {
        finding.line = line_of(root, finding);
    }
    Ok(findings)
}

/// Asks cargo for the packages of the workspace that `manifest` belongs to.
fn metadata(root: &Path, manifest: &str) -> Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = [
        "metadata",
        "--no-deps",
        "--format-version=1",
        "--manifest-path",
        manifest,
    ];
    let output = Command::new(cargo)
        .args(args)
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let json: Value = serde_json::from_slice(&output.stdout).context("output of cargo metadata")?;
    packages(root, &json).context("cargo metadata lacks an expected key")
}

fn packages(root: &Path, json: &Value) -> Option<Vec<Package>> {
    json["packages"]
        .as_array()?
        .iter()
        .map(|package| self::package(root, package))
        .collect()
}

fn package(root: &Path, json: &Value) -> Option<Package> {
    let dependencies = json["dependencies"].as_array()?.iter().map(|dependency| {
        let is_local = dependency["path"].is_string();
        let is_dev = dependency["kind"] == "dev";
        Some(Dependency {
            name: dependency["name"].as_str()?.to_owned(),
            is_local,
            is_dev,
        })
    });
    Some(Package {
        name: json["name"].as_str()?.to_owned(),
        path: relative(root, Path::new(json["manifest_path"].as_str()?)),
        dependencies: dependencies.collect::<Option<_>>()?,
    })
}

fn arrows(package: &Package) -> Vec<Finding> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
        let message = format!(
            "package `{}` is not in the table of crates in xtask and ARCHITECTURE.md",
            package.name
        );
        return vec![Finding::new(&package.path, 1, message)];
    };
    let ours = package
        .dependencies
        .iter()
        .filter(|d| d.is_local && !d.is_dev);
    let wrong = ours.filter(|d| *allowed != EVERY && !allowed.contains(&d.name.as_str()));
    wrong
        .map(|d| {
            Finding::new(
                &package.path,
                1,
                format!(
                    "`{}` may not use `{}` (see ARCHITECTURE.md)",
                    package.name, d.name
                ),
            )
        })
        .collect()
}

/// A package that, through tests too, uses itself. Cargo would allow it; then there would be two
/// copies of its types.
fn cycle(packages: &[Package]) -> Option<Finding> {
    let uses: BTreeMap<&str, &Package> = packages.iter().map(|p| (p.name.as_str(), p)).collect();
    let looped = packages
        .iter()
        .find(|package| reachable(&uses, &package.name).contains(package.name.as_str()))?;
    Some(Finding::new(
        &looped.path,
        1,
        format!("`{}` uses itself through its dependencies", looped.name),
    ))
}

fn reachable<'a>(uses: &BTreeMap<&'a str, &'a Package>, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(package) = open.pop().and_then(|name| uses.get(name)) {
        let ours = package
            .dependencies
            .iter()
            .filter(|d| d.is_local)
            .map(|d| d.name.as_str());
        open.extend(ours.filter(|name| seen.insert(*name)));
    }
    seen
}

/// Dependencies without a row in the document, and rows without a dependency.
fn documented(packages: &[Package], doc: &str) -> Vec<Finding> {
    let rows: BTreeMap<&str, usize> = (1..)
        .zip(doc.lines())
        .filter_map(|(n, line)| Some((row_name(line)?, n)))
        .collect();
    let used = packages.iter().flat_map(|p| {
        p.dependencies
            .iter()
            .filter(|d| !d.is_local)
            .map(move |d| (p, d))
    });
    let names: BTreeSet<&str> = used.clone().map(|(_, d)| d.name.as_str()).collect();
    let missing = used.filter(|(_, d)| !rows.contains_key(d.name.as_str()));
    let missing =
        missing.map(|(p, d)| Finding::new(&p.path, 1, format!("`{}` has no row in {DOC}", d.name)));
    let stale = rows.iter().filter(|(name, _)| !names.contains(*name));
    missing
        .chain(stale.map(|(name, line)| Finding::new(DOC, *line, format!("nothing uses `{name}`"))))
        .collect()
}

/// The name in a table row that begins with a name in backticks.
fn row_name(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?
        .split_once('`')
        .map(|(name, _)| name)
}

/// The line of a manifest that begins with the last name in backticks of the message, else the line
/// already known.
fn line_of(root: &Path, finding: &Finding) -> usize {
    let text = std::fs::read_to_string(root.join(&finding.path)).unwrap_or_default();
    let name = finding.message.rsplit('`').nth(1).unwrap_or_default();
    let names_it = |line: &str| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    text.lines()
        .position(names_it)
        .map_or(finding.line, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A package whose dependencies are `name` (by registry), `@name` (ours), `@name dev`.
    fn sample(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|text| Dependency {
            name: text
                .trim_start_matches('@')
                .trim_end_matches(" dev")
                .to_owned(),
            is_local: text.starts_with('@'),
            is_dev: text.ends_with(" dev"),
        });
        Package {
            name: name.to_owned(),
            path: format!("crates/{name}/Cargo.toml"),
            dependencies: dependencies.collect(),
        }
    }

    #[test]
    fn an_arrow_against_the_table_is_found() {
        for (name, used) in [
            ("atta-kernels", "@atta-store"),
            ("atta-formats", "@atta-kernels"),
            ("xtask", "@atta"),
        ] {
            let findings = arrows(&sample(name, &[used, "libc"]));
            assert!(findings[0].message.contains("may not use"), "{findings:?}");
        }
        for (name, used) in [
            ("atta-model", "@atta-store"),
            ("atta-kernels", "@atta-store dev"),
            ("atta", "@atta-formats"),
        ] {
            assert_eq!(arrows(&sample(name, &[used])), [], "{name} {used}");
        }
    }

    #[test]
    fn a_package_outside_the_table_is_found() {
        assert!(
            arrows(&sample("atta-misc", &[]))[0]
                .message
                .contains("not in the table")
        );
    }

    #[test]
    fn a_cycle_through_tests_is_found() {
        let good = [
            sample("a", &["@b"]),
            sample("b", &["@c dev"]),
            sample("c", &[]),
        ];
        assert_eq!(cycle(&good), None);
        let bad = [
            sample("x", &["@a"]),
            sample("a", &["@b"]),
            sample("b", &["@a dev"]),
        ];
        assert_eq!(
            cycle(&bad).unwrap().message,
            "`a` uses itself through its dependencies"
        );
    }

    #[test]
    fn a_dependency_without_a_row_and_a_row_without_a_dependency_are_found() {
        let doc = "| name | why |\n|---|---|\n| `libc` | calls |\n| `gone` | once |\n";
        let found = documented(&[sample("a", &["libc", "serde dev", "@b"])], doc);
        let lines: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert_eq!(
            lines,
            [
                "crates/a/Cargo.toml:1: `serde` has no row in docs/dependencies.md",
                "docs/dependencies.md:4: nothing uses `gone`"
            ]
        );
    }

    #[test]
    fn what_cargo_says_is_understood() {
        let json = json!({"packages": [{"name": "a", "manifest_path": "/r/crates/a/Cargo.toml", "dependencies": [
            {"name": "b", "path": "/r/crates/b", "kind": "dev"}, {"name": "libc", "kind": null}]}]});
        let found = packages(Path::new("/r"), &json).unwrap();
        assert_eq!(
            format!("{found:?}"),
            format!("{:?}", [sample("a", &["@b dev", "libc"])])
        );
        assert!(packages(Path::new("/r"), &json!({"packages": [{}]})).is_none());
    }

    #[test]
    fn this_workspace_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let names: Vec<String> = metadata(root, "Cargo.toml")
            .unwrap()
            .into_iter()
            .map(|p| p.name)
            .collect();
        assert!(names.contains(&"xtask".to_owned()), "{names:?}");
    }
}
