//! The plan and its result, as text, as JSON whose keys are a contract, and as keys of the file.

use atta::convert::{
    Checkpoint, Plan,
    target::{CostTable, TensorCosts},
};
use serde_json::{Value, json};

use super::{super::ConversionSummary, Divergence, SizedConversion, SizedOutput};
use crate::report::grouped;

/// The result of a conversion to a wished size.
pub(super) struct SizeReport<'a> {
    job: &'a SizedConversion<'a>,
    output: &'a SizedOutput,
    summary: ConversionSummary<'a>,
}

impl<'a> SizeReport<'a> {
    pub(super) fn new(job: &'a SizedConversion<'a>, output: &'a SizedOutput) -> Self {
        Self {
            job,
            output,
            summary: ConversionSummary {
                checkpoint: &output.checkpoint,
                plan: &output.plan,
                cosines: &[],
                converted: &output.converted,
            },
        }
    }

    /// Bits of the whole file per weight.
    fn bits(&self) -> f64 {
        8.0 * self.output.file_bytes as f64 / self.output.plan.n_weights.max(1) as f64
    }

    /// The table.
    pub(super) fn text(&self) -> String {
        let got = self.output.file_bytes;
        let target = self.job.target;
        let below = 100.0 * (target - got) as f64 / target as f64;
        format!(
            "{}{}file: {} bytes, {:.3} bits per weight, {below:.2} % below the size asked for\n\
             {}",
            self.tensors_text(),
            self.summary.text(),
            grouped(i128::from(got)),
            self.bits(),
            self.divergence_text(),
        )
    }

    fn divergence_text(&self) -> String {
        let decision = &self.output.decision;
        match (decision.predicted, self.output.measured) {
            (None, _) => "divergence: not measured (--calibrate TEXT)\n".to_owned(),
            (Some(predicted), None) => format!("divergence: {predicted:.4} nats predicted\n"),
            (Some(predicted), Some(Divergence { kld, n_tokens })) => format!(
                "divergence: {predicted:.4} nats predicted, {:.4} ± {:.4} measured on {} tokens\n",
                kld.value,
                kld.stderr,
                grouped(n_tokens as i128)
            ),
        }
    }

    fn tensors_text(&self) -> String {
        let line = |tensor: ChosenTensor<'_>| {
            format!(
                "{:<40} {:<8} {:>12} bytes  error {:.6}  cost {:.6}\n",
                tensor.costs.name, tensor.ty, tensor.bytes, tensor.error, tensor.cost
            )
        };
        self.tensors().into_iter().map(line).collect()
    }

    /// The tensors that `--verbose` lists.
    fn tensors(&self) -> Vec<ChosenTensor<'a>> {
        let table = &self.job.table;
        let of = |(i, costs): (usize, &'a TensorCosts)| {
            let chosen = table.chosen(i, &self.output.decision.choice);
            ChosenTensor {
                costs,
                ty: chosen.ty.name(),
                bytes: chosen.bytes,
                error: chosen.error,
                cost: self.output.decision.sensitivities[i] * chosen.error,
            }
        };
        match self.job.args.verbose {
            true => table.tensors.iter().enumerate().map(of).collect(),
            false => Vec::new(),
        }
    }

    /// One object: that of a conversion, and more.
    pub(super) fn json(&self) -> Value {
        let mut all = self.summary.json();
        all["target_bytes"] = json!(self.job.target);
        all["file_bytes"] = json!(self.output.file_bytes);
        all["file_bits_per_weight"] = json!(self.bits());
        self.add_divergence(&mut all);
        if self.job.args.verbose {
            all["tensors"] = self.tensors().iter().map(ChosenTensor::json).collect();
        }
        all
    }

    fn add_divergence(&self, all: &mut Value) {
        let measured = self.output.measured;
        all["kld_predicted"] = json!(self.output.decision.predicted);
        all["kld"] = json!(measured.map(|divergence| divergence.kld.value));
        all["kld_stderr"] = json!(measured.map(|divergence| divergence.kld.stderr));
        all["kld_tokens"] = json!(measured.map(|divergence| divergence.n_tokens));
    }
}

/// A tensor with its type.
struct ChosenTensor<'a> {
    costs: &'a TensorCosts,
    ty: &'static str,
    bytes: u64,
    error: f64,
    /// The share of the predicted divergence, or its guess up to a factor.
    cost: f64,
}

impl ChosenTensor<'_> {
    fn json(&self) -> Value {
        json!({
            "name": self.costs.name,
            "type": self.ty,
            "bytes": self.bytes,
            "error": self.error,
            "cost": self.cost,
        })
    }
}

/// What the file says of how its types were chosen.
pub(super) fn recipe(job: &SizedConversion<'_>) -> String {
    let types: Vec<String> = job
        .args
        .size
        .types()
        .iter()
        .map(|ty| ty.name().to_ascii_lowercase())
        .collect();
    let by = match &job.args.size.calibrate {
        Some(text) => format!("calibrated on {}", text.display()),
        None => "by the roles of tensors".to_owned(),
    };
    format!("{} in {} bytes, {by}", types.join(","), job.target)
}

/// Sets the sensitivities of all tensors in the order in which they are written; 0 for tensors that
/// have no choice.
pub(super) fn set_sensitivities(
    checkpoint: &mut Checkpoint,
    plan: &Plan,
    table: &CostTable,
    sensitivities: &[f64],
) {
    let of = |name: &str| {
        let found = table.tensors.iter().position(|tensor| tensor.name == name);
        found.map_or(0.0, |i| sensitivities[i] as f32)
    };
    let steps = plan.steps.iter();
    let all: Vec<f32> = steps
        .map(|step| of(&checkpoint.tensors[step.tensor].name))
        .collect();
    checkpoint
        .metadata
        .set_f32s("atta.sensitivity.tensor", &all);
}

/// Sets the keys of the measured divergence.
pub(super) fn set_divergence(checkpoint: &mut Checkpoint, measured: Divergence) {
    let metadata = &mut checkpoint.metadata;
    metadata.set_f32("atta.quant.kld", measured.kld.value as f32);
    metadata.set_u32("atta.quant.kld_tokens", measured.n_tokens as u32);
}
