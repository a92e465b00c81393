//! The table of WebAssembly with `simd128`, and dot products of bytes if the module has them.
//!
//! It refuses to detect anything: a module is built with `relaxed-simd`, `simd128` or without.

use super::*;

#[cfg(not(target_feature = "relaxed-simd"))]
table!(SIMD128, "simd128", 16, crate::isa::wasm::Simd128, []);
#[cfg(target_feature = "relaxed-simd")]
table!(SIMD128, "relaxed", 16, crate::isa::wasm::Simd128, []);

/// The table that this build was made for.
pub(super) fn tables() -> [Option<&'static Table>; 1] {
    [Some(&SIMD128)]
}
