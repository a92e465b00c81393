//! Times of steps in a cache directory: speculation begins with those of earlier runs.

use std::{fs, ops::ControlFlow, path::PathBuf};

use atta_engine::{
    Draft, DraftSource, Drafter, Engine, Error, GenerateOptions, PromptCache, Speculation,
    SpeculationPolicy, StepRatios,
};

use crate::support::*;

/// Drafts four tokens behind every other text.
#[derive(Debug)]
struct EveryOther;

impl DraftSource for EveryOther {
    fn drafter(&self, _: &Engine) -> Result<Box<dyn Drafter>, Error> {
        Ok(Box::new(Self))
    }
}

impl Drafter for EveryOther {
    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        let n = if tokens.len().is_multiple_of(2) { 4 } else { 0 };
        draft.tokens.resize(n.min(n_max), 90);
        Ok(())
    }
}

/// Writes a text of 40 tokens with drafts, and saves it.
fn write(cache: &PromptCache) {
    let engine = engine("qwen3.gguf");
    let ids = text(1, 20);
    let (mut session, n, notes) = restored(&engine, cache, &ids);
    assert!(notes.is_empty(), "{notes:?}");
    let options = GenerateOptions {
        n_predict: 40,
        speculation: Some(Speculation {
            policy: SpeculationPolicy::Always,
            ..Speculation::new(EveryOther)
        }),
        ..GenerateOptions::default()
    };
    let generate = session.generate_saving(cache, &ids[n..], &options);
    let summary = generate.unwrap().run(|_| ControlFlow::Continue(()));
    assert!(summary.unwrap().speculation.unwrap().n_drafted > 20);
}

fn costs_file(scratch: &Scratch) -> Option<PathBuf> {
    let files = scratch.files().into_iter();
    let mut files = files.filter(|path| path.extension().is_some_and(|e| e == "costs"));
    files.next().filter(|_| files.next().is_none())
}

fn ratios(scratch: &Scratch) -> Option<StepRatios> {
    StepRatios::from_bytes(&fs::read(costs_file(scratch)?).unwrap())
}

#[test]
fn times_of_steps_are_kept_in_one_file_which_may_be_damaged() {
    let scratch = Scratch::new("costs");
    let cache = scratch.directory(u64::MAX);
    assert_eq!(ratios(&scratch), None);
    write(&cache);
    let first = ratios(&scratch).unwrap();
    assert_ne!(first, StepRatios::default());
    write(&cache);
    assert!(ratios(&scratch).is_some());
    fs::write(costs_file(&scratch).unwrap(), "no ratios").unwrap();
    write(&cache);
    assert!(ratios(&scratch).is_some(), "damage costs speed only");
    cache.clear().unwrap();
    assert!(scratch.files().is_empty());
}
