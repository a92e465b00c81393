//! `cargo xtask dist`: the archive of a release for one target, its hash, its bill of materials.
//!
//! It refuses to publish, and knows no machine but this one. The one idea: the same program and
//! commit make the same bytes wherever they are packed, so that what a workflow packed can be
//! packed again and compared.

mod archive;
mod bom;
mod contents;
mod crates;
mod notices;
mod options;

use anyhow::{Context, Result, ensure};
use options::Options;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Packs what `args` ask for; prints hash and name of the archive as `sha256sum` does.
pub(crate) fn run(root: &Path, args: &[String]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("dist: {error}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match pack(root, &options) {
        Ok(line) => {
            print!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dist: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes archive, hash and bill of materials; returns the line of the hash.
fn pack(root: &Path, options: &Options) -> Result<String> {
    let program = match &options.binary {
        Some(path) => path.clone(),
        None => build(root, options)?,
    };
    let crates = crates::read(root, options)?;
    let entries = contents::gather(root, options, &program, &crates)?;
    let bytes = archive::pack(&entries, options.format())?;
    let name = options.archive();
    let line = hash_line(&bytes, &name);
    let out = root.join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let lock = read(&root.join("Cargo.lock"))?;
    let bom = bom::cyclone_dx(&crates, &lock, options)?;
    write(&out.join(&name), &bytes)?;
    write(&out.join(format!("{name}.sha256")), line.as_bytes())?;
    let bom_name = format!("{}.cdx.json", options.name());
    write(&out.join(bom_name), bom.as_bytes())?;
    Ok(line)
}

/// A line that `sha256sum --check` takes.
fn hash_line(bytes: &[u8], name: &str) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{hex}  {name}\n")
}

/// Builds the program of a release and returns its path.
fn build(root: &Path, options: &Options) -> Result<PathBuf> {
    let args = options.build_command();
    let status = cargo()
        .args(&args)
        .current_dir(root)
        .status()
        .context("running cargo")?;
    ensure!(status.success(), "cargo {}: {status}", args.join(" "));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    Ok(root.join(target).join(options.built()))
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// What a program that succeeds writes to standard output.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let said = command
        .output()
        .with_context(|| format!("running {command:?}"))?;
    let errors = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{command:?}: {}", errors.trim());
    Ok(said.stdout)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_in_the_form_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash_line(b"", "a.zip"), format!("{empty}  a.zip\n"));
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_its_words() {
        let error = output(cargo().arg("no-such-command")).unwrap_err();
        assert!(error.to_string().contains("no-such-command"), "{error}");
    }
}
