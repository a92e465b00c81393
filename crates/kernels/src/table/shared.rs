//! The functions that take little time: where programs must stay small, all tables share the plain
//! ones, whose results are the same. 18 KB on x86-64.

use super::{SCALAR, Table};

/// The table of an instruction set with what it shares with the plain one.
pub(super) const fn shared(table: Table) -> Table {
    if !crate::SMALL {
        return table;
    }
    Table {
        merge_chunks: SCALAR.merge_chunks,
        layer_norm: SCALAR.layer_norm,
        rope: SCALAR.rope,
        l2_norm_inplace: SCALAR.l2_norm_inplace,
        mix: SCALAR.mix,
        keep_large: SCALAR.keep_large,
        store_kv: SCALAR.store_kv,
        hadamard: SCALAR.hadamard,
        ..table
    }
}
