//! The program `atta`: what was typed, what it means, do it. Everything else is in the library.

#![forbid(unsafe_code)]

mod args;
mod cache;
mod commands;
#[cfg(feature = "chat")]
mod conversation;
mod failure;
#[cfg(feature = "pull")]
mod hub;
mod input;
mod inputs;
mod interrupt;
mod json;
mod listener;
mod load;
mod memory;
mod output;
mod progress;
mod report;
mod shape;
mod stats;
#[cfg(feature = "chat")]
mod tools;

use std::process::ExitCode;

fn main() -> ExitCode {
    atta::catch_bus_errors();
    match args::parse().and_then(commands::dispatch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
