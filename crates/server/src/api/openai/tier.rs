//! `service_tier`: the priority of a request in the queue.

use serde::Deserialize;

use crate::flow::prepare::{DEFAULT_PRIORITY, HIGH_PRIORITY, LOW_PRIORITY};

/// Requests of a higher tier start first. Running requests are not interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tier {
    Flex,
    #[default]
    #[serde(
        alias = "auto",
        alias = "scale",
        alias = "standard",
        alias = "standard_only",
        alias = "on_demand"
    )]
    Default,
    Priority,
}

impl Tier {
    /// The priority of its jobs.
    pub(super) fn priority(self) -> u8 {
        match self {
            Self::Flex => LOW_PRIORITY,
            Self::Default => DEFAULT_PRIORITY,
            Self::Priority => HIGH_PRIORITY,
        }
    }

    /// Its name in responses.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::Default => "default",
            Self::Priority => "priority",
        }
    }
}
