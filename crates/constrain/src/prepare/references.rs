//! References within a schema: where they lead, by JSON pointers with their escapes and by anchors.
//!
//! llguidance follows pointers without escapes, by recursion, into each place once for each way to
//! write it. It gets `#` and `#/$defs/NAME` with plain names, and every target is prepared once.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

use super::{Extent, Flaw, SchemaObject};

/// Different places, and levels of arrays and objects behind all of them together.
const MAX_REFERENCES: usize = 500;
const MAX_LEVELS: usize = 5_000;

/// A schema that is referred to.
pub(super) struct Target<'a> {
    pub(super) name: String,
    pub(super) at: String,
    pub(super) schema: &'a Value,
    pub(super) place: Extent,
}

pub(super) struct References<'a> {
    root: &'a Value,
    names: HashMap<(*const Value, Extent), String>,
    originals: HashMap<String, &'a Value>,
    waiting: VecDeque<Target<'a>>,
    heights: HashMap<*const Value, usize>,
    n_levels: usize,
}

impl<'a> References<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self {
            root,
            names: HashMap::new(),
            originals: HashMap::new(),
            waiting: VecDeque::new(),
            heights: HashMap::new(),
            n_levels: 0,
        }
    }

    pub(super) fn root(&self) -> &'a Value {
        self.root
    }

    /// The next one to be prepared.
    pub(super) fn next(&mut self) -> Option<Target<'a>> {
        self.waiting.pop_front()
    }

    /// What llguidance is to read in place of a reference, which is within this document.
    ///
    /// # Errors
    /// A place that is not there, and too many places.
    pub(super) fn follow(&mut self, reference: &str, place: Extent) -> Result<String, String> {
        let fragment = reference
            .split_once('#')
            .map_or("", |(_, fragment)| fragment);
        let (at, schema) = self
            .find(fragment)
            .ok_or_else(|| format!("\"$ref\": there is no {reference:?}"))?;
        if std::ptr::eq(schema, self.root) && place == Extent::Whole {
            return Ok("#".to_owned());
        }
        let key = (std::ptr::from_ref(schema), place);
        if let Some(name) = self.names.get(&key) {
            return Ok(format!("#/$defs/{name}"));
        }
        if self.names.len() >= MAX_REFERENCES {
            return Err(format!(
                "\"$ref\" to more than {MAX_REFERENCES} different places"
            ));
        }
        self.n_levels += *self.heights.entry(schema).or_insert_with(|| height(schema));
        if self.n_levels > MAX_LEVELS {
            return Err(format!(
                "\"$ref\" to places with more than {MAX_LEVELS} levels together"
            ));
        }
        let name = self.name(&at, place);
        self.names.insert(key, name.clone());
        self.originals.insert(name.clone(), schema);
        self.waiting.push_back(Target {
            name: name.clone(),
            at,
            schema,
            place,
        });
        Ok(format!("#/$defs/{name}"))
    }

    /// The last part of the pointer if llguidance reads it as it stands, else a number.
    fn name(&self, at: &str, place: Extent) -> String {
        let last = at.rsplit('/').next().unwrap_or_default();
        let is_plain = !last.is_empty()
            && last
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-. ".contains(c))
            && place == Extent::Whole;
        match is_plain && !self.originals.contains_key(last) {
            true => last.to_owned(),
            false => (self.originals.len()..)
                .map(|i| format!("ref-{i}"))
                .find(|n| !self.originals.contains_key(n))
                .unwrap_or_default(),
        }
    }

    /// A place by the part of a reference behind `#`, with the pointer to it.
    fn find(&self, fragment: &str) -> Option<(String, &'a Value)> {
        let fragment = percent_decoded(fragment)?;
        if fragment.is_empty() || fragment == "/" {
            return Some((String::new(), self.root));
        }
        let Some(path) = fragment.strip_prefix('/') else {
            return anchor(self.root, &fragment, String::new());
        };
        let step = |value: &'a Value, segment: &str| match value {
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
            other => other.get(segment.replace("~1", "/").replace("~0", "~")),
        };
        let found = path.split('/').try_fold(self.root, step);
        // Some writers do not escape.
        let literal = || {
            path.split_once('/')
                .and_then(|(first, name)| self.root.get(first)?.get(name))
        };
        found
            .or_else(literal)
            .map(|schema| (format!("/{path}"), schema))
    }

    /// What a prepared schema was before, if it is a reference and nothing else.
    pub(super) fn original<'b>(&self, schema: &'b Value) -> &'b Value
    where
        'a: 'b,
    {
        let alone = schema
            .as_object()
            .filter(|keys| keys.len() == 1)
            .and_then(|keys| keys.get("$ref")?.as_str());
        let name = alone.and_then(|reference| reference.strip_prefix("#/$defs/"));
        name.and_then(|name| self.originals.get(name).copied())
            .unwrap_or(schema)
    }

    /// What a schema refers to, if it is a reference and nothing else; at most a few steps.
    pub(super) fn resolved(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..8 {
            let reference = schema
                .get("$ref")
                .and_then(Value::as_str)
                .filter(|one| is_within(one, self.root));
            let fragment = reference.and_then(|reference| reference.split_once('#'));
            match fragment.and_then(|(_, fragment)| self.find(fragment)) {
                Some((_, found)) => schema = found,
                None => break,
            }
        }
        schema
    }

    /// Refuses references that lead back to themselves through nothing but references: no value
    /// ever comes of them.
    pub(super) fn check_circles(
        &self,
        root: &Value,
        definitions: &SchemaObject,
    ) -> Result<(), Flaw> {
        let mut done = HashSet::new();
        for start in std::iter::once("#").chain(definitions.keys().map(String::as_str)) {
            // Depth first, with a stack of our own: `true` on the way back.
            let mut stack = vec![(start.to_owned(), false)];
            let mut above = HashSet::new();
            while let Some((name, is_back)) = stack.pop() {
                if is_back {
                    above.remove(&name);
                    done.insert(name);
                    continue;
                }
                if done.contains(&name) || !above.insert(name.clone()) {
                    continue;
                }
                let schema = if name == "#" {
                    Some(root)
                } else {
                    definitions.get(&name)
                };
                let mut next = Vec::new();
                schema
                    .into_iter()
                    .for_each(|schema| in_place(schema, &mut next));
                if next.iter().any(|next| above.contains(next)) {
                    let what = "\"$ref\" leads back to itself: no value can come of it".to_owned();
                    return Err(Flaw {
                        at: String::new(),
                        what,
                    });
                }
                stack.push((name, true));
                stack.extend(next.into_iter().map(|next| (next, false)));
            }
        }
        Ok(())
    }
}

/// The names of what a value must match where it matches `schema`.
fn in_place(schema: &Value, names: &mut Vec<String>) {
    let Value::Object(keys) = schema else { return };
    if let Some(Value::String(reference)) = keys.get("$ref") {
        names.push(reference.strip_prefix("#/$defs/").unwrap_or("#").to_owned());
    }
    if let Some(Value::Array(list)) = keys.get("allOf") {
        list.iter().for_each(|schema| in_place(schema, names));
    }
}

/// Whether a reference stays within the document.
pub(super) fn is_within(reference: &str, root: &Value) -> bool {
    let document = reference
        .split_once('#')
        .map_or(reference, |(document, _)| document);
    let id = root
        .get("$id")
        .or_else(|| root.get("id"))
        .and_then(Value::as_str);
    document.is_empty() || id.is_some_and(|id| id.trim_end_matches('#') == document)
}

/// The schema with an `$anchor`. Recurses as deep as the document is nested.
fn anchor<'a>(value: &'a Value, name: &str, at: String) -> Option<(String, &'a Value)> {
    match value {
        Value::Object(keys) => {
            let is_it = |key| keys.get(key).and_then(Value::as_str) == Some(name);
            let is_old = |key| {
                keys.get(key)
                    .and_then(Value::as_str)
                    .and_then(|id| id.strip_prefix('#'))
                    == Some(name)
            };
            if is_it("$anchor") || is_it("$dynamicAnchor") || is_old("$id") || is_old("id") {
                return Some((at, value));
            }
            let data = ["enum", "const", "default", "examples"];
            let below = keys.iter().filter(|(key, _)| !data.contains(&key.as_str()));
            below
                .into_iter()
                .find_map(|(key, value)| anchor(value, name, format!("{at}/{}", escaped(key))))
        }
        Value::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(i, value)| anchor(value, name, format!("{at}/{i}"))),
        _ => None,
    }
}

/// A name within a JSON pointer.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// `%3C` as `<`; other text stays as it is.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.as_bytes();
    let mut out = Vec::new();
    while let [first, rest @ ..] = bytes {
        let code = rest
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|hex| str::from_utf8(hex).ok());
        let byte = code
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(byte.unwrap_or(*first));
        bytes = if byte.is_some() { &rest[2..] } else { rest };
    }
    String::from_utf8(out).ok()
}

/// Arrays and objects within one another. Recurses as deep as that, which the reader of the text
/// has limited.
fn height(value: &Value) -> usize {
    let highest =
        |values: &mut dyn Iterator<Item = &Value>| 1 + values.map(height).max().unwrap_or(0);
    match value {
        Value::Array(items) => highest(&mut items.iter()),
        Value::Object(fields) => highest(&mut fields.values()),
        _ => 0,
    }
}
