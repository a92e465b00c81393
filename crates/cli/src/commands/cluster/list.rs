//! What `atta cluster ls` and `plan` print.

use atta_cluster::{
    Survey, SurveyedNode,
    plan::{IdleReason, LinkMeasure, RingPlan},
};
use serde_json::{Value, json};

use crate::{failure::Failure, output::Stdout, report, ring::Asker};

/// Lists the nodes.
pub(super) fn run(asker: &Asker, is_json: bool) -> Result<(), Failure> {
    let survey = asker.survey()?;
    asker.membership.remember();
    let mut out = Stdout::lock();
    if is_json {
        return out.line(&survey_json(&survey).to_string());
    }
    if survey.nodes.is_empty() {
        return Err(Failure::Failed(
            "no node answers: start `atta node`, or name one by --peer".to_owned(),
        ));
    }
    out.line("node             memory free/all     reads       disk      link       °C  state")?;
    for node in &survey.nodes {
        out.line(&row(node))?;
    }
    Ok(())
}

fn row(node: &SurveyedNode) -> String {
    let card = &node.card;
    let none = || "-".to_owned();
    let rate = |bytes_per_s: f64| match bytes_per_s > 0.0 {
        true => format!("{:.1} GB/s", bytes_per_s / 1e9),
        false => none(),
    };
    let numbers = card.measure;
    let memory = format!(
        "{} / {}",
        report::bytes(card.memory.free_bytes),
        report::bytes(card.memory.all_bytes)
    );
    let link = node.link.map_or_else(none, |link| {
        format!("{:.2} ms", link.rtt_p50.as_secs_f64() * 1e3)
    });
    let celsius = card.celsius.map_or_else(none, |c| format!("{c:.0}"));
    format!(
        "{:<16} {memory:<18} {:<11} {:<9} {link:<10} {celsius:<3} {}",
        card.name.as_str(),
        rate(numbers.map_or(0.0, |n| n.read_bytes_per_s)),
        rate(numbers.map_or(0.0, |n| n.disk_bytes_per_s)),
        state(node)
    )
}

/// What a node does, for people.
fn state(node: &SurveyedNode) -> String {
    match (&node.card.held, &node.unfit) {
        (Some(held), _) => format!(
            "layers {} to {} of {} for {}",
            held.layers().start,
            held.layers().end.saturating_sub(1),
            held.model,
            held.coordinator
        ),
        (None, Some(why)) => why.clone(),
        (None, None) => "free".to_owned(),
    }
}

fn survey_json(survey: &Survey) -> Value {
    let nodes = survey.nodes.iter().map(|node| {
        let card = &node.card;
        json!({
            "node": card.name.as_str(),
            "address": node.address.address.to_string(),
            "version": card.program,
            "isa": card.isa,
            "n_threads": card.n_threads,
            "memory_bytes": card.memory.all_bytes,
            "memory_free_bytes": card.memory.free_bytes,
            "read_bytes_per_s": card.measure.map(|n| n.read_bytes_per_s),
            "macs_per_s": card.measure.map(|n| n.macs_per_s),
            "disk_bytes_per_s": card.measure.map(|n| n.disk_bytes_per_s),
            "disk_free_bytes": card.disk_free_bytes,
            "celsius": card.celsius,
            "is_throttled": card.is_throttled,
            "link": node.link.map(link_json),
            "ring": card.held.as_ref().map(|held| json!({
                "coordinator": held.coordinator.as_str(),
                "model": held.model,
                "stage": held.stage,
                "first_layer": held.layers().start,
                "end_layer": held.layers().end,
                "is_ready": held.is_ready,
                "bytes": held.bytes,
                "n_computed": held.n_computed,
            })),
            "unfit": node.unfit,
        })
    });
    let silent = survey
        .silent
        .iter()
        .map(|(node, why)| json!({ "node": node.as_str(), "why": why }));
    json!({ "nodes": nodes.collect::<Vec<_>>(), "silent": silent.collect::<Vec<_>>() })
}

fn link_json(link: LinkMeasure) -> Value {
    json!({
        "rtt_p50_us": link.rtt_p50.as_micros() as u64,
        "rtt_p90_us": link.rtt_p90.as_micros() as u64,
        "bytes_per_s": link.bytes_per_s,
    })
}

/// A line for each machine of a plan, and with `why` for each that is left out.
pub(super) fn plan_lines(plan: &RingPlan, why: bool) -> Vec<String> {
    let mut lines: Vec<String> = plan
        .loads
        .iter()
        .map(|load| {
            let layers: Vec<String> = plan
                .layers_of(load.node)
                .filter(|layers| !layers.is_empty())
                .map(|layers| format!("{} to {}", layers.start, layers.end - 1))
                .collect();
            let layers = match layers.is_empty() {
                true => "no layers".to_owned(),
                false => format!("layers {}", layers.join(", ")),
            };
            let streamed = match load.streamed_bytes {
                0 => String::new(),
                bytes => format!(", {} from disk for each token", report::bytes(bytes)),
            };
            format!(
                "  {:<16} {layers}: {} of memory ({} weights, {} KV cache), {} left{streamed}",
                plan.names[load.node],
                report::bytes(load.ram_bytes),
                report::bytes(load.resident_bytes),
                report::bytes(load.kv_bytes),
                report::bytes(load.ram_left_bytes)
            )
        })
        .collect();
    if why {
        let idle = plan.idle.iter();
        lines.extend(idle.map(|idle| format!("  {:<16} {}", plan.names[idle.node], idle.reason)));
    }
    lines
}

/// A plan for programs.
pub(super) fn plan_json(plan: &RingPlan) -> Value {
    let machines = plan.loads.iter().map(|load| {
        let layers = plan.layers_of(load.node).map(|l| json!([l.start, l.end]));
        json!({
            "node": plan.names[load.node],
            "layers": layers.collect::<Vec<_>>(),
            "resident_bytes": load.resident_bytes,
            "streamed_bytes": load.streamed_bytes,
            "kv_bytes": load.kv_bytes,
            "ram_bytes": load.ram_bytes,
            "ram_left_bytes": load.ram_left_bytes,
        })
    });
    let idle = plan.idle.iter().map(|idle| {
        let with_it = match idle.reason {
            IdleReason::Slower { with_it_tok_s } => Some(with_it_tok_s),
            _ => None,
        };
        json!({
            "node": plan.names[idle.node],
            "why": idle.reason.to_string(),
            "with_it_tok_s": with_it,
        })
    });
    json!({
        "is_alone": plan.is_alone(),
        "machines": machines.collect::<Vec<_>>(),
        "decode_tok_s": plan.predicted.decode_tok_s,
        "prompt_tok_s": plan.predicted.prompt_tok_s,
        "users_tok_s": plan.predicted.users_tok_s,
        "lap_us": plan.predicted.lap.as_micros() as u64,
        "alone": plan.alone.map(|alone| json!({
            "node": plan.names[alone.node],
            "decode_tok_s": alone.predicted.decode_tok_s,
            "is_streamed": alone.is_streamed,
        })),
        "idle": idle.collect::<Vec<_>>(),
    })
}
