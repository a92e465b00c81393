//! How a model is divided between the CPU and a GPU, before anything of it is read.
//!
//! It knows descriptions and sizes, and no device.

use crate::support::{Runnable, runnable};
use crate::weights::{decoded_bytes, table_bytes};
use crate::{Error, GpuExecutor, WeightFormat, check_support};
use atta_formats::{Directory, TensorInfo};
use atta_model::spec::ModelSpec;
use atta_model::{Error as ModelError, ExecutorSize, KvType, Share};

/// How a model is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuShare {
    /// The last layers, which run on the GPU with the head.
    pub n_layers: usize,
}

impl GpuShare {
    /// The layers before, and the embedding.
    pub fn on_cpu(self, spec: &ModelSpec) -> Share {
        Share {
            layers: 0..self.first(spec),
            embed: true,
            head: false,
        }
    }

    /// The last layers, and the head.
    pub fn on_gpu(self, spec: &ModelSpec) -> Share {
        Share {
            layers: self.first(spec)..spec.layers.len(),
            embed: false,
            head: true,
        }
    }

    fn first(self, spec: &ModelSpec) -> usize {
        spec.layers.len().saturating_sub(self.n_layers)
    }

    /// Checks that a model can be divided so, and that GPUs can run their part.
    ///
    /// # Errors
    /// [`Error::Unsupported`], and layers that read those of the other part.
    pub fn check(self, spec: &ModelSpec, kv: KvType, directory: &Directory) -> Result<(), Error> {
        let part = self.on_gpu(spec);
        check_support(spec, &part, kv, directory)?;
        Ok(spec.check_separable(&part.layers)?)
    }
}

/// What a user wants to lie on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuWish {
    /// The last layers; `None`: as many as fit.
    pub n_layers: Option<usize>,
    /// Memory on the GPU; `None`: no limit but its own.
    pub max_bytes: Option<u64>,
}

/// A model that is divided, before anything of it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuPlan {
    /// Layers on the GPU.
    pub share: GpuShare,
    /// Layers of the model.
    pub n_layers: usize,
    /// Memory on the GPU, as the file's tensors and the executor say.
    pub bytes: u64,
    /// The part of it that is weights.
    pub weight_bytes: u64,
    /// Why GPUs cannot run more layers, if they cannot.
    pub why_not_more: Option<String>,
}

impl GpuPlan {
    /// Divides the model of a file as a user wants it, for executors of a size.
    ///
    /// # Errors
    /// [`Error::Unsupported`], more layers than there are.
    pub fn of(
        spec: &ModelSpec,
        directory: &Directory,
        wish: &GpuWish,
        size: &ExecutorSize,
    ) -> Result<Self, Error> {
        let n_layers = spec.layers.len();
        if let Some(n) = wish.n_layers.filter(|&n| n > n_layers) {
            let what = format!("{n} layers of a model of {n_layers}");
            return Err(ModelError::Options(what).into());
        }
        let sizes = PlanSizes {
            directory,
            spec,
            size,
        };
        let fits = |n: &usize| wish.max_bytes.is_none_or(|most| sizes.bytes(*n) <= most);
        let mut why_not_more = None;
        let n_on_gpu = match wish.n_layers {
            Some(n) => n,
            None => {
                let Runnable { n_layers, why } = runnable(spec, size.kv, directory);
                match why {
                    Some(why) if n_layers == 0 => return Err(why),
                    why => why_not_more = why.map(|why| why.to_string()),
                }
                (0..=n_layers).rev().find(fits).unwrap_or(0)
            }
        };
        let share = GpuShare { n_layers: n_on_gpu };
        share.check(spec, size.kv, directory)?;
        Ok(Self {
            share,
            n_layers,
            bytes: sizes.bytes(share.n_layers),
            weight_bytes: sizes.weights(share.n_layers),
            why_not_more,
        })
    }
}

/// The sizes of a model and an executor.
struct PlanSizes<'a> {
    directory: &'a Directory,
    spec: &'a ModelSpec,
    size: &'a ExecutorSize,
}

impl PlanSizes<'_> {
    /// Memory of the weights of the last `n` layers and the head.
    fn weights(&self, n: usize) -> u64 {
        let part = GpuShare { n_layers: n }.on_gpu(self.spec);
        let tensors = part.tensors(self.spec, self.directory);
        let tensors: u64 = tensors.iter().flatten().map(|t| bytes_of(t)).sum();
        let made = table_bytes(self.spec, &part.layers) + decoded_bytes(self.spec, &part.layers);
        tensors.saturating_add(made)
    }

    /// The same with their state and activations.
    fn bytes(&self, n: usize) -> u64 {
        let part = GpuShare { n_layers: n }.on_gpu(self.spec);
        let size = ExecutorSize {
            part: Some(part),
            ..self.size.clone()
        };
        let executor = GpuExecutor::executor_bytes(self.spec, &size).unwrap_or_default();
        let both = executor.state.saturating_add(executor.activations);
        self.weights(n).saturating_add(both)
    }
}

/// Bytes of a tensor on a GPU, where some formats take more than in a file.
fn bytes_of(tensor: &TensorInfo) -> u64 {
    let n = tensor.shape.n_elements();
    let d_in = tensor.shape.dims().last().copied().unwrap_or(1).max(1);
    match WeightFormat::of(tensor.ty) {
        Some(format) if d_in < n => 4 * format.row_words(d_in as usize) as u64 * (n / d_in),
        _ => 4 * n,
    }
}
