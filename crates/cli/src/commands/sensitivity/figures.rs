//! The measurements as tables for people, and as JSON whose keys are a contract.

use atta::{Engine, MeasuredStep, Omission, Reduction, ReductionCost, Sensitivity};
use serde_json::{Value, json};

use crate::{failure::Failure, json, report::list};

/// Costs of single layers in a line.
const N_COLUMNS: usize = 6;

/// A row of a table: a model in part, and its cost.
struct PartRow {
    /// Layers that are left out.
    layers: Vec<usize>,
    /// Experts for each token; `None`: as many as the model says.
    n_experts: Option<usize>,
    cost: ReductionCost,
    /// Bytes of weights that a token reads, over those of the whole model.
    bytes_ratio: f64,
}

impl PartRow {
    fn new(engine: &Engine, reduction: Reduction, cost: ReductionCost) -> Result<Self, Failure> {
        let bytes_ratio = engine.bytes_ratio(&reduction)?;
        let layers = match reduction.layers {
            Omission::Layers(layers) => layers,
            Omission::Nothing | Omission::Quality(_) => Vec::new(),
        };
        Ok(Self {
            layers,
            n_experts: reduction.n_experts,
            cost,
            bytes_ratio,
        })
    }

    /// The highest quality, to two digits, that allows it.
    fn quality(&self) -> f32 {
        ((1.0 - self.cost.kld) * 100.0).floor() / 100.0
    }

    fn json(&self) -> Value {
        let ReductionCost {
            kld,
            ppl_ratio,
            same_top,
        } = self.cost;
        json!({
            "layers": self.layers,
            "n_experts": self.n_experts,
            "kld": kld,
            "ppl_ratio": ppl_ratio,
            "same_top": same_top,
            "bytes_ratio": self.bytes_ratio,
        })
    }

    fn text(&self) -> String {
        let ReductionCost {
            kld,
            ppl_ratio,
            same_top,
        } = self.cost;
        format!(
            "{kld:8.4} {:8.1} % {:+9.1} % {:+7.1} %",
            100.0 * same_top,
            100.0 * (ppl_ratio - 1.0),
            100.0 * (self.bytes_ratio - 1.0)
        )
    }
}

/// The rows of layers that are left out one after another.
fn layers(measured: &Sensitivity, engine: &Engine) -> Result<Vec<PartRow>, Failure> {
    let order: Vec<usize> = measured.layers.iter().map(|step| step.to).collect();
    let steps = measured.layers.iter().enumerate();
    let row = |(i, step): (usize, &MeasuredStep)| {
        let mut layers = order[..=i].to_vec();
        layers.sort_unstable();
        let reduction = Reduction {
            layers: Omission::Layers(layers),
            n_experts: None,
        };
        PartRow::new(engine, reduction, step.cost)
    };
    steps.map(row).collect()
}

/// The rows of fewer experts.
fn experts(measured: &Sensitivity, engine: &Engine) -> Result<Vec<PartRow>, Failure> {
    let row = |step: &MeasuredStep| {
        let reduction = Reduction {
            layers: Omission::Nothing,
            n_experts: Some(step.to),
        };
        PartRow::new(engine, reduction, step.cost)
    };
    measured.experts.iter().map(row).collect()
}

/// One JSON object; layers that were not tried have null.
pub(super) fn json(measured: &Sensitivity, engine: &Engine) -> Result<String, Failure> {
    let rows = |rows: Vec<PartRow>| -> Vec<Value> { rows.iter().map(PartRow::json).collect() };
    let alone = measured
        .skip
        .iter()
        .map(|kld| Some(*kld).filter(|kld| kld.is_finite()));
    Ok(json::pretty(&json!({
        "n_tokens": measured.n_tokens,
        "alone_kld": alone.collect::<Vec<_>>(),
        "left_out": rows(layers(measured, engine)?),
        "experts": rows(experts(measured, engine)?),
    })))
}

const COLUMNS: &str = "     KLD  same best  perplexity     bytes";

/// Tables of layers and of experts, and the layers alone.
pub(super) fn text(measured: &Sensitivity, engine: &Engine) -> Result<String, Failure> {
    let mut lines = vec![format!("{} tokens scored", measured.n_tokens)];
    lines.extend(layer_table(&layers(measured, engine)?));
    lines.extend(expert_table(&experts(measured, engine)?));
    lines.extend(alone(&measured.skip));
    Ok(lines.join("\n"))
}

fn layer_table(rows: &[PartRow]) -> Vec<String> {
    if rows.is_empty() {
        return vec!["left out: none; each costs more than 1 nat, or must stay".to_owned()];
    }
    let names: Vec<String> = rows.iter().map(|row| list(&row.layers)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max(8);
    let head = format!("{:<width$} quality {COLUMNS}", "left out");
    let lines = names.iter().zip(rows).map(|(name, row)| {
        let quality = row.quality();
        format!("{name:<width$} {quality:7.2} {}", row.text())
    });
    std::iter::once(head).chain(lines).collect()
}

fn expert_table(rows: &[PartRow]) -> Vec<String> {
    let head = (!rows.is_empty()).then(|| format!("experts {COLUMNS}"));
    let lines = rows.iter().map(|row| {
        let n = row.n_experts.unwrap_or(0);
        format!("{n:<7} {}", row.text())
    });
    head.into_iter().chain(lines).collect()
}

/// The divergence without each layer alone.
fn alone(skip: &[f32]) -> Vec<String> {
    let tried = skip.iter().enumerate().filter(|(_, kld)| kld.is_finite());
    let costs: Vec<String> = tried.map(|(l, kld)| format!("{l:3}: {kld:8.4}")).collect();
    let lines = costs.chunks(N_COLUMNS).map(|costs| costs.join("  "));
    let head = (!costs.is_empty()).then(|| "each layer alone: KLD".to_owned());
    head.into_iter().chain(lines).collect()
}
