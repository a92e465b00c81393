//! Whose turn it is first, as OpenAI's interface calls it: `service_tier`.

use serde::Deserialize;

use crate::flow::prepare::USUAL_PRIORITY;

/// A class of requests. Those of a higher one begin first if there are more than can be answered at
/// once; nobody is interrupted for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tier {
    /// When nobody else waits.
    Flex,
    /// What all others are.
    #[default]
    #[serde(
        alias = "auto",
        alias = "scale",
        alias = "standard",
        alias = "standard_only",
        alias = "on_demand"
    )]
    Default,
    /// Before all others.
    Priority,
}

impl Tier {
    /// That of its jobs.
    pub(super) fn priority(self) -> u8 {
        match self {
            Self::Flex => 0,
            Self::Default => USUAL_PRIORITY,
            Self::Priority => USUAL_PRIORITY + 1,
        }
    }

    /// As it is told in answers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::Default => "default",
            Self::Priority => "priority",
        }
    }
}
