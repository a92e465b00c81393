//! Speed of attention on this machine: `cargo run --release -p atta-benches --bin attention [ISA] [THREADS]`.
//!
//! Prefill is 512 rows that see each other and what came before them, in caches; what counts are multiplications per
//! second. Decode is one row that sees a context of 4096, of as many layers as no cache holds; what counts are bytes of
//! keys and values per second. Both are f16.

use atta_benches::{seconds, weights};
use atta_formats::TensorType;
use atta_kernels::{Attention, AttnRow, AttnScratch, Kernels, KvElem, KvLayer, Pool};
use std::num::NonZeroUsize;

/// Positions per block of the cache, as the engine has them.
const BLOCK_LEN: usize = 32;
/// Bytes of all layers in decoding.
const LARGE: usize = 512 << 20;

/// Query heads, heads of keys and values, width of a head.
#[derive(Clone, Copy)]
struct Shape {
    n_heads: usize,
    n_kv_heads: usize,
    d_head: usize,
}

const SHAPES: [Shape; 4] = [
    Shape { n_heads: 32, n_kv_heads: 4, d_head: 64 },
    Shape { n_heads: 32, n_kv_heads: 8, d_head: 64 },
    Shape { n_heads: 32, n_kv_heads: 8, d_head: 128 },
    Shape { n_heads: 16, n_kv_heads: 16, d_head: 64 },
];

impl Shape {
    /// Bytes of the keys, or values, of a block.
    fn matrix_bytes(self) -> usize {
        KvElem::F16.row_bytes(BLOCK_LEN * self.n_kv_heads * self.d_head)
    }

    /// Keys and values of the last layer; the layers lie behind each other in each block, as in the engine.
    fn layer(self, arena: &[u8], (layer, n_layers): (usize, usize)) -> KvLayer<'_> {
        let matrix = self.matrix_bytes();
        let (n_kv_heads, d_head, block_bytes) = (self.n_kv_heads, self.d_head, 2 * n_layers * matrix);
        let (k_at, v_at) = (2 * layer * matrix, (2 * layer + 1) * matrix);
        let (k_elem, v_elem) = (KvElem::F16, KvElem::F16);
        KvLayer { arena, block_bytes, k_at, v_at, block_len: BLOCK_LEN, n_kv_heads, d_head, k_elem, v_elem }
    }

    /// Keys and values of random codes, `[n_blocks, n_layers, 2, n_kv_heads, BLOCK_LEN, d_head]`.
    fn arena(self, n_ctx: usize, n_layers: usize) -> Vec<u8> {
        let width = 2 * n_layers * self.n_kv_heads * self.d_head;
        weights(TensorType::F16, n_ctx.next_multiple_of(BLOCK_LEN), width)
    }

    /// Seconds of attention in all layers of the last `n_rows` of `n_ctx` positions.
    fn attend(self, (k, pool): (Kernels, &Pool), n_rows: usize, n_ctx: usize, n_layers: usize) -> f64 {
        let arena = self.arena(n_ctx, n_layers);
        let blocks: Vec<u32> = (0..n_ctx.div_ceil(BLOCK_LEN) as u32).collect();
        let q: Vec<f32> = (0..n_rows * self.n_heads * self.d_head).map(|i| (i % 13) as f32 * 0.02 - 0.12).collect();
        let mut out = q.clone();
        let mut scratch = AttnScratch::new(n_rows, self.n_heads, self.d_head, n_ctx, pool.n_threads());
        let scale = 1.0 / (self.d_head as f32).sqrt();
        seconds(|| {
            for layer in 0..n_layers {
                let (kv, out, scratch) = (self.layer(&arena, (layer, n_layers)), &mut out[..], &mut scratch);
                let rows = &|t| AttnRow { blocks: &blocks, first: 0, last: n_ctx - n_rows + t };
                let (q, n_heads, softcap, sinks) = (&q, self.n_heads, None, None);
                k.attention(pool, Attention { kv, q, rows, n_heads, scale, softcap, sinks, out, scratch });
            }
        })
    }

    fn prefill(self, on: (Kernels, &Pool), n_rows: usize, n_ctx: usize) -> f64 {
        let seen: usize = (n_ctx - n_rows + 1..=n_ctx).sum();
        (2 * seen * self.n_heads * self.d_head) as f64 / self.attend(on, n_rows, n_ctx, 1)
    }

    fn decode(self, on: (Kernels, &Pool), n_ctx: usize) -> f64 {
        let n_layers = LARGE / (2 * n_ctx / BLOCK_LEN * self.matrix_bytes());
        LARGE as f64 / self.attend(on, 1, n_ctx, n_layers)
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let k = args.next().map_or_else(Kernels::detect, |name| Kernels::named(&name).expect("the name of an isa"));
    let n_threads = args.next().map_or(1, |n| n.parse().expect("a number of threads"));
    let pool = Pool::new(NonZeroUsize::new(n_threads).expect("at least one thread"));
    let bandwidth = k.read_bandwidth(&pool, LARGE) / 1e9;
    println!("{}, {n_threads} threads; reads {bandwidth:.1} GB/s", k.isa());
    for shape in SHAPES {
        let on = (k, &pool);
        let prefill = [512, 4096].map(|n_ctx| shape.prefill(on, 512, n_ctx) / 1e9);
        let decode = shape.decode(on, 4096) / 1e9;
        let Shape { n_heads, n_kv_heads, d_head } = shape;
        println!(
            "{n_heads:2} heads, {n_kv_heads:2} of kv, width {d_head:3}: 512 rows of 512 {:5.1} GMAC/s, of 4096 {:5.1} \
             GMAC/s   decode at 4096 {decode:5.1} GB/s = {:4.1} GMAC/s",
            prefill[0],
            prefill[1],
            decode / 2.0 * (n_heads / n_kv_heads) as f64
        );
    }
}
