//! Mixtures of experts beside their definition, and their products beside those of the CPU.

use super::{Contents, Probe, bytes_of};
use crate::quantize::NONE;
use crate::samples::Samples;
use crate::{
    ActLayout, Bindings, Combine, Error, ExpertProduct, GroupSlots, Product, ProductEnd,
    ProductWay, Quantize, Route, RouteGating, RouteGroups, RowFunction, Shader, WeightFormat,
};
use atta_formats::Encoding;
use atta_kernels::{Activations, Job, Layouts, Matrix, Store, math};

const N_ROWS: usize = 5;

/// A router: experts, those of a row, and the rest.
#[derive(Clone, Copy, Debug)]
struct RouteShape {
    n_experts: usize,
    n_used: usize,
    gating: RouteGating,
    groups: Option<RouteGroups>,
    has_bias: bool,
    renormalizes: bool,
    weights_scale: f32,
    logits_scale: f32,
}

const PLAIN: RouteShape = RouteShape {
    n_experts: 8,
    n_used: 2,
    gating: RouteGating::Softmax,
    groups: None,
    has_bias: false,
    renormalizes: true,
    weights_scale: 1.0,
    logits_scale: 1.0,
};
const ROUTES: [RouteShape; 5] = [
    PLAIN,
    RouteShape {
        n_experts: 130,
        n_used: 9,
        renormalizes: false,
        logits_scale: 0.3,
        ..PLAIN
    },
    RouteShape {
        n_experts: 64,
        n_used: 6,
        gating: RouteGating::Sigmoid,
        has_bias: true,
        weights_scale: 2.5,
        groups: Some(RouteGroups {
            n_groups: 8,
            n_used: 3,
            adds_two: true,
        }),
        ..PLAIN
    },
    RouteShape {
        n_experts: 32,
        n_used: 3,
        groups: Some(RouteGroups {
            n_groups: 4,
            n_used: 2,
            adds_two: false,
        }),
        ..PLAIN
    },
    RouteShape {
        n_experts: 16,
        gating: RouteGating::SparseMixer { tolerance: 0.02 },
        renormalizes: false,
        ..PLAIN
    },
];

/// An expert and its weight.
type Choice = (usize, f32);

/// Logits `[N_ROWS, n_experts]` with ties, and a bias.
struct RouteSample {
    shape: RouteShape,
    logits: Vec<f32>,
    bias: Vec<f32>,
}

pub(super) fn routes(probe: &mut Probe<'_>) -> Result<(), Error> {
    for shape in ROUTES {
        let sample = RouteSample::new(shape);
        let got = sample.on_gpu(probe)?;
        let rows = sample.logits.chunks_exact(shape.n_experts);
        let expected = rows.flat_map(|logits| sample.by_definition(logits));
        let words = expected.flat_map(|(expert, weight)| [expert as u32, weight.to_bits()]);
        let words: Vec<u32> = words.collect();
        probe.same(&format!("{shape:?}"), &got, words)?;
    }
    Ok(())
}

impl RouteSample {
    fn new(shape: RouteShape) -> Self {
        let mut samples = Samples(shape.n_experts as u64);
        let logits = samples.floats(N_ROWS * shape.n_experts);
        Self {
            shape,
            // A few digits make ties.
            logits: logits.iter().map(|x| (16.0 * x).round() / 4.0).collect(),
            bias: samples.floats(shape.n_experts),
        }
    }

    fn on_gpu(&self, probe: &mut Probe<'_>) -> Result<Vec<u32>, Error> {
        let shape = self.shape;
        let route = Route {
            logits: 0,
            n_rows: N_ROWS as u32,
            n_experts: shape.n_experts as u32,
            n_used: shape.n_used as u32,
            logits_scale: shape.logits_scale,
            gating: shape.gating,
            selection_bias: shape.has_bias.then_some(0),
            groups: shape.groups,
            renormalizes: shape.renormalizes,
            weights_scale: shape.weights_scale,
            routes: 0,
        };
        let bindings = probe.fill(&Contents {
            weights: &bytes_of(&self.bias),
            n_acts: route.words(),
            values: &self.logits,
            tables: &[],
            kv: &[],
        })?;
        probe.run(&Shader::route(), |p| route.dispatch(p, bindings))?;
        probe.words(bindings.acts, 0, route.words())
    }

    /// As atta-model chooses.
    fn by_definition(&self, logits: &[f32]) -> Vec<Choice> {
        let shape = self.shape;
        let scaled = logits.iter().map(|x| x * shape.logits_scale);
        let probs = self.probabilities(scaled.collect());
        let mut scores = probs.clone();
        if shape.has_bias {
            let pairs = scores.iter_mut().zip(&self.bias);
            pairs.for_each(|(score, bias)| *score += bias);
        }
        if let Some(groups) = shape.groups {
            mask(groups, &mut scores);
        }
        let mut chosen: Vec<Choice> = best(&scores, shape.n_used)
            .into_iter()
            .map(|expert| (expert, probs[expert]))
            .collect();
        if let RouteGating::SparseMixer { tolerance } = shape.gating {
            share_out(tolerance, &mut scores, &mut chosen);
        }
        let mut sum = 1.0;
        if shape.renormalizes {
            sum = chosen.iter().map(|(_, weight)| weight).sum();
        }
        let weighed = |(expert, weight): Choice| (expert, weight / sum * shape.weights_scale);
        chosen.into_iter().map(weighed).collect()
    }

    fn probabilities(&self, mut p: Vec<f32>) -> Vec<f32> {
        match self.shape.gating {
            RouteGating::Softmax => {
                let max = p.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                p.iter_mut().for_each(|p| *p = math::exp(*p - max));
                let sum: f32 = p.iter().sum();
                p.iter_mut().for_each(|p| *p /= sum);
            }
            RouteGating::Sigmoid => p.iter_mut().for_each(|p| *p = math::sigmoid(*p)),
            RouteGating::SparseMixer { .. } => {}
        }
        p
    }
}

/// The `n` largest, the lower id on ties.
fn best(scores: &[f32], n: usize) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..scores.len()).collect();
    // A stable sort.
    ids.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    ids.truncate(n);
    ids
}

fn mask(groups: RouteGroups, scores: &mut [f32]) {
    let n_each = scores.len() / groups.n_groups as usize;
    let score = |scores: &[f32]| {
        let best = best(scores, 2);
        let second = if groups.adds_two {
            scores[best[1]]
        } else {
            0.0
        };
        scores[best[0]] + second
    };
    let of_groups: Vec<f32> = scores.chunks_exact(n_each).map(score).collect();
    let used = best(&of_groups, groups.n_used as usize);
    for (group, scores) in scores.chunks_exact_mut(n_each).enumerate() {
        if !used.contains(&group) {
            scores.fill(f32::NEG_INFINITY);
        }
    }
}

fn share_out(tolerance: f32, logits: &mut [f32], chosen: &mut [Choice]) {
    for (expert, weight) in chosen {
        let top = *weight;
        let near = logits
            .iter()
            .filter(|y| top - **y <= tolerance * y.abs().max(top));
        let sum: f32 = near.map(|y| math::exp(y - top)).sum();
        *weight = 1.0 / sum;
        logits[*expert] = f32::NEG_INFINITY;
    }
}

/// Experts whose products are compared; one of them lies in another buffer.
const N_EXPERTS: usize = 3;
const ABSENT: usize = 1;
const N_USED: usize = 2;
/// What multiplies the weights of each.
const SCALES: [f32; N_EXPERTS] = [1.0, 0.5, 1.7];

/// Products of slots with the matrices of experts.
struct ExpertSample {
    format: WeightFormat,
    n_out: usize,
    d_in: usize,
    /// Expert of each slot; [`N_EXPERTS`] is none.
    experts: Vec<usize>,
    /// Slots that share a row.
    n_shared: usize,
    /// `[N_EXPERTS, n_out, d_in]`.
    matrices: Vec<Vec<u8>>,
    /// `[N_EXPERTS, n_out]`.
    bias: Vec<f32>,
    /// `[n_slots / n_shared, d_in]`.
    x: Vec<f32>,
}

pub(super) fn products(probe: &mut Probe<'_>) -> Result<(), Error> {
    for format in WeightFormat::OF_EACH_KERNEL {
        for (n_slots, n_shared) in [(2, N_USED), (30, N_USED), (150, 1)] {
            ExpertSample::new(format, n_slots, n_shared).check(probe)?;
        }
    }
    Ok(())
}

impl ExpertSample {
    fn new(format: WeightFormat, n_slots: usize, n_shared: usize) -> Self {
        let mut samples = Samples(n_slots as u64);
        let [n_out, d_in] = [35, 256];
        // Most slots have the same expert, which needs several entries.
        let words = samples.words(n_slots);
        let experts = words
            .iter()
            .map(|word| [0, 1, 2, 2, 2, 2, N_EXPERTS][(word % 7) as usize]);
        Self {
            format,
            n_out,
            d_in,
            experts: experts.collect(),
            n_shared,
            matrices: (0..N_EXPERTS)
                .map(|_| samples.matrix(format, n_out, d_in))
                .collect(),
            bias: samples.floats(N_EXPERTS * n_out),
            x: samples.floats(n_slots / n_shared * d_in),
        }
    }

    fn check(&self, probe: &mut Probe<'_>) -> Result<(), Error> {
        let expected = self.on_cpu(probe);
        let ways = [ProductWay::Columns, ProductWay::Tiles].into_iter();
        for way in ways.filter(|way| Shader::expert_product(self.format, *way).is_some()) {
            let got = self.on_gpu(probe, way)?;
            let what = format!("{:?} {way:?} {} slots", self.format, self.experts.len());
            probe.same(&what, &got, expected.iter().map(|x| x.to_bits()))?;
        }
        Ok(())
    }

    /// Weights: a table, the bias, the matrices.
    fn weights(&self) -> Vec<u8> {
        let mut rows = Vec::new();
        let mut table = Vec::new();
        let first = 2 * N_EXPERTS + self.bias.len();
        for (expert, matrix) in self.matrices.iter().enumerate() {
            let at = (first + rows.len() / 4) as u32;
            table.push(if expert == ABSENT { NONE } else { at });
            table.push(SCALES[expert].to_bits());
            let row_bytes = matrix.len() / self.n_out;
            let of_matrix = matrix.chunks_exact(row_bytes);
            of_matrix.for_each(|row| self.format.pack_row(row, &mut rows));
        }
        let table: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
        [table, bytes_of(&self.bias), rows].concat()
    }

    fn quantize(&self, probe: &mut Probe<'_>, bindings: Bindings) -> Result<(), Error> {
        let mut out = [None; 3];
        out[Quantize::slot(self.format.acts())] = Some(0);
        let quantize = Quantize {
            function: RowFunction::Copy,
            n_rows: (self.x.len() / self.d_in) as u32,
            d: self.d_in as u32,
            x: 0,
            out,
        };
        probe.run(&Shader::quantize(), |p| quantize.dispatch(p, bindings))
    }

    fn product(&self, slots: GroupSlots) -> ExpertProduct {
        let product = Product {
            format: self.format,
            w: 0,
            n_out: self.n_out as u32,
            d_in: self.d_in as u32,
            scale: 1.0,
            bias: Some(2 * N_EXPERTS as u32),
            n_rows: slots.n_slots,
            x: 0,
            out: self.x.len() as u32,
            d_out: self.n_out as u32,
            end: ProductEnd::Set,
        };
        ExpertProduct {
            product,
            slots,
            n_shared: self.n_shared as u32,
        }
    }

    fn on_gpu(&self, probe: &mut Probe<'_>, way: ProductWay) -> Result<Vec<u32>, Error> {
        let n_slots = self.experts.len();
        let routes = self.x.len() / self.d_in * self.format.acts().row_words(self.d_in);
        let slots = GroupSlots {
            routes: routes as u32,
            n_slots: n_slots as u32,
            n_experts: N_EXPERTS as u32,
            groups: (routes + 2 * n_slots) as u32,
        };
        let bindings = probe.fill(&Contents {
            weights: &self.weights(),
            n_acts: routes + 2 * n_slots + slots.words(),
            values: &[&self.x[..], &vec![0.0; n_slots * self.n_out]].concat(),
            tables: &[],
            kv: &[],
        })?;
        let words = self.experts.iter().flat_map(|&expert| {
            let is_one = expert < N_EXPERTS;
            [if is_one { expert as u32 } else { NONE }, 0]
        });
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        probe.host.write(bindings.acts, 4 * routes as u64, &bytes)?;
        self.quantize(probe, bindings)?;
        probe.run(&Shader::group_slots(), |p| slots.dispatch(p, bindings))?;
        let shader = Shader::expert_product(self.format, way).expect("only ways that it has");
        let product = self.product(slots);
        probe.run(&shader, |p| product.dispatch(way, p, bindings))?;
        probe.words(bindings.values, self.x.len(), n_slots * self.n_out)
    }

    /// Each slot by atta-kernels; zeros where there is no matrix.
    fn on_cpu(&self, probe: &Probe<'_>) -> Vec<f32> {
        let layout = match self.format.acts() {
            ActLayout::F32 => Layouts::F32,
            ActLayout::Q8_32 => Layouts::Q8_32,
            ActLayout::Q8_256 => Layouts::Q8_256,
        };
        let mut out = vec![0.0; self.experts.len() * self.n_out];
        for (slot, (&expert, out)) in self
            .experts
            .iter()
            .zip(out.chunks_exact_mut(self.n_out))
            .enumerate()
            .filter(|(_, (expert, _))| ![ABSENT, N_EXPERTS].contains(expert))
        {
            let x = &self.x[slot / self.n_shared * self.d_in..][..self.d_in];
            let mut acts = Activations::new(1, self.d_in);
            let shape = (1, self.d_in);
            acts.fill(probe.kernels, &probe.pool, shape, layout, |_, row| {
                row.copy_from_slice(x);
            });
            let encoding = Encoding {
                ty: self.format.tensor_type(),
                scale: SCALES[expert],
            };
            let matrix = &self.matrices[expert];
            let job = Job {
                w: Matrix::new(encoding, self.n_out, self.d_in, matrix).expect("a sample's shape"),
                bias: Some(&self.bias[expert * self.n_out..][..self.n_out]),
                out,
                mode: Store::Set,
            };
            probe.kernels.matmul(&probe.pool, &acts, &mut [job]);
        }
        out
    }
}

/// Results of experts that are added, a bias and a shared one.
pub(super) fn sums(probe: &mut Probe<'_>) -> Result<(), Error> {
    for is_set in [false, true] {
        for has_all in [false, true] {
            let sample = SumSample::new(is_set, has_all);
            let got = sample.on_gpu(probe)?;
            let expected = sample.by_definition();
            let what = format!("{:?}", sample.combine);
            probe.same(&what, &got, expected.iter().map(|x| x.to_bits()))?;
        }
    }
    Ok(())
}

const D: usize = 70;

/// The expert of a slot; some have none.
fn expert_of(slot: usize) -> u32 {
    if slot % 4 == 3 { NONE } else { 0 }
}

struct SumSample {
    combine: Combine,
    /// Weights of the slots.
    weights: Vec<f32>,
    bias: Vec<f32>,
    /// Sums before, results by slot, shared ones, their gates.
    values: Vec<f32>,
}

impl SumSample {
    fn new(is_set: bool, has_all: bool) -> Self {
        let mut samples = Samples(19);
        let y = N_ROWS * D;
        let shared = y + N_ROWS * N_USED * D;
        let gates = shared + N_ROWS * D;
        Self {
            combine: Combine {
                n_rows: N_ROWS as u32,
                d: D as u32,
                n_used: N_USED as u32,
                routes: 0,
                y: y as u32,
                out: 0,
                is_set,
                factor: 0.7,
                weighs: has_all,
                bias: has_all.then_some(0),
                shared: has_all.then_some(shared as u32),
                shared_gates: (has_all && is_set).then_some(gates as u32),
            },
            weights: samples.floats(N_ROWS * N_USED),
            bias: samples.floats(D),
            values: samples.floats(gates + N_ROWS),
        }
    }

    fn on_gpu(&self, probe: &mut Probe<'_>) -> Result<Vec<u32>, Error> {
        let bindings = probe.fill(&Contents {
            weights: &bytes_of(&self.bias),
            n_acts: 2 * N_ROWS * N_USED,
            values: &self.values,
            tables: &[],
            kv: &[],
        })?;
        let routes = self.weights.iter().enumerate();
        let words = routes.flat_map(|(slot, weight)| [expert_of(slot), weight.to_bits()]);
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        probe.host.write(bindings.acts, 0, &bytes)?;
        probe.run(&Shader::combine(), |p| self.combine.dispatch(p, bindings))?;
        probe.words(bindings.values, 0, N_ROWS * D)
    }

    /// As atta-model adds them.
    fn by_definition(&self) -> Vec<f32> {
        let Combine {
            factor,
            is_set,
            shared,
            shared_gates,
            ..
        } = self.combine;
        let row = |t: usize| {
            let mut out = self.values[t * D..][..D].to_vec();
            if is_set {
                out.fill(0.0);
            }
            for slot in (t * N_USED..(t + 1) * N_USED).filter(|slot| expert_of(*slot) != NONE) {
                let weighed = factor * self.weights[slot];
                let factor = if self.combine.weighs { weighed } else { factor };
                add(&mut out, factor, &self.values[(N_ROWS + slot) * D..]);
            }
            if self.combine.bias.is_some() {
                add(&mut out, factor, &self.bias);
            }
            let gate = shared_gates.map(|at| math::sigmoid(self.values[at as usize + t]));
            if let Some(at) = shared {
                let factor = gate.map_or(factor, |gate| factor * gate);
                add(&mut out, factor, &self.values[at as usize + t * D..]);
            }
            out
        };
        (0..N_ROWS).flat_map(row).collect()
    }
}

/// `x = x + factor·y`.
fn add(x: &mut [f32], factor: f32, y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += factor * y);
}
