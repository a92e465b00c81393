//! This machine as a member of a cluster: its key, its name, its addresses, and those of others.

mod address;
pub(crate) mod events;
mod membership;
#[cfg(feature = "server")]
mod monitor;
mod places;

pub(crate) use address::{is_here, listen};
pub(crate) use membership::{Membership, Role, begin, join, model_directories, node_name};
#[cfg(feature = "server")]
pub(crate) use monitor::{RingMonitor, WatchedRing};
pub(crate) use places::Places;
