//! Links between machines over TCP, by TLS 1.3 with the certificates of the cluster.
//!
//! ```text
//! rows       sender ── Hello, frame, frame … ──▶ receiver          one connection per direction
//! questions  ── Hello ──▶   length, question ⇄ length, answer      several in turn
//! parts      ── Hello, length, request ──▶   ◀── frames, end
//! ```
//! [`Doors`] is the one listener of a process. The first bytes of a connection say what it is for;
//! those for rows name the ring and the two stages, with the secret that the ring's plan brought to
//! both ends, and without it nothing is read further. Waiting has a deadline, a length has a
//! limit that is checked before anything is allocated, and a connection that has failed is never
//! resumed: the protocol begins another epoch.

mod doors;
mod hello;
mod parts;
mod questions;
mod ring;
mod sender;
mod stage;
mod stream;

pub use doors::{Doors, DoorsOptions, IsAllowed};
pub use stream::Security;
