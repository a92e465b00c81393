//! Exact tensor parallelism: one stage on several machines, each with some rows of every large
//! matrix.
//!
//! ```text
//! member 0 (lead)  batch ─► rows 0..k  of W ─┐             ┌─► columns 0..n ─► … ─► logits
//! member 1         batch ─► rows k..n  of W ─┴─ exchange ──┴─► columns 0..n ─► …
//! ```
//! A matrix is divided by output rows only, and columns are copied, never added: the bits are those
//! of one machine. [`split`] says which rows a member has, [`LinkExchange`] carries columns between
//! members over [`MemberLinks`], and a [`TensorExecutor`] keeps all members at the same batch.
//! Attention and its state are whole at every member, and so are small matrices. Members are
//! threads of this process ([`LocalMembers`]) or other machines ([`RemoteGroup`]); nothing but
//! [`MemberLinks`] and the way of a [`MemberCommand`] depends on that.

pub mod split;

mod exchange;
mod executor;
mod group;
mod local;
mod member;
mod regroup;

pub use exchange::{LinkExchange, MemberLinks, Message, ThreadLinks};
pub use executor::{MemberCommand, TensorExecutor};
pub use group::{GroupMembers, RemoteGroup, RemoteGroupOptions};
pub(crate) use group::{member_limits, message_bytes};
pub use local::LocalMembers;
pub(crate) use member::{ExchangeLinks, MemberHost, Patience};
pub use regroup::{GroupChange, GroupChanges, OnGroupChange, PlannedGroup, ReplanRows};
