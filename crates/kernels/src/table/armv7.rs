//! 32-bit ARM: the table of NEON, which has assembly for what takes the time of a token, the formats
//! of most files and attention; everything else is the plain code.

use super::*;
use crate::fused::armv7;
use crate::isa::armv7 as isa;

/// NEON, with the plain loops for F16.
static NEON: Table = {
    let mut row_tiles = SCALAR.row_tiles;
    row_tiles[Format::Q4_0 as usize] = armv7::q4_0;
    row_tiles[Format::Q8_0 as usize] = armv7::q8_0;
    row_tiles[Format::Q4_K as usize] = armv7::q4_k;
    row_tiles[Format::Q6_K as usize] = armv7::q6_k;
    Table {
        name: "neon",
        row_tiles,
        attend: isa::attend,
        dots: isa::dots,
        ..SCALAR
    }
};

/// NEON where VFPv4 widens f16: Cortex-A7, A15 and all later ones.
static NEON_VFPV4: Table = {
    let mut row_tiles = NEON.row_tiles;
    row_tiles[Format::F16 as usize] = armv7::f16;
    Table { row_tiles, ..NEON }
};

/// The table of this CPU, if it has NEON.
pub(super) fn tables() -> [Option<&'static Table>; 1] {
    let table = if isa::has_vfpv4() { &NEON_VFPV4 } else { &NEON };
    [(cfg!(target_endian = "little") && isa::has_neon()).then_some(table)]
}
