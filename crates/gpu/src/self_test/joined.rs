//! Products with several matrices at once beside those of the CPU.

use super::{Contents, Probe, bytes_of};
use crate::samples::Samples;
use crate::{
    ActLayout, Bindings, Error, JoinedPart, JoinedProducts, ProductWay, Quantize, RowFunction,
    Shader, WeightFormat,
};
use atta_kernels::{Activations, Job, Layouts, Matrix, Store};

/// Rows of the matrices: off a tile, fewer than one, and more than one; a bias or none.
const PARTS: [(usize, bool); 3] = [(33, true), (5, false), (70, true)];
const D_IN: usize = 512;

/// A matrix and its bias.
struct PartSample {
    matrix: Vec<u8>,
    bias: Option<Vec<f32>>,
    n_out: usize,
}

/// Matrices that read the same rows, `[n_rows, D_IN]`.
struct JoinedSample {
    format: WeightFormat,
    n_rows: usize,
    parts: Vec<PartSample>,
    x: Vec<f32>,
}

pub(super) fn check(probe: &mut Probe<'_>) -> Result<(), Error> {
    for format in WeightFormat::OF_EACH_KERNEL {
        for (n_rows, n_parts) in [(1, 3), (9, 2), (70, 3)] {
            let sample = JoinedSample::new(format, n_rows, n_parts);
            let expected = sample.on_cpu(probe);
            let ways = [ProductWay::Columns, ProductWay::Tiles].into_iter();
            for way in ways.filter(|way| Shader::joined_product(format, *way).is_some()) {
                let got = sample.on_gpu(probe, way)?;
                let what = format!("{format:?} {way:?}, {n_parts} for {n_rows} rows");
                probe.same(&what, &got, expected.iter().map(|x| x.to_bits()))?;
            }
        }
    }
    Ok(())
}

impl JoinedSample {
    fn new(format: WeightFormat, n_rows: usize, n_parts: usize) -> Self {
        let mut samples = Samples(n_rows as u64);
        let parts = PARTS[..n_parts]
            .iter()
            .map(|&(n_out, has_bias)| PartSample {
                matrix: samples.matrix(format, n_out, D_IN),
                bias: has_bias.then(|| samples.floats(n_out)),
                n_out,
            });
        Self {
            format,
            n_rows,
            parts: parts.collect(),
            x: samples.floats(n_rows * D_IN),
        }
    }

    /// The weights, and where the parts are in them; results lie behind the rows.
    fn packed(&self) -> (Vec<u8>, JoinedProducts) {
        let mut weights = Vec::new();
        let mut out = self.x.len();
        let mut joined = JoinedProducts {
            format: self.format,
            d_in: D_IN as u32,
            n_rows: self.n_rows as u32,
            x: 0,
            parts: [None; 3],
        };
        for (part, to) in self.parts.iter().zip(&mut joined.parts) {
            let w = weights.len() / 4;
            let rows = part.matrix.chunks_exact(part.matrix.len() / part.n_out);
            rows.for_each(|row| self.format.pack_row(row, &mut weights));
            let bias = part.bias.as_ref().map(|bias| {
                let at = weights.len() / 4;
                weights.extend(bytes_of(bias));
                at as u32
            });
            *to = Some(JoinedPart {
                w: w as u32,
                n_out: part.n_out as u32,
                bias,
                out: out as u32,
            });
            out += self.n_rows * part.n_out;
        }
        (weights, joined)
    }

    fn quantize(&self, probe: &mut Probe<'_>, bindings: Bindings) -> Result<(), Error> {
        let mut out = [None; 3];
        out[Quantize::slot(self.format.acts())] = Some(0);
        let quantize = Quantize {
            function: RowFunction::Copy,
            n_rows: self.n_rows as u32,
            d: D_IN as u32,
            x: 0,
            out,
        };
        probe.run(&Shader::quantize(), |p| quantize.dispatch(p, bindings))
    }

    fn on_gpu(&self, probe: &mut Probe<'_>, way: ProductWay) -> Result<Vec<u32>, Error> {
        let (weights, joined) = self.packed();
        let n_out: usize = self.parts.iter().map(|part| part.n_out).sum();
        let results = vec![0.0; self.n_rows * n_out];
        let bindings = probe.fill(&Contents {
            weights: &weights,
            n_acts: self.n_rows * self.format.acts().row_words(D_IN),
            values: &[&self.x[..], &results].concat(),
            tables: &[],
            kv: &[],
        })?;
        self.quantize(probe, bindings)?;
        let shader = Shader::joined_product(self.format, way).expect("only ways that it has");
        probe.run(&shader, |p| joined.dispatch(way, p, bindings))?;
        probe.words(bindings.values, self.x.len(), results.len())
    }

    /// The results of all parts, one part behind the other.
    fn on_cpu(&self, probe: &Probe<'_>) -> Vec<f32> {
        let layout = match self.format.acts() {
            ActLayout::F32 => Layouts::F32,
            ActLayout::Q8_32 => Layouts::Q8_32,
            ActLayout::Q8_256 => Layouts::Q8_256,
        };
        let mut acts = Activations::new(self.n_rows, D_IN);
        let shape = (self.n_rows, D_IN);
        acts.fill(probe.kernels, &probe.pool, shape, layout, |t, row| {
            row.copy_from_slice(&self.x[t * D_IN..][..D_IN]);
        });
        let ty = self.format.tensor_type();
        let product = |part: &PartSample| {
            let mut out = vec![0.0; self.n_rows * part.n_out];
            let job = Job {
                w: Matrix::new(ty, part.n_out, D_IN, &part.matrix).expect("a sample's shape"),
                bias: part.bias.as_deref(),
                out: &mut out,
                mode: Store::Set,
            };
            probe.kernels.matmul(&probe.pool, &acts, &mut [job]);
            out
        };
        self.parts.iter().flat_map(product).collect()
    }
}
