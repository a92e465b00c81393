//! The master of a chain: follows it, makes its plan, and opens the ring.
//!
//! Knows no text. The one idea: what each worker says about itself becomes the plan of a ring as
//! any other; another plan over the same workers is another ring.

use std::{
    fmt,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use atta::LoadOptions;
use atta_cluster::{
    HashedModel, Links, RemotePlan, RemoteRing, RemoteRingOptions,
    chain::{ChainError, ChainModel, follow},
    core::Timing,
    own_address,
    wire::{
        Dtype,
        message::{LaneName, NodeAddress},
    },
};

use super::{
    args::{ChainFlags, LeapArgs},
    network::Network,
    worker::n_layers,
};
use crate::{
    cluster::is_here,
    failure::Failure,
    load::warn,
    ring::{RingRun, hashed, on_stage, say},
};

/// Time for an answer of a worker.
const ASK: Duration = Duration::from_secs(3);
/// How long a worker that does not answer is waited for: it may start a moment later.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two questions to such a worker.
const POLL: Duration = Duration::from_millis(200);
/// Time that workers may take until their stages are ready, for each GB of the model and besides.
const LOAD: Duration = Duration::from_secs(120);

/// The master of a chain that is complete.
pub(in crate::commands) struct Master {
    network: Network,
    plan: RemotePlan,
    lane: LaneName,
    n_layers: usize,
    model: HashedModel,
    model_bytes: u64,
}

impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Master")
            .field("plan", &self.plan)
            .field("n_layers", &self.n_layers)
            .finish_non_exhaustive()
    }
}

impl Master {
    /// Follows the chain for a model.
    pub(super) fn open(args: &LeapArgs, path: &Path) -> Result<Self, Failure> {
        let n_layers = n_layers(path)?;
        let model = ChainModel {
            n_local: args.chain.start(),
            n_layers,
            lane: args.chain.lane().unwrap_or_default(),
        };
        if model.n_local >= n_layers {
            return Err(Failure::Failed(format!(
                "--split {} leaves no layer to the workers: the model has {n_layers}",
                model.n_local
            )));
        }
        let lane = model.lane;
        let network = Network::open(args)?;
        let plan = chain(&network, &args.chain, model)?;
        let nodes = plan.stages.iter().map(|stage| stage.node.clone());
        nodes.for_each(|node| network.control.introduce(node));
        let model_bytes = path.metadata().map_or(0, |meta| meta.len());
        let hashes = network.places.hashes();
        let master = Self {
            model: hashed(&network.doors, hashes, path, None)?,
            network,
            plan,
            lane,
            n_layers,
            model_bytes,
        };
        say(&format!("ring: {}", master.layers().join("; ")));
        Ok(master)
    }

    /// The options with the ring as the backend.
    pub(in crate::commands) fn ring(
        &self,
        options: LoadOptions,
    ) -> Result<(LoadOptions, RingRun), Failure> {
        let ring = self.ring_options(&options)?;
        let pool = Arc::clone(&ring.pool);
        let ring = Arc::new(RemoteRing::new(ring));
        let options = LoadOptions {
            backend: Some(ring.clone()),
            pool: Some(pool),
            ..options
        };
        Ok((options, RingRun::of_chain(ring)))
    }

    /// Who runs what, a line for each machine.
    pub(super) fn layers(&self) -> Vec<String> {
        let own = match self.plan.n_local {
            0 => "this machine: no layers, embedding and head".to_owned(),
            n => format!("this machine: layers 0 to {n}, embedding and head"),
        };
        let stages = self.plan.stages.iter().map(|stage| {
            let NodeAddress { name, address } = &stage.node;
            let layers = &stage.layers;
            format!(
                "{name} ({address}): layers {} to {}",
                layers.start, layers.end
            )
        });
        std::iter::once(own).chain(stages).collect()
    }

    /// Who runs what.
    pub(super) fn plan(&self) -> &RemotePlan {
        &self.plan
    }

    /// Another plan, for the next ring.
    pub(super) fn set_plan(&mut self, plan: RemotePlan) {
        self.plan = plan;
    }

    /// The plan with these borders: the first layer of each worker, and perhaps the end of all.
    pub(super) fn plan_at(&self, borders: &[usize]) -> Result<RemotePlan, Failure> {
        recut(&self.plan, borders, self.n_layers).map_err(Failure::Failed)
    }

    fn ring_options(&self, options: &LoadOptions) -> Result<RemoteRingOptions, Failure> {
        let network = &self.network;
        let own = self.plan.stages.first().map(|stage| stage.node.address);
        let own = own.map(|first| own_address(network.doors.address(), first));
        let sources = own
            .transpose()
            .map_err(atta::Error::from)?
            .map(|address| NodeAddress {
                name: network.name.clone(),
                address,
            });
        let gb = u32::try_from(self.model_bytes / 1_000_000_000).unwrap_or(u32::MAX);
        Ok(RemoteRingOptions {
            control: network.control.clone(),
            links: network.doors.clone(),
            lane: self.lane,
            name: network.name.clone(),
            plan: self.plan.clone(),
            model: self.model.clone(),
            sources: sources.into_iter().collect(),
            kernels: options.kernels()?,
            pool: options.open_pool()?,
            // No speeds are known, and the slowest boards have to be in time.
            timing: Timing {
                lap: Duration::from_secs(10),
                row: Duration::from_secs(1),
                ..Timing::default()
            },
            wire: Dtype::F32,
            deadline: LOAD.saturating_mul(gb.saturating_add(1)),
            n_chunk: None,
            expected: None,
            on_stage: on_stage(),
        })
    }
}

/// Follows the chain; workers may start a moment later.
fn chain(network: &Network, flags: &ChainFlags, model: ChainModel) -> Result<RemotePlan, Failure> {
    let first = network
        .next(flags)?
        .ok_or_else(|| Failure::Usage("--next-host is missing".to_owned()))?;
    let until = Instant::now() + PATIENCE;
    let mut is_told = false;
    let chain = loop {
        match follow(network.doors.as_ref(), first, model, ASK) {
            Ok(chain) => break chain,
            Err(error) if error.is_silence() && Instant::now() < until => {
                if !is_told {
                    say(&format!("waiting for the workers: {error}"));
                    is_told = true;
                }
                thread::sleep(POLL);
            }
            Err(error) => return Err(explain(&error)),
        }
    };
    if let Some(behind) = chain.behind.filter(|address| !is_own(network, *address)) {
        warn(&format!(
            "the last worker names {behind} as the next machine, which has no layers"
        ));
    }
    Ok(chain.plan)
}

/// Whether an address is that of this process.
fn is_own(network: &Network, address: SocketAddr) -> bool {
    is_here(address.ip()) && address.port() == network.doors.address().port()
}

/// The failure of a chain, with the options that help.
fn explain(error: &ChainError) -> Failure {
    let help = match error {
        _ if error.is_silence() => {
            ": is `atta leap --role worker` started there, with the same --key, or --insecure-lan \
             as here?"
        }
        ChainError::NotInChain { .. } | ChainError::Next { .. } => {
            ": start `atta leap --role worker` there"
        }
        ChainError::Incomplete { .. } => ": give it --next-host, or another --end",
        ChainError::Gap { .. } => ": the --split of a worker is where the machine before it ends",
        ChainError::Beyond { .. } => ": see its --split and --end",
        _ => "",
    };
    Failure::Failed(format!("{error}{help}"))
}

/// A plan over the same workers with other borders: the first layer of each worker, and perhaps
/// the number of layers.
fn recut(plan: &RemotePlan, borders: &[usize], n_layers: usize) -> Result<RemotePlan, String> {
    let n = plan.stages.len();
    let starts = match borders.strip_suffix(&[n_layers]) {
        Some(starts) if starts.len() == n => starts,
        _ => borders,
    };
    let ends = starts.iter().skip(1).chain([&n_layers]);
    let ranges: Vec<_> = starts.iter().zip(ends).map(|(a, b)| *a..*b).collect();
    if ranges.len() != n || ranges.iter().any(|range| range.is_empty()) {
        return Err(format!(
            "/resize takes the first layer of each of the {n} workers, in order, each below \
             {n_layers}"
        ));
    }
    let mut plan = plan.clone();
    plan.n_local = ranges.first().map_or(0, |first| first.start);
    for (stage, layers) in plan.stages.iter_mut().zip(ranges) {
        stage.layers = layers;
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use atta_cluster::{StageNode, control::NodeName};

    use super::*;

    fn plan() -> RemotePlan {
        let stage = |name: &str, layers| StageNode {
            node: NodeAddress {
                name: NodeName::new(name).unwrap(),
                address: "10.0.0.1:1".parse().unwrap(),
            },
            layers,
        };
        RemotePlan {
            n_local: 4,
            stages: vec![stage("a", 4..8), stage("b", 8..16)],
        }
    }

    #[test]
    fn borders_are_first_layers_and_may_end_with_the_number_of_layers() {
        let ranges = |borders: &[usize]| {
            let plan = recut(&plan(), borders, 16).ok()?;
            let stages = plan.stages.iter().map(|stage| stage.layers.clone());
            Some((plan.n_local, stages.collect::<Vec<_>>()))
        };
        assert_eq!(ranges(&[2, 12]), Some((2, vec![2..12, 12..16])));
        assert_eq!(ranges(&[2, 12, 16]), ranges(&[2, 12]));
        assert_eq!(ranges(&[0, 1]), Some((0, vec![0..1, 1..16])));
        for wrong in [
            &[][..],
            &[3],
            &[3, 3],
            &[9, 3],
            &[3, 16],
            &[3, 17],
            &[1, 2, 3],
            &[1, 2, 3, 16],
        ] {
            assert_eq!(ranges(wrong), None, "{wrong:?}");
        }
    }
}
