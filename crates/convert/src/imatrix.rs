//! Importance matrices (imatrix): how much an error in each column of a matrix matters.
//!
//! The squared inputs of a column, summed over the tokens of a text, measure how much errors in the
//! weights of that column change the output. Sums are kept per tensor, and per expert where a
//! tensor has several. Files are those of llama.cpp: GGUF with two tensors per matrix,
//! `NAME.in_sum2`, `[n_experts, d]`, and `NAME.counts`, `[n_experts, 1]`, both F32.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use atta_formats::{TensorType, Writer, decode};

use crate::{Checkpoint, Error, MappedRows, Tensor, gguf};

const DATASETS: &str = "imatrix.datasets";
const CHUNK_COUNT: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
/// Tokens that an expert needs for its sums to say anything.
const MIN_TOKENS: u64 = 32;
/// The largest valid count: 2^53.
const MAX_COUNT: f32 = 9_007_199_254_740_992.0;

/// Sums of squared inputs of the matrices of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportanceMatrix {
    /// By tensor name.
    entries: BTreeMap<String, ImatrixEntry>,
    /// Names of the texts that were evaluated.
    pub datasets: Vec<String>,
    /// Number of chunks evaluated.
    pub n_chunks: u32,
    /// Tokens per chunk.
    pub chunk_size: u32,
}

/// Sums of squared inputs of one tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImatrixEntry {
    /// Sums of squares, `[n_experts, d]`.
    sums: Vec<f64>,
    /// Number of input rows summed, `[n_experts]`.
    counts: Vec<u64>,
}

impl ImatrixEntry {
    /// Adds inputs of a matrix without experts, `[n_rows, d]`.
    ///
    /// # Panics
    /// If rows of another width or experts were added before.
    pub fn add(&mut self, rows: &[f32], d: usize) {
        self.add_expert(0, 1, rows, d);
    }

    /// Adds inputs of expert `i` of `n`, `[n_rows, d]`.
    ///
    /// # Panics
    /// If `i >= n`, or if rows of another width or number of experts were added before.
    pub fn add_expert(&mut self, i: usize, n: usize, rows: &[f32], d: usize) {
        if self.sums.is_empty() {
            (self.sums, self.counts) = (vec![0.0; n * d], vec![0; n]);
        }
        assert_eq!(self.sums.len(), n * d, "rows of another width");
        self.spread(n);
        let sums = &mut self.sums[i * d..(i + 1) * d];
        for row in rows.chunks_exact(d) {
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, x)| *sum += f64::from(x * x));
        }
        self.counts[i] += (rows.len() / d) as u64;
    }

    /// Mean squares, `[n_experts, d]`; 1 for experts without input.
    pub fn weights(&self) -> Vec<f32> {
        let d = self.sums.len() / self.counts.len().max(1);
        let mean = |(i, sum): (usize, &f64)| match self.counts[i / d] {
            0 => 1.0,
            // Divide in f32, as llama.cpp does.
            n => *sum as f32 / n as f32,
        };
        self.sums.iter().enumerate().map(mean).collect()
    }

    /// As [`weights`](Self::weights), but 1 as well for experts whose sums say nothing: those of
    /// fewer than 32 tokens, or of zeros.
    pub(crate) fn reached_weights(&self) -> Vec<f32> {
        let d = self.sums.len() / self.counts.len().max(1);
        let mut weights = self.weights();
        for (i, weights) in weights.chunks_mut(d.max(1)).enumerate() {
            if !self.is_reached(i) {
                weights.fill(1.0);
            }
        }
        weights
    }

    /// The number of experts whose sums say nothing; see
    /// [`reached_weights`](Self::reached_weights).
    pub(crate) fn n_unreached(&self) -> usize {
        (0..self.counts.len())
            .filter(|&i| !self.is_reached(i))
            .count()
    }

    fn is_reached(&self, i: usize) -> bool {
        let d = self.sums.len() / self.counts.len().max(1);
        self.counts[i] >= MIN_TOKENS && self.sums[i * d..][..d].iter().any(|&sum| sum > 0.0)
    }

    /// The number of counts and of sums.
    pub fn shape(&self) -> [usize; 2] {
        [self.counts.len(), self.sums.len()]
    }

    /// Whether the sums fit a tensor of this shape, outermost first.
    pub(crate) fn fits(&self, dims: &[u64]) -> bool {
        let d = dims.last().copied().unwrap_or(1);
        let n_experts: u64 = dims.iter().rev().skip(2).product();
        // Files of llama.cpp may have one count for all experts.
        let counts = [1, n_experts].contains(&(self.counts.len() as u64));
        counts && n_experts.checked_mul(d) == Some(self.sums.len() as u64)
    }

    /// Expands a single count to one per expert.
    fn spread(&mut self, n: usize) {
        if self.counts.len() == 1 {
            self.counts.resize(n, self.counts[0]);
        }
    }

    /// The number of experts without input.
    pub fn n_unseen(&self) -> usize {
        self.counts.iter().filter(|&&n| n == 0).count()
    }
}

impl ImportanceMatrix {
    /// Gives all names and numbers that quantization depends on, in order, to `each`.
    pub(crate) fn each_number(&self, mut each: impl FnMut(&[u8])) {
        for (name, entry) in &self.entries {
            each(name.as_bytes());
            entry.sums.iter().for_each(|sum| each(&sum.to_le_bytes()));
            entry.counts.iter().for_each(|n| each(&n.to_le_bytes()));
        }
    }

    /// The entry of a tensor.
    pub fn entry(&self, tensor: &str) -> Option<&ImatrixEntry> {
        self.entries.get(tensor)
    }

    /// The entry of a tensor, created if there is none.
    pub fn entry_mut(&mut self, tensor: &str) -> &mut ImatrixEntry {
        if !self.entries.contains_key(tensor) {
            self.entries
                .insert(tensor.to_owned(), ImatrixEntry::default());
        }
        self.entries.get_mut(tensor).expect("it was just inserted")
    }

    /// All entries, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &ImatrixEntry)> {
        self.entries
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// Reads an importance matrix from a GGUF file.
    ///
    /// # Errors
    /// A file that is no importance matrix, sums without counts, and negative or non-finite values.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = gguf::open(path);
        let at = |why: String| Error::File {
            path: path.to_owned(),
            why,
        };
        let file = file.map_err(|error| match path.extension() {
            // The legacy format, which has no magic number.
            Some(ext) if ext == "dat" => {
                at("is in the legacy imatrix format: convert it to GGUF with llama-imatrix".into())
            }
            _ => error,
        })?;
        let about = file.describe()?.metadata;
        if about.str("general.type")? != Some("imatrix") {
            return Err(at(
                "is no importance matrix: general.type is not \"imatrix\"".to_owned(),
            ));
        }
        let names = about.strs(DATASETS)?;
        let mut all = Self {
            datasets: names
                .iter()
                .flat_map(|n| n.iter())
                .map(|n| String::from_utf8_lossy(n).into_owned())
                .collect(),
            n_chunks: about.u32(CHUNK_COUNT)?.unwrap_or(0),
            chunk_size: about.u32(CHUNK_SIZE)?.unwrap_or(0),
            ..Self::default()
        };
        for tensor in &file.tensors {
            let values = values(tensor).map_err(|error| error.of(&tensor.name))?;
            let bad = || {
                at(format!(
                    "{}: has a value that is no sum of squares and no count",
                    tensor.name
                ))
            };
            // No text has more tokens, and the sum of counts stays within u64.
            let most = if tensor.name.ends_with(COUNTS) {
                MAX_COUNT
            } else {
                f32::MAX
            };
            if values.iter().any(|v| !(0.0..=most).contains(v)) {
                return Err(bad());
            }
            match (
                tensor.name.strip_suffix(SUMS),
                tensor.name.strip_suffix(COUNTS),
            ) {
                (Some(name), _) => {
                    all.entry_mut(name).sums = values.iter().map(|&v| v.into()).collect()
                }
                (_, Some(name)) => {
                    all.entry_mut(name).counts = values.iter().map(|v| v.round() as u64).collect()
                }
                _ => {
                    return Err(at(format!(
                        "{}: is no part of an importance matrix",
                        tensor.name
                    )));
                }
            }
        }
        for (name, ImatrixEntry { sums, counts }) in &all.entries {
            if sums.is_empty() || counts.is_empty() || sums.len() % counts.len() != 0 {
                return Err(at(format!(
                    "{name}: {} sums do not go with {} counts",
                    sums.len(),
                    counts.len()
                )));
            }
        }
        Ok(all)
    }

    /// The importance matrix as a checkpoint, to be written as GGUF.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut metadata = Writer::new();
        metadata.set_str("general.type", "imatrix");
        metadata.set_strs(DATASETS, &self.datasets);
        metadata.set_u32(CHUNK_COUNT, self.n_chunks);
        metadata.set_u32(CHUNK_SIZE, self.chunk_size);
        let pair = |(name, ImatrixEntry { sums, counts }): (&String, &ImatrixEntry)| {
            let n = counts.len();
            let d = sums.len() / counts.len().max(1);
            let sums = floats(
                format!("{name}{SUMS}"),
                [n, d],
                sums.iter().map(|&sum| sum as f32),
            );
            [
                sums,
                floats(
                    format!("{name}{COUNTS}"),
                    [n, 1],
                    counts.iter().map(|&n| n as f32),
                ),
            ]
        };
        Checkpoint {
            metadata,
            tensors: self.entries.iter().flat_map(pair).collect(),
            files: Vec::new(),
        }
    }
}

/// All weights of a small tensor.
fn values(tensor: &Tensor) -> Result<Vec<f32>, Error> {
    let bytes = tensor.rows.stored().unwrap_or_default();
    let mut values = vec![0.0; bytes.len() / 4];
    match tensor.ty {
        TensorType::F32 => decode(TensorType::F32, bytes, &mut values)?,
        ty => {
            return Err(Error::Shape {
                dims: tensor.dims.clone(),
                ty,
            });
        }
    }
    Ok(values)
}

fn floats(name: String, dims: [usize; 2], values: impl Iterator<Item = f32>) -> Tensor {
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let dims = dims.map(|d| d as u64).to_vec();
    let rows = MappedRows::new(Arc::new(bytes), 0, &dims, TensorType::F32)
        .expect("there are as many values as the shape requires");
    Tensor {
        name,
        dims,
        ty: TensorType::F32,
        rows: Box::new(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_mean_squares_and_one_where_nothing_was_seen() {
        let mut entry = ImatrixEntry::default();
        entry.add_expert(1, 2, &[1.0, 2.0, 3.0, 4.0], 2);
        assert_eq!(entry.weights(), [1.0, 1.0, 5.0, 10.0]);
        assert_eq!(entry.n_unseen(), 1);
    }

    #[test]
    fn sums_of_few_tokens_or_of_zeros_say_nothing() {
        let mut entry = ImatrixEntry::default();
        entry.add_expert(0, 3, &[2.0; 64], 2);
        entry.add_expert(1, 3, &[2.0; 62], 2);
        entry.add_expert(2, 3, &[0.0; 64], 2);
        assert_eq!(entry.reached_weights(), [4.0, 4.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(entry.n_unreached(), 2);
    }

    #[test]
    #[should_panic(expected = "another width")]
    fn rows_of_one_tensor_are_equally_wide() {
        let mut entry = ImatrixEntry::default();
        entry.add(&[1.0], 1);
        entry.add(&[1.0, 1.0], 2);
    }
}
