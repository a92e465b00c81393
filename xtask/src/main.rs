//! The project's own chores, run as `cargo xtask NAME`.
//!
//! It knows the layout of this repository and nothing of what the crates compute. The one idea: a
//! house rule that a program can check is checked here, so that review is left with the rules that
//! need taste.
#![forbid(unsafe_code)]

mod source;
mod tidy;

use std::path::Path;
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask tidy | eval-builtin [OPTIONS]

  tidy           check the house rules; prints `path:line: message` for each breach
  eval-builtin   try the built-in model on commands; --help lists its options";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["eval-builtin", ..] => eval_builtin(&args[1..]),
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

/// The example is not built with this program, which would take as long as the engine.
fn eval_builtin(args: &[String]) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = [
        "run",
        "--quiet",
        "--release",
        "--package",
        "atta",
        "--example",
        "home",
        "--",
    ];
    match Command::new(cargo).args(build).args(args).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("eval-builtin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies inside the workspace");
    match tidy::run(root) {
        Ok(report) => {
            print!("{report}");
            if report.findings.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("tidy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
