//! The types that each tensor may get, with their bytes and errors. Threads share the tensors; each
//! result depends on its tensor alone.

use std::{sync::Mutex, thread};

use atta_formats::TensorType;

use super::{
    CostTable, TensorCosts, TypeCost, groups,
    sample::{Sample, Sampler},
};
use crate::{
    Checkpoint, Error, ImportanceMatrix, NamePattern, Tensor,
    means::mean_of,
    mix::{ModelFacts, TensorShape, fitting, is_quantized},
    plan,
    quantize::{self, Quantizer},
};

/// Tensors of fewer weights have at least 8 bits: there is nothing to gain.
const SMALL_WEIGHTS: u64 = 1 << 16;
/// Parts of names of matrices that have at least 8 bits: small, and used by every token.
const PRECISE: [&str; 2] = ["_shexp", "ssm_out"];
const PRECISE_BITS: f64 = 8.0;
/// Bytes of a tensor's place in the directory, some more than a mean row needs.
const INFO_BYTES: u64 = 96;

/// A checkpoint in the two forms that types store it in, and its importance matrix.
#[derive(Clone, Copy, Debug)]
pub struct CostSources<'a> {
    /// The checkpoint.
    pub plain: &'a Checkpoint,
    /// The same with the mean rows of its tables apart, by
    /// [`separate_means`](crate::separate_means).
    pub centred: &'a Checkpoint,
    /// The importance matrix that quantization errors are weighted with.
    pub importance: Option<&'a ImportanceMatrix>,
}

/// What to choose among.
#[derive(Clone, Debug, Default)]
pub struct CostOptions {
    /// The types. A tensor whose rows are no whole blocks of any gets llama.cpp's fallback types.
    pub types: Vec<TensorType>,
    /// Whether a tensor may keep the type that it has.
    pub may_keep: bool,
    /// The type that groups are probed with.
    pub probe: Option<TensorType>,
    /// Types of tensors whose names match, which leave no choice; the first match wins.
    pub overrides: Vec<(NamePattern, TensorType)>,
    /// Number of threads; 0 means 1.
    pub n_threads: usize,
}

/// Computes the table.
pub(super) fn compute(sources: CostSources<'_>, options: &CostOptions) -> Result<CostTable, Error> {
    let tensors: Vec<&Tensor> = sources
        .plain
        .tensors
        .iter()
        .filter(|tensor| is_quantized(shape(tensor)))
        .collect();
    let job = CostJob {
        sampler: Sampler {
            plain: sources.plain,
            centred: sources.centred,
            importance: sources.importance,
        },
        options,
        quantizers: quantizers(&tensors, options)?,
        facts: plan::facts(sources.plain, sources.importance.is_some())?,
    };
    let costs = job.all(&tensors)?;
    Ok(grouped(costs, job.facts.n_layers))
}

/// The table of tensors that do not know their groups yet.
fn grouped(mut tensors: Vec<TensorCosts>, n_layers: usize) -> CostTable {
    let names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    let groups = groups::group(&names, n_layers);
    for (i, group) in groups.iter().enumerate() {
        group.tensors.iter().for_each(|&t| tensors[t].group = i);
    }
    CostTable { tensors, groups }
}

fn shape(tensor: &Tensor) -> TensorShape<'_> {
    TensorShape {
        name: &tensor.name,
        dims: &tensor.dims,
    }
}

/// A quantizer for each type that any tensor may get.
fn quantizers(
    tensors: &[&Tensor],
    options: &CostOptions,
) -> Result<Vec<(TensorType, Quantizer)>, Error> {
    let mut all = Vec::new();
    for tensor in tensors {
        let types = types(tensor, options).into_iter();
        for ty in types.chain(probe(tensor, options)) {
            if ty != tensor.ty && all.iter().all(|(of, _)| *of != ty) {
                all.push((ty, Quantizer::new(ty)?));
            }
        }
    }
    Ok(all)
}

/// The types that a tensor may get.
fn types(tensor: &Tensor, options: &CostOptions) -> Vec<TensorType> {
    let name = &tensor.name;
    let d = tensor.d_row();
    let fixed = options.overrides.iter().find(|(of, _)| of.matches(name));
    if let Some((_, ty)) = fixed {
        return vec![fitting(*ty, d)];
    }
    let all = options.types.iter();
    let mut types: Vec<TensorType> = all
        .clone()
        .copied()
        .filter(|&ty| fitting(ty, d) == ty)
        .collect();
    if types.is_empty() {
        types = all.map(|&ty| fitting(ty, d)).collect();
    }
    if options.may_keep {
        types.push(tensor.ty);
    }
    types
}

/// The type that a tensor is probed with.
fn probe(tensor: &Tensor, options: &CostOptions) -> Option<TensorType> {
    options.probe.map(|ty| fitting(ty, tensor.d_row()))
}

/// The computation of all costs.
struct CostJob<'a> {
    sampler: Sampler<'a>,
    options: &'a CostOptions,
    quantizers: Vec<(TensorType, Quantizer)>,
    facts: ModelFacts,
}

impl CostJob<'_> {
    /// The costs of all tensors, in order.
    fn all(&self, tensors: &[&Tensor]) -> Result<Vec<TensorCosts>, Error> {
        let queue = Mutex::new(tensors.iter().copied().enumerate());
        let worker = || self.some(&queue);
        let mut done = thread::scope(|scope| {
            let n_others = self.options.n_threads.max(1) - 1;
            let others: Vec<_> = (0..n_others).map(|_| scope.spawn(worker)).collect();
            others.into_iter().fold(worker(), |done, other| {
                let more = other.join().expect("a quantizer does not panic");
                Ok([done?, more?].concat())
            })
        })?;
        done.sort_by_key(|(i, _)| *i);
        Ok(done.into_iter().map(|(_, costs)| costs).collect())
    }

    /// The costs of tensors of the queue, with their places, until it is empty.
    fn some<'t>(
        &self,
        queue: &Mutex<impl Iterator<Item = (usize, &'t Tensor)>>,
    ) -> Result<Vec<(usize, TensorCosts)>, Error> {
        let next = || {
            let mut queue = queue.lock().unwrap_or_else(|error| error.into_inner());
            queue.next()
        };
        let mut done = Vec::new();
        while let Some((i, tensor)) = next() {
            let costs = self.of(tensor).map_err(|error| error.of(&tensor.name))?;
            done.push((i, costs));
        }
        Ok(done)
    }

    fn of(&self, tensor: &Tensor) -> Result<TensorCosts, Error> {
        let sample = self.sampler.sample(&tensor.name)?;
        let probe = probe(tensor, self.options);
        Ok(TensorCosts {
            name: tensor.name.clone(),
            group: 0,
            candidates: self.candidates(tensor, &sample)?,
            probe_error: probe.map_or(Ok(0.0), |ty| self.error(tensor, &sample, ty))?,
            guess: groups::guess(shape(tensor), &self.facts),
        })
    }

    /// The types that are worth their bytes; at least one.
    fn candidates(&self, tensor: &Tensor, sample: &Sample) -> Result<Vec<TypeCost>, Error> {
        let types = types(tensor, self.options);
        let all = types
            .iter()
            .filter_map(|&ty| self.candidate(tensor, sample, ty).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        match useful(precise(tensor, all)) {
            none if none.is_empty() => Err(Error::NoQuantizer {
                ty: types[0],
                needs_importance: true,
            }),
            some => Ok(some),
        }
    }

    /// A type with its bytes and error; `None` if it requires an importance matrix, or cannot hold
    /// the weights.
    fn candidate(
        &self,
        tensor: &Tensor,
        sample: &Sample,
        ty: TensorType,
    ) -> Result<Option<TypeCost>, Error> {
        if ty != tensor.ty && quantize::needs_importance(ty) && !sample.has_importance() {
            return Ok(None);
        }
        let error = self.error(tensor, sample, ty)?;
        let row_bytes = ty.row_bytes(tensor.d_row() as usize);
        Ok(row_bytes.filter(|_| error.is_finite()).map(|row| TypeCost {
            ty,
            bytes: tensor.n_rows() * row as u64 + mean_bytes(tensor, ty),
            error,
        }))
    }

    fn error(&self, tensor: &Tensor, sample: &Sample, ty: TensorType) -> Result<f64, Error> {
        if ty == tensor.ty {
            return Ok(0.0);
        }
        let found = self.quantizers.iter().find(|(of, _)| *of == ty);
        let (_, quantizer) = found.ok_or(Error::NoQuantizer {
            ty,
            needs_importance: false,
        })?;
        sample.error(quantizer, ty)
    }
}

/// Bytes of the mean row that a table has apart in this type.
fn mean_bytes(tensor: &Tensor, ty: TensorType) -> u64 {
    match mean_of(&tensor.name) {
        Some(_) if ty.is_own() && ty != tensor.ty => 4 * tensor.d_row() + INFO_BYTES,
        _ => 0,
    }
}

/// Of a tensor that is small or used by every token, the candidates of at least 8 bits; the largest
/// if there is none.
fn precise(tensor: &Tensor, mut candidates: Vec<TypeCost>) -> Vec<TypeCost> {
    let n_weights = tensor.n_rows() * tensor.d_row();
    let is_precise = PRECISE.iter().any(|part| tensor.name.contains(part));
    if n_weights >= SMALL_WEIGHTS && !is_precise {
        return candidates;
    }
    let largest = candidates.iter().map(|candidate| candidate.bytes).max();
    let enough = (PRECISE_BITS / 8.0 * n_weights as f64) as u64;
    candidates.retain(|candidate| candidate.bytes >= enough || Some(candidate.bytes) == largest);
    candidates
}

/// The candidates by bytes, without those that are no better than a smaller one.
fn useful(mut candidates: Vec<TypeCost>) -> Vec<TypeCost> {
    candidates.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.error.total_cmp(&b.error)));
    let mut least = f64::INFINITY;
    candidates.retain(|candidate| {
        let is_better = candidate.error < least;
        least = least.min(candidate.error);
        is_better
    });
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(ty: TensorType, bytes: u64, error: f64) -> TypeCost {
        TypeCost { ty, bytes, error }
    }

    #[test]
    fn a_type_that_is_no_better_than_a_smaller_one_is_no_choice() {
        let types = [
            candidate(TensorType::Q8_0, 8, 0.001),
            candidate(TensorType::Q5_0, 5, 0.02),
            candidate(TensorType::Q5_K, 5, 0.01),
            candidate(TensorType::Q6_K, 6, 0.015),
        ];
        let left = useful(types.to_vec()).into_iter().map(|c| c.ty);
        assert_eq!(
            left.collect::<Vec<_>>(),
            [TensorType::Q5_K, TensorType::Q8_0]
        );
    }
}
