//! The loops against plain code, bit for bit. They test nothing on a CPU without vectors.

use super::super::{any, long};
use super::*;
use crate::isa::Floats;
use crate::isa::scalar::Scalar;
use crate::testing::{Random, bits};

/// Runs a function for vectors of any length, and for long ones.
macro_rules! for_each_length {
    ($check:ident) => {
        if let Some(isa) = any() {
            $check(isa);
        }
        if let Some(isa) = long() {
            $check(isa);
        }
    };
}

/// Numbers that exponentials treat in ways of their own.
const ODD: [f32; 12] = [
    0.0,
    -0.0,
    1.0,
    -86.99,
    -87.0,
    -87.01,
    -104.5,
    88.9,
    300.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

#[test]
fn squares_have_the_bits_of_plain_code() {
    fn check<const LONG: bool>(isa: Rvv<LONG>) {
        let mut random = Random(3);
        for n in 0..5 {
            let x = random.floats(16 * n);
            let x = x.as_chunks().0;
            let want = Scalar.to_array(Scalar.lanes_of_squares(x, -0.3));
            assert_eq!(bits(&isa.sums_of_squares(x, -0.3)), bits(&want));
        }
    }
    for_each_length!(check);
}

#[test]
fn weights_have_the_bits_of_plain_code() {
    fn check<const LONG: bool>(isa: Rvv<LONG>) {
        let mut random = Random(5);
        for n in 0..5 {
            let mut x: Vec<f32> = random.floats(16 * n).iter().map(|x| x * 90.0).collect();
            let odd = ODD.iter().filter(|odd| n > 2 || !odd.is_nan());
            x.iter_mut().zip(odd).for_each(|(x, odd)| *x = *odd);
            let mut want = x.clone();
            let sums = Scalar.weigh(want.as_chunks_mut().0, 0.25);
            let got = isa.exponentials(x.as_chunks_mut().0, 0.25);
            assert_eq!(bits(&x), bits(&want));
            assert_eq!(bits(&got), bits(&Scalar.to_array(sums)));
        }
    }
    for_each_length!(check);
}

#[test]
fn gates_have_the_bits_of_plain_code() {
    use crate::algo::gate::{Activation, gate};
    fn check<const LONG: bool>(isa: Rvv<LONG>) {
        let mut random = Random(7);
        for n in 0..40 {
            let mut x: Vec<f32> = random.floats(n).iter().map(|x| x * 120.0).collect();
            x.iter_mut().zip(ODD).for_each(|(x, odd)| *x = odd);
            let up = random.floats(n);
            let mut want = x.clone();
            gate(Activation::Silu, &mut want, &up);
            isa.silu_products(&mut x, &up);
            assert_eq!(bits(&x), bits(&want), "{n}");
        }
    }
    for_each_length!(check);
}

#[test]
fn codes_are_those_of_plain_code() {
    fn check<const LONG: bool>(isa: Rvv<LONG>) {
        let mut random = Random(9);
        for factor in [1.0, 1e-36, 1e30, 0.0, f32::INFINITY, f32::NAN] {
            let mut x: [f32; 256] = random.floats(256).try_into().unwrap();
            x[77] *= factor;
            x.iter_mut().for_each(|x| *x *= factor.min(2.0));
            let (mut want, mut got) = ([0; 256], [0; 256]);
            let scale = Scalar.quantize(&x, &mut want);
            assert_eq!(isa.codes_of(&x, &mut got).to_bits(), scale.to_bits());
            assert_eq!(got, want, "{factor}");
            let part = x.first_chunk::<32>().unwrap();
            let (mut want, mut got) = ([0; 32], [0; 32]);
            let scale = Scalar.quantize(part, &mut want);
            assert_eq!(isa.codes_of(part, &mut got).to_bits(), scale.to_bits());
            assert_eq!(got, want, "{factor}");
        }
    }
    for_each_length!(check);
}

#[test]
fn products_of_codes_are_exact() {
    fn check<const LONG: bool>(isa: Rvv<LONG>) {
        let mut random = Random(11);
        let w: [i16; 256] = std::array::from_fn(|_| random.next() as i16 >> 1);
        let x: [i8; 256] = std::array::from_fn(|_| random.next() as i8);
        let products = w.iter().zip(x).map(|(w, x)| i32::from(*w) * i32::from(x));
        let want: Vec<i32> = products.collect();
        assert_eq!(isa.dot_of_codes(&w, &x), want.iter().sum::<i32>());
        let (w, x) = (w.first_chunk::<16>(), x.first_chunk::<16>());
        let got = isa.dot_of_codes(w.unwrap(), x.unwrap());
        assert_eq!(got, want[..16].iter().sum::<i32>());
    }
    for_each_length!(check);
}

/// Bytes of codes, and pairs of as many.
fn codes(random: &mut Random, n: usize) -> (Vec<u8>, Vec<i32>) {
    let bytes = (0..2 * n + 1).map(|_| random.next() as u8).collect();
    (
        bytes,
        (0..n.div_ceil(2)).map(|_| random.next() as i32).collect(),
    )
}

#[test]
fn rows_of_any_length_are_multiplied_wherever_they_lie() {
    fn check<const LONG: bool>(isa: Rvv<LONG>) {
        let mut random = Random(13);
        for n in (0..70).chain([127, 128, 576]) {
            let (bytes, x) = codes(&mut random, n);
            for from in 0..2 {
                let row = &bytes[from..].as_chunks().0[..n];
                assert_eq!(isa.dot_of_row(row, &x), plain_dot(row, &x), "{n} {from}");
            }
        }
    }
    for_each_length!(check);
}

#[test]
fn weighted_rows_have_the_bits_of_plain_code() {
    fn check<const LONG: bool>(isa: Rvv<LONG>) {
        let mut random = Random(17);
        let (bytes, weights) = codes(&mut random, 32 * 64);
        for (columns, positions) in [(1, 0..1), (31, 3..32), (32, 0..32), (33, 7..9), (64, 5..5)] {
            for from in 0..2 {
                let rows = CodeRows {
                    bytes: &bytes[from..],
                    row_bytes: 128,
                };
                let mut got = random.floats(columns);
                let mut want = got.clone();
                isa.add_weighted(rows, &weights, positions.clone(), &mut got);
                plain_sums(rows, &weights, positions.clone(), &mut want);
                assert_eq!(bits(&got), bits(&want), "{columns} {positions:?}");
            }
        }
    }
    for_each_length!(check);
}
