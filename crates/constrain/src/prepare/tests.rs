//! What becomes of keywords, one kind at a time.

use serde_json::{Value, json};

use super::*;

fn with(
    schema: Value,
    strictness: Strictness,
    others: OtherProperties,
) -> Result<(Value, Vec<String>), String> {
    let prepared =
        prepare(&schema, SchemaOptions { strictness, others }).map_err(|flaw| flaw.to_string())?;
    Ok((
        prepared.schema,
        prepared.remarks.iter().map(ToString::to_string).collect(),
    ))
}

fn strict(schema: Value) -> Result<Value, String> {
    with(schema, Strictness::Strict, OtherProperties::Open).map(|(schema, _)| schema)
}

fn loose(schema: Value) -> (Value, Vec<String>) {
    with(schema, Strictness::Loose, OtherProperties::Open).unwrap()
}

fn closed(schema: Value) -> Value {
    with(schema, Strictness::Strict, OtherProperties::Closed)
        .unwrap()
        .0
}

#[test]
fn what_asks_for_nothing_is_dropped_without_a_remark() {
    for keywords in [
        json!({"propertyNames": {"type": "string"}}),
        json!({"propertyNames": {}}),
        json!({"dependencies": {}}),
        json!({"dependentRequired": {"a": []}}),
        json!({"uniqueItems": false}),
        json!({"uniqueItems": true, "type": "object"}),
        json!({"format": "password"}),
        json!({"format": "int32", "type": "string"}),
        json!({"if": {"required": ["a"]}, "then": {}}),
        json!({"then": {"required": ["a"]}}),
        json!({"not": false}),
        json!({"maxContains": 1, "minContains": 0}),
        json!({"unevaluatedProperties": true}),
        json!({"title": "T", "nullable": true, "x-order": 1}),
    ] {
        let ty = keywords.get("type").cloned();
        let expected = ty.map_or(json!({}), |ty| json!({"type": ty}));
        assert_eq!(strict(keywords.clone()), Ok(expected), "{keywords}");
    }
}

#[test]
fn what_cannot_be_kept_is_an_error_or_a_remark_with_keyword_and_place() {
    for (keyword, value) in [
        ("uniqueItems", json!(true)),
        ("not", json!({"type": "string"})),
        ("contains", json!({})),
        ("format", json!("klingon")),
        ("pattern", json!("^(?!a)b")),
        ("if", json!({"required": ["a"]})),
        ("$ref", json!("https://example.com/a")),
        ("const", json!(9_007_199_254_740_993_u64)),
        ("const", json!(i64::MIN)),
        ("enum", json!([u64::MAX])),
        ("multipleOf", json!(9_007_199_254_740_993_u64)),
    ] {
        let schema = json!({"items": {keyword: value, "then": false, "maxContains": 1}});
        let error = strict(schema.clone()).unwrap_err();
        assert!(
            error.starts_with(&format!(
                "/items: the keyword {keyword:?} is not supported: "
            )),
            "{error}"
        );
        let (made, remarks) = loose(schema);
        assert!(remarks.len() == 1 || keyword == "$ref", "{remarks:?}");
        assert!(
            remarks[0].starts_with(&format!("/items: {keyword:?} is not kept to: ")),
            "{remarks:?}"
        );
        assert_eq!(made["items"].get(keyword), None);
    }
}

#[test]
fn preparing_twice_changes_nothing() {
    for schema in [
        json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"properties": {"x": {"$ref": "#"}, "y": {"type": "integer"}}}}}),
        json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX, "multipleOf": 3}),
        json!({"type": "object", "propertyNames": {"pattern": "^a"}, "additionalProperties": {"format": "byte"}}),
        json!({"allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/b"}], "$defs": {"b": {"properties": {"b": {}}}}}),
        json!({"oneOf": [{"type": "string"}, {"type": "array", "contains": {"type": "null"}}]}),
    ] {
        let once = closed(schema);
        assert_eq!(strict(once.clone()), Ok(once));
    }
}

/// The largest integer that JavaScript holds safely.
const SAFE: i64 = (1 << 53) - 1;

#[test]
fn bounds_of_integers_are_exact_or_narrower() {
    let bounds = |schema: Value| {
        let made = strict(schema).unwrap();
        (
            made.get("minimum").and_then(Value::as_i64),
            made.get("maximum").and_then(Value::as_i64),
        )
    };
    let largest = (1_i64 << 62) - 1024 + (1 << 62);
    let whole = json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX});
    assert_eq!(bounds(whole), (Some(-largest), Some(largest)));
    let protobuf = json!({"type": "integer", "minimum": i64::MIN, "exclusiveMaximum": 9_223_372_036_854_776_000.0});
    assert_eq!(bounds(protobuf), (Some(-largest), Some(largest)));
    assert_eq!(
        bounds(json!({"type": "integer", "minimum": 1_u64 << 62})),
        (Some(1 << 62), Some(largest))
    );
    assert_eq!(
        bounds(json!({"type": "integer", "exclusiveMinimum": 2, "maximum": 7.5})),
        (Some(3), Some(7))
    );
    assert_eq!(
        bounds(json!({"type": "integer", "minimum": 2, "exclusiveMinimum": true})),
        (Some(3), Some(SAFE))
    );
    assert_eq!(
        bounds(json!({"type": "integer", "format": "int32"})),
        (Some(-2_147_483_648), Some(2_147_483_647))
    );
    let above = (1_i64 << 53) + 1;
    assert_eq!(
        bounds(json!({"type": "integer", "minimum": above})),
        (Some(above + 1), Some(largest))
    );
    assert_eq!(
        bounds(json!({"type": "integer", "maximum": -above})),
        (Some(-largest), Some(-above - 1))
    );
    assert_eq!(
        bounds(json!({"type": "integer"})),
        (Some(-SAFE), Some(SAFE))
    );
    for other in [
        json!({"type": "integer", "enum": [1_i64 << 60]}),
        json!({"type": "integer", "const": 1_i64 << 60}),
    ] {
        assert_eq!(bounds(other), (None, None));
    }
    let parts = strict(json!({"allOf": [{"type": "integer"}, {"minimum": 1e17}]})).unwrap();
    assert!(!parts.to_string().contains("maximum"), "{parts}");
    for (min, max) in [
        (above, above),
        (1_700_000_000_000_000_001, 1_700_000_000_000_000_003),
    ] {
        let error = strict(json!({"type": "integer", "minimum": min, "maximum": max})).unwrap_err();
        assert!(error.contains("held as doubles"), "{error}");
    }
    let empty = strict(json!({"type": "integer", "minimum": 3, "maximum": 2})).unwrap_err();
    assert_eq!(
        empty,
        "minimum (3) is greater than maximum (2): no integer is allowed"
    );
}

#[test]
fn bounds_of_doubles_and_few_multiples_are_kept() {
    let whole = json!({"type": "number", "minimum": -f64::MAX, "maximum": f64::MAX});
    assert!(strict(whole).unwrap()["maximum"].as_f64().unwrap() < 1e19);
    let above = |key: &str, whole: f64| {
        strict(json!({"type": "number", key: whole, "maximum": 5.5})).unwrap()
    };
    assert_eq!(above("exclusiveMinimum", 0.0)["minimum"], json!(1e-15));
    assert_eq!(
        above("exclusiveMinimum", 5.0)["minimum"],
        json!(5.000_000_001)
    );
    assert_eq!(
        above("exclusiveMinimum", 0.5)["exclusiveMinimum"],
        json!(0.5)
    );
    let few = json!({"type": "number", "multipleOf": 0.1, "minimum": 0.35, "maximum": 0.45});
    assert_eq!(strict(few), Ok(json!({"type": "number", "enum": [0.4]})));
    let none =
        strict(json!({"type": "number", "multipleOf": 0.1, "minimum": 0.31, "maximum": 0.39}))
            .unwrap_err();
    assert_eq!(none, "no multiple of 0.1 lies within the bounds");
    let many = json!({"allOf": [{"type": "integer", "multipleOf": 65_537}, {"type": "integer", "multipleOf": 65_539}]});
    assert!(
        strict(many)
            .unwrap_err()
            .contains("too many digits together")
    );
}

/// References, and the names of what they point to.
const REFERENCES: [(&str, &str); 4] = [
    ("#/$defs/a~1b", "a/b"),
    ("#/$defs/Page%3CItem%3E", "Page<Item>"),
    ("#/$defs/m~0n", "m~n"),
    ("#here", "x"),
];

#[test]
fn references_are_found_by_pointers_with_escapes_and_by_anchors() {
    for (reference, name) in REFERENCES {
        let schema =
            json!({"$ref": reference, "$defs": {name: {"$anchor": "here", "type": "string"}}});
        let made = strict(schema).unwrap();
        let place = made["$ref"]
            .as_str()
            .unwrap()
            .trim_start_matches('#')
            .to_owned();
        assert_eq!(
            made.pointer(&place),
            Some(&json!({"type": "string"})),
            "{made}"
        );
    }
    assert_eq!(
        strict(json!({"$ref": "#/$defs/no"})),
        Err("\"$ref\": there is no \"#/$defs/no\"".to_owned())
    );
    for circle in [
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
    ] {
        assert_eq!(
            strict(circle),
            Err("\"$ref\" leads back to itself: no value can come of it".to_owned())
        );
    }
}

#[test]
fn objects_that_list_their_properties_are_closed_unless_others_add_to_them() {
    let is_closed = |schema: &Value| schema.get("additionalProperties") == Some(&json!(false));
    let nested = closed(json!({"properties": {"a": {"items": {"properties": {"b": {}}}}}}));
    assert!(is_closed(&nested) && is_closed(&nested["properties"]["a"]["items"]));
    let parts = closed(
        json!({"allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/b"}],
        "properties": {"c": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"properties": {"b": {}}}}}),
    );
    assert!(!is_closed(&parts) && !is_closed(&parts["allOf"][0]));
    let defined = |reference: &Value| {
        parts
            .pointer(reference.as_str().unwrap().trim_start_matches('#'))
            .unwrap()
    };
    assert!(!is_closed(defined(&parts["allOf"][1]["$ref"])));
    assert!(is_closed(defined(&parts["properties"]["c"]["$ref"])));
    let one_of_two = json!({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert!(is_closed(&closed(one_of_two)));
    assert!(!is_closed(&closed(
        json!({"properties": {"a": {}}, "required": ["b"]})
    )));
}

#[test]
fn names_of_properties_are_kept_by_pattern_and_by_list() {
    let by_pattern =
        json!({"propertyNames": {"pattern": "^a"}, "additionalProperties": {"type": "null"}});
    let made =
        json!({"additionalProperties": false, "patternProperties": {"^a": {"type": "null"}}});
    assert_eq!(strict(by_pattern), Ok(made));
    let by_list = json!({"propertyNames": {"enum": ["a", "b"]}, "properties": {"c": {}}});
    let made =
        json!({"properties": {"c": false, "a": true, "b": true}, "additionalProperties": false});
    assert_eq!(strict(by_list), Ok(made));
}

#[test]
fn contains_and_dependencies_are_written_down_as_other_keywords() {
    let contains =
        strict(json!({"type": "array", "items": {"type": "string"}, "contains": {"minLength": 1}}))
            .unwrap();
    assert_eq!(
        contains["prefixItems"],
        json!([{"allOf": [{"type": "string"}, {"minLength": 1}]}])
    );
    assert_eq!(contains["minItems"], 1);
    let depends = strict(json!({"dependentRequired": {"a": ["b"]}})).unwrap();
    assert_eq!(
        depends,
        json!({"allOf": [{"anyOf": [{"properties": {"a": false}}, {"required": ["b"]}]}]})
    );
}

#[test]
fn patterns_that_look_ahead_are_kept_if_a_conjunction_says_the_same() {
    let made =
        strict(json!({"type": "string", "pattern": "^(?=.*[0-9])(?=[a-z)]).{8,}$"})).unwrap();
    assert_eq!(made["pattern"], "^(?:.*[0-9])");
    assert_eq!(made["allOf"][1]["pattern"], "^.{8,}$");
    let email = json!({"type": "string", "format": "email", "pattern": "^(?!\\.)a@"});
    assert_eq!(
        strict(email),
        Ok(json!({"type": "string", "format": "email"}))
    );
}

#[test]
fn counts_may_be_whole_doubles() {
    assert_eq!(
        strict(json!({"maxLength": 2.0})),
        Ok(json!({"maxLength": 2}))
    );
    assert_eq!(strict(json!({"minLength": 0})), Ok(json!({})));
    assert!(
        strict(json!({"minItems": 1.5}))
            .unwrap_err()
            .contains("expected an integer")
    );
    assert!(
        strict(json!({"enum": []}))
            .unwrap_err()
            .contains("allows no value")
    );
}
