//! What latent attention multiplies and copies beside the CPU.

use super::{Contents, Probe};
use crate::samples::Samples;
use crate::{
    ActLayout, Bindings, CopyColumns, Error, HeadColumns, HeadProduct, Product, ProductEnd,
    ProductWay, Quantize, RowFunction, Shader, TransposedProduct, WeightFormat,
};
use atta_formats::TensorType;
use atta_kernels::{Activations, Groups, Layouts, Matrix};

const N_HEADS: usize = 3;
/// Words of a row in front of the results of its heads, which a product must leave as they are.
const BEFORE: usize = 7;

/// The matrices of heads, `[N_HEADS, n_out, d_in]`, and their rows, `[N_HEADS, n_rows, d_in]`.
struct HeadsSample {
    ty: TensorType,
    n_out: usize,
    d_in: usize,
    n_rows: usize,
    matrices: Vec<u8>,
    x: Vec<f32>,
}

pub(super) fn products(probe: &mut Probe<'_>) -> Result<(), Error> {
    for format in WeightFormat::OF_EACH_KERNEL {
        for (n_rows, n_out) in [(1, 33), (9, 5), (70, 33)] {
            let sample = HeadsSample::new(format.tensor_type(), [n_rows, n_out, 512]);
            let expected = sample.on_cpu(probe);
            let ways = [ProductWay::Columns, ProductWay::Tiles].into_iter();
            for way in ways.filter(|way| Shader::head_product(format, *way).is_some()) {
                let got = sample.on_gpu(probe, format, way)?;
                let what = format!("{format:?} {way:?}, {n_rows} rows");
                probe.same(&what, &got, expected.iter().map(|x| x.to_bits()))?;
            }
        }
    }
    Ok(())
}

pub(super) fn transposed(probe: &mut Probe<'_>) -> Result<(), Error> {
    for n_rows in [1, 9] {
        let sample = HeadsSample::new(TensorType::F32, [n_rows, 70, 130]);
        let got = sample.transposed_on_gpu(probe)?;
        let expected = sample.transposed_on_cpu(probe);
        probe.same(
            &format!("{n_rows} rows"),
            &got,
            expected.iter().map(|x| x.to_bits()),
        )?;
    }
    Ok(())
}

pub(super) fn copies(probe: &mut Probe<'_>) -> Result<(), Error> {
    let [n_rows, n, d] = [2, 67, 70];
    let x = Samples(5).floats(n_rows * N_HEADS * d);
    let all = [&x[..], &vec![0.0; N_HEADS * n_rows * n]].concat();
    let bindings = probe.fill(&Contents {
        weights: &[],
        n_acts: 1,
        values: &all,
        tables: &[],
        kv: &[],
    })?;
    let copy = CopyColumns {
        n: n as u32,
        n_rows: n_rows as u32,
        n_heads: N_HEADS as u32,
        from: in_rows(2, d),
        to: by_head(x.len(), n_rows, n),
    };
    probe.run(&Shader::copy_columns(), |p| copy.dispatch(p, bindings))?;
    let got = probe.words(bindings.values, x.len(), N_HEADS * n_rows * n)?;
    let places = (0..N_HEADS).flat_map(|h| (0..n_rows).map(move |row| row * N_HEADS + h));
    let expected = places
        .flat_map(|i| &x[i * d + 2..][..n])
        .map(|x| x.to_bits());
    probe.same("columns of heads", &got, expected)
}

/// Heads of width `d` in rows.
fn in_rows(at: usize, d: usize) -> HeadColumns {
    HeadColumns {
        at: at as u32,
        row: (N_HEADS * d) as u32,
        head: d as u32,
    }
}

/// Rows of width `d` of a head, head by head.
fn by_head(at: usize, n_rows: usize, d: usize) -> HeadColumns {
    HeadColumns {
        at: at as u32,
        row: d as u32,
        head: (n_rows * d) as u32,
    }
}

impl HeadsSample {
    fn new(ty: TensorType, [n_rows, n_out, d_in]: [usize; 3]) -> Self {
        let format = WeightFormat::of(ty).expect("a type with a kernel");
        let mut samples = Samples(n_rows as u64);
        let matrices = (0..N_HEADS).flat_map(|_| samples.matrix(format, n_out, d_in));
        let matrices = matrices.collect();
        Self {
            ty,
            n_out,
            d_in,
            n_rows,
            matrices,
            x: samples.floats(N_HEADS * n_rows * d_in.max(n_out)),
        }
    }

    fn matrix(&self, h: usize) -> Matrix<'_> {
        let bytes = self.matrices.len() / N_HEADS;
        let bytes = &self.matrices[h * bytes..(h + 1) * bytes];
        Matrix::new(self.ty, self.n_out, self.d_in, bytes).expect("a sample's shape")
    }

    /// Buffers with the rows of all heads, then room for results of width `d_out`.
    fn fill(&self, probe: &mut Probe<'_>, weights: &[u8], d_out: usize) -> Result<Bindings, Error> {
        let n_results = BEFORE + self.n_rows * N_HEADS * d_out;
        probe.fill(&Contents {
            weights,
            n_acts: N_HEADS * self.n_rows * ActLayout::F32.row_words(self.d_in),
            values: &[&self.x[..], &vec![0.0; n_results]].concat(),
            tables: &[],
            kv: &[],
        })
    }

    /// Results `[n_rows, N_HEADS, n_out]`.
    fn on_gpu(
        &self,
        probe: &mut Probe<'_>,
        format: WeightFormat,
        way: ProductWay,
    ) -> Result<Vec<u32>, Error> {
        let mut weights = Vec::new();
        let row_bytes = self.matrices.len() / N_HEADS / self.n_out;
        let rows = self.matrices.chunks_exact(row_bytes);
        rows.for_each(|row| format.pack_row(row, &mut weights));
        let bindings = self.fill(probe, &weights, self.n_out)?;
        let mut acts = [None; 3];
        acts[Quantize::slot(format.acts())] = Some(0);
        let quantize = Quantize {
            function: RowFunction::Copy,
            n_rows: (N_HEADS * self.n_rows) as u32,
            d: self.d_in as u32,
            x: 0,
            out: acts,
        };
        probe.run(&Shader::quantize(), |p| quantize.dispatch(p, bindings))?;
        let out = self.x.len() + BEFORE;
        let product = HeadProduct {
            product: Product {
                format,
                w: 0,
                n_out: self.n_out as u32,
                d_in: self.d_in as u32,
                scale: 1.0,
                bias: None,
                n_rows: self.n_rows as u32,
                x: 0,
                out: out as u32,
                d_out: self.n_out as u32,
                end: ProductEnd::Set,
            },
            n_heads: N_HEADS as u32,
            n_all: N_HEADS as u32,
            head_words: (weights.len() / 4 / N_HEADS) as u32,
        };
        let shader = Shader::head_product(format, way).expect("only ways that it has");
        probe.run(&shader, |p| product.dispatch(way, p, bindings))?;
        probe.words(bindings.values, out, self.n_rows * N_HEADS * self.n_out)
    }

    fn activations(&self, probe: &Probe<'_>, layouts: Layouts, d: usize) -> Activations {
        let n = N_HEADS * self.n_rows;
        let mut acts = Activations::new(n, d);
        acts.fill(probe.kernels, &probe.pool, (n, d), layouts, |t, row| {
            row.copy_from_slice(&self.x[t * d..(t + 1) * d]);
        });
        acts
    }

    /// Results by head, in the order of rows.
    fn in_order_of_rows(&self, results: &[f32], d: usize) -> Vec<f32> {
        let places = (0..self.n_rows).flat_map(|row| (0..N_HEADS).map(move |h| (row, h)));
        let at = |(row, h): (usize, usize)| (h * self.n_rows + row) * d;
        places
            .flat_map(|place| results[at(place)..][..d].iter().copied())
            .collect()
    }

    fn on_cpu(&self, probe: &Probe<'_>) -> Vec<f32> {
        let layouts = Matrix::layout_of(self.ty).expect("a type with a kernel");
        let acts = self.activations(probe, layouts, self.d_in);
        let mut out = vec![0.0; N_HEADS * self.n_rows * self.n_out];
        let bounds: Vec<usize> = (0..=N_HEADS).map(|h| h * self.n_rows).collect();
        let w = |h| (self.matrix(h), None);
        let groups = Groups {
            bounds: &bounds,
            w: &w,
            out: &mut out,
        };
        probe.kernels.matmul_groups(&probe.pool, &acts, groups);
        self.in_order_of_rows(&out, self.n_out)
    }

    /// Results `[n_rows, N_HEADS, d_in]` of rows of `n_out`.
    fn transposed_on_gpu(&self, probe: &mut Probe<'_>) -> Result<Vec<u32>, Error> {
        let bindings = self.fill(probe, &self.matrices, self.d_in)?;
        let out = self.x.len() + BEFORE;
        let product = TransposedProduct {
            w: 0,
            d_in: self.n_out as u32,
            d_out: self.d_in as u32,
            n_rows: self.n_rows as u32,
            n_heads: N_HEADS as u32,
            x: by_head(0, self.n_rows, self.n_out),
            out: in_rows(out, self.d_in),
        };
        probe.run(&Shader::transposed(), |p| product.dispatch(p, bindings))?;
        probe.words(bindings.values, out, self.n_rows * N_HEADS * self.d_in)
    }

    fn transposed_on_cpu(&self, probe: &Probe<'_>) -> Vec<f32> {
        let acts = self.activations(probe, Layouts::EMPTY, self.n_out);
        let mut out = vec![0.0; N_HEADS * self.n_rows * self.d_in];
        let bounds: Vec<usize> = (0..=N_HEADS).map(|h| h * self.n_rows).collect();
        let w = |h| (self.matrix(h), None);
        let groups = Groups {
            bounds: &bounds,
            w: &w,
            out: &mut out,
        };
        let kernels = probe.kernels;
        kernels.matmul_transposed_groups(&probe.pool, &acts, groups);
        self.in_order_of_rows(&out, self.d_in)
    }
}
