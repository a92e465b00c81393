//! `atta version`: the program, the machine it was built for, and its features, for reports.

use atta::Kernels;
use clap::Args;
use serde_json::json;

use crate::{failure::Failure, json, output::Stdout};

/// Optional parts of the program that change the results or the interfaces, and whether this build
/// has them.
const FEATURES: [(&str, bool); 11] = [
    ("avx512", cfg!(feature = "avx512")),
    ("builtin", cfg!(feature = "builtin")),
    ("cache", cfg!(feature = "cache")),
    ("chat", cfg!(feature = "chat")),
    ("cluster", cfg!(feature = "cluster")),
    ("constrain", cfg!(feature = "constrain")),
    ("convert", cfg!(feature = "convert")),
    ("hub", cfg!(feature = "hub")),
    ("qsf", cfg!(feature = "qsf")),
    ("server", cfg!(feature = "server")),
    ("zenoh", cfg!(feature = "zenoh")),
];

/// Prints the version, the kernels of this machine, and the features of this build.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: VersionArgs) -> Result<(), Failure> {
    let features: Vec<&str> = FEATURES.iter().filter(|f| f.1).map(|f| f.0).collect();
    let arch = std::env::consts::ARCH;
    let os = std::env::consts::OS;
    let kernels = Kernels::available();
    let mut out = Stdout::lock();
    if args.json {
        out.line(&json::pretty(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "arch": arch,
            "os": os,
            "kernels": kernels,
            "features": features,
        })))?;
    } else {
        out.line(concat!("atta ", env!("CARGO_PKG_VERSION")))?;
        out.line(&format!("for {os} on {arch}"))?;
        out.line(&format!("kernels: {}", kernels.join(", ")))?;
        out.line(&format!("features: {}", features.join(", ")))?;
    }
    out.flush()
}
