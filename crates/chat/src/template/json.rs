//! `tojson` as in transformers: Python's `json.dumps` with its spaces, escapes and numbers. Refuses
//! values nested deeper than any tool definition.

use std::fmt::Write;

use minijinja::{
    Error, ErrorKind, Value,
    value::{Kwargs, ValueKind},
};

use super::budget::refused;

const MAX_DEPTH: usize = 100;
const MAX_BYTES: usize = 16 << 20;
const MAX_INDENT: usize = 100;
/// Maximum output bytes per input byte of a string.
const ESCAPE_BYTES: usize = 6;

struct Style {
    ensure_ascii: bool,
    sort_keys: bool,
    /// Spaces per level; `None`: everything on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
}

/// The filter `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`;
/// arguments may be positional.
pub(super) fn tojson(value: &Value, args: &[Value], kwargs: &Kwargs) -> Result<Value, Error> {
    let style = Style::new(args, kwargs)?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(Value::from(out))
}

impl Style {
    fn new(args: &[Value], kwargs: &Kwargs) -> Result<Self, Error> {
        let mut places = args.iter();
        let mut next = |name| -> Result<Option<Value>, Error> {
            let by_place = places.next().cloned();
            let given = if kwargs.has(name) {
                Some(kwargs.get::<Value>(name)?)
            } else {
                by_place
            };
            Ok(given.filter(|value| !value.is_none()))
        };
        let ensure_ascii = next("ensure_ascii")?.is_some_and(|value| value.is_true());
        let indent = next("indent")?
            .map(|value| indentation(&value))
            .transpose()?;
        let separators = next("separators")?
            .map(|value| separators(&value))
            .transpose()?;
        let sort_keys = next("sort_keys")?.is_some_and(|value| value.is_true());
        let default = || {
            (
                if indent.is_some() { "," } else { ", " }.to_owned(),
                ": ".to_owned(),
            )
        };
        let (item_separator, key_separator) = separators.unwrap_or_else(default);
        Ok(Self {
            ensure_ascii,
            sort_keys,
            indent,
            item_separator,
            key_separator,
        })
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let n_bytes = value
            .as_str()
            .map_or(0, |text| text.len().saturating_mul(ESCAPE_BYTES));
        if depth > MAX_DEPTH || out.len().saturating_add(n_bytes) > MAX_BYTES {
            return Err(refused("the template makes JSON that is too large"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => number(value, out),
            ValueKind::String => self.text(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth, out)?,
            ValueKind::Map => self.map(value, depth, out)?,
            kind => {
                let why = format!("an object of type {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::BadSerialization, why));
            }
        }
        Ok(())
    }

    fn list(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        out.push('[');
        let mut is_empty = true;
        for item in value.try_iter()? {
            self.start(is_empty, depth + 1, out);
            self.write(&item, depth + 1, out)?;
            is_empty = false;
        }
        self.end(is_empty, depth, out);
        out.push(']');
        Ok(())
    }

    fn map(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let object = value
            .as_object()
            .ok_or_else(|| refused("a mapping without items"))?;
        let mut pairs: Vec<_> = object.try_iter_pairs().into_iter().flatten().collect();
        if self.sort_keys {
            pairs.sort_by_key(|(key, _)| key.to_string());
        }
        out.push('{');
        for (i, (key, item)) in pairs.iter().enumerate() {
            self.start(i == 0, depth + 1, out);
            self.key(key, out)?;
            out.push_str(&self.key_separator);
            self.write(item, depth + 1, out)?;
        }
        self.end(pairs.is_empty(), depth, out);
        out.push('}');
        Ok(())
    }

    /// Keys are strings; numbers and constants are converted.
    fn key(&self, key: &Value, out: &mut String) -> Result<(), Error> {
        if let Some(text) = key.as_str() {
            self.text(text, out);
            return Ok(());
        }
        let mut text = String::new();
        self.write(key, MAX_DEPTH, &mut text)?;
        self.text(&text, out);
        Ok(())
    }

    /// Writes the separator and indentation before an item.
    fn start(&self, is_first: bool, depth: usize, out: &mut String) {
        out.push_str(if is_first { "" } else { &self.item_separator });
        self.line(depth, out);
    }

    fn end(&self, is_empty: bool, depth: usize, out: &mut String) {
        if !is_empty {
            self.line(depth, out);
        }
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn text(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~' && c != super::SENTINEL) => {
                    escape(c, out)
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn escape(c: char, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}").expect("a String takes all that is written");
    }
}

fn number(value: &Value, out: &mut String) {
    let text = match value.to_string().as_str() {
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        "nan" => "NaN".to_owned(),
        text => python_float(value).unwrap_or_else(|| text.to_owned()),
    };
    out.push_str(&text);
}

/// A finite non-integer number as Python writes it, with an exponent where it is large or small.
pub(super) fn python_float(value: &Value) -> Option<String> {
    let number = f64::try_from(value.clone())
        .ok()
        .filter(|n| n.is_finite())?;
    let is_plain = number == 0.0 || (1e-4..1e16).contains(&number.abs());
    if value.kind() != ValueKind::Number || value.is_integer() || is_plain {
        return None;
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e')?;
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(('+', exponent), |exponent| ('-', exponent));
    Some(format!("{digits}e{sign}{exponent:0>2}"))
}

fn indentation(value: &Value) -> Result<String, Error> {
    let indent = match value.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(
            usize::try_from(i64::try_from(value.clone())?.max(0))
                .unwrap_or(0)
                .min(MAX_INDENT + 1),
        ),
    };
    if indent.len() > MAX_INDENT {
        Err(refused("an indentation that is too wide"))
    } else {
        Ok(indent)
    }
}

fn separators(value: &Value) -> Result<(String, String), Error> {
    let parts: Vec<String> = value
        .try_iter()?
        .take(3)
        .filter_map(|part| part.as_str().map(str::to_owned))
        .collect();
    let parts: Result<[String; 2], _> = parts.try_into();
    let [item, key] = parts.map_err(|_| refused("separators are two strings"))?;
    Ok((item, key))
}
