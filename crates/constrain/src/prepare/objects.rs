//! Properties of objects: which there may be, which there must be, and how many.

use serde_json::{Value, json};

use super::{
    Extent, Flaw, IN_PLACE, Node, SchemaObject, Walk, asks_for_nothing, counts, is_annotation,
    strings,
};

/// Alternatives of a schema that depend on what else there is.
const MAX_DEPENDENCIES: usize = 4;

/// The names that `propertyNames` allows.
enum Names {
    Any,
    Listed(Vec<String>),
    Pattern(String),
}

impl<'a> Walk<'a> {
    pub(super) fn object(&mut self, node: &mut Node<'a>) -> Result<(), Flaw> {
        if !node.may_be("object") {
            return Ok(());
        }
        self.patterns(node)?;
        self.unevaluated_properties(node)?;
        let has_dependent_schemas = self.dependencies(node)?;
        let (min, max) = counts(node, "minProperties", "maxProperties")?;
        if self.is_closed() && !has_dependent_schemas && lists_its_properties(node, min) {
            node.out
                .insert("additionalProperties".to_owned(), false.into());
        }
        self.property_names(node)?;
        self.number_of_properties(node, min, max)
    }

    /// `patternProperties` that can be told apart.
    fn patterns(&mut self, node: &mut Node<'a>) -> Result<(), Flaw> {
        let Some(Value::Object(map)) = node.out.get("patternProperties") else {
            return Ok(());
        };
        let patterns: Vec<String> = map.keys().cloned().collect();
        if patterns.is_empty() {
            node.out.shift_remove("patternProperties");
            return Ok(());
        }
        let unreadable = patterns
            .iter()
            .find_map(|pattern| strings::readable(pattern).err());
        let pairs = || (0..patterns.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        let overlap = || {
            pairs().any(|(i, j)| strings::are_disjoint(&patterns[i], &patterns[j]) != Some(true))
        };
        let why = match unreadable {
            Some(why) => why,
            None if overlap() => "a name may match two of its patterns".to_owned(),
            None => return Ok(()),
        };
        self.give_up(node, "patternProperties", &why)?;
        node.out.shift_remove("patternProperties");
        node.out
            .insert("additionalProperties".to_owned(), true.into());
        Ok(())
    }

    fn unevaluated_properties(&mut self, node: &mut Node<'a>) -> Result<(), Flaw> {
        let key = "unevaluatedProperties";
        let Some(schema) = node
            .keys
            .get(key)
            .filter(|schema| !asks_for_nothing(schema))
        else {
            return Ok(());
        };
        if node.out.contains_key("additionalProperties") {
            return Ok(());
        }
        let others = ["if", "dependentSchemas", "dependencies"];
        if IN_PLACE
            .iter()
            .chain(&others)
            .any(|other| node.keys.contains_key(*other))
        {
            return self.give_up(node, key, "other schemas beside it decide what it is about");
        }
        let schema = self.schema(schema, &format!("{}/{key}", node.at), Extent::Whole)?;
        node.out.insert("additionalProperties".to_owned(), schema);
        Ok(())
    }

    /// What must be there, or hold, beside a property: either it is not there, or that does.
    /// Whether a schema adds to what the object may have.
    fn dependencies(&mut self, node: &mut Node<'a>) -> Result<bool, Flaw> {
        let mut n = 0;
        let mut has_schemas = false;
        for key in ["dependentRequired", "dependentSchemas", "dependencies"] {
            let map = match node.keys.get(key) {
                None => continue,
                Some(Value::Object(map)) => map,
                Some(other) => {
                    return Err(node.flaw(format!("{key:?} is {other}, expected an object")));
                }
            };
            for (name, wanted) in map {
                if asks_for_nothing(wanted) || wanted.as_array().is_some_and(Vec::is_empty) {
                    continue;
                }
                n += 1;
                if n > MAX_DEPENDENCIES {
                    self.give_up(node, key, "there are too many to write all cases down")?;
                    return Ok(has_schemas);
                }
                has_schemas |= !wanted.is_array();
                let then = match wanted {
                    Value::Array(names) if names.iter().all(Value::is_string) => {
                        json!({ "required": names })
                    }
                    Value::Array(_) => {
                        return Err(node.flaw(format!("{key:?}: expected lists of names")));
                    }
                    schema => self.schema(
                        schema,
                        &format!("{}/{key}/{}", node.at, super::escaped(name)),
                        Extent::Part,
                    )?,
                };
                node.also
                    .push(json!({ "anyOf": [{ "properties": { name: false } }, then] }));
            }
        }
        Ok(has_schemas)
    }

    fn property_names(&mut self, node: &mut Node<'a>) -> Result<(), Flaw> {
        let Some(schema) = node.keys.get("propertyNames") else {
            return Ok(());
        };
        let names = match self.names(schema) {
            Ok(Names::Any) => return Ok(()),
            Ok(names) if !node.out.contains_key("patternProperties") => names,
            Ok(_) => {
                return self.give_up(
                    node,
                    "propertyNames",
                    "\"patternProperties\" stand beside it",
                );
            }
            Err(why) => return self.give_up(node, "propertyNames", &why),
        };
        let is_allowed = |name: &str| match &names {
            Names::Any => true,
            Names::Listed(list) => list.iter().any(|other| other == name),
            Names::Pattern(pattern) => strings::is_match(pattern, name) == Some(true),
        };
        if let Some(Value::Object(properties)) = node.out.get_mut("properties") {
            properties
                .iter_mut()
                .filter(|(name, _)| !is_allowed(name))
                .for_each(|(_, schema)| *schema = false.into());
        }
        let others = node
            .out
            .insert("additionalProperties".to_owned(), false.into())
            .unwrap_or(true.into());
        if others == Value::Bool(false) {
            return Ok(());
        }
        match names {
            Names::Pattern(pattern) => {
                node.out
                    .insert("patternProperties".to_owned(), json!({ pattern: others }));
            }
            Names::Listed(list) => {
                let properties = node.out.entry("properties").or_insert_with(|| json!({}));
                if let Value::Object(properties) = properties {
                    for name in list {
                        properties.entry(name).or_insert_with(|| others.clone());
                    }
                }
            }
            Names::Any => {}
        }
        Ok(())
    }

    /// What a schema of names allows, or why that cannot be kept.
    fn names(&self, schema: &'a Value) -> Result<Names, String> {
        let complex = || Err("only a pattern, lengths or a list of names can be kept".to_owned());
        let schema = self.references.resolved(schema);
        let Value::Object(keys) = schema else {
            return if *schema == Value::Bool(true) {
                Ok(Names::Any)
            } else {
                complex()
            };
        };
        let asks = |key: &&String| !is_annotation(key) && key.as_str() != "type";
        let asking: Vec<&str> = keys.keys().filter(asks).map(String::as_str).collect();
        let may_be_string = match keys.get("type") {
            Some(Value::Array(types)) => types.iter().any(|ty| ty == "string"),
            Some(ty) => ty == "string",
            None => true,
        };
        match (&asking[..], may_be_string) {
            ([], true) => Ok(Names::Any),
            (["enum" | "const"], true) => Ok(Names::Listed(listed(keys))),
            (["pattern"], true) => {
                let pattern = keys["pattern"].as_str().unwrap_or_default();
                strings::readable(pattern).map(|()| Names::Pattern(pattern.to_owned()))
            }
            (
                ["minLength" | "maxLength"]
                | ["minLength", "maxLength"]
                | ["maxLength", "minLength"],
                true,
            ) => {
                let length = |key: &str| {
                    keys.get(key)
                        .and_then(Value::as_u64)
                        .map(|n| n.to_string())
                        .unwrap_or_default()
                };
                let min = Some(length("minLength"))
                    .filter(|min| !min.is_empty())
                    .unwrap_or_else(|| "0".to_owned());
                let pattern = format!("^(?s:.{{{min},{}}})$", length("maxLength"));
                strings::readable(&pattern).map(|()| Names::Pattern(pattern))
            }
            _ => complex(),
        }
    }

    /// llguidance counts properties that the schema does not name by their number, the same name
    /// twice, and others only where it can write down each case.
    fn number_of_properties(
        &mut self,
        node: &mut Node<'a>,
        min: u64,
        max: Option<u64>,
    ) -> Result<(), Flaw> {
        let is_closed = node.out.get("additionalProperties") == Some(&Value::Bool(false))
            && !node.out.contains_key("patternProperties");
        let required = required(&node.out);
        let n_required = required.len() as u64;
        let n_optional = match node.out.get("properties") {
            Some(Value::Object(properties)) => {
                let optional = |(name, schema): &(&String, &Value)| {
                    !required.contains(name.as_str()) && **schema != Value::Bool(false)
                };
                properties.iter().filter(optional).count() as u64
            }
            _ => 0,
        };
        if is_closed && (min > n_required + n_optional || max.is_some_and(|max| n_required > max)) {
            return Err(node.flaw("its properties are too few or too many for \"minProperties\" and \"maxProperties\""));
        }
        // What asks for nothing.
        let mut min = min;
        let mut max = max;
        if min <= n_required {
            node.out.shift_remove("minProperties");
            min = 0;
        }
        if is_closed && max.is_some_and(|max| max >= n_required + n_optional) {
            node.out.shift_remove("maxProperties");
            max = None;
        }
        let more = min.saturating_sub(n_required);
        let at_most = max.map(|max| max.saturating_sub(n_required));
        if !is_closed && more > 1 {
            let why = format!(
                "of {min} where {n_required} are required, and others than those listed are allowed: the same name twice would count as two"
            );
            self.give_up(node, "minProperties", &why)?;
            node.out.shift_remove("minProperties");
        }
        let can_be_written =
            n_optional == 0 || (more <= 1 && at_most.is_none_or(|n| n == 1) && is_closed);
        if !can_be_written && (more > 0 || at_most.is_some()) {
            let key = if at_most.is_some() {
                "maxProperties"
            } else {
                "minProperties"
            };
            self.give_up(
                node,
                key,
                "it is kept only where all listed properties are required, or for one of them",
            )?;
            node.out.shift_remove("minProperties");
            node.out.shift_remove("maxProperties");
        }
        Ok(())
    }
}

/// The strings of an `enum` or a `const`.
fn listed(keys: &SchemaObject) -> Vec<String> {
    let list = keys
        .get("enum")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    list.iter()
        .chain(keys.get("const"))
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

fn required(keys: &SchemaObject) -> std::collections::HashSet<&str> {
    let names = keys.get("required").and_then(Value::as_array);
    names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Whether `properties` are all that is known of an object, and all that are required.
fn lists_its_properties(node: &Node<'_>, min: u64) -> bool {
    let Some(Value::Object(properties)) = node.out.get("properties") else {
        return false;
    };
    let others = [
        "$ref",
        "$recursiveRef",
        "$dynamicRef",
        "additionalProperties",
        "patternProperties",
    ];
    let combined = ["allOf", "anyOf", "oneOf"]
        .iter()
        .filter_map(|key| node.keys.get(*key)?.as_array())
        .flatten();
    node.place == Extent::Whole
        && required(&node.out)
            .iter()
            .all(|name| properties.contains_key(*name))
        && !others
            .iter()
            .any(|key| node.out.contains_key(*key) || node.keys.contains_key(*key))
        && combined
            .into_iter()
            .all(|schema| only_requires(schema, properties))
        && min <= properties.len() as u64
}

/// Whether a schema asks for properties that are listed, and says nothing of others.
fn only_requires(schema: &Value, properties: &SchemaObject) -> bool {
    let Value::Object(keys) = schema else {
        return false;
    };
    keys.keys()
        .all(|key| matches!(key.as_str(), "required" | "type" | "not") || is_annotation(key))
        && required(keys)
            .iter()
            .all(|name| properties.contains_key(*name))
}
