//! The project's own chores, run as `cargo xtask NAME`.
//!
//! It knows the layout of this repository and nothing of what the crates compute. The one idea: a house rule that a
//! program can check is checked here, so that review is left with the rules that need taste.
#![forbid(unsafe_code)]

mod source;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str =
    "usage: cargo xtask tidy\n\n  tidy   check the house rules; prints `path:line: message` for each breach";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tidy() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies inside the workspace");
    match tidy::run(root) {
        Ok(report) => {
            print!("{report}");
            if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("tidy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
