//! `atta pull`: downloads a model from Hugging Face to the cache and prints its path.
//!
//! Ctrl-C ends the program at once. The next pull resumes the download.

use std::time::{Duration, Instant};

use atta_hub::{Event, Hub, Pulled, Request, Revision};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    failure::{Failure, one_line},
    hub,
    interrupt::Interrupt,
    json,
    output::Stdout,
    progress::{Progress, bar, spoken},
    report::bytes,
};

/// The time between two updates of the progress line.
const FRAME: Duration = Duration::from_millis(100);
/// Characters of a file name in the progress line.
const NAME_CHARS: usize = 24;

/// Downloads a model from Hugging Face.
///
/// Prints the path of the file, of the first file of a split model, or of the directory if the
/// repository has no GGUF file and all files that `atta convert` needs were downloaded. Then `atta
/// run org/repo` finds it.
///
/// Without QUANT, the first of these types is chosen: Q4_K_M, Q4_K_S, Q4_0, IQ4_XS, Q5_K_M, Q5_K_S,
/// Q6_K, Q8_0, Q3_K_M, MXFP4, BF16, F16. Files are verified against the hashes of the repository.
/// An interrupted download is resumed. Files go to the cache that Hugging Face's own programs use.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta pull Qwen/Qwen3-0.6B-GGUF
  atta pull Qwen/Qwen3-0.6B-GGUF:q8_0
  atta pull https://huggingface.co/Qwen/Qwen3-0.6B-GGUF
  atta run \"$(atta pull Qwen/Qwen3-0.6B-GGUF)\" -p \"Once upon a time\"

Environment: HF_TOKEN, or the file `token` in HF_HOME: for private and gated repositories.
HF_HOME, HF_HUB_CACHE: the cache directory. HF_ENDPOINT: another hub. HF_HUB_OFFLINE=1: use the
cache only. HTTPS_PROXY, NO_PROXY.")]
pub(crate) struct PullArgs {
    /// Repository, and a file of it: by path, or by quantization such as q4_k_m
    #[arg(value_name = "ORG/REPO[:FILE|QUANT]", value_parser = repository)]
    request: Request,
    /// Branch, tag or commit [default: main]
    #[arg(long, value_name = "R", value_parser = revision)]
    revision: Option<Revision>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn repository(text: &str) -> Result<Request, String> {
    hub::name_of(text)
        .parse()
        .map_err(|error: atta_hub::Error| error.to_string())
}

fn revision(text: &str) -> Result<Revision, String> {
    text.parse()
        .map_err(|error: atta_hub::Error| error.to_string())
}

pub(super) fn run(args: PullArgs) -> Result<(), Failure> {
    let PullArgs {
        mut request,
        revision,
        json,
    } = args;
    request.revision = revision.unwrap_or_default();
    let pulled = Interrupt::listen().watch(wipe_progress, || pull(&request))?;
    let mut out = Stdout::lock();
    match json {
        true => out.line(&json::pretty(&to_json(&request, &pulled)))?,
        // Printed as it is, for programs. Names with control characters were refused.
        false => out.line(&pulled.path.to_string_lossy())?,
    }
    out.flush()
}

fn pull(request: &Request) -> Result<Pulled, Failure> {
    let cache = hub::cache()?;
    if hub::is_offline() {
        let offline = |_| {
            Failure::Failed(format!(
                "{request}: not in the cache, and HF_HUB_OFFLINE forbids to ask"
            ))
        };
        return cache.find(request)?.ok_or(()).map_err(offline);
    }
    let mut line = DownloadProgress::new();
    Ok(Hub::new(cache, &hub::options()?)?.pull(request, &mut |event| line.show(event))?)
}

fn to_json(request: &Request, pulled: &Pulled) -> Value {
    let files = pulled.files.iter().map(|file| {
        json!({
            "path": file.path.to_string_lossy(),
            "bytes": file.bytes,
            "sha256": file.sha256,
            "cached": file.from_cache,
        })
    });
    json!({
        "repo": request.repo.to_string(),
        "revision": request.revision.as_str(),
        "commit": pulled.commit,
        "path": pulled.path.to_string_lossy(),
        "files": files.collect::<Vec<_>>(),
    })
}

/// Wipes the progress line of a pull that is given up.
fn wipe_progress() {
    let mut line = Progress::new();
    line.busy(String::new);
    line.clear();
}

/// The progress line of a pull.
struct DownloadProgress {
    progress: Progress,
    name: String,
    /// Bytes of all files to download.
    total: u64,
    /// Bytes of the files that are finished.
    done: u64,
    /// Bytes of the current file.
    file_bytes: u64,
    /// Bytes of the current file that are on disk.
    file_done: u64,
    /// Bytes downloaded by this pull.
    received: u64,
    start: Instant,
    shown: Option<Instant>,
}

impl DownloadProgress {
    fn new() -> Self {
        Self {
            progress: Progress::new(),
            name: String::new(),
            total: 0,
            done: 0,
            file_bytes: 0,
            file_done: 0,
            received: 0,
            start: Instant::now(),
            shown: None,
        }
    }

    fn start_file(&mut self, file: &str, bytes: u64) {
        self.done += self.file_bytes;
        self.file_bytes = bytes;
        self.file_done = 0;
        self.name = short(file);
    }

    fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Selected { bytes, .. } => self.total = bytes,
            Event::Started { file, bytes } => self.start_file(file, bytes),
            Event::Resuming { bytes, .. } => {
                self.file_done = bytes;
                self.frame(Self::checking);
            }
            Event::Received { bytes, .. } => {
                self.received += bytes - self.file_done.min(bytes);
                self.file_done = bytes;
                self.frame(Self::figures);
            }
            Event::Waiting => self
                .progress
                .busy(|| format!("waiting: {} is being pulled by another", self.name)),
            Event::Retrying { why, pause } => {
                let pause = pause.as_secs_f64();
                self.progress
                    .busy(|| format!("{}; trying again in {pause:.1} s", one_line(why)));
            }
            _ => {}
        }
    }

    /// Updates the line, if the last update is long enough ago to be read.
    fn frame(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.shown.is_none_or(|shown| shown.elapsed() >= FRAME) {
            let text = text(self);
            self.progress.busy(|| text);
            self.shown = Some(Instant::now());
        }
    }

    fn checking(&self) -> String {
        let there = bytes(self.file_done);
        format!("checking what is there of {}: {there}", self.name)
    }

    fn figures(&self) -> String {
        let here = self.done + self.file_done;
        let rate = self.received as f64 / self.start.elapsed().as_secs_f64().max(1e-3);
        let left = Duration::from_secs_f64(
            (self.total.saturating_sub(here) as f64 / rate.max(1.0)).min(1e9),
        );
        let part = here as f64 / self.total.max(1) as f64;
        format!(
            "{} {} {:.0} % of {}, {}/s, {} left",
            self.name,
            bar(part),
            100.0 * part,
            bytes(self.total),
            bytes(rate as u64),
            spoken(left)
        )
    }
}

/// The end of a path, which tells more than its beginning.
fn short(path: &str) -> String {
    let name = one_line(path.rsplit('/').next().unwrap_or(path));
    let n_chars = name.chars().count();
    if n_chars <= NAME_CHARS {
        return name;
    }
    let end: String = name.chars().skip(n_chars + 1 - NAME_CHARS).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        assert_eq!(short("a/b.gguf"), "b.gguf");
        assert_eq!(
            short(&format!("{}-Q4_K_M.gguf", "x".repeat(99)))
                .chars()
                .count(),
            NAME_CHARS
        );
    }

    #[test]
    fn what_was_there_before_is_no_speed() {
        let mut line = DownloadProgress::new();
        line.show(Event::Selected {
            n_files: 1,
            bytes: 4 << 20,
        });
        line.show(Event::Started {
            file: "m",
            bytes: 4 << 20,
        });
        line.show(Event::Resuming {
            file: "m",
            bytes: 2 << 20,
        });
        line.show(Event::Received {
            file: "m",
            bytes: 3 << 20,
        });
        assert_eq!(line.received, 1 << 20);
        assert!(
            line.figures()
                .starts_with("m [############----] 75 % of 4.0 MiB, "),
            "{}",
            line.figures()
        );
    }
}
