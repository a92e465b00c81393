//! Single operations of `exact.wgsl` and `math.wgsl` beside IEEE arithmetic and atta-kernels.
//!
//! What other comparisons rely on: that nothing is fused or reassociated, and that divisions,
//! roots and conversions are rounded to nearest even, near ties and at the ends of their ranges.

use super::{Contents, Probe};
use crate::host::{Dispatch, PARAM_WORDS};
use crate::samples::Samples;
use crate::{Error, Shader};
use atta_formats::f16::f16_to_f32;
use atta_kernels::math;

/// Words of an array.
const N: usize = 4096;
/// Adding this rounds to an integer.
const ROUND: f32 = 12_582_912.0;

/// Three arrays of operands, and the function of three operands.
struct Operation {
    /// Its number in `operations.wgsl`.
    kind: u32,
    operands: [Vec<u32>; 3],
    result: fn(u32, u32, u32) -> u32,
}

pub(super) fn check(probe: &mut Probe<'_>) -> Result<(), Error> {
    let mut samples = Samples(17);
    for operation in operations(&mut samples) {
        let [a, b, c] = &operation.operands;
        let got = on_gpu(probe, &operation)?;
        let expected = a.iter().zip(b).zip(c);
        let expected = expected.map(|((&a, &b), &c)| (operation.result)(a, b, c));
        probe.same(&format!("operation {}", operation.kind), &got, expected)?;
    }
    Ok(())
}

fn on_gpu(probe: &mut Probe<'_>, operation: &Operation) -> Result<Vec<u32>, Error> {
    let bindings = probe.fill(&Contents {
        weights: &[],
        n_acts: 4 * N,
        values: &[],
        tables: &[],
        kv: &[],
    })?;
    let words = operation.operands.iter().flatten();
    let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    probe.host.write(bindings.acts, 0, &bytes)?;
    let mut params = [0; PARAM_WORDS];
    params[1..3].copy_from_slice(&[operation.kind, N as u32]);
    probe.run(&Shader::operations(), |pipeline| Dispatch {
        pipeline,
        bindings,
        params,
        grid: [N as u32 / 64, 1, 1],
    })?;
    probe.words(bindings.acts, 3 * N, N)
}

/// Floats of both signs with magnitudes around 1, some with few bits and some with all.
fn floats(samples: &mut Samples) -> Vec<u32> {
    let word = |(i, word): (usize, u32)| {
        let mantissa = match i % 4 {
            0 => word & 0x7f_ffff,
            1 => 0x7f_ffff - (word & 3),
            2 => word & 3,
            _ => word & 0x70_0000,
        };
        (word & 0x8000_0000) | ((100 + word % 50) << 23) | mantissa
    };
    samples.words(N).into_iter().enumerate().map(word).collect()
}

/// Floats between −size and size.
fn within(samples: &mut Samples, size: f32) -> Vec<u32> {
    let all = samples.floats(N).into_iter();
    all.map(|x| (x * size).to_bits()).collect()
}

/// Integers of every size, ties of the conversion and their neighbours among them.
fn integers(samples: &mut Samples) -> Vec<u32> {
    let word = |(i, word): (usize, u32)| match i % 4 {
        0 => word,
        1 => (word as i32 >> (word % 31)) as u32,
        2 => (1u32 << 24 << (word % 7)).wrapping_add((1 << (word % 7)) / 2 + word / 7 % 3) - 1,
        _ => [
            0,
            1,
            u32::MAX,
            i32::MAX as u32,
            i32::MIN as u32,
            0xff00_0001,
        ][i / 4 % 6],
    };
    samples.words(N).into_iter().enumerate().map(word).collect()
}

fn operations(samples: &mut Samples) -> Vec<Operation> {
    let [a, b] = [floats(samples), floats(samples)];
    // What a fused operation would leave of a product, and a reassociated one of a sum.
    let products = a
        .iter()
        .zip(&b)
        .map(|(&a, &b)| (-(float(a) * float(b))).to_bits());
    let products: Vec<u32> = products.collect();
    let rounds = vec![ROUND.to_bits(); N];
    let halves = samples.words(N).into_iter().map(|word| word & 0xffff);
    let halves = halves.filter(|half| half & 0x7c00 != 0x7c00);
    let mut halves: Vec<u32> = halves.collect();
    halves.resize(N, 1);
    let none = || vec![0; N];
    let magnitudes = a.iter().map(|x| x & 0x7fff_ffff).collect();
    let operation = |kind, operands, result| Operation {
        kind,
        operands,
        result,
    };
    let small = within(samples, 4e6);
    let mut all = vec![
        operation(0, [a.clone(), b.clone(), none()], |a, b, _| {
            (float(a) / float(b)).to_bits()
        }),
        operation(1, [magnitudes, none(), none()], |a, _, _| {
            float(a).sqrt().to_bits()
        }),
        operation(2, [integers(samples), none(), none()], |a, _, _| {
            (a as i32 as f32).to_bits()
        }),
        operation(3, [halves, none(), none()], |a, _, _| {
            f16_to_f32(a as u16).to_bits()
        }),
        operation(4, [a.clone(), b, products], |a, b, c| {
            (float(a) * float(b) + float(c)).to_bits()
        }),
        operation(5, [a, rounds.clone(), rounds], |a, b, c| {
            ((float(a) + float(b)) - float(c)).to_bits()
        }),
        operation(6, [small, none(), none()], |a, _, _| {
            float(a).round_ties_even() as i32 as u32
        }),
    ];
    all.extend(functions(samples));
    all
}

fn functions(samples: &mut Samples) -> [Operation; 4] {
    let mut operation = |kind, size, result: fn(u32, u32, u32) -> u32| Operation {
        kind,
        operands: [within(samples, size), vec![0; N], vec![0; N]],
        result,
    };
    [
        operation(7, 80.0, |a, _, _| math::exp(float(a)).to_bits()),
        operation(8, 5.0, |a, _, _| math::tanh(float(a)).to_bits()),
        operation(9, 80.0, |a, _, _| math::sigmoid(float(a)).to_bits()),
        operation(10, 4.0, |a, _, _| math::erf(float(a)).to_bits()),
    ]
}

fn float(bits: u32) -> f32 {
    f32::from_bits(bits)
}
