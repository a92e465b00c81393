//! The table of `atta bench --report`: machine, model and speeds in Markdown, for an issue.

use atta::{
    Engine,
    bench::{BenchCase, BenchReport, BenchRow},
    system::processor_name,
};

use super::{BenchArgs, kind_name};
use crate::{
    failure::one_line,
    load,
    report::{bytes, weights_name},
};

/// A measurement with some number of threads.
pub(super) type Run = (usize, BenchReport);

/// The whole report.
pub(super) fn render(args: &BenchArgs, engine: &Engine, runs: &[Run]) -> String {
    let mut text = "| | |\n|---|---|\n".to_owned();
    for (name, value) in facts(args, engine, &runs[0].1) {
        text += &format!("| {name} | {} |\n", cell(&value));
    }
    text += "\n| threads | measured | tokens | depth | tokens/s | of best |\n\
             |---|---|---|---|---|---|\n";
    for (n_threads, report) in runs {
        text += &rows(*n_threads, report);
    }
    text
}

/// Machine and model.
fn facts(args: &BenchArgs, engine: &Engine, report: &BenchReport) -> Vec<(&'static str, String)> {
    let os = std::env::consts::OS;
    let arch = std::env::consts::ARCH;
    let size = bytes(engine.model().weights().files().file_bytes());
    let weights = weights_name(engine.weights_at());
    let name = load::name(args.model.as_deref());
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let reads = report.read_bytes_per_s / 1e9;
    let macs = report.int8_mac_per_s / 1e9;
    let version = env!("CARGO_PKG_VERSION");
    vec![
        ("atta", format!("{version}, {os} on {arch}")),
        ("processor", processor_name()),
        ("kernels", engine.kernels().isa().to_owned()),
        ("memory reads", format!("{reads:.1} GB/s")),
        ("arithmetic", format!("{macs:.0} int8 GMAC/s")),
        ("model", format!("{name}, {size}, {weights}")),
    ]
}

fn rows(n_threads: usize, report: &BenchReport) -> String {
    let row = |row: &BenchRow| {
        let BenchCase { kind, n, depth } = row.case;
        let kind = kind_name(kind);
        let share = 100.0 * report.share(row);
        let rate = row.tok_s;
        format!("| {n_threads} | {kind} | {n} | {depth} | {rate:.2} | {share:.0} % |\n")
    };
    report.rows.iter().map(row).collect()
}

/// Text that stays in its cell.
fn cell(text: &str) -> String {
    one_line(text).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_in_its_cell() {
        assert_eq!(cell("a|b\nc"), "a\\|b\\nc");
    }
}
