//! `atta pull`: a model from Hugging Face into the cache, and its path on standard output.
//!
//! Ctrl-C ends the program at once. What has come until then stays, and the next pull goes on with
//! it.

use std::time::{Duration, Instant};

use atta_hub::{Event, Hub, Pulled, Request};
use serde_json::{Value, json};

use crate::{
    args::PullArgs,
    failure::{Failure, one_line},
    hub,
    interrupt::Interrupt,
    json,
    output::Stdout,
    progress::Progress,
    report::bytes,
};

/// How often the line changes.
const FRAME: Duration = Duration::from_millis(100);
/// Characters of a name that fit beside the figures.
const NAME_CHARS: usize = 32;

pub(super) fn run(args: PullArgs) -> Result<(), Failure> {
    let PullArgs {
        mut request,
        revision,
        json,
    } = args;
    request.revision = revision.unwrap_or_default();
    let pulled = Interrupt::listen().watch(Progress::wipe, || pull(&request))?;
    let mut out = Stdout::lock();
    match json {
        true => out.line(&json::pretty(&to_json(&request, &pulled)))?,
        // No name in it steers a terminal: what would was refused. Whoever reads it needs it letter
        // by letter.
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
    let mut line = Line::new();
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

/// How far it is.
struct Line {
    progress: Progress,
    name: String,
    /// Of all files that are to be fetched, bytes.
    total: u64,
    /// Of those that are done, bytes.
    done: u64,
    /// Of the current file: how long it is, and what of it is here, bytes.
    file: (u64, u64),
    /// What came through the network in this pull, bytes.
    received: u64,
    start: Instant,
    shown: Option<Instant>,
}

impl Line {
    fn new() -> Self {
        let (progress, start) = (Progress::new(), Instant::now());
        Self {
            progress,
            name: String::new(),
            total: 0,
            done: 0,
            file: (0, 0),
            received: 0,
            start,
            shown: None,
        }
    }

    fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Selected { bytes, .. } => self.total = bytes,
            Event::Started { file, bytes } => {
                self.done += self.file.0;
                self.file = (bytes, 0);
                self.name = short(file);
            }
            Event::Resuming { bytes, .. } => {
                self.file.1 = bytes;
                self.frame(|line| {
                    format!(
                        "checking what is there of {}: {}",
                        line.name,
                        self::bytes(bytes)
                    )
                });
            }
            Event::Received { bytes, .. } => {
                self.received += bytes - self.file.1.min(bytes);
                self.file.1 = bytes;
                self.frame(Self::figures);
            }
            Event::Waiting => self.progress.busy(&format!(
                "waiting: {} is being pulled by another",
                self.name
            )),
            Event::Retrying { why, pause } => {
                let pause = pause.as_secs_f64();
                self.progress
                    .busy(&format!("{}; trying again in {pause:.1} s", one_line(why)));
            }
            _ => {}
        }
    }

    /// Changes the line, if it has stood for long enough to be read.
    fn frame(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.shown.is_none_or(|shown| shown.elapsed() >= FRAME) {
            let text = text(self);
            self.progress.busy(&text);
            self.shown = Some(Instant::now());
        }
    }

    fn figures(&self) -> String {
        let here = self.done + self.file.1;
        let rate = self.received as f64 / self.start.elapsed().as_secs_f64().max(1e-3);
        let left = Duration::from_secs_f64(
            (self.total.saturating_sub(here) as f64 / rate.max(1.0)).min(1e9),
        );
        let (here, total, rate) = (bytes(here), bytes(self.total), bytes(rate as u64));
        format!(
            "{}: {here} of {total}, {rate}/s, {} left",
            self.name,
            spoken(left)
        )
    }
}

/// The end of a path, which says more than its begin.
fn short(path: &str) -> String {
    let name = one_line(path.rsplit('/').next().unwrap_or(path));
    let n_chars = name.chars().count();
    if n_chars <= NAME_CHARS {
        return name;
    }
    let end: String = name.chars().skip(n_chars + 1 - NAME_CHARS).collect();
    format!("…{end}")
}

fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_times_are_spoken() {
        assert_eq!(short("a/b.gguf"), "b.gguf");
        assert_eq!(
            short(&format!("{}-Q4_K_M.gguf", "x".repeat(99)))
                .chars()
                .count(),
            NAME_CHARS
        );
        let spoken = [5, 65, 3700].map(|s| spoken(Duration::from_secs(s)));
        assert_eq!(spoken, ["5 s", "1 min 5 s", "1 h 1 min"]);
    }

    #[test]
    fn what_was_there_before_is_no_speed() {
        let mut line = Line::new();
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
            line.figures().starts_with("m: 3.0 MiB of 4.0 MiB, "),
            "{}",
            line.figures()
        );
    }
}
