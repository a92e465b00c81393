//! A chain: nodes whose layers are fixed when they are started, and that name each other in turn.
//!
//! ```text
//! coordinator ── who are you? ──▶ pi1     layers 11 to 22; next: pi2
//!             ── who are you? ──▶ pi2     all layers from 22 on; next: the coordinator
//! ```
//! It refuses to know files, speeds and flags, and opens no connection itself. The one idea: the
//! coordinator follows the chain once, by questions, and the result is a plan as any other; rows
//! never take their way from what a node says.

use std::{io, net::SocketAddr, time::Duration};

use crate::{
    RemotePlan, StageNode,
    control::{Answerer, NodeName, Switchboard},
    wire::message::{Answer, ChainLink, LaneName, NodeAddress, Question},
};

/// A chain that has been followed to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Who runs what.
    pub plan: RemotePlan,
    /// The node that the last one names as the next: the coordinator, where the ring is closed.
    pub behind: Option<SocketAddr>,
}

/// A chain that is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The first node does not answer, or has closed the connection.
    #[error("{address} does not answer: {source}")]
    Silent {
        /// Its address.
        address: SocketAddr,
        /// The error of the connection.
        source: io::Error,
    },
    /// The first node is none of a chain.
    #[error("{address} is no node of a chain: {why}")]
    NotInChain {
        /// Its address.
        address: SocketAddr,
        /// What it answers.
        why: String,
    },
    /// The layers end before those of the model, and the last node names no next one.
    #[error("{node} runs layers up to {end} of {n_layers}, and names no next node")]
    Incomplete {
        /// The last node that was found.
        node: NodeName,
        /// The layer behind its last one.
        end: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// The node behind another one cannot be asked.
    #[error("behind {node}, which runs layers up to {end} of {n_layers}: {source}")]
    Next {
        /// The last node that was found.
        node: NodeName,
        /// The layer behind its last one.
        end: usize,
        /// Layers of the model.
        n_layers: usize,
        /// Why.
        source: Box<ChainError>,
    },
    /// A node begins elsewhere than the one before it ends.
    #[error("{node} begins with layer {start}, expected {expected}, where {before} ends")]
    Gap {
        /// The node.
        node: NodeName,
        /// Its first layer.
        start: usize,
        /// The layer behind the last one of the node before.
        expected: usize,
        /// The node before.
        before: String,
    },
    /// A node has layers that the model has not.
    #[error("{node} runs layers {start} to {end}, and the model has {n_layers}")]
    Beyond {
        /// The node.
        node: NodeName,
        /// Its first layer.
        start: usize,
        /// The layer behind its last one.
        end: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// A node takes another lane than that of the coordinator.
    #[error("{node} takes rows over {its} only, and the coordinator sends them over {ours}")]
    Lane {
        /// The node.
        node: NodeName,
        /// Its lane.
        its: LaneName,
        /// That of the coordinator.
        ours: LaneName,
    },
    /// Two nodes have one name, or one node is met twice.
    #[error("{0} is in the chain twice")]
    Twice(NodeName),
}

impl ChainError {
    /// Whether a node does not answer, which may start later.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Next { source, .. } => source.is_silence(),
            _ => false,
        }
    }
}

/// Answers what the place of a node in its chain is; other questions go to `others`.
pub fn answerer(link: ChainLink, others: Answerer) -> Answerer {
    let link = Answer::Chain(link).to_bytes().unwrap_or_default();
    Box::new(move |question| match Question::parse(question) {
        Ok(Question::Chain) => link.clone(),
        _ => others(question),
    })
}

/// What a chain is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainModel {
    /// First layers, which the coordinator runs.
    pub n_local: usize,
    /// All layers.
    pub n_layers: usize,
    /// How rows travel.
    pub lane: LaneName,
}

/// Follows a chain from its first node to the one that runs the last layer of the model. Each node
/// has `deadline` for its answer.
///
/// # Errors
/// [`ChainError`].
pub fn follow(
    board: &dyn Switchboard,
    first: SocketAddr,
    model: ChainModel,
    deadline: Duration,
) -> Result<Chain, ChainError> {
    let mut stages: Vec<StageNode> = Vec::new();
    let mut address = first;
    loop {
        let link = ask(board, address, deadline).map_err(|error| match stages.last() {
            Some(last) => model.behind(last, error),
            None => error,
        })?;
        let next = link.next.map(|next| seen_from(next, address));
        let stage = model.stage(&stages, link, address)?;
        let is_last = stage.layers.end == model.n_layers;
        let incomplete = model.incomplete(&stage);
        stages.push(stage);
        if is_last {
            let plan = RemotePlan {
                n_local: model.n_local,
                stages,
            };
            return Ok(Chain { plan, behind: next });
        }
        address = next.ok_or(incomplete)?;
    }
}

impl ChainModel {
    /// The stage of a node behind others.
    fn stage(
        self,
        before: &[StageNode],
        link: ChainLink,
        address: SocketAddr,
    ) -> Result<StageNode, ChainError> {
        let ChainLink {
            name: node,
            start,
            end,
            lane,
            ..
        } = link;
        if let Some(its) = lane.filter(|lane| *lane != self.lane) {
            let ours = self.lane;
            return Err(ChainError::Lane { node, its, ours });
        }
        let start = start as usize;
        let end = end.map_or(self.n_layers, |end| end as usize);
        if before.iter().any(|stage| stage.node.name == node) {
            return Err(ChainError::Twice(node));
        }
        let last = before.last();
        let expected = last.map_or(self.n_local, |last| last.layers.end);
        if start != expected {
            return Err(ChainError::Gap {
                node,
                start,
                expected,
                before: last.map_or("the coordinator".to_owned(), |l| l.node.name.to_string()),
            });
        }
        if start >= end || end > self.n_layers {
            return Err(ChainError::Beyond {
                node,
                start,
                end,
                n_layers: self.n_layers,
            });
        }
        Ok(StageNode {
            node: NodeAddress {
                name: node,
                address,
            },
            layers: start..end,
        })
    }

    fn incomplete(self, last: &StageNode) -> ChainError {
        ChainError::Incomplete {
            node: last.node.name.clone(),
            end: last.layers.end,
            n_layers: self.n_layers,
        }
    }

    fn behind(self, last: &StageNode, error: ChainError) -> ChainError {
        ChainError::Next {
            node: last.node.name.clone(),
            end: last.layers.end,
            n_layers: self.n_layers,
            source: Box::new(error),
        }
    }
}

fn ask(
    board: &dyn Switchboard,
    address: SocketAddr,
    deadline: Duration,
) -> Result<ChainLink, ChainError> {
    let not_in_chain = |why: &dyn std::fmt::Display| ChainError::NotInChain {
        address,
        why: why.to_string(),
    };
    let question = Question::Chain.to_bytes();
    let question = question.map_err(|error| not_in_chain(&error))?;
    let answer = board.ask(address, None, &question, deadline);
    let answer = answer.map_err(|source| ChainError::Silent { address, source })?;
    match Answer::parse(&answer) {
        Ok(Answer::Chain(link)) => Ok(link),
        Ok(Answer::Refused { why }) => Err(not_in_chain(&why)),
        Ok(_) => Err(not_in_chain(&"it gives the answer to another question")),
        Err(error) => Err(not_in_chain(&error)),
    }
}

/// An address that a node was told, as others reach it: loopback is that of the node's machine.
fn seen_from(next: SocketAddr, node: SocketAddr) -> SocketAddr {
    match next.ip().is_loopback() {
        true => SocketAddr::new(node.ip(), next.port()),
        false => next,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Nodes that answer at once, by their addresses.
    #[derive(Default)]
    struct Board(HashMap<SocketAddr, Answerer>);

    impl Switchboard for Board {
        fn ask(
            &self,
            address: SocketAddr,
            _: Option<&NodeName>,
            question: &[u8],
            _: Duration,
        ) -> io::Result<Vec<u8>> {
            let node = self.0.get(&address);
            let node = node.ok_or(io::ErrorKind::ConnectionRefused)?;
            Ok(node(question))
        }

        fn answer(&self, _: Answerer) -> io::Result<()> {
            Ok(())
        }
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    impl Board {
        fn with(mut self, address: &str, start: u32, end: Option<u32>, next: Option<&str>) -> Self {
            let link = ChainLink {
                name: NodeName::new(&format!("pi{start}")).unwrap(),
                start,
                end,
                next: next.map(at),
                lane: Some(LaneName::Udp),
            };
            let node = answerer(link, Box::new(|_| Vec::new()));
            self.0.insert(at(address), node);
            self
        }

        /// The chain of a model of 32 layers.
        fn follow(&self, first: &str) -> Result<Chain, ChainError> {
            self.follow_over(LaneName::Udp, first)
        }

        fn follow_over(&self, lane: LaneName, first: &str) -> Result<Chain, ChainError> {
            let model = ChainModel {
                n_local: 11,
                n_layers: 32,
                lane,
            };
            follow(self, at(first), model, Duration::from_secs(1))
        }

        fn refusal(&self) -> String {
            self.follow("10.0.0.2:9").unwrap_err().to_string()
        }
    }

    #[test]
    fn a_chain_ends_with_the_last_layer_and_may_be_closed() {
        let board = Board::default()
            .with("10.0.0.2:9", 11, Some(22), Some("10.0.0.3:9"))
            .with("10.0.0.3:9", 22, None, Some("10.0.0.1:9"));
        let chain = board.follow("10.0.0.2:9").unwrap();
        let stages = chain.plan.stages.iter();
        let stages: Vec<_> = stages
            .map(|s| (s.node.name.as_str(), s.node.address, s.layers.clone()))
            .collect();
        let expected = [
            ("pi11", at("10.0.0.2:9"), 11..22),
            ("pi22", at("10.0.0.3:9"), 22..32),
        ];
        assert_eq!(stages, expected);
        assert_eq!(chain.plan.n_local, 11);
        assert_eq!(chain.behind, Some(at("10.0.0.1:9")));
    }

    #[test]
    fn loopback_is_that_of_the_node_that_names_it() {
        let board = Board::default()
            .with("10.0.0.2:9", 11, Some(22), Some("127.0.0.1:8"))
            .with("10.0.0.2:8", 22, Some(32), None);
        let chain = board.follow("10.0.0.2:9").unwrap();
        assert_eq!(chain.plan.stages[1].node.address, at("10.0.0.2:8"));
        assert_eq!(chain.behind, None);
    }

    #[test]
    fn a_chain_that_does_not_fit_the_model_says_where() {
        let first = |start, end, next| Board::default().with("10.0.0.2:9", start, end, next);
        assert!(
            Board::default()
                .refusal()
                .contains("10.0.0.2:9 does not answer")
        );
        let gap = first(12, None, None).refusal();
        assert!(
            gap.contains("layer 12, expected 11, where the coordinator ends"),
            "{gap}"
        );
        let beyond = first(11, Some(33), None).refusal();
        assert!(
            beyond.contains("11 to 33, and the model has 32"),
            "{beyond}"
        );
        let short = first(11, Some(20), None).refusal();
        assert!(
            short.contains("up to 20 of 32, and names no next node"),
            "{short}"
        );
        let lost = first(11, Some(20), Some("10.0.0.9:9")).refusal();
        assert!(
            lost.contains("behind pi11, which runs layers up to 20 of 32: 10.0.0.9:9 does not"),
            "{lost}"
        );
        let again = first(11, Some(20), Some("10.0.0.2:9")).refusal();
        assert!(again.contains("pi11 is in the chain twice"), "{again}");
        let other = first(11, None, None).follow_over(LaneName::Tcp, "10.0.0.2:9");
        let other = other.unwrap_err().to_string();
        assert!(other.contains("pi11 takes rows over udp only"), "{other}");
        let mut other = first(11, None, None);
        other.0.insert(at("10.0.0.2:9"), Box::new(|_| Vec::new()));
        assert!(other.refusal().contains("is no node of a chain"));
    }
}
