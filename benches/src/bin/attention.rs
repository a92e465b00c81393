//! Speed of attention on this machine: `cargo run --release -p atta-benches --bin attention [ISA]
//! [THREADS] [TYPE]`, the type being that of keys and values: f16, q8 or q4.
//!
//! Prefill is 512 rows that see each other and what came before them, in caches; what counts are
//! multiplications per second. Decode is one row that sees a context of 4096, of as many layers as
//! no cache holds, and one layer of a shorter context that caches hold; what counts are bytes of
//! keys and values per second. All for each of these types if none is given.

use atta_benches::seconds;
use atta_kernels::{
    Attention, AttnRow, AttnScratch, Kernels, KvElem, KvLayer, KvRole, KvRows, Pool,
};
use std::num::NonZeroUsize;

/// Positions per KV block, as in the engine.
const BLOCK_LEN: usize = 32;
/// Bytes of the KV cache of all layers in decoding.
const LARGE: usize = 512 << 20;
/// Bytes of keys and values that fit a core's private caches.
const SMALL: usize = 1 << 20;

/// Query heads, key-value heads, width of a head.
#[derive(Clone, Copy)]
struct Shape {
    n_heads: usize,
    n_kv_heads: usize,
    d_head: usize,
}

const SHAPES: [Shape; 4] = [
    Shape {
        n_heads: 32,
        n_kv_heads: 4,
        d_head: 64,
    },
    Shape {
        n_heads: 32,
        n_kv_heads: 8,
        d_head: 64,
    },
    Shape {
        n_heads: 32,
        n_kv_heads: 8,
        d_head: 128,
    },
    Shape {
        n_heads: 16,
        n_kv_heads: 16,
        d_head: 64,
    },
];

const ELEMS: [KvElem; 3] = [KvElem::F16, KvElem::Q8, KvElem::Q4];

/// A shape, and the type of its keys and values.
#[derive(Clone, Copy)]
struct Case {
    shape: Shape,
    elem: KvElem,
}

impl Case {
    /// Bytes of the keys, or values, of a block.
    fn matrix_bytes(self) -> usize {
        BLOCK_LEN * self.shape.n_kv_heads * self.rows(KvRole::Key).row_bytes()
    }

    /// How keys or values are stored; both take as many bytes, as no head is wider than 128.
    fn rows(self, role: KvRole) -> KvRows {
        KvRows {
            elem: self.elem,
            role,
            d: self.shape.d_head,
        }
    }

    /// Keys and values of the last layer; the layers lie behind each other in each block, as in the
    /// engine.
    fn layer(self, arena: &[u8], (layer, n_layers): (usize, usize)) -> KvLayer<'_> {
        let matrix = self.matrix_bytes();
        let Shape {
            n_kv_heads, d_head, ..
        } = self.shape;
        let k_at = 2 * layer * matrix;
        let v_at = (2 * layer + 1) * matrix;
        let block_bytes = 2 * n_layers * matrix;
        let k_elem = self.elem;
        let v_elem = self.elem;
        KvLayer {
            arena,
            block_bytes,
            k_at,
            v_at,
            block_len: BLOCK_LEN,
            n_kv_heads,
            d_head,
            k_elem,
            v_elem,
            value_from: None,
        }
    }

    /// Keys and values, `[n_blocks, n_layers, 2, n_kv_heads, BLOCK_LEN, d_head]`: copies of one
    /// block.
    fn arena(self, k: Kernels, n_ctx: usize, n_layers: usize) -> Vec<u8> {
        let mut block = vec![0; 2 * self.matrix_bytes()];
        let d = self.shape.d_head;
        for (i, head) in block
            .chunks_exact_mut(BLOCK_LEN * self.rows(KvRole::Key).row_bytes())
            .enumerate()
        {
            let role = match i < self.shape.n_kv_heads {
                true => KvRole::Key,
                false => KvRole::Value,
            };
            for p in 0..BLOCK_LEN {
                let x: Vec<f32> = (0..d)
                    .map(|j| (((i * BLOCK_LEN + p) * 31 + j * 17) % 29) as f32 * 0.1 - 1.4)
                    .collect();
                k.store_kv(&x, self.rows(role), p, head);
            }
        }
        block.repeat(n_layers * n_ctx.div_ceil(BLOCK_LEN))
    }

    /// Seconds of attention in all layers of the last `n_rows` of `n_ctx` positions.
    fn attend(
        self,
        (k, pool): (Kernels, &Pool),
        n_rows: usize,
        n_ctx: usize,
        n_layers: usize,
    ) -> f64 {
        let arena = self.arena(k, n_ctx, n_layers);
        let Shape {
            n_heads, d_head, ..
        } = self.shape;
        let blocks: Vec<u32> = (0..n_ctx.div_ceil(BLOCK_LEN) as u32).collect();
        let q: Vec<f32> = (0..n_rows * n_heads * d_head)
            .map(|i| (i % 13) as f32 * 0.02 - 0.12)
            .collect();
        let mut out = q.clone();
        let mut scratch = AttnScratch::new(n_rows, n_heads, d_head, n_ctx, pool.n_threads());
        let scale = 1.0 / (d_head as f32).sqrt();
        seconds(|| {
            for layer in 0..n_layers {
                let kv = self.layer(&arena, (layer, n_layers));
                let out = &mut out[..];
                let scratch = &mut scratch;
                let rows = &|t| AttnRow {
                    chosen: None,
                    blocks: &blocks,
                    first: 0,
                    last: n_ctx - n_rows + t,
                    pos: n_ctx - n_rows + t,
                };
                let q = &q;
                let softcap = None;
                let sinks = None;
                k.attention(
                    pool,
                    Attention {
                        kv,
                        q,
                        rows,
                        n_heads,
                        scale,
                        softcap,
                        slopes: None,
                        sinks,
                        out,
                        scratch,
                    },
                );
            }
        })
    }

    fn prefill(self, on: (Kernels, &Pool), n_rows: usize, n_ctx: usize) -> f64 {
        let seen: usize = (n_ctx - n_rows + 1..=n_ctx).sum();
        (2 * seen * self.shape.n_heads * self.shape.d_head) as f64
            / self.attend(on, n_rows, n_ctx, 1)
    }

    /// Bytes of keys and values per second.
    fn decode(self, on: (Kernels, &Pool), n_blocks: usize, n_layers: usize) -> f64 {
        let layer = 2 * n_blocks * self.matrix_bytes();
        (n_layers * layer) as f64 / self.attend(on, 1, n_blocks * BLOCK_LEN, n_layers)
    }

    fn print(self, on: (Kernels, &Pool)) {
        let prefill = [512, 4096].map(|n_ctx| self.prefill(on, 512, n_ctx) / 1e9);
        let n_blocks = 4096 / BLOCK_LEN;
        let block = 2 * self.matrix_bytes();
        let decode = self.decode(on, n_blocks, LARGE / (n_blocks * block));
        let cached = self.decode(on, SMALL / block, 1);
        let Shape {
            n_heads,
            n_kv_heads,
            d_head,
        } = self.shape;
        let positions = decode * BLOCK_LEN as f64 / (2 * self.matrix_bytes()) as f64;
        println!(
            "{n_heads:2} heads, {n_kv_heads:2} of kv, width {d_head:3}, {:?}: 512 rows of 512 {:5.1} GMAC/s, of 4096 {:5.1} \
             GMAC/s   decode at 4096 {:5.1} GB/s = {:5.1} GMAC/s, cached {:5.1} GB/s",
            self.elem,
            prefill[0],
            prefill[1],
            decode / 1e9,
            positions * (2 * n_heads * d_head) as f64 / 1e9,
            cached / 1e9
        );
    }
}

fn elem_named(name: &str) -> KvElem {
    let named = |elem: &KvElem| format!("{elem:?}").eq_ignore_ascii_case(name);
    ELEMS
        .into_iter()
        .find(named)
        .expect("the name of a type: f16, q8 or q4")
}

fn main() {
    let mut args = std::env::args().skip(1);
    let k = args.next().map_or_else(Kernels::detect, |name| {
        Kernels::named(&name).expect("the name of an isa")
    });
    let n_threads = args
        .next()
        .map_or(1, |n| n.parse().expect("a number of threads"));
    let pool = Pool::new(NonZeroUsize::new(n_threads).expect("at least one thread"));
    let elems = args
        .next()
        .map_or(ELEMS.to_vec(), |name| vec![elem_named(&name)]);
    let bandwidth = k.read_bandwidth(&pool, LARGE) / 1e9;
    println!(
        "{}, {n_threads} threads; reads {bandwidth:.1} GB/s",
        k.isa()
    );
    for shape in SHAPES {
        elems
            .iter()
            .for_each(|&elem| Case { shape, elem }.print((k, &pool)));
    }
}
