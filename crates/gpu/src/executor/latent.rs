//! Latent attention in the forward pass on a GPU, with absorbed matrices, in the CPU's steps.
//!
//! ```text
//! a, c = Wqa pre(x), Wkva pre(x);  q = Wqb norm(a)         q in place of a without Wqb
//! k = [c_rope, norm(c)];  q_h = [q_rope, Wk_hᵀ q_key]      then ropes, temperatures and the cache
//! z_h = attention;  y_h = Wv_h z_h                         some heads at a time
//! ```
//! Rows of a head's matrix lie head after head, as many as there is room for; copies bring them
//! there, and the products write their results to the places of heads in a row.

use super::pass::{Made, Recorded, StepParts};
use crate::weights::GpuMatrix;
use crate::{
    AddNormed, Bindings, CopyColumns, HeadColumns, HeadProduct, Normed, Product, ProductEnd,
    RowFunction, RowNorm, Slice, TransposedProduct,
};
use atta_model::Role;
use atta_model::spec::{Attention, Latent, LatentUp, Sublayer};
use std::ops::Range;

/// The matrices that read the input of a layer: latent vectors of queries or queries, latent
/// vectors of keys and values.
pub(super) const OF_LATENT: [Role; 3] = [Role::AttnQA, Role::AttnQ, Role::AttnKvA];

/// A layer and its attention.
#[derive(Clone, Copy)]
pub(super) struct LatentLayer<'a> {
    pub(super) l: usize,
    pub(super) a: &'a Attention,
    pub(super) latent: &'a Latent,
}

/// Products with the matrices of heads.
struct Up {
    role: Role,
    /// Widths of inputs and of results.
    d_in: usize,
    d_out: usize,
    /// Where both are, in rows of all heads.
    from: HeadColumns,
    out: HeadColumns,
}

/// The matrices of some heads, which lie in one buffer.
struct HeadMatrices<'a> {
    matrix: &'a GpuMatrix,
    slice: &'a Slice,
    heads: Range<usize>,
}

impl HeadMatrices<'_> {
    /// Words of the matrix of a head, of `n` rows.
    fn head_words(&self, n: usize) -> u32 {
        (n * self.matrix.format.row_words(self.matrix.d_in)) as u32
    }

    /// The first word of the first of them.
    fn first_word(&self, n: usize) -> u32 {
        let before = self.heads.start - self.slice.rows.start / n;
        self.slice.w + before as u32 * self.head_words(n)
    }
}

/// Heads of width `d` that lie one behind the other in rows.
fn heads_at(at: u32, n_heads: usize, d: usize) -> HeadColumns {
    HeadColumns {
        at,
        row: (n_heads * d) as u32,
        head: d as u32,
    }
}

/// Columns of a row that has no heads.
fn columns_at(at: usize, d_row: usize) -> HeadColumns {
    HeadColumns {
        at: at as u32,
        row: d_row as u32,
        head: 0,
    }
}

impl Recorded<'_> {
    /// Results of heads, as codes.
    pub(super) fn latent_attention(&mut self, layer: LatentLayer<'_>) {
        let LatentLayer { l, a, .. } = layer;
        let layout = self.parts.layout;
        let regions = layout.latent;
        let places = [regions.q_latent, regions.q, regions.kv];
        let products: Vec<_> = OF_LATENT.into_iter().zip(places).collect();
        self.enter(l, Sublayer::Mixer, &products);
        self.products(l, &products);
        self.project_queries(layer);
        self.make_keys(layer);
        self.copy_ropes(layer);
        self.make_queries(layer);
        let kv = (self.parts.kv)(l);
        self.store_heads(l, a, &kv);
        self.attend(l, a, &kv);
        self.expand_values(layer);
        let made = Made {
            function: RowFunction::Copy,
            x: layout.q,
            d: a.d_heads(),
            n_rows: self.n_rows,
        };
        self.make(&made, layout.mixed, &[(Role::AttnOutput, Some(l))]);
    }

    /// The norm of latent vectors.
    fn latent_norm(&self, layer: LatentLayer<'_>, role: Role) -> RowNorm {
        let weight = self.parts.vectors.get(role, Some(layer.l));
        RowNorm::Rms {
            weight: weight.unwrap_or_default(),
            eps: layer.latent.eps,
        }
    }

    /// `q = Wqb norm(a)`, if queries have a latent vector.
    fn project_queries(&mut self, layer: LatentLayer<'_>) {
        let Some(d) = layer.latent.d_query else {
            return;
        };
        let layout = self.parts.layout;
        let key = (Role::AttnQB, Some(layer.l));
        let made = Made {
            function: RowFunction::Norm(self.latent_norm(layer, Role::AttnQANorm)),
            x: layout.latent.q_latent,
            d,
            n_rows: self.n_rows,
        };
        self.make(&made, layout.mixed, &[key]);
        self.product(key, layout.mixed, layout.latent.q, ProductEnd::Set);
    }

    /// `k = [c_rope, norm(c)]`; the norm is computed in the place of values.
    fn make_keys(&mut self, layer: LatentLayer<'_>) {
        let LatentLayer { a, latent, .. } = layer;
        let layout = self.parts.layout;
        let d = latent.d_latent;
        let [kv, k, v] = [layout.latent.kv, layout.k, layout.v].map(|at| at as usize);
        let of_rope = [kv + d, k].map(|at| columns_at(at, a.d_head));
        self.copy_of_rows(a.d_rotatable(), of_rope);
        self.copy_of_rows(d, [columns_at(kv, a.d_head), columns_at(v, d)]);
        self.add(&AddNormed {
            norm: self.latent_norm(layer, Role::AttnKvANorm),
            normed: Normed::Alone,
            n_rows: self.n_rows,
            d: d as u32,
            n_weights: 1,
            x: layout.v,
            y: layout.v,
            factor: 1.0,
        });
        let behind_rope = columns_at(k + a.d_rotatable(), a.d_head);
        self.copy_of_rows(d, [columns_at(v, d), behind_rope]);
    }

    /// Copies columns of rows that have no heads.
    fn copy_of_rows(&mut self, n: usize, [from, to]: [HeadColumns; 2]) {
        self.copy_columns(CopyColumns {
            n: n as u32,
            n_rows: self.n_rows,
            n_heads: 1,
            from,
            to,
        });
    }

    /// The first part of every `q_h`: `q_rope`.
    fn copy_ropes(&mut self, layer: LatentLayer<'_>) {
        let LatentLayer { a, latent, .. } = layer;
        let layout = self.parts.layout;
        let behind_key = layout.latent.q + latent.d_key as u32;
        self.copy_columns(CopyColumns {
            n: a.d_rotatable() as u32,
            n_rows: self.n_rows,
            n_heads: a.n_heads as u32,
            from: heads_at(behind_key, a.n_heads, latent.d_key + a.d_rotatable()),
            to: heads_at(layout.q, a.n_heads, a.d_head),
        });
    }

    /// The second part: `Wk_hᵀ q_key`.
    fn make_queries(&mut self, layer: LatentLayer<'_>) {
        let LatentLayer { a, latent, .. } = layer;
        let layout = self.parts.layout;
        let d_rope = a.d_rotatable() as u32;
        let from = heads_at(layout.latent.q, a.n_heads, latent.d_key + a.d_rotatable());
        let out = heads_at(layout.q, a.n_heads, a.d_head);
        let up = Up {
            role: Role::AttnKB,
            d_in: latent.d_key,
            d_out: latent.d_latent,
            from,
            out: HeadColumns {
                at: out.at + d_rope,
                ..out
            },
        };
        match latent.up {
            LatentUp::Split => self.up(layer, &up),
            LatentUp::Joint => self.up_transposed(layer, &up),
        }
    }

    /// `y_h = Wv_h z_h`, in the place of queries.
    fn expand_values(&mut self, layer: LatentLayer<'_>) {
        let LatentLayer { a, latent, .. } = layer;
        let layout = self.parts.layout;
        let from = heads_at(layout.heads, a.n_heads, a.d_head);
        let up = Up {
            role: Role::AttnVB,
            d_in: latent.d_latent,
            d_out: latent.d_value,
            from: HeadColumns {
                at: from.at + a.d_rotatable() as u32,
                ..from
            },
            out: heads_at(layout.q, a.n_heads, latent.d_value),
        };
        self.up(layer, &up);
    }

    fn copy_columns(&mut self, copy: CopyColumns) {
        let StepParts {
            kernels, bindings, ..
        } = *self.parts;
        self.dispatches
            .push(copy.dispatch(kernels.copy_columns, bindings));
    }

    /// Products with the matrices of all heads, some at a time.
    fn up(&mut self, layer: LatentLayer<'_>, up: &Up) {
        let weights = self.parts.weights;
        let Some(matrix) = weights.heads((up.role, Some(layer.l))) else {
            return;
        };
        let n_at_once = (self.parts.layout.latent.n_rows / self.n_rows as usize).max(1);
        for slice in &matrix.slices {
            let [start, end] = [slice.rows.start, slice.rows.end].map(|row| row / up.d_out);
            for first in (start..end).step_by(n_at_once) {
                let heads = first..end.min(first + n_at_once);
                self.fill_heads(matrix, up, &heads);
                let of = HeadMatrices {
                    matrix,
                    slice,
                    heads,
                };
                self.push_product(&self.product_of(layer, up, &of), slice);
            }
        }
    }

    /// The inputs of some heads, one head behind the other.
    fn fill_heads(&mut self, matrix: &GpuMatrix, up: &Up, heads: &Range<usize>) {
        let regions = self.parts.layout.latent;
        let n_rows = self.n_rows;
        self.copy_columns(CopyColumns {
            n: up.d_in as u32,
            n_rows,
            n_heads: heads.len() as u32,
            from: up.from.from_head(heads.start as u32),
            to: HeadColumns {
                at: regions.rows,
                row: up.d_in as u32,
                head: n_rows * up.d_in as u32,
            },
        });
        let made = Made {
            function: RowFunction::Copy,
            x: regions.rows,
            d: up.d_in,
            n_rows: n_rows * heads.len() as u32,
        };
        self.make_in(&made, regions.row_acts, &[matrix.format.acts()]);
    }

    /// The product of some heads.
    fn product_of(&self, layer: LatentLayer<'_>, up: &Up, of: &HeadMatrices<'_>) -> HeadProduct {
        let format = of.matrix.format;
        let out = up.out.from_head(of.heads.start as u32);
        HeadProduct {
            product: Product {
                format,
                w: of.first_word(up.d_out),
                n_out: up.d_out as u32,
                d_in: of.matrix.d_in as u32,
                scale: of.matrix.scale,
                bias: None,
                n_rows: self.n_rows,
                x: self.parts.layout.latent.row_acts.at(format.acts()),
                out: out.at,
                d_out: out.head,
                end: ProductEnd::Set,
            },
            n_heads: of.heads.len() as u32,
            n_all: layer.a.n_heads as u32,
            head_words: of.head_words(up.d_out),
        }
    }

    fn push_product(&mut self, product: &HeadProduct, slice: &Slice) {
        let format = product.product.format;
        let (way, kernel) = self.parts.kernels.of_heads(format, self.n_rows);
        let bindings = self.bindings_of(slice);
        self.dispatches
            .push(product.dispatch(way, kernel, bindings));
    }

    /// Products with the transposed matrices of all heads.
    fn up_transposed(&mut self, layer: LatentLayer<'_>, up: &Up) {
        let weights = self.parts.weights;
        let Some(matrix) = weights.heads((up.role, Some(layer.l))) else {
            return;
        };
        for slice in &matrix.slices {
            let first = (slice.rows.start / up.d_in) as u32;
            let product = TransposedProduct {
                w: slice.w,
                d_in: up.d_in as u32,
                d_out: up.d_out as u32,
                n_rows: self.n_rows,
                n_heads: (slice.rows.len() / up.d_in) as u32,
                x: up.from.from_head(first),
                out: up.out.from_head(first),
            };
            let kernel = self.parts.kernels.transposed;
            let bindings = self.bindings_of(slice);
            self.dispatches.push(product.dispatch(kernel, bindings));
        }
    }

    /// The buffers of the step with that of a slice of weights.
    fn bindings_of(&self, slice: &Slice) -> Bindings {
        Bindings {
            weights: self.parts.weights.arena(slice.arena),
            ..self.parts.bindings
        }
    }
}
