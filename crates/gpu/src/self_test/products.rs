//! Products of every format beside those of the CPU.

use super::{Contents, Probe, bytes_of};
use crate::samples::Samples;
use crate::{
    ActLayout, ArenaPlan, Bindings, BufferId, Error, MatrixShape, Product, ProductEnd, ProductWay,
    Quantize, RowFunction, Shader, Slice, WeightFormat, upload_rows,
};
use atta_formats::Encoding;
use atta_kernels::{Activations, Job, Layouts, Matrix, Store};

/// Shapes off every tile.
const SHAPES: [ProductShape; 5] = [
    ProductShape::new(1, 1, 1),
    ProductShape::new(31, 3, 3),
    ProductShape::new(33, 9, 9),
    ProductShape::new(257, 2, 2),
    ProductShape::new(33, 2, 70),
];
/// Multiplies every weight where a case wants that.
const SCALE: f32 = 0.37;
/// Multiplies a product that is added.
const FACTOR: f32 = 1.7;

/// Rows of a matrix, its blocks in a row, rows of activations.
#[derive(Clone, Copy, Debug)]
struct ProductShape {
    n_out: usize,
    n_blocks: usize,
    n_rows: usize,
}

impl ProductShape {
    const fn new(n_out: usize, n_blocks: usize, n_rows: usize) -> Self {
        Self {
            n_out,
            n_blocks,
            n_rows,
        }
    }

    /// Weights of a row: whole blocks of the format, more groups than a workgroup has threads, and
    /// an odd number of them where rows may have that.
    fn d_in(self, format: WeightFormat) -> usize {
        let unit = format.tensor_type().row_unit();
        match format.acts() {
            ActLayout::Q8_256 => 256 * self.n_blocks + if unit < 256 { 96 } else { 0 },
            ActLayout::Q8_32 => unit * (256 * self.n_blocks / unit + 1),
            ActLayout::F32 => 40 * self.n_blocks + 3,
        }
    }
}

/// One product, and its inputs.
struct ProductSample {
    format: WeightFormat,
    shape: ProductShape,
    d_in: usize,
    /// The largest buffer of weights.
    buffer_bytes: u64,
    matrix: Vec<u8>,
    bias: Vec<f32>,
    /// `[n_rows, d_in]`.
    x: Vec<f32>,
    /// Results before, `[n_rows, n_out]`.
    before: Vec<f32>,
}

pub(super) fn blocks(probe: &mut Probe<'_>) -> Result<(), Error> {
    check_all(probe, ActLayout::Q8_256)
}

pub(super) fn groups(probe: &mut Probe<'_>) -> Result<(), Error> {
    check_all(probe, ActLayout::Q8_32)
}

pub(super) fn floats(probe: &mut Probe<'_>) -> Result<(), Error> {
    check_all(probe, ActLayout::F32)
}

/// All formats of a layout that have kernels of their own.
fn check_all(probe: &mut Probe<'_>, acts: ActLayout) -> Result<(), Error> {
    let mut formats = WeightFormat::NATIVE.into_iter();
    formats.try_for_each(|format| match format.acts() == acts {
        true => check(probe, format),
        false => Ok(()),
    })
}

/// All types that become integers when they are packed: each in one shape, and those of the first
/// type of every kernel in all.
pub(super) fn integers(probe: &mut Probe<'_>) -> Result<(), Error> {
    let mut kernels = Vec::new();
    for format in WeightFormat::all().filter(|format| matches!(format, WeightFormat::W8(_))) {
        ProductSample::new(format, ProductShape::new(33, 2, 9), 5).check(probe)?;
        if !kernels.contains(&format.steps()) {
            kernels.push(format.steps());
            check(probe, format)?;
        }
    }
    Ok(())
}

fn check(probe: &mut Probe<'_>, format: WeightFormat) -> Result<(), Error> {
    let samples = SHAPES.into_iter().zip(1..);
    for sample in samples.map(|(shape, seed)| ProductSample::new(format, shape, seed)) {
        sample.check(probe)?;
    }
    Ok(())
}

/// A matrix in three buffers, as a large head on a GPU that binds little at once.
pub(super) fn in_slices(probe: &mut Probe<'_>) -> Result<(), Error> {
    for format in WeightFormat::NATIVE {
        let sample = ProductSample::new(format, ProductShape::new(70, 1, 2), 9);
        let row_bytes = 4 * (1 + format.row_words(sample.d_in));
        let buffer_bytes = 30 * row_bytes as u64;
        ProductSample {
            buffer_bytes,
            ..sample
        }
        .check(probe)?;
    }
    Ok(())
}

impl ProductSample {
    fn check(&self, probe: &mut Probe<'_>) -> Result<(), Error> {
        for end in [ProductEnd::Set, ProductEnd::Add(FACTOR)] {
            let expected = self.on_cpu(probe, end);
            let ways = [ProductWay::Columns, ProductWay::Tiles].into_iter();
            for way in ways.filter(|way| Shader::product(self.format, *way).is_some()) {
                let got = self.on_gpu(probe, way, end)?;
                let shape = self.shape;
                let what = format!("{:?} {way:?} {shape:?} {end:?}", self.format);
                probe.same(&what, &got, expected.iter().map(|x| x.to_bits()))?;
            }
        }
        Ok(())
    }

    fn new(format: WeightFormat, shape: ProductShape, seed: u64) -> Self {
        let mut samples = Samples(seed);
        let d_in = shape.d_in(format);
        Self {
            matrix: samples.matrix(format, shape.n_out, d_in),
            bias: samples.floats(shape.n_out),
            x: samples.floats(shape.n_rows * d_in),
            before: samples.floats(shape.n_rows * shape.n_out),
            format,
            shape,
            d_in,
            buffer_bytes: 1 << 24,
        }
    }

    /// The activations and the product on the GPU, in as many slices as buffers take.
    fn on_gpu(
        &self,
        probe: &mut Probe<'_>,
        way: ProductWay,
        end: ProductEnd,
    ) -> Result<Vec<u32>, Error> {
        let ProductShape { n_out, n_rows, .. } = self.shape;
        let mut plan = ArenaPlan::new(self.buffer_bytes);
        let slices = plan.matrix(MatrixShape {
            format: self.format,
            d_out: n_out,
            d_in: self.d_in,
            has_bias: true,
        })?;
        let bindings = self.fill(probe)?;
        let shader = Shader::product(self.format, way).expect("only ways that the format has");
        for (slice, bytes) in slices.iter().zip(plan.bytes()) {
            let weights = probe.buffer(bytes as usize)?;
            self.upload(probe, weights, slice)?;
            let bindings = Bindings {
                weights,
                ..bindings
            };
            let product = self.product(slice, end);
            probe.run(&shader, |p| product.dispatch(way, p, bindings))?;
        }
        probe.words(bindings.values, self.x.len(), n_rows * n_out)
    }

    /// Buffers with the activations.
    fn fill(&self, probe: &mut Probe<'_>) -> Result<Bindings, Error> {
        let layout = self.format.acts();
        let bindings = probe.fill(&Contents {
            weights: &[],
            n_acts: self.shape.n_rows * layout.row_words(self.d_in),
            values: &[&self.x[..], &self.before].concat(),
            tables: &[],
            kv: &[],
        })?;
        let mut out = [None; 3];
        out[Quantize::slot(layout)] = Some(0);
        let quantize = Quantize {
            function: RowFunction::Copy,
            n_rows: self.shape.n_rows as u32,
            d: self.d_in as u32,
            x: 0,
            out,
        };
        probe.run(&Shader::quantize(), |p| quantize.dispatch(p, bindings))?;
        Ok(bindings)
    }

    /// Writes the rows and the bias of a slice.
    fn upload(&self, probe: &mut Probe<'_>, buffer: BufferId, slice: &Slice) -> Result<(), Error> {
        let row_bytes = self.matrix.len() / self.shape.n_out;
        let rows = self.matrix.chunks_exact(row_bytes);
        let rows = rows.skip(slice.rows.start).take(slice.rows.len());
        upload_rows(probe.host, buffer, self.format, slice.w, rows)?;
        let bias = bytes_of(&self.bias[slice.rows.clone()]);
        let at = slice.bias.expect("the plan has a bias");
        probe.host.write(buffer, 4 * u64::from(at), &bias)
    }

    /// With a scale and a bias where the product is set.
    fn product(&self, slice: &Slice, end: ProductEnd) -> Product {
        let is_set = end == ProductEnd::Set;
        Product {
            format: self.format,
            w: slice.w,
            n_out: slice.rows.len() as u32,
            d_in: self.d_in as u32,
            scale: if is_set { SCALE } else { 1.0 },
            bias: slice.bias.filter(|_| is_set),
            n_rows: self.shape.n_rows as u32,
            x: 0,
            out: (self.x.len() + slice.rows.start) as u32,
            d_out: self.shape.n_out as u32,
            end,
        }
    }

    /// The same by atta-kernels, `[n_rows, n_out]`.
    fn on_cpu(&self, probe: &Probe<'_>, end: ProductEnd) -> Vec<f32> {
        let ProductShape { n_out, n_rows, .. } = self.shape;
        let layout = match self.format.acts() {
            ActLayout::F32 => Layouts::F32,
            ActLayout::Q8_32 => Layouts::Q8_32,
            ActLayout::Q8_256 => Layouts::Q8_256,
        };
        let mut acts = Activations::new(n_rows, self.d_in);
        let shape = (n_rows, self.d_in);
        acts.fill(probe.kernels, &probe.pool, shape, layout, |t, row| {
            row.copy_from_slice(&self.x[t * self.d_in..][..self.d_in]);
        });
        let mut encoding = Encoding::from(self.format.tensor_type());
        let is_set = end == ProductEnd::Set;
        encoding.scale = if is_set { SCALE } else { 1.0 };
        let mut out = self.before.clone();
        let job = Job {
            w: Matrix::new(encoding, n_out, self.d_in, &self.matrix).expect("a sample's shape"),
            bias: is_set.then_some(&self.bias[..]),
            out: &mut out,
            mode: match end {
                ProductEnd::Set => Store::Set,
                ProductEnd::Add(factor) => Store::Add(factor),
            },
        };
        probe.kernels.matmul(&probe.pool, &acts, &mut [job]);
        out
    }
}
