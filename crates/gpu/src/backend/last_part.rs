//! The part of a model on a GPU: made anew when the GPU is lost, on the CPU in the end.
//!
//! The one idea: the CPU computes the same bits, so that a GPU which fails again and again costs a
//! text its speed and nothing else.

use super::{Divided, Lent};
use crate::cpu_part::{CpuPart, open_on_cpu};
use crate::{Error, GpuExecutor, PartFiles};
use atta_kernels::Kernels;
use atta_model::{Error as ModelError, Executor, ExecutorSize, Model};
use atta_store::Budget;
use std::sync::Arc;

/// Losses within a period from which on the CPU computes.
const MAX_LOSSES: usize = 2;

/// The last part of an executor, and what it takes to open it again.
pub(super) struct LastPart {
    backend: Arc<Divided>,
    model: Arc<Model>,
    size: ExecutorSize,
    budget: Budget,
    /// Whose bits it has computed.
    numerics: String,
    /// The weights in use; `None` on the CPU.
    lent: Option<Lent>,
}

impl LastPart {
    pub(super) fn new(
        backend: Arc<Divided>,
        model: Arc<Model>,
        size: ExecutorSize,
        budget: Budget,
    ) -> Self {
        Self {
            numerics: backend.kernels.isa().to_owned(),
            backend,
            model,
            size,
            budget,
            lent: None,
        }
    }

    /// An executor on the GPU.
    pub(super) fn with_weights(&mut self, lent: Lent) -> Result<Box<dyn Executor>, Error> {
        let weights = Arc::clone(&lent.weights);
        let isa = self.backend.kernels.isa();
        let executor = GpuExecutor::new(weights, &self.size, &lent.budget, isa)?;
        self.numerics = executor.info().numerics.clone();
        self.lent = Some(lent);
        Ok(Box::new(executor))
    }

    /// An executor in the place of one that was lost.
    pub(super) fn reopen(&mut self, loss: &ModelError) -> Result<Box<dyn Executor>, ModelError> {
        if let Some(lost) = self.lent.take() {
            let n_losses = self.backend.placed().lose(&lost.weights);
            drop(lost);
            let again = (n_losses < MAX_LOSSES).then(|| self.on_gpu());
            if let Some(Ok(again)) = again {
                return Ok(again);
            }
        }
        (self.backend.on_fallback)(loss);
        self.on_cpu()
    }

    fn on_gpu(&mut self) -> Result<Box<dyn Executor>, Error> {
        let lent = self.backend.weights(&self.model, &self.budget)?;
        self.with_weights(lent)
    }

    fn on_cpu(&self) -> Result<Box<dyn Executor>, ModelError> {
        let Divided { kernels, pool, .. } = &*self.backend;
        let spec = self.model.spec();
        let of = PartFiles {
            spec,
            part: &self.size.part_of(spec),
            files: self.model.weights().files(),
            adapters: self.model.adapters(),
        };
        let kernels = match self.numerics == kernels.isa() {
            true => *kernels,
            false => Kernels::named(&self.numerics)?,
        };
        let cpu = CpuPart {
            kernels,
            pool: Arc::clone(pool),
        };
        open_on_cpu(&of, &self.size, cpu, &self.budget)
    }
}
