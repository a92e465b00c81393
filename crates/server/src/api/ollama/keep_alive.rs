//! `keep_alive`: seconds as a number, or a duration of Go such as `1h30m`. A negative one keeps the
//! model in memory forever.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::models::KeepAlive;

/// Units and their seconds; a unit stands before its prefixes.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// How long a model stays in memory after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct KeepAliveField(pub(super) KeepAlive);

impl TryFrom<Value> for KeepAliveField {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let seconds = match &value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => seconds(text),
            _ => None,
        };
        let stay = match seconds {
            Some(seconds) if seconds < 0.0 => Some(KeepAlive::Always),
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .map(KeepAlive::For),
            None => None,
        };
        stay.map(Self)
            .ok_or_else(|| format!("{value}, expected seconds or a duration such as \"5m\""))
    }
}

fn seconds(text: &str) -> Option<f64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits == "0" {
        return Some(0.0);
    }
    if digits.is_empty() {
        return None;
    }
    let mut rest = digits;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let (seconds, behind) = split_term(rest)?;
        sum += seconds;
        rest = behind;
    }
    Some(sign * sum)
}

/// The seconds of a number with its unit, and the text behind them.
fn split_term(text: &str) -> Option<(f64, &str)> {
    let n_digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..n_digits].parse().ok()?;
    let (unit, factor) = UNITS
        .iter()
        .find(|(unit, _)| text[n_digits..].starts_with(unit))?;
    Some((number * factor, &text[n_digits + unit.len()..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        let of = |value: Value| {
            KeepAliveField::try_from(value)
                .ok()
                .map(|KeepAliveField(stay)| stay)
        };
        let for_seconds = |seconds: f64| Some(KeepAlive::For(Duration::from_secs_f64(seconds)));
        for (value, seconds) in [
            (json!("5m"), 300.0),
            (json!("1h30m0.5s"), 5400.5),
            (json!("100ms"), 0.1),
            (json!("0"), 0.0),
            (json!(0), 0.0),
            (json!(2.5), 2.5),
        ] {
            assert_eq!(of(value.clone()), for_seconds(seconds), "{value}");
        }
        assert!(
            [json!(-1), json!("-1s"), json!("-5m")]
                .into_iter()
                .all(|value| of(value) == Some(KeepAlive::Always))
        );
        let wrong = [
            "", "-", "5", "m", "5m3", "1.2.3s", "5 m", "1e400s", "5d", "é",
        ];
        assert!(wrong.into_iter().all(|text| of(json!(text)).is_none()));
        assert!(
            [json!(true), json!(1e300), json!([])]
                .into_iter()
                .all(|value| of(value).is_none())
        );
    }
}
