//! The software bill of materials of a program, in the JSON of CycloneDX 1.6.
//!
//! It refuses to say when and where it was made: equal crates make equal bytes. The one idea: the
//! arrows are cargo's, the hashes are those of Cargo.lock.

use super::crates::{Crates, LinkedCrate};
use super::options::Options;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The crate whose program it is.
const PROGRAM: &str = "atta";

/// `lock` is the text of Cargo.lock.
pub(super) fn cyclone_dx(crates: &Crates, lock: &str, options: &Options) -> Result<String> {
    let checksums = checksums(lock);
    let (key, program) = crates
        .iter()
        .find(|(_, found)| found.name == PROGRAM)
        .context("cargo tree lists no crate `atta`")?;
    let mut described = component(key, program, None);
    described["type"] = json!("application");
    described["properties"] = json!([{"name": "cargo:target", "value": options.target}]);
    let others = crates.iter().filter(|(other, _)| *other != key);
    let components: Vec<Value> = others
        .map(|(key, found)| component(key, found, checksums.get(key)))
        .collect();
    let arrows = crates.iter();
    let dependencies: Vec<Value> = arrows
        .map(|(key, found)| json!({"ref": key, "dependsOn": found.uses}))
        .collect();
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": described},
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&bom)? + "\n")
}

fn component(key: &str, found: &LinkedCrate, checksum: Option<&String>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": key,
        "name": found.name,
        "version": found.version,
        "purl": format!("pkg:cargo/{}@{}", found.name, found.version.replace('+', "%2B")),
    });
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if !found.license.is_empty() {
        component["licenses"] = json!([{"expression": found.license}]);
    }
    if !found.repository.is_empty() {
        component["externalReferences"] = json!([{"type": "vcs", "url": found.repository}]);
    }
    component
}

/// Checksums of the packages of Cargo.lock that have one, by name and version.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|package| {
            let key = format!("{}@{}", field(package, "name")?, field(package, "version")?);
            Some((key, field(package, "checksum")?.to_owned()))
        })
        .collect()
}

/// The text of a line `name = "text"`.
fn field<'a>(package: &'a str, name: &str) -> Option<&'a str> {
    package.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(" = \"")?;
        value.strip_suffix('"')
    })
}

#[cfg(test)]
mod tests {
    use super::super::{crates, options};
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"b\"\nversion = \"2.0.0\"\n\
        checksum = \"abc\"\n\n[[package]]\nname = \"atta\"\nversion = \"0.1.0\"\n";

    fn sample() -> Value {
        let options = options::tests::parse("--target x86_64-unknown-linux-musl").unwrap();
        let text = cyclone_dx(&crates::tests::sample(), LOCK, &options).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn crates_have_names_hashes_and_licences() {
        let b = &sample()["components"][0];
        assert_eq!(b["purl"], "pkg:cargo/b@2.0.0");
        assert_eq!(b["hashes"][0]["content"], "abc");
        assert_eq!(b["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(sample()["components"][1]["hashes"], Value::Null);
    }

    #[test]
    fn the_program_is_described_and_is_no_component_of_itself() {
        let bom = sample();
        assert_eq!(bom["metadata"]["component"]["bom-ref"], "atta@0.1.0");
        assert_eq!(bom["components"].as_array().unwrap().len(), 2);
        let of_atta = &bom["dependencies"][0];
        assert_eq!(of_atta["dependsOn"], json!(["b@2.0.0", "c@3.0.0"]));
    }
}
