//! The sizes of a real model, as the planner wants them: from its spec and its list of tensors.
//! Reads no weights.

use atta_model::{
    Cpu, Error, ExecutorSize, ModelCost, PartCost, Role, Share,
    spec::{LayerSpec, ModelSpec, Retention, StateKind},
};
use atta_store::ModelFiles;

use crate::{
    cut::{check_ring, journal_bytes},
    plan::{LayerSizes, ModelSizes},
};

/// Threads for which activations are counted: those of a small machine.
const N_THREADS: usize = 4;

/// The sizes of a model for executors of this size; callers know what they have for logits. All
/// layers may be cut apart where rings can be; a model that no ring runs may be cut nowhere.
///
/// # Errors
/// A file that has not exactly the tensors of the model.
pub fn model_sizes(
    spec: &ModelSpec,
    files: &ModelFiles,
    size: &ExecutorSize,
) -> Result<ModelSizes, Error> {
    let ModelCost {
        layers,
        embed,
        head,
        shared,
        ..
    } = ModelCost::of(spec, files.directory())?;
    let whole = ExecutorSize {
        part: None,
        ..size.clone()
    };
    let is_ring = check_ring(spec, &whole).is_ok();
    let kv = spec.state_bytes(size.kv, 1);
    let of_layer = |(l, cost): (usize, &PartCost)| LayerSizes {
        weight_bytes: cost.bytes,
        row_bytes: cost.row_bytes,
        macs: cost.macs,
        kv_bytes: kv[l],
        window: window(&spec.layers[l], size),
        state_bytes: 4 * spec.state_floats(l) as u64,
        may_cut_before: is_ring && spec.may_cut_before(l),
    };
    let activations = Activations::of(spec, size);
    let is_tied = files.directory().tensor(Role::Output.name()).is_none();
    let tied_bytes = if is_tied { embed.bytes } else { 0 };
    Ok(ModelSizes {
        layers: layers.iter().enumerate().map(of_layer).collect(),
        embed_bytes: embed.bytes,
        head_bytes: head.bytes,
        head_read_bytes: head.bytes + tied_bytes,
        head_macs: head.macs,
        d_model: spec.d_residual() as u64,
        scratch_row_bytes: activations.row_bytes,
        fixed_bytes: activations.fixed_bytes + shared.bytes,
        n_states: size.n_checkpoints as u64 + 1,
        journal_bytes: journal_bytes(spec, size),
        output_bytes: 0,
    })
}

/// The positions that a layer with a window keeps; `None`: all.
fn window(layer: &LayerSpec, size: &ExecutorSize) -> Option<u64> {
    let kinds = layer.state_kinds().filter_map(|kind| match kind {
        StateKind::Kv(retention) => Some(retention),
        StateKind::Recurrent => None,
    });
    let windows = kinds.filter_map(|retention| match retention {
        // A shorter rest behind an evicted range reaches in front of it.
        Retention::Window(n) if size.n_recent.is_none_or(|n_recent| n_recent >= n) => {
            Some(n as u64)
        }
        Retention::Window(_) | Retention::All | Retention::Text => None,
    });
    windows.min()
}

/// The memory of a step: `fixed_bytes + row_bytes · rows`.
struct Activations {
    row_bytes: u64,
    fixed_bytes: u64,
}

impl Activations {
    /// The line through the memory of a batch and of one twice as large.
    fn of(spec: &ModelSpec, size: &ExecutorSize) -> Self {
        let bytes = |n_batch: usize| {
            let size = ExecutorSize {
                n_batch,
                part: Some(Share::of_layers(spec, 0..0)),
                ..size.clone()
            };
            Cpu::executor_bytes(spec, N_THREADS, &size).activations
        };
        let n_rows = size.n_batch.max(1);
        let small = bytes(n_rows);
        let large = bytes(2 * n_rows);
        let row_bytes = large.saturating_sub(small).div_ceil(n_rows as u64);
        Self {
            row_bytes,
            fixed_bytes: small.saturating_sub(row_bytes * n_rows as u64),
        }
    }
}
