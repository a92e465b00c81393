//! Rows times factors beside their definition: weights of routes, numbers of the model, gates, what
//! adapters add.

use super::{Contents, Probe, bytes_of};
use crate::quantize::NONE;
use crate::samples::Samples;
use crate::{
    ActLayout, AddScaled, Error, MultiplyRows, Quantize, RowActivation, RowFactor, RowFunction,
    RowNorm, Shader,
};
use atta_kernels::math;

const N_ROWS: usize = 3;
const N_USED: usize = 2;
const EPS: f32 = 1e-5;
/// The width of a row, and neighbours that share a gate.
const D: usize = 260;
const NEIGHBOURS: [usize; 3] = [1, 20, D];

/// Rows times the weights of their routes, behind a norm or none.
pub(super) fn weighted(probe: &mut Probe<'_>) -> Result<(), Error> {
    let mut samples = Samples(23);
    let x = samples.floats(N_ROWS * D);
    let weight = samples.floats(D);
    let routes = samples.floats(N_ROWS * N_USED);
    let n_acts = N_ROWS * N_USED * ActLayout::F32.row_words(D);
    let rms = RowNorm::Rms {
        weight: 0,
        eps: EPS,
    };
    for norm in [None, Some(rms)] {
        let mut out = [None; 3];
        out[Quantize::slot(ActLayout::F32)] = Some(0);
        let quantize = Quantize {
            function: RowFunction::Weighted {
                norm,
                routes: n_acts as u32,
                n_used: N_USED as u32,
            },
            n_rows: (N_ROWS * N_USED) as u32,
            d: D as u32,
            x: 0,
            out,
        };
        let bindings = probe.fill(&Contents {
            weights: &bytes_of(&weight),
            n_acts: n_acts + 2 * routes.len(),
            values: &x,
            tables: &[],
            kv: &[],
        })?;
        let words: Vec<f32> = routes.iter().flat_map(|&weight| [0.0, weight]).collect();
        let at = 4 * n_acts as u64;
        probe.host.write(bindings.acts, at, &bytes_of(&words))?;
        probe.run(&Shader::quantize(), |p| quantize.dispatch(p, bindings))?;
        let got = probe.words(bindings.acts, 0, n_acts)?;
        let row = |slot: usize| {
            let x = &x[slot / N_USED * D..][..D];
            let mut row = x.to_vec();
            if norm.is_some() {
                probe.kernels.rms_norm(x, &weight, EPS, &mut row);
            }
            let weight = routes[slot];
            row.into_iter().map(move |x| weight * x)
        };
        let expected: Vec<f32> = (0..routes.len()).flat_map(row).collect();
        let what = format!("norm {norm:?}");
        probe.same(&what, &got, expected.iter().map(|x| x.to_bits()))?;
    }
    Ok(())
}

/// Rows times a number, and times gates.
pub(super) fn multiplied(probe: &mut Probe<'_>) -> Result<(), Error> {
    let mut samples = Samples(29);
    let x = samples.floats(N_ROWS * D);
    let gates: Vec<f32> = samples.floats(N_ROWS * D).iter().map(|x| 8.0 * x).collect();
    let number = 0.37f32;
    let at = x.len() as u32;
    let values = |n: usize, activation| RowFactor::Values {
        at,
        n: n as u32,
        activation,
    };
    let of_gates = NEIGHBOURS.map(|n| values(n, Some(RowActivation::Sigmoid)));
    let others = [None, Some(RowActivation::Silu)].map(|activation| values(1, activation));
    let all = [RowFactor::Weight(1)].into_iter().chain(of_gates);
    for by in all.chain(others) {
        let rows = MultiplyRows {
            n_rows: N_ROWS as u32,
            d: D as u32,
            x: 0,
            by,
        };
        let bindings = probe.fill(&Contents {
            weights: &bytes_of(&[0.0, number]),
            n_acts: 1,
            values: &[&x[..], &gates].concat(),
            tables: &[],
            kv: &[],
        })?;
        probe.run(&Shader::multiply(), |p| rows.dispatch(p, bindings))?;
        let got = probe.words(bindings.values, 0, x.len())?;
        let factor = |i: usize| match by {
            RowFactor::Weight(_) => number,
            // A width is a multiple of the neighbours that share a gate.
            RowFactor::Values { n, activation, .. } => {
                let gate = gates[i / n as usize];
                match activation {
                    None => gate,
                    Some(RowActivation::Silu) => gate * math::sigmoid(gate),
                    Some(_) => math::sigmoid(gate),
                }
            }
        };
        let expected = x.iter().enumerate().map(|(i, x)| (x * factor(i)).to_bits());
        let expected: Vec<u32> = expected.collect();
        probe.same(&format!("{by:?}"), &got, expected)?;
    }
    Ok(())
}

/// What adapters add to rows, two neighbours with one factor; one pair has none.
pub(super) fn scaled(probe: &mut Probe<'_>) -> Result<(), Error> {
    let mut samples = Samples(41);
    let n = 6 * D;
    let [x, y] = [samples.floats(n), samples.floats(n)];
    let factors = [Some(0.37f32), None, Some(-1.9)];
    let words = factors.map(|factor| factor.map_or(NONE, f32::to_bits));
    let bindings = probe.fill(&Contents {
        weights: &[],
        n_acts: 1,
        values: &[&x[..], &y].concat(),
        tables: &words.map(u32::to_le_bytes).concat(),
        kv: &[],
    })?;
    let add = AddScaled {
        n_rows: 6,
        d: D as u32,
        x: 0,
        y: n as u32,
        factors: 0,
        n_shared: 2,
    };
    probe.run(&Shader::add_scaled(), |p| add.dispatch(p, bindings))?;
    let got = probe.words(bindings.values, 0, n)?;
    let sum = |i: usize| factors[i / (2 * D)].map_or(x[i], |factor| x[i] + factor * y[i]);
    let expected: Vec<u32> = (0..n).map(|i| sum(i).to_bits()).collect();
    probe.same("pairs of rows", &got, expected)
}
