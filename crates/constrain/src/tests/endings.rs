//! Endings of texts that were cut.

use super::*;

/// What closes the beginning of a text, which is given token by token.
fn closed(grammars: &Arc<Grammars>, constraint: &Constraint, tokens: &[u32]) -> String {
    let mut guide = Guide::new(grammars, constraint).unwrap();
    tokens
        .iter()
        .for_each(|&token| guide.accept(token).unwrap());
    let text: Vec<u8> = tokens
        .iter()
        .flat_map(|&token| grammars.tokenizer.token_bytes(token).into_owned())
        .collect();
    let closing = guide
        .closing()
        .unwrap_or_else(|e| panic!("{e}: {:.80}", format!("{constraint:?}")));
    String::from_utf8([text, closing.into_iter().flat_map(bytes).collect()].concat()).unwrap()
}

#[test]
fn ends_are_found_however_long_or_deep_they_are() {
    let grammars = small().swap_remove(0);
    let names: Vec<String> = (0..40).map(|i| format!("property_number_{i}")).collect();
    let properties: serde_json::Map<_, _> = names
        .iter()
        .map(|n| (n.clone(), json!({ "type": "string" })))
        .collect();
    let list = json!({ "$defs": { "node": { "type": "object", "required": ["next"], "properties": {
        "next": { "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "null" }] } } } }, "$ref": "#/$defs/node" });
    for schema in [
        json!({ "type": "object", "properties": properties, "required": names }),
        json!({ "type": "array", "items": { "type": "integer" }, "minItems": 400 }),
        json!({ "type": "string", "minLength": 3000 }),
        list,
    ] {
        let text = closed(&grammars, &Constraint::Schema(schema.to_string()), &[]);
        assert!(Judge::new(&schema).accepts(text.as_bytes()), "{text}");
    }
    let bracket = grammars.tokenizer.token_id("[").unwrap();
    let nested = closed(&grammars, &Constraint::JsonValue, &[bracket; 200]);
    assert!(nested.ends_with(&"]".repeat(200)), "{nested}");
    let regex = |text: &str| closed(&grammars, &Constraint::Regex(text.to_owned()), &[]);
    assert_eq!(regex("(a|b)*c").len(), 1);
    assert_eq!(regex("(a|b|c|[a-z]e)*a[a-z]{12}(x|y)").len(), 14);
    assert_eq!(regex("漢字").as_str(), "漢字");
}

#[test]
fn an_end_is_found_after_any_beginning_of_an_everyday_schema() {
    let vocabularies = small();
    let times = json!({ "type": "object", "properties": {
        "start": { "type": "string", "format": "date-time" }, "end": { "type": "string", "format": "date-time" },
    }, "required": ["start", "end"] });
    let person = json!({ "type": "object", "properties": {
        "first_name": { "type": "string" }, "email": { "type": "string", "format": "email" },
        "birth": { "type": "string", "format": "date" },
        "address": { "type": "object", "properties": {
            "street": { "type": "string" }, "zip": { "type": "string", "pattern": "^[0-9]{5}$" },
        }, "required": ["street", "zip"] },
        "tags": { "type": "array", "items": { "type": "string" }, "minItems": 1 },
    }, "required": ["first_name", "email", "birth", "address", "tags"], "additionalProperties": false });
    let row =
        json!({ "type": "array", "items": { "type": "number" }, "minItems": 3, "maxItems": 3 });
    let schemas = [
        person,
        json!({ "type": "array", "items": { "type": "string", "format": "email" }, "minItems": 3 }),
        json!({ "type": "array", "items": row, "minItems": 3, "maxItems": 3 }),
        json!({ "type": "object", "properties": { "file": { "type": "string", "pattern": "\\.(jpg|png)$" } },
            "required": ["file"] }),
        json!({ "type": "string", "pattern": "hello" }),
        json!({ "type": "array", "items": times, "minItems": 2 }),
    ];
    for schema in schemas {
        let judge = Judge::new(&schema);
        let constraint = Constraint::Schema(schema.to_string());
        for n in [0, 1, 4, 13, 40, 100] {
            let Draw { text, closing, .. } = draw(&vocabularies[n % 4], &constraint, n, n as u64);
            let whole = [text, closing].concat();
            assert!(
                judge.accepts(&whole),
                "{schema}: {}",
                String::from_utf8_lossy(&whole)
            );
        }
    }
    for constraint in [
        Constraint::Regex(".*hello".to_owned()),
        Constraint::Gbnf("root ::= [^\\n]* \"END\"".to_owned()),
    ] {
        for n in [1, 5, 60] {
            let Draw { text, closing, .. } = draw(&vocabularies[n % 4], &constraint, n, n as u64);
            let whole = String::from_utf8_lossy(&[text, closing].concat()).into_owned();
            assert!(
                whole.ends_with("hello") || whole.ends_with("END"),
                "{whole}"
            );
        }
    }
}
