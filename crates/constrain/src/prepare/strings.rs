//! `pattern`, `format` and lengths of strings.

use llguidance::{
    derivre::{RegexAst, RegexBuilder},
    regex_to_lark,
};
use serde_json::{Value, json};

use super::{
    Flaw, Node, Walk, counts,
    formats::{StringFormat, lookup},
};

/// Steps that llguidance takes to find out whether a regular expression matches anything.
const FUEL: u64 = 10_000;

impl Walk<'_> {
    pub(super) fn string(&mut self, node: &mut Node<'_>) -> Result<(), Flaw> {
        if !node.may_be("string") {
            return Ok(());
        }
        let (min, max) = counts(node, "minLength", "maxLength")?;
        if max.is_some_and(|max| min > max) {
            return Err(
                node.flaw("\"minLength\" is greater than \"maxLength\": no string is allowed")
            );
        }
        let has_format = self.format(node)?;
        let pattern = match node.keys.get("pattern") {
            None => return Ok(()),
            Some(Value::String(pattern)) => pattern.as_str(),
            Some(other) => {
                return Err(node.flaw(format!("\"pattern\" is {other}, expected a string")));
            }
        };
        let parts = without_look_ahead(pattern);
        match parts
            .iter()
            .map(|part| readable(part))
            .collect::<Result<Vec<()>, String>>()
        {
            Err(why) if has_format => {
                self.remark(node, "pattern", &format!("{why}; the format is"))
            }
            Err(why) => return self.give_up(node, "pattern", &why),
            Ok(_) => {
                match is_empty(&parts, min, max) {
                    Some(true) => {
                        return Err(node.flaw(format!(
                            "no string matches the pattern {pattern:?} with these lengths"
                        )));
                    }
                    Some(false) => {}
                    None => {
                        return self.give_up(node, "pattern", "with its lengths it is too complex");
                    }
                }
                parts.into_iter().for_each(|part| add_pattern(node, &part));
            }
        }
        Ok(())
    }

    /// Whether it is one that is kept to.
    fn format(&mut self, node: &mut Node<'_>) -> Result<bool, Flaw> {
        let Some(format) = node.keys.get("format") else {
            return Ok(false);
        };
        let Some(name) = format.as_str() else {
            self.give_up(node, "format", "it is no string")?;
            return Ok(false);
        };
        match lookup(name) {
            StringFormat::Known => {
                node.out.insert("format".to_owned(), format.clone());
                Ok(true)
            }
            StringFormat::Pattern(pattern) => {
                add_pattern(node, pattern);
                Ok(true)
            }
            StringFormat::Annotation => Ok(false),
            StringFormat::Unknown => {
                self.give_up(
                    node,
                    "format",
                    &format!("{name:?} is unknown, and taken as a description"),
                )?;
                Ok(false)
            }
        }
    }
}

/// Adds one that must match, beside others.
fn add_pattern(node: &mut Node<'_>, pattern: &str) {
    if !node.out.contains_key("pattern") {
        node.out.insert("pattern".to_owned(), pattern.into());
        return;
    }
    let also = match node.keys.get("type") {
        Some(ty) => json!({ "type": ty, "pattern": pattern }),
        None => json!({ "pattern": pattern }),
    };
    node.also.push(also);
}

/// Whether llguidance can read a pattern.
pub(super) fn readable(pattern: &str) -> Result<(), String> {
    let made = RegexBuilder::new().mk_regex_for_serach(&regex_to_lark(pattern, "dw"));
    let why = |error: String| match error {
        _ if ["(?=", "(?!", "(?<=", "(?<!"]
            .iter()
            .any(|look| pattern.contains(look)) =>
        {
            "it looks ahead or behind".to_owned()
        }
        error => format!("it cannot be read ({})", crate::grammars::reason(&error)),
    };
    made.map(drop).map_err(|error| why(error.to_string()))
}

/// Whether a text has a part that a pattern matches; `None` if it is too complex.
pub(super) fn is_match(pattern: &str, text: &str) -> Option<bool> {
    let mut builder = RegexBuilder::new();
    let expr = builder
        .mk_regex_for_serach(&regex_to_lark(pattern, "dw"))
        .ok()?;
    Some(builder.to_regex_limited(expr, FUEL).ok()?.is_match(text))
}

/// Whether two patterns match no text together; `None` if that is too complex.
pub(super) fn are_disjoint(a: &str, b: &str) -> Option<bool> {
    is_empty(&[a.to_owned(), b.to_owned()], 0, None)
}

/// Whether no string has a match of each pattern and such a length; `None` if that is too complex
/// to say.
fn is_empty(patterns: &[String], min: u64, max: Option<u64>) -> Option<bool> {
    let mut parts: Vec<RegexAst> = patterns
        .iter()
        .map(|pattern| RegexAst::SearchRegex(regex_to_lark(pattern, "dw")))
        .collect();
    if min > 0 || max.is_some() {
        let max = max.map(|max| max.to_string()).unwrap_or_default();
        parts.push(RegexAst::Regex(format!("(?s:.{{{min},{max}}})")));
    }
    let mut builder = RegexBuilder::new();
    let expr = builder.mk(&RegexAst::And(parts)).ok()?;
    if builder.exprset().is_positive(expr) {
        return Some(false);
    }
    Some(builder.to_regex_limited(expr, FUEL).ok()?.always_empty())
}

/// `^(?=A)(?=B)C` as `^A`, `^B` and `^C`, which must match all.
fn without_look_ahead(pattern: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = pattern.to_owned();
    while let Some(behind) = rest.strip_prefix("^(?=") {
        let Some(end) = group_end(behind) else { break };
        parts.push(format!("^(?:{})", &behind[..end]));
        rest = format!("^{}", &behind[end + 1..]);
    }
    if parts.is_empty() || rest != "^" {
        parts.push(rest);
    }
    parts
}

/// Where a group ends that has been opened.
fn group_end(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut in_class = false;
    let mut is_escaped = false;
    for (i, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ']' => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '(' => depth += 1,
            ')' if depth == 0 => return Some(i),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}
