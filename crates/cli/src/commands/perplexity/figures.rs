//! The results as a table for people, and as JSON whose keys are a contract.

use atta::perplexity::{Chunks, DivergenceReport, Estimate, PerplexityReport};
use serde_json::{Value, json};

use crate::json;

/// One JSON object. Without `--kld`, `kld_mean` is null and the keys of the comparison are absent.
pub(super) fn json(report: &PerplexityReport, chunks: &Chunks) -> String {
    let mut object = json!({
        "ppl": report.ppl.value,
        "ppl_stderr": report.ppl.stderr,
        "n_tokens": report.n_tokens,
        "n_chunks": chunks.len(),
        "n_ctx": chunks.n_ctx(),
        "kld_mean": report.divergence.as_ref().map(|d| d.kld.value),
    });
    if let (Some(divergence), Some(object)) = (&report.divergence, object.as_object_mut()) {
        object.extend(comparison(divergence));
    }
    json::pretty(&object)
}

fn comparison(report: &DivergenceReport) -> impl Iterator<Item = (String, Value)> {
    let [median, p90, p95, p99, p999, max] = report.kld_quantiles.map(f64::from);
    let pairs = [
        ("kld_stderr", report.kld.stderr),
        ("kld_median", median),
        ("kld_p90", p90),
        ("kld_p95", p95),
        ("kld_p99", p99),
        ("kld_p999", p999),
        ("kld_max", max),
        ("ppl_base", report.ppl_base.value),
        ("ppl_base_stderr", report.ppl_base.stderr),
        ("ppl_ratio", report.ppl_ratio.value),
        ("ppl_ratio_stderr", report.ppl_ratio.stderr),
        ("same_top", report.same_top.value),
        ("same_top_stderr", report.same_top.stderr),
        ("delta_p_mean", report.delta_p.value),
        ("delta_p_mean_stderr", report.delta_p.stderr),
        ("delta_p_rms", report.delta_p_rms.value),
        ("delta_p_rms_stderr", report.delta_p_rms.stderr),
    ];
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), json!(value)))
}

fn divergence_rows(d: &DivergenceReport) -> [String; 7] {
    let percent = |e: Estimate| Estimate {
        value: 100.0 * e.value,
        stderr: 100.0 * e.stderr,
    };
    let [median, _, _, p99, _, max] = d.kld_quantiles;
    [
        row("perplexity of the baseline", d.ppl_base, 4),
        row("ratio of the two", d.ppl_ratio, 6),
        row("divergence, mean, nats", d.kld, 6),
        format!(
            "{:<28} {median:.6}, 99 %: {p99:.6}, greatest: {max:.6}",
            "divergence, median"
        ),
        row("same best token, %", percent(d.same_top), 3),
        row("change of p, mean, %", percent(d.delta_p), 3),
        row("change of p, rms, %", percent(d.delta_p_rms), 3),
    ]
}

/// The table.
pub(super) fn text(report: &PerplexityReport, chunks: &Chunks) -> String {
    let n = chunks.len();
    let n_ctx = chunks.n_ctx();
    let mut lines = vec![row("perplexity", report.ppl, 4)];
    lines[0] += &format!("   {} tokens, {n} chunks of {n_ctx}", report.n_tokens);
    lines.extend(report.divergence.iter().flat_map(divergence_rows));
    lines.join("\n")
}

fn row(name: &str, Estimate { value, stderr }: Estimate, digits: usize) -> String {
    format!("{name:<28} {value:.digits$} ± {stderr:.digits$}")
}
