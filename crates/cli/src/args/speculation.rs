//! The option for speculation.

use std::path::PathBuf;

use atta::{DEFAULT_DRAFT, HeadFile, MAX_DRAFT, SessionOptions, Speculation, SpeculationPolicy};
use clap::Args;

use super::value;

/// Several tokens per step.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationFlags {
    /// Speculative decoding: guess the next tokens and check the guesses in one step; the text is
    /// the same, bit for bit. ngram: guess what followed the last tokens earlier in the context;
    /// draft=FILE: ask a smaller model with the same vocabulary; eagle=FILE: ask an EAGLE-3 head
    /// that was trained for the model; mtp: ask the layer of multi-token prediction in the model's
    /// own file; off. With ,k=N a guess has at most N tokens [default: auto, which is ngram
    /// wherever that is measured to be faster]
    #[arg(long, value_name = "HOW", value_parser = drafts)]
    speculate: Option<Drafts>,
}

/// Where drafts come from, and how long they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drafts {
    pub(crate) from: DraftsFrom,
    pub(crate) n_max: usize,
    pub(crate) policy: SpeculationPolicy,
    /// Whether the source was named, and is not `auto`.
    pub(crate) is_named: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DraftsFrom {
    Nowhere,
    Context,
    Model(PathBuf),
    Head(HeadFile),
}

impl SpeculationFlags {
    /// No speculation.
    pub(crate) fn off() -> Self {
        Self {
            speculate: Some(Drafts::of(DraftsFrom::Nowhere)),
        }
    }

    /// The drafts that the option asks for.
    pub(crate) fn drafts(&self) -> Drafts {
        let default = || Drafts::of(DraftsFrom::Context);
        self.speculate.clone().unwrap_or_else(default)
    }

    /// The file of the draft model, or of the head.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        match &self.speculate.as_ref()?.from {
            DraftsFrom::Model(file) | DraftsFrom::Head(HeadFile::Apart(file)) => Some(file),
            DraftsFrom::Nowhere | DraftsFrom::Context | DraftsFrom::Head(HeadFile::Model) => None,
        }
    }

    /// These options with memory for drafts.
    pub(crate) fn reserve(&self, options: SessionOptions) -> SessionOptions {
        let drafts = self.drafts();
        let n_draft = match drafts.from {
            DraftsFrom::Nowhere => 0,
            DraftsFrom::Context | DraftsFrom::Model(_) | DraftsFrom::Head(_) => drafts.n_max,
        };
        SessionOptions {
            n_draft,
            // By default a recurrent model has no memory for a state per guess.
            draft_states: self
                .speculate
                .as_ref()
                .is_some_and(|drafts| drafts.is_named),
            ..options
        }
    }
}

impl Drafts {
    fn of(from: DraftsFrom) -> Self {
        let n_max = match from {
            DraftsFrom::Head(_) => HEAD_DRAFT,
            DraftsFrom::Nowhere | DraftsFrom::Context | DraftsFrom::Model(_) => DEFAULT_DRAFT,
        };
        Self {
            from,
            n_max,
            policy: SpeculationPolicy::WherePays,
            is_named: false,
        }
    }

    /// The speculation with the length and policy that the flags give.
    pub(crate) fn with(&self, speculation: Speculation) -> Speculation {
        Speculation {
            n_max: self.n_max,
            policy: self.policy,
            ..speculation
        }
    }
}

/// Maximum tokens of a guess of a head by default: it was trained to see a few tokens ahead.
const HEAD_DRAFT: usize = 4;

/// Reads the source and what may follow it: `k=N`, and `always`, which checks every guess.
fn drafts(text: &str) -> Result<Drafts, String> {
    let mut source = text;
    let mut n_max = None;
    let mut policy = SpeculationPolicy::WherePays;
    while let Some((start, setting)) = source.rsplit_once(',') {
        match setting.split_once('=') {
            None if setting == "always" => policy = SpeculationPolicy::Always,
            Some(("k", n)) => n_max = Some(value::within(n, 1, MAX_DRAFT)?),
            _ => break,
        }
        source = start;
    }
    let drafts = Drafts::of(drafts_from(source)?);
    Ok(Drafts {
        n_max: n_max.unwrap_or(drafts.n_max),
        policy,
        is_named: source != "auto",
        ..drafts
    })
}

/// Reads the source.
fn drafts_from(source: &str) -> Result<DraftsFrom, String> {
    Ok(match source.split_once('=') {
        None if source == "off" => DraftsFrom::Nowhere,
        None if matches!(source, "auto" | "ngram") => DraftsFrom::Context,
        None if source == "mtp" => DraftsFrom::Head(HeadFile::Model),
        Some(("draft", file)) if !file.is_empty() => DraftsFrom::Model(file.into()),
        Some(("eagle", file)) if !file.is_empty() => DraftsFrom::Head(HeadFile::Apart(file.into())),
        _ => return Err(EXPECTED.to_owned()),
    })
}

const EXPECTED: &str = "expected auto, off, ngram, draft=FILE, eagle=FILE or mtp, and perhaps ,k=N";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_may_have_a_length_and_a_file_may_have_commas() {
        let read = |text| drafts(text).unwrap();
        assert_eq!(read("auto"), SpeculationFlags::default().drafts());
        assert_eq!(read("ngram").from, DraftsFrom::Context);
        assert_eq!(read("off").from, DraftsFrom::Nowhere);
        let always = read("ngram,k=4,always");
        assert_eq!(
            (always.n_max, always.policy),
            (4, SpeculationPolicy::Always)
        );
        let model = read("draft=a,b=c.gguf,k=16");
        assert_eq!(model.from, DraftsFrom::Model("a,b=c.gguf".into()));
        assert_eq!(model.n_max, 16);
        let eagle = HeadFile::Apart("e.gguf".into());
        assert_eq!(read("eagle=e.gguf,k=3").from, DraftsFrom::Head(eagle));
        assert_eq!(read("mtp").from, DraftsFrom::Head(HeadFile::Model));
    }

    #[test]
    fn a_source_that_is_not_known_is_refused() {
        for wrong in [
            "",
            "eagle",
            "eagle=",
            "mtp=x.gguf",
            "draft",
            "draft=",
            "ngram,k=0",
            "ngram,k=33",
            "ngram,x",
            "on",
        ] {
            assert!(drafts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn memory_is_kept_for_drafts_unless_they_are_off() {
        let n_draft = |text| {
            let flags = SpeculationFlags {
                speculate: Some(drafts(text).unwrap()),
            };
            flags.reserve(SessionOptions::default()).n_draft
        };
        assert_eq!((n_draft("auto"), n_draft("ngram,k=3")), (DEFAULT_DRAFT, 3));
        assert_eq!(n_draft("off"), 0);
    }
}
