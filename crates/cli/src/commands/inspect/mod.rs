//! `atta inspect`: what is in a file, for people or as JSON, and what follows from it (`survey`).
//!
//! It needs no tensor and no architecture that we run. Names and texts in a file may be hostile:
//! nothing in them reaches a terminal unescaped.

mod json;
#[cfg(feature = "survey")]
mod survey;
mod text;

use std::{collections::BTreeMap, path::Path};

use atta::{Directory, ModelFiles, TensorInfo, arch, spec::ModelSpec};

use crate::{args::InspectArgs, failure::Failure, load, output::Stdout};

pub(super) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let files = load::files(args.model.as_deref())?;
    let name = load::path_name(args.model.as_deref());
    let view = View::new(Path::new(&*name), &files, args.tensors);
    #[cfg(feature = "survey")]
    let survey = survey::Survey::of(
        args.model
            .as_deref()
            .map(load::locate)
            .transpose()?
            .as_deref(),
        &view,
        args,
    )?;
    let mut out = Stdout::lock();
    if args.json {
        let object = json::render(&view);
        #[cfg(feature = "survey")]
        let object = survey.add_to(object);
        out.line(&crate::json::pretty(&object))?;
    } else {
        out.write(&text::render(&view))?;
        #[cfg(feature = "survey")]
        out.write(&survey.text())?;
        out.write(&text::tensors(&view))?;
    }
    out.flush()
}

/// What is shown.
struct View<'a> {
    path: &'a Path,
    file_bytes: u64,
    directory: &'a Directory,
    /// What the model is, or why we cannot run it.
    spec: Result<ModelSpec, String>,
    /// Totals by name of the type, most bytes first.
    types: Vec<(&'static str, Total)>,
    all: Total,
    /// Every tensor in file order, if asked for.
    tensors: Option<&'a [TensorInfo]>,
}

/// Tensors taken together.
#[derive(Clone, Copy, Default)]
struct Total {
    n_tensors: u64,
    /// Sums of numbers from a file, which may be anything.
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

    /// Keys and values, by key.
    fn metadata(&self) -> Vec<(&'a str, atta::Value<'a>)> {
        let mut entries: Vec<_> = self.directory.metadata().iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        entries
    }
}
