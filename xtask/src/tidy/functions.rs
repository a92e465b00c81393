//! Rules about the size of functions, in lines and in tokens.
//!
//! It refuses to measure anything else. The one idea: a limit for each function, with an escape for
//! lines, and a 90th percentile over the whole workspace, since a tight limit per function would
//! only move the code about.

use super::Finding;
use crate::source::{Function, RustFile};
use std::fmt;

const REASON: &str = "// long:";

/// A unit in which functions are measured, and its limits.
pub(super) struct Unit {
    name: &'static str,
    size: fn(&Function<'_>) -> usize,
    max: usize,
    p90: usize,
}

pub(super) const LINES: Unit = Unit {
    name: "lines",
    size: |f| f.n_lines,
    max: 100,
    p90: 25,
};

pub(super) const TOKENS: Unit = Unit {
    name: "tokens",
    size: |f| f.n_tokens,
    max: 600,
    // The aim is 150.
    p90: 210,
};

pub(super) fn check_lines(source: &RustFile<'_>) -> Vec<Finding> {
    let functions = source.functions().into_iter();
    let long = functions.filter(|f| f.n_lines > LINES.max && !has_reason(source, f));
    long.map(|f| too_long(source, &f, &LINES, " or a `// long: reason` above"))
        .collect()
}

pub(super) fn check_tokens(source: &RustFile<'_>) -> Vec<Finding> {
    let functions = source.functions().into_iter();
    let long = functions.filter(|f| f.n_tokens > TOKENS.max && !source.in_test(f.at));
    long.map(|f| too_long(source, &f, &TOKENS, "")).collect()
}

fn too_long(source: &RustFile<'_>, function: &Function<'_>, unit: &Unit, escape: &str) -> Finding {
    let message = format!(
        "`{}` has {} {}, expected at most {}{escape}",
        function.name,
        (unit.size)(function),
        unit.name,
        unit.max
    );
    Finding::new(source.path, function.line, message)
}

fn has_reason(source: &RustFile<'_>, function: &Function<'_>) -> bool {
    source.gives_reason(function.at, REASON)
}

/// The sizes of all functions outside tests, in one unit.
pub(super) struct Sizes {
    unit: Unit,
    /// Size, path and line of each function, smallest first.
    sorted: Vec<(usize, String, usize)>,
}

impl Sizes {
    pub(super) fn measure(sources: &[RustFile<'_>], unit: Unit) -> Self {
        let mut sorted: Vec<_> = sources.iter().flat_map(|s| sizes(s, &unit)).collect();
        sorted.sort();
        Self { unit, sorted }
    }

    /// The function that nine of ten do not exceed (nearest rank).
    fn p90(&self) -> Option<&(usize, String, usize)> {
        let rank = (self.sorted.len() * 9).div_ceil(10);
        self.sorted.get(rank.checked_sub(1)?)
    }

    pub(super) fn check(&self) -> Option<Finding> {
        let limit = self.unit.p90;
        let (size, path, line) = self.p90().filter(|(size, ..)| *size > limit)?;
        let message = format!(
            "90 % of the workspace's {} functions are within {size} {}, expected {limit}: \
             shorten this one or a longer one",
            self.sorted.len(),
            self.unit.name
        );
        Some(Finding::new(path, *line, message))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |entry: Option<&(usize, String, usize)>| entry.map_or(0, |(size, ..)| *size);
        write!(
            f,
            "90 % within {} {} (largest {})",
            size(self.p90()),
            self.unit.name,
            size(self.sorted.last())
        )
    }
}

fn sizes(source: &RustFile<'_>, unit: &Unit) -> Vec<(usize, String, usize)> {
    let functions = source.functions().into_iter();
    functions
        .filter(|f| !source.in_test(f.at))
        .map(|f| ((unit.size)(&f), source.path.to_owned(), f.line))
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
        assert_eq!(findings(check_lines, "a.rs", &function(100)).len(), 0);
        assert!(
            findings(check_lines, "a.rs", &function(101))[0].starts_with("1: `f` has 101 lines")
        );
    }

    #[test]
    fn a_function_of_601_tokens_is_too_long_unless_it_is_a_test() {
        // `fn f ( ) { }` are six tokens.
        let text = |n: usize| format!("fn f() {{ {} }}", ";".repeat(n - 6));
        assert_eq!(findings(check_tokens, "a.rs", &text(600)), [""; 0]);
        assert_eq!(
            findings(check_tokens, "a.rs", &text(601)),
            ["1: `f` has 601 tokens, expected at most 600"]
        );
        let test = format!("#[test] {}", text(601));
        assert_eq!(findings(check_tokens, "a.rs", &test), [""; 0]);
    }

    #[test]
    fn a_long_function_may_give_its_reason() {
        let above = [
            "// long: one arm per format\n",
            "/// Docs.\n// long: one arm per format\n#[inline]\npub(crate) const ",
        ];
        for above in above {
            assert_eq!(
                findings(check_lines, "a.rs", &(above.to_owned() + &function(200))).len(),
                0,
                "{above}"
            );
        }
    }

    #[test]
    fn an_empty_reason_and_the_reason_of_another_function_do_not_count() {
        for above in ["// long:\n", "// long: mine\nfn g() {}\n"] {
            assert_eq!(
                findings(check_lines, "a.rs", &(above.to_owned() + &function(200))).len(),
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
        let check = |text: &str| Sizes::measure(&[RustFile::new("a.rs", text)], LINES).check();
        assert_eq!(check(&good), None);
        let finding = check(&bad).unwrap();
        assert_eq!(finding.line, 201);
        assert!(finding.message.contains("within 26 lines"));
    }

    #[test]
    fn tests_do_not_count_towards_the_percentile() {
        let text = format!("#[test] {}", function(90));
        assert_eq!(
            Sizes::measure(&[RustFile::new("a.rs", &text)], TOKENS).to_string(),
            "90 % within 0 tokens (largest 0)"
        );
    }
}
