//! What recurrent layers compute beside their scans: convolutions, decays, and norms of heads.

use super::{Contents, Probe, bytes_of};
use crate::quantize::NONE;
use crate::samples::Samples;
use crate::{
    AddNormed, Convolve, Decays, Error, KeepInputs, NormHeads, Normed, RowActivation, RowHistory,
    RowNorm, Shader,
};
use atta_kernels::{Activation, math};

const N_ROWS: usize = 4;
/// Channels, vectors in a state, and where they begin in a block.
const D: usize = 70;
const LEN: usize = 3;
const STATE: usize = 7;
const BLOCK_WORDS: usize = STATE + LEN * D + 2;
const N_BLOCKS: usize = 3;
/// Width of a row of results.
const D_OUT: usize = D + 5;
/// Rows that keep their state, and the blocks of these.
const KEPT: [[usize; 2]; 2] = [[1, 2], [3, 0]];

/// Where the vector of a position is.
#[derive(Clone, Copy)]
enum VectorPlace {
    Row(usize),
    /// So many positions before the end of the state in block 1.
    State(usize),
    Nowhere,
}

/// Of each row its own vector, and those of three positions before: two rows behind a state, two
/// without one.
const SOURCES: [[VectorPlace; LEN + 1]; N_ROWS] = {
    use VectorPlace::{Nowhere, Row, State};
    [
        [Row(0), State(1), State(2), State(3)],
        [Row(1), Row(0), State(1), State(2)],
        [Row(2), Nowhere, Nowhere, Nowhere],
        [Row(3), Row(2), Nowhere, Nowhere],
    ]
};

/// Vectors of rows and of states, taps and a bias.
struct ConvSample {
    x: Vec<f32>,
    states: Vec<f32>,
    taps: Vec<f32>,
    bias: Vec<f32>,
}

impl ConvSample {
    fn new() -> Self {
        let mut samples = Samples(31);
        Self {
            x: samples.floats(N_ROWS * D),
            states: samples.floats(N_BLOCKS * BLOCK_WORDS),
            taps: samples.floats((LEN + 1) * D),
            bias: samples.floats(D),
        }
    }

    /// The vector of a source.
    fn vector(&self, source: VectorPlace) -> Option<&[f32]> {
        match source {
            VectorPlace::Row(row) => Some(&self.x[row * D..][..D]),
            VectorPlace::State(back) => {
                Some(&self.states[BLOCK_WORDS + STATE + (LEN - back) * D..][..D])
            }
            VectorPlace::Nowhere => None,
        }
    }

    fn contents<'a>(&self, bytes: &'a [Vec<u8>; 3], values: &'a [f32]) -> Contents<'a> {
        let [weights, tables, kv] = bytes;
        Contents {
            weights,
            n_acts: 1,
            values,
            tables,
            kv,
        }
    }

    /// Bytes of the taps and the bias, of the sources and the rows that are kept, and of states.
    fn bytes(&self) -> [Vec<u8>; 3] {
        let words = |source: &VectorPlace| match *source {
            VectorPlace::Row(row) => [0, row as u32],
            VectorPlace::State(back) => [back as u32, BLOCK_WORDS as u32],
            VectorPlace::Nowhere => [NONE; 2],
        };
        let sources = SOURCES.iter().flatten().flat_map(words);
        let kept = KEPT
            .iter()
            .flat_map(|&[row, block]| [row, block * BLOCK_WORDS]);
        let tables = sources.chain(kept.map(|word| word as u32));
        [
            bytes_of(&[&self.taps[..], &self.bias].concat()),
            tables.flat_map(u32::to_le_bytes).collect(),
            bytes_of(&self.states),
        ]
    }

    fn history(&self) -> RowHistory {
        RowHistory {
            d: D as u32,
            x: 0,
            sources: 0,
            n_sources: LEN as u32 + 1,
            len: LEN as u32,
            state: STATE as u32,
        }
    }

    fn convolve(&self, has_bias: bool, is_silu: bool) -> Convolve {
        Convolve {
            history: self.history(),
            n_rows: N_ROWS as u32,
            taps: 0,
            bias: has_bias.then_some(self.taps.len() as u32),
            activation: is_silu.then_some(RowActivation::Silu),
            out: self.x.len() as u32,
            d_out: D_OUT as u32,
        }
    }

    /// States with the last inputs of the rows that keep theirs.
    fn kept(&self) -> Vec<f32> {
        let mut states = self.states.clone();
        for [row, block] in KEPT {
            for (back, source) in SOURCES[row][..LEN].iter().enumerate() {
                let at = block * BLOCK_WORDS + STATE + (LEN - 1 - back) * D;
                let zeros = [0.0; D];
                let x = self.vector(*source).unwrap_or(&zeros);
                states[at..at + D].copy_from_slice(x);
            }
        }
        states
    }

    /// As atta-model adds a row up; behind it zeros.
    fn on_cpu(&self, probe: &Probe<'_>, row: usize, has_bias: bool, is_silu: bool) -> Vec<f32> {
        let mut y = vec![0.0; D];
        if has_bias {
            y.copy_from_slice(&self.bias);
        }
        for (taps, source) in self.taps.chunks_exact(D).zip(SOURCES[row].iter().rev()) {
            if let Some(x) = self.vector(*source) {
                probe.kernels.add_products(&mut y, x, taps);
            }
        }
        if is_silu {
            probe.kernels.activate(Activation::Silu, &mut y);
        }
        y.resize(D_OUT, 0.0);
        y
    }
}

pub(super) fn convolutions(probe: &mut Probe<'_>) -> Result<(), Error> {
    let sample = ConvSample::new();
    let bytes = sample.bytes();
    let values = [&sample.x[..], &vec![0.0; N_ROWS * D_OUT]].concat();
    for [has_bias, is_silu] in [[false, false], [true, true]] {
        let bindings = probe.fill(&sample.contents(&bytes, &values))?;
        let convolve = sample.convolve(has_bias, is_silu);
        probe.run(&Shader::convolve(), |p| convolve.dispatch(p, bindings))?;
        let got = probe.words(bindings.values, sample.x.len(), N_ROWS * D_OUT)?;
        let rows = (0..N_ROWS).flat_map(|row| sample.on_cpu(probe, row, has_bias, is_silu));
        let expected: Vec<f32> = rows.collect();
        probe.same_floats(&format!("bias {has_bias}, SiLU {is_silu}"), &got, &expected)?;
    }
    keep_inputs(probe, &sample)
}

/// The last inputs of rows that keep their states; nothing else changes.
fn keep_inputs(probe: &mut Probe<'_>, sample: &ConvSample) -> Result<(), Error> {
    let bytes = sample.bytes();
    let bindings = probe.fill(&sample.contents(&bytes, &sample.x))?;
    let keep = KeepInputs {
        history: sample.history(),
        kept: 2 * SOURCES.as_flattened().len() as u32,
        n_kept: KEPT.len() as u32,
    };
    probe.run(&Shader::keep_inputs(), |p| keep.dispatch(p, bindings))?;
    let got = probe.words(bindings.kv, 0, sample.states.len())?;
    probe.same_floats("kept inputs", &got, &sample.kept())
}

/// Inputs of decays.
struct DecaySample {
    n_shared: usize,
    has_beta: bool,
    has_decays: bool,
    /// `[N_ROWS, N_GAINS * n_shared]` and `[N_ROWS, N_GAINS]`.
    alpha: Vec<f32>,
    beta: Vec<f32>,
    rates: Vec<f32>,
    bias: Vec<f32>,
}

const N_GAINS: usize = 11;
const LEAST_STEP: f32 = 0.01;

/// Decays of heads with and without gates, of channels, and steps alone.
pub(super) fn decays(probe: &mut Probe<'_>) -> Result<(), Error> {
    let kinds = [
        (1, true, true),
        (1, false, true),
        (9, true, true),
        (1, false, false),
    ];
    for (n_shared, has_beta, has_decays) in kinds {
        let sample = DecaySample {
            has_beta,
            has_decays,
            ..DecaySample::new(n_shared)
        };
        let got = sample.on_gpu(probe)?;
        let expected = sample.on_cpu(probe);
        let what = format!("{n_shared} shared, beta {has_beta}, decays {has_decays}");
        probe.same_floats(&what, &got, &expected)?;
    }
    Ok(())
}

impl DecaySample {
    fn new(n_shared: usize) -> Self {
        let mut samples = Samples(n_shared as u64 + 43);
        // No decay is below 2^-126, which a driver may make 0.
        let mut large = |n| -> Vec<f32> { samples.floats(n).iter().map(|x| 4.0 * x).collect() };
        Self {
            n_shared,
            has_beta: true,
            has_decays: true,
            alpha: large(N_ROWS * N_GAINS * n_shared),
            beta: large(N_ROWS * N_GAINS),
            rates: large(N_GAINS).iter().map(|x| -x.abs()).collect(),
            bias: large(N_GAINS * n_shared),
        }
    }

    /// Decays of all rows, then gains.
    fn on_gpu(&self, probe: &mut Probe<'_>) -> Result<Vec<u32>, Error> {
        let Self { alpha, beta, .. } = self;
        let out = vec![0.0; alpha.len() + beta.len()];
        let weights = [&self.rates[..], &self.bias].concat();
        let values = [&alpha[..], beta, &out].concat();
        let bindings = fill_rows(probe, &weights, &values)?;
        let decays = self.decays(out.len() as u32);
        probe.run(&Shader::decays(), |p| decays.dispatch(p, bindings))?;
        probe.words(bindings.values, out.len(), out.len())
    }

    /// With results from a word on.
    fn decays(&self, out: u32) -> Decays {
        let n_alpha = self.alpha.len() as u32;
        Decays {
            n_rows: N_ROWS as u32,
            n: (N_GAINS * self.n_shared) as u32,
            n_shared: self.n_shared as u32,
            alpha: 0,
            beta: self.has_beta.then_some(n_alpha),
            a: self.has_decays.then_some(0),
            bias: N_GAINS as u32,
            least: LEAST_STEP,
            decays: out,
            gains: out + n_alpha,
        }
    }

    /// As atta-model computes them, by atta-kernels.
    fn steps(&self, probe: &Probe<'_>) -> Vec<f32> {
        let biases = self.bias.iter().cycle();
        let steps = self.alpha.iter().zip(biases).map(|(x, bias)| x + bias);
        let mut steps: Vec<f32> = steps.collect();
        probe.kernels.activate(Activation::Softplus, &mut steps);
        steps
            .iter_mut()
            .for_each(|step| *step = step.max(LEAST_STEP));
        steps
    }

    /// Decays, then gains.
    fn on_cpu(&self, probe: &Probe<'_>) -> Vec<f32> {
        let steps = self.steps(probe);
        let rate = |i: usize| self.rates[i / self.n_shared % N_GAINS];
        let decays = steps.iter().enumerate();
        let decays = decays.map(|(i, step)| match self.has_decays {
            true => math::exp(rate(i) * step),
            false => 0.0,
        });
        let gains = self.beta.iter().enumerate();
        let gains = gains.map(|(i, beta)| match self.has_beta {
            true => math::sigmoid(*beta),
            false => steps[i * self.n_shared],
        });
        decays.chain(gains).collect()
    }
}

pub(super) fn norms(probe: &mut Probe<'_>) -> Result<(), Error> {
    let mut samples = Samples(37);
    lengths(probe, &mut samples)?;
    norms_of_parts(probe, &mut samples)
}

const HEADS: NormHeads = NormHeads {
    n_rows: N_ROWS as u32,
    d_row: 257,
    n_heads: 3,
    d: 84,
    x: 2,
    eps: 1e-3,
    scale: 0.3,
};
const PARTS: AddNormed = AddNormed {
    norm: RowNorm::Rms {
        weight: 0,
        eps: 1e-3,
    },
    normed: Normed::Alone,
    n_rows: 3 * N_ROWS as u32,
    d: 84,
    x: 0,
    y: 0,
    factor: 1.0,
    n_weights: 3,
};

/// Heads among wider rows divided by their length.
fn lengths(probe: &mut Probe<'_>, samples: &mut Samples) -> Result<(), Error> {
    let [n_heads, d, d_row] = [HEADS.n_heads, HEADS.d, HEADS.d_row].map(|n| n as usize);
    let x = samples.floats(N_ROWS * d_row);
    let bindings = fill_rows(probe, &[], &x)?;
    probe.run(&Shader::norm_heads(), |p| HEADS.dispatch(p, bindings))?;
    let got = probe.words(bindings.values, 0, x.len())?;
    let mut expected = x.clone();
    for row in expected.chunks_exact_mut(d_row) {
        let heads = row[2..].chunks_exact_mut(d).take(n_heads);
        heads.for_each(|head| probe.kernels.l2_norm_inplace(head, 1e-3, 0.3));
    }
    probe.same_floats("lengths", &got, &expected)
}

/// Rows with norms of their parts, each with weights of its own.
fn norms_of_parts(probe: &mut Probe<'_>, samples: &mut Samples) -> Result<(), Error> {
    let [n, d] = [PARTS.n_weights, PARTS.d].map(|n| n as usize);
    let weights = samples.floats(n * d);
    let mut expected = samples.floats(N_ROWS * n * d);
    let bindings = fill_rows(probe, &weights, &expected)?;
    probe.run(&Shader::add(), |p| PARTS.dispatch(p, bindings))?;
    let got = probe.words(bindings.values, 0, expected.len())?;
    let all = weights.chunks_exact(d).cycle();
    for (part, weight) in expected.chunks_exact_mut(d).zip(all) {
        probe.kernels.rms_norm_inplace(part, weight, 1e-3);
    }
    probe.same_floats("parts", &got, &expected)
}

fn fill_rows(
    probe: &mut Probe<'_>,
    weights: &[f32],
    values: &[f32],
) -> Result<crate::Bindings, Error> {
    probe.fill(&Contents {
        weights: &bytes_of(weights),
        n_acts: 1,
        values,
        tables: &[],
        kv: &[],
    })
}
