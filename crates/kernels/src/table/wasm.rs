//! The table of WebAssembly with `simd128`.
//!
//! It refuses to detect anything: a module is built with `simd128` or without it.

use super::*;

table!(SIMD128, "simd128", 16, crate::isa::wasm::Simd128, []);

/// The table that this build was made for.
pub(super) fn tables() -> [Option<&'static Table>; 1] {
    [Some(&SIMD128)]
}
