//! Servers in this process, and raw connections to them.

mod models;
mod requests;
mod running;
