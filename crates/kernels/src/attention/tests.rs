//! Attention against a reference in f64, and bit for bit between ISAs, threads, blocks and
//! neighbours.

mod codes16;

use super::*;
use crate::Kernels;
use crate::algo::hadamard::rotate;
use crate::isa::scalar::Scalar;
use crate::testing::{Random, bits, pool};
use atta_formats::f16::{f16_to_f32, f32_to_f16};

const ELEMS: [KvElem; 4] = [KvElem::F32, KvElem::F16, KvElem::Q8, KvElem::Q4];

/// Query rows of one sequence whose KV blocks are shuffled in the arena, behind those of another
/// layer.
struct AttnCase {
    n_heads: usize,
    n_kv_heads: usize,
    d_head: usize,
    block_len: usize,
    elem: KvElem,
    /// Type of the values, if it is not that of the keys.
    v_elem: Option<KvElem>,
    window: usize,
    softcap: Option<f32>,
    has_slopes: bool,
    has_sinks: bool,
    /// Last positions of the query rows.
    last: Vec<usize>,
    /// Whether keys and values keep all their bits, rather than those of binary16.
    is_fine: bool,
    /// Factor of element i of the keys and values of position p; 0: all elements are 1.
    shape: fn(usize, usize) -> f32,
    /// Factor of the queries, besides the usual 4.
    q_factor: f32,
    /// The first element of the value in its key, if keys are the values.
    value_from: Option<usize>,
    /// A position whose key and value are infinite.
    infinite: usize,
    /// An element of the queries that is NaN.
    nan: usize,
    /// Blocks of five positions that rows choose, if they choose; each sees the last position, too.
    chosen: Option<&'static [u32]>,
    seed: u64,
}

/// Positions of a chosen block.
const CHOSEN_LEN: usize = 5;

impl Default for AttnCase {
    fn default() -> Self {
        Self {
            n_heads: 8,
            n_kv_heads: 2,
            d_head: 64,
            block_len: 32,
            elem: KvElem::F32,
            v_elem: None,
            window: usize::MAX,
            softcap: None,
            has_slopes: false,
            has_sinks: false,
            last: vec![0, 5, 127, 128, 300, 511],
            is_fine: false,
            shape: |_, _| 1.0,
            q_factor: 1.0,
            value_from: None,
            infinite: usize::MAX,
            nan: usize::MAX,
            chosen: None,
            seed: 11,
        }
    }
}

/// How fast the scores of a head fall.
fn slope(head: usize) -> f32 {
    0.3 / (1 + head) as f32
}

impl AttnCase {
    fn n_ctx(&self) -> usize {
        self.last.iter().max().unwrap() + 1
    }

    /// Keys and values, `[n_ctx, n_kv_heads, d_head]` each, and queries; independent of blocks
    /// and element type.
    fn inputs(&self) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let mut random = Random(self.seed);
        let n = self.n_ctx() * self.n_kv_heads * self.d_head;
        let width = self.n_kv_heads * self.d_head;
        let element = |(i, x): (usize, f32)| match (self.shape)(i / width, i % self.d_head) {
            0.0 => 1.0,
            factor if self.is_fine => factor * x,
            factor => f16_to_f32(f32_to_f16(factor * x)),
        };
        let mut kv = || {
            let elements = random.floats(n).into_iter().enumerate();
            elements.map(element).collect::<Vec<_>>()
        };
        let mut k = kv();
        let mut v = self.value_from.map_or_else(kv, |_| k.clone());
        for x in [&mut k, &mut v].map(|x| {
            x.chunks_mut(self.n_kv_heads * self.d_head)
                .nth(self.infinite)
        }) {
            x.into_iter().flatten().for_each(|x| *x = f32::INFINITY);
        }
        let mut q = random.floats(self.last.len() * self.n_heads * self.d_head);
        q.iter_mut().for_each(|x| *x *= 4.0 * self.q_factor);
        q.get_mut(self.nan).into_iter().for_each(|x| *x = f32::NAN);
        (k, v, q)
    }

    /// Types of keys and values.
    fn elems(&self) -> [KvElem; 2] {
        [self.elem, self.v_elem.unwrap_or(self.elem)]
    }

    /// How keys and values are stored.
    fn kv_rows(&self) -> [KvRows; 2] {
        let [k, v] = self.elems();
        let d = self.d_head;
        let rows = |elem, role| KvRows { elem, role, d };
        match self.value_from {
            Some(value_from) => [rows(k, KvRole::Both { value_from }); 2],
            None => [rows(k, KvRole::Key), rows(v, KvRole::Value)],
        }
    }

    fn row(&self, last: usize) -> (usize, usize) {
        ((last + 1).saturating_sub(self.window), last)
    }

    /// Sinks far below, near and far above the other scores.
    fn sinks(&self) -> Option<Vec<f32>> {
        self.has_sinks.then(|| {
            (0..self.n_heads)
                .map(|h| [1.5, -200.0, 3.0, 90.0, -0.5][h % 5])
                .collect()
        })
    }

    fn scale(&self) -> f32 {
        1.0 / (self.d_head as f32).sqrt()
    }

    fn run(&self, n_threads: usize, scratch: &mut AttnScratch) -> Vec<f32> {
        self.run_on(Kernels::detect(), n_threads, scratch)
    }

    fn run_on(&self, k: Kernels, n_threads: usize, scratch: &mut AttnScratch) -> Vec<f32> {
        let (keys, values, q) = self.inputs();
        let width = self.n_kv_heads * self.d_head;
        let n_blocks = self.n_ctx().div_ceil(self.block_len);
        let [k_elem, v_elem] = self.elems();
        let kv_rows = self.kv_rows();
        let [k_len, v_len] =
            kv_rows.map(|rows| self.block_len * self.n_kv_heads * rows.row_bytes());
        // A block holds the keys of another layer, then the values and keys of this one, so that
        // neither begins at 0.
        let block_bytes = 2 * k_len + v_len;
        let k_at = k_len + v_len;
        let v_at = self.value_from.map_or(k_len, |_| k_at);
        let mut arena = vec![0xffu8; n_blocks * block_bytes];
        let mut blocks: Vec<u32> = (0..n_blocks as u32).rev().collect();
        for p in 0..self.n_ctx() {
            for h in 0..self.n_kv_heads {
                let block = blocks[p / self.block_len] as usize * block_bytes;
                let from = p * width + h * self.d_head..p * width + (h + 1) * self.d_head;
                let stored = [(v_at, &values), (k_at, &keys)].into_iter().rev();
                for ((at, x), rows) in stored.zip(kv_rows) {
                    let len = self.block_len * rows.row_bytes();
                    let head = &mut arena[block + at + h * len..][..len];
                    k.store_kv(&x[from.clone()], rows, p % self.block_len, head);
                }
            }
        }
        // Entries of the block table that no row sees may be invalid.
        let first = self
            .last
            .iter()
            .map(|&last| self.row(last).0)
            .min()
            .unwrap();
        blocks[..first / self.block_len].fill(u32::MAX);
        blocks.extend([u32::MAX; 9]);
        let rows: Vec<_> = self
            .last
            .iter()
            .map(|&last| AttnRow {
                blocks: &blocks,
                first: self.row(last).0,
                last,
                pos: self.pos(last),
                chosen: self.chosen.map(|blocks| ChosenBlocks {
                    blocks,
                    len: CHOSEN_LEN,
                    rest: last,
                }),
            })
            .collect();
        let mut out = vec![f32::NAN; q.len()];
        let kv = KvLayer {
            arena: &arena,
            block_bytes,
            k_at,
            v_at,
            block_len: self.block_len,
            n_kv_heads: self.n_kv_heads,
            d_head: self.d_head,
            k_elem,
            v_elem,
            value_from: self.value_from,
        };
        let sinks = self.sinks();
        let a = Attention {
            kv,
            q: &q,
            rows: &|t: usize| rows[t],
            n_heads: self.n_heads,
            scale: self.scale(),
            softcap: self.softcap,
            slopes: self.has_slopes.then_some(&slope as _),
            sinks: sinks.as_deref(),
            out: &mut out,
            scratch,
        };
        k.attention(&pool(n_threads), a);
        out
    }

    /// The position of the row that sees up to `last`; an encoder's sees positions behind its own.
    fn pos(&self, last: usize) -> usize {
        if self.has_slopes { 2 * last / 3 } else { last }
    }

    fn run_alone(&self) -> Vec<f32> {
        self.run(1, &mut self.scratch(1))
    }

    fn scratch(&self, n_threads: usize) -> AttnScratch {
        AttnScratch::new(
            self.last.len(),
            self.n_heads,
            self.d_head,
            self.n_ctx(),
            n_threads,
        )
    }

    /// Softmax in two passes over everything visible, in f64.
    fn reference(&self, (keys, values, q): &(Vec<f32>, Vec<f32>, Vec<f32>)) -> Vec<f64> {
        let d = self.d_head;
        let group = self.n_heads / self.n_kv_heads;
        let at = |x: &[f32], p: usize, h: usize| -> Vec<f64> {
            let start = (p * self.n_kv_heads + h / group) * d;
            x[start..start + d].iter().map(|&x| f64::from(x)).collect()
        };
        let mut out = Vec::new();
        for (i, q) in q.chunks(d).enumerate() {
            let h = i % self.n_heads;
            let (first, last) = self.row(self.last[i / self.n_heads]);
            let score = |p: usize| {
                let dot: f64 = q
                    .iter()
                    .zip(at(keys, p, h))
                    .map(|(&q, k)| f64::from(q) * k)
                    .sum();
                let score = dot * f64::from(self.scale());
                let score = self.softcap.map_or(score, |cap| {
                    f64::from(cap) * (score / f64::from(cap)).tanh()
                });
                match self.has_slopes {
                    true => score - f64::from(slope(h)) * self.pos(last).abs_diff(p) as f64,
                    false => score,
                }
            };
            let seen = |p: &usize| {
                let of_block = |b: &[u32]| b.contains(&((p / CHOSEN_LEN) as u32));
                self.chosen.is_none_or(of_block) || *p == last
            };
            let visible: Vec<usize> = (first..=last).filter(seen).collect();
            let scores: Vec<f64> = visible.iter().map(|&p| score(p)).collect();
            let sink = self.sinks().map(|sinks| f64::from(sinks[h]));
            let all = || scores.iter().copied().chain(sink);
            let max = all().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = all().map(|s| (s - max).exp()).sum();
            let mut row = vec![0.0; d];
            for (&p, score) in visible.iter().zip(&scores) {
                let weight = (score - max).exp() / sum;
                row.iter_mut()
                    .zip(at(values, p, h))
                    .for_each(|(out, v)| *out += weight * v);
            }
            out.extend(row);
        }
        out
    }

    fn scalar(&self) -> Vec<u32> {
        bits(&self.run_on(Kernels::named("scalar").unwrap(), 1, &mut self.scratch(1)))
    }

    /// Keys, values and queries rounded as the element types round them, without the rotation.
    fn rounded(&self) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let (mut keys, mut values, mut q) = self.inputs();
        for (x, rows) in [&mut keys, &mut values].into_iter().zip(self.kv_rows()) {
            let k = Kernels::detect();
            let mut bytes = vec![0; rows.row_bytes()];
            for row in x.chunks_mut(self.d_head) {
                k.store_kv(row, rows, 0, &mut bytes);
                k.load_kv(rows, 0, &bytes, row);
            }
        }
        let is_int8 = self.kv_rows()[0].is_rotated();
        for q in q.chunks_mut(self.d_head).filter(|_| is_int8) {
            rotate(Scalar, q);
            let step = q.iter().fold(0f32, |max, x| max.max(x.abs())) / 127.0;
            q.iter_mut()
                .for_each(|x| *x = (*x / step).round_ties_even() * step);
            rotate(Scalar, q);
        }
        (keys, values, q)
    }

    /// Compares with the reference over rounded inputs; the difference is the rounding of f32, and
    /// that of queries, weights, and steps of Q4 values to 16-bit codes.
    fn check(&self) {
        let tolerance = match self.elems() {
            [KvElem::F32, KvElem::F32] => 1e-6,
            [_, KvElem::Q4] => 1e-2,
            _ => 2e-4,
        };
        self.compare(&self.rounded(), tolerance);
    }

    fn compare(&self, inputs: &(Vec<f32>, Vec<f32>, Vec<f32>), tolerance: f64) {
        let got = self.run(1, &mut self.scratch(1));
        let both = got.iter().zip(self.reference(inputs)).enumerate();
        // What lies before the value of a key is no result.
        let from = self.value_from.unwrap_or(0);
        for (i, (&got, want)) in both.filter(|(i, _)| i % self.d_head >= from) {
            assert!(
                (f64::from(got) - want).abs() < tolerance,
                "{:?} output {i}: {got} {want}",
                self.elems()
            );
        }
    }
}

#[test]
fn attention_agrees_with_two_passes_in_f64() {
    for elem in ELEMS {
        AttnCase {
            elem,
            ..AttnCase::default()
        }
        .check();
    }
}

#[test]
fn keys_that_are_the_values_are_rotated_back_whole() {
    // Blocks of 256, 64 and 32 elements, in which the value begins at the start and within.
    for (d_head, value_from) in [(256, 64), (256, 100), (192, 64), (96, 64), (96, 40)] {
        for elem in [KvElem::Q8, KvElem::Q4] {
            AttnCase {
                n_heads: 3,
                n_kv_heads: 1,
                d_head,
                value_from: Some(value_from),
                elem,
                ..AttnCase::default()
            }
            .check();
        }
    }
}

#[test]
fn quantized_keys_and_values_are_near_the_exact_ones() {
    // Elements lie between −1 and 1; a row sees between 1 and 512 of them.
    for (elem, tolerance) in [(KvElem::Q8, 0.02), (KvElem::Q4, 0.2)] {
        let case = AttnCase {
            elem,
            ..AttnCase::default()
        };
        case.compare(&case.inputs(), tolerance);
    }
}

#[test]
fn every_isa_gives_the_bits_of_scalar() {
    let rows = |n: usize| (200..200 + n).collect::<Vec<_>>();
    let few = [(9, 3, 33, 5), (7, 1, 16, 1), (40, 1, 80, 3), (6, 2, 31, 2)];
    let many = [
        (8, 2, 64, 40),
        (4, 4, 128, 20),
        (9, 3, 31, 30),
        (2, 1, 63, 40),
    ];
    for (i, (n_heads, n_kv_heads, d_head, n_rows)) in few.into_iter().chain(many).enumerate() {
        let cases = ELEMS.into_iter().zip([
            (Some(3.0), 100),
            (None, usize::MAX),
            (None, 90),
            (Some(5.0), 300),
        ]);
        for (j, (elem, (softcap, window))) in cases.enumerate() {
            let v_elem = Some(ELEMS[(i + j) % 4]);
            let case = AttnCase {
                n_heads,
                n_kv_heads,
                d_head,
                elem,
                v_elem,
                softcap,
                window,
                has_slopes: (i + j) % 2 == 0,
                has_sinks: softcap.is_none(),
                last: rows(n_rows),
                ..AttnCase::default()
            };
            let want = case.scalar();
            for k in Kernels::available()
                .into_iter()
                .map(|name| Kernels::named(name).unwrap())
            {
                for n_threads in [1, 2] {
                    let got = bits(&case.run_on(k, n_threads, &mut case.scratch(n_threads)));
                    assert!(
                        got == want,
                        "{} {n_heads} {n_kv_heads} {d_head} {elem:?} {v_elem:?} {n_threads}",
                        k.isa()
                    );
                }
            }
        }
    }
}

#[test]
fn rows_that_choose_blocks_see_those_and_their_last_position() {
    // Blocks within a chunk, across two, and none for chunks on end; some rows see only themselves.
    let every_second: Vec<u32> = (0..103).step_by(2).collect();
    let chosen: [&'static [u32]; 4] = [
        &[0, 3, 24, 25, 26, 99],
        &[51, 52, 102],
        &[0],
        every_second.leak(),
    ];
    let last = [
        vec![3, 4, 5, 127, 128, 300, 511],
        (180..220).collect(),
        vec![700],
    ];
    for (i, &chosen) in chosen.iter().enumerate() {
        for (j, last) in last.iter().enumerate() {
            for elem in ELEMS {
                let case = AttnCase {
                    elem,
                    has_sinks: (i + j) % 2 == 0,
                    softcap: (i == 1).then_some(3.0),
                    chosen: Some(chosen),
                    last: last.clone(),
                    ..AttnCase::default()
                };
                case.check();
                let want = case.scalar();
                for name in Kernels::available() {
                    let k = Kernels::named(name).unwrap();
                    for n_threads in [1, 2] {
                        let got = case.run_on(k, n_threads, &mut case.scratch(n_threads));
                        assert!(bits(&got) == want, "{name} {elem:?} {i} {j} {n_threads}");
                    }
                }
            }
        }
    }
}

#[test]
fn any_grouping_and_width_of_heads_works() {
    let last = vec![0, 140];
    for (n_heads, n_kv_heads, d_head) in [
        (1, 1, 1),
        (3, 3, 20),
        (2, 1, 31),
        (10, 1, 80),
        (9, 3, 33),
        (6, 2, 63),
        (4, 2, 512),
        (5, 1, 1024),
    ] {
        for elem in ELEMS {
            AttnCase {
                n_heads,
                n_kv_heads,
                d_head,
                elem,
                last: last.clone(),
                ..AttnCase::default()
            }
            .check();
        }
    }
}

#[test]
fn keys_and_values_may_have_different_types() {
    for (elem, v_elem) in ELEMS
        .into_iter()
        .flat_map(|elem| ELEMS.map(|v_elem| (elem, Some(v_elem))))
    {
        for d_head in [48, 63] {
            AttnCase {
                elem,
                v_elem,
                d_head,
                last: vec![7, 200],
                ..AttnCase::default()
            }
            .check();
        }
    }
}

#[test]
fn windows_begin_anywhere() {
    for (window, elem) in [1, 2, 100, 128, 129, 400]
        .into_iter()
        .zip(ELEMS.into_iter().cycle())
    {
        AttnCase {
            window,
            ..AttnCase::default()
        }
        .check();
        AttnCase {
            window,
            elem,
            ..AttnCase::default()
        }
        .check();
    }
}

#[test]
fn scores_can_be_capped() {
    AttnCase {
        softcap: Some(2.0),
        ..AttnCase::default()
    }
    .check();
}

#[test]
fn heads_can_look_at_a_sink() {
    for (window, n_kv_heads) in [(usize::MAX, 2), (7, 1), (200, 8)] {
        AttnCase {
            has_sinks: true,
            window,
            n_kv_heads,
            ..AttnCase::default()
        }
        .check();
    }
}

#[test]
fn a_sink_that_vanishes_changes_no_bit() {
    let case = AttnCase {
        has_sinks: true,
        last: vec![3, 200],
        ..AttnCase::default()
    };
    let with = case.run_alone();
    let case = AttnCase {
        has_sinks: false,
        ..case
    };
    let without = case.run_alone();
    // Every fifth head from the second on has a sink of -200.
    for (i, (with, without)) in with.chunks(64).zip(without.chunks(64)).enumerate() {
        assert_eq!(bits(with) == bits(without), i % 8 % 5 == 1, "head {i}");
    }
}

#[test]
fn what_a_row_does_not_see_may_be_infinite() {
    let heads = [(8, 2), (3, 3)];
    let cases = heads
        .into_iter()
        .flat_map(|heads| [(heads, KvElem::F32), (heads, KvElem::F16)]);
    for ((n_heads, n_kv_heads), elem) in cases {
        let case = AttnCase {
            n_heads,
            n_kv_heads,
            elem,
            last: (120..160).collect(),
            ..AttnCase::default()
        };
        let want = bits(&case.run_alone());
        let width = n_heads * case.d_head;
        let got = bits(
            &AttnCase {
                infinite: 139,
                ..case
            }
            .run_alone(),
        );
        assert_eq!(got[..19 * width], want[..19 * width]);
        assert!(
            got[19 * width..]
                .chunks(width)
                .all(|row| !f32::from_bits(row[0]).is_finite())
        );
    }
}

#[test]
fn a_nan_in_a_query_shows_whatever_the_keys_are() {
    for (elem, d_head) in ELEMS.into_iter().flat_map(|elem| [(elem, 33), (elem, 64)]) {
        let case = AttnCase {
            elem,
            d_head,
            nan: 2 * d_head,
            last: vec![0, 200],
            ..AttnCase::default()
        };
        let out = case.run_alone();
        for (i, head) in out.chunks(d_head).enumerate() {
            assert!(
                head.iter().all(|x| x.is_nan() == (i == 2)),
                "{elem:?} {d_head}, head {i}"
            );
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_threads_or_scratch() {
    let cases = [
        (vec![511], 2),
        (vec![511], 1),
        (vec![130, 400], 2),
        (vec![0, 5, 127, 128, 300], 8),
    ];
    let settings = [
        (KvElem::F16, false),
        (KvElem::F16, true),
        (KvElem::Q8, true),
        (KvElem::Q4, false),
    ];
    for ((last, n_kv_heads), (elem, has_sinks)) in cases
        .iter()
        .flat_map(|case| settings.map(|with| (case, with)))
    {
        let case = AttnCase {
            last: last.clone(),
            n_kv_heads: *n_kv_heads,
            has_sinks,
            window: 333,
            elem,
            ..AttnCase::default()
        };
        let want = bits(&case.run(1, &mut case.scratch(1)));
        for n_threads in [2, 3, 5] {
            assert_eq!(
                bits(&case.run(n_threads, &mut case.scratch(n_threads))),
                want,
                "{n_threads} threads"
            );
            assert_eq!(
                bits(&case.run(n_threads, &mut case.scratch(1))),
                want,
                "{n_threads} threads, no scratch"
            );
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_neighbours_or_blocks() {
    for (elem, d_head) in ELEMS.into_iter().flat_map(|elem| [(elem, 64), (elem, 80)]) {
        let many = AttnCase {
            last: vec![511, 0, 300, 300, 129],
            elem,
            d_head,
            ..AttnCase::default()
        };
        let width = many.n_heads * many.d_head;
        let want = bits(&many.run(1, &mut many.scratch(1)));
        for block_len in [1, 16, 100, 128, 600] {
            let other = AttnCase {
                block_len,
                last: many.last.clone(),
                ..many
            };
            assert_eq!(
                bits(&other.run(2, &mut other.scratch(2))),
                want,
                "{elem:?}, blocks of {block_len}"
            );
        }
        // The first row with other neighbours, and alone.
        for last in [vec![511, 300], vec![511]] {
            let fewer = AttnCase { last, ..many };
            let got = bits(&fewer.run(1, &mut fewer.scratch(1)));
            assert_eq!(got[..width], want[..width], "{elem:?}, {d_head}");
        }
    }
}
