//! 32-bit ARM: the table of NEON. Plain code are what it lacks in time, not in bits: float weights
//! without VFPv4, norms, rope, gates, scans.

use super::*;
use crate::fused::armv7;
use crate::isa::armv7::{self as isa, Armv7};

table_with_products!(
    PRODUCTS,
    "neon",
    // SAFETY: the functions of this table are only called after `tables` found the feature.
    unsafe { Armv7::assume() },
    [],
    SCALAR
);

/// NEON alone: Cortex-A8 and A9.
static NEON: Table = {
    entry!([] attend(query: &Query<'_>, buffers: &mut AttnBuffers<'_>, out: AttnOut<'_, '_>)
        // SAFETY: as above.
        attention::attend(unsafe { Armv7::assume() }, query, buffers, out));
    Table {
        quantize_256: isa::quantize_256,
        quantize_32: isa::quantize_32,
        attend,
        ..PRODUCTS
    }
};

/// NEON where VFPv4 widens f16: Cortex-A5, A7, A15 and all later ones.
static NEON_VFPV4: Table = {
    let mut row_tiles = NEON.row_tiles;
    row_tiles[Format::F16 as usize] = armv7::halves;
    Table { row_tiles, ..NEON }
};

/// The table of this CPU, if it has NEON.
pub(super) fn tables() -> [Option<&'static Table>; 1] {
    let table = if isa::has_vfpv4() { &NEON_VFPV4 } else { &NEON };
    [(cfg!(target_endian = "little") && isa::has_neon()).then_some(table)]
}
