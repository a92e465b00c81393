//! Attention in 16-bit codes against its definition, step by step in plain loops; the bounds of
//! its sums; its precision beside binary16.

use super::*;
use crate::algo::math::exp_weight;

/// `rne(x)`, at most 32639 in magnitude.
fn rne(x: f32) -> i32 {
    x.round_ties_even().clamp(-32639.0, 32639.0) as i32
}

/// The sum of `lanes.rs`.
fn lanes16(x: impl Iterator<Item = f32>) -> f32 {
    let mut lanes = [0f32; 16];
    x.enumerate().for_each(|(i, x)| lanes[i % 16] += x);
    for width in [8, 4, 2, 1] {
        (0..width).for_each(|i| lanes[i] += lanes[i + width]);
    }
    lanes[0]
}

fn largest(x: &[f32]) -> f32 {
    x.iter()
        .fold(0.0, |max, x| if x.abs() > max { x.abs() } else { max })
}

/// Scale and codes of a key, or of a query.
fn key(x: &[f32]) -> (f32, Vec<i32>) {
    let s = (lanes16(x.iter().map(|x| x * x)).sqrt() / 46000.0).max(largest(x) / 32639.0);
    (s, x.iter().map(|x| rne(x * (1.0 / s))).collect())
}

/// Scale and codes of a value.
fn value(x: &[f32]) -> (f32, Vec<i32>) {
    let mut x = x.to_vec();
    rotate(Scalar, &mut x);
    let s = largest(&x) / 8191.0;
    (s, x.iter().map(|x| rne(x * (1.0 / s))).collect())
}

/// The value of a key whose value begins at element `from`; elements before it are 0.
fn value_of_key(x: &[f32], from: usize) -> (f32, Vec<i32>) {
    let (s, codes) = key(&x[from..]);
    let shifted = |j: i32| codes.iter().map(move |c| (c + ((1 << j) >> 1)) >> j);
    let j = (0..)
        .find(|&j| shifted(j).all(|c| c.abs() <= 8191))
        .unwrap();
    let zeros = std::iter::repeat_n(0, from);
    (s * 2f32.powi(j), zeros.chain(shifted(j)).collect())
}

/// What a head sees of a chunk: scores and values of positions.
struct SeenChunk {
    /// Position in the chunk, score, value.
    seen: Vec<(usize, f32, (f32, Vec<i32>))>,
    d: usize,
}

impl SeenChunk {
    /// Maximum, sum and weighted values.
    fn state(&self) -> (f32, f32, Vec<f32>) {
        let m = self.seen.iter().fold(f32::NEG_INFINITY, |m, s| m.max(s.1));
        let mut e = [0f32; 128];
        let mut w = [0f32; 128];
        for (p, score, (scale, _)) in &self.seen {
            e[*p] = exp_weight(score - m);
            w[*p] = e[*p] * scale;
            if w[*p] < 2f32.powi(-100) {
                w[*p] = 0.0;
            }
        }
        let x = largest(&w);
        let sums = w.chunks(32).map(|w| lanes16(w.iter().copied()));
        let scale = (262112.0 / sums.fold(0.0, f32::max)).min(32639.0 / x);
        let r = if x == 0.0 { 0.0 } else { 1.0 / scale };
        let mut o = vec![0f32; self.d];
        for group in 0..4 {
            let mut sums = vec![0i64; self.d];
            for (p, _, (_, codes)) in self.seen.iter().filter(|s| s.0 / 32 == group) {
                let weight = if x == 0.0 { 0 } else { rne(w[*p] * scale) };
                let products = codes.iter().map(|c| i64::from(c * weight));
                sums.iter_mut().zip(products).for_each(|(sum, x)| *sum += x);
            }
            for (o, sum) in o.iter_mut().zip(sums) {
                *o += i32::try_from(sum).expect("sums of a group fit 32 bits") as f32;
            }
        }
        (m, lanes16(e.into_iter()), o.iter().map(|o| o * r).collect())
    }
}

/// The definition of `algo/codes16.rs`, `scores16.rs` and `values16.rs`, without sinks and caps.
fn defined(case: &AttnCase) -> Vec<f32> {
    let (keys, values, q) = case.inputs();
    let d = case.d_head;
    let group = case.n_heads / case.n_kv_heads;
    let [k_rows, _] = case.kv_rows();
    let mut out = Vec::new();
    for (i, q) in q.chunks(d).enumerate() {
        let h = i % case.n_heads / group;
        let (first, last) = case.row(case.last[i / case.n_heads]);
        let (q_scale, q) = key(q);
        let t = case.scale() * q_scale;
        let (mut max, mut sum, mut o) = (f32::NEG_INFINITY, 0f32, vec![0f32; d]);
        for chunk in first / 128..=last / 128 {
            let positions = first.max(chunk * 128)..(last + 1).min(chunk * 128 + 128);
            let seen = positions.map(|p| {
                let at = (p * case.n_kv_heads + h) * d;
                let mut score = 0f32;
                for j in 0..k_rows.n_sections() {
                    let section = k_rows.section(j);
                    let (scale, codes) = key(&keys[at..at + d][section.clone()]);
                    let products = codes.iter().zip(&q[section]).map(|(a, b)| i64::from(a * b));
                    let dot = i32::try_from(products.sum::<i64>()).expect("a score fits 32 bits");
                    let part = dot as f32 * scale;
                    score = if j == 0 { part } else { score + part };
                }
                let value = match case.value_from {
                    Some(from) => value_of_key(&keys[at..at + d], from),
                    None => value(&values[at..at + d]),
                };
                (p % 128, score * t, value)
            });
            let (m, n, values) = SeenChunk {
                seen: seen.collect(),
                d,
            }
            .state();
            let new_max = max.max(m);
            let (a, b) = (exp_weight(max - new_max), exp_weight(m - new_max));
            sum = sum * a + n * b;
            for (o, v) in o.iter_mut().zip(values) {
                *o = *o * a + v * b;
            }
            max = new_max;
        }
        o.iter_mut().for_each(|o| *o *= 1.0 / sum);
        if case.value_from.is_none() {
            rotate(Scalar, &mut o);
        }
        out.extend(o);
    }
    out
}

#[test]
fn every_isa_gives_the_bits_of_the_definition() {
    let shapes = [
        (8, 2, 64, usize::MAX, None),
        (1, 1, 16, 77, None),
        (2, 1, 80, 31, None),
        (3, 3, 33, 130, None),
        (4, 1, 288, usize::MAX, None),
        (16, 1, 48, usize::MAX, Some(16)),
        (5, 1, 576, 200, Some(64)),
    ];
    for (n_heads, n_kv_heads, d_head, window, value_from) in shapes {
        let case = AttnCase {
            n_heads,
            n_kv_heads,
            d_head,
            window,
            value_from,
            elem: KvElem::F16,
            last: vec![0, 37, 131, 132, 133, 134, 300],
            ..AttnCase::default()
        };
        let want = bits(&defined(&case));
        for name in Kernels::available() {
            let k = Kernels::named(name).unwrap();
            let got = bits(&case.run_on(k, 1, &mut case.scratch(1)));
            assert!(got == want, "{name} {n_heads} {d_head} {value_from:?}");
        }
    }
}

/// Rows at the bounds of sums: equal elements, one, two, a ramp, just over a half.
fn at_the_bounds(d: usize) -> [Vec<f32>; 5] {
    let of = |f: &dyn Fn(usize) -> f32| (0..d).map(f).collect();
    [
        of(&|_| 1.0),
        of(&|i| f32::from(i == 0)),
        of(&|i| f32::from(i < 2)),
        of(&|i| i as f32),
        of(&|i| f32::from(2 * i <= d)),
    ]
}

#[test]
fn sums_of_the_largest_codes_fit_32_bits() {
    for d in [16, 64, 80, 128, 512, 576] {
        for (a, b) in at_the_bounds(d).iter().zip(at_the_bounds(d)) {
            let ([a, b], mut sum) = ([key(a).1, key(&b).1], 0i64);
            for (a, b) in a.iter().zip(b) {
                sum += i64::from(a * b);
                assert!(sum <= (0.986 * 2f64.powi(31)) as i64, "{d}: {sum}");
            }
        }
    }
}

#[test]
fn rows_of_equal_elements_agree_with_the_definition() {
    // Every product has the same sign, and all weights are the same or one has all the weight.
    for (d_head, factor) in [(16, 1.0), (128, 1.0), (128, 30.0), (576, 1.0)] {
        for value_from in [None, Some(8)] {
            let case = AttnCase {
                n_heads: 2,
                n_kv_heads: 1,
                d_head,
                elem: KvElem::F16,
                value_from,
                last: vec![255, 254, 31],
                shape: |_, _| 0.0,
                q_factor: factor,
                ..AttnCase::default()
            };
            let want = bits(&defined(&case));
            for name in Kernels::available() {
                let k = Kernels::named(name).unwrap();
                let got = bits(&case.run_on(k, 1, &mut case.scratch(1)));
                assert!(got == want, "{name} {d_head} {value_from:?}");
            }
        }
    }
}

/// [`AttnCase::shape`].
type Shape = fn(usize, usize) -> f32;

/// Sum of squared differences over that of squares.
fn nmse(got: impl Iterator<Item = f64>, want: &[f64]) -> f64 {
    let error: f64 = got.zip(want).map(|(got, want)| (got - want).powi(2)).sum();
    error / want.iter().map(|x| x.powi(2)).sum::<f64>()
}

/// Squared errors of codes and of binary16, relative to the result, over some seeds.
fn errors(d_head: usize, shape: Shape, q_factor: f32) -> [f64; 2] {
    let mut errors = [0.0; 2];
    for seed in 11..14 {
        let case = AttnCase {
            n_heads: 8,
            n_kv_heads: 1,
            d_head,
            elem: KvElem::F16,
            last: vec![500, 501],
            is_fine: true,
            shape,
            q_factor,
            seed,
            ..AttnCase::default()
        };
        let (keys, values, q) = case.inputs();
        let want = case.reference(&(keys.clone(), values.clone(), q.clone()));
        let narrow = |x: Vec<f32>| {
            let halves = x.into_iter().map(|x| f16_to_f32(f32_to_f16(x)));
            halves.collect::<Vec<_>>()
        };
        let halves = case.reference(&(narrow(keys), narrow(values), q));
        errors[0] += nmse(case.run_alone().into_iter().map(f64::from), &want);
        errors[1] += nmse(halves.into_iter(), &want);
    }
    errors
}

#[test]
fn codes_are_more_precise_than_binary16() {
    // Even elements, some large channels of keys and values, and one position in five with one
    // large element.
    let shapes: [(Shape, f64); 3] = [
        (|_, _| 1.0, 0.5),
        (|_, i| if i % 16 == 5 { 20.0 } else { 1.0 }, 1.0),
        // A width of 96 is rotated in blocks of 32, too few to spread one element.
        (|p, i| if p % 5 == 0 && i == 3 { 30.0 } else { 1.0 }, 1.5),
    ];
    for d_head in [64, 96, 128, 576] {
        for (i, (shape, limit)) in shapes.into_iter().enumerate() {
            for q_factor in [0.4, 1.7] {
                let [codes, halves] = errors(d_head, shape, q_factor);
                println!("{d_head}, shape {i}, queries {q_factor}: {codes:.1e}, {halves:.1e}");
                // A query has one scale, which costs precision where it is wide.
                let limit = if d_head > 128 { limit.max(1.0) } else { limit };
                assert!(codes <= limit * halves, "{d_head}, shape {i}, {q_factor}");
            }
        }
    }
}

#[test]
fn rows_beyond_the_range_of_codes_become_zeros_or_nan() {
    let k = Kernels::detect();
    let power = |n: i32| 2f32.powi(n);
    for role in [KvRole::Key, KvRole::Value, KvRole::Both { value_from: 16 }] {
        let rows = KvRows {
            elem: KvElem::F16,
            role,
            d: 40,
        };
        let loaded = |x: f32| {
            let mut block = vec![0xff; 3 * rows.row_bytes()];
            // Equal magnitudes, which a rotation concentrates in one element of a block.
            k.store_kv(&[x; 40], rows, 1, &mut block);
            let mut out = [7.0; 40];
            k.load_kv(rows, 1, &block, &mut out);
            (out, rows.is_sound(1, &block))
        };
        for x in [0.0, 1e-45, power(-60)] {
            assert_eq!(loaded(x), ([0.0; 40], true), "{role:?} {x}");
        }
        for x in [power(-56), 1.0, power(52)] {
            let (out, is_sound) = loaded(x);
            let is_near = |out: &f32| (out / x - 1.0).abs() < 2e-3;
            assert!(is_sound && out.iter().all(is_near), "{role:?} {x} {out:?}");
        }
        for x in [power(56), f32::MAX, f32::INFINITY, f32::NAN] {
            let (out, is_sound) = loaded(x);
            assert!(!is_sound && out.iter().all(|x| x.is_nan()), "{role:?} {x}");
        }
    }
}

#[test]
fn codes_that_could_overflow_are_not_sound() {
    for (role, code, is_sound) in [
        (KvRole::Key, i16::MIN, false),
        (KvRole::Key, 32639, true),
        (KvRole::Key, 32640, false),
        (KvRole::Value, 8191, true),
        (KvRole::Value, -8192, false),
        (KvRole::Both { value_from: 2 }, i16::MIN, false),
    ] {
        let rows = KvRows {
            elem: KvElem::F16,
            role,
            d: 20,
        };
        let mut block = vec![0; 2 * rows.row_bytes()];
        let array = rows.arrays(2).next().unwrap();
        block[array.rows(1..2)][6..8].copy_from_slice(&code.to_le_bytes());
        assert_eq!(rows.is_sound(1, &block), is_sound, "{role:?} {code}");
        assert!(rows.is_sound(0, &block));
        let scale = rows.arrays(2).nth(1).unwrap().rows(0..1);
        for x in [f32::NAN, f32::INFINITY, -1.0] {
            block[scale.clone()].copy_from_slice(&x.to_le_bytes());
            assert!(!rows.is_sound(0, &block), "{x}");
        }
    }
    let rows = keys_of(128);
    let many: Vec<u8> = [5000_i16; 128]
        .iter()
        .flat_map(|c| c.to_le_bytes())
        .collect();
    let block = [many, vec![0; 4]].concat();
    assert!(!rows.is_sound(0, &block), "a norm of 56,000");
}

fn keys_of(d: usize) -> KvRows {
    KvRows {
        elem: KvElem::F16,
        role: KvRole::Key,
        d,
    }
}
