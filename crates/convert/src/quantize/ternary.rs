//! TQ1_0 and TQ2_0: −1, 0 and 1 times the largest magnitude of 256 weights, for models trained with
//! ternary weights.

use super::{
    pack::{put_f16, two_bit_groups},
    plain::inverse,
    search::{largest_magnitude, round_byte},
};

pub(super) fn tq1_0(x: &[f32; 256], block: &mut [u8; 54]) {
    let (d, trits) = trits(x);
    put_f16(block, 52, d);
    let (wide, rest) = trits.split_at(160);
    let (narrow, last) = rest.split_at(80);
    let weight =
        |trits: &[u8], n: usize, j: usize, of: usize| trits.get(of * n + j).map_or(0, |&trit| trit);
    for (at, byte) in block[..52].iter_mut().enumerate() {
        *byte = match at {
            0..32 => fraction(std::array::from_fn(|n| weight(wide, n, at, 32))),
            32..48 => fraction(std::array::from_fn(|n| weight(narrow, n, at - 32, 16))),
            _ => fraction(std::array::from_fn(|n| weight(last, n, at - 48, 4))),
        };
    }
}

pub(super) fn tq2_0(x: &[f32; 256], block: &mut [u8; 66]) {
    let (d, trits) = trits(x);
    put_f16(block, 64, d);
    two_bit_groups(
        &trits,
        block
            .first_chunk_mut()
            .expect("a block begins with its codes"),
    );
}

/// The scale, and codes biased by 1.
fn trits(x: &[f32; 256]) -> (f32, [u8; 256]) {
    let d = largest_magnitude(x);
    let per_weight = inverse(d);
    (d, x.map(|x| round_byte(x * per_weight).wrapping_add(1)))
}

/// Five ternary digits as a fraction of 256, rounded up.
fn fraction(trits: [u8; 5]) -> u8 {
    let number = trits
        .iter()
        .fold(0, |number, &trit| 3 * number + u16::from(trit));
    (256 * number).div_ceil(243) as u8
}
