//! `atta inspect`: the contents of a file, as text or JSON, and their analysis.
//!
//! No tensors and no supported architecture are needed. Names and texts in a file may be hostile:
//! they reach a terminal only with escapes.

#[cfg_attr(not(feature = "analyze"), path = "../absent/analysis.rs")]
mod analysis;
mod json;
mod text;

use std::{collections::BTreeMap, path::Path};

use atta::{Directory, ModelFiles, TensorInfo, arch, spec::ModelSpec};
use clap::Args;

use self::analysis::{Analysis, AnalysisFlags};
use crate::{
    args::{ModelArg, extra_help},
    failure::Failure,
    load,
    output::Stdout,
};

/// Shows the contents of a GGUF file: metadata, tensors and hyperparameters.
///
/// A file of an unsupported architecture is shown, too. For a supported one, the memory that it
/// would take with these options is computed without loading it.
#[derive(Debug, Args)]
#[command(visible_alias = "show")]
#[command(after_help = extra_help(
    "Examples:
  atta inspect model.gguf
  atta inspect model.gguf -c 32768 --kv q8 --ram-budget 2G --speed
  atta inspect model.gguf --tensors --json"
))]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    model: ModelArg,
    /// List all tensors
    #[arg(long)]
    tensors: bool,
    /// Print one JSON object, with strings in full
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    analysis: AnalysisFlags,
}

pub(super) fn run(args: InspectArgs) -> Result<(), Failure> {
    let model = args.model.as_deref();
    let files = load::files(model)?;
    let name = load::path_name(model);
    let view = View::new(Path::new(&*name), &files, args.tensors);
    let analysis = Analysis::of(model, &view, &args.analysis)?;
    let mut out = Stdout::lock();
    if args.json {
        let object = analysis.add_to(json::render(&view));
        out.line(&crate::json::pretty(&object))?;
    } else {
        out.write(&text::render(&view))?;
        out.write(&analysis.text())?;
        out.write(&text::tensors(&view))?;
    }
    out.flush()
}

/// The contents of a file.
struct View<'a> {
    path: &'a Path,
    file_bytes: u64,
    directory: &'a Directory,
    /// The hyperparameters, or why the model is not supported.
    spec: Result<ModelSpec, String>,
    /// Totals by tensor type, most bytes first.
    types: Vec<(&'static str, Total)>,
    all: Total,
    /// All tensors in file order, if asked for.
    tensors: Option<&'a [TensorInfo]>,
}

/// The total of some tensors.
#[derive(Clone, Copy, Default)]
struct Total {
    n_tensors: u64,
    /// A sum of sizes, which in a hostile file may have any value.
    n_weights: u128,
    n_bytes: u128,
}

impl Total {
    fn add(&mut self, tensor: &TensorInfo) {
        self.n_tensors += 1;
        self.n_weights += u128::from(tensor.shape.n_elements());
        self.n_bytes += u128::from(tensor.n_bytes);
    }
}

impl<'a> View<'a> {
    fn new(path: &'a Path, files: &'a ModelFiles, with_tensors: bool) -> Self {
        let directory = files.directory();
        let mut types = BTreeMap::<&str, Total>::new();
        let mut all = Total::default();
        for tensor in directory.tensors() {
            types.entry(tensor.ty.name()).or_default().add(tensor);
            all.add(tensor);
        }
        let mut types: Vec<_> = types.into_iter().collect();
        types.sort_by_key(|(name, total)| (std::cmp::Reverse(total.n_bytes), *name));
        Self {
            path,
            file_bytes: files.file_bytes(),
            directory,
            spec: arch::lower(directory.metadata()).map_err(|error| error.to_string()),
            types,
            all,
            tensors: with_tensors.then(|| directory.tensors()),
        }
    }

    /// The metadata, sorted by key.
    fn metadata(&self) -> Vec<(&'a str, atta::Value<'a>)> {
        let mut entries: Vec<_> = self.directory.metadata().iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        entries
    }
}
