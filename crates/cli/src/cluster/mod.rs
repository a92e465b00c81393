//! This machine as a member of a cluster: its key, its name, its addresses, and those of others.

mod address;
mod code;
pub(crate) mod events;
mod membership;
#[cfg(feature = "server")]
mod monitor;
mod places;

pub(crate) use address::{is_here, listen};
#[cfg(feature = "leap")]
pub(crate) use address::{is_private, own_ips};
pub(crate) use code::invite_by_code;
#[cfg(feature = "leap")]
pub(crate) use membership::reached_at;
pub(crate) use membership::{
    Membership, NodeRole, Role, begin, join, model_directories, node_name,
};
#[cfg(feature = "server")]
pub(crate) use monitor::{RingMonitor, WatchedRing};
pub(crate) use places::Places;
