//! Rows that end where memory ends: a kernel that reads behind a matrix does not survive this.

use crate::testing::{Random, pool};
use crate::{Activations, Job, Kernels, Matrix, Store};
use atta_formats::TensorType;
use std::ffi::c_void;

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, prot: i32, flags: i32, fd: i32, off: i64) -> *mut c_void;
    fn mprotect(at: *mut c_void, len: usize, prot: i32) -> i32;
}

/// Larger than any page.
const PAGE: usize = 64 << 10;

/// A copy of `bytes` in front of a page that cannot be read. It is never given back.
fn before_the_end(bytes: &[u8]) -> &'static [u8] {
    const READ_WRITE: i32 = 3;
    const PRIVATE_ANONYMOUS: i32 = 0x22;
    assert!(bytes.len() <= PAGE);
    // SAFETY: new pages, with room for the bytes in the first half; the second half is not touched
    // after it has become unreadable.
    unsafe {
        let null = std::ptr::null_mut();
        let start = mmap(null, 2 * PAGE, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
        assert_ne!(start.addr(), usize::MAX, "no memory");
        assert_eq!(mprotect(start.byte_add(PAGE), PAGE, 0), 0);
        let at = start.byte_add(PAGE - bytes.len()).cast::<u8>();
        at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        std::slice::from_raw_parts(at, bytes.len())
    }
}

/// Multiplies `w` with rows of activations by all kernels.
fn multiply(w: Matrix<'_>, x: &[f32]) {
    let n_rows = x.len() / w.d_in();
    for k in Kernels::available() {
        let k = Kernels::named(k).unwrap();
        let mut a = Activations::new(n_rows, w.d_in());
        let shape = (n_rows, w.d_in());
        a.fill(k, &pool(1), shape, w.layout(), |t, row| {
            row.copy_from_slice(&x[t * w.d_in()..(t + 1) * w.d_in()])
        });
        let mut out = vec![f32::NAN; w.d_out() * n_rows];
        let job = Job {
            w,
            bias: None,
            out: &mut out,
            mode: Store::Set,
        };
        k.matmul(&pool(1), &a, &mut [job]);
        let are_finite = out.iter().all(|y| y.is_finite());
        assert!(are_finite, "{k:?} {} {}", w.tensor_type(), w.d_in());
    }
}

#[test]
fn nothing_is_read_behind_a_short_block_that_ends_the_memory() {
    let mut random = Random(43);
    for ty in [TensorType::T2, TensorType::T3, TensorType::T4] {
        for n in [1, 2, 3, 4, 5, 6, 7, 8, 11, 15] {
            let d_in = 32 * n;
            let bytes = random.weights(ty, 9, d_in, 0.01);
            let w = Matrix::new(ty, 9, d_in, before_the_end(&bytes)).unwrap();
            for n_rows in [1, 2, 3] {
                multiply(w, &random.floats(n_rows * d_in));
            }
        }
    }
}

#[test]
fn nothing_is_read_behind_the_last_row_of_a_matrix() {
    use TensorType::{BF16, F16, F32, Q4_0, Q4_K, Q6_K, Q8_0};
    let mut random = Random(47);
    for ty in [F32, F16, BF16, Q4_0, Q8_0, Q4_K, Q6_K] {
        for n in [1, 2, 3, 5, 9, 17] {
            let d_in = n * ty.row_unit();
            let bytes = random.weights(ty, 9, d_in, 0.01);
            let w = Matrix::new(ty, 9, d_in, before_the_end(&bytes)).unwrap();
            multiply(w, &random.floats(d_in));
        }
    }
}
