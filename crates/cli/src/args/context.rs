//! Options for a context that fills up.

use atta::{Overflow, SessionOptions};
use clap::Args;

use super::value;
use crate::failure::Failure;

/// Attention sinks by default (Xiao et al. 2024).
const DEFAULT_SINKS: usize = 4;

/// What happens when the context is full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Context")]
pub(crate) struct ContextFlags {
    /// Sliding context of the last N tokens for text of any length; when it is full, the older
    /// half is evicted. Replaces -c
    #[arg(long, value_name = "N", value_parser = value::positions, allow_negative_numbers = true)]
    #[arg(conflicts_with_all = ["n_ctx", "context_shift"])]
    window: Option<usize>,
    /// Context shift: when the context is full, evict half of it and continue
    #[arg(long)]
    context_shift: bool,
    /// Tokens to keep from the beginning with --window and --context-shift [default: 4]
    #[arg(long, value_name = "N", value_parser = value::positions_or_0)]
    #[arg(allow_negative_numbers = true)]
    sinks: Option<usize>,
}

impl ContextFlags {
    /// These options with the overflow that the flags choose.
    ///
    /// # Errors
    /// `--sinks` where nothing is evicted.
    pub(crate) fn apply(&self, options: SessionOptions) -> Result<SessionOptions, Failure> {
        if self.window.is_none() && !self.context_shift {
            return match self.sinks {
                Some(_) => Err(Failure::Usage(
                    "--sinks needs --window or --context-shift".to_owned(),
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
