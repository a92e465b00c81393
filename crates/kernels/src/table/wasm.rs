//! WebAssembly with SIMD: one table, whose instructions the build has or has not.

use super::*;

table!(SIMD128, "simd128", 16, crate::isa::wasm::Simd128, []);

/// The table that this build was made for.
pub(super) fn tables() -> [Option<&'static Table>; 1] {
    [Some(&SIMD128)]
}
