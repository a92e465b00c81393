//! `atta bench`: prefill and decode speed on this machine, as a table or as one JSON object. After
//! a sweep over numbers of threads, the details are those of the last one. Of lists of lengths, the
//! single figures of the object are those of the first prompt and the first text.

#[cfg(feature = "cluster")]
mod markdown;

use atta::{
    Engine, KvType,
    bench::{BenchCase, BenchKind, BenchOptions, BenchReport, BenchRow, TimeSplit, bench},
};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    args::{GpuFlags, ModelArg, ModelFlags, RingFlags, extra_help, ring::RingAim, value},
    failure::{Failure, one_line},
    gpu::GpuPlanner,
    json, load,
    output::Stdout,
    progress::Progress,
    report::{bytes, spec_line, weights_name},
    ring,
};

/// Measures prefill and decode speed.
///
/// A warm-up, then medians: prefill of N tokens in batches, and decoding of N tokens. Lists such as
/// -p 512,2048 -d 0,4096 measure every prompt and every text at every depth. The DEPTH tokens are
/// filled in, not computed. The context is as long as they need, or -c if that is longer.
#[derive(Debug, Args)]
#[command(after_help = extra_help(
    "Examples:
  atta bench model.gguf
  atta bench model.gguf -p 0 -n 32 -d 4096 -j 4 --json
  atta bench model.gguf -p 512,2048,8192 -n 64 -d 0,4096,16384
  atta bench model.gguf --sweep 1,2,4
  atta bench model.gguf --report"
))]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Prompt tokens, or a list (0 = skip)
    #[arg(
        short = 'p',
        long = "n-prompt",
        value_name = "N,…",
        default_value = "512",
        value_delimiter = ','
    )]
    #[arg(value_parser = value::positions_or_0, allow_negative_numbers = true)]
    n_prompts: Vec<usize>,
    /// Generated tokens, or a list (0 = skip)
    #[arg(
        short = 'n',
        long = "n-gen",
        value_name = "N,…",
        default_value = "128",
        value_delimiter = ','
    )]
    #[arg(value_parser = value::positions_or_0, allow_negative_numbers = true)]
    n_gens: Vec<usize>,
    /// Depth: tokens in the context before each measurement, or a list
    #[arg(
        short = 'd',
        long = "n-depth",
        value_name = "DEPTH,…",
        default_value = "0",
        value_delimiter = ','
    )]
    #[arg(value_parser = value::positions_or_0, allow_negative_numbers = true)]
    depths: Vec<usize>,
    /// Repetitions
    #[arg(
        short = 'r',
        long = "repetitions",
        value_name = "REPS",
        default_value = "3"
    )]
    #[arg(value_parser = repetitions, allow_negative_numbers = true)]
    n_reps: usize,
    /// Measure with each of these numbers of threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value::threads)]
    #[arg(conflicts_with_all = ["threads", "cpus"])]
    sweep: Vec<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print machine, model and speeds in Markdown, for an issue
    #[cfg(feature = "cluster")]
    #[arg(long, conflicts_with = "json")]
    report: bool,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    ring: RingFlags,
    #[command(flatten)]
    gpu: GpuFlags,
}

fn repetitions(text: &str) -> Result<usize, String> {
    value::within(text, 1, MAX_REPETITIONS)
}

const MAX_REPETITIONS: usize = 10_000;

pub(super) fn run(args: BenchArgs) -> Result<(), Failure> {
    args.model_flags.refuse_fit("bench")?;
    let gpus = GpuPlanner::new(1);
    let mut runs = Vec::new();
    let mut last = None;
    for flags in thread_counts(&args) {
        // Two models might not fit into memory.
        drop(last.take());
        let (engine, report) = measure(&args, &flags, &gpus)?;
        runs.push((engine.pool().n_threads(), report));
        last = Some(engine);
    }
    let (engine, (_, report)) = last
        .as_ref()
        .zip(runs.last())
        .expect("something was measured");
    let mut out = Stdout::lock();
    #[cfg(feature = "cluster")]
    if args.report {
        out.write(&markdown::render(&args, engine, &runs))?;
        return out.flush();
    }
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

fn measure(
    args: &BenchArgs,
    flags: &ModelFlags,
    gpus: &GpuPlanner,
) -> Result<(Engine, BenchReport), Failure> {
    let model = args.model.as_deref();
    let options = options(args)?;
    let load_options = load::options(model, flags, options.session.clone())?;
    let (load_options, _) = ring::plan(model, &args.ring, RingAim::Latency, load_options)?;
    let load_options = gpus.plan(model, &args.gpu, load_options)?;
    let engine = load::engine(model, &load_options)?;
    let mut progress = Progress::new();
    let n_threads = engine.pool().n_threads();
    let n_cases = options.cases().len();
    let report = bench(&engine, &options, |i, case| {
        progress.busy(|| {
            let BenchCase { n, depth, .. } = case;
            let kind = kind_name(case.kind);
            let i = i + 1;
            format!("measuring {i} of {n_cases}: {kind} of {n} behind {depth}, {n_threads} threads")
        });
    })?;
    progress.clear();
    Ok((engine, report))
}

fn options(args: &BenchArgs) -> Result<BenchOptions, Failure> {
    let mut options = BenchOptions {
        n_prompts: args.n_prompts.clone(),
        n_gens: args.n_gens.clone(),
        depths: args.depths.clone(),
        n_reps: args.n_reps,
        session: args.model_flags.session_options(KvType::default()),
    };
    if options.cases().is_empty() {
        return Err(Failure::Usage(
            "-p 0 and -n 0 leave nothing to measure".to_owned(),
        ));
    }
    let needed = options.n_positions();
    if let Some(n_ctx) = args.model_flags.n_ctx.filter(|&n_ctx| n_ctx < needed) {
        return Err(Failure::Usage(format!(
            "-c {n_ctx} is too short: -d, -p and -n need a context of {needed}"
        )));
    }
    options.session.n_ctx = Some(options.session.n_ctx.unwrap_or(needed));
    Ok(options)
}

fn kind_name(kind: BenchKind) -> &'static str {
    match kind {
        BenchKind::Prompt => "prompt",
        BenchKind::Text => "text",
    }
}

fn to_json(args: &BenchArgs, engine: &Engine, report: &BenchReport) -> Value {
    let prompt = report.first(BenchKind::Prompt);
    let text = report.first(BenchKind::Text);
    let split = |row: Option<&BenchRow>| row.map_or_else(TimeSplit::default, |row| row.split);
    let mut object = json!({
        "n_prompt": args.n_prompts[0],
        "n_gen": args.n_gens[0],
        "depth": args.depths[0],
        "reps": args.n_reps,
        "threads": engine.pool().n_threads(),
        "decode_threads": engine.step_threads().n_decode(),
        "prompt_threads": engine.step_threads().n_prompt(),
        "isa": engine.kernels().isa(),
        "model": load::path_name(args.model.as_deref()),
        "weights": weights_name(engine.weights_at()),
        "predicted_decode_tok_s": engine.predicted_tok_s(),
        "file_bytes": engine.model().weights().files().file_bytes(),
        "prefill_split": split_json(&split(prompt)),
        "decode_split": split_json(&split(text)),
    });
    add_figures(&mut object, report);
    object
}

/// Adds the speeds, what this machine can do at best, and the share of it that was used; 0 if
/// not measured.
fn add_figures(object: &mut Value, report: &BenchReport) {
    let first = |kind, figure: &dyn Fn(&BenchRow) -> f64| report.first(kind).map_or(0.0, figure);
    for (kind, rate, share) in [
        (BenchKind::Prompt, "prefill_tok_s", "prefill_share"),
        (BenchKind::Text, "decode_tok_s", "decode_share"),
    ] {
        object[rate] = first(kind, &|row| row.tok_s).into();
        object[share] = first(kind, &|row| report.share(row)).into();
    }
    object["read_bytes_per_s"] = report.read_bytes_per_s.into();
    object["int8_mac_per_s"] = report.int8_mac_per_s.into();
    let rows = report.rows.iter().map(|row| row_json(report, row));
    object["rows"] = rows.collect();
}

fn row_json(report: &BenchReport, row: &BenchRow) -> Value {
    json!({
        "kind": kind_name(row.case.kind),
        "n": row.case.n,
        "depth": row.case.depth,
        "tok_s": row.tok_s,
        "share": report.share(row),
        "split": split_json(&row.split),
    })
}

/// The result of one number of threads of a sweep.
fn sweep_json(n_threads: usize, report: &BenchReport) -> Value {
    let mut object = json!({ "threads": n_threads });
    add_figures(&mut object, report);
    object
}

/// Shares are relative to the best that this number of threads can do.
fn sweep_table(runs: &[(usize, BenchReport)]) -> String {
    let mut table = "\nthreads  measured   tokens    depth    tokens/s  of best\n".to_owned();
    for (n_threads, report) in runs {
        for row in &report.rows {
            let BenchCase { kind, n, depth } = row.case;
            let kind = kind_name(kind);
            let share = 100.0 * report.share(row);
            let rate = row.tok_s;
            table += &format!(
                "{n_threads:>7}  {kind:<8} {n:>8} {depth:>8} {rate:>11.2} {share:>7.0}%\n"
            );
        }
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
    let threads = threads_text(engine);
    table += &format!("{isa}, {threads}, median of {}\n\n", args.n_reps);
    table += "          tokens    depth    tokens/s  of best   matmul  attention   scan  I/O wait  \
              other\n";
    for row in &report.rows {
        table += &table_row(report, row);
    }
    table + &machine(report)
}

/// The threads of the pool, and those of each kind of step where these differ.
fn threads_text(engine: &Engine) -> String {
    let threads = engine.step_threads();
    let n_decode = threads.n_decode();
    let n_prompt = threads.n_prompt();
    match n_decode == n_prompt {
        true => format!("{} threads", engine.pool().n_threads()),
        false => format!("{n_decode} threads for texts, {n_prompt} for prompts"),
    }
}

fn table_row(report: &BenchReport, row: &BenchRow) -> String {
    let BenchCase { kind, n, depth } = row.case;
    let kind = kind_name(kind);
    let rate = row.tok_s;
    let share = 100.0 * report.share(row);
    let [matmul, attention, scan, io_wait, other] = percent(&row.split);
    format!(
        "{kind:<7} {n:>8} {depth:>8} {rate:>11.2} {share:>7.0}% {matmul:>7.1}% {attention:>9.1}% \
         {scan:>5.1}% {io_wait:>8.1}% {other:>5.1}%\n"
    )
}

/// The best of this machine: the first limits prompts, the second texts.
fn machine(report: &BenchReport) -> String {
    format!(
        "\nint8 products  {:>7.1} GMAC/s, the best of prompts\n\
         memory reads   {:>7.1} GB/s, the best of texts\n",
        report.int8_mac_per_s / 1e9,
        report.read_bytes_per_s / 1e9,
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
