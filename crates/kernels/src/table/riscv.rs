//! The tables of RISC-V with vectors (V 1.0).
//!
//! It refuses to know what a vector is. The one idea: one table for every length, and one for those
//! of at least 256 bits, whose loops occupy half as many registers.

use super::*;
use crate::isa::rvv::{Rvv, vector_bits};

/// A table, and as its base one that has no gate in assembly.
macro_rules! vectors {
    ($table:ident, $base:ident, $name:literal, $long:literal) => {
        table!(
            $base,
            $name,
            16,
            // SAFETY: the functions of this table are only called after `tables` found the length.
            unsafe { Rvv::<{ $long }>::assume() },
            []
        );
        static $table: Table = Table {
            gate: {
                unsafe fn gated(activation: Activation, gate: &mut [f32], up: &[f32]) {
                    // SAFETY: as above.
                    let isa = unsafe { Rvv::<{ $long }>::assume() };
                    match activation {
                        Activation::Silu => isa.silu_products(gate, up),
                        _ => gate::gate(activation, gate, up),
                    }
                }
                gated
            },
            ..$base
        };
    };
}

vectors!(RVV, RVV_BASE, "rvv", false);
vectors!(RVV256, RVV256_BASE, "rvv256", true);

/// The tables of this CPU, best first.
pub(super) fn tables() -> [Option<&'static Table>; 2] {
    let bits = vector_bits();
    [
        (bits >= 256).then_some(&RVV256),
        (bits >= 128).then_some(&RVV),
    ]
}
