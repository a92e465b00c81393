//! Types for a wished size: which tensor gets which type, so that a file of at most so many bytes
//! diverges least from its source.
//!
//! A tensor in a type costs its sensitivity, KL divergence per unit of error, times the error of
//! the type in it. Errors are computed here from a sample of rows; sensitivities come from the
//! caller, who measures them by running models whose groups of tensors are coarse in turn
//! ([`Blend`]), or are guessed by the roles of tensors. The module refuses to know how a model is
//! run. The one idea: divergences add up while they are small, so that the best types are those at
//! which a byte more lowers the sum equally everywhere.
//!
//! Nothing depends on time or on the number of threads.

mod blend;
mod choice;
mod groups;
mod sample;
mod table;

use std::collections::BTreeMap;

use atta_formats::TensorType;

use crate::Error;
use choice::{PricedTensor, choose};

pub use blend::Blend;
pub use groups::TensorGroup;
pub use table::{CostOptions, CostSources};

/// The types to choose among by default, where rows are whole blocks of them.
pub const DEFAULT_TYPES: [TensorType; 7] = [
    TensorType::T2,
    TensorType::T3,
    TensorType::T4,
    TensorType::Q5_0,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::Q8_0,
];

/// How often the budget of tensors is corrected by the length of the file.
const MAX_CORRECTIONS: usize = 16;

/// A type that a tensor may get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TypeCost {
    /// The type.
    pub ty: TensorType,
    /// Bytes of the tensor in it, with its mean row where that is stored apart.
    pub bytes: u64,
    /// The relative error: a share of the energy of the weights.
    pub error: f64,
}

/// A tensor whose type is to be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorCosts {
    /// The name of the tensor.
    pub name: String,
    /// Index of its group in [`CostTable::groups`].
    pub group: usize,
    /// Its types by bytes, smallest first, with falling errors; at least one.
    pub candidates: Vec<TypeCost>,
    /// The error of the type that groups are probed with.
    pub probe_error: f64,
    /// The sensitivity, up to a common factor, that tensors of its role usually have.
    pub guess: f64,
}

/// The types of all tensors that have a choice: an index in [`TensorCosts::candidates`] for each.
pub type TypeChoice = Vec<usize>;

/// The costs of all types in all tensors, and the groups of tensors whose sensitivity is measured
/// together.
#[derive(Clone, Debug)]
pub struct CostTable {
    /// In the order of the checkpoint.
    pub tensors: Vec<TensorCosts>,
    /// Every tensor is in one of them.
    pub groups: Vec<TensorGroup>,
}

impl CostTable {
    /// Computes the errors of all types in samples of all tensors that are quantized.
    ///
    /// # Errors
    /// Rows that cannot be read, weights that are not finite, a type that no tensor can be
    /// quantized to.
    pub fn new(sources: CostSources<'_>, options: &CostOptions) -> Result<Self, Error> {
        table::compute(sources, options)
    }

    /// Chooses types for a file of at most `target` bytes. `sensitivities` has one for each tensor;
    /// `file_bytes` tells the length of the file with a choice.
    ///
    /// # Errors
    /// [`Error::TargetTooSmall`], and errors of `file_bytes`.
    pub fn choose(
        &self,
        sensitivities: &[f64],
        target: u64,
        file_bytes: &mut dyn FnMut(&[usize]) -> Result<u64, Error>,
    ) -> Result<TypeChoice, Error> {
        let items = self.items(sensitivities);
        let least = vec![0; items.len()];
        let least_file = file_bytes(&least)?;
        if least_file > target {
            return Err(Error::TargetTooSmall {
                target,
                least: least_file,
            });
        }
        let mut around = least_file.saturating_sub(choice::bytes(&items, &least));
        for _ in 0..MAX_CORRECTIONS {
            let choice = choose(&items, target.saturating_sub(around));
            match file_bytes(&choice)? {
                got if got <= target => return Ok(choice),
                got => around += got - target,
            }
        }
        Ok(least)
    }

    fn items<'a>(&'a self, sensitivities: &[f64]) -> Vec<PricedTensor<'a>> {
        let of = |(tensor, &sensitivity): (&'a TensorCosts, &f64)| PricedTensor {
            candidates: &tensor.candidates,
            sensitivity,
        };
        self.tensors.iter().zip(sensitivities).map(of).collect()
    }

    /// The sensitivities that tensors of their roles usually have, up to a common factor.
    pub fn guesses(&self) -> Vec<f64> {
        self.tensors.iter().map(|tensor| tensor.guess).collect()
    }

    /// The sensitivity of each tensor, if `divergences` were measured with one group after the
    /// other off by `error(tensor)`. A group that does not diverge has a little sensitivity, so
    /// that more bytes still count for something.
    pub fn sensitivities(&self, divergences: &[f64], error: impl Fn(usize) -> f64) -> Vec<f64> {
        const LEAST: f64 = 1e-7;
        let mut all = vec![LEAST; self.tensors.len()];
        for (group, &divergence) in self.groups.iter().zip(divergences) {
            let errors: f64 = group.tensors.iter().map(|&i| error(i)).sum();
            if errors > 0.0 {
                let each = (divergence / errors).max(LEAST);
                group.tensors.iter().for_each(|&i| all[i] = each);
            }
        }
        all
    }

    /// The divergence that a choice should cause: the sum of the costs of all tensors.
    pub fn cost(&self, sensitivities: &[f64], choice: &[usize]) -> f64 {
        let of = |i: usize| sensitivities[i] * self.chosen(i, choice).error;
        (0..self.tensors.len()).map(of).sum()
    }

    /// The names of the tensors of a group.
    pub fn names(&self, group: &TensorGroup) -> Vec<&str> {
        let tensors = group.tensors.iter();
        tensors.map(|&i| self.tensors[i].name.as_str()).collect()
    }

    /// The candidate of tensor `i` in a choice.
    pub fn chosen(&self, i: usize, choice: &[usize]) -> &TypeCost {
        &self.tensors[i].candidates[choice[i]]
    }

    /// The type of each tensor by its name, for
    /// [`TypeSelection::chosen`](crate::TypeSelection::chosen).
    pub fn types(&self, choice: &[usize]) -> BTreeMap<String, TensorType> {
        let of =
            |(i, tensor): (usize, &TensorCosts)| (tensor.name.clone(), self.chosen(i, choice).ty);
        self.tensors.iter().enumerate().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(group: usize, sizes: [u64; 2]) -> TensorCosts {
        let candidate = |bytes: u64, error: f64| TypeCost {
            ty: TensorType::Q8_0,
            bytes,
            error,
        };
        TensorCosts {
            name: format!("{group} {sizes:?}"),
            group,
            candidates: vec![candidate(sizes[0], 0.1), candidate(sizes[1], 0.01)],
            probe_error: 0.05,
            guess: 1.0,
        }
    }

    fn table() -> CostTable {
        let group = |tensors: &[usize]| TensorGroup {
            name: String::new(),
            tensors: tensors.to_vec(),
        };
        CostTable {
            tensors: vec![
                tensor(0, [100, 200]),
                tensor(1, [100, 200]),
                tensor(0, [100, 200]),
            ],
            groups: vec![group(&[0, 2]), group(&[1])],
        }
    }

    #[test]
    fn the_divergence_of_a_group_is_shared_by_its_errors() {
        let table = table();
        let got = table.sensitivities(&[0.2, 0.3], |i| table.tensors[i].probe_error);
        let is_near = |(got, expected): (&f64, f64)| (got - expected).abs() < 1e-12;
        assert!(got.iter().zip([2.0, 6.0, 2.0]).all(is_near), "{got:?}");
        let cost = table.cost(&got, &[0, 1, 0]);
        assert!((cost - (0.2 + 0.06 + 0.2)).abs() < 1e-12, "{cost}");
        assert_eq!(table.sensitivities(&[0.0, -1.0], |_| 1.0), [1e-7; 3]);
    }

    #[test]
    fn a_file_is_never_larger_than_asked() {
        let table = table();
        // A file with 50 bytes around the tensors, and 7 more for each that is large.
        let mut file_bytes = |choice: &[usize]| {
            let large = choice.iter().filter(|&&i| i == 1).count() as u64;
            Ok(350 + 107 * large)
        };
        let mut chosen = |target| table.choose(&[1.0, 9.0, 2.0], target, &mut file_bytes);
        assert_eq!(chosen(350).unwrap(), [0, 0, 0]);
        assert_eq!(chosen(456).unwrap(), [0, 0, 0]);
        assert_eq!(chosen(457).unwrap(), [0, 1, 0]);
        assert_eq!(chosen(600).unwrap(), [0, 1, 1]);
        assert_eq!(chosen(9999).unwrap(), [1, 1, 1]);
        let error = chosen(349).unwrap_err().to_string();
        assert!(error.contains("349") && error.contains("350"), "{error}");
    }
}
