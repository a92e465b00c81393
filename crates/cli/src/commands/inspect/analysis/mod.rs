//! What follows from a file: the memory that the model would take here, a bound on its speed, its
//! tokenizer and chat template, and a map of its bytes.
//!
//! No weights are read. A part that cannot be computed is reported as such, and the rest is shown.

mod byte_map;
mod bytes;
mod json;
mod text;
mod vocabulary;

use std::path::Path;

use atta::{Explain, KvType, MemoryPlan};
use clap::Args;
use serde_json::Value;

use self::{bytes::TensorBytes, vocabulary::Vocabulary};
use super::View;
use crate::{
    args::{GpuFlags, ModelFlags, flag},
    failure::Failure,
    gpu::GpuPlanner,
    load,
};

/// The options of the analysis.
#[derive(Debug, Args)]
pub(super) struct AnalysisFlags {
    /// Measure memory bandwidth, and print an upper bound on tokens per second
    #[arg(long)]
    speed: bool,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    gpu: GpuFlags,
}

/// The analysis of a file.
pub(super) struct Analysis {
    memory: Result<MemoryPlan, String>,
    /// Measured memory bandwidth, bytes per second, if asked for.
    read_bytes_per_s: Option<f64>,
    vocabulary: Result<Vocabulary, String>,
    template: Option<TemplateInfo>,
    bytes: TensorBytes,
}

/// The chat template of a file.
struct TemplateInfo {
    n_bytes: usize,
    /// Why the template cannot be used, if so.
    error: Option<String>,
    first_line: String,
}

impl Analysis {
    pub(super) fn of(
        model: Option<&Path>,
        view: &View<'_>,
        args: &AnalysisFlags,
    ) -> Result<Self, Failure> {
        let flags = &args.model_flags;
        if flags.prewarm {
            return Err(Failure::Usage(
                "--prewarm does not apply to `atta inspect`, which loads nothing".to_owned(),
            ));
        }
        if flags.verify {
            return Err(Failure::Usage(
                "--verify does not apply to `atta inspect`, which loads nothing: see `atta verify`"
                    .to_owned(),
            ));
        }
        if flags.isa.is_some() && !args.speed {
            return Err(Failure::Usage("--isa needs --speed".to_owned()));
        }
        if args.speed && args.gpu.wanted().is_some() {
            return Err(Failure::Usage(
                "--speed is a bound of the CPU's memory: it does not work with --gpu".to_owned(),
            ));
        }
        let path = model.map(load::locate).transpose()?;
        let path = path.as_deref();
        let options = load::options(path, flags, flags.session_options(KvType::default()))?;
        let options = GpuPlanner::new(1).outline(path, &args.gpu, options)?;
        let memory = view.spec.as_ref().map_err(Clone::clone);
        let memory =
            memory.and_then(|_| load::plan(path, &options).map_err(|error| error.explain(flag)));
        let measured = memory.as_ref().ok().filter(|_| args.speed);
        let read_bytes_per_s = measured
            .map(|plan| plan.read_bandwidth(&options))
            .transpose()?;
        let metadata = view.directory.metadata();
        Ok(Self {
            memory,
            read_bytes_per_s,
            vocabulary: Vocabulary::of(metadata),
            template: metadata
                .str("tokenizer.chat_template")
                .ok()
                .flatten()
                .map(TemplateInfo::of),
            bytes: TensorBytes::of(view.directory.tensors()),
        })
    }

    pub(super) fn text(&self) -> String {
        text::render(self)
    }

    /// The object of the view with the keys of the analysis.
    pub(super) fn add_to(&self, object: Value) -> Value {
        json::add(self, object)
    }

    /// The upper bound of the memory bandwidth on tokens per second: each token reads all weights
    /// that it is multiplied with.
    fn most_tok_s(&self) -> Option<f64> {
        let plan = self.memory.as_ref().ok()?;
        Some(self.read_bytes_per_s? / plan.token_bytes.max(1) as f64)
    }
}

impl TemplateInfo {
    fn of(template: &str) -> Self {
        let first_line = template
            .trim_start()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        Self {
            n_bytes: template.len(),
            error: template_error(template),
            first_line,
        }
    }
}

#[cfg(feature = "chat")]
fn template_error(template: &str) -> Option<String> {
    use atta::chat::{SpecialTexts, Template};
    Template::new(template, SpecialTexts::default())
        .err()
        .map(|error| error.to_string())
}

#[cfg(not(feature = "chat"))]
fn template_error(_: &str) -> Option<String> {
    None
}

/// The KV cache types of keys and values, as on the command line.
fn kv_names(kv: KvType) -> [&'static str; 2] {
    let all = [
        ("f32", KvType::F32),
        ("f16", KvType::F16),
        ("q8", KvType::Q8),
        ("q4", KvType::Q4),
    ];
    [kv.k, kv.v].map(|elem| {
        all.iter()
            .find(|(_, of)| of.k == elem)
            .map_or("unknown", |(name, _)| name)
    })
}
