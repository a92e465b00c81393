//! `atta cache`: lists and removes saved prompts.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use atta::{PromptCache, SavedPrompt};
use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, one_line},
    json,
    output::Stdout,
    report::{ago, bytes},
};

/// Digits of a key that are printed; enough to name a prompt.
const KEY_DIGITS: usize = 12;

/// Lists or removes what --cache has saved.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta cache ls prompts/
  atta cache rm prompts/ 1f2e3d4c5b6a
  atta cache rm prompts/ --all")]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    action: CacheAction,
}

#[derive(Debug, Subcommand)]
enum CacheAction {
    Ls(CacheLsArgs),
    Rm(CacheRmArgs),
}

/// Lists saved prompts, most recently used first: key, tokens, bytes, last use, model.
///
/// Bytes that prompts share are counted in each.
#[derive(Debug, Args)]
struct CacheLsArgs {
    /// Directory or file, as given to --cache
    path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Removes saved prompts; states that other prompts share stay.
#[derive(Debug, Args)]
struct CacheRmArgs {
    /// Directory or file, as given to --cache
    path: PathBuf,
    /// Keys, or their first digits
    #[arg(value_name = "KEY", required_unless_present = "all")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    keys: Vec<String>,
    /// Remove all prompts
    #[arg(long, conflicts_with = "keys")]
    all: bool,
}

pub(super) fn run(args: CacheArgs) -> Result<(), Failure> {
    match &args.action {
        CacheAction::Ls(args) => list(&open(&args.path)?, args.json),
        CacheAction::Rm(args) => remove(&open(&args.path)?, args),
    }
}

/// Opens an existing cache.
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
    let size = bytes(*n_bytes);
    let age = ago(age);
    format!(
        "{}  {n_tokens:>6} tokens  {size:>10}  {age:>12}  {}",
        &key[..KEY_DIGITS],
        one_line(model)
    )
}

fn remove(cache: &PromptCache, args: &CacheRmArgs) -> Result<(), Failure> {
    let n_before = cache.prompts().map_or(0, |prompts| prompts.len());
    if args.all {
        cache.clear()?;
    }
    args.keys.iter().try_for_each(|key| cache.remove(key))?;
    let n_removed = if args.all { n_before } else { args.keys.len() };
    // A closed standard error is no failure.
    let _ = writeln!(
        io::stderr(),
        "atta: removed {n_removed} of {n_before} prompts"
    );
    Ok(())
}
