//! Matmuls of every format against two references: decoded weights in f64, and the integer rule,
//! bit for bit.

use super::*;
use crate::algo::math;
use crate::registry::TYPES;
use crate::testing::Scales;
use crate::testing::{Random, bits, has_mins, nmse, pool, scales, set_scales};
use crate::{KvElem, KvRole, KvRows, Layouts, RopePairing};
use atta_formats::{TensorType, decode, decode_rows};

mod rows;
mod scale;
mod trellis;

fn kernels() -> impl Iterator<Item = Kernels> {
    Kernels::available()
        .into_iter()
        .map(|name| Kernels::named(name).unwrap())
}

/// How keys are stored.
fn keys(elem: KvElem, d: usize) -> KvRows {
    let role = KvRole::Key;
    KvRows { elem, role, d }
}

fn filled(k: Kernels, n_rows: usize, d: usize, x: &[f32]) -> Activations {
    let all = Layouts::F32 | Layouts::Q8_32 | Layouts::Q8_256;
    let mut a = Activations::new(n_rows, d);
    a.fill(k, &pool(1), (n_rows, d), all, |t, row| {
        row.copy_from_slice(&x[t * d..(t + 1) * d])
    });
    a
}

fn matmul(k: Kernels, n_threads: usize, w: Matrix<'_>, x: &[f32]) -> Vec<f32> {
    let n_rows = x.len() / w.d_in();
    let mut out = vec![f32::NAN; n_rows * w.d_out()];
    let job = Job {
        w,
        bias: None,
        out: &mut out,
        mode: Store::Set,
    };
    k.matmul(
        &pool(n_threads),
        &filled(k, n_rows, w.d_in(), x),
        &mut [job],
    );
    assert!(
        out.iter().all(|y| y.is_finite()),
        "{} {} {n_rows}",
        k.isa(),
        w.tensor_type()
    );
    out
}

fn decoded(w: Matrix<'_>) -> Vec<f32> {
    let mut out = vec![0.0; w.d_out() * w.d_in()];
    decode_rows(w.tensor_type(), w.d_in(), w.bytes(), &mut out).unwrap();
    out
}

/// `[n_rows, d_out]` from decoded weights, in f64.
fn decoded_product(w: Matrix<'_>, x: &[f32]) -> Vec<f64> {
    let weights = decoded(w);
    let dot = |x: &[f32], w: &[f32]| {
        x.iter()
            .zip(w)
            .map(|(&x, &w)| f64::from(x) * f64::from(w))
            .sum()
    };
    x.chunks(w.d_in())
        .flat_map(|x| weights.chunks(w.d_in()).map(move |w| dot(x, w)))
        .collect()
}

fn widths(ty: TensorType) -> Vec<usize> {
    match Matrix::layout_of(ty).unwrap() {
        Layouts::F32 => vec![1, 3, 15, 16, 17, 31, 33, 100, 257],
        Layouts::Q8_32 => [1, 2, 3, 4, 5, 6, 7, 8, 9, 17]
            .map(|n| n * ty.row_unit())
            .to_vec(),
        // Rows that end in a shorter block, of every number of sub-blocks.
        _ if ty.is_own() => [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 18, 32, 37, 62]
            .map(|n| n * ty.row_unit())
            .to_vec(),
        _ => vec![256, 512, 768, 1024, 1280, 1792],
    }
}

/// Those, and of some types widths that models have.
fn all_widths(ty: TensorType) -> Vec<usize> {
    let is_wide = [TensorType::Q4_K, TensorType::Q6_K, TensorType::Q8_0].contains(&ty);
    [widths(ty), if is_wide { vec![2048, 5632] } else { vec![] }].concat()
}

/// The codec with `d·K` and `dmin` set to 1 or 0 yields the integers: `(scale·code, min)` of each
/// weight of a block.
fn integers(ty: TensorType, block: &[u8]) -> [Vec<i64>; 2] {
    let lengths = (1..=ty.block_len()).filter(|n| ty.row_bytes(*n) == Some(block.len()));
    let n = lengths.max().expect("a block");
    let with = |scales: [f32; 2]| {
        let mut block = block.to_vec();
        set_scales(ty, &mut block, scales);
        let mut out = vec![0f32; n];
        decode(ty, &block, &mut out).unwrap();
        out.into_iter().map(|x| x as i64).collect::<Vec<_>>()
    };
    let mins = if has_mins(ty) {
        with([0.0, 1.0])
    } else {
        vec![0; n]
    };
    [with([1.0, 0.0]), mins.into_iter().map(|min| -min).collect()]
}

/// A block as the rule reads it: its integers, its minima, and what these are multiplied with.
struct Block {
    integers: Vec<i64>,
    minima: Vec<i64>,
    scales: Scales,
}

/// The blocks of each row of a matrix.
fn rows_of_blocks(w: Matrix<'_>) -> Vec<Vec<Block>> {
    let ty = w.tensor_type();
    let block = |bytes: &[u8]| {
        let [integers, minima] = integers(ty, bytes);
        Block {
            integers,
            minima,
            scales: scales(ty, bytes),
        }
    };
    (0..w.d_out())
        .map(|i| w.row(i).chunks(ty.block_bytes()).map(block).collect())
        .collect()
}

fn dot(w: &[i64], x: &[i8]) -> f32 {
    w.iter().zip(x).map(|(w, &x)| w * i64::from(x)).sum::<i64>() as f32
}

/// `w · x` of one row by the rule in the crate's documentation, with the activations of row `t`.
fn by_the_rule(ty: TensorType, row: &[Block], a: &Activations, t: usize) -> f32 {
    if Matrix::layout_of(ty).unwrap() == Layouts::Q8_32 {
        return by_the_rule_of_32(ty, row, a, t);
    }
    let mut out = 0f32;
    for (b, block) in row.iter().enumerate() {
        let (q, at) = (a.q8_256(), a.q8_256().at(b, t));
        let mut v = block.scales.d[0] * dot(&block.integers, &q.codes[at].0);
        if has_mins(ty) {
            v -= block.scales.second * dot(&block.minima, &q.codes[at].0);
        }
        out += q.scales[at] * v;
    }
    out
}

/// The same of formats whose activations have a scale per 32.
fn by_the_rule_of_32(ty: TensorType, row: &[Block], a: &Activations, t: usize) -> f32 {
    let (q, mut out, mut i) = (a.q8_32(), 0f32, 0);
    for block in row {
        let of_scale = ty.block_len() / block.scales.d.len();
        for (g, w) in block.integers.chunks(32).enumerate() {
            let at = q.at(i / 256, t);
            let (x, dx) = (&q.codes[at].0[i % 256..], q.scales[at][i % 256 / 32]);
            for (j, w) in w.chunks(of_scale).enumerate() {
                let d = block.scales.d[(32 * g + of_scale.min(32) * j) / of_scale];
                out += (d * dx) * dot(w, &x[j * of_scale..]);
            }
            if has_mins(ty) {
                out += (block.scales.second * dx) * dot(&[1; 32], x);
            }
            i += 32;
        }
    }
    out
}

#[test]
fn products_agree_with_decoded_weights() {
    let mut random = Random(3);
    for ty in TYPES {
        // Rounding activations to int8 costs about 2e-5 for uniform inputs; floats only round their
        // sums.
        let limit = if ty.block_len() == 1 { 1e-12 } else { 1e-4 };
        for d_in in all_widths(ty) {
            let bytes = random.weights(ty, 37, d_in, 0.01);
            let w = Matrix::new(ty, 37, d_in, &bytes).unwrap();
            let x = random.floats(3 * d_in);
            let want = decoded_product(w, &x);
            for k in kernels() {
                let error = nmse(&matmul(k, 2, w, &x), &want);
                assert!(error < limit, "{} {ty} {d_in}: {error:e}", k.isa());
            }
        }
    }
}

#[test]
fn floats_of_any_scale_agree_with_decoded_weights() {
    use TensorType::{BF16, F16, F32};
    let mut random = Random(22);
    // Results near the largest float and near the smallest normal one, and halves that are large
    // and that are subnormal.
    let of_f16 = [
        (F16, 6e4, 1e30),
        (F16, 6e4, 1.0),
        (F16, 1e-6, 1.0),
        (F16, 1e-6, 1e-28),
    ];
    let wide = [(1e35, 1.0), (1e18, 1e17), (1e-17, 1e-17), (1e-34, 1.0)];
    let cases = of_f16.into_iter().chain(
        [F32, BF16]
            .into_iter()
            .flat_map(|ty| wide.map(|(w, x)| (ty, w, x))),
    );
    for ((ty, of_w, of_x), d_in) in cases.flat_map(|case| [17, 257, 1040].map(|d_in| (case, d_in)))
    {
        let bytes = random.weights(ty, 7, d_in, of_w);
        let w = Matrix::new(ty, 7, d_in, &bytes).unwrap();
        let x: Vec<f32> = random
            .floats(35 * d_in)
            .into_iter()
            .map(|x| x * of_x)
            .collect();
        let want = decoded_product(w, &x);
        for (k, n_rows) in kernels().flat_map(|k| [1, 35].map(|n_rows| (k, n_rows))) {
            let error = nmse(&matmul(k, 1, w, &x[..n_rows * d_in]), &want[..n_rows * 7]);
            assert!(
                error < 1e-12,
                "{} {ty} {of_w} {of_x} {d_in}: {error:e}",
                k.isa()
            );
        }
    }
}

#[test]
fn quantized_products_follow_the_rule_bit_for_bit() {
    let (mut random, scalar) = (Random(4), Kernels::named("scalar").unwrap());
    // Subnormal scales of weights and products of scales, ordinary ones, and large ones.
    let scales = [(1e-7, 1e-33), (0.01, 1.0), (20_000.0, 1e20)];
    for (&ty, (of_w, of_x)) in TYPES[3..]
        .iter()
        .flat_map(|ty| scales.map(|scales| (ty, scales)))
    {
        for d_in in all_widths(ty) {
            let bytes = random.weights(ty, 18, d_in, of_w);
            let w = Matrix::new(ty, 18, d_in, &bytes).unwrap();
            // Rows enough for matrix tiles, and some that are left over.
            let x: Vec<f32> = random
                .floats(35 * d_in)
                .into_iter()
                .map(|x| x * of_x)
                .collect();
            let (rows, a) = (rows_of_blocks(w), filled(scalar, 35, d_in, &x));
            let want: Vec<f32> = (0..35 * 18)
                .map(|i| by_the_rule(ty, &rows[i % 18], &a, i / 18))
                .collect();
            for (k, n_rows) in kernels().flat_map(|k| [1, 2, 3, 35].map(|n_rows| (k, n_rows))) {
                let got = matmul(k, 1, w, &x[..n_rows * d_in]);
                let wrong = got
                    .iter()
                    .zip(&want)
                    .find(|(got, want)| got.to_bits() != want.to_bits());
                assert!(
                    wrong.is_none(),
                    "{} {ty} {d_in} {n_rows}: {wrong:?}",
                    k.isa()
                );
            }
        }
    }
}

#[test]
fn the_least_and_the_largest_exponents_of_mxfp4_are_exact() {
    let mut random = Random(29);
    for (e, of_x) in [
        (0, 1e20),
        (1, 1e20),
        (2, 1e20),
        (3, 1e20),
        (254, 1e-20),
        (255, 1e-20),
    ] {
        let mut bytes = random.weights(TensorType::MXFP4, 21, 160, 1.0);
        bytes.chunks_mut(17).for_each(|block| block[0] = e);
        let w = Matrix::new(TensorType::MXFP4, 21, 160, &bytes).unwrap();
        let x: Vec<f32> = random
            .floats(35 * 160)
            .into_iter()
            .map(|x| x * of_x)
            .collect();
        for (k, n) in kernels().flat_map(|k| [1, 3, 35].map(|n| (k, n))) {
            let (got, a) = (
                matmul(k, 1, w, &x[..n * 160]),
                filled(k, n, 160, &x[..n * 160]),
            );
            for (i, row) in rows_of_blocks(w).iter().enumerate() {
                for t in 0..n {
                    let want = by_the_rule(TensorType::MXFP4, row, &a, t);
                    assert_eq!(
                        got[t * 21 + i].to_bits(),
                        want.to_bits(),
                        "{} {e} {n}: {i}, {t}",
                        k.isa()
                    );
                }
            }
        }
    }
}

#[test]
fn extreme_codes_do_not_overflow() {
    for (k, &ty) in kernels().flat_map(|k| TYPES[3..].iter().map(move |ty| (k, ty))) {
        for (byte, sign) in [0x00, 0x7f, 0x80, 0xff]
            .into_iter()
            .flat_map(|byte| [(byte, 1.0), (byte, -1.0)])
        {
            let mut bytes = vec![byte; ty.row_bytes(512).unwrap()];
            for block in bytes.chunks_mut(ty.block_bytes()) {
                set_scales(ty, block, [1.0; 2]);
            }
            let w = Matrix::new(ty, 1, 512, &bytes).unwrap();
            // One row, two, and enough of them for matrix tiles.
            let x = [sign; 33 * 512];
            let want = by_the_rule(ty, &rows_of_blocks(w)[0], &filled(k, 1, 512, &x[..512]), 0);
            for n_rows in [1, 2, 33] {
                for y in matmul(k, 1, w, &x[..n_rows * 512]) {
                    assert_eq!(y.to_bits(), want.to_bits(), "{} {ty} {byte:#x}", k.isa());
                }
            }
        }
    }
}

#[test]
fn zero_weights_and_zero_inputs_give_zero() {
    let mut random = Random(5);
    for (k, ty) in kernels().flat_map(|k| TYPES.map(|ty| (k, ty))) {
        let zeros = vec![0; 5 * ty.row_bytes(512).unwrap()];
        let w = Matrix::new(ty, 5, 512, &zeros).unwrap();
        assert!(
            matmul(k, 1, w, &random.floats(1024))
                .iter()
                .all(|&y| y == 0.0),
            "{ty}"
        );
        let bytes = random.weights(ty, 5, 512, 1.0);
        let w = Matrix::new(ty, 5, 512, &bytes).unwrap();
        assert!(
            matmul(k, 1, w, &[0.0; 1024]).iter().all(|&y| y == 0.0),
            "{ty}"
        );
    }
}

#[test]
fn a_row_gets_the_same_bits_whoever_its_neighbours_and_threads_are() {
    let mut random = Random(6);
    for (k, ty) in kernels().flat_map(|k| TYPES.map(|ty| (k, ty))) {
        let d_in = *widths(ty).last().unwrap();
        let bytes = random.weights(ty, 83, d_in, 0.01);
        let w = Matrix::new(ty, 83, d_in, &bytes).unwrap();
        let x = random.floats(300 * d_in);
        let alone: Vec<f32> = x.chunks(d_in).flat_map(|x| matmul(k, 1, w, x)).collect();
        let few = (2..=9).map(|n_rows| (n_rows, 1));
        let many = [
            (2, 5),
            (3, 3),
            (7, 2),
            (17, 1),
            (17, 5),
            (32, 3),
            (33, 2),
            (50, 1),
            (300, 2),
            (300, 5),
        ];
        for (n_rows, n_threads) in few.chain(many) {
            let got = matmul(k, n_threads, w, &x[..n_rows * d_in]);
            assert_eq!(
                bits(&got),
                bits(&alone[..got.len()]),
                "{} {ty} {n_rows} {n_threads}",
                k.isa()
            );
        }
    }
}

#[test]
fn wide_rows_of_floats_get_the_same_bits_beside_others() {
    let mut random = Random(21);
    for (k, ty) in kernels()
        .flat_map(|k| [TensorType::F16, TensorType::BF16, TensorType::F32].map(|ty| (k, ty)))
    {
        for (d_in, d_out) in [(5, 1), (1024, 8), (1040, 3), (2055, 67)] {
            let bytes = random.weights(ty, d_out, d_in, 0.01);
            let w = Matrix::new(ty, d_out, d_in, &bytes).unwrap();
            let x = random.floats(101 * d_in);
            let alone: Vec<f32> = x.chunks(d_in).flat_map(|x| matmul(k, 1, w, x)).collect();
            for (n_rows, n_threads) in [(15, 1), (16, 1), (20, 2), (96, 1), (97, 3), (101, 1)] {
                let got = matmul(k, n_threads, w, &x[..n_rows * d_in]);
                assert_eq!(
                    bits(&got),
                    bits(&alone[..got.len()]),
                    "{} {ty} {d_in} {n_rows}",
                    k.isa()
                );
            }
        }
    }
}

#[test]
fn more_rows_than_results_fit_are_made_in_turns() {
    let (mut random, k) = (Random(16), Kernels::detect());
    for ty in [TensorType::Q4_K, TensorType::Q8_0, TensorType::F16] {
        let bytes = random.weights(ty, 20, 256, 0.01);
        let w = Matrix::new(ty, 20, 256, &bytes).unwrap();
        let x = random.floats(2081 * 256);
        let alone: Vec<f32> = x.chunks(256).flat_map(|x| matmul(k, 1, w, x)).collect();
        for n_rows in [513, 545, 2081] {
            assert_eq!(
                bits(&matmul(k, 2, w, &x[..n_rows * 256])),
                bits(&alone[..n_rows * 20]),
                "{ty} {n_rows}"
            );
        }
    }
}

#[test]
fn a_matrix_in_pieces_gives_the_bits_of_the_whole() {
    let mut random = Random(18);
    for (k, ty) in kernels().flat_map(|k| TYPES.map(|ty| (k, ty))) {
        let (bytes, bias) = (random.weights(ty, 200, 256, 0.01), random.floats(200));
        let whole = Matrix::new(ty, 200, 256, &bytes).unwrap();
        let row_bytes = bytes.len() / 200;
        for n_rows in [1, 3, 40] {
            let x = filled(k, n_rows, 256, &random.floats(n_rows * 256));
            let product = |pieces: &[std::ops::Range<usize>]| {
                let (mut y, mut gated) = (vec![1.0; n_rows * 200], vec![f32::NAN; n_rows * 200]);
                for rows in pieces {
                    let bytes = &bytes[rows.start * row_bytes..rows.end * row_bytes];
                    let w = Matrix::new(ty, rows.len(), 256, bytes)
                        .unwrap()
                        .rows_of(200, rows.start);
                    let bias = Some(&bias[..]);
                    k.matmul(
                        &pool(2),
                        &x,
                        &mut [Job {
                            w,
                            bias,
                            out: &mut y,
                            mode: Store::Add(0.5),
                        }],
                    );
                    let (activation, out) = (Activation::Silu, &mut gated[..]);
                    let job = Gated {
                        gate: w,
                        up: w,
                        gate_bias: bias,
                        up_bias: None,
                        activation,
                        out,
                    };
                    k.matmul_gated(&pool(2), &x, job);
                }
                (bits(&y), bits(&gated))
            };
            assert_eq!(whole.rows(), 0..200);
            let expected = product(std::slice::from_ref(&whole.rows()));
            assert!(
                product(&[0..64, 64..64, 64..192, 192..200]) == expected,
                "{} {ty} {n_rows}",
                k.isa()
            );
            assert!(
                product(&[150..200, 0..7, 7..150]) == expected,
                "{} {ty} {n_rows}",
                k.isa()
            );
        }
    }
}

#[test]
fn jobs_share_an_input_and_add_bias_and_residual() {
    let mut random = Random(7);
    let types = [
        TensorType::Q4_K,
        TensorType::Q6_K,
        TensorType::Q8_0,
        TensorType::F16,
    ];
    let weights: Vec<_> = (0..10)
        .map(|i| random.weights(types[i % 4], 20 + i, 512, 0.01))
        .collect();
    let matrix = |i: usize| Matrix::new(types[i % 4], 20 + i, 512, &weights[i]).unwrap();
    let (x, bias, residual) = (random.floats(2 * 512), random.floats(40), random.floats(80));
    let bias_of = |i: usize| i.is_multiple_of(3).then_some(&bias[..20 + i]);
    for k in kernels() {
        let mut outs: Vec<Vec<f32>> = (0..10).map(|i| residual[..2 * (20 + i)].to_vec()).collect();
        let mode = |i: usize| {
            if i.is_multiple_of(2) {
                Store::Set
            } else {
                Store::Add(0.5)
            }
        };
        let job = |(i, out)| Job {
            w: matrix(i),
            bias: bias_of(i),
            out,
            mode: mode(i),
        };
        let mut jobs: Vec<_> = outs
            .iter_mut()
            .map(|out| &mut out[..])
            .enumerate()
            .map(job)
            .collect();
        k.matmul(&pool(3), &filled(k, 2, 512, &x), &mut jobs);
        for (i, out) in outs.iter().enumerate() {
            for (j, (&got, mut want)) in out.iter().zip(matmul(k, 1, matrix(i), &x)).enumerate() {
                want += bias_of(i).map_or(0.0, |bias| bias[j % (20 + i)]);
                let want = if i % 2 == 0 {
                    want
                } else {
                    residual[j] + 0.5 * want
                };
                assert_eq!(got, want, "{} job {i} output {j}", k.isa());
            }
        }
    }
}

#[test]
fn a_gated_product_is_activation_of_gate_times_up() {
    let (mut random, n_types, pool) = (Random(8), TYPES.len(), pool(3));
    // Pairs of types with the same layout of inputs and with different ones.
    for (i, away) in (0..n_types).flat_map(|i| [0, 9].map(|away| (i, away))) {
        let types = [TYPES[i], TYPES[(i + away) % n_types]];
        let (bytes, x) = (
            types.map(|ty| random.weights(ty, 50, 256, 0.01)),
            random.floats(130 * 256),
        );
        let [gate, up] = [0, 1].map(|j| Matrix::new(types[j], 50, 256, &bytes[j]).unwrap());
        let [gate_bias, up_bias] = [(); 2].map(|()| random.floats(50));
        for (k, n_rows) in kernels().flat_map(|k| [1, 3, 130].map(|n_rows| (k, n_rows))) {
            let (x, mut out) = (&x[..n_rows * 256], vec![f32::NAN; n_rows * 50]);
            let (gate_bias, up_bias) = (Some(&gate_bias[..]), Some(&up_bias[..]));
            let job = Gated {
                gate,
                up,
                gate_bias,
                up_bias,
                activation: Activation::Silu,
                out: &mut out,
            };
            k.matmul_gated(&pool, &filled(k, n_rows, 256, x), job);
            let sums = [(gate, gate_bias), (up, up_bias)]
                .map(|(w, bias)| with_bias(matmul(k, 1, w, x), bias.unwrap()));
            let want: Vec<f32> = sums[0]
                .iter()
                .zip(&sums[1])
                .map(|(&g, u)| g * math::sigmoid(g) * u)
                .collect();
            assert_eq!(bits(&out), bits(&want), "{} {types:?} {n_rows}", k.isa());
        }
    }
}

/// `y` with `bias`, `[d_out]`, added to each row.
fn with_bias(mut y: Vec<f32>, bias: &[f32]) -> Vec<f32> {
    y.chunks_mut(bias.len())
        .for_each(|row| row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias));
    y
}

const XIELU: Activation = Activation::Xielu {
    alpha_p: 0.7,
    alpha_n: 1.4,
    beta: 0.5,
    eps: -1e-6,
};

const ACTIVATIONS: [Activation; 7] = [
    XIELU,
    Activation::Silu,
    Activation::GeluTanh,
    Activation::Gelu,
    Activation::Relu,
    Activation::Relu2,
    Activation::Clamped {
        alpha: 1.7,
        limit: 0.5,
    },
];

#[test]
fn a_clamped_gate_clamps_both_of_its_branches() {
    let (k, activation) = (
        Kernels::detect(),
        Activation::Clamped {
            alpha: 1.5,
            limit: 2.0,
        },
    );
    for (gate, up, want) in [
        (9.0, 9.0, (2.0, 2.0)),
        (-9.0, -9.0, (-9.0, -2.0)),
        (1.0, -0.5, (1.0, -0.5)),
    ] {
        let mut y = [gate];
        k.gate(activation, &mut y, &[up]);
        let (gate, up): (f64, f64) = want;
        let want = gate / (1.0 + (-1.5 * gate).exp()) * (up + 1.0);
        assert!(
            (f64::from(y[0]) - want).abs() < 1e-6,
            "{gate} {up}: {y:?} {want}"
        );
    }
    let mut y = [f32::NAN, 1.0];
    k.gate(activation, &mut y, &[1.0, f32::NAN]);
    assert!(y.iter().all(|y| y.is_nan()));
}

#[test]
fn activations_of_gates_agree_with_their_definitions() {
    let k = Kernels::detect();
    let tanh_gelu = |x: f64| {
        0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
    };
    let cases: [(Activation, &dyn Fn(f64) -> f64); 6] = [
        (XIELU, &|x| {
            let below = 1.4 * (x.min(-1e-6).exp_m1() - x);
            (if x > 0.0 { 0.7 * x * x } else { below }) + 0.5 * x
        }),
        (Activation::Silu, &|x| x / (1.0 + (-x).exp())),
        (Activation::GeluTanh, &tanh_gelu),
        (Activation::Gelu, &|x| {
            0.5 * x * (1.0 + f64::from(math::erf((x / 2f64.sqrt()) as f32)))
        }),
        (Activation::Relu, &|x| x.max(0.0)),
        (Activation::Relu2, &|x| x.max(0.0).powi(2)),
    ];
    for (activation, want) in cases {
        for i in -1200..=1200 {
            let x = i as f32 / 100.0;
            let mut y = [x];
            k.gate(activation, &mut y, &[2.0]);
            let want = 2.0 * want(f64::from(x));
            assert!(
                (f64::from(y[0]) - want).abs() < 1e-6 * (1.0 + want.abs()),
                "{activation:?} {x}"
            );
            let mut alone = [x];
            k.activate(activation, &mut alone);
            assert_eq!(2.0 * alone[0], y[0], "{activation:?} {x} without a gate");
        }
    }
}

#[test]
fn decoded_rows_are_those_of_the_codec() {
    let mut random = Random(9);
    for ty in TYPES {
        let bytes = random.weights(ty, 3, 256, 0.1);
        let w = Matrix::new(ty, 3, 256, &bytes).unwrap();
        let mut row = vec![0.0; 256];
        Kernels::detect().decode_row(w, 1, &mut row);
        assert_eq!(bits(&row), bits(&decoded(w)[256..512]), "{ty}");
    }
}

#[test]
fn quantized_inputs_of_every_isa_are_those_of_scalar() {
    let mut random = Random(21);
    for (k, d) in kernels().flat_map(|k| [32, 256, 300, 1024].map(|d| (k, d))) {
        let x: Vec<f32> = random
            .floats(3 * d)
            .into_iter()
            .map(|x| x * x * x * 1e3)
            .collect();
        let (got, want) = (
            filled(k, 3, d, &x),
            filled(Kernels::named("scalar").unwrap(), 3, d, &x),
        );
        for at in 0..3 * d.div_ceil(256) {
            let ((a, b), (c, e)) = ((got.q8_256(), want.q8_256()), (got.q8_32(), want.q8_32()));
            assert_eq!(
                (a.codes[at].0, a.scales[at].to_bits()),
                (b.codes[at].0, b.scales[at].to_bits())
            );
            assert_eq!(a.sums[at], b.sums[at]);
            assert_eq!(
                (c.codes[at].0, bits(&c.scales[at]), c.sums[at]),
                (e.codes[at].0, bits(&e.scales[at]), e.sums[at])
            );
        }
    }
}

#[test]
fn an_unknown_isa_is_an_error_that_lists_what_there_is() {
    let error = Kernels::named("avx1024").unwrap_err().to_string();
    assert!(
        error.contains("`avx1024`") && error.contains("scalar"),
        "{error}"
    );
    assert_eq!(Kernels::named("scalar").unwrap().isa(), "scalar");
}

#[test]
#[should_panic(expected = "not filled for Q4_K")]
fn inputs_in_the_wrong_layout_are_refused() {
    let k = Kernels::detect();
    let mut a = Activations::new(1, 256);
    a.fill(k, &pool(1), (1, 256), Layouts::Q8_32, |_, row| {
        row.fill(1.0)
    });
    let bytes = [0; 144];
    let w = Matrix::new(TensorType::Q4_K, 1, 256, &bytes).unwrap();
    k.matmul(
        &pool(1),
        &a,
        &mut [Job {
            w,
            bias: None,
            out: &mut [0.0],
            mode: Store::Set,
        }],
    );
}
