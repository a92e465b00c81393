//! Rewrites a schema into one that llguidance keeps to, and survives.
//!
//! Knows JSON Schema, no vocabulary and no parser. The one idea: each keyword is either kept,
//! rewritten into keywords that are kept, dropped because it asks for nothing, or *given up*: an
//! error where the caller is strict, and a remark with the keyword and its place where it is not.
//! Bounds are only ever narrowed, so that every text that matches the rewritten schema matches the
//! original in all that was not given up. Preparing twice changes nothing.

mod arrays;
mod formats;
mod numbers;
mod objects;
mod references;
mod strings;
#[cfg(test)]
mod tests;
mod values;

use serde_json::{Map, Value};

use crate::{OtherProperties, SchemaOptions, Strictness};
use references::References;

pub(crate) use references::escaped;

pub(crate) type SchemaObject = Map<String, Value>;

/// A schema as llguidance gets it.
#[derive(Debug)]
pub(crate) struct PreparedSchema {
    pub(crate) schema: Value,
    /// The keywords that were given up.
    pub(crate) remarks: Vec<Flaw>,
    /// Whether strings may have `\u` escapes, because some value cannot be written without them.
    pub(crate) with_unicode_escapes: bool,
}

/// A fault of a schema, or a keyword that was given up, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// JSON pointer to the schema that has it.
    pub(crate) at: String,
    pub(crate) what: String,
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let separator = if self.at.is_empty() { "" } else { ": " };
        write!(f, "{}{separator}{}", self.at, self.what)
    }
}

/// Rewrites a schema, which is an object.
///
/// # Errors
/// A schema that is invalid, that allows no value, or, if `options` are strict, that has a keyword
/// that cannot be kept.
pub(crate) fn prepare(schema: &Value, options: SchemaOptions) -> Result<PreparedSchema, Flaw> {
    let mut walk = Walk {
        options,
        references: References::new(schema),
        remarks: Vec::new(),
        numbers: Vec::new(),
    };
    let mut prepared = walk.schema(schema, "", Extent::Whole)?;
    let mut definitions = SchemaObject::new();
    while let Some(target) = walk.references.next() {
        let definition = walk.schema(target.schema, &target.at, target.place)?;
        definitions.insert(target.name, definition);
    }
    walk.references.check_circles(&prepared, &definitions)?;
    numbers::check_products(&walk.numbers)?;
    if let (Value::Object(keys), false) = (&mut prepared, definitions.is_empty()) {
        keys.insert("$defs".to_owned(), definitions.into());
    }
    let with_unicode_escapes = values::needs_escapes(&prepared)?;
    let mut remarks = walk.remarks;
    let mut seen = std::collections::HashSet::new();
    remarks.retain(|remark| seen.insert(remark.to_string()));
    Ok(PreparedSchema {
        schema: prepared,
        remarks,
        with_unicode_escapes,
    })
}

/// What a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Extent {
    /// All that is known of a value.
    Whole,
    /// A part of it, which other schemas add to: an object cannot be closed here.
    Part,
}

struct Walk<'a> {
    options: SchemaOptions,
    references: References<'a>,
    remarks: Vec<Flaw>,
    /// Every `multipleOf`.
    numbers: Vec<numbers::Multiple>,
}

/// A schema that is being rewritten.
struct Node<'a> {
    /// As it was.
    keys: &'a SchemaObject,
    at: String,
    place: Extent,
    /// As it will be.
    out: SchemaObject,
    /// What must match, too.
    also: Vec<Value>,
}

impl Node<'_> {
    fn flaw(&self, what: impl Into<String>) -> Flaw {
        Flaw {
            at: self.at.clone(),
            what: what.into(),
        }
    }

    /// The types that a value may have; `None`: any.
    fn types(&self) -> Option<Vec<&str>> {
        match self.keys.get("type")? {
            Value::String(one) => Some(vec![one]),
            Value::Array(list) => Some(list.iter().filter_map(Value::as_str).collect()),
            _ => None,
        }
    }

    fn may_be(&self, ty: &str) -> bool {
        self.types().is_none_or(|types| types.contains(&ty))
    }
}

/// Keywords beside which a schema says only a part of what an object may have.
const IN_PLACE: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];
/// Keywords about objects.
const OF_OBJECTS: [&str; 6] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "minProperties",
    "maxProperties",
];

impl<'a> Walk<'a> {
    /// Recurses as deep as the schema is nested, which the reader of its text has limited.
    fn schema(&mut self, schema: &'a Value, at: &str, place: Extent) -> Result<Value, Flaw> {
        let keys = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(keys) => keys,
            _ => {
                return Err(Flaw {
                    at: at.to_owned(),
                    what: "expected an object or a boolean".to_owned(),
                });
            }
        };
        let mut node = Node {
            keys,
            at: at.to_owned(),
            place,
            out: SchemaObject::new(),
            also: Vec::new(),
        };
        for (key, value) in keys {
            self.keyword(&mut node, key, value)?;
        }
        self.number(&mut node)?;
        self.string(&mut node)?;
        self.array(&mut node)?;
        self.object(&mut node)?;
        let also = std::mem::take(&mut node.also);
        if !also.is_empty() {
            match node
                .out
                .entry("allOf")
                .or_insert_with(|| Value::Array(Vec::new()))
            {
                Value::Array(list) => list.extend(also),
                other => *other = also.into(),
            }
        }
        Ok(Value::Object(node.out))
    }

    /// Copies or rewrites one keyword. Those about numbers, strings, arrays and objects that depend
    /// on one another come later.
    fn keyword(&mut self, node: &mut Node<'a>, key: &str, value: &'a Value) -> Result<(), Flaw> {
        let below = format!("{}/{key}", node.at);
        let prepared = match key {
            "type" => types(node, value)?,
            "const" => return self.constant(node, value),
            "enum" => return self.enumeration(node, value),
            "properties" | "patternProperties" => self.named(value, &below)?,
            "items" | "additionalItems" if value.is_array() => {
                self.list(value, &below, Extent::Whole)?
            }
            "items" | "additionalItems" | "additionalProperties" => {
                self.schema(value, &below, Extent::Whole)?
            }
            "prefixItems" => self.list(value, &below, Extent::Whole)?,
            "allOf" | "anyOf" | "oneOf" => return self.combination(node, key, value),
            "$ref" => return self.reference(node, key, value),
            "$recursiveRef" | "$dynamicRef" => return self.reference(node, key, value),
            "not" => return self.negation(node, value),
            "if" => return self.condition(node, value),
            "required" => match value
                .as_array()
                .is_some_and(|names| names.iter().all(Value::is_string))
            {
                true => value.clone(),
                false => return self.give_up(node, key, "it is no list of names"),
            },
            crate::schema::OPTIONS => {
                return self.give_up(
                    node,
                    key,
                    "it would change how texts are held to the schema",
                );
            }
            _ => return Ok(()),
        };
        node.out.insert(key.to_owned(), prepared);
        Ok(())
    }

    /// An error, or a remark.
    fn give_up(&mut self, node: &Node<'_>, key: &str, why: &str) -> Result<(), Flaw> {
        match self.options.strictness {
            Strictness::Strict => {
                Err(node.flaw(format!("the keyword {key:?} is not supported: {why}")))
            }
            Strictness::Loose => {
                self.remark(node, key, why);
                Ok(())
            }
        }
    }

    fn remark(&mut self, node: &Node<'_>, key: &str, why: &str) {
        self.remarks
            .push(node.flaw(format!("{key:?} is not kept to: {why}")));
    }

    fn is_closed(&self) -> bool {
        self.options.others == OtherProperties::Closed
    }

    fn named(&mut self, value: &'a Value, at: &str) -> Result<Value, Flaw> {
        let expected = || Flaw {
            at: at.to_owned(),
            what: "expected an object with schemas".to_owned(),
        };
        let mut out = SchemaObject::new();
        for (name, schema) in value.as_object().ok_or_else(expected)? {
            out.insert(
                name.clone(),
                self.schema(schema, &format!("{at}/{}", escaped(name)), Extent::Whole)?,
            );
        }
        Ok(out.into())
    }

    fn list(&mut self, value: &'a Value, at: &str, place: Extent) -> Result<Value, Flaw> {
        let expected = || Flaw {
            at: at.to_owned(),
            what: "expected a list of schemas".to_owned(),
        };
        let list = value.as_array().ok_or_else(expected)?;
        let schemas = list
            .iter()
            .enumerate()
            .map(|(i, schema)| self.schema(schema, &format!("{at}/{i}"), place));
        Ok(schemas.collect::<Result<Vec<_>, _>>()?.into())
    }

    /// `allOf`, `anyOf`, `oneOf`.
    fn combination(
        &mut self,
        node: &mut Node<'a>,
        key: &str,
        value: &'a Value,
    ) -> Result<(), Flaw> {
        let n = value.as_array().map_or(0, Vec::len);
        if n == 0 && (value.is_array() && key != "allOf") {
            return Err(node.flaw(format!("{key:?} of an empty list allows no value")));
        }
        let others = node
            .keys
            .keys()
            .filter(|other| *other != key)
            .map(String::as_str);
        let alone = !others
            .into_iter()
            .any(|other| IN_PLACE.contains(&other) || OF_OBJECTS.contains(&other));
        let place = if alone && (key != "allOf" || n == 1) {
            node.place
        } else {
            Extent::Part
        };
        let list = self.list(value, &format!("{}/{key}", node.at), place)?;
        if n == 0 {
            return Ok(());
        }
        if key != "oneOf" {
            node.out.insert(key.to_owned(), list);
            return Ok(());
        }
        let exclude = self.exclude_each_other(&list);
        if !exclude && self.options.strictness == Strictness::Loose {
            self.remark(
                node,
                key,
                "its alternatives may hold at once, and are taken as those of \"anyOf\"",
            );
        }
        let is_free = !node.keys.contains_key("anyOf")
            && (exclude || self.options.strictness == Strictness::Loose);
        let key = if is_free { "anyOf" } else { key };
        let also = exclude && !is_free;
        match also || (self.options.strictness == Strictness::Loose && !is_free) {
            true => node.also.push(serde_json::json!({ "anyOf": list })),
            false => drop(node.out.insert(key.to_owned(), list)),
        }
        Ok(())
    }

    /// Whether no value can match two of some prepared schemas, as far as types, values and
    /// required fields tell.
    fn exclude_each_other(&self, list: &Value) -> bool {
        let list: &[Value] = list.as_array().map_or(&[], Vec::as_slice);
        let resolved: Vec<&Value> = list
            .iter()
            .map(|schema| self.references.original(schema))
            .collect();
        // Quadratic in the number of alternatives.
        list.len() <= 200
            && (0..list.len())
                .all(|i| (0..i).all(|j| values::are_disjoint(resolved[i], resolved[j])))
    }

    fn reference(&mut self, node: &mut Node<'a>, key: &str, value: &'a Value) -> Result<(), Flaw> {
        let Some(reference) = value.as_str() else {
            return Err(node.flaw(format!("{key:?} is no string")));
        };
        let alone = node.keys.keys().all(|other| {
            other == key
                || !(IN_PLACE.contains(&other.as_str()) || OF_OBJECTS.contains(&other.as_str()))
        });
        let place = if alone || !self.is_closed() {
            Extent::Whole
        } else {
            Extent::Part
        };
        let place = if self.is_closed() && node.place == Extent::Part {
            Extent::Part
        } else {
            place
        };
        if !references::is_within(reference, self.references.root()) {
            return self.give_up(node, key, &format!("{reference:?} is in another document"));
        }
        let found = self
            .references
            .follow(reference, place)
            .map_err(|what| node.flaw(what))?;
        match node.out.contains_key("$ref") {
            true => node.also.push(serde_json::json!({ "$ref": found })),
            false => drop(node.out.insert("$ref".to_owned(), found.into())),
        }
        Ok(())
    }

    /// `not`, in so far as it can be said without.
    fn negation(&mut self, node: &mut Node<'a>, value: &'a Value) -> Result<(), Flaw> {
        let Value::Object(keys) = value else {
            return match value {
                Value::Bool(false) => Ok(()),
                Value::Bool(true) => self.nothing(node),
                _ => Err(node.flaw("\"not\": expected an object or a boolean")),
            };
        };
        let keys: Vec<(&str, &Value)> = keys
            .iter()
            .map(|(key, value)| (key.as_str(), value))
            .filter(|(key, _)| !is_annotation(key))
            .collect();
        match keys[..] {
            [] => self.nothing(node),
            [("required", Value::Array(names))] if names.len() == 1 && names[0].is_string() => {
                // A value that is no object lacks no property, so it does not match either.
                let name = names[0].as_str().unwrap_or_default();
                node.also
                    .push(serde_json::json!({ "type": "object", "properties": { name: false } }));
                Ok(())
            }
            _ => self.give_up(node, "not", "a grammar says what may be, not what may not"),
        }
    }

    /// Nothing matches.
    fn nothing(&mut self, node: &mut Node<'a>) -> Result<(), Flaw> {
        node.also.push(Value::Bool(false));
        Ok(())
    }

    /// `if`, which asks for nothing without `then` and `else`.
    fn condition(&mut self, node: &mut Node<'a>, _: &Value) -> Result<(), Flaw> {
        let asks = |key: &str| {
            node.keys
                .get(key)
                .is_some_and(|schema| !asks_for_nothing(schema))
        };
        if asks("then") || asks("else") {
            return self.give_up(node, "if", "a grammar cannot look back at what was written");
        }
        Ok(())
    }
}

/// Whether every value matches, as the keywords alone show.
fn asks_for_nothing(schema: &Value) -> bool {
    match schema {
        Value::Object(keys) => keys.keys().all(|key| is_annotation(key)),
        other => *other == Value::Bool(true),
    }
}

/// Whether a keyword asks for nothing.
fn is_annotation(key: &str) -> bool {
    const ANNOTATIONS: [&str; 17] = [
        "$anchor",
        "$comment",
        "$dynamicAnchor",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "examples",
        "example",
        "id",
        "readOnly",
        "title",
        "writeOnly",
    ];
    ANNOTATIONS.contains(&key) || key.starts_with("x-")
}

const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];

/// Refuses types that there are not, and drops those that are named twice.
fn types(node: &Node<'_>, value: &Value) -> Result<Value, Flaw> {
    let unknown = |value: &Value| {
        node.flaw(format!(
            "type {value}, expected one of {}",
            TYPES.join(", ")
        ))
    };
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(list) if list.is_empty() => {
            Err(node.flaw("\"type\" of an empty list allows no value"))
        }
        Value::Array(list) => match list.iter().find(|one| !is_type(one)) {
            Some(one) => Err(unknown(one)),
            None => {
                let mut types: Vec<Value> = Vec::new();
                list.iter().for_each(|one| {
                    if !types.contains(one) {
                        types.push(one.clone())
                    }
                });
                // An integer is a number: the same text twice would be two alternatives.
                let has_number = types.iter().any(|one| one == "number");
                types.retain(|one| !(has_number && one == "integer"));
                Ok(types.into())
            }
        },
        one if is_type(one) => Ok(value.clone()),
        other => Err(unknown(other)),
    }
}

/// A count, of characters, items or properties: JSON Schema takes 2.0 for an integer.
fn count(node: &Node<'_>, key: &str) -> Result<Option<u64>, Flaw> {
    let Some(value) = node.keys.get(key) else {
        return Ok(None);
    };
    let whole = value
        .as_f64()
        .filter(|number| *number >= 0.0 && number.fract() == 0.0);
    match (value.as_u64(), whole) {
        (Some(n), _) => Ok(Some(n)),
        (None, Some(n)) => Ok(Some(n as u64)),
        (None, None) => Err(node.flaw(format!(
            "{key:?} is {value}, expected an integer of at least 0"
        ))),
    }
}

/// More of anything than a text has.
const MANY: u64 = 1 << 30;

/// The two counts of a kind, without those that ask for nothing.
fn counts(node: &mut Node<'_>, min_key: &str, max_key: &str) -> Result<(u64, Option<u64>), Flaw> {
    let min = count(node, min_key)?.unwrap_or(0);
    let max = count(node, max_key)?.filter(|&max| max < MANY);
    if min >= MANY {
        return Err(node.flaw(format!("{min_key:?} of {min}, expected less than {MANY}")));
    }
    if min > 0 {
        node.out.insert(min_key.to_owned(), min.into());
    }
    if let Some(max) = max {
        node.out.insert(max_key.to_owned(), max.into());
    }
    Ok((min, max))
}
