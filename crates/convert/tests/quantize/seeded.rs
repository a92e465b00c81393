//! Weights from a splitmix64 stream, computed with integers and powers of two only, as in
//! `tests/oracles/quantize_golden.py`.

const SEED: u64 = 20_261_122;
pub(crate) const N_ROWS: usize = 14;
pub(crate) const D_ROW: usize = 768;

/// Output `i` of the stream.
fn splitmix64(i: usize) -> u64 {
    let z = SEED.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The four 16-bit parts of output `i`.
fn parts(i: usize) -> [i64; 4] {
    let bits = splitmix64(i);
    std::array::from_fn(|k| (bits >> (16 * k) & 0xffff) as i64)
}

fn bell(i: usize) -> i64 {
    parts(i).iter().sum::<i64>() - 131_070
}

/// `x · 2^exponent`, rounded once.
fn scaled(x: i64, exponent: i32) -> f32 {
    x as f32 * 2f64.powi(exponent) as f32
}

/// Weight `at` of the row with distribution `kind`.
fn weight(kind: usize, at: usize) -> f32 {
    let i = kind * D_ROW + at;
    let bell_at = bell(i);
    let flat = parts(i)[0];
    match kind {
        0 => scaled(bell_at, -22),
        1 => scaled(bell_at * bell_at * bell_at, -45),
        2 => scaled(flat, -16),
        3 => scaled(-1 - flat, -10),
        4 => scaled(bell_at, -((at / 16 * 7 % 41) as i32)),
        5 => scaled(bell_at, -149),
        6 => scaled(bell_at, -66),
        7 => scaled(bell_at, 108),
        8 => scaled(bell_at, 5),
        9 if at / 32 % 3 == 1 || at >= 512 => 0.0,
        9 => scaled(bell_at, -17),
        10 => scaled(bell(kind * D_ROW + at / 32 * 32), -12),
        11 if at % 256 == 77 => scaled(bell_at << 14, -22),
        11 => scaled(bell_at, -22),
        12 => scaled(flat % 16 - 8, -3),
        _ => scaled(flat % 3 - 1, -2),
    }
}

/// One row of each distribution: normal, heavy tails, positive, negative, another scale every 16,
/// subnormal, tiny, too large for f16, larger than f16, zeros in between and whole blocks of zeros,
/// constant, one outlier, a grid, ternary. `[N_ROWS, D_ROW]`
pub(crate) fn weights() -> Vec<f32> {
    (0..N_ROWS)
        .flat_map(|kind| (0..D_ROW).map(move |at| weight(kind, at)))
        .collect()
}

/// Importance over three orders of magnitude; one in eight is 0. `[D_ROW]`
pub(crate) fn importance() -> Vec<f32> {
    let one = |at| match parts(N_ROWS * D_ROW + at) {
        [_, one, ..] if one % 8 == 0 => 0.0,
        [x, _, exponent, _] => scaled(x, -((exponent % 10) as i32) - 8),
    };
    (0..D_ROW).map(one).collect()
}
