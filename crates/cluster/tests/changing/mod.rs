//! Rings on loopback whose machines change, and what they have told.

use std::sync::{Arc, Mutex};

use atta_cluster::{
    AuditCounts, AuditOptions, JournalOptions, PlannedRing, RemotePlan, RemoteRing, Replan,
    RingChange, RingChanges, StageNode, control::NodeName, core::Timing,
    wire::message::NodeAddress,
};
use atta_engine::{Engine, LoadOptions};
use atta_store::ModelFiles;

use crate::{
    machines::{Cluster, On},
    stories::{PATIENCE, n_layers, path, session},
};

/// Divides the layers evenly among the nodes that are left.
pub(crate) struct Even {
    pub(crate) nodes: Vec<NodeAddress>,
    /// First layers of the coordinator for each node that is gone.
    pub(crate) n_local: usize,
    /// Nodes without which no plan is possible.
    pub(crate) n_least: usize,
}

impl Replan for Even {
    fn without(&self, gone: &[NodeName]) -> Result<PlannedRing, String> {
        let nodes = self.nodes.iter().filter(|node| !gone.contains(&node.name));
        let nodes: Vec<_> = nodes.cloned().collect();
        if nodes.len() < self.n_least {
            return Err(format!("{} nodes are too few", nodes.len()));
        }
        let n = nodes.len();
        let n_local = match n {
            0 => n_layers(),
            _ => self.n_local * gone.len(),
        };
        let end = |i: usize| n_local + (n_layers() - n_local) * i / n;
        let stages = nodes.into_iter().enumerate().map(|(i, node)| StageNode {
            node,
            layers: end(i)..end(i + 1),
        });
        let stages = stages.collect();
        Ok(planned(RemotePlan { n_local, stages }))
    }
}

pub(crate) fn even(cluster: &Cluster, n_local: usize) -> Even {
    let nodes = cluster.machines.iter().map(|m| m.address.clone());
    Even {
        nodes: nodes.collect(),
        n_local,
        n_least: 0,
    }
}

pub(crate) fn planned(plan: RemotePlan) -> PlannedRing {
    PlannedRing {
        plan,
        timing: Timing::default(),
        deadline: PATIENCE,
        n_chunk: None,
        expected: None,
    }
}

/// Three stages of the model.
pub(crate) fn thirds() -> Vec<On> {
    vec![(0, 0..1), (1, 1..2), (2, 2..n_layers())]
}

/// A ring whose machines may change, and what it has told.
pub(crate) struct Changing {
    pub(crate) engine: Engine,
    pub(crate) ring: Arc<RemoteRing>,
    told: Arc<Mutex<Vec<RingChange>>>,
}

/// What a ring has beside its machines.
pub(crate) struct Extras {
    /// Is called whenever a node has told how far it is.
    pub(crate) on_stage: Arc<dyn Fn() + Send + Sync>,
    /// Of a text, to be audited; `None`: no audits, and a journal instead.
    pub(crate) audited: Option<f64>,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            on_stage: Arc::new(|| {}),
            audited: None,
        }
    }
}

impl Changing {
    pub(crate) fn new(cluster: &Cluster, n_local: usize, stages: &[On], replan: Even) -> Self {
        Self::with(cluster, n_local, stages, replan, Extras::default())
    }

    pub(crate) fn with(
        cluster: &Cluster,
        n_local: usize,
        stages: &[On],
        replan: Even,
        extras: Extras,
    ) -> Self {
        let Extras { on_stage, audited } = extras;
        let mut options = cluster.options(n_local, stages);
        options.on_stage = Arc::new(move |_, _| on_stage());
        let told = Arc::<Mutex<Vec<RingChange>>>::default();
        let changes = RingChanges {
            replan: Arc::new(replan),
            files: Arc::new(|| ModelFiles::open(&path())),
            on_change: Arc::new({
                let told = Arc::clone(&told);
                move |change| told.lock().unwrap().push(change.clone())
            }),
            audit: audited.map(|probability| AuditOptions {
                probability,
                seed: 1,
                weights_bytes: 0,
            }),
        };
        let ring = Arc::new(RemoteRing::with_changes(options, changes));
        if audited.is_none() {
            ring.journal_in(JournalOptions {
                dir: std::env::temp_dir(),
                budget_bytes: 1 << 30,
                segment_len: 2,
                is_continuous: true,
            });
        }
        let options = LoadOptions {
            backend: Some(ring.clone()),
            session: session(),
            ..LoadOptions::default()
        };
        Self {
            engine: Engine::open(&path(), &options).unwrap(),
            ring,
            told,
        }
    }

    pub(crate) fn told(&self) -> Vec<RingChange> {
        self.told.lock().unwrap().clone()
    }

    pub(crate) fn audits(&self) -> AuditCounts {
        self.ring.record().figures().audit
    }
}
