//! Tool definitions, in the form of OpenAI's API.
//!
//! Definitions are kept as written, for the template; the schema of the parameters is also kept as
//! the grammar needs it.

use serde_json::{Map, Value, json};

use super::{choice::ToolChoice, error::ToolError, schema::arguments_schema};
use atta_constrain::Strictness;

/// Maximum bytes of all definitions together.
const MAX_BYTES: usize = 1 << 20;
const MAX_TOOLS: usize = 128;
/// Maximum nesting of a definition; the grammar's reader recurses.
const MAX_DEPTH: usize = 64;
const MAX_NAME_CHARS: usize = 128;

/// Tools that a model may call.
#[derive(Clone, Debug, Default)]
pub struct ToolSet {
    definitions: Vec<Value>,
    tools: Vec<Tool>,
    remarks: Vec<String>,
}

/// A tool as the grammar needs it.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    /// Schema of its arguments, always an object.
    pub(super) arguments: Value,
}

impl ToolSet {
    /// Reads a JSON array of `{"type": "function", "function": {"name", "description",
    /// "parameters"}}`; the inner object may also stand alone, and the schema may be called
    /// `input_schema`. With `"strict": true`, keywords that no grammar can enforce are errors;
    /// otherwise they are ignored with a warning.
    ///
    /// # Errors
    /// [`ToolError`] for anything else, for a name that is not `[a-zA-Z0-9_.-]{1,128}` or not
    /// unique, for a schema that cannot be enforced, or if a limit is exceeded.
    pub fn parse(json: &str) -> Result<Self, ToolError> {
        if json.len() > MAX_BYTES {
            return Err(ToolError::TooLarge {
                n_bytes: json.len(),
                max: MAX_BYTES,
            });
        }
        match serde_json::from_str(json).map_err(|error| ToolError::Json(error.to_string()))? {
            Value::Array(list) => Self::from_values(list),
            other => Err(ToolError::NotAnArray(kind(&other))),
        }
    }

    /// As [`ToolSet::parse`], for parsed values.
    ///
    /// # Errors
    /// As [`ToolSet::parse`].
    pub fn from_values(list: Vec<Value>) -> Result<Self, ToolError> {
        if list.len() > MAX_TOOLS {
            return Err(ToolError::TooMany {
                n: list.len(),
                max: MAX_TOOLS,
            });
        }
        let mut set = Self::default();
        let mut n_bytes = 0;
        for (i, definition) in list.into_iter().enumerate() {
            check_depth(i, &definition)?;
            n_bytes += definition.to_string().len();
            if n_bytes > MAX_BYTES {
                return Err(ToolError::TooLarge {
                    n_bytes,
                    max: MAX_BYTES,
                });
            }
            set.add(i, definition)?;
        }
        Ok(set)
    }

    /// The definitions for a template, each with its wrapper, a description and properties, which
    /// may be empty: templates require them.
    pub fn definitions(&self) -> &[Value] {
        &self.definitions
    }

    /// Warnings about keywords that were ignored, one line each, with tool and place.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Checks that the tools fit `choice`.
    ///
    /// # Errors
    /// [`ToolError`] if the named tool does not exist, or a call is required and there are no
    /// tools.
    pub fn check(&self, choice: &ToolChoice) -> Result<(), ToolError> {
        self.callable(choice).map(drop)
    }

    /// The tools that may be called.
    pub(super) fn callable(&self, choice: &ToolChoice) -> Result<Vec<&Tool>, ToolError> {
        match choice {
            ToolChoice::None => Ok(Vec::new()),
            ToolChoice::Auto => Ok(self.tools.iter().collect()),
            _ if self.tools.is_empty() => Err(ToolError::NoTools),
            ToolChoice::Required => Ok(self.tools.iter().collect()),
            ToolChoice::Named(name) => match self.tools.iter().find(|tool| tool.name == *name) {
                Some(tool) => Ok(vec![tool]),
                None => {
                    let known: Vec<&str> = self.names().collect();
                    Err(ToolError::Unknown {
                        name: name.clone(),
                        known: known.join(", "),
                    })
                }
            },
        }
    }

    /// Names, in the order of the definitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.name.as_str())
    }

    /// Whether there is a tool of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.names().any(|other| other == name)
    }

    /// Whether there are no tools.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub(super) fn tools(&self) -> &[Tool] {
        &self.tools
    }

    fn add(&mut self, i: usize, definition: Value) -> Result<(), ToolError> {
        let mut wrapper = wrapped(i, definition)?;
        let function = function(i, &mut wrapper)?;
        let tool = tool(i, function, &mut self.remarks)?;
        if self.contains(&tool.name) {
            return Err(ToolError::Duplicate(tool.name));
        }
        self.tools.push(tool);
        self.definitions.push(Value::Object(wrapper));
        Ok(())
    }
}

/// Adds the wrapper to a definition that lacks it.
fn wrapped(i: usize, definition: Value) -> Result<Map<String, Value>, ToolError> {
    let Value::Object(object) = definition else {
        return Err(wrong(place(i), "definition", "an object", &definition));
    };
    if object.contains_key("function") {
        return Ok(object);
    }
    let mut wrapper = Map::new();
    wrapper.insert("type".into(), "function".into());
    wrapper.insert("function".into(), object.into());
    Ok(wrapper)
}

fn function(
    i: usize,
    wrapper: &mut Map<String, Value>,
) -> Result<&mut Map<String, Value>, ToolError> {
    let ty = wrapper
        .get("type")
        .cloned()
        .unwrap_or_else(|| "function".into());
    if ty != "function" {
        return Err(ToolError::Definition {
            tool: place(i),
            what: format!("type {ty}, expected \"function\""),
        });
    }
    match wrapper.get_mut("function") {
        Some(Value::Object(function)) => Ok(function),
        other => Err(wrong(
            place(i),
            "function",
            "an object",
            &other.cloned().unwrap_or_default(),
        )),
    }
}

/// Checks a function, and adds the fields that templates require.
fn tool(
    i: usize,
    function: &mut Map<String, Value>,
    remarks: &mut Vec<String>,
) -> Result<Tool, ToolError> {
    let name = match function.get("name") {
        Some(Value::String(name)) => name.clone(),
        other => {
            return Err(wrong(
                place(i),
                "name",
                "a string",
                other.unwrap_or(&Value::Null),
            ));
        }
    };
    if !is_name(&name) {
        let what = format!(
            "name {:?}, expected 1 to {MAX_NAME_CHARS} of a-z A-Z 0-9 _ . -",
            shortened(&name)
        );
        return Err(ToolError::Definition {
            tool: place(i),
            what,
        });
    }
    if let Some(other) = function.get("description").filter(|text| !text.is_string()) {
        return Err(wrong(
            format!("tool {name}"),
            "description",
            "a string",
            other,
        ));
    }
    let strictness = if function.get("strict") == Some(&true.into()) {
        Strictness::Strict
    } else {
        Strictness::Loose
    };
    // Anthropic's name of it.
    if let (false, Some(schema)) = (
        function.contains_key("parameters"),
        function.get("input_schema").cloned(),
    ) {
        function.shift_remove("input_schema");
        function.insert("parameters".to_owned(), schema);
    }
    function.retain(|key, value| key != "parameters" || !value.is_null());
    let schema = function
        .entry("parameters")
        .or_insert_with(|| json!({"type": "object", "properties": {}}));
    let Value::Object(schema) = schema else {
        return Err(wrong(
            format!("tool {name}"),
            "parameters",
            "an object, a JSON schema",
            schema,
        ));
    };
    if let Some(ty) = schema.get("type").filter(|ty| *ty != "object") {
        let what = format!("parameters of type {ty}, expected \"object\"");
        return Err(ToolError::Definition {
            tool: format!("tool {name}"),
            what,
        });
    }
    let arguments = arguments_schema(&name, schema, strictness, remarks)?;
    schema.entry("properties").or_insert_with(|| json!({}));
    if !function.contains_key("description") {
        let behind_name = 1 + function.keys().position(|key| key == "name").unwrap_or(0);
        function.shift_insert(behind_name, "description".into(), "".into());
    }
    Ok(Tool { name, arguments })
}

/// Whether a name cannot be confused with template syntax and markers.
pub(super) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len()) && name.chars().all(is_name_char)
}

pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// Refuses a definition that is nested too deep, before any recursion over it.
fn check_depth(i: usize, definition: &Value) -> Result<(), ToolError> {
    if is_shallower(definition, MAX_DEPTH) {
        return Ok(());
    }
    Err(ToolError::Definition {
        tool: place(i),
        what: format!("nested deeper than {MAX_DEPTH} levels"),
    })
}

/// Whether at most `max` arrays and objects are nested. Recurses no deeper than that.
fn is_shallower(value: &Value, max: usize) -> bool {
    match value {
        Value::Array(items) => max > 0 && items.iter().all(|item| is_shallower(item, max - 1)),
        Value::Object(fields) => max > 0 && fields.values().all(|item| is_shallower(item, max - 1)),
        _ => true,
    }
}

fn place(i: usize) -> String {
    format!("tool {} of the list", i + 1)
}

fn wrong(tool: String, field: &str, expected: &str, got: &Value) -> ToolError {
    ToolError::Definition {
        tool,
        what: format!("{field} is {}, expected {expected}", kind(got)),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "missing or null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A name, shortened for an error message.
fn shortened(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> String {
        ToolSet::parse(json).unwrap_err().to_string()
    }

    #[test]
    fn a_function_gets_its_wrapper_and_keeps_what_it_says() {
        let parameters = r#"{"type": "object", "properties": {}}"#;
        let bare = format!(
            r#"{{"name": "f", "description": "d", "parameters": {parameters}, "strict": true}}"#
        );
        let wrapped = format!(r#"{{"type": "function", "function": {bare}}}"#);
        let set = ToolSet::parse(&format!("[{bare}]")).unwrap();
        assert_eq!(
            set.definitions(),
            ToolSet::parse(&format!("[{wrapped}]"))
                .unwrap()
                .definitions()
        );
        assert_eq!(
            set.definitions()[0].to_string(),
            wrapped.replace(": ", ":").replace(", ", ",")
        );
    }

    #[test]
    fn a_tool_without_parameters_takes_none() {
        let set = ToolSet::parse(r#"[{"name": "f"}]"#).unwrap();
        assert_eq!(
            set.definitions()[0]["function"]["parameters"],
            json!({"type": "object", "properties": {}})
        );
        assert!(set.contains("f") && !set.contains("g"));
    }

    #[test]
    fn what_templates_take_for_granted_is_there_and_changes_no_meaning() {
        let set =
            ToolSet::parse(r#"[{"x": 1, "name": "f", "parameters": {"type": "object"}}]"#).unwrap();
        let expected =
            r#"{"x":1,"name":"f","description":"","parameters":{"type":"object","properties":{}}}"#;
        assert_eq!(set.definitions()[0]["function"].to_string(), expected);
        assert_eq!(set.tools()[0].arguments.get("additionalProperties"), None);
    }

    #[test]
    fn a_schema_may_be_null_or_have_the_name_that_anthropic_gave_it() {
        let schema =
            r#"{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}"#;
        let theirs = ToolSet::parse(&format!(
            r#"[{{"name": "f", "description": "d", "input_schema": {schema}}}]"#
        ))
        .unwrap();
        let ours = ToolSet::parse(&format!(
            r#"[{{"name": "f", "description": "d", "parameters": {schema}}}]"#
        ))
        .unwrap();
        assert_eq!(theirs.definitions(), ours.definitions());
        assert_eq!(theirs.tools()[0].arguments["required"], json!(["a"]));
        let null = ToolSet::parse(r#"[{"name": "f", "parameters": null}]"#).unwrap();
        assert_eq!(
            null.definitions(),
            ToolSet::parse(r#"[{"name": "f"}]"#).unwrap().definitions()
        );
    }

    #[test]
    fn keywords_that_cannot_be_kept_are_remarks_unless_the_tool_is_strict() {
        let tools = |strict: bool| {
            let schema = r#"{"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}"#;
            let good = r#"{"name": "good"}"#;
            ToolSet::parse(&format!(
                r#"[{good}, {{"name": "f", "strict": {strict}, "parameters": {schema}}}]"#
            ))
        };
        let remarks = tools(false).unwrap().remarks().to_vec();
        assert!(
            remarks.len() == 1
                && remarks[0].starts_with("tool f: parameters/properties/a: \"uniqueItems\"")
        );
        assert!(
            tools(true)
                .unwrap_err()
                .to_string()
                .contains("\"uniqueItems\" is not supported")
        );
    }

    #[test]
    fn no_tools_are_a_set() {
        assert!(ToolSet::parse("[]").unwrap().is_empty());
    }

    #[test]
    fn what_is_not_a_definition_is_refused_with_its_place() {
        assert_eq!(
            error("{}"),
            "the tools are an object, expected an array of definitions"
        );
        assert!(error("[").starts_with("the tools are not JSON: "));
        assert_eq!(
            error("[1]"),
            "tool 1 of the list: definition is a number, expected an object"
        );
        assert_eq!(
            error(r#"[{"name": "f"}, {}]"#),
            "tool 2 of the list: name is missing or null, expected a string"
        );
        let image = r#"[{"type": "image", "function": {}}]"#;
        assert_eq!(
            error(image),
            "tool 1 of the list: type \"image\", expected \"function\""
        );
        let text = r#"[{"type": "function", "function": "f"}]"#;
        assert_eq!(
            error(text),
            "tool 1 of the list: function is a string, expected an object"
        );
        assert_eq!(
            error(r#"[{"name": "f", "description": 1}]"#),
            "tool f: description is a number, expected a string"
        );
    }

    #[test]
    fn parameters_are_the_schema_of_an_object() {
        let refused = |p: &str| error(&format!(r#"[{{"name": "f", "parameters": {p}}}]"#));
        assert_eq!(
            refused("true"),
            "tool f: parameters is a boolean, expected an object, a JSON schema"
        );
        assert_eq!(
            refused(r#"{"type": "string"}"#),
            "tool f: parameters of type \"string\", expected \"object\""
        );
    }

    #[test]
    fn names_are_short_plain_and_unique() {
        for name in ["", "a b", "é", "a\\\"b", &"x".repeat(129)] {
            let message = error(&format!(r#"[{{"name": "{name}"}}]"#));
            assert!(
                message.ends_with("expected 1 to 128 of a-z A-Z 0-9 _ . -"),
                "{message}"
            );
        }
        assert!(
            ToolSet::parse(&format!(
                r#"[{{"name": "{}"}}, {{"name": "a-b.c_D9"}}]"#,
                "x".repeat(128)
            ))
            .is_ok()
        );
        assert_eq!(
            error(r#"[{"name": "f"}, {"name": "g"}, {"name": "f"}]"#),
            "two tools are called f"
        );
    }

    #[test]
    fn there_are_limits_to_number_size_and_nesting() {
        let many: Vec<String> = (0..129).map(|i| format!(r#"{{"name": "f{i}"}}"#)).collect();
        assert_eq!(
            error(&format!("[{}]", many.join(","))),
            "there are 129 tools, expected at most 128"
        );
        assert!(ToolSet::parse(&format!("[{}]", many[..128].join(","))).is_ok());
        let large = format!(
            r#"[{{"name": "f", "description": "{}"}}]"#,
            "x".repeat(MAX_BYTES)
        );
        assert!(error(&large).starts_with("the tools have "));
        let half = |name: &str| json!({"name": name, "description": "x".repeat(MAX_BYTES / 2)});
        let read_before = ToolSet::from_values(vec![half("f"), half("g")]).unwrap_err();
        assert!(
            matches!(read_before, ToolError::TooLarge { max: MAX_BYTES, .. }),
            "{read_before}"
        );
        let deep = |n: usize| {
            let open = r#"{"items":"#.repeat(n);
            let close = "}".repeat(n);
            format!(
                r#"[{{"name": "f", "parameters": {{"properties": {{"a": {open}{{}}{close}}}}}}}]"#
            )
        };
        assert_eq!(
            error(&deep(61)),
            "tool 1 of the list: nested deeper than 64 levels"
        );
        assert!(ToolSet::parse(&deep(60)).is_ok());
        assert!(error(&deep(30_000)).contains("recursion limit exceeded"));
    }
}
