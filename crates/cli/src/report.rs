//! The reports of `--verbose` and `--mem-report` on standard error, for people: no contract.

use std::io::{self, Write};
#[cfg(any(feature = "cache", feature = "hub"))]
use std::time::Duration;

use atta::{
    Engine, Io, KvType, Prediction, Reduced, ReductionCost, SpeculationStats, Summary, WeightsAt,
    spec::ModelSpec, system::Usage,
};

use crate::{failure::one_line, stats::CachedPrefix};

/// Prints the model, its file, kernels and threads.
pub(crate) fn model(name: &str, engine: &Engine) {
    say(&format!(
        "model: {}: {}",
        one_line(name),
        spec_line(engine.spec())
    ));
    let files = engine.model().weights().files();
    let n_bytes = bytes(files.file_bytes());
    let n_tensors = files.directory().tensors().len();
    say(&format!(
        "file: {n_bytes}, {n_tensors} tensors, loaded in {:.1} ms",
        1e3 * engine.load_time().as_secs_f64()
    ));
    say(&format!(
        "kernels: {}, threads: {}",
        engine.kernels().isa(),
        engine.pool().n_threads()
    ));
}

/// Prints the seed, with which the text can be repeated.
pub(crate) fn seed(seed: u64) {
    say(&format!("seed: {seed}"));
}

/// Explains why no begin-of-sequence token was added to a prompt.
pub(crate) fn has_bos() {
    say("prompt: it begins with the begin-of-sequence token, and gets no second one");
}

/// Explains why a text was cut off.
pub(crate) fn cut_off(has_room: bool) {
    say(if has_room {
        "(cut off: see -n)"
    } else {
        "(cut off: the context is full, see -c and --window)"
    });
}

/// Prints what `--fit` has reduced.
pub(crate) fn shrunk(engine: &Engine) {
    if let Some((n_ctx, kv)) = engine.shrunk() {
        let kv = match kv {
            KvType::F16 => ", keys and values as f16",
            KvType::Q8 => ", keys and values as q8",
            _ => "",
        };
        say(&format!(
            "atta: to fit into memory: a context of {n_ctx}{kv}"
        ));
    }
}

/// Prints what the model does without, and what that was measured to cost.
pub(crate) fn reduced(engine: &Engine) {
    if let Some(reduced) = engine.reduced() {
        let percent = 100.0 * (reduced.bytes_ratio - 1.0);
        say(&format!(
            "atta: {}, {percent:+.1} % bytes per token",
            omissions(reduced)
        ));
    }
}

fn omissions(reduced: &Reduced) -> String {
    let Reduced {
        layers, n_experts, ..
    } = reduced;
    let layers = (!layers.is_empty()).then(|| {
        let cost = cost(reduced.layers_cost);
        format!("skipping layers {}: {cost}", list(layers))
    });
    let experts = n_experts.map(|n| {
        let cost = cost(reduced.experts_cost);
        format!("at most {n} experts for each token: {cost}")
    });
    let parts: Vec<String> = layers.into_iter().chain(experts).collect();
    match &parts[..] {
        [] => "skipping no layers: one alone costs more".to_owned(),
        parts => parts.join("; "),
    }
}

/// Numbers in a row.
pub(crate) fn list(numbers: &[usize]) -> String {
    let texts: Vec<String> = numbers.iter().map(usize::to_string).collect();
    texts.join(", ")
}

fn cost(cost: Option<ReductionCost>) -> String {
    let percent = |ratio: f32| 100.0 * (ratio - 1.0);
    cost.map_or_else(
        || "the cost was not measured".to_owned(),
        |ReductionCost { kld, ppl_ratio, .. }| {
            format!("KLD {kld:.2}, ppl {:+.0} %", percent(ppl_ratio))
        },
    )
}

/// Prints how much of a streamed model is kept in memory, and the expected speed: otherwise nothing
/// would explain why it is slow.
pub(crate) fn streaming(engine: &Engine) {
    let Some(Prediction {
        read_bytes,
        disk_bytes_per_s,
        ..
    }) = engine.prediction()
    else {
        return;
    };
    let io = engine.model().weights().io();
    let held = bytes(io.pinned_bytes + io.expert_bytes);
    let read = bytes(read_bytes as u64);
    let or_more = if io.expert_bytes > 0 {
        ", more where experts are used again"
    } else {
        ""
    };
    let disk = match disk_bytes_per_s {
        rate if rate > 0.0 => format!(" at {:.2} GB/s", rate / 1e9),
        _ => String::new(),
    };
    let compared = match engine.model().weights().files().has_checksums() {
        true => ", compared with checksums",
        false => "",
    };
    let speed = engine.predicted_tok_s().map_or_else(String::new, |tok_s| {
        format!("; expecting {tok_s:.2} tokens/s{or_more}")
    });
    say(&format!(
        "atta: streaming: {held} of weights held, {read} read for each token{disk}{compared}{speed}"
    ));
}

/// Compares a streamed model's speed with the expected speed.
pub(crate) fn expectation(engine: &Engine, summary: &Summary) {
    let predicted = engine.predicted_tok_s();
    if let Some(expected) = predicted.filter(|_| summary.n_generated > 1) {
        let got = summary.decode_tok_s();
        say(&format!(
            "atta: streaming: {got:.2} tokens/s, {:+.0} % of the expected {expected:.2}",
            100.0 * (got / expected - 1.0)
        ));
    }
}

/// The name of a place of weights, as in `--weights`.
pub(crate) fn weights_name(weights: WeightsAt) -> &'static str {
    match weights {
        WeightsAt::Mapped => "mapped",
        WeightsAt::Resident => "resident",
        WeightsAt::Streamed => "streamed",
    }
}

/// A model in one line.
pub(crate) fn spec_line(spec: &ModelSpec) -> String {
    let ModelSpec {
        d_model,
        n_vocab,
        n_ctx_train,
        layers,
        ..
    } = spec;
    let (_, _, d_ff) = spec.max_widths();
    format!(
        "{} layers, d_model {d_model}, d_ff {d_ff}, {n_vocab} tokens, trained for {n_ctx_train} \
         positions",
        layers.len()
    )
}

/// Prints the part of the prompt that the prompt cache has restored.
pub(crate) fn cached(CachedPrefix { n_tokens, time }: CachedPrefix) {
    if n_tokens > 0 && !time.is_zero() {
        say(&format!(
            "cache: {n_tokens} tokens of the prompt in {:.1} ms",
            1e3 * time.as_secs_f64()
        ));
    }
}

/// Prints prefill and decode speed, and what decided on it in these steps.
pub(crate) fn speed(engine: &Engine, summary: &Summary) {
    let Summary {
        n_prompt,
        n_generated,
        prefill_time,
        decode_time,
        ..
    } = summary;
    let line = |what, n: &usize, seconds: f64, rate: f64| {
        say(&format!(
            "{what}: {n} tokens in {seconds:.2} s, {rate:.1} tokens/s"
        ));
    };
    line(
        "prompt",
        n_prompt,
        prefill_time.as_secs_f64(),
        summary.prefill_tok_s(),
    );
    line(
        "text",
        n_generated,
        decode_time.as_secs_f64(),
        summary.decode_tok_s(),
    );
    if let Some(stats) = &summary.speculation {
        drafts(stats);
    }
    let threads = engine.step_threads();
    let n_decode = threads.n_decode();
    if n_decode != threads.n_prompt() {
        let n_prompt = threads.n_prompt();
        say(&format!(
            "threads: {n_decode} for single tokens, {n_prompt} for prompts"
        ));
    }
    experts(&engine.model().weights().io());
}

/// Prints how many of the experts that steps used were in memory, of a streamed model.
fn experts(io: &Io) {
    if io.n_expert_uses > 0 {
        let share = 100.0 * (1.0 - io.n_expert_misses as f64 / io.n_expert_uses as f64);
        let n = grouped(io.n_expert_uses.into());
        say(&format!(
            "experts: of {n} used, {share:.1} % in memory or on the way"
        ));
    }
}

/// Prints how drafts went, unless none was evaluated.
fn drafts(stats: &SpeculationStats) {
    let SpeculationStats {
        n_drafted,
        n_accepted,
        off,
        ..
    } = stats;
    match off {
        Some(why) => say(&format!("speculation: off ({why})")),
        None if *n_drafted > 0 => say(&format!(
            "speculation: {n_accepted} of {n_drafted} guessed tokens were right"
        )),
        None => {}
    }
}

/// Prints reserved private memory by purpose, and the figures of the operating system.
pub(crate) fn memory(engine: &Engine) {
    let reserved = engine.budget().used();
    say("private memory");
    for item in engine.budget().items() {
        row(item.name, item.bytes);
    }
    let Some(usage) = Usage::now() else {
        return row("reserved in all", reserved);
    };
    row("reserved in all", reserved);
    let elsewhere = engine.items_elsewhere();
    if !elsewhere.is_empty() {
        say("memory of the GPU");
        elsewhere.iter().for_each(|item| row(item.name, item.bytes));
    }
    say("the system says");
    row("RssAnon + RssShmem", usage.private());
    row("RssAnon", usage.rss_anon);
    row("RssShmem", usage.rss_shmem);
    row("RssFile (mapped, evictable)", usage.rss_file);
    row("VmHWM (peak of all)", usage.hwm);
}

fn row(name: &str, n_bytes: u64) {
    say(&format!("  {name:<28} {:>14}", grouped(n_bytes.into())));
}

pub(crate) fn say(line: &str) {
    // A closed standard error is no failure.
    let _ = writeln!(io::stderr(), "{line}");
}

/// `1,234,567`.
pub(crate) fn grouped(n: i128) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::from(if n < 0 { "-" } else { "" });
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1.5 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    let (unit, name) = match n {
        0..1024 => return format!("{n} bytes"),
        1024..0x10_0000 => (1u64 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    format!("{:.1} {name}", n as f64 / unit as f64)
}

/// How long ago something was, in one unit.
#[cfg(any(feature = "cache", feature = "hub"))]
pub(crate) fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(any(feature = "cache", feature = "hub"))]
    fn ages_have_one_unit() {
        let ages =
            [59, 60, 3599, 3600, 86_399, 86_400, 8_640_000].map(|s| ago(Duration::from_secs(s)));
        let expected = [
            "59 s ago",
            "1 min ago",
            "59 min ago",
            "1 h ago",
            "23 h ago",
            "1 days ago",
            "100 days ago",
        ];
        assert_eq!(ages, expected);
    }

    #[test]
    fn numbers_are_grouped_and_sizes_have_units() {
        assert_eq!(
            [0, 999, 1000, -1234567].map(grouped),
            ["0", "999", "1,000", "-1,234,567"]
        );
        assert_eq!(
            [12, 1536, 5 << 20, 3 << 29].map(bytes),
            ["12 bytes", "1.5 KiB", "5.0 MiB", "1.5 GiB"]
        );
    }
}
