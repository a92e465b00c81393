//! `atta list` and `atta rm`: the models that were pulled. `atta show` is `atta inspect`.
//!
//! The cache is that of Hugging Face's own programs: what they have downloaded is listed too, and
//! removed for them too.

use std::{
    io::{self, Write},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use atta_hub::{CachedFile, RepoId, Request};
use clap::Args;
use serde_json::{Value, json};

use super::pull::repository;
use crate::{
    failure::{Failure, one_line},
    hub, json,
    output::Stdout,
    report::{ago, bytes},
};

/// Lists the models that were pulled: name, size, age.
///
/// The names are those that all commands take as MODEL. A repository without a GGUF file is listed
/// as a whole, for `atta convert`. HF_HOME and HF_HUB_CACHE say where the cache is.
#[derive(Debug, Args)]
#[command(visible_alias = "ls")]
pub(crate) struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Removes models that were pulled.
///
/// Other programs of this user share the cache: the files are gone for them too.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta rm Qwen/Qwen3-0.6B-GGUF             all files of the repository
  atta rm Qwen/Qwen3-0.6B-GGUF:q8_0        one of them")]
pub(crate) struct RmArgs {
    /// Repositories, each with or without a file
    #[arg(value_name = "ORG/REPO[:FILE|QUANT]", value_parser = repository, required = true)]
    requests: Vec<Request>,
}

/// A line of the list.
struct PulledModel {
    name: String,
    bytes: u64,
    modified: Option<SystemTime>,
}

pub(super) fn list(args: ListArgs) -> Result<(), Failure> {
    let cache = hub::cache()?;
    let mut models = Vec::new();
    for repo in cache.repositories()? {
        models.extend(models_of(&repo, &cache.files(&repo)?));
    }
    let mut out = Stdout::lock();
    if args.json {
        let models: Vec<Value> = models.iter().map(PulledModel::to_json).collect();
        out.line(&json::pretty(&json!({ "models": models })))?;
    } else {
        let width = models.iter().map(|m| m.name.chars().count()).max();
        let width = width.unwrap_or(0);
        models.iter().try_for_each(|m| out.line(&m.row(width)))?;
    }
    out.flush()
}

/// The models of a repository: its GGUF files, or all of it.
fn models_of(repo: &RepoId, files: &[CachedFile]) -> Vec<PulledModel> {
    let is_gguf = |file: &&CachedFile| {
        let extension = Path::new(&file.name).extension();
        extension.is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
    };
    let models: Vec<_> = files
        .iter()
        .filter(is_gguf)
        .map(|file| PulledModel {
            name: format!("{repo}:{}", file.name),
            bytes: file.bytes,
            modified: file.modified,
        })
        .collect();
    if !models.is_empty() || files.is_empty() {
        return models;
    }
    vec![PulledModel {
        name: repo.to_string(),
        bytes: files.iter().map(|file| file.bytes).sum(),
        modified: files.iter().filter_map(|file| file.modified).max(),
    }]
}

impl PulledModel {
    fn row(&self, width: usize) -> String {
        let size = bytes(self.bytes);
        let now = SystemTime::now();
        let age = self.modified.and_then(|at| now.duration_since(at).ok());
        let age = age.map_or_else(String::new, ago);
        format!("{:width$}  {size:>10}  {age:>12}", one_line(&self.name))
    }

    fn to_json(&self) -> Value {
        let since = |at: SystemTime| at.duration_since(UNIX_EPOCH).ok();
        json!({
            "name": self.name,
            "bytes": self.bytes,
            "modified_unix_s": self.modified.and_then(since).as_ref().map(Duration::as_secs),
        })
    }
}

pub(super) fn rm(args: RmArgs) -> Result<(), Failure> {
    let cache = hub::cache()?;
    for request in &args.requests {
        let freed = match request.file_or_quant {
            None => cache.remove(&request.repo)?,
            Some(_) => cache.remove_files(request)?,
        };
        let freed = freed.ok_or_else(|| {
            Failure::Failed(format!("{request}: not in the cache; `atta list` lists it"))
        })?;
        // A closed standard error is no failure.
        let _ = writeln!(io::stderr(), "atta: removed {request}, {}", bytes(freed));
    }
    Ok(())
}
