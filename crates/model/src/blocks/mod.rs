//! The blocks of a layer, each in one file that reads like its equation.
//!
//! A block gets a [`Pass`]: the rows of this step, the buffers, and where weights and state are. It
//! adds its result to the residual stream and knows nothing of the other blocks.

mod alt_up;
mod attention;
mod conv;
mod delta_net;
mod head_gates;
mod history;
mod indexer;
mod join;
mod latent;
mod latent_heads;
mod laurel;
mod layer_embed;
mod mamba;
mod mamba2;
mod mlp;
mod moe;
mod ngrams;
mod norm;
mod residual;
mod routing;
mod scratch;
mod selection;
mod short_conv;
mod sparse;
mod streams;
mod taps;

use atta_kernels::{Kernels, Pool};
use atta_store::{ChunkGuard, WeightGroup};

use crate::{
    Error, Inputs, Model, Observer, Phase, Role, Row,
    adapters::Adapting,
    kv::Cache,
    members::Products,
    rope::RopeTables,
    seqs::{StateRuns, StateStep},
};

pub(crate) use alt_up::{
    add_to_other_streams, begin_alt_up, correct_streams, end_alt_up, predict_streams,
};
pub(crate) use attention::attention;
pub(crate) use delta_net::delta_net;
pub(crate) use indexer::IndexerScratch;
pub(crate) use join::join_states;
pub(crate) use laurel::{add_laurel, laurel};
pub(crate) use layer_embed::{layer_embedding, layer_inputs, scale_residual};
pub(crate) use mamba::mamba;
pub(crate) use mamba2::mamba2;
pub(crate) use mlp::{gated_mlp, plain_mlp};
pub(crate) use moe::{MoeScratch, mlp_and_moe, moe};
pub(crate) use ngrams::add_ngrams;
pub(crate) use norm::{Affine, Normalize, RowNorm};
pub(crate) use routing::Routing;
pub(crate) use scratch::{Scratch, ScratchSize};
pub(crate) use short_conv::short_conv;
pub(crate) use sparse::sparse_mlp;
pub(crate) use streams::{StreamsScratch, begin_streams, end_streams, enter_streams};
pub(crate) use taps::Taps;

/// The context of one step.
pub(crate) struct Pass<'a> {
    pub(crate) model: &'a Model,
    pub(crate) kernels: Kernels,
    pub(crate) pool: &'a Pool,
    /// Products with weights.
    pub(crate) products: Products<'a>,
    /// What adapters add to them.
    pub(crate) adapting: Adapting<'a>,
    pub(crate) rows: &'a [Row],
    /// Blocks of the recurrent states, one step per row; empty without recurrent layers.
    pub(crate) steps: &'a [StateStep],
    /// Runs of these rows.
    pub(crate) runs: &'a StateRuns,
    pub(crate) cache: &'a mut Cache,
    pub(crate) ropes: &'a RopeTables,
    pub(crate) s: &'a mut Scratch,
    pub(crate) observer: &'a mut dyn Observer,
    /// Hidden states that the batch wants.
    pub(crate) taps: Taps<'a>,
}

impl Pass<'_> {
    /// Reports to the observer that the current activations are multiplied with these matrices.
    pub(crate) fn observe_inputs(&mut self, layer: usize, roles: &[Role]) {
        let rows = self.s.act.rows();
        let d = self.s.act.d();
        self.observer.inputs(Inputs {
            layer,
            roles,
            expert: None,
            rows,
            d,
        });
    }

    /// Calls `multiply` with each chunk of a weight group, in order.
    pub(crate) fn each_chunk(
        &mut self,
        group: WeightGroup<'_>,
        mut multiply: impl FnMut(&mut Self, &ChunkGuard<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let weights = self.model.weights();
        let n = weights.n_chunks(group);
        for i in 0..n {
            self.observer.enter(Phase::Weights);
            let chunk = weights.chunk(group, i)?;
            self.observer.enter(Phase::Matmul);
            self.products.begin(group, n - i - 1);
            multiply(self, &chunk)?;
        }
        self.observer.enter(Phase::Other);
        Ok(())
    }
}
