//! What the machine can do at best: byte dot products that never leave the registers, and reads
//! that do nothing else.

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::isa::amx::{self, Amx};
use crate::isa::{Flat, Lanes, Row};
use std::hint::black_box;

/// Sums that are independent of each other, more than the latency of a dot product hides.
const SUMS: usize = 12;

/// `n` rounds of dot products on vectors; the multiplications of bytes done.
#[inline(always)]
pub(crate) fn dots_of_lanes<I: Lanes>(isa: I, n: usize) -> u64 {
    let (w, x) = (
        isa.splat4(&black_box([3; 4])),
        isa.splat4(&black_box([5; 4])),
    );
    let mut sums = [isa.widen_start(isa.splat(0)).1; SUMS];
    for _ in 0..n {
        for sum in &mut sums {
            *sum = isa.dot4(*sum, w, isa.opaque(x));
        }
    }
    let total = sums
        .into_iter()
        .fold(isa.splat(0), |a, b| isa.widen_add(a, b));
    black_box(isa.to_floats(total));
    (n * SUMS * 4 * I::LANES) as u64
}

/// The same of the dot products of arrays.
#[inline(always)]
pub(crate) fn dots_of_arrays<I: Flat>(isa: I, n: usize) -> u64 {
    let (w, x) = ([3i16; 256], [5i8; 256]);
    for _ in 0..n {
        black_box(isa.dot(black_box(&w), black_box(&x)));
    }
    256 * n as u64
}

/// The same of matrix tiles.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
pub(crate) fn dots_of_tiles(isa: Amx, n: usize) -> u64 {
    let mut tiles = isa.configure([amx::ROWS; 2], 64);
    tiles.clear();
    let macs: usize = (0..n).map(|_| tiles.multiply_registers()).sum();
    macs as u64
}

/// Reads all of `bytes` in `S` streams, asking for lines `ahead` bytes in front of each; 0: not
/// asking.
#[inline(always)]
pub(crate) fn read<I: Row, const S: usize>(isa: I, bytes: &[u8], ahead: usize) {
    let mut sums = [[0u64; 8]; 4];
    let part = bytes.len() / S;
    let streams: [&[[u8; 256]]; S] =
        std::array::from_fn(|s| bytes[s * part..(s + 1) * part].as_chunks().0);
    for k in 0..streams[0].len() {
        for stream in &streams {
            let chunk = &stream[k];
            for (i, sum) in sums.iter_mut().enumerate() {
                if ahead > 0 {
                    isa.prefetch(chunk, ahead + 64 * i);
                }
                for (sum, word) in sum
                    .iter_mut()
                    .zip(chunk[64 * i..64 * i + 64].as_chunks::<8>().0)
                {
                    *sum ^= u64::from_ne_bytes(*word);
                }
            }
        }
    }
    black_box(sums);
}
