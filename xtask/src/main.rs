//! The project's own chores, run as `cargo xtask NAME`.
//!
//! It knows the layout of this repository and nothing of what the crates compute. The one idea: a
//! house rule that a program can check is checked here, so that review is left with the rules that
//! need taste.
#![forbid(unsafe_code)]

mod dist;
mod page;
mod paragraph;
mod source;
mod tidy;
mod web;

use std::path::Path;
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask tidy [--counts | --pending [PATH]] | dist OPTIONS | eval-builtin [OPTIONS]
                   | web [BUILD...]

  tidy           check the house rules; prints `path:line: message` for each breach
    --counts     print how often rules are known to be broken and words are used, by crate
    --pending    print the known breaches below PATH, which may only become fewer
  dist           pack a release for one target: archive, hash, bill of materials; without options,
                 lists them
  eval-builtin   try the built-in model on commands; --help lists its options
  web            build the modules of the package @atta/web into web/dist: mt-relaxed, mt-simd, st-simd";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(|report| {
            print!("{report}");
            report.findings.is_empty()
        }),
        ["tidy", "--counts"] => tidy(|report| {
            print!("{}", report.counts());
            true
        }),
        ["tidy", "--pending"] => tidy(|report| print_pending(report, "")),
        ["tidy", "--pending", path] => tidy(|report| print_pending(report, path)),
        ["dist", ..] => dist::run(root(), &args[1..]),
        ["eval-builtin", ..] => eval_builtin(&args[1..]),
        ["web", ref builds @ ..] => web(builds),
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

fn web(builds: &[&str]) -> ExitCode {
    match web::build(root(), builds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("web: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print_pending(report: &tidy::Report, path: &str) -> bool {
    let pending = report.pending.iter().flat_map(|rule| &rule.findings);
    pending
        .map(ToString::to_string)
        .filter(|finding| finding.starts_with(path))
        .for_each(|finding| println!("{finding}"));
    true
}

/// The repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies inside the workspace")
}

/// Checks the repository; `print` says whether the report is good.
fn tidy(print: impl Fn(&tidy::Report) -> bool) -> ExitCode {
    match tidy::run(root()) {
        Ok(report) if print(&report) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tidy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
