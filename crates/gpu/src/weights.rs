//! The weights of a part of a model, on a GPU.
//!
//! It knows which matrices a layer has, and no computation. The one idea:
//! the part is bound a second time, its matrices are read once from the files, chunk by chunk, and
//! packed on the way, so that the weights on the GPU never lie in the memory of the CPU as a whole.

use crate::executor::OwnBuffer;
use crate::gpus::GPU_WEIGHTS;
use crate::{ArenaPlan, Error, MatrixShape, SharedHost, Slice, WeightFormat, upload_rows};
use atta_model::spec::ModelSpec;
use atta_model::{BoundTensor, Error as ModelError, MatrixRows, Model, Role, Share};
use atta_store::{
    Budget, ChunkGuard, Error as StoreError, ModelFiles, Plan, Reservation, ResidencyPolicy,
    Streamed, WeightGroup, Weights,
};
use std::collections::HashMap;
use std::ops::Range;

/// Bytes of a buffer of weights, at most.
const ARENA_BYTES: u64 = 1 << 30;

/// The matrices of a layer, and the roles of their biases.
const OF_LAYER: [(Role, Role); 7] = [
    (Role::AttnQ, Role::AttnQBias),
    (Role::AttnK, Role::AttnKBias),
    (Role::AttnV, Role::AttnVBias),
    (Role::AttnOutput, Role::AttnOutputBias),
    (Role::FfnGate, Role::FfnGateBias),
    (Role::FfnUp, Role::FfnUpBias),
    (Role::FfnDown, Role::FfnDownBias),
];

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
    matrices: HashMap<MatrixKey, GpuMatrix>,
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
        let PartFiles { spec, part, files } = *of;
        let Budgets { ram, gpu } = *budgets;
        let source = bind(
            spec,
            part,
            files.reopened(ram).map_err(store)?,
            ram,
            streamed,
        )?;
        let mut plan = ArenaPlan::new(host.info().buffer_bytes.min(ARENA_BYTES));
        let matrices = place(&source, part, &mut plan)?;
        let memory = gpu.reserve(GPU_WEIGHTS, plan.bytes().sum());
        let memory = memory.map_err(store)?;
        let made = plan.bytes().map(|bytes| OwnBuffer::new(host, bytes));
        let mut this = Self {
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
            matrices,
            memory,
        };
        source.read_matrices(part, &mut |rows| this.write_rows(rows))?;
        this.write_biases()?;
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
        self.matrices.get(&key)
    }

    pub(crate) fn matrices(&self) -> impl Iterator<Item = &GpuMatrix> {
        self.matrices.values()
    }

    /// The buffer of a slice.
    pub(crate) fn arena(&self, slice: &Slice) -> crate::BufferId {
        self.arenas[slice.arena].id()
    }

    /// A vector of the part.
    pub(crate) fn vector(&self, role: Role, layer: Option<usize>) -> Option<&[f32]> {
        match self.model.tensor(role, layer) {
            Some(BoundTensor::Vector(vector)) => Some(vector),
            _ => None,
        }
    }

    fn write_rows(&mut self, rows: &MatrixRows<'_>) -> Result<(), Error> {
        let Some(matrix) = self.matrices.get(&(rows.role, rows.layer)) else {
            return Ok(());
        };
        let row_bytes = rows.ty.row_bytes(rows.d_in).unwrap_or(1);
        let of_row = matrix.format.row_words(rows.d_in);
        let end = rows.first + rows.bytes.len() / row_bytes;
        let mut host = self.host.lock();
        for slice in &matrix.slices {
            let here = rows.first.max(slice.rows.start)..end.min(slice.rows.end);
            if here.is_empty() {
                continue;
            }
            let bytes = bytes_of(&here, rows, row_bytes);
            let first = slice.w + ((here.start - slice.rows.start) * of_row) as u32;
            let buffer = self.arenas[slice.arena].id();
            let all = bytes.chunks_exact(row_bytes);
            upload_rows(&mut *host, buffer, matrix.format, first, all)?;
        }
        Ok(())
    }

    fn write_biases(&self) -> Result<(), Error> {
        for (&(role, layer), matrix) in &self.matrices {
            let Some(bias) = bias_role(role).and_then(|bias| self.vector(bias, layer)) else {
                continue;
            };
            for slice in &matrix.slices {
                let Some(at) = slice.bias else { continue };
                let bytes = bias[slice.rows.clone()]
                    .iter()
                    .flat_map(|x| x.to_le_bytes());
                let bytes: Vec<u8> = bytes.collect();
                let buffer = self.arenas[slice.arena].id();
                self.host.lock().write(buffer, 4 * u64::from(at), &bytes)?;
            }
        }
        Ok(())
    }
}

/// The bytes of some of the rows.
fn bytes_of<'a>(here: &Range<usize>, rows: &MatrixRows<'a>, row_bytes: usize) -> &'a [u8] {
    let first = (here.start - rows.first) * row_bytes;
    &rows.bytes[first..first + here.len() * row_bytes]
}

fn bias_role(role: Role) -> Option<Role> {
    let mut biases = OF_LAYER.iter().chain(&[(Role::Output, Role::OutputBias)]);
    biases
        .find(|(matrix, _)| *matrix == role)
        .map(|(_, bias)| *bias)
}

/// Places all matrices of a part.
fn place(
    model: &Model,
    part: &Share,
    plan: &mut ArenaPlan,
) -> Result<HashMap<MatrixKey, GpuMatrix>, Error> {
    let mut matrices = HashMap::new();
    for l in part.layers.clone() {
        for (role, bias) in OF_LAYER {
            if let Some(tensor) = model.tensor(role, Some(l)) {
                let has_bias = model.tensor(bias, Some(l)).is_some();
                matrices.insert((role, Some(l)), place_one(&tensor, has_bias, plan)?);
            }
        }
    }
    if part.head {
        let own = model.tensor(Role::Output, None);
        let head = own.or_else(|| model.tensor(Role::TokenEmbd, None));
        let head = head.ok_or_else(|| Error::Unsupported("it has no head".to_owned()))?;
        let has_bias = model.tensor(Role::OutputBias, None).is_some();
        let mut head = place_one(&head, has_bias, plan)?;
        if model.tensor(Role::Output, None).is_none() {
            head.scale = 1.0;
        }
        matrices.insert((Role::Output, None), head);
    }
    Ok(matrices)
}

fn place_one(
    tensor: &BoundTensor<'_>,
    has_bias: bool,
    plan: &mut ArenaPlan,
) -> Result<GpuMatrix, Error> {
    let BoundTensor::Matrix {
        ty,
        d_out,
        d_in,
        scales,
        ..
    } = *tensor
    else {
        return Err(Error::Unsupported(
            "a vector in the place of a matrix".to_owned(),
        ));
    };
    let format = WeightFormat::of(ty);
    let format = format.ok_or_else(|| Error::Unsupported(format!("matrices of type {ty:?}")))?;
    let slices = plan.matrix(MatrixShape {
        format,
        d_out,
        d_in,
        has_bias,
    })?;
    Ok(GpuMatrix {
        format,
        scale: scales.first().copied().unwrap_or(1.0),
        d_out,
        d_in,
        slices,
    })
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
    let least = ResidencyPolicy::least_bytes(&plan, 0);
    let policy = ResidencyPolicy::within(&plan, 0, least).unwrap_or(ResidencyPolicy::whole());
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
