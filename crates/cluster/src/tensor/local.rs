//! Members in threads of this process.
//!
//! Every member has a model of its own with its rows, state and threads, as on another machine. It
//! is the way to try a division, and what tests of exactness run on.

use std::{num::NonZeroUsize, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_model::{Cpu, Error, ExecutorSize, Model};
use atta_store::Budget;

use super::{LinkExchange, ThreadLinks};

/// Opens members that are linked in this process, to be started as a
/// [`TensorExecutor`](super::TensorExecutor).
#[derive(Clone, Copy, Debug)]
pub struct LocalMembers {
    /// The instruction set of all.
    pub kernels: Kernels,
    /// Threads of each member.
    pub n_threads: NonZeroUsize,
}

impl LocalMembers {
    /// Opens an executor for each of these models, in the order of their members.
    ///
    /// # Errors
    /// Models that are not all members of one division, an exceeded budget.
    pub fn open(
        &self,
        models: &[Arc<Model>],
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Vec<Cpu>, Error> {
        let first = models.first().and_then(|model| model.member());
        let is_in_place = |(i, model): (usize, &Arc<Model>)| {
            let member = model.member();
            let is_next = member.is_some_and(|m| m.index() == i);
            is_next && member.map(|m| m.split()) == first.map(|m| m.split())
        };
        let n_members = first.map_or(0, |m| m.split().n_members());
        if n_members == 0
            || models.len() != n_members
            || !models.iter().enumerate().all(is_in_place)
        {
            return Err(Error::Options(format!(
                "{} models that are not the members of one division",
                models.len()
            )));
        }
        let open = |(index, (model, links)): (usize, (&Arc<Model>, ThreadLinks))| {
            let pool = Arc::new(Pool::new(self.n_threads));
            let exchange = Box::new(LinkExchange::new(links, index));
            let size = size.clone();
            Cpu::new_member(model.clone(), self.kernels, pool, budget, size, exchange)
        };
        let links = ThreadLinks::mesh(models.len());
        models.iter().zip(links).enumerate().map(open).collect()
    }
}
