//! Rows of activations beside those of the CPU, and their codes beside the definition.

use super::{Contents, Probe, bytes_of};
use crate::samples::Samples;
use crate::{
    ActLayout, AddNormed, Error, Normed, Quantize, RowActivation, RowFunction, RowNorm, Shader,
};
use atta_kernels::Activation;

/// Widths: less than a lane, off a group and off a block, several blocks.
const WIDTHS: [usize; 4] = [7, 72, 260, 1088];
const N_ROWS: usize = 3;
const EPS: f32 = 1e-5;

/// Rows `[N_ROWS, d]`, the other factor of a gate, a weight and a bias.
struct RowSample {
    d: usize,
    x: Vec<f32>,
    up: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl RowSample {
    /// Rows of three sizes, so that activations bend.
    fn new(d: usize) -> Self {
        let mut samples = Samples(d as u64);
        let mut x = samples.floats(N_ROWS * d);
        for (row, size) in x.chunks_exact_mut(d).zip([0.4, 6.0, 30.0]) {
            row.iter_mut().for_each(|x| *x *= size);
        }
        Self {
            d,
            x,
            up: samples.floats(N_ROWS * d),
            weight: samples.floats(d),
            bias: samples.floats(d),
        }
    }

    /// Quantizes all rows into one layout and returns the words.
    fn on_gpu(
        &self,
        probe: &mut Probe<'_>,
        function: RowFunction,
        layout: ActLayout,
    ) -> Result<Vec<u32>, Error> {
        let n_acts = N_ROWS * layout.row_words(self.d);
        let bindings = probe.fill(&Contents {
            weights: &bytes_of(&[&self.weight[..], &self.bias].concat()),
            n_acts,
            values: &[&self.x[..], &self.up].concat(),
            tables: &[],
            kv: &[],
        })?;
        let mut out = [None; 3];
        out[Quantize::slot(layout)] = Some(0);
        let quantize = Quantize {
            function,
            n_rows: N_ROWS as u32,
            d: self.d as u32,
            x: 0,
            out,
        };
        probe.run(&Shader::quantize(), |p| quantize.dispatch(p, bindings))?;
        probe.words(bindings.acts, 0, n_acts)
    }

    fn norms(&self) -> [RowNorm; 3] {
        let layer = |bias| RowNorm::Layer {
            weight: 0,
            bias,
            eps: EPS,
        };
        let rms = RowNorm::Rms {
            weight: 0,
            eps: EPS,
        };
        [rms, layer(None), layer(Some(self.d as u32))]
    }

    /// `x` normed by atta-kernels.
    fn normed(&self, probe: &Probe<'_>, norm: RowNorm, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        match norm {
            RowNorm::Rms { eps, .. } => {
                probe.kernels.rms_norm(x, &self.weight, eps, &mut out);
            }
            RowNorm::Layer { bias, eps, .. } => {
                let affine = (&self.weight[..], bias.map(|_| &self.bias[..]));
                probe.kernels.layer_norm(x, affine, eps, &mut out);
            }
        }
        out
    }

    /// The functions, with the places of weight, bias and factor.
    fn functions(&self) -> Vec<RowFunction> {
        let up = self.x.len() as u32;
        let mut all = vec![RowFunction::Copy];
        all.extend(self.norms().map(RowFunction::Norm));
        let [norm, ..] = self.norms();
        for activation in ACTIVATIONS.into_iter().filter_map(RowActivation::of) {
            all.extend([
                RowFunction::Activate(activation),
                RowFunction::ActivateNormed(activation, norm),
                RowFunction::Gate { activation, up },
                RowFunction::GateNormed {
                    activation,
                    up,
                    norm,
                },
            ]);
        }
        all
    }

    /// Row `t` by atta-kernels.
    fn on_cpu(&self, probe: &Probe<'_>, function: RowFunction, t: usize) -> Vec<f32> {
        let mut out = self.x[t * self.d..][..self.d].to_vec();
        let up = &self.up[t * self.d..][..self.d];
        let has_up = matches!(
            function,
            RowFunction::Gate { .. } | RowFunction::GateNormed { .. }
        );
        match function.activation().map(of_cpu) {
            Some(activation) if has_up => probe.kernels.gate_row(activation, &mut out, up),
            Some(activation) => probe.kernels.activate(activation, &mut out),
            None => {}
        }
        match function.norm() {
            Some(norm) => self.normed(probe, norm, &out),
            None => out,
        }
    }
}

fn of_cpu(activation: RowActivation) -> Activation {
    let mut all = ACTIVATIONS.into_iter();
    let found = all.find(|of_cpu| RowActivation::of(*of_cpu) == Some(activation));
    found.expect("functions are made of these")
}

/// Activations of the CPU, all that GPUs have.
const ACTIVATIONS: [Activation; 7] = [
    Activation::Silu,
    Activation::GeluTanh,
    Activation::Gelu,
    Activation::Relu2,
    Activation::Sigmoid,
    Activation::Xielu {
        alpha_p: 0.8,
        alpha_n: 0.9,
        beta: 0.5,
        eps: -1e-6,
    },
    Activation::Clamped {
        alpha: 1.702,
        limit: 7.0,
    },
];

pub(super) fn functions(probe: &mut Probe<'_>) -> Result<(), Error> {
    for sample in WIDTHS.map(RowSample::new) {
        for function in sample.functions() {
            let got = sample.on_gpu(probe, function, ActLayout::F32)?;
            let rows = (0..N_ROWS).flat_map(|t| sample.on_cpu(probe, function, t));
            let expected: Vec<u32> = rows.map(f32::to_bits).collect();
            let what = format!("{function:?} of {}", sample.d);
            probe.same(&what, &got, expected)?;
        }
    }
    Ok(())
}

pub(super) fn sums(probe: &mut Probe<'_>) -> Result<(), Error> {
    for sample in WIDTHS.map(RowSample::new) {
        for norm in sample.norms() {
            for normed in [Normed::Result, Normed::Sum, Normed::Alone] {
                let add = AddNormed {
                    norm,
                    normed,
                    n_rows: N_ROWS as u32,
                    d: sample.d as u32,
                    x: 0,
                    y: sample.x.len() as u32,
                    factor: 0.7,
                    n_weights: 1,
                };
                let got = sample.add_on_gpu(probe, &add)?;
                let rows = (0..N_ROWS).flat_map(|t| sample.add_on_cpu(probe, &add, t));
                let expected: Vec<u32> = rows.map(f32::to_bits).collect();
                let what = format!("{add:?}");
                probe.same(&what, &got, expected)?;
            }
        }
    }
    Ok(())
}

impl RowSample {
    fn add_on_gpu(&self, probe: &mut Probe<'_>, add: &AddNormed) -> Result<Vec<u32>, Error> {
        let bindings = probe.fill(&Contents {
            weights: &bytes_of(&[&self.weight[..], &self.bias].concat()),
            n_acts: 1,
            values: &[&self.x[..], &self.up].concat(),
            tables: &[],
            kv: &[],
        })?;
        probe.run(&Shader::add(), |p| add.dispatch(p, bindings))?;
        probe.words(bindings.values, 0, self.x.len())
    }

    /// Row `t` by atta-kernels, as atta-model adds it.
    fn add_on_cpu(&self, probe: &Probe<'_>, add: &AddNormed, t: usize) -> Vec<f32> {
        let mut x = self.x[t * self.d..][..self.d].to_vec();
        let mut y = self.up[t * self.d..][..self.d].to_vec();
        if add.normed == Normed::Result {
            y = self.normed(probe, add.norm, &y);
        }
        if add.normed != Normed::Alone {
            x.iter_mut().zip(&y).for_each(|(x, y)| *x += add.factor * y);
        }
        match add.normed {
            Normed::Result => x,
            Normed::Sum | Normed::Alone => self.normed(probe, add.norm, &x),
        }
    }
}

/// Rows whose codes are hard: zeros, ties, blocks that are too small, large and small ones.
fn hard_rows(d: usize) -> RowSample {
    let mut sample = RowSample::new(d);
    let sizes = [0.0, 1.0, 1e-36, 1e-33, 1e30];
    for (block, i) in sample.x.chunks_mut(32).zip(0..) {
        block.iter_mut().for_each(|x| *x *= sizes[i % 5]);
    }
    for (x, tie) in sample.x.iter_mut().zip([127.0, 0.5, 1.5, 2.5, -0.5, -1.5]) {
        *x = tie;
    }
    sample
}

pub(super) fn codes(probe: &mut Probe<'_>) -> Result<(), Error> {
    for sample in WIDTHS.map(hard_rows) {
        for layout in [ActLayout::Q8_256, ActLayout::Q8_32] {
            let got = sample.on_gpu(probe, RowFunction::Copy, layout)?;
            let rows = sample.x.chunks_exact(sample.d);
            let expected = rows.flat_map(|row| row_of_codes(row, layout));
            let what = format!("{layout:?} of {}", sample.d);
            probe.same(&what, &got, expected)?;
        }
    }
    Ok(())
}

/// A row by the definition: the largest magnitude becomes 127, the rest is rounded to nearest even.
fn row_of_codes(row: &[f32], layout: ActLayout) -> Vec<u32> {
    let n_blocks = row.len().div_ceil(256);
    let mut padded = row.to_vec();
    padded.resize(256 * n_blocks, 0.0);
    let n_shared = if layout == ActLayout::Q8_256 { 256 } else { 32 };
    let scales = padded.chunks_exact(n_shared).map(scale_of);
    let scales: Vec<f32> = scales.collect();
    let codes = padded.iter().enumerate();
    let codes = codes.map(|(i, x)| code_of(*x, scales[i / n_shared]));
    let codes: Vec<i8> = codes.collect();
    let words = codes.as_chunks::<4>().0.iter();
    let mut out: Vec<u32> = words
        .map(|word| u32::from_le_bytes(word.map(|code| code as u8)))
        .collect();
    out.extend(scales.iter().map(|scale| scale.to_bits()));
    if layout == ActLayout::Q8_256 {
        let sum = |codes: &[i8]| codes.iter().map(|&code| i16::from(code)).sum::<i16>();
        let sums: Vec<i16> = codes.chunks_exact(16).map(sum).collect();
        let words = sums.as_chunks().0.iter();
        out.extend(words.map(|[low, high]| u32::from(*low as u16) | u32::from(*high as u16) << 16));
    }
    out
}

fn scale_of(x: &[f32]) -> f32 {
    let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    if largest < 1e-35 {
        return 0.0;
    }
    largest / 127.0
}

fn code_of(x: f32, scale: f32) -> i8 {
    if scale == 0.0 {
        return 0;
    }
    (x * (1.0 / scale)).round_ties_even() as i8
}
