//! Times of steps in earlier runs, in a cache directory beside the prompts: speculation begins with
//! them.
//!
//! The key is the model, the numerics of the executor, which name the instruction set, the number
//! of threads, and the place of the weights. Ratios that a run has measured are averaged with those
//! in the file; see [`StepRatios`].

use super::{Key, PromptCache, Storage, small_file::About};
use crate::{Engine, Error, StepRatios, speculation::StepCosts};

impl PromptCache {
    /// Tells `costs` the times of earlier runs of an engine, unless it was told before. Only a
    /// directory knows them.
    pub(crate) fn recall_costs(
        &self,
        engine: &Engine,
        numerics: &str,
        costs: &mut StepCosts,
    ) -> Result<(), Error> {
        if let Storage::Directory(directory) = &self.storage
            && !costs.has_earlier()
        {
            let key = Key::of_steps(engine, numerics)?;
            let bytes = About::Costs.read(directory.path(), key);
            let ratios = bytes.and_then(|bytes| StepRatios::from_bytes(&bytes));
            costs.take_earlier(ratios.unwrap_or_default());
        }
        Ok(())
    }

    /// Saves the times of this run for later ones.
    pub(crate) fn save_costs(
        &self,
        engine: &Engine,
        numerics: &str,
        costs: &StepCosts,
    ) -> Result<(), Error> {
        match (&self.storage, costs.ratios()) {
            (Storage::Directory(directory), Some(ratios)) => {
                let key = Key::of_steps(engine, numerics)?;
                About::Costs.write(directory.path(), key, &ratios.to_bytes())
            }
            _ => Ok(()),
        }
    }
}
