//! `atta doctor`: what this machine can do for language models, what slows it down, and which sizes
//! of models fit at which speed.
//!
//! Measures for about two seconds with all processors; loads no model and writes no file.

mod advice;
#[cfg(feature = "gpu")]
mod gpus;
mod machine;
mod sizes;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use self::{machine::Machine, sizes::ModelFit};
use crate::{
    args::value,
    failure::{Failure, one_line},
    json,
    output::Stdout,
    progress::Progress,
    report::bytes,
};

/// Shows what this machine can do: processor, memory, disk, the reasons why it is slow, and which
/// models fit.
///
/// Memory and arithmetic are measured, and the disk by reading a file: the largest pulled model, or
/// this program. Speeds of models are estimates for one text with a short context: what
/// measurements of `atta bench` usually come to. Exit code 0 unless nothing could be measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta doctor
  atta doctor --disk /mnt/models/big.gguf
  atta doctor --gpu
  atta doctor --json")]
pub(crate) struct DoctorArgs {
    /// Measure the disk that holds FILE, by reading it
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// Context length of the estimates, in tokens
    #[arg(
        short = 'c',
        long = "ctx-size",
        value_name = "CTX",
        default_value = "4096"
    )]
    #[arg(value_parser = value::positions, allow_negative_numbers = true)]
    n_ctx: usize,
    /// Test the GPUs instead: whether their kernels compute the CPU's bits
    #[arg(long, conflicts_with_all = ["disk", "n_ctx"])]
    gpu: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: DoctorArgs) -> Result<(), Failure> {
    if args.gpu {
        return test_gpus(args.json);
    }
    let disk = match &args.disk {
        Some(file) => Some(existing(file)?),
        None => largest_model().or_else(|| std::env::current_exe().ok()),
    };
    let mut progress = Progress::new();
    progress.busy(|| "measuring memory, arithmetic and disk".to_owned());
    let machine = Machine::measure(disk.as_deref());
    progress.clear();
    let fits = sizes::fits(&machine, args.n_ctx);
    let advice = advice::advice(&machine);
    let mut out = Stdout::lock();
    if args.json {
        let mut object = machine.to_json();
        object["notes"] = json!(advice);
        object["n_ctx"] = json!(args.n_ctx);
        object["gpus"] = json!(gpu_names());
        object["models"] = fits.iter().map(ModelFit::to_json).collect();
        out.line(&json::pretty(&object))?;
    } else {
        out.write(&text(&machine))?;
        for gpu in gpu_names().into_iter().flatten() {
            out.line(&format!(
                "gpu           {gpu}; `atta doctor --gpu` tests it"
            ))?;
        }
        out.write(&table(&fits, args.n_ctx))?;
        out.line("")?;
        for note in &advice {
            out.line(&format!("- {note}"))?;
        }
    }
    out.flush()
}

#[cfg(feature = "gpu")]
use gpus::{names as gpu_names, run as test_gpus};

#[cfg(not(feature = "gpu"))]
fn test_gpus(_: bool) -> Result<(), Failure> {
    let why = "this program was built without GPUs: its feature `gpu` has them";
    Err(Failure::Failed(why.to_owned()))
}

/// Without the feature `gpu`, GPUs are unknown.
#[cfg(not(feature = "gpu"))]
fn gpu_names() -> Option<Vec<String>> {
    None
}

/// A file whose disk is measured.
fn existing(file: &Path) -> Result<PathBuf, Failure> {
    let meta = file.metadata().map_err(|error| Failure::at(file, error))?;
    match meta.is_file() {
        true => Ok(file.to_owned()),
        false => Err(Failure::at(
            file,
            "is no file: name one on the disk to be measured",
        )),
    }
}

/// The largest file among the pulled models.
#[cfg(feature = "hub")]
fn largest_model() -> Option<PathBuf> {
    let cache = crate::hub::cache().ok()?;
    let repos = cache.repositories().ok()?;
    let files = repos.iter().filter_map(|repo| cache.files(repo).ok());
    let largest = files.flatten().max_by_key(|file| file.bytes)?;
    Some(largest.path)
}

#[cfg(not(feature = "hub"))]
fn largest_model() -> Option<PathBuf> {
    None
}

/// The machine, a line for each of its parts.
fn text(machine: &Machine) -> String {
    let lines = machine.lines();
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    let line =
        |line: &machine::ReportLine| format!("{:width$}  {}\n", line.name, one_line(&line.text));
    lines.iter().map(line).collect()
}

/// Models of several sizes on this machine.
fn table(fits: &[ModelFit], n_ctx: usize) -> String {
    let mut table = format!(
        "\nModels with a context of {n_ctx} tokens:\n\n\
         size   type       memory   how         tokens/s   prompt tokens/s\n"
    );
    for fit in fits {
        let known = |tok_s: Option<f64>| tok_s.map_or_else(|| "-".to_owned(), speed);
        let decode = known(fit.decode_tok_s);
        let prefill = known(fit.prefill_tok_s);
        table += &format!(
            "{:<6} {:<7} {:>9}   {:<9} {decode:>10} {prefill:>17}\n",
            fit.size,
            fit.format,
            bytes(fit.bytes),
            fit.how.name(),
        );
    }
    table
}

/// A speed with two digits.
fn speed(tok_s: f64) -> String {
    match tok_s {
        x if x >= 10.0 => format!("{x:.0}"),
        x if x >= 1.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}
