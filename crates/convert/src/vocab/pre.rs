//! Finds GGUF's name for the `pre_tokenizer` of a tokenizer.json.
//!
//! Knows no vocabulary. The one idea: the description is normalized to a list of expressions, which
//! is looked up in a table. llama.cpp's converter compares a hash of an encoded text instead.

use serde_json::Value;

use super::expressions::{CONTRACTION, CONTRACTIONS, DIGIT, GPT2, NAMES, NUMBER};

/// The most steps of a sequence; real ones have a few.
const MAX_STEPS: usize = 32;

/// The steps of a pre-tokenizer, in order.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct PreTokenizerSteps {
    /// Expressions whose matches and gaps are words, in canonical spelling.
    pub(super) splits: Vec<String>,
    /// Whether bytes are spelled in GPT-2's alphabet.
    pub(super) byte_level: bool,
    /// Whether a space is added in front of a text.
    pub(super) add_prefix_space: bool,
}

impl PreTokenizerSteps {
    /// Parses a `pre_tokenizer`. Fails with a message for steps that no expression describes.
    pub(super) fn of(pre_tokenizer: &Value) -> Result<Self, String> {
        let mut steps = Self::default();
        for link in chain(pre_tokenizer, "pretokenizers") {
            steps.add(link)?;
        }
        Ok(steps)
    }

    fn add(&mut self, link: &Value) -> Result<(), String> {
        let flag = |key| link.get(key).and_then(Value::as_bool);
        match kind(link) {
            "ByteLevel" => {
                self.byte_level = true;
                self.add_prefix_space |= flag("add_prefix_space").unwrap_or(true);
                self.splits
                    .extend(flag("use_regex").unwrap_or(true).then(|| GPT2.to_owned()));
            }
            "Digits" if flag("individual_digits") == Some(true) => {
                self.splits.push(DIGIT.to_owned())
            }
            "Digits" => self.splits.push(NUMBER.to_owned()),
            "Split" => self.splits.push(split(link)?),
            other => {
                return Err(format!(
                    "a step of the kind {other} cannot be expressed in GGUF"
                ));
            }
        }
        Ok(())
    }

    /// The name for these splits, and whether it implies `ignore_merges`. Of two names, the one
    /// that implies `whole` is preferred.
    pub(super) fn name(&self, whole: bool) -> Option<(&'static str, bool)> {
        let same = |named: &&KnownPreTokenizer| named.splits.iter().eq(&self.splits);
        let named = || NAMES.iter().filter(same);
        let best = named()
            .find(|named| named.whole == whole)
            .or_else(|| named().next())?;
        Some((best.name, best.whole))
    }
}

/// A known pre-tokenizer.
pub(super) struct KnownPreTokenizer {
    pub(super) name: &'static str,
    pub(super) splits: &'static [&'static str],
    /// `ignore_merges`: a word that is a token needs no merges.
    pub(super) whole: bool,
}

/// The steps of a (nested) `Sequence`, or the single step, or none for null.
pub(super) fn chain<'v>(value: &'v Value, list: &str) -> Vec<&'v Value> {
    let mut links = Vec::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value.get(list).and_then(Value::as_array) {
            Some(inner) => open.extend(inner.iter().rev()),
            None if !value.is_null() => links.push(value),
            None => {}
        }
        if links.len() > MAX_STEPS {
            break;
        }
    }
    links
}

/// The `type` of a step.
pub(super) fn kind(link: &Value) -> &str {
    link.get("type")
        .and_then(Value::as_str)
        .unwrap_or("without a name")
}

/// The expression of a `Split`, if matches and gaps are both kept as words.
fn split(link: &Value) -> Result<String, String> {
    let text = |key| link.get(key).and_then(Value::as_str).unwrap_or_default();
    let pattern = link
        .get("pattern")
        .and_then(|pattern| pattern.get("Regex"))
        .and_then(Value::as_str);
    let pattern =
        canonical(pattern.ok_or("a split without an expression cannot be expressed in GGUF")?);
    let invert = link.get("invert").and_then(Value::as_bool).unwrap_or(false);
    match (text("behavior"), invert) {
        ("Isolated", _) => Ok(pattern),
        ("Removed", true) if covers_everything(&pattern) => Ok(pattern),
        (behavior, _) => Err(format!(
            "a split that is {behavior:?} (invert: {invert}) cannot be expressed in GGUF: {pattern}"
        )),
    }
}

/// Whether the expression leaves no gaps, so that removing gaps changes nothing.
fn covers_everything(pattern: &str) -> bool {
    pattern.contains(r"[^\s\p{L}\p{N}]+") && pattern.ends_with(r"|\s+")
}

/// Normalizes equivalent expressions to one spelling: control characters become escapes, possessive
/// quantifiers plain ones (no known expression matches differently by backtracking), and English
/// contractions a placeholder.
fn canonical(pattern: &str) -> String {
    let escaped = pattern
        .replace('\r', r"\r")
        .replace('\n', r"\n")
        .replace('\t', r"\t");
    let plain = without_possessives(&escaped);
    CONTRACTIONS.iter().fold(plain, |pattern, spelling| {
        pattern.replace(spelling, CONTRACTION)
    })
}

fn without_possessives(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut in_class = false;
    let mut after_quantifier = false;
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let n = if c == '\\' {
            escape_bytes(rest)
        } else {
            c.len_utf8()
        };
        let (symbol, after) = rest.split_at(n);
        rest = after;
        if c == '+' && after_quantifier {
            after_quantifier = false;
            continue;
        }
        out.push_str(symbol);
        in_class = (in_class || c == '[') && c != ']';
        after_quantifier = !in_class && matches!(c, '?' | '*' | '+' | '}');
    }
    out
}

/// The length of the escape at the start of a text: `\n`, `\p{L}`.
fn escape_bytes(text: &str) -> usize {
    let plain = text.chars().take(2).map(char::len_utf8).sum();
    match text.strip_prefix(r"\p{").and_then(|name| name.find('}')) {
        Some(end) => end + r"\p{}".len(),
        None => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_match_the_same_are_spelled_the_same() {
        assert_eq!(
            canonical("[^\r\n]?+\\p{L}++|\\p{N}{1,3}+|a*+"),
            r"[^\r\n]?\p{L}+|\p{N}{1,3}|a*"
        );
        assert_eq!(
            canonical(r"'(?i:[sdmt]|ll|ve|re)|[+?+]+|\++"),
            r"<contraction>|[+?+]+|\++"
        );
        assert_eq!(canonical("(?i:'s|'t|'re|'ve|'m|'ll|'d)?"), "<contraction>?");
        assert_eq!(canonical("\\"), "\\");
    }

    #[test]
    fn an_unsupported_step_is_named() {
        let of =
            |text: &str| PreTokenizerSteps::of(&serde_json::from_str(text).unwrap()).unwrap_err();
        assert!(of(r#"{"type": "UnicodeScripts"}"#).contains("UnicodeScripts"));
        let merged = r#"{"type": "Split", "pattern": {"Regex": "a"}, "behavior": "MergedWithNext",
            "invert": false}"#;
        assert!(of(merged).contains("MergedWithNext"));
        let removed = r#"{"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed",
            "invert": true}"#;
        assert!(of(removed).contains("Removed"));
    }
}
