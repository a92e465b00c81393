//! Schemas as llguidance takes them: its options of JSON, and what it would take but not keep to, or not survive.
//!
//! Knows JSON and the keywords that lead to other schemas; what keywords mean is llguidance's. Whoever compiles a
//! schema has it looked at here first, be it that of an answer or that of a tool.
//!
//! White space of JSON is free, and a model that writes spaces for ever writes valid JSON for ever: between two tokens
//! of it there is one space at most.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::ConstraintError;

/// Where llguidance looks for options of its own. A schema that sets them could switch our errors off.
pub(crate) const OPTIONS: &str = "x-guidance";

/// Keywords with one schema, or (in old drafts) a list of them.
const ONE: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
/// Keywords with a list of schemas.
const LIST: [&str; 4] = ["prefixItems", "allOf", "anyOf", "oneOf"];
/// Keywords with schemas by name.
const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// References of one schema to different places, and levels of arrays and objects behind all of them together:
/// llguidance follows references by recursion, into each place once.
const MAX_REFERENCES: usize = 500;
const MAX_LEVELS: usize = 5_000;

/// Where the one space may stand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spaces {
    /// Between any two tokens, and in front of the first.
    Anywhere,
    /// Behind commas and colons.
    #[cfg(feature = "chat")]
    BehindSeparators,
}

/// llguidance's options of JSON: at most one space, and no `\u`, because a name that is taken could be written with it
/// a second time, as one of those that are not.
pub(crate) fn options(spaces: Spaces) -> Value {
    let escapes = "nrbtf\\\"";
    match spaces {
        Spaces::Anywhere => {
            json!({"whitespace_flexible": true, "whitespace_pattern": " ", "json_allowed_escapes": escapes})
        }
        #[cfg(feature = "chat")]
        Spaces::BehindSeparators => json!({
            "whitespace_flexible": false, "item_separator": ", ?", "key_separator": ": ?",
            "json_allowed_escapes": escapes,
        }),
    }
}

/// A schema from its text.
pub(super) fn parse(text: &str) -> Result<Value, ConstraintError> {
    let schema: Value = serde_json::from_str(text).map_err(|e| ConstraintError::Schema(format!("no JSON: {e}")))?;
    match schema {
        Value::Object(ref keys) if keys.contains_key(OPTIONS) => {
            Err(ConstraintError::Schema(format!("the keyword \"{OPTIONS}\" is not supported")))
        }
        Value::Object(_) => with_options(schema),
        Value::Bool(true) => with_options(json!({})),
        Value::Bool(false) => Err(ConstraintError::Schema("`false` allows no value".to_owned())),
        _ => Err(ConstraintError::Schema("expected an object or a boolean".to_owned())),
    }
}

/// The schema, an object, if it can be kept to, with white space that does not go on for ever.
fn with_options(mut schema: Value) -> Result<Value, ConstraintError> {
    check(&schema).map_err(ConstraintError::Schema)?;
    schema[OPTIONS] = options(Spaces::Anywhere);
    Ok(schema)
}

/// The schema of any object that has none of these keys.
#[cfg(feature = "chat")]
pub(super) fn object_without(keys: &[&str]) -> Value {
    let none: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), false.into())).collect();
    json!({ "type": "object", "properties": none })
}

/// The schemas within one, each with its way there as a JSON pointer.
pub(crate) fn subschemas(schema: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    schema.iter().flat_map(|(key, value)| -> Box<dyn Iterator<Item = (String, &Value)>> {
        let within = key.as_str();
        match value {
            Value::Object(_) if ONE.contains(&within) => Box::new([(format!("/{key}"), value)].into_iter()),
            Value::Object(named) if NAMED.contains(&within) => {
                Box::new(named.iter().map(move |(name, one)| (format!("/{key}/{}", escaped(name)), one)))
            }
            Value::Array(list) if ONE.contains(&within) || LIST.contains(&within) => {
                Box::new(list.iter().enumerate().map(move |(i, one)| (format!("/{key}/{i}"), one)))
            }
            _ => Box::new(std::iter::empty()),
        }
    })
}

/// As [`subschemas`], to change them.
#[cfg(feature = "chat")]
pub(crate) fn subschemas_mut(schema: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    schema.iter_mut().flat_map(|(key, value)| -> Box<dyn Iterator<Item = &mut Value>> {
        let within = key.as_str();
        match value {
            Value::Object(_) if ONE.contains(&within) => Box::new(std::iter::once(value)),
            Value::Object(named) if NAMED.contains(&within) => Box::new(named.values_mut()),
            Value::Array(list) if ONE.contains(&within) || LIST.contains(&within) => Box::new(list.iter_mut()),
            _ => Box::new(std::iter::empty()),
        }
    })
}

/// A name within a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Whether llguidance would keep to a schema, in so far as it does not find out for itself, and come back from it.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    let mut references = References { root: schema, places: HashSet::new(), heights: HashMap::new(), n_levels: 0 };
    let (mut seen, mut left) = (HashSet::new(), vec![schema]);
    while let Some(next) = left.pop() {
        let Value::Object(keys) = next else { continue };
        if !seen.insert(std::ptr::from_ref(next)) {
            continue;
        }
        check_values(keys)?;
        check_min_properties(keys)?;
        if let Some(Value::String(reference)) = keys.get("$ref") {
            left.extend(references.follow(reference)?);
        }
        left.extend(subschemas(keys).map(|(_, one)| one));
    }
    Ok(())
}

/// Some value must be left that can be written without `\u`.
fn check_values(schema: &Map<String, Value>) -> Result<(), String> {
    let can_be = schema.get("const").is_none_or(is_writable);
    let can_be_one_of = schema.get("enum").and_then(Value::as_array).is_none_or(|all| all.iter().any(is_writable));
    if can_be && can_be_one_of {
        return Ok(());
    }
    Err("a value with control characters, which would need escapes with \"\\u\"".to_owned())
}

fn is_writable(value: &Value) -> bool {
    match value {
        Value::String(text) => text.chars().all(|c| !c.is_ascii_control() || "\n\r\t\u{8}\u{c}".contains(c)),
        Value::Array(items) => items.iter().all(is_writable),
        Value::Object(fields) => fields.values().all(is_writable),
        _ => true,
    }
}

/// llguidance counts the fields that nobody has named by their number, the same name twice: it can be held to one of
/// them.
fn check_min_properties(schema: &Map<String, Value>) -> Result<(), String> {
    let Some(min) = schema.get("minProperties").and_then(Value::as_f64) else { return Ok(()) };
    let has_patterns = schema.get("patternProperties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let is_open = schema.get("additionalProperties") != Some(&Value::Bool(false)) || has_patterns;
    let required: HashSet<&str> = match schema.get("required") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => HashSet::new(),
    };
    if !is_open || min <= (required.len() + 1) as f64 {
        return Ok(());
    }
    Err(format!(
        "\"minProperties\" of {min} where {} are required is supported only with \"additionalProperties\": false",
        required.len()
    ))
}

/// What the references of a schema lead to.
struct References<'a> {
    root: &'a Value,
    /// As they are written: llguidance compiles a place once for each way to write it.
    places: HashSet<&'a str>,
    heights: HashMap<*const Value, usize>,
    /// Behind all of them.
    n_levels: usize,
}

impl<'a> References<'a> {
    /// The place that a reference leads to, unless it was followed before or leads nowhere.
    fn follow(&mut self, reference: &'a str) -> Result<Option<&'a Value>, String> {
        if !self.places.insert(reference) {
            return Ok(None);
        }
        if self.places.len() > MAX_REFERENCES {
            return Err(format!("\"$ref\" to more than {MAX_REFERENCES} different places"));
        }
        let Some(place) = self.place(reference) else { return Ok(None) };
        self.n_levels += *self.heights.entry(place).or_insert_with(|| height(place));
        if self.n_levels > MAX_LEVELS {
            return Err(format!("\"$ref\" to places with more than {MAX_LEVELS} levels together"));
        }
        Ok(Some(place))
    }

    /// As llguidance reads a reference: no escapes, no other document.
    fn place(&self, reference: &str) -> Option<&'a Value> {
        let path = reference.strip_prefix('#')?;
        if path.is_empty() || path == "/" {
            return Some(self.root);
        }
        path.strip_prefix('/')?.split('/').try_fold(self.root, |value, segment| match value {
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
            other => other.get(segment),
        })
    }
}

/// Arrays and objects within one another. Recurses as deep as that, which whoever read the schema has limited.
fn height(value: &Value) -> usize {
    let highest = |values: &mut dyn Iterator<Item = &Value>| 1 + values.map(height).max().unwrap_or(0);
    match value {
        Value::Array(items) => highest(&mut items.iter()),
        Value::Object(fields) => highest(&mut fields.values()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_schema_says_why() {
        let error = |text| parse(text).unwrap_err().to_string();
        assert_eq!(error("[]"), "schema: expected an object or a boolean");
        assert_eq!(error("false"), "schema: `false` allows no value");
        assert_eq!(error("{\"x-guidance\": {}}"), "schema: the keyword \"x-guidance\" is not supported");
        assert!(error("{").starts_with("schema: no JSON: "));
        assert!(error(&"[".repeat(60_000)).starts_with("schema: no JSON: recursion limit"));
    }

    #[test]
    fn true_is_the_schema_of_everything() {
        assert_eq!(parse("true").unwrap(), parse("{}").unwrap());
    }

    #[test]
    fn schemas_are_found_by_keyword_and_not_by_name() {
        let schema = json!({
            "properties": {"items": {"a": 1}, "x/~": true}, "items": [{"b": 1}], "additionalProperties": {"c": 1},
            "anyOf": [{"d": 1}], "enum": [{"items": {}}], "const": {"items": {}}, "x": {"items": {}},
        });
        let found: Vec<String> = subschemas(schema.as_object().unwrap()).map(|(at, _)| at).collect();
        let all = ["/properties/items", "/properties/x~1~0", "/items/0", "/additionalProperties", "/anyOf/0"];
        assert!(found.len() == all.len() && all.iter().all(|at| found.iter().any(|other| other == at)), "{found:?}");
        #[cfg(feature = "chat")]
        assert_eq!(subschemas_mut(schema.clone().as_object_mut().unwrap()).count(), all.len());
    }

    /// `n` definitions, each of which refers to the next one.
    fn chain(n: usize, link: impl Fn(Value) -> Value) -> Value {
        let one = |i: usize| (format!("d{i}"), link(json!({"$ref": format!("#/$defs/d{}", i + 1)})));
        let mut definitions: Map<String, Value> = (0..n - 1).map(one).collect();
        definitions.insert(format!("d{}", n - 1), json!({"type": "string"}));
        json!({"$defs": definitions, "$ref": "#/$defs/d0"})
    }

    #[test]
    fn references_have_a_limit() {
        assert_eq!(check(&chain(500, |next| next)), Ok(()));
        let error = check(&chain(501, |next| next)).unwrap_err();
        assert_eq!(error, "\"$ref\" to more than 500 different places");
        let nested = |n: usize| move |next| (0..n).fold(next, |inner, _| json!({"items": inner}));
        let error = check(&chain(500, nested(20))).unwrap_err();
        assert_eq!(error, "\"$ref\" to places with more than 5000 levels together");
        assert_eq!(check(&chain(200, nested(20))), Ok(()));
        let often: Vec<Value> = (0..2000).map(|_| json!({"$ref": "#/$defs/a"})).collect();
        assert_eq!(check(&json!({"$defs": {"a": {}}, "anyOf": often})), Ok(()));
    }

    #[test]
    fn references_lead_where_llguidance_would_go() {
        let unsound = json!({"minProperties": 2});
        for reference in ["#/x/0/y~1z", "#/x/00/y~1z"] {
            let schema = json!({"x": [{"y~1z": unsound}], "$ref": reference});
            assert!(check(&schema).unwrap_err().contains("minProperties"), "{reference}");
        }
        for reference in ["#", "#/", "#/x/1", "#/no", "http://a/b", "", "#a"] {
            assert_eq!(check(&json!({"x": [{}], "$ref": reference})), Ok(()), "{reference}");
        }
    }

    #[test]
    fn fields_that_nobody_names_can_be_counted_up_to_one() {
        let is_refused = |schema: Value| check(&schema).is_err();
        assert!(is_refused(json!({"minProperties": 2})));
        assert!(!is_refused(json!({"items": {"minProperties": 3, "required": ["a", "a", "b"]}})));
        assert!(is_refused(json!({"minProperties": 3, "required": ["a", "a"]})));
        assert!(is_refused(json!({"minProperties": 2, "additionalProperties": false, "patternProperties": {"a": {}}})));
        assert!(!is_refused(json!({"minProperties": 1})));
        assert!(!is_refused(json!({"minProperties": 2, "additionalProperties": false, "properties": {"a": {}}})));
        assert!(!is_refused(json!({"properties": {"minProperties": {"const": {"minProperties": 9}}}})));
    }
}
