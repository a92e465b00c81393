//! Options for a context that fills up, and what they mean to the library.

use atta::{Overflow, SessionOptions};
use clap::Args;

use super::value;
use crate::failure::Failure;

/// Tokens at the beginning that stay, if nobody says otherwise (Xiao et al. 2024).
const DEFAULT_SINKS: usize = 4;

/// What happens when the context is full.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Context")]
pub(crate) struct ContextFlags {
    /// Remember the last N tokens at most, and at least half of them, however long the text
    /// becomes; what is forgotten cannot be recalled. In place of -c
    #[arg(long, value_name = "N", value_parser = value::positions, allow_negative_numbers = true)]
    #[arg(conflicts_with_all = ["n_ctx", "context_shift"])]
    window: Option<usize>,
    /// When the context is full, forget half of it and go on
    #[arg(long)]
    context_shift: bool,
    /// Tokens at the beginning that are never forgotten, of --window and --context-shift [default:
    /// 4]
    #[arg(long, value_name = "N", value_parser = value::positions_or_0, allow_negative_numbers = true)]
    sinks: Option<usize>,
}

impl ContextFlags {
    /// Whether any of them was typed.
    #[cfg(feature = "chat")]
    pub(crate) fn is_given(&self) -> bool {
        self.window.is_some() || self.context_shift || self.sinks.is_some()
    }

    /// These options with what is asked for here.
    ///
    /// # Errors
    /// A number of tokens to keep where nothing is forgotten.
    pub(crate) fn apply(&self, options: SessionOptions) -> Result<SessionOptions, Failure> {
        if self.window.is_none() && !self.context_shift {
            return match self.sinks {
                Some(_) => Err(Failure::Usage(
                    "--sinks is about what --window or --context-shift keeps: give one of them"
                        .to_owned(),
                )),
                None => Ok(options),
            };
        }
        let overflow = Overflow::Shift {
            n_keep: self.sinks.unwrap_or(DEFAULT_SINKS),
        };
        Ok(SessionOptions {
            n_ctx: self.window.or(options.n_ctx),
            overflow,
            ..options
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ModelFlags;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        _model: ModelFlags,
        #[command(flatten)]
        context: ContextFlags,
    }

    fn overflow(line: &str) -> Option<(Option<usize>, Overflow)> {
        let flags = Flags::try_parse_from(line.split(' ')).ok()?;
        let options = flags.context.apply(SessionOptions::default()).ok()?;
        Some((options.n_ctx, options.overflow))
    }

    #[test]
    fn a_window_is_a_context_that_shifts() {
        assert_eq!(overflow("x"), Some((None, Overflow::Stop)));
        assert_eq!(
            overflow("x --window 256"),
            Some((Some(256), Overflow::Shift { n_keep: 4 }))
        );
        assert_eq!(
            overflow("x --context-shift --sinks 0"),
            Some((None, Overflow::Shift { n_keep: 0 }))
        );
        assert_eq!(
            overflow(&format!("x --context-shift --sinks {}", usize::MAX)),
            None
        );
        for wrong in [
            "x --sinks 4",
            "x -c 100 --window 100",
            "x --window 0",
            "x --window 100 --context-shift",
        ] {
            assert_eq!(overflow(wrong), None, "{wrong}");
        }
    }
}
