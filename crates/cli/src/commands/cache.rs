//! `atta cache`: what `--cache` keeps, as a list, and the end of it.

use std::{
    io::{self, Write},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use atta::{PromptCache, SavedPrompt};
use serde_json::{Value, json};

use crate::{
    args::{CacheAction, CacheArgs, CacheRmArgs},
    failure::{Failure, one_line},
    json,
    output::Stdout,
    report::bytes,
};

/// Digits of a key that are shown, and enough to name a prompt.
const KEY_DIGITS: usize = 12;

pub(super) fn run(args: &CacheArgs) -> Result<(), Failure> {
    match &args.action {
        CacheAction::Ls(args) => list(&open(&args.path)?, args.json),
        CacheAction::Rm(args) => remove(&open(&args.path)?, args),
    }
}

/// A cache that is there already.
fn open(path: &Path) -> Result<PromptCache, Failure> {
    std::fs::metadata(path).map_err(|error| Failure::at(path, error))?;
    Ok(PromptCache::open(path, u64::MAX)?)
}

fn list(cache: &PromptCache, as_json: bool) -> Result<(), Failure> {
    let prompts = cache.prompts()?;
    let mut out = Stdout::lock();
    if as_json {
        let prompts: Vec<Value> = prompts.iter().map(to_json).collect();
        out.line(&json::pretty(&json!({ "prompts": prompts })))?;
    } else {
        prompts
            .iter()
            .try_for_each(|prompt| out.line(&row(prompt)))?;
    }
    out.flush()
}

fn to_json(prompt: &SavedPrompt) -> Value {
    let last_use = prompt
        .last_use
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    json!({
        "key": prompt.key,
        "tokens": prompt.n_tokens,
        "bytes": prompt.bytes,
        "last_use_unix_s": last_use.map(|time| time.as_secs()),
        "model": prompt.model,
    })
}

fn row(prompt: &SavedPrompt) -> String {
    let SavedPrompt {
        key,
        n_tokens,
        bytes: n_bytes,
        last_use,
        model,
    } = prompt;
    let age = last_use
        .and_then(|time| SystemTime::now().duration_since(time).ok())
        .unwrap_or_default();
    let (size, age) = (bytes(*n_bytes), ago(age));
    format!(
        "{}  {n_tokens:>6} tokens  {size:>10}  {age:>12}  {}",
        &key[..KEY_DIGITS],
        one_line(model)
    )
}

fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn remove(cache: &PromptCache, args: &CacheRmArgs) -> Result<(), Failure> {
    let n_before = cache.prompts().map_or(0, |prompts| prompts.len());
    if args.all {
        cache.clear()?;
    }
    args.keys.iter().try_for_each(|key| cache.remove(key))?;
    let n_removed = if args.all { n_before } else { args.keys.len() };
    // If standard error is closed, nobody wants to know.
    let _ = writeln!(
        io::stderr(),
        "atta: removed {n_removed} of {n_before} prompts"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let ages =
            [59, 60, 3599, 3600, 86_399, 86_400, 8_640_000].map(|s| ago(Duration::from_secs(s)));
        let expected = [
            "59 s ago",
            "1 min ago",
            "59 min ago",
            "1 h ago",
            "23 h ago",
            "1 days ago",
            "100 days ago",
        ];
        assert_eq!(ages, expected);
    }
}
