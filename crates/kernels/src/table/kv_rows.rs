//! The functions that store heads of keys and values, and read them.
//!
//! It refuses to know what the rows are for. The one idea: a row that is stored rotated is rotated
//! here, so that its type alone says what lies in a block.

use crate::algo::kv;
use crate::isa::scalar::Scalar;
use crate::{D_HEAD_MAX, Kernels, KvRows};

impl Kernels {
    /// Stores the head `x`, `[rows.d]`, at position `i` of `block`: the rows of a head in a KV
    /// block, whose number of positions follows from its length.
    ///
    /// # Panics
    /// If lengths do not match, or `x` is wider than [`D_HEAD_MAX`] and the row rotated.
    pub fn store_kv(self, x: &[f32], rows: KvRows, i: usize, block: &mut [u8]) {
        assert_eq!(x.len(), rows.d, "the width of a row");
        assert_whole(rows, block);
        if !rows.is_rotated() {
            // SAFETY: as above.
            return unsafe { (self.table().store_kv)(x, rows, i, block) };
        }
        assert!(
            x.len() <= D_HEAD_MAX,
            "a rotated head of {} elements",
            x.len()
        );
        let mut room = [0.0; D_HEAD_MAX];
        let rotated = &mut room[..x.len()];
        rotated.copy_from_slice(x);
        self.hadamard(rotated);
        // SAFETY: as above.
        unsafe { (self.table().store_kv)(rotated, rows, i, block) }
    }

    /// What [`store_kv`](Self::store_kv) stored at position `i` of `block`, as near as the type
    /// keeps it, into `out`, `[rows.d]`.
    ///
    /// # Panics
    /// If lengths do not match.
    pub fn load_kv(self, rows: KvRows, i: usize, block: &[u8], out: &mut [f32]) {
        assert_eq!(out.len(), rows.d, "the width of a row");
        assert_whole(rows, block);
        // It is not called so often that it should be compiled for every instruction set.
        kv::load(Scalar, rows, i, block, out);
        if rows.is_rotated() {
            self.hadamard(out);
        }
    }
}

/// Asserts that a block holds whole rows.
fn assert_whole(rows: KvRows, block: &[u8]) {
    assert!(
        block.len().is_multiple_of(rows.row_bytes().max(1)),
        "{} bytes of rows of {}",
        block.len(),
        rows.row_bytes()
    );
}
