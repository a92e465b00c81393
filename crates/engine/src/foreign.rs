//! GGUF files that are no models: adapters, importance matrices, projectors, vocabularies.
//!
//! Knows what files say of themselves. Without it, such a file is refused for the first key or
//! tensor that it lacks.

use std::path::Path;

use atta_formats::Directory;

use crate::Error;

/// Refuses a file that says that it is something else than a model, or that has no weights.
pub(crate) fn check(path: &Path, directory: &Directory) -> Result<(), Error> {
    let what = match &*directory.metadata().shown("general.type") {
        "adapter" => "a LoRA adapter: name its base model, and the adapter beside it",
        "imatrix" => "an importance matrix: it is for the conversion of a model",
        "mmproj" => "the projector of images (mmproj) of a model: name the model itself",
        _ if directory.tensors().is_empty() => "a vocabulary without weights",
        _ => return Ok(()),
    };
    Err(Error::NotModel {
        path: path.to_owned(),
        what,
    })
}
