//! Rules about the length of functions: none over 100 lines without a reason, nine of ten within
//! 25.
//!
//! It refuses to measure anything but lines, from `fn` to the closing brace. The one idea: the
//! percentile is over the whole workspace, since a rule per function would only move the lines
//! about.

use super::Finding;
use crate::source::{Function, Source};
use std::fmt;

const MAX_LINES: usize = 100;
const P90_LINES: usize = 25;
const REASON: &str = "// long:";

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let long = source
        .functions()
        .into_iter()
        .filter(|f| f.n_lines > MAX_LINES && !has_reason(source, f));
    long.map(|f| {
        let message = format!(
            "`{}` has {} lines, expected at most {MAX_LINES} or a `{REASON} reason` above",
            f.name, f.n_lines
        );
        Finding::new(source.path, f.line, message)
    })
    .collect()
}

fn has_reason(source: &Source<'_>, function: &Function<'_>) -> bool {
    let reasons = source
        .comments_above(function.at)
        .filter_map(|c| c.text.strip_prefix(REASON));
    reasons.into_iter().any(|reason| !reason.trim().is_empty())
}

/// The lengths of all functions outside tests.
pub(super) struct Lengths {
    /// Lines, path and line of each function, shortest first.
    sorted: Vec<(usize, String, usize)>,
}

impl Lengths {
    pub(super) fn measure(sources: &[Source<'_>]) -> Self {
        let mut sorted: Vec<_> = sources.iter().flat_map(lengths).collect();
        sorted.sort();
        Self { sorted }
    }

    /// The function that nine of ten do not exceed (nearest rank).
    fn p90(&self) -> Option<&(usize, String, usize)> {
        let rank = (self.sorted.len() * 9).div_ceil(10);
        self.sorted.get(rank.checked_sub(1)?)
    }

    pub(super) fn check(&self) -> Option<Finding> {
        let (n_lines, path, line) = self.p90().filter(|(n_lines, ..)| *n_lines > P90_LINES)?;
        let message = format!(
            "90 % of the workspace's {} functions are within {n_lines} lines, expected {P90_LINES}; this one and the longer ones are in the way",
            self.sorted.len()
        );
        Some(Finding::new(path, *line, message))
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p90 = self.p90().map_or(0, |(n_lines, ..)| *n_lines);
        write!(
            f,
            "{} functions, 90 % within {p90} lines",
            self.sorted.len()
        )
    }
}

fn lengths(source: &Source<'_>) -> Vec<(usize, String, usize)> {
    let functions = source
        .functions()
        .into_iter()
        .filter(|f| !source.in_test(f.at));
    functions
        .map(|f| (f.n_lines, source.path.to_owned(), f.line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    fn function(n_lines: usize) -> String {
        format!("fn f() {{{}}}\n", "\n".repeat(n_lines - 1))
    }

    #[test]
    fn a_function_of_101_lines_is_too_long() {
        assert_eq!(findings(check, "a.rs", &function(100)).len(), 0);
        assert!(findings(check, "a.rs", &function(101))[0].starts_with("1: `f` has 101 lines"));
    }

    #[test]
    fn a_long_function_may_give_its_reason() {
        let above = [
            "// long: one arm per format\n",
            "/// Docs.\n// long: one arm per format\n#[inline]\npub(crate) const ",
        ];
        for above in above {
            assert_eq!(
                findings(check, "a.rs", &(above.to_owned() + &function(200))).len(),
                0,
                "{above}"
            );
        }
    }

    #[test]
    fn an_empty_reason_and_the_reason_of_another_function_do_not_count() {
        for above in ["// long:\n", "// long: mine\nfn g() {}\n"] {
            assert_eq!(
                findings(check, "a.rs", &(above.to_owned() + &function(200))).len(),
                1,
                "{above}"
            );
        }
    }

    #[test]
    fn one_long_function_in_ten_is_allowed_and_two_are_not() {
        let short = function(25).repeat(8);
        let good = short.clone() + &function(25) + &function(90);
        let bad = short + &function(26) + &function(90);
        assert_eq!(
            Lengths::measure(&[Source::new("a.rs", &good)]).check(),
            None
        );
        let finding = Lengths::measure(&[Source::new("a.rs", &bad)])
            .check()
            .unwrap();
        assert_eq!(
            (finding.line, finding.message.contains("within 26 lines")),
            (201, true)
        );
    }

    #[test]
    fn tests_do_not_count_towards_the_percentile() {
        let text = format!("#[test] {}", function(90));
        assert_eq!(
            Lengths::measure(&[Source::new("a.rs", &text)]).to_string(),
            "0 functions, 90 % within 0 lines"
        );
    }
}
