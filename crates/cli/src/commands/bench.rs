//! `atta bench`: prefill and decode speed on this machine, as a table or as one JSON object. After
//! a sweep over numbers of threads, the details are those of the last one.

use std::path::PathBuf;

use atta::{
    Engine, KvType,
    bench::{BenchOptions, BenchReport, TimeSplit, bench},
};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    args::{ModelFlags, extra_help, value},
    failure::{Failure, one_line},
    json, load,
    output::Stdout,
    progress::Progress,
    report::{bytes, spec_line, weights_name},
};

/// Measures prefill and decode speed.
///
/// One warm-up, then medians: prefill of N tokens in batches, and decoding of N tokens. The context
/// is as long as they need, or -c if that is longer.
#[derive(Debug, Args)]
#[command(after_help = extra_help(
    "Examples:
  atta bench model.gguf
  atta bench model.gguf -p 0 -n 32 -d 4096 -j 4 --json
  atta bench model.gguf --sweep 1,2,4"
))]
pub(crate) struct BenchArgs {
    /// GGUF file, or ORG/REPO[:QUANT] that was pulled [default: the built-in model]
    model: Option<PathBuf>,
    /// Prompt tokens (0 = skip)
    #[arg(short = 'p', value_name = "N", default_value = "512")]
    #[arg(value_parser = value::positions_or_0, allow_negative_numbers = true)]
    n_prompt: usize,
    /// Generated tokens (0 = skip)
    #[arg(short = 'n', value_name = "N", default_value = "128")]
    #[arg(value_parser = value::positions_or_0, allow_negative_numbers = true)]
    n_gen: usize,
    /// Depth: tokens in the context before each measurement
    #[arg(short = 'd', value_name = "DEPTH", default_value = "0")]
    #[arg(value_parser = value::positions_or_0, allow_negative_numbers = true)]
    depth: usize,
    /// Repetitions
    #[arg(short = 'r', value_name = "REPS", default_value = "3")]
    #[arg(value_parser = repetitions, allow_negative_numbers = true)]
    n_reps: usize,
    /// Measure with each of these numbers of threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value::threads)]
    #[arg(conflicts_with_all = ["threads", "cpus"])]
    sweep: Vec<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_flags: ModelFlags,
}

fn repetitions(text: &str) -> Result<usize, String> {
    value::within(text, 1, MAX_REPETITIONS)
}

const MAX_REPETITIONS: usize = 10_000;

pub(super) fn run(args: BenchArgs) -> Result<(), Failure> {
    args.model_flags.refuse_fit("bench")?;
    let mut runs = Vec::new();
    let mut last = None;
    for flags in thread_counts(&args) {
        // Two models might not fit into memory.
        drop(last.take());
        let (engine, report) = measure(&args, &flags)?;
        runs.push((engine.pool().n_threads(), report));
        last = Some(engine);
    }
    let (engine, (_, report)) = last
        .as_ref()
        .zip(runs.last())
        .expect("something was measured");
    let mut out = Stdout::lock();
    if args.json {
        let mut object = to_json(&args, engine, report);
        if !args.sweep.is_empty() {
            object["sweep"] = runs
                .iter()
                .map(|(n, report)| sweep_json(*n, report))
                .collect();
        }
        out.line(&json::line(&object))?;
    } else {
        out.write(&to_table(&args, engine, report))?;
        if !args.sweep.is_empty() {
            out.write(&sweep_table(&runs))?;
        }
    }
    out.flush()
}

/// The flags of each measurement: those given, or with each number of threads of the sweep.
fn thread_counts(args: &BenchArgs) -> Vec<ModelFlags> {
    match &args.sweep[..] {
        [] => vec![args.model_flags.clone()],
        sweep => sweep
            .iter()
            .map(|&n| args.model_flags.with_threads(n))
            .collect(),
    }
}

fn measure(args: &BenchArgs, flags: &ModelFlags) -> Result<(Engine, BenchReport), Failure> {
    let model = args.model.as_deref();
    let options = options(args)?;
    let engine = load::engine(
        model,
        &load::options(model, flags, options.session.clone())?,
    )?;
    let mut progress = Progress::new();
    progress.busy(|| {
        let n_threads = engine.pool().n_threads();
        format!(
            "measuring, {} rounds, {n_threads} threads",
            options.n_reps + 1
        )
    });
    let report = bench(&engine, &options)?;
    progress.clear();
    Ok((engine, report))
}

fn options(args: &BenchArgs) -> Result<BenchOptions, Failure> {
    let BenchArgs {
        n_prompt,
        n_gen,
        depth,
        n_reps,
        ..
    } = *args;
    if n_prompt == 0 && n_gen == 0 {
        return Err(Failure::Usage(
            "-p 0 and -n 0 leave nothing to measure".to_owned(),
        ));
    }
    let needed = depth + n_prompt.max(n_gen);
    if let Some(n_ctx) = args.model_flags.n_ctx.filter(|&n_ctx| n_ctx < needed) {
        return Err(Failure::Usage(format!(
            "-c {n_ctx} is too short: -d, -p and -n need a context of {needed}"
        )));
    }
    let mut session = args.model_flags.session_options(KvType::default());
    session.n_ctx = Some(session.n_ctx.unwrap_or(needed));
    Ok(BenchOptions {
        n_prompt,
        n_gen,
        depth,
        n_reps,
        session,
    })
}

fn to_json(args: &BenchArgs, engine: &Engine, report: &BenchReport) -> Value {
    json!({
        "prefill_tok_s": report.prefill_tok_s,
        "decode_tok_s": report.decode_tok_s,
        "n_prompt": args.n_prompt,
        "n_gen": args.n_gen,
        "depth": args.depth,
        "reps": args.n_reps,
        "threads": engine.pool().n_threads(),
        "isa": engine.kernels().isa(),
        "model": load::path_name(args.model.as_deref()),
        "weights": weights_name(engine.weights_at()),
        "predicted_decode_tok_s": engine.prediction().map(|p| p.decode_tok_s),
        "file_bytes": engine.model().weights().files().file_bytes(),
        // The best of this machine, and the share of it that was used.
        "read_bytes_per_s": report.read_bytes_per_s,
        "int8_mac_per_s": report.int8_mac_per_s,
        "decode_share": report.decode_share(),
        "prefill_share": report.prefill_share(),
        "prefill_split": split_json(&report.prefill_split),
        "decode_split": split_json(&report.decode_split),
    })
}

/// The result of one number of threads of a sweep.
fn sweep_json(n_threads: usize, report: &BenchReport) -> Value {
    json!({
        "threads": n_threads,
        "prefill_tok_s": report.prefill_tok_s,
        "decode_tok_s": report.decode_tok_s,
        "read_bytes_per_s": report.read_bytes_per_s,
        "int8_mac_per_s": report.int8_mac_per_s,
        "decode_share": report.decode_share(),
        "prefill_share": report.prefill_share(),
    })
}

/// Shares are relative to the best that this number of threads can do.
fn sweep_table(runs: &[(usize, BenchReport)]) -> String {
    let mut table = "\nthreads     prompt tokens/s  of int8   text tokens/s  of reads\n".to_owned();
    for (n, report) in runs {
        let prompt = report.prefill_tok_s;
        let text = report.decode_tok_s;
        let [of_int8, of_reads] =
            [report.prefill_share(), report.decode_share()].map(|share| 100.0 * share);
        table += &format!("{n:>7} {prompt:>19.2} {of_int8:>7.0}% {text:>15.2} {of_reads:>8.0}%\n");
    }
    table
}

/// Seconds, summed over all repetitions.
fn split_json(split: &TimeSplit) -> Value {
    json!({
        "matmul_s": split.matmul_s,
        "attention_s": split.attention_s,
        "scan_s": split.scan_s,
        "io_wait_s": split.io_wait_s,
        "other_s": split.other_s,
    })
}

fn to_table(args: &BenchArgs, engine: &Engine, report: &BenchReport) -> String {
    let size = bytes(engine.model().weights().files().file_bytes());
    let mut table = format!(
        "{}: {size}, {}\n",
        one_line(&load::name(args.model.as_deref())),
        spec_line(engine.spec())
    );
    let isa = engine.kernels().isa();
    let n_threads = engine.pool().n_threads();
    table += &format!(
        "{isa}, {n_threads} threads, depth {}, median of {}\n\n",
        args.depth, args.n_reps
    );
    table += "            tokens    tokens/s   matmul  attention   scan  I/O wait  other\n";
    let rows = [
        (
            "prompt",
            args.n_prompt,
            report.prefill_tok_s,
            report.prefill_split,
        ),
        ("text", args.n_gen, report.decode_tok_s, report.decode_split),
    ];
    for (name, n, rate, split) in rows.into_iter().filter(|(_, n, ..)| *n > 0) {
        let [matmul, attention, scan, io_wait, other] = percent(&split);
        table += &format!(
            "{name:<10} {n:>7} {rate:>11.2} {matmul:>7.1}% {attention:>9.1}% {scan:>5.1}% \
             {io_wait:>8.1}% {other:>5.1}%\n"
        );
    }
    table + &machine(args, report)
}

/// The best of this machine, and how much of it was used.
fn machine(args: &BenchArgs, report: &BenchReport) -> String {
    let share = |n: usize, share: f64| {
        if n > 0 {
            format!("; {:.0}% of it used", 100.0 * share)
        } else {
            String::new()
        }
    };
    format!(
        "\nint8 products  {:>7.1} GMAC/s{}\nmemory reads   {:>7.1} GB/s{}\n",
        report.int8_mac_per_s / 1e9,
        share(args.n_prompt, report.prefill_share()),
        report.read_bytes_per_s / 1e9,
        share(args.n_gen, report.decode_share()),
    )
}

/// Percentages of matmul, attention, recurrent layers, I/O wait and the rest.
fn percent(split: &TimeSplit) -> [f64; 5] {
    let parts = [
        split.matmul_s,
        split.attention_s,
        split.scan_s,
        split.io_wait_s,
        split.other_s,
    ];
    let total: f64 = parts.iter().sum();
    parts.map(|part| {
        if total > 0.0 {
            100.0 * part / total
        } else {
            0.0
        }
    })
}
