//! `atta convert DIR DST --base MODEL`: a LoRA adapter of peft becomes a GGUF file.

use std::path::Path;

use atta::convert::{SourceOptions, hf::lora, open};

use super::{ConvertArgs, SourcePath, TargetFormat, to_gguf};
use crate::{failure::Failure, hub, load::warn};

/// Converts the adapter in the source's directory for the model `base`.
pub(super) fn run(args: &ConvertArgs, source: &SourcePath, base: &Path) -> Result<(), Failure> {
    check(args)?;
    if !source.path.join(lora::CONFIG).is_file() {
        let why = format!(
            "holds no {}: --base is for an adapter of peft",
            lora::CONFIG
        );
        return Err(Failure::at(&source.path, why));
    }
    let mut notes = Vec::new();
    let base = hub::locate_source(base)?;
    let base = open(&base, &SourceOptions::default(), &mut notes)?;
    notes.clear();
    let metadata = base.describe()?.metadata;
    let mut checkpoint = lora::open(&source.path, &metadata, &mut notes)?;
    notes.iter().for_each(|note| warn(note));
    to_gguf(args, &mut checkpoint)
}

/// Refuses options that have no effect on an adapter.
fn check(args: &ConvertArgs) -> Result<(), Failure> {
    let of_models = [
        (args.target() != TargetFormat::Gguf, "--to"),
        (args.mix.is_some(), "--type"),
        (args.size.is_given(), "--target-size and --target-bpw"),
        (!args.lora.is_empty(), "--lora"),
        (args.imatrix.is_some(), "--imatrix"),
        (!args.tensor_types.is_empty(), "--tensor-type"),
        (args.split.is_some(), "--split"),
        (args.layout.is_some(), "--layout"),
        (args.tokenizer.is_some(), "--tokenizer"),
        (args.pre.is_some(), "--pre"),
    ];
    match of_models.iter().find(|(is_given, _)| *is_given) {
        Some((_, name)) => Err(Failure::Usage(format!(
            "{name} does not apply to an adapter, which --base asks for"
        ))),
        None => Ok(()),
    }
}
