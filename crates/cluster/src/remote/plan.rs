//! Who runs which layers of a ring of machines, and who decides it when machines go.

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use atta_model::{Error, Share};
use atta_store::ModelFiles;

use crate::{
    AuditOptions, Cut, Resumed, RingPlan,
    control::NodeName,
    core::Timing,
    wire::message::{LaneName, NodeAddress},
};

/// A stage and the node that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageNode {
    /// The node.
    pub node: NodeAddress,
    /// Its layers.
    pub layers: Range<usize>,
}

/// Which nodes run which layers; without stages the coordinator runs all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePlan {
    /// First layers, which the coordinator runs.
    pub n_local: usize,
    /// The stages in order, each on a node of its own.
    pub stages: Vec<StageNode>,
}

impl RemotePlan {
    /// The ring that a planner's plan describes. `address` knows the nodes by their names.
    ///
    /// # Errors
    /// [`Error::Ring`]: a plan of one machine or of several rounds, a node without an address.
    pub fn of(
        plan: &crate::plan::RingPlan,
        address: impl Fn(&str) -> Option<NodeAddress>,
    ) -> Result<Self, Error> {
        let refuse = |why: &str| Error::Ring(why.to_owned());
        let (first, others) = plan.stages.split_first().ok_or_else(|| refuse("no plan"))?;
        if plan.rounds > 1 {
            return Err(refuse("laps of several rounds are not built yet"));
        }
        if first.node != plan.lead || first.layers.start != 0 && !first.layers.is_empty() {
            return Err(refuse("the plan does not begin with its coordinator"));
        }
        let stage = |stage: &crate::plan::PlannedStage| {
            let name = &plan.names[stage.node];
            let node = address(name)
                .ok_or_else(|| Error::Ring(format!("the address of {name} is not known")))?;
            let layers = stage.layers.clone();
            Ok(StageNode { node, layers })
        };
        let stages = others
            .iter()
            .map(stage)
            .collect::<Result<Vec<_>, Error>>()?;
        let n_local = first.layers.len();
        Ok(Self { n_local, stages })
    }

    /// The layers of a node.
    pub fn layers_of(&self, node: &NodeName) -> Option<Range<usize>> {
        let mut stages = self.stages.iter();
        let stage = stages.find(|stage| stage.node.name == *node)?;
        Some(stage.layers.clone())
    }

    /// The same machines with other layers: those of the coordinator end before layer `ends[0]`,
    /// those of the first stage before `ends[1]`; the last stage has the rest.
    ///
    /// # Errors
    /// Another number of ends, a stage without layers; one line for people.
    pub(crate) fn cut_at(&self, ends: &[usize], n_layers: usize) -> Result<Self, String> {
        let n = self.stages.len();
        if ends.len() != n {
            let names = self.names().join(", ");
            return Err(format!(
                "expected {n} layers at which machines end, got {}: this machine has the first \
                 ones, then come {names}, and the last one has the rest of {n_layers}",
                ends.len()
            ));
        }
        let all: Vec<usize> = ends.iter().copied().chain([n_layers]).collect();
        if let Some(pair) = all.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(format!(
                "layers {} to {} are none: expected increasing numbers below {n_layers}",
                pair[0], pair[1]
            ));
        }
        let stages = self.stages.iter().zip(all.windows(2));
        Ok(Self {
            n_local: all[0],
            stages: stages
                .map(|(stage, pair)| StageNode {
                    node: stage.node.clone(),
                    layers: pair[0]..pair[1],
                })
                .collect(),
        })
    }

    /// Layers of the stages, in order.
    pub(super) fn layers(&self) -> Vec<Range<usize>> {
        self.stages.iter().map(|s| s.layers.clone()).collect()
    }

    /// Names of the stages, in order.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.stages.iter().map(|s| s.node.name.to_string());
        names.collect()
    }

    /// How the model is cut.
    ///
    /// # Errors
    /// Layers that are in no stage or in two, a node with two stages.
    pub(super) fn cut(&self, n_layers: usize) -> Result<RingPlan, Error> {
        let stages = self.stages.iter().map(|stage| stage.layers.clone());
        let plan = RingPlan {
            n_local: self.n_local,
            stages: stages.collect(),
        };
        if plan.stages.is_empty() && plan.n_local == n_layers {
            return Ok(plan);
        }
        let plan = Cut::At(plan).plan(n_layers)?;
        let mut names: Vec<&NodeName> = self.stages.iter().map(|s| &s.node.name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::Ring(format!("{} has two stages", pair[0]))),
            None => Ok(plan),
        }
    }

    /// What the coordinator binds: embedding, head and its own layers.
    pub(super) fn share(&self) -> Share {
        Share {
            layers: 0..self.n_local,
            embed: true,
            head: true,
        }
    }
}

/// Tokens per second that a planner expects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedSpeed {
    /// Of one text.
    pub decode_tok_s: f64,
    /// Of all texts of many users together.
    pub users_tok_s: f64,
}

/// A plan, and the times that it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRing {
    /// Who runs what.
    pub plan: RemotePlan,
    /// Times of the protocol.
    pub timing: Timing,
    /// How long nodes may take until they are ready.
    pub deadline: Duration,
    /// Rows of a chunk of a prompt; `None`: as many as a batch has.
    pub n_chunk: Option<usize>,
    /// How fast it should be; `None`: a user has cut it, or speeds are not known.
    pub expected: Option<ExpectedSpeed>,
}

/// Decides who runs what when machines of a ring are gone.
pub trait Replan: Send + Sync {
    /// A plan without these nodes.
    ///
    /// # Errors
    /// No plan fits: why, in one line for people.
    fn without(&self, gone: &[NodeName]) -> Result<PlannedRing, String>;
}

/// A change of the machines of a ring that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingChange {
    /// Nodes that were lost; empty for a change that was asked for.
    pub gone: Vec<NodeName>,
    /// Nodes that computed other rows than they should.
    pub left_out: Vec<NodeName>,
    /// The lane that no longer let rows through; they go by TCP now.
    pub left_lane: Option<LaneName>,
    /// Who ran what.
    pub before: RemotePlan,
    /// Who runs what.
    pub after: RemotePlan,
    /// How the ring has gone on.
    pub how: Resumed,
}

impl fmt::Display for RingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let names = |nodes: &[NodeName]| {
            let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
            names.join(", ")
        };
        match &self.left_out[..] {
            [] => {}
            nodes => parts.push(format!(
                "{} computed wrong rows and is left out",
                names(nodes)
            )),
        }
        match &self.gone[..] {
            [] => {}
            [node] => parts.push(format!("{node} is gone")),
            nodes => parts.push(format!("{} are gone", names(nodes))),
        }
        if let Some(lane) = self.left_lane {
            parts.push(format!(
                "lane {lane}: rows no longer come through; going by tcp"
            ));
        }
        let Self { before, after, .. } = self;
        if before.n_local != after.n_local {
            parts.push(format!("this machine now has {}", layers(after.n_local)));
        }
        for stage in &after.stages {
            let had = before.layers_of(&stage.node.name);
            let n = stage.layers.len();
            if had.is_none_or(|had| had.len() != n) {
                parts.push(format!("{} now has {}", stage.node.name, layers(n)));
            }
        }
        if parts.is_empty() {
            parts.push("the stages were made anew".to_owned());
        }
        let Resumed {
            time,
            n_loaded,
            n_computed,
        } = self.how;
        let is_loss = !(self.gone.is_empty() && self.left_out.is_empty());
        // Before a change that was asked for, the ring has computed as before.
        let paused = if is_loss || before == after {
            ""
        } else {
            "paused "
        };
        let seconds = time.as_secs_f64();
        write!(f, "{}; {paused}{seconds:.1} s", parts.join("; "))?;
        match n_loaded {
            0 => Ok(()),
            _ => write!(f, ", {n_loaded} positions loaded, {n_computed} computed"),
        }
    }
}

/// So many layers, in words.
fn layers(n: usize) -> String {
    match n {
        0 => "no layer".to_owned(),
        1 => "1 layer".to_owned(),
        n => format!("{n} layers"),
    }
}

/// Opens the files of the model.
pub type OpenFiles = Arc<dyn Fn() -> Result<ModelFiles, atta_store::Error> + Send + Sync>;

/// Hears of changes, when the ring computes again.
pub type OnChange = Arc<dyn Fn(&RingChange) + Send + Sync>;

/// What a ring needs to go on with other machines.
#[derive(Clone)]
pub struct RingChanges {
    /// Decides who runs what.
    pub replan: Arc<dyn Replan>,
    /// Opens the files for layers that the coordinator takes over.
    pub files: OpenFiles,
    /// Hears of changes.
    pub on_change: OnChange,
    /// Texts that the coordinator computes, too; `None`: none.
    pub audit: Option<AuditOptions>,
}

impl fmt::Debug for RingChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingChanges").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(n_local: usize, stages: &[(&str, Range<usize>)]) -> RemotePlan {
        let stages = stages.iter().map(|(name, layers)| StageNode {
            node: NodeAddress {
                name: NodeName::new(name).unwrap(),
                address: "10.0.0.1:9990".parse().unwrap(),
            },
            layers: layers.clone(),
        });
        RemotePlan {
            n_local,
            stages: stages.collect(),
        }
    }

    #[test]
    fn layers_end_where_a_user_wants_unless_a_stage_has_none() {
        let now = plan(8, &[("pi1", 8..20), ("pi2", 20..32)]);
        let cut = now.cut_at(&[0, 12], 32).unwrap();
        assert_eq!(cut, plan(0, &[("pi1", 0..12), ("pi2", 12..32)]));
        for (ends, part) in [
            (&[12][..], "expected 2 layers"),
            (&[1, 2, 3], "then come pi1, pi2"),
            (&[12, 12], "layers 12 to 12 are none"),
            (&[4, 32], "below 32"),
        ] {
            let why = now.cut_at(ends, 32).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_change_says_who_is_gone_and_who_has_other_layers() {
        let before = plan(8, &[("pi1", 8..20), ("pi2", 20..32)]);
        let change = |gone: &[&str], after: RemotePlan| RingChange {
            gone: gone
                .iter()
                .map(|name| NodeName::new(name).unwrap())
                .collect(),
            left_out: Vec::new(),
            left_lane: None,
            before: before.clone(),
            after,
            how: Resumed {
                time: Duration::from_millis(2_100),
                ..Resumed::default()
            },
        };
        let lost = change(&["pi2"], plan(8, &[("pi1", 8..32)]));
        assert_eq!(
            lost.to_string(),
            "pi2 is gone; pi1 now has 24 layers; 2.1 s"
        );
        let asked = change(&[], plan(8, &[("pi1", 8..32)]));
        assert_eq!(asked.to_string(), "pi1 now has 24 layers; paused 2.1 s");
        let alone = change(&["pi1", "pi2"], plan(32, &[]));
        let said = "pi1, pi2 are gone; this machine now has 32 layers; 2.1 s";
        assert_eq!(alone.to_string(), said);
        let same = change(&[], before.clone());
        assert_eq!(same.to_string(), "the stages were made anew; 2.1 s");
        let other_lane = RingChange {
            left_lane: Some(LaneName::Udp),
            ..same.clone()
        };
        let said = "lane udp: rows no longer come through; going by tcp; 2.1 s";
        assert_eq!(other_lane.to_string(), said);
        let how = Resumed {
            n_loaded: 1_020,
            n_computed: 4,
            ..same.how
        };
        assert_eq!(
            RingChange { how, ..same }.to_string(),
            "the stages were made anew; 2.1 s, 1020 positions loaded, 4 computed"
        );
    }
}
