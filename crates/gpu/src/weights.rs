//! The weights of a part of a model, on a GPU.
//!
//! It knows which matrices a layer has, and no computation. The one idea:
//! the part is bound a second time, its matrices are read once from the files, chunk by chunk, and
//! packed on the way, so that the weights on the GPU never lie in the memory of the CPU as a whole.

mod adapters;
mod place;

use crate::executor::OwnBuffer;
use crate::gpus::GPU_WEIGHTS;
use crate::quantize::NONE;
use crate::{
    ActLayout, ArenaPlan, Error, ExpertSlice, SharedHost, Slice, WeightFormat, upload_rows,
};
pub(crate) use adapters::{GpuAdapter, GpuExpertPair, GpuPair};
use atta_model::spec::{LatentUp, LayerSpec, ModelSpec};
use atta_model::{
    Adapter, AdapterSizes, BoundTensor, Error as ModelError, MatrixRows, Model, Role, Share,
};
use atta_store::{
    Budget, ChunkGuard, Error as StoreError, ModelFiles, Plan, Reservation, ResidencyPolicy,
    Streamed, WeightGroup, Weights,
};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a buffer of weights, at most.
const ARENA_BYTES: u64 = 1 << 30;

/// A matrix: its role, and its layer if it is not of the whole model.
pub(crate) type MatrixKey = (Role, Option<usize>);

/// The weights of some layers, and perhaps of the head.
#[derive(Debug)]
pub struct GpuWeights {
    host: SharedHost,
    /// The vectors of the part; its matrices are on the GPU.
    model: Model,
    part: Share,
    arenas: Vec<OwnBuffer>,
    placed: PlacedMatrices,
    adapters: Vec<GpuAdapter>,
    adapter_sizes: AdapterSizes,
    memory: Reservation,
}

/// A part of a model, and the files that have it.
#[derive(Clone, Copy, Debug)]
pub struct PartFiles<'a> {
    /// The model.
    pub spec: &'a ModelSpec,
    /// The part.
    pub part: &'a Share,
    /// The model's files.
    pub files: &'a ModelFiles,
    /// Adapters that rows may name.
    pub adapters: &'a Arc<[Adapter]>,
}

/// Where memory is counted.
#[derive(Clone, Copy, Debug)]
pub struct Budgets<'a> {
    /// That of this process.
    pub ram: &'a Budget,
    /// That of the GPU.
    pub gpu: &'a Budget,
}

/// A matrix in some buffers.
#[derive(Clone, Debug)]
pub(crate) struct GpuMatrix {
    pub(crate) format: WeightFormat,
    /// Multiplies its products.
    pub(crate) scale: f32,
    pub(crate) d_out: usize,
    pub(crate) d_in: usize,
    pub(crate) slices: Vec<Slice>,
    /// The matrix of the file that has its rows, and the bias of that.
    from: Role,
    bias: Option<Role>,
    rows: RowChoice,
    /// How its rows are made f32, if they are other ones in the file.
    decoded: Option<DecodedRows>,
}

/// Rows that are decoded when they are read.
#[derive(Clone, Copy, Debug)]
struct DecodedRows {
    /// Their format in the file.
    file: WeightFormat,
    /// What multiplies them.
    scale: f32,
}

/// The matrices of experts in some buffers, all of one shape.
#[derive(Clone, Debug)]
pub(crate) struct GpuExperts {
    pub(crate) format: WeightFormat,
    /// Rows of an expert.
    pub(crate) d_out: usize,
    pub(crate) d_in: usize,
    pub(crate) n_experts: usize,
    pub(crate) slices: Vec<ExpertSlice>,
    /// What multiplies the products of each; empty: nothing.
    scales: Vec<f32>,
    bias: Option<Role>,
}

/// Where the matrices of a part are.
#[derive(Clone, Debug, Default)]
struct PlacedMatrices {
    matrices: HashMap<MatrixKey, GpuMatrix>,
    /// Those of the heads of latent attention, which are multiplied by kernels of their own.
    heads: HashMap<MatrixKey, GpuMatrix>,
    experts: HashMap<MatrixKey, GpuExperts>,
}

/// Which rows of a matrix of a file are those of a matrix here: in each run of `n_all` rows the
/// `n` from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RowChoice {
    n: usize,
    n_all: usize,
    first: usize,
}

/// Rows of a file that are neighbours here, too.
struct RowRun {
    /// Rows of the file's matrix.
    file: Range<usize>,
    /// The first of them here.
    first: usize,
}

impl RowChoice {
    /// All of `n` rows.
    fn all(n: usize) -> Self {
        Self {
            n,
            n_all: n,
            first: 0,
        }
    }

    /// How many of `n` rows of a file are here.
    fn n_of(&self, n: usize) -> usize {
        n / self.n_all.max(1) * self.n
    }

    /// The row of the file that is row `i` here.
    fn row_of_file(&self, i: usize) -> usize {
        i / self.n * self.n_all + self.first + i % self.n
    }

    /// The rows among those of a file.
    fn runs(&self, file: Range<usize>) -> impl Iterator<Item = RowRun> {
        let Self { n, n_all, first } = *self;
        let runs = file.start / n_all..file.end.div_ceil(n_all);
        runs.filter_map(move |run| {
            let start = run * n_all + first;
            let rows = start.max(file.start)..(start + n).min(file.end);
            (!rows.is_empty()).then(|| RowRun {
                first: run * n + (rows.start - start),
                file: rows,
            })
        })
    }
}

impl GpuWeights {
    /// Reads the weights of a part from the model's files and writes them to the GPU.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::OutOfMemory`], weights that cannot be read.
    pub fn upload(
        host: &SharedHost,
        of: &PartFiles<'_>,
        budgets: &Budgets<'_>,
    ) -> Result<Self, Error> {
        let PartFiles {
            spec,
            part,
            files,
            adapters,
        } = *of;
        let Budgets { ram, gpu } = *budgets;
        let source = bind(
            spec,
            part,
            files.reopened(ram).map_err(store)?,
            ram,
            streamed,
        )?;
        let mut plan = ArenaPlan::new(host.info().buffer_bytes.min(ARENA_BYTES));
        let placed = place::matrices(&source, part, &mut plan)?;
        let adapted = adapters
            .iter()
            .map(|adapter| GpuAdapter::place(adapter, &placed, part, &mut plan))
            .collect::<Result<Vec<_>, _>>()?;
        let memory = gpu.reserve(GPU_WEIGHTS, plan.bytes().sum());
        let memory = memory.map_err(store)?;
        let made = plan.bytes().map(|bytes| OwnBuffer::new(host, bytes));
        let this = Self {
            arenas: made.collect::<Result<_, _>>()?,
            model: bind(
                spec,
                part,
                files.reopened(ram).map_err(store)?,
                ram,
                uploaded,
            )?,
            host: host.clone(),
            part: part.clone(),
            placed,
            adapters: adapted,
            adapter_sizes: AdapterSizes::of(adapters),
            memory,
        };
        source.read_matrices(part, &mut |rows| this.write_rows(rows))?;
        this.write_biases()?;
        this.write_tables()?;
        adapters
            .iter()
            .zip(&this.adapters)
            .try_for_each(|(from, to)| this.write_adapter(from, to))?;
        Ok(this)
    }

    /// The host that has them.
    pub fn host(&self) -> &SharedHost {
        &self.host
    }

    /// The part of the model.
    pub fn part(&self) -> &Share {
        &self.part
    }

    /// The spec, and the vectors of the part.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    pub(crate) fn matrix(&self, key: MatrixKey) -> Option<&GpuMatrix> {
        self.placed.matrices.get(&key)
    }

    /// The matrices of heads, `[n_heads, rows, d_in]`.
    pub(crate) fn heads(&self, key: MatrixKey) -> Option<&GpuMatrix> {
        self.placed.heads.get(&key)
    }

    pub(crate) fn experts(&self, key: MatrixKey) -> Option<&GpuExperts> {
        self.placed.experts.get(&key)
    }

    /// Its matrices, and those of adapters.
    fn all_placed(&self) -> impl Iterator<Item = &PlacedMatrices> {
        let adapters = self.adapters.iter().flat_map(GpuAdapter::factors);
        std::iter::once(&self.placed).chain(adapters)
    }

    /// The formats of all matrices but those of experts.
    pub(crate) fn formats(&self) -> impl Iterator<Item = WeightFormat> {
        let matrices = self
            .all_placed()
            .flat_map(|placed| placed.matrices.values());
        matrices.map(|matrix| matrix.format)
    }

    /// The formats of the matrices of heads that are multiplied as they are.
    pub(crate) fn head_formats(&self) -> impl Iterator<Item = WeightFormat> {
        let heads = self.placed.heads.values();
        heads
            .filter(|matrix| matrix.decoded.is_none())
            .map(|matrix| matrix.format)
    }

    /// The formats of the matrices of experts.
    pub(crate) fn expert_formats(&self) -> impl Iterator<Item = WeightFormat> {
        let experts = self.all_placed().flat_map(|placed| placed.experts.values());
        experts.map(|experts| experts.format)
    }

    /// The adapters that rows may name.
    pub(crate) fn adapters(&self) -> &[GpuAdapter] {
        &self.adapters
    }

    /// The layout of activations that a matrix is multiplied with, or those of experts.
    pub(crate) fn acts_of(&self, key: MatrixKey) -> Option<ActLayout> {
        let experts = || self.experts(key).map(|experts| experts.format);
        let format = self.matrix(key).map(|matrix| matrix.format);
        format.or_else(experts).map(WeightFormat::acts)
    }

    /// Divides the matrices of a layer that it has among these, and that read the same rows, into
    /// runs: those of a run have one format and lie whole in one buffer, and are at most three.
    pub(crate) fn runs(&self, l: usize, roles: &[Role]) -> Vec<Vec<Role>> {
        let mut runs: Vec<(Option<JoinedBy>, Vec<Role>)> = Vec::new();
        for &role in roles {
            let Some(matrix) = self.matrix((role, Some(l))) else {
                continue;
            };
            let by = matrix.joined_by();
            let is_open = |run: &&mut (Option<JoinedBy>, Vec<_>)| {
                by.is_some() && run.0 == by && run.1.len() < MAX_JOINED
            };
            match runs.iter_mut().find(is_open) {
                Some((_, run)) => run.push(role),
                None => runs.push((by, vec![role])),
            }
        }
        runs.into_iter().map(|(_, run)| run).collect()
    }

    /// Sizes that decide on the memory of a step with adapters.
    pub(crate) fn adapter_sizes(&self) -> &AdapterSizes {
        &self.adapter_sizes
    }

    /// A buffer of weights.
    pub(crate) fn arena(&self, arena: usize) -> crate::BufferId {
        self.arenas[arena].id()
    }

    /// A vector of the part.
    pub(crate) fn vector(&self, role: Role, layer: Option<usize>) -> Option<&[f32]> {
        match self.model.tensor(role, layer) {
            Some(BoundTensor::Vector(vector)) => Some(vector),
            _ => None,
        }
    }

    fn write_rows(&self, rows: &MatrixRows<'_>) -> Result<(), Error> {
        if let Some(e) = rows.expert {
            let experts = self.experts((rows.role, rows.layer));
            return match experts {
                Some(experts) => self.write_expert(experts, e, rows.bytes),
                None => Ok(()),
            };
        }
        let placed = &self.placed;
        let all = placed.matrices.iter().chain(&placed.heads);
        let of_rows = |((_, layer), matrix): &(&MatrixKey, &GpuMatrix)| {
            *layer == rows.layer && matrix.from == rows.role
        };
        for (_, matrix) in all.filter(of_rows) {
            self.write_matrix(matrix, rows.first, rows.bytes)?;
        }
        Ok(())
    }

    /// Writes those of the rows of a file, from row `first` on, that are a matrix's.
    fn write_matrix(&self, matrix: &GpuMatrix, first: usize, bytes: &[u8]) -> Result<(), Error> {
        let row_bytes = matrix.row_bytes();
        let end = first + bytes.len() / row_bytes;
        for run in matrix.rows.runs(first..end) {
            let start = (run.file.start - first) * row_bytes;
            let bytes = &bytes[start..][..run.file.len() * row_bytes];
            self.write_run(matrix, run.first, bytes)?;
        }
        Ok(())
    }

    /// Writes rows of a matrix from row `first` on.
    fn write_run(&self, matrix: &GpuMatrix, first: usize, bytes: &[u8]) -> Result<(), Error> {
        let row_bytes = matrix.row_bytes();
        let of_row = matrix.format.row_words(matrix.d_in);
        let end = first + bytes.len() / row_bytes;
        for slice in &matrix.slices {
            let here = first.max(slice.rows.start)..end.min(slice.rows.end);
            if here.is_empty() {
                continue;
            }
            let bytes = &bytes[(here.start - first) * row_bytes..][..here.len() * row_bytes];
            let word = slice.w + ((here.start - slice.rows.start) * of_row) as u32;
            let buffer = self.arena(slice.arena);
            let all = bytes.chunks_exact(row_bytes).map(|row| matrix.row(row));
            upload_rows(&mut *self.host.lock(), buffer, matrix.format, word, all)?;
        }
        Ok(())
    }

    /// Writes the matrix of an expert.
    fn write_expert(&self, experts: &GpuExperts, e: usize, bytes: &[u8]) -> Result<(), Error> {
        let here = |slice: &&ExpertSlice| slice.experts.contains(&e);
        let Some(slice) = experts.slices.iter().find(here) else {
            return Ok(());
        };
        let first = experts.first_word(slice, e);
        let buffer = self.arena(slice.arena);
        let all = bytes.chunks_exact(row_bytes(experts.format, experts.d_in));
        upload_rows(&mut *self.host.lock(), buffer, experts.format, first, all)
    }

    fn write_biases(&self) -> Result<(), Error> {
        for (&(_, layer), matrix) in &self.placed.matrices {
            let Some(bias) = matrix.bias.and_then(|bias| self.vector(bias, layer)) else {
                continue;
            };
            for slice in &matrix.slices {
                let Some(at) = slice.bias else { continue };
                let rows = slice.rows.clone();
                let words = rows.map(|i| bias[matrix.rows.row_of_file(i)].to_bits());
                self.write_words(slice.arena, at, words)?;
            }
        }
        Ok(())
    }

    /// Writes the tables and the biases of experts.
    fn write_tables(&self) -> Result<(), Error> {
        for (&(_, layer), experts) in self.all_placed().flat_map(|placed| &placed.experts) {
            let bias = experts.bias.and_then(|bias| self.vector(bias, layer));
            for slice in &experts.slices {
                let words = (0..experts.n_experts).flat_map(|e| experts.entry(slice, e));
                self.write_words(slice.arena, slice.table, words)?;
                if let Some((at, bias)) = slice.bias.zip(bias) {
                    let words = bias.iter().map(|x| x.to_bits());
                    self.write_words(slice.arena, at, words)?;
                }
            }
        }
        Ok(())
    }

    fn write_words(
        &self,
        arena: usize,
        at: u32,
        words: impl Iterator<Item = u32>,
    ) -> Result<(), Error> {
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        let buffer = self.arena(arena);
        self.host.lock().write(buffer, 4 * u64::from(at), &bytes)
    }
}

/// The most matrices of a run.
const MAX_JOINED: usize = 3;

/// What matrices of a run have in common: format and buffer.
type JoinedBy = (WeightFormat, usize);

/// Bytes of a row in a file.
fn row_bytes(format: WeightFormat, d_in: usize) -> usize {
    format.tensor_type().row_bytes(d_in).unwrap_or(1).max(1)
}

impl GpuMatrix {
    /// Bytes of a row in its file.
    fn row_bytes(&self) -> usize {
        let file = self.decoded.map_or(self.format, |decoded| decoded.file);
        row_bytes(file, self.d_in)
    }

    /// A row of the file, decoded if the matrix is.
    fn row<'a>(&self, row: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(DecodedRows { file, scale }) = self.decoded else {
            return Cow::Borrowed(row);
        };
        let mut floats = vec![0.0; self.d_in];
        atta_formats::decode(file.tensor_type(), row, &mut floats)
            .expect("every type with a kernel has a codec");
        if scale != 1.0 {
            floats.iter_mut().for_each(|x| *x *= scale);
        }
        Cow::Owned(floats.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// What it can be joined by, if it lies whole in a buffer and no factor multiplies it.
    fn joined_by(&self) -> Option<JoinedBy> {
        match &self.slices[..] {
            [slice] if self.scale == 1.0 => Some((self.format, slice.arena)),
            _ => None,
        }
    }
}

impl GpuExperts {
    /// The first word of the matrix of expert `e` of a slice.
    fn first_word(&self, slice: &ExpertSlice, e: usize) -> u32 {
        let of_expert = self.d_out * self.format.row_words(self.d_in);
        slice.w + ((e - slice.experts.start) * of_expert) as u32
    }

    /// The entry of expert `e` in the table of a slice.
    fn entry(&self, slice: &ExpertSlice, e: usize) -> [u32; ExpertSlice::TABLE_WORDS] {
        let is_here = slice.experts.contains(&e);
        let first = if is_here {
            self.first_word(slice, e)
        } else {
            NONE
        };
        let scale = self.scales.get(e).copied().unwrap_or(1.0);
        [first, scale.to_bits()]
    }
}

/// Bytes of the tables of the experts of some layers, each with what one more buffer needs.
pub(crate) fn table_bytes(spec: &ModelSpec, layers: &Range<usize>) -> u64 {
    let moes = spec.layers[layers.clone()]
        .iter()
        .filter_map(LayerSpec::moe);
    let n_words = moes.map(|m| 2 * 3 * ExpertSlice::TABLE_WORDS * m.n_experts);
    4 * n_words.sum::<usize>() as u64
}

/// Bytes of the matrices of heads that are decoded here, of some layers.
pub(crate) fn decoded_bytes(spec: &ModelSpec, layers: &Range<usize>) -> u64 {
    let layers = spec.layers[layers.clone()].iter();
    let n_floats = layers.filter_map(LayerSpec::attention).map(|a| {
        let joint = a.latent().filter(|latent| latent.up == LatentUp::Joint);
        joint.map_or(0, |latent| a.n_heads * latent.d_key * latent.d_latent)
    });
    4 * n_floats.sum::<usize>() as u64
}

/// Makes the source of weights.
type MakeSource = fn(ModelFiles, Plan, &Budget) -> Result<Box<dyn Weights>, StoreError>;

fn bind(
    spec: &ModelSpec,
    part: &Share,
    files: ModelFiles,
    ram: &Budget,
    source: MakeSource,
) -> Result<Model, Error> {
    let source = |files, plan| source(files, plan, ram).map_err(ModelError::from);
    let spec = spec.clone();
    Ok(Model::with_share(spec, part.clone(), files, ram, source)?)
}

/// Weights that pass through a small ring.
fn streamed(files: ModelFiles, plan: Plan, ram: &Budget) -> Result<Box<dyn Weights>, StoreError> {
    // Two experts of a layer: one is packed while the other is read.
    let least = ResidencyPolicy::least_bytes(&plan, 2);
    let policy = ResidencyPolicy::within(&plan, 2, least).unwrap_or(ResidencyPolicy::whole());
    Ok(Box::new(Streamed::new(files, plan, &policy, ram)?))
}

/// Weights that are on the GPU.
fn uploaded(files: ModelFiles, _: Plan, _: &Budget) -> Result<Box<dyn Weights>, StoreError> {
    Ok(Box::new(Uploaded(files)))
}

/// The source of weights that nothing reads any more.
struct Uploaded(ModelFiles);

impl Weights for Uploaded {
    fn chunk<'a>(&'a self, _: WeightGroup<'a>, _: usize) -> Result<ChunkGuard<'a>, StoreError> {
        Err(StoreError::NotInPlan)
    }

    fn files(&self) -> &ModelFiles {
        &self.0
    }
}

/// An error of the store.
fn store(error: StoreError) -> Error {
    Error::Model(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_file_are_found_in_runs() {
        let second = RowChoice {
            n: 3,
            n_all: 6,
            first: 3,
        };
        for file in [0..18, 4..14, 5..10, 0..3] {
            let runs = second.runs(file.clone());
            let got: Vec<_> = runs.flat_map(|run| run.file.zip(run.first..)).collect();
            let rows = (0..9).map(|i| (second.row_of_file(i), i));
            let expected: Vec<_> = rows.filter(|(row, _)| file.contains(row)).collect();
            assert_eq!(got, expected, "{file:?}");
        }
        let all: Vec<_> = RowChoice::all(7).runs(2..5).collect();
        assert_eq!((all.len(), &all[0].file, all[0].first), (1, &(2..5), 2));
    }
}
