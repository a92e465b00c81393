//! This machine as a member of a cluster: its key, its name, its addresses, and those of others.

mod address;
mod code;
mod membership;
mod places;

pub(crate) use address::{is_here, listen};
#[cfg(feature = "leap")]
pub(crate) use address::{is_private, own_ips};
#[cfg(feature = "leap")]
pub(crate) use membership::reached_at;
pub(crate) use code::invite_by_code;
pub(crate) use membership::{
    Membership, NodeRole, Role, begin, join, model_directories, node_name,
};
pub(crate) use places::Places;
