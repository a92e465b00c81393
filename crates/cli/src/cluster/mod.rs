//! This machine as a member of a cluster: its key, its name, its addresses, and those of others.

mod address;
mod code;
mod membership;
mod places;

pub(crate) use address::{is_here, listen};
pub(crate) use code::invite_by_code;
pub(crate) use membership::{
    Membership, NodeRole, Role, begin, join, model_directories, node_name,
};
pub(crate) use places::Places;
