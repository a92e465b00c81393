//! Where a node finds the models that coordinators name.

use std::ops::{ControlFlow, Range};

use atta_model::{Share, spec::ModelSpec};
use atta_store::ModelFiles;

use crate::{
    part::{HEADER, PartError, PartIndex, share_hash, tensors_of},
    wire::message::{Blocked, Digest, Loading, NodeAddress, Prepare, WantedFile, WantedModel},
};

/// A stage's wish for a model.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The model.
    pub model: &'a WantedModel,
    /// The part of it.
    pub share: &'a Share,
    /// Number of the ring, for connections that bring bytes.
    pub ring: u64,
    /// Nodes that have the model, in the order in which to ask them.
    pub sources: &'a [NodeAddress],
}

/// Hears how far the work is; [`ControlFlow::Break`] ends it.
pub type OnLoading<'a> = &'a mut dyn FnMut(Loading) -> ControlFlow<()>;

/// A model that is open.
#[derive(Debug)]
pub struct OpenModel {
    /// Its architecture.
    pub spec: ModelSpec,
    /// Its files, whole or parts.
    pub files: ModelFiles,
    /// Hash over the tensors of the layers, as [`share_hash`] makes it.
    pub share: Digest,
}

/// Finds models by their content.
pub trait Models: Send + Sync {
    /// Opens a model that has at least the wanted layers, and fetches them if need be.
    ///
    /// # Errors
    /// [`Blocked`]: it is not there and cannot be fetched.
    fn open(&self, wanted: Wanted<'_>, on: OnLoading<'_>) -> Result<OpenModel, Blocked>;

    /// Free bytes for parts of models; `None`: none are kept.
    fn disk_free_bytes(&self) -> Option<u64> {
        None
    }
}

/// The hash over the tensors of a share.
///
/// # Errors
/// A file that has not exactly the tensors of the model.
pub fn share_of(
    index: &[PartIndex],
    spec: &ModelSpec,
    share: &Share,
    files: &ModelFiles,
) -> Result<Digest, PartError> {
    let names = tensors_of(share, spec, files)?;
    Ok(Digest(share_hash(index, &names)))
}

/// What a node loads of a model.
pub(super) fn wanted_share(prepare: &Prepare) -> Share {
    let layers = prepare.part.layers.range();
    match prepare.group {
        // Every member embeds, and has rows of the head.
        Some(_) => Share {
            layers,
            embed: true,
            head: true,
        },
        None => stage_share(&layers),
    }
}

/// A stage has layers only: embedding and head are the coordinator's.
pub(crate) fn stage_share(layers: &Range<usize>) -> Share {
    Share {
        layers: layers.clone(),
        embed: false,
        head: false,
    }
}

/// The lengths and headers of a model's files.
pub fn wanted_files(index: &[PartIndex]) -> Vec<WantedFile> {
    let files = index.iter().filter_map(|file| {
        let header = file.tensors().first().filter(|t| t.name == HEADER)?;
        Some(WantedFile {
            bytes: file.file_bytes(),
            header: Digest(header.hash),
        })
    });
    files.collect()
}
