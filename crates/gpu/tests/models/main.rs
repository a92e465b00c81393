//! Models on every driver of this machine, bit by bit beside the CPU.
//!
//! A harness of its own, as that of `drivers`: what no driver computes must be seen to be skipped.
//! A name as an argument runs one test only, a second one takes only goldens with that name.
//! Expected bits come from the CPU's plain instruction set, never from a GPU.

#[cfg(not(feature = "native"))]
fn main() {
    println!("skipped: built without drivers (feature `native`)");
}

#[cfg(feature = "native")]
#[path = "../../../model/tests/support/mod.rs"]
mod support;

#[cfg(feature = "native")]
mod native;

#[cfg(feature = "native")]
fn main() -> std::process::ExitCode {
    native::main()
}
