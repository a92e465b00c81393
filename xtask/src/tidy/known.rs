//! Breaches that are known: how many each crate may have of each rule.
//!
//! It refuses to know where they are. The one idea: a number that may only fall, so that a rule
//! holds for new code before all of the old code keeps it.

use super::{Finding, RuleFindings, counts::area};
use std::collections::BTreeMap;

const PATH: &str = "xtask/src/tidy/known.rs";

/// Rule, crate, and the number of its breaches.
const KNOWN: &[(&str, &str, usize)] = &[
    ("tokens", "fuzz", 1),
    ("tokens", "kernels", 5),
    ("tuples", "kernels", 146),
    ("tuples", "model", 4),
    ("tuples", "tokenizer", 1),
    ("widths", "kernels", 133),
];

/// Findings to report, and those that are known. If a crate has more than it may, all of its
/// findings are reported; if it has fewer, the table is.
pub(super) fn split(rules: Vec<RuleFindings>) -> (Vec<Finding>, Vec<RuleFindings>) {
    split_by(rules, KNOWN)
}

fn split_by(
    rules: Vec<RuleFindings>,
    known: &[(&str, &str, usize)],
) -> (Vec<Finding>, Vec<RuleFindings>) {
    let mut reported = Vec::new();
    let mut pending = Vec::new();
    for RuleFindings { rule, findings } in rules {
        let mut by_area: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
        for finding in findings {
            by_area
                .entry(area(&finding.path))
                .or_default()
                .push(finding);
        }
        for &(_, area, n_known) in known.iter().filter(|entry| entry.0 == rule) {
            let n_found = by_area.get(area).map_or(0, Vec::len);
            if n_found < n_known {
                let message = format!("{area} has {n_found} of `{rule}`, not {n_known}: lower it");
                reported.push(Finding::new(PATH, 1, message));
            }
        }
        let may_have = |area: &str| {
            let entry = known
                .iter()
                .find(|entry| entry.0 == rule && entry.1 == area);
            entry.map_or(0, |entry| entry.2)
        };
        let (few, many): (Vec<_>, Vec<_>) = by_area
            .into_iter()
            .partition(|(area, findings)| findings.len() <= may_have(area));
        reported.extend(many.into_iter().flat_map(|(_, findings)| findings));
        let findings = few.into_iter().flat_map(|(_, findings)| findings).collect();
        pending.push(RuleFindings { rule, findings });
    }
    (reported, pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(n: usize) -> Vec<RuleFindings> {
        let finding = || Finding::new("crates/model/src/a.rs", 1, "is bad");
        vec![RuleFindings {
            rule: "widths",
            findings: std::iter::repeat_with(finding).take(n).collect(),
        }]
    }

    #[test]
    fn more_breaches_than_known_are_reported() {
        let known = [("widths", "model", 2)];
        let (reported, pending) = split_by(rules(2), &known);
        assert_eq!((reported.len(), pending[0].findings.len()), (0, 2));
        let (reported, pending) = split_by(rules(3), &known);
        assert_eq!((reported.len(), pending[0].findings.len()), (3, 0));
        assert_eq!(split_by(rules(1), &[]).0.len(), 1);
    }

    #[test]
    fn a_number_that_is_too_high_is_reported() {
        let (reported, _) = split_by(rules(1), &[("widths", "model", 2)]);
        assert_eq!(
            reported[0].message,
            "model has 1 of `widths`, not 2: lower it"
        );
    }
}
