//! The second set of layers of a coordinator that audits: what it takes, and how it is opened.

use std::ops::Range;

use atta_model::{Cpu, Error, Executor, ExecutorBytes, ExecutorSize, Share, spec::ModelSpec};

use super::{RemotePlan, former::RemoteFormer};
use crate::{AuditLayers, AuditOptions};

/// Some layers of an audited ring, by where they begin to be bound apart.
struct AuditCut {
    /// Ranges in order; the first one embeds tokens and may be empty.
    pieces: Vec<Range<usize>>,
    /// Of each stage, the number of pieces in front of its layers.
    starts: Vec<usize>,
}

impl AuditCut {
    /// The layers of a plan, cut before layer `n_bound` too.
    fn new(plan: &RemotePlan, n_bound: usize) -> Self {
        let stages = plan.stages.iter().map(|stage| stage.layers.clone());
        Self::of(plan.n_local, stages, n_bound)
    }

    fn of(n_local: usize, stages: impl Iterator<Item = Range<usize>>, n_bound: usize) -> Self {
        let n_first = n_local.min(n_bound);
        let mut cut = Self {
            pieces: Vec::new(),
            starts: Vec::new(),
        };
        cut.pieces.push(0..n_first);
        cut.push(n_first..n_local, n_bound);
        for layers in stages {
            cut.starts.push(cut.pieces.len());
            cut.push(layers, n_bound);
        }
        cut
    }

    fn push(&mut self, layers: Range<usize>, n_bound: usize) {
        let middle = n_bound.clamp(layers.start, layers.end);
        let parts = [layers.start..middle, middle..layers.end];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        self.pieces.extend(parts);
    }
}

/// The size of an executor of a piece that embeds no tokens.
fn piece_size(size: &ExecutorSize, options: &AuditOptions, layers: Range<usize>) -> ExecutorSize {
    let n_seqs = options.n_seqs(size.n_seqs);
    let all = size.n_ctx.saturating_mul(n_seqs);
    ExecutorSize {
        part: Some(Share {
            layers,
            embed: false,
            head: false,
        }),
        n_seqs,
        n_flights: 1,
        n_recent: None,
        n_shared: size.n_shared.map(|n| n.min(all)),
        ..size.clone()
    }
}

/// Memory of the executors, and the bytes that are kept for weights.
pub(crate) fn audit_bytes(
    spec: &ModelSpec,
    plan: &RemotePlan,
    size: &ExecutorSize,
    options: &AuditOptions,
    n_threads: usize,
) -> ExecutorBytes {
    let cut = AuditCut::new(plan, plan.n_local);
    bytes_of(cut, spec, size, options, n_threads)
}

/// Memory that an audit takes on the coordinator of so many stages, wherever they begin, bytes.
pub(crate) fn audit_ram_bytes(
    spec: &ModelSpec,
    n_stages: usize,
    size: &ExecutorSize,
    options: &AuditOptions,
    n_threads: usize,
) -> u64 {
    let n_layers = spec.layers.len();
    let n = n_stages.clamp(1, n_layers.max(1));
    let stages = (0..n).map(|i| i * n_layers / n..(i + 1) * n_layers / n);
    let bytes = bytes_of(AuditCut::of(0, stages, 0), spec, size, options, n_threads);
    bytes.state.saturating_add(bytes.activations)
}

fn bytes_of(
    cut: AuditCut,
    spec: &ModelSpec,
    size: &ExecutorSize,
    options: &AuditOptions,
    n_threads: usize,
) -> ExecutorBytes {
    let pieces = cut.pieces.into_iter();
    let bytes = pieces.map(|layers| {
        let size = piece_size(size, options, layers);
        Cpu::executor_bytes(spec, n_threads, &size)
    });
    let weights = ExecutorBytes {
        state: options.weights_bytes,
        activations: 0,
    };
    bytes.fold(weights, |sum, bytes| ExecutorBytes {
        state: sum.state.saturating_add(bytes.state),
        activations: sum.activations.saturating_add(bytes.activations),
    })
}

impl RemoteFormer {
    /// All layers of a plan once more, if it is to be audited and has stages.
    ///
    /// # Errors
    /// Too little memory, files that cannot be read.
    pub(super) fn audit_layers(&mut self, plan: &RemotePlan) -> Result<Option<AuditLayers>, Error> {
        let Some(options) = self.audit_options().filter(|_| !plan.stages.is_empty()) else {
            return Ok(None);
        };
        let n_layers = self.room.model.spec().layers.len();
        let n_bound = self.room.model.share().layers.end;
        let cut = AuditCut::new(plan, n_bound);
        let first = &cut.pieces[0];
        let rest = match self.rest.take() {
            Some(rest) => rest,
            None => self.bind(&(n_bound..n_layers)).map_err(|error| {
                Error::Ring(format!(
                    "an audit computes the layers of other machines here, too: {error}"
                ))
            })?,
        };
        let mut executors: Vec<Box<dyn Executor>> = Vec::new();
        let size = |layers: &Range<usize>| piece_size(&self.room.size, &options, layers.clone());
        let mut first_size = size(first);
        first_size.part = Some(Share {
            layers: first.clone(),
            embed: true,
            head: false,
        });
        executors.push(self.executor(&self.room.model, first_size)?);
        for layers in &cut.pieces[1..] {
            let model = match layers.start < n_bound {
                true => &self.room.model,
                false => &rest.model,
            };
            executors.push(self.executor(model, size(layers))?);
        }
        self.rest = Some(rest);
        Ok(Some(AuditLayers {
            executors,
            starts: cut.starts,
            n_seqs: options.n_seqs(self.room.size.n_seqs),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StageNode, control::NodeName, wire::message::NodeAddress};

    fn plan(n_local: usize, ends: &[usize]) -> RemotePlan {
        let starts = std::iter::once(&n_local).chain(ends);
        let stages = starts.zip(ends).map(|(start, end)| StageNode {
            node: NodeAddress {
                name: NodeName::new("pi").unwrap(),
                address: "10.0.0.1:9990".parse().unwrap(),
            },
            layers: *start..*end,
        });
        RemotePlan {
            n_local,
            stages: stages.collect(),
        }
    }

    #[test]
    fn layers_are_cut_where_stages_begin_and_where_other_models_are_bound() {
        let cut = |n_local, ends: &[usize], n_bound| {
            let cut = AuditCut::new(&plan(n_local, ends), n_bound);
            (cut.pieces, cut.starts)
        };
        assert_eq!(cut(2, &[5, 8], 2), (vec![0..2, 2..5, 5..8], vec![1, 2]));
        assert_eq!(cut(0, &[8], 0), (vec![0..0, 0..8], vec![1]));
        // The coordinator has taken layers over, or given some away.
        assert_eq!(cut(4, &[8], 2), (vec![0..2, 2..4, 4..8], vec![2]));
        assert_eq!(cut(1, &[8], 3), (vec![0..1, 1..3, 3..8], vec![1]));
    }
}
