//! `atta bench`: how fast a prompt is read and text is written here, as a table or as one JSON
//! object. Of a sweep over numbers of threads, details are those of the last one.

use atta::{
    Engine, KvType,
    bench::{BenchOptions, BenchReport, TimeSplit, bench},
};
use serde_json::{Value, json};

use crate::{
    args::{BenchArgs, ModelFlags},
    failure::{Failure, one_line},
    json, load,
    output::Stdout,
    progress::Progress,
    report::{bytes, spec_line, weights_name},
};

pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    args.model_flags.refuse_fit("bench")?;
    let (mut runs, mut last) = (Vec::new(), None);
    for flags in thread_counts(args) {
        // Two models at once might not fit.
        drop(last.take());
        let (engine, report) = measure(args, &flags)?;
        runs.push((engine.pool().n_threads(), report));
        last = Some(engine);
    }
    let (engine, (_, report)) = last
        .as_ref()
        .zip(runs.last())
        .expect("something was measured");
    let mut out = Stdout::lock();
    if args.json {
        let mut object = to_json(args, engine, report);
        if !args.sweep.is_empty() {
            object["sweep"] = runs.iter().map(sweep_json).collect();
        }
        out.line(&json::line(&object))?;
    } else {
        out.write(&to_table(args, engine, report))?;
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
    let (model, options) = (args.model.as_deref(), options(args)?);
    let engine = load::engine(
        model,
        &load::options(model, flags, options.session.clone())?,
    )?;
    let mut progress = Progress::new();
    progress.busy(&format!(
        "measuring, {} rounds, {} threads",
        options.n_reps + 1,
        engine.pool().n_threads()
    ));
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
        // What this machine can do at best, and our share of it.
        "read_bytes_per_s": report.read_bytes_per_s,
        "int8_mac_per_s": report.int8_mac_per_s,
        "decode_share": report.decode_share(),
        "prefill_share": report.prefill_share(),
        "prefill_split": split_json(&report.prefill_split),
        "decode_split": split_json(&report.decode_split),
    })
}

/// One number of threads of a sweep.
fn sweep_json((n_threads, report): &(usize, BenchReport)) -> Value {
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

/// Shares are those of what as many threads can do.
fn sweep_table(runs: &[(usize, BenchReport)]) -> String {
    let mut table = "\nthreads     prompt tokens/s  of int8   text tokens/s  of reads\n".to_owned();
    for (n, report) in runs {
        let (prompt, text) = (report.prefill_tok_s, report.decode_tok_s);
        let [of_int8, of_reads] =
            [report.prefill_share(), report.decode_share()].map(|share| 100.0 * share);
        table += &format!("{n:>7} {prompt:>19.2} {of_int8:>7.0}% {text:>15.2} {of_reads:>8.0}%\n");
    }
    table
}

/// Seconds, all repetitions together.
fn split_json(split: &TimeSplit) -> Value {
    json!({
        "matmul_s": split.matmul_s,
        "attention_s": split.attention_s,
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
    let (isa, n_threads) = (engine.kernels().isa(), engine.pool().n_threads());
    table += &format!(
        "{isa}, {n_threads} threads, depth {}, median of {}\n\n",
        args.depth, args.n_reps
    );
    table += "            tokens    tokens/s   matmul  attention  I/O wait  other\n";
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
        let [matmul, attention, io_wait, other] = percent(&split);
        table += &format!(
            "{name:<10} {n:>7} {rate:>11.2} {matmul:>7.1}% {attention:>9.1}% {io_wait:>8.1}% {other:>5.1}%\n"
        );
    }
    table + &machine(args, report)
}

/// What the machine can do at best, and how much of it was used.
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

/// Shares of matmul, attention, I/O wait and other.
fn percent(split: &TimeSplit) -> [f64; 4] {
    let parts = [
        split.matmul_s,
        split.attention_s,
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
