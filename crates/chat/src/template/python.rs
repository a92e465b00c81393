//! Python methods and filters that templates use and minijinja lacks.
//!
//! The methods of minijinja-contrib are used where they behave as in Python and cannot build more
//! than the interpreter's fuel pays for; the others are here.

use std::{collections::HashMap, sync::Arc};

use minijinja::{
    Error, ErrorKind, State, Value, filters,
    formatting::{FormatStyle, format},
    value::{Enumerator, Kwargs, Object, Rest, Tuple, ValueKind, from_args},
};
use minijinja_contrib::pycompat;

use super::budget::refused;

/// Maximum length of a string that a method builds, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Maximum width or precision in a format.
const MAX_WIDTH: u32 = 10_000;
/// Maximum number of characters to strip.
const MAX_STRIPPED: usize = 256;
/// Maximum output bytes per input byte of a quoted string.
const ESCAPE_BYTES: usize = 4;

/// Calls a method that the interpreter does not know.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => match text_method(value.as_str().unwrap_or_default(), name, args) {
            Some(result) => result,
            None => pycompat::unknown_method_callback(state, value, name, args),
        },
        ValueKind::Map => map_method(state, value, name, args),
        ValueKind::Seq if name == "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == *wanted);
            at.map(Value::from)
                .ok_or_else(|| refused("the list has no such item"))
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// Keys, values and items are lists here, so that their parts can be counted.
fn map_method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let pairs = || {
        value
            .as_object()
            .and_then(|object| object.try_iter_pairs())
            .into_iter()
            .flatten()
    };
    match (name, args) {
        ("keys", []) => Ok(pairs().map(|(key, _)| key).collect()),
        ("values", []) => Ok(pairs().map(|(_, item)| item).collect()),
        ("items", []) => Ok(pairs()
            .map(|(key, item)| Value::from(Tuple::new(vec![key, item])))
            .collect()),
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// String methods; `None` if the contributed one is right.
fn text_method(text: &str, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match name {
        "strip" => trimmed(text, args, true, true),
        "lstrip" => trimmed(text, args, true, false),
        "rstrip" => trimmed(text, args, false, true),
        "split" => split(text, args, false),
        "rsplit" => split(text, args, true),
        "partition" => partition(text, args, first, [text, "", ""]),
        "rpartition" => partition(text, args, last, ["", "", text]),
        "removeprefix" => {
            one_text(args).map(|prefix| text.strip_prefix(prefix).unwrap_or(text).into())
        }
        "removesuffix" => {
            one_text(args).map(|suffix| text.strip_suffix(suffix).unwrap_or(text).into())
        }
        "replace" => replace(text, args),
        "join" => join(text, args),
        "index" => position(text, args, first),
        "rindex" => position(text, args, last),
        "isspace" => {
            no_args(args).map(|()| (!text.is_empty() && text.chars().all(is_space)).into())
        }
        "ljust" => justified(text, args, |room| (0, room)),
        "rjust" => justified(text, args, |room| (room, 0)),
        "zfill" => zfill(text, args),
        "swapcase" => {
            no_args(args).map(|()| text.chars().flat_map(swapped).collect::<String>().into())
        }
        "casefold" => no_args(args).map(|()| text.to_lowercase().into()),
        "title" => no_args(args).map(|()| title(text).into()),
        "format" => formatted(FormatStyle::StrFormat, text, args),
        _ => return None,
    })
}

fn no_args(args: &[Value]) -> Result<(), Error> {
    from_args(args)
}

fn one_text(args: &[Value]) -> Result<&str, Error> {
    let (text,): (&str,) = from_args(args)?;
    Ok(text)
}

/// Python's white space: Unicode's, and four ASCII separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

fn trimmed(text: &str, args: &[Value], start: bool, end: bool) -> Result<Value, Error> {
    let (set,): (Option<&str>,) = from_args(args)?;
    if set.is_some_and(|set| set.len() > MAX_STRIPPED) {
        return Err(refused("the template strips too many characters"));
    }
    let is_cut = |c: char| set.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if start {
        text.trim_start_matches(is_cut)
    } else {
        text
    };
    Ok(Value::from(if end {
        text.trim_end_matches(is_cut)
    } else {
        text
    }))
}

/// The filter `trim(chars=None)`.
pub(super) fn trim(value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => trimmed(text, &args, true, true),
        None => trimmed(&value.to_string(), &args, true, true),
    }
}

/// `split` and `rsplit`, by a separator or white space, at most `maxsplit` times.
fn split(text: &str, args: &[Value], from_end: bool) -> Result<Value, Error> {
    let args: Vec<Value> = args
        .iter()
        .map(|arg| named(arg, &["sep", "maxsplit"]))
        .collect::<Vec<_>>()
        .concat();
    let (separator, limit): (Option<&str>, Option<i64>) = from_args(&args)?;
    let limit = limit
        .filter(|&n| n >= 0)
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let parts = match separator {
        Some("") => return Err(refused("empty separator")),
        Some(separator) if from_end => reversed(text.rsplitn(limit.saturating_add(1), separator)),
        Some(separator) => text.splitn(limit.saturating_add(1), separator).collect(),
        None if from_end => reversed(words_from_end(text, limit).into_iter()),
        None => words(text, limit),
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Positional arguments of a call with keywords, in the order of `names`; an argument with an
/// unknown name is kept as it is.
fn named(arg: &Value, names: &[&str]) -> Vec<Value> {
    match Kwargs::try_from(arg.clone()) {
        Ok(kwargs) => names
            .iter()
            .map(|name| kwargs.get::<Value>(name).unwrap_or(Value::from(())))
            .collect(),
        Err(_) => vec![arg.clone()],
    }
}

fn reversed<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut parts: Vec<&str> = parts.collect();
    parts.reverse();
    parts
}

fn words(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = if parts.len() < limit {
            rest.find(is_space)
        } else {
            None
        };
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(word);
        rest = after.trim_start_matches(is_space);
    }
    parts
}

fn words_from_end(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        let last = rest
            .char_indices()
            .rev()
            .find(|&(_, c)| is_space(c))
            .map(|(at, c)| at + c.len_utf8());
        let start = if parts.len() < limit {
            last.unwrap_or(0)
        } else {
            0
        };
        let (before, word) = rest.split_at(start);
        parts.push(word);
        rest = before.trim_end_matches(is_space);
    }
    parts
}

type Find = fn(&str, &str) -> Option<usize>;

fn first(text: &str, part: &str) -> Option<usize> {
    text.find(part)
}

fn last(text: &str, part: &str) -> Option<usize> {
    text.rfind(part)
}

fn partition(text: &str, args: &[Value], find: Find, whole: [&str; 3]) -> Result<Value, Error> {
    let separator = one_text(args)?;
    let parts = match find(text, separator) {
        Some(at) => [&text[..at], separator, &text[at + separator.len()..]],
        None => whole,
    };
    Ok(Value::from(Tuple::new(parts.map(Value::from).to_vec())))
}

fn replace(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
    let count = count
        .filter(|&n| n >= 0)
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let n_found = text.matches(old).count().min(count);
    fits(text.len().saturating_add(n_found.saturating_mul(new.len())))?;
    Ok(Value::from(text.replacen(old, new, count)))
}

fn join(separator: &str, args: &[Value]) -> Result<Value, Error> {
    let (items,): (&Value,) = from_args(args)?;
    let mut joined = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        let item = item
            .as_str()
            .ok_or_else(|| refused("join takes a list of strings"))?;
        fits(joined.len() + separator.len() + item.len())?;
        joined.push_str(if i > 0 { separator } else { "" });
        joined.push_str(item);
    }
    Ok(Value::from(joined))
}

fn position(text: &str, args: &[Value], find: Find) -> Result<Value, Error> {
    let at = find(text, one_text(args)?).ok_or_else(|| refused("substring not found"))?;
    Ok(Value::from(text[..at].chars().count()))
}

fn justified(
    text: &str,
    args: &[Value],
    sides: fn(usize) -> (usize, usize),
) -> Result<Value, Error> {
    let (width, fill): (usize, Option<char>) = from_args(args)?;
    fits(width)?;
    let (left, right) = sides(width.saturating_sub(text.chars().count()));
    let fill = |n| std::iter::repeat_n(fill.unwrap_or(' '), n);
    Ok(Value::from(
        fill(left)
            .chain(text.chars())
            .chain(fill(right))
            .collect::<String>(),
    ))
}

fn zfill(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (width,): (usize,) = from_args(args)?;
    fits(width)?;
    let zeros = "0".repeat(width.saturating_sub(text.chars().count()));
    let n_sign = usize::from(text.starts_with(['-', '+']));
    Ok(Value::from(
        [&text[..n_sign], &zeros, &text[n_sign..]].concat(),
    ))
}

fn swapped(c: char) -> Box<dyn Iterator<Item = char>> {
    if c.is_uppercase() {
        Box::new(c.to_lowercase())
    } else {
        Box::new(c.to_uppercase())
    }
}

/// Capitalizes letters after non-letters and lowers all others.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        if in_word {
            titled.extend(c.to_lowercase())
        } else {
            titled.extend(c.to_uppercase())
        }
        in_word = c.is_alphabetic();
    }
    titled
}

fn fits(n_bytes: usize) -> Result<(), Error> {
    if n_bytes <= MAX_BYTES {
        Ok(())
    } else {
        Err(refused("the template makes a text that is too long"))
    }
}

/// Refuses excessive widths.
fn checked_widths(text: &str) -> Result<(), Error> {
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty());
    // A large number in the text around the fields is refused too: no chat template formats such a
    // text.
    if numbers.any(|digits| {
        digits
            .parse::<u32>()
            .map_or(true, |width| width > MAX_WIDTH)
    }) {
        return Err(refused("the template formats with too large a width"));
    }
    Ok(())
}

/// Fills in the fields of a format, unless the result could be too long.
fn formatted(style: FormatStyle, text: &str, args: &[Value]) -> Result<Value, Error> {
    checked_widths(text)?;
    let n_fields = text.matches(['{', '%']).count();
    let n_longest = args
        .iter()
        .map(|arg| arg.as_str().map_or_else(|| arg.to_string().len(), str::len))
        .max();
    let n_filled = n_fields
        .saturating_mul(n_longest.unwrap_or(0))
        .saturating_mul(ESCAPE_BYTES);
    fits(text.len().saturating_add(n_filled))?;
    format(style, text, args).map(Value::from)
}

/// `left % right`: formats strings, computes the remainder of numbers.
pub(super) fn remainder(left: &Value, right: &Value) -> Result<Value, Error> {
    let Some(text) = left.as_str() else {
        return number_remainder(left, right);
    };
    let args = match right.as_object().filter(|object| object.is::<Tuple>()) {
        Some(_) => right.try_iter()?.collect(),
        None => vec![right.clone()],
    };
    formatted(FormatStyle::Printf, text, &args)
}

/// The remainder as in Python: with the sign of the right side.
fn number_remainder(left: &Value, right: &Value) -> Result<Value, Error> {
    let wrong = || {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("cannot take {left} % {right}"),
        )
    };
    let integer = |value: &Value| {
        value
            .is_integer()
            .then(|| i64::try_from(value.clone()).ok())
            .flatten()
    };
    if let (Some(a), Some(b)) = (integer(left), integer(right)) {
        let rest = a.checked_rem(b).ok_or_else(wrong)?;
        return Ok(Value::from(if rest != 0 && (rest < 0) != (b < 0) {
            rest + b
        } else {
            rest
        }));
    }
    let float = |value: &Value| f64::try_from(value.clone()).map_err(|_| wrong());
    let a = float(left)?;
    let b = float(right)?;
    if b == 0.0 {
        return Err(wrong());
    }
    Ok(Value::from(a - b * (a / b).floor()))
}

/// `dict(…)` of a mapping and keywords; of equal keys the later wins.
pub(super) fn dict(args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let mut made = Dict::default();
    for arg in args.iter() {
        let object = arg.as_object().and_then(|object| object.try_iter_pairs());
        let pairs = object.ok_or_else(|| refused("dict takes a mapping and keywords"))?;
        pairs.for_each(|(key, value)| made.insert(key, value));
    }
    for name in kwargs.args() {
        made.insert(Value::from(name), kwargs.get(name)?);
    }
    Ok(Value::from_object(made))
}

/// A mapping that keeps the order in which keys were first inserted.
#[derive(Debug, Default)]
struct Dict {
    pairs: Vec<(Value, Value)>,
    /// Index of a key among the pairs.
    places: HashMap<Value, usize>,
}

impl Dict {
    fn insert(&mut self, key: Value, value: Value) {
        let place = *self.places.entry(key.clone()).or_insert(self.pairs.len());
        match self.pairs.get_mut(place) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((key, value)),
        }
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.places
            .get(key)
            .map(|&place| self.pairs[place].1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.pairs.iter().map(|(key, _)| key.clone()).collect())
    }
}

/// Items of a loop: empty for an undefined variable, an error for None.
pub(super) fn items(value: Value) -> Result<Value, Error> {
    if value.is_none() {
        Err(refused("'NoneType' object is not iterable"))
    } else {
        Ok(value)
    }
}

/// `int(default=0)`: the default for anything that is not a number.
pub(super) fn int(
    state: &State,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let otherwise = default.or(kwargs.get("default")?).unwrap_or(Value::from(0));
    Ok(filters::int(state, value, Some(otherwise.clone()), base, kwargs).unwrap_or(otherwise))
}

/// `float(default=0.0)`: the default for anything that is not a number.
pub(super) fn float(
    state: &State,
    value: &Value,
    default: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let otherwise = default
        .or(kwargs.get("default")?)
        .unwrap_or(Value::from(0.0));
    Ok(filters::float(state, value, Some(otherwise.clone()), kwargs).unwrap_or(otherwise))
}
