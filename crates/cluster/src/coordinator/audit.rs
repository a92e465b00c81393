//! What an audit asks of a plan: memory of this machine, and machines whose rows may be compared.

use atta_model::{ExecutorSize, spec::ModelSpec};
use atta_store::ModelFiles;

use super::{Coordinator, PlanError, Survey, SurveyedNode};
use crate::{AuditOptions, SizedModel, control::NodeName, remote::audit_ram_bytes};

/// Groups of weights that are read from disk at a time where an audit has little memory.
const N_LAYERS_IN_MEMORY: u64 = 2;

impl Coordinator {
    /// Keeps memory of this machine for an audit, bytes, and leaves machines out whose rows may
    /// differ though they are right.
    ///
    /// # Errors
    /// Too little memory.
    pub fn reserve_audit(
        &mut self,
        survey: &mut Survey,
        model: &SizedModel,
        size: &ExecutorSize,
        options: &mut AuditOptions,
    ) -> Result<u64, PlanError> {
        if !model.is_exact {
            survey.leave_out(|node| node.card.isa != self.kernels.isa())?;
        }
        let layers = &model.sizes.layers;
        let all: u64 = layers.iter().map(|layer| layer.weight_bytes).sum();
        let largest = layers.iter().map(|layer| layer.weight_bytes).max();
        let least = N_LAYERS_IN_MEMORY.saturating_mul(largest.unwrap_or(0));
        options.weights_bytes = least.min(all);
        let bytes = self.audit_bytes(survey, &model.spec, size, options);
        self.ram_bytes = self.ram_bytes.checked_sub(bytes).ok_or(PlanError::Audit {
            needed_bytes: bytes,
            free_bytes: self.ram_bytes,
        })?;
        if let Some(this) = survey.measures.nodes.first_mut() {
            this.ram_bytes = self.ram_bytes;
        }
        Ok(bytes)
    }

    fn audit_bytes(
        &self,
        survey: &Survey,
        spec: &ModelSpec,
        size: &ExecutorSize,
        options: &AuditOptions,
    ) -> u64 {
        let n_stages = survey.measures.nodes.len().saturating_sub(1);
        audit_ram_bytes(spec, n_stages, size, options, self.pool.n_threads())
    }
}

impl Survey {
    /// Uses no node that rounds otherwise than this machine.
    fn leave_out(&mut self, is_unlike: impl Fn(&SurveyedNode) -> bool) -> Result<(), PlanError> {
        let why = "an audit compares bits, and its instruction set rounds these weights otherwise";
        for node in &mut self.nodes {
            if node.unfit.is_none() && is_unlike(node) {
                node.unfit = Some(why.to_owned());
            }
        }
        let fit = self.nodes.iter().filter(|node| node.unfit.is_none());
        let names: Vec<NodeName> = fit.map(|node| node.address.name.clone()).collect();
        self.measures = self.only(&names)?.0;
        Ok(())
    }
}

/// Whether all instruction sets compute the same bits of a model's layers: matrices of quantized
/// weights, that is, since others are added up in an order that depends on the width of registers.
pub fn is_exact_everywhere(files: &ModelFiles) -> bool {
    let tensors = files.directory().tensors().iter();
    let mut matrices = tensors.filter(|tensor| {
        let n_dims = tensor.shape.dims().len();
        n_dims > 1 && tensor.name.starts_with("blk.")
    });
    matrices.all(|tensor| tensor.ty.block_len() > 1)
}
