//! The program `atta`: parses the command line and runs the command. Everything else is in the
//! library.
//!
//! What a feature of the package adds is a module that is there or not as a whole. Where the rest
//! of the program calls such a module, its stand-in in `absent/` refuses the option by the name of
//! the feature.

#![forbid(unsafe_code)]

mod args;
#[cfg_attr(not(feature = "cache"), path = "absent/cache.rs")]
mod cache;
#[cfg(feature = "cluster")]
mod cluster;
mod commands;
#[cfg_attr(not(feature = "constrain"), path = "absent/constraint.rs")]
mod constraint;
#[cfg(feature = "chat")]
mod conversation;
mod failure;
mod generation_printer;
#[cfg_attr(not(feature = "gpu"), path = "absent/gpu.rs")]
mod gpu;
#[cfg_attr(not(feature = "hub"), path = "absent/hub.rs")]
mod hub;
mod input;
mod inputs;
mod interrupt;
mod json;
mod load;
mod memory;
mod output;
mod progress;
mod report;
#[cfg_attr(not(feature = "cluster"), path = "absent/ring.rs")]
mod ring;
mod signals;
#[cfg_attr(not(feature = "drafters"), path = "absent/speculation.rs")]
mod speculation;
mod stats;
#[cfg(any(feature = "analyze", feature = "chat"))]
mod terminal;
#[cfg(feature = "chat")]
mod tools;
#[cfg(any(feature = "cluster", feature = "server"))]
mod user_directory;

use std::process::ExitCode;

use crate::commands::Command;

/// Whether this build has the extras of the command line: examples in help, tips in errors,
/// warnings.
const EXTRAS: bool = cfg!(feature = "cli-extras");

fn main() -> ExitCode {
    atta::catch_bus_errors();
    match args::parse().and_then(Command::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
