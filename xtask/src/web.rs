//! `cargo xtask web`: the builds of the module that browsers load, into `web/dist/`.
//!
//! It knows targets and linkers, and nothing of JavaScript. The one idea: a module is a library
//! that WASI starts by `_initialize`, which cargo links if it is told the object that has it; rustc
//! does all the rest by itself.

mod relaxed;

use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most memory that WebAssembly addresses, bytes. A page may give less.
const MAX_MEMORY: u64 = 1 << 32;
/// The stack of the thread that calls the module, bytes.
const STACK: u64 = 8 << 20;
/// The same where it is the only one, on which grammars are parsed too.
const LONE_STACK: u64 = 40 << 20;

/// Loops of a known length are unrolled up to so many instructions, in crates that are not compiled
/// for size. Those over the groups of a block have some 500, and no constant shifts unless they are
/// unrolled, which V8 multiplies by several instructions.
const UNROLLED: u32 = 1200;

/// The memory that a module begins with beside its stack, bytes: its data, and a heap. A page gives
/// a module with threads as much (`web/features.js`); more than that the heap would never use.
const HEAP: u64 = 8 << 20;

/// A build of the module.
struct Build {
    name: &'static str,
    target: &'static str,
    features: &'static str,
    stack: u64,
}

const BUILDS: [Build; 3] = [
    Build {
        name: "mt-relaxed",
        target: "wasm32-wasip1-threads",
        features: "+simd128,+relaxed-simd",
        stack: STACK,
    },
    Build {
        name: "mt-simd",
        target: "wasm32-wasip1-threads",
        features: "+simd128",
        stack: STACK,
    },
    Build {
        name: "st-simd",
        target: "wasm32-wasip1",
        features: "+simd128",
        stack: LONE_STACK,
    },
];

/// Builds all modules, or those of these names; prints their sizes.
///
/// # Errors
/// An unknown name, a target that is not installed, a build that fails.
pub(crate) fn build(root: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let known = BUILDS.iter().any(|build| build.name == *name);
        ensure!(known, "no build {name}; there are {}", all_names());
    }
    let sysroot = sysroot()?;
    let dist = root.join("web/dist");
    fs::create_dir_all(&dist).with_context(|| dist.display().to_string())?;
    let wanted = |build: &&Build| names.is_empty() || names.contains(&build.name);
    for build in BUILDS.iter().filter(wanted) {
        let module = build.run(root, &sysroot)?;
        let placed = dist.join(format!("{}.wasm", build.name));
        let mut bytes = fs::read(&module).with_context(|| module.display().to_string())?;
        let n_dots = relaxed::settle(&mut bytes).with_context(|| module.display().to_string())?;
        fs::write(&placed, &bytes).with_context(|| placed.display().to_string())?;
        println!(
            "{}: {} bytes, {n_dots} relaxed dot products",
            placed.display(),
            bytes.len()
        );
    }
    Ok(())
}

fn all_names() -> String {
    BUILDS.map(|build| build.name).join(", ")
}

/// Where rustc keeps its targets.
fn sysroot() -> Result<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .context("running rustc")?;
    ensure!(output.status.success(), "rustc gives no sysroot");
    let path = String::from_utf8(output.stdout).context("the sysroot of rustc")?;
    Ok(path.trim().into())
}

impl Build {
    /// Builds the module; its path.
    fn run(&self, root: &Path, sysroot: &Path) -> Result<PathBuf> {
        let start = sysroot.join(format!(
            "lib/rustlib/{}/lib/self-contained/crt1-reactor.o",
            self.target
        ));
        ensure!(
            start.exists(),
            "{} is not installed: rustup target add {}",
            self.target,
            self.target
        );
        // Builds of one target with other features do not share what they have built.
        let folder = root.join("target/web").join(self.name);
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["rustc", "--package", "atta-web", "--lib"])
            .args(["--crate-type", "cdylib", "--profile", "web"])
            .args(["--target", self.target, "--target-dir"])
            .arg(&folder)
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags(&start))
            .current_dir(root)
            .status()
            .context("running cargo")?;
        ensure!(status.success(), "{} cannot be built", self.name);
        Ok(folder.join(self.target).join("web/atta_web.wasm"))
    }

    /// Flags of rustc, one behind the other with the separator of cargo.
    fn flags(&self, start: &Path) -> OsString {
        let mut flags = OsString::from(format!("-Ctarget-feature={}", self.features));
        flags.push(format!("\x1f-Cllvm-args=--unroll-threshold={UNROLLED}"));
        let links = [
            start.display().to_string(),
            "--export=_initialize".to_owned(),
            format!("--initial-memory={}", self.stack + HEAP),
            format!("--max-memory={MAX_MEMORY}"),
            format!("-zstack-size={}", self.stack),
        ];
        for link in links {
            flags.push("\x1f-Clink-arg=");
            flags.push(link);
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_does_not_exist_is_named_with_those_that_do() {
        let error = build(Path::new("."), &["mt-avx"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "no build mt-avx; there are mt-relaxed, mt-simd, st-simd"
        );
    }

    #[test]
    fn flags_are_separated_as_cargo_wants_them() {
        let flags = BUILDS[2].flags(Path::new("crt1-reactor.o"));
        let flags = flags.into_string().unwrap();
        let list: Vec<&str> = flags.split('\x1f').collect();
        assert_eq!(list[0], "-Ctarget-feature=+simd128");
        assert_eq!(list[1], "-Cllvm-args=--unroll-threshold=1200");
        assert_eq!(list[2], "-Clink-arg=crt1-reactor.o");
        // 40 MiB for the stack, and 8 beside it.
        assert_eq!(list[4], "-Clink-arg=--initial-memory=50331648");
        assert_eq!(list[5], "-Clink-arg=--max-memory=4294967296");
        assert_eq!(list.len(), 7);
    }
}
