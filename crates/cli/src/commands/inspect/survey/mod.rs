//! What follows from a file: the memory it would take here, how fast it may be, how it reads text,
//! where its bytes are.
//!
//! Nothing of the weights is read. What cannot be said of a file is said to be so, and the rest is
//! shown.

mod bytes;
mod json;
mod picture;
mod text;
mod vocabulary;

use std::path::Path;

use atta::{KvType, MemoryPlan};
use serde_json::Value;

use self::{bytes::Bytes, vocabulary::Vocabulary};
use super::View;
use crate::{args::InspectArgs, failure::Failure, load};

/// All of it.
pub(super) struct Survey {
    memory: Result<MemoryPlan, String>,
    /// What the memory gives, bytes per second, if that was to be measured.
    read_bytes_per_s: Option<f64>,
    vocabulary: Result<Vocabulary, String>,
    template: Option<Template>,
    bytes: Bytes,
}

/// What a file says about how messages are put to its model.
struct Template {
    n_bytes: usize,
    /// Why it cannot be used, if that is so.
    error: Option<String>,
    first_line: String,
}

impl Survey {
    pub(super) fn of(
        path: Option<&Path>,
        view: &View<'_>,
        args: &InspectArgs,
    ) -> Result<Self, Failure> {
        let flags = &args.model_flags;
        if flags.prewarm {
            return Err(Failure::Usage(
                "--prewarm does not apply to `atta inspect`, which loads nothing".to_owned(),
            ));
        }
        if flags.names_isa() && !args.speed {
            return Err(Failure::Usage(
                "--isa is about what is measured: give --speed".to_owned(),
            ));
        }
        let options = load::options(path, flags, flags.session_options(KvType::default()))?;
        let memory = view.spec.as_ref().map_err(Clone::clone);
        let memory =
            memory.and_then(|_| load::plan(path, &options).map_err(|error| error.to_string()));
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
                .map(Template::of),
            bytes: Bytes::of(view.directory.tensors()),
        })
    }

    pub(super) fn text(&self) -> String {
        text::render(self)
    }

    pub(super) fn add_to(&self, object: Value) -> Value {
        json::add(self, object)
    }

    /// What the memory allows at most, tokens per second: each token reads all weights that it is
    /// multiplied with.
    fn most_tok_s(&self) -> Option<f64> {
        let plan = self.memory.as_ref().ok()?;
        Some(self.read_bytes_per_s? / plan.token_bytes.max(1) as f64)
    }
}

impl Template {
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

/// The element types of keys and of values, as they are written on the command line.
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
