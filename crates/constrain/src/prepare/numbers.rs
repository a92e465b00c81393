//! Bounds of numbers, for a library that holds them as doubles and writes ranges of 64-bit
//! integers.
//!
//! The one idea: bounds are read exactly and only ever narrowed, to those next to them that a
//! double holds. A range that would lose much of what it allows that way is given up, and so is a
//! number that no double holds.

use serde_json::{Number, Value, json};

use super::{Extent, Flaw, Node, Walk};

/// The largest integer whose neighbours are doubles, too.
const EXACT: i128 = 1 << 53;
/// The largest double below 2⁶³: beyond it llguidance's ranges overflow.
const LARGEST: i128 = (1 << 63) - 1024;
/// The same for bounds of any numbers. Few digits, because a schema of a tool becomes text again,
/// and serde_json reads long ones one unit off.
const LARGEST_FLOAT: f64 = 9e18;
/// From here on, llguidance needs the other bound as well.
const LONG: i128 = 1_000_000_000_000_000_000;
/// Digits behind the point of a bound make as many levels of a regular expression.
const SMALLEST: f64 = 1e-15;
/// As many multiples are listed, rather than described.
const MAX_LISTED: i128 = 64;

/// A `multipleOf`, as llguidance holds it: `coef` · 10^-`exp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Multiple {
    coef: u32,
    exp: u32,
}

impl Multiple {
    /// Whether every integer is a multiple of it, as for 0.25.
    fn divides_integers(&self) -> bool {
        10_u128
            .checked_pow(self.exp)
            .is_some_and(|one| one % u128::from(self.coef) == 0)
    }
}

/// A bound, and whether it is allowed itself.
#[derive(Clone, Copy)]
struct Bound<'a> {
    number: &'a Number,
    is_exclusive: bool,
}

impl Walk<'_> {
    pub(super) fn number(&mut self, node: &mut Node<'_>) -> Result<(), Flaw> {
        let is_number = node.may_be("number");
        if !is_number && !node.may_be("integer") {
            return Ok(());
        }
        let mins = bounds(node, "minimum", "exclusiveMinimum")?;
        let maxs = bounds(node, "maximum", "exclusiveMaximum")?;
        let multiple = self.multiple(node, is_number)?;
        if is_number {
            self.floats(node, &mins, &maxs)?;
        } else {
            let range = IntegerRange::of(node, &mins, &maxs);
            self.integers(node, range)?;
        }
        if let Some(multiple) = multiple {
            self.multiples(node, multiple)?;
        }
        Ok(())
    }

    /// Writes bounds of integers, as doubles that llguidance can make a range of.
    fn integers(&mut self, node: &mut Node<'_>, range: IntegerRange) -> Result<(), Flaw> {
        if let (Some(min), Some(max)) = (range.min, range.max)
            && min > max
        {
            return empty(node, min, max);
        }
        let inner = range.bounded(is_alone(node)).as_doubles();
        if range.loses_values(inner) {
            let key = if node.keys.contains_key("minimum") {
                "minimum"
            } else {
                "maximum"
            };
            return self.give_up(
                node,
                key,
                "integers so large are held as doubles, which have no such values",
            );
        }
        set(node, "minimum", inner.min.map(|min| json!(min as i64)));
        set(node, "maximum", inner.max.map(|max| json!(max as i64)));
        Ok(())
    }

    /// Writes bounds of any numbers.
    fn floats(
        &mut self,
        node: &mut Node<'_>,
        mins: &[Bound<'_>],
        maxs: &[Bound<'_>],
    ) -> Result<(), Flaw> {
        // Both as lower bounds: the upper one of the negated number.
        let low = FloatBound::strictest(mins, 1.0);
        let high = FloatBound::strictest(maxs, -1.0);
        if let (Some(low), Some(high)) = (low, high)
            && low.value > -high.value
        {
            let min = mins[0].number;
            let max = maxs[0].number;
            return Err(node.flaw(format!(
                "minimum ({min}) is greater than maximum ({max}): no number is allowed"
            )));
        }
        let is_too_far = |bound: FloatBound| bound.value > LARGEST_FLOAT;
        if low.is_some_and(is_too_far) || high.is_some_and(is_too_far) {
            return self.give_up(node, "minimum", "no bound so far from 0 can be kept");
        }
        let mut low = low.map(FloatBound::kept);
        let mut high = high.map(FloatBound::kept);
        let is_long = |bound: FloatBound| bound.value >= LONG as f64;
        if low.is_some_and(is_long) {
            high = high.or(Some(FloatBound::inclusive(-LARGEST_FLOAT)));
        }
        if high.is_some_and(is_long) {
            low = low.or(Some(FloatBound::inclusive(-LARGEST_FLOAT)));
        }
        if let (Some(low), Some(high)) = (low, high)
            && low.excludes_all_below(high)
        {
            return Err(node.flaw("its bounds allow no number"));
        }
        set_bound(node, ["minimum", "exclusiveMinimum"], low, |value| value);
        set_bound(node, ["maximum", "exclusiveMaximum"], high, |value| {
            0.0 - value
        });
        Ok(())
    }

    /// A `multipleOf` that asks for something and can be kept.
    fn multiple(&mut self, node: &mut Node<'_>, is_number: bool) -> Result<Option<Multiple>, Flaw> {
        let Some(value) = node.keys.get("multipleOf") else {
            return Ok(None);
        };
        let Some(number) = positive(value) else {
            return Err(node.flaw(format!(
                "\"multipleOf\" is {value}, expected a number above 0"
            )));
        };
        let fits = |multiple: &Multiple| {
            can_be_counted(u64::from(multiple.coef), multiple.exp)
                && *multiple == by_doubles(number, multiple)
        };
        let Some(multiple) = as_multiple(number).filter(fits) else {
            self.give_up(node, "multipleOf", "the number has too many digits")?;
            return Ok(None);
        };
        let is_idle = !is_number && multiple.divides_integers();
        Ok(Some(multiple).filter(|_| !is_idle))
    }

    /// Few multiples within bounds are listed: llguidance misses those with fewer digits than the
    /// bounds.
    fn multiples(&mut self, node: &mut Node<'_>, multiple: Multiple) -> Result<(), Flaw> {
        let only_numbers = node
            .types()
            .is_some_and(|types| types.iter().all(|ty| matches!(*ty, "number" | "integer")));
        let number = |key: &str| node.out.get(key).and_then(Value::as_f64);
        let bound = |inclusive: &str, exclusive: &str| {
            let plain = number(inclusive).map(FloatBound::inclusive);
            plain.or(number(exclusive).map(FloatBound::exclusive))
        };
        let low = bound("minimum", "exclusiveMinimum");
        let high = bound("maximum", "exclusiveMaximum");
        if let (Some(low), Some(high), true) = (low, high, only_numbers)
            && !node.keys.contains_key("enum")
            && !node.keys.contains_key("const")
        {
            let is_integer = !node.may_be("number");
            if let Some(list) = listed(multiple, low, high, is_integer) {
                if list.is_empty() {
                    let value = &node.keys["multipleOf"];
                    return Err(node.flaw(format!("no multiple of {value} lies within the bounds")));
                }
                for key in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
                    node.out.shift_remove(key);
                }
                node.out.insert("enum".to_owned(), list.into());
                return Ok(());
            }
        }
        self.numbers.push(multiple);
        let value = node.keys["multipleOf"].clone();
        set(node, "multipleOf", Some(value));
        Ok(())
    }
}

/// Writes a bound under the name for inclusive or exclusive ones.
fn set_bound(
    node: &mut Node<'_>,
    [inclusive, exclusive]: [&str; 2],
    bound: Option<FloatBound>,
    value: fn(f64) -> f64,
) {
    if let Some(bound) = bound {
        let key = if bound.is_exclusive {
            exclusive
        } else {
            inclusive
        };
        set(node, key, Some(json!(value(bound.value))));
    }
}

/// Inclusive bounds of integers.
#[derive(Clone, Copy)]
struct IntegerRange {
    min: Option<i128>,
    max: Option<i128>,
}

impl IntegerRange {
    /// The integers within all bounds and the format of a node.
    fn of(node: &Node<'_>, mins: &[Bound<'_>], maxs: &[Bound<'_>]) -> Self {
        let (low, high) = of_format(node);
        let highest = maxs.iter().map(|bound| -least_of_opposite(bound));
        Self {
            min: mins.iter().map(least).chain(low).max(),
            max: highest.chain(high).min(),
        }
    }
}

impl IntegerRange {
    /// The range without bounds that are out of reach; where the node `is_alone`, with bounds on
    /// both sides, since a model may go on with digits until the length limit.
    fn bounded(self, is_alone: bool) -> Self {
        let mut min = self.min.filter(|&min| min > -LONG.pow(2));
        let mut max = self.max.filter(|&max| max < LONG.pow(2));
        if is_alone {
            let largest = |other: Option<i128>| {
                if other.is_some_and(|n| n >= EXACT) {
                    LARGEST
                } else {
                    EXACT - 1
                }
            };
            max = max.or(Some(largest(min)));
            min = min.or(Some(-largest(max.map(|max| -max))));
        }
        if max.is_none() && min.is_some_and(|min| min >= LONG) {
            max = Some(LARGEST);
        }
        if min.is_none() && max.is_some_and(|max| max <= -LONG) {
            min = Some(-LARGEST);
        }
        Self { min, max }
    }

    /// The largest range within this one whose bounds are doubles.
    fn as_doubles(self) -> Self {
        Self {
            min: self.min.map(|min| round_up(min.max(-LARGEST))),
            max: self.max.map(|max| -round_up((-max).max(-LARGEST))),
        }
    }

    /// Whether `inner` is empty or lacks too much of this range.
    fn loses_values(self, inner: Self) -> bool {
        match (inner.min, inner.max, self.min, self.max) {
            (Some(a), Some(b), Some(min), Some(max)) => {
                a > b
                    || ((a - min.max(-LARGEST - 1024)) + (max.min(LARGEST + 1023) - b)) * 16
                        > (max - min)
                        && b - a < 1 << 20
            }
            (Some(a), Some(b), ..) => a > b,
            (Some(a), None, ..) => a > LARGEST,
            (None, Some(b), ..) => b < -LARGEST,
            (None, None, ..) => false,
        }
    }
}

#[derive(Clone, Copy)]
struct FloatBound {
    value: f64,
    is_exclusive: bool,
}

impl FloatBound {
    fn inclusive(value: f64) -> Self {
        Self {
            value,
            is_exclusive: false,
        }
    }

    fn exclusive(value: f64) -> Self {
        Self {
            value,
            is_exclusive: true,
        }
    }

    /// The strictest of lower bounds; with a `sign` of -1, of the negated upper bounds.
    fn strictest(bounds: &[Bound<'_>], sign: f64) -> Option<Self> {
        let all = bounds.iter().map(|bound| {
            let (value, is_inexact) = inward(bound.number, sign);
            Self {
                value,
                is_exclusive: bound.is_exclusive && !is_inexact,
            }
        });
        all.max_by(|a, b| {
            let by_value = a.value.total_cmp(&b.value);
            by_value.then(a.is_exclusive.cmp(&b.is_exclusive))
        })
    }

    /// The lower bound as llguidance can keep it.
    fn kept(self) -> Self {
        let mut bound = Self {
            value: self.value.max(-LARGEST_FLOAT),
            ..self
        };
        if bound.value != 0.0 && bound.value.abs() < SMALLEST {
            bound = Self::inclusive(if bound.value > 0.0 { SMALLEST } else { 0.0 });
        }
        if bound.is_exclusive && bound.value >= 0.0 && bound.value.fract() == 0.0 {
            bound = Self::inclusive(bound.value + step_above(bound.value));
        }
        // -0 becomes 0.
        bound.value += 0.0;
        bound
    }

    /// Whether no number is above this bound and below `high`, a bound of the negated number.
    fn excludes_all_below(self, high: Self) -> bool {
        let is_open = self.is_exclusive || high.is_exclusive;
        self.value > -high.value || (self.value == -high.value && is_open)
    }
}

fn distinct(multiples: &[Multiple]) -> Vec<Multiple> {
    let mut distinct: Vec<Multiple> = Vec::new();
    multiples.iter().for_each(|one| {
        if !distinct.contains(one) {
            distinct.push(*one)
        }
    });
    distinct
}

/// llguidance multiplies those that must hold together, in 32 bits.
pub(super) fn check_products(multiples: &[Multiple]) -> Result<(), Flaw> {
    let exp = multiples
        .iter()
        .map(|multiple| multiple.exp)
        .max()
        .unwrap_or(0);
    let distinct = distinct(multiples);
    let scaled = distinct
        .iter()
        .map(|one| Some(u64::from(one.coef) * 10_u64.checked_pow(exp - one.exp)?));
    let product = scaled
        .into_iter()
        .try_fold(1_u64, |product, one| product.checked_mul(one?));
    if distinct.len() < 2 || product.is_some_and(|product| can_be_counted(product, exp)) {
        return Ok(());
    }
    let what = "\"multipleOf\" of several numbers with too many digits together".to_owned();
    Err(Flaw {
        at: String::new(),
        what,
    })
}

/// Whether remainders of `coef`, and a digit before them, stay within the 32 bits that the library
/// has.
fn can_be_counted(coef: u64, exp: u32) -> bool {
    let one = 10_u64
        .checked_pow(exp)
        .filter(|one| *one <= u64::from(u32::MAX));
    one.and_then(|one| coef.checked_mul(10)?.checked_add(9 * one))
        .is_some_and(|largest| largest <= u64::from(u32::MAX))
}

/// Whether no other keyword or schema restricts the values of a node.
fn is_alone(node: &Node<'_>) -> bool {
    let others = ["enum", "const", "$ref", "allOf", "anyOf", "oneOf"];
    node.place == Extent::Whole && !others.iter().any(|key| node.keys.contains_key(*key))
}

fn positive(value: &Value) -> Option<f64> {
    value
        .as_f64()
        .filter(|number| *number > 0.0 && number.is_finite())
}

/// All bounds of one side.
fn bounds<'a>(node: &Node<'a>, key: &str, exclusive: &str) -> Result<Vec<Bound<'a>>, Flaw> {
    let number = |key: &str| match node.keys.get(key) {
        None => Ok(None),
        Some(Value::Number(number)) => Ok(Some(number)),
        Some(other) => Err(node.flaw(format!("{key:?} is {other}, expected a number"))),
    };
    let plain = number(key)?;
    // Draft 4 had booleans.
    if let Some(Value::Bool(is_exclusive)) = node.keys.get(exclusive) {
        return Ok(plain
            .map(|number| Bound {
                number,
                is_exclusive: *is_exclusive,
            })
            .into_iter()
            .collect());
    }
    let plain = plain.map(|number| Bound {
        number,
        is_exclusive: false,
    });
    let other = number(exclusive)?.map(|number| Bound {
        number,
        is_exclusive: true,
    });
    Ok(plain.into_iter().chain(other).collect())
}

/// Bounds that a format of integers has.
fn of_format(node: &Node<'_>) -> (Option<i128>, Option<i128>) {
    match node.keys.get("format").and_then(Value::as_str) {
        Some("int8") => (Some(-128), Some(127)),
        Some("uint8") => (Some(0), Some(255)),
        Some("int16") => (Some(-(1 << 15)), Some((1 << 15) - 1)),
        Some("uint16") => (Some(0), Some((1 << 16) - 1)),
        Some("int32") => (Some(-(1 << 31)), Some((1 << 31) - 1)),
        Some("uint32") => (Some(0), Some((1 << 32) - 1)),
        Some("int64") => (Some(-(1 << 63)), Some((1 << 63) - 1)),
        Some("uint64") => (Some(0), None),
        _ => (None, None),
    }
}

/// The least integer that a lower bound allows.
fn least(bound: &Bound<'_>) -> i128 {
    at_least(
        exact(bound.number),
        bound.is_exclusive,
        bound.number.as_f64().unwrap_or(0.0),
    )
}

/// The least integer that the negated number may be, for an upper bound.
fn least_of_opposite(bound: &Bound<'_>) -> i128 {
    at_least(
        exact(bound.number).map(|n| -n),
        bound.is_exclusive,
        -bound.number.as_f64().unwrap_or(0.0),
    )
}

fn at_least(integer: Option<i128>, is_exclusive: bool, value: f64) -> i128 {
    match integer {
        Some(n) => n + i128::from(is_exclusive),
        None => value.ceil() as i128,
    }
}

/// The integer, if it is one that fits.
fn exact(number: &Number) -> Option<i128> {
    let by_double = || {
        let value = number.as_f64().filter(|value| value.fract() == 0.0)?;
        // A bound so large is one of those that ask for nothing; the sign is kept.
        Some(value.clamp(-1e37, 1e37) as i128)
    };
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
        .or_else(by_double)
}

/// The next integer from here on that a double holds exactly.
fn round_up(n: i128) -> i128 {
    let nearest = n as f64;
    let value = if (nearest as i128) < n {
        next_up(nearest)
    } else {
        nearest
    };
    value as i128
}

/// How far above a whole number the first number is that a lower bound without it allows:
/// llguidance would write the number itself where the upper bound has the same digits in front of
/// the point.
fn step_above(whole: f64) -> f64 {
    match whole {
        0.0 => SMALLEST,
        _ if whole < 1e5 => 1e-9,
        _ if whole < 1e12 => 1e-3,
        _ => 1.0,
    }
}

/// The double above one that is finite.
fn next_up(value: f64) -> f64 {
    match value {
        0.0 => f64::from_bits(1),
        _ if value > 0.0 => f64::from_bits(value.to_bits() + 1),
        _ => f64::from_bits(value.to_bits() - 1),
    }
}

/// A number times `sign` as a double, not below it; whether it is above.
fn inward(number: &Number, sign: f64) -> (f64, bool) {
    let value = sign * number.as_f64().unwrap_or(0.0);
    match number.is_f64() {
        true => (value, false),
        false => {
            let integer = exact(number).unwrap_or(0) * (sign as i128);
            let up = round_up(integer);
            (up as f64, up != integer)
        }
    }
}

/// Whether a number is written by llguidance as it stands.
pub(super) fn is_exact(number: &Number) -> bool {
    match (number.as_i64(), number.as_u64()) {
        (Some(n), _) => {
            i128::from(n).abs() <= EXACT || (n > i64::MIN && (n as f64) as i128 == i128::from(n))
        }
        (None, Some(n)) => (n as f64) as u128 == u128::from(n),
        (None, None) => number
            .as_f64()
            .is_some_and(|value| value.abs() < EXACT as f64),
    }
}

fn empty(node: &mut Node<'_>, min: i128, max: i128) -> Result<(), Flaw> {
    Err(node.flaw(format!(
        "minimum ({min}) is greater than maximum ({max}): no integer is allowed"
    )))
}

fn set(node: &mut Node<'_>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        node.out.insert(key.to_owned(), value);
    }
}

/// A number by its shortest decimal digits.
fn as_multiple(number: f64) -> Option<Multiple> {
    let text = format!("{number}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let coef = [whole, fraction].concat().parse::<u32>().ok()?;
    Some(Multiple {
        coef,
        exp: fraction.len() as u32,
    })
}

/// What llguidance makes of it, by doubles.
fn by_doubles(number: f64, expected: &Multiple) -> Multiple {
    let mut value = number;
    let mut exp = 0;
    while value.fract() != 0.0 && exp <= expected.exp {
        value *= 10.0;
        exp += 1;
    }
    Multiple {
        coef: value as u32,
        exp,
    }
}

/// All multiples within bounds, if they are few.
fn listed(
    multiple: Multiple,
    low: FloatBound,
    high: FloatBound,
    is_integer: bool,
) -> Option<Vec<Value>> {
    let step = f64::from(multiple.coef) / 10_f64.powi(multiple.exp as i32);
    let first = (low.value / step).floor() as i128 - 1;
    let last = (high.value / step).ceil() as i128 + 1;
    if last - first > MAX_LISTED {
        return None;
    }
    // By decimal digits, as a reader of the text would take them.
    let value = |i: i128| {
        format!("{}e-{}", i * i128::from(multiple.coef), multiple.exp)
            .parse::<f64>()
            .ok()
    };
    let is_within = |v: &f64| {
        (*v > low.value || (*v == low.value && !low.is_exclusive))
            && (*v < high.value || (*v == high.value && !high.is_exclusive))
            && (!is_integer || v.fract() == 0.0)
    };
    let as_json = |v: f64| {
        if v.fract() == 0.0 && v.abs() < EXACT as f64 {
            json!(v as i64)
        } else {
            json!(v)
        }
    };
    let all: Vec<f64> = (first..=last).filter_map(value).filter(is_within).collect();
    all.iter()
        .all(|v| v.abs() < EXACT as f64)
        .then(|| all.into_iter().map(as_json).collect())
}
