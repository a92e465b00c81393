//! How the shared library is linked: its name in other programs, and which symbols it shows.
//!
//! Knows no code. The one idea: crates that are linked into it export C functions of their own,
//! which a program may have too; only those of this crate are to be seen.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" || target("OS") == "android" {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libatta.so.1");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
}
