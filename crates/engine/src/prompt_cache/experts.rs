//! The usage of experts in earlier runs, in a cache directory beside the prompts: it says which
//! experts of a streamed model to have in memory.

use atta_store::ExpertUsage;

use super::{PromptCache, Storage, small_file::About};
use crate::{Engine, Error};

impl PromptCache {
    /// Tells a streamed model which experts were used most in earlier runs, the first time that it
    /// is called for this engine. Only a directory knows.
    pub(crate) fn recall_experts(&self, engine: &Engine) -> Result<(), Error> {
        let weights = engine.model().weights();
        let is_of_experts = weights.io().expert_bytes > 0;
        if let Storage::Directory(directory) = &self.storage
            && is_of_experts
            && engine.recalls_now()
            && let Some(bytes) = About::Experts.read(directory.path(), engine.identity()?)
            && let Some(usage) = ExpertUsage::from_bytes(&bytes)
        {
            weights.recall_experts(&usage);
        }
        Ok(())
    }

    /// Saves the usage of the experts of a streamed model for later runs.
    pub(crate) fn save_experts(&self, engine: &Engine) -> Result<(), Error> {
        let usage = engine.model().weights().expert_usage();
        match &self.storage {
            Storage::Directory(directory) if !usage.is_empty() => {
                let key = engine.identity()?;
                About::Experts.write(directory.path(), key, &usage.to_bytes())
            }
            _ => Ok(()),
        }
    }
}
