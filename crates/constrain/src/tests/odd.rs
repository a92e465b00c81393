//! Random schemas: none of them ends the process, and texts match their schema.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Judge, noise, small};
use crate::{Constraint, Grammars, Guide, OtherProperties, SchemaOptions, Strictness};

/// Schemas as no one would write them, from a few numbers.
struct Odd {
    random: u64,
}

// Keywords by the kind of their values.
const NUMBERS: [&str; 5] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];
const COUNTS: [&str; 7] = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
];
const ONE: [&str; 11] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "not",
    "if",
    "then",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "else",
];
const MANY: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const NAMED: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "dependentSchemas",
    "dependencies",
];

impl Odd {
    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % n
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn number(&mut self) -> Value {
        let edges = [
            json!(0),
            json!(1),
            json!(-1),
            json!(i64::MIN),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(i64::MIN + 1),
            json!(1_u64 << 53),
            json!((1_u64 << 53) + 1),
            json!(1e18),
            json!(-1e18),
            json!(1e300),
            json!(-1e300),
            json!(f64::MAX),
            json!(5e-324),
            json!(-5e-324),
            json!(0.1),
            json!(-0.0),
            json!(0.35),
            json!(1e-7),
            json!(999_999_999_999_999_999_i64),
            json!(9.5),
            json!(4_294_967_295_u64),
            json!(-9_223_372_036_854_776_000.0),
            json!(2.0),
            json!(123_456_789.123_456_7),
        ];
        self.one(&edges)
    }

    fn text(&mut self) -> Value {
        let texts = [
            "",
            "a",
            "b",
            "\u{7f}",
            "\u{1}",
            "é",
            "\"",
            "a/b",
            "~",
            "%",
            "漢",
            "x y",
            "日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語",
        ];
        json!(self.one(&texts))
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 4 } else { 6 }) {
            0 => self.number(),
            1 => self.text(),
            2 => Value::Null,
            3 => json!(self.below(2) == 0),
            4 => (0..self.below(3)).map(|_| self.value(depth - 1)).collect(),
            _ => Value::Object(
                (0..self.below(3))
                    .map(|_| {
                        (
                            self.text().as_str().unwrap().to_owned(),
                            self.value(depth - 1),
                        )
                    })
                    .collect(),
            ),
        }
    }

    fn schema(&mut self, depth: usize) -> Value {
        if self.below(20) == 0 {
            return json!(self.below(4) != 0);
        }
        let n = self.below(4);
        let mut keys: serde_json::Map<String, Value> =
            (0..n).map(|_| self.keyword(depth)).collect();
        if self.below(3) != 0 {
            keys.insert(
                "type".to_owned(),
                json!(self.one(&[
                    "integer", "number", "string", "array", "object", "boolean", "null"
                ])),
            );
        }
        keys.into()
    }

    fn list(&mut self, depth: usize) -> Value {
        (0..self.below(3)).map(|_| self.schema(depth)).collect()
    }

    fn named(&mut self, depth: usize) -> Value {
        Value::Object(
            (0..self.below(3))
                .map(|_| {
                    (
                        self.one(&["a", "b", "a/b", "^a", "["]).to_owned(),
                        self.schema(depth),
                    )
                })
                .collect(),
        )
    }

    fn keyword(&mut self, depth: usize) -> (String, Value) {
        let is_leaf = depth == 0;
        match self.below(if is_leaf { 8 } else { 12 }) {
            0 | 1 => (self.one(&NUMBERS).to_owned(), self.number()),
            2 => (
                self.one(&COUNTS).to_owned(),
                if self.below(3) == 0 {
                    self.number()
                } else {
                    json!(self.below(4))
                },
            ),
            3 => ("const".to_owned(), self.value(2)),
            4 => (
                "enum".to_owned(),
                (0..self.below(4)).map(|_| self.value(1)).collect(),
            ),
            5 => (
                "pattern".to_owned(),
                json!(self.one(&[
                    "a",
                    "^a+$",
                    "^(?=a)b",
                    "(",
                    "\\\\",
                    "^\\x01$",
                    "(?!a)",
                    "[^]",
                    "\\d{3}",
                    "^.{0,100}$"
                ])),
            ),
            6 => (
                "format".to_owned(),
                json!(self.one(&[
                    "email",
                    "date-time",
                    "uuid",
                    "ipv6",
                    "byte",
                    "int32",
                    "int64",
                    "klingon",
                    "uri-reference"
                ])),
            ),
            7 => match self.below(4) {
                0 => ("required".to_owned(), json!([self.text()])),
                1 => (
                    "$ref".to_owned(),
                    json!(self.one(&[
                        "#",
                        "#/$defs/a",
                        "#/$defs/a~1b",
                        "#/properties/a",
                        "#/no",
                        "http://x",
                        "#/items",
                        "#/allOf/0"
                    ])),
                ),
                2 => ("uniqueItems".to_owned(), json!(true)),
                _ => ("dependentRequired".to_owned(), json!({"a": ["b"]})),
            },
            8 | 9 => (self.one(&NAMED).to_owned(), self.named(depth - 1)),
            10 => (self.one(&ONE).to_owned(), self.schema(depth - 1)),
            _ => (self.one(&MANY).to_owned(), self.list(depth - 1)),
        }
    }
}

/// What the judge gets wrong: remainders, and integers that no double holds.
const BEYOND_JUDGE: [&str; 3] = ["\"multipleOf\"", "999999999999999999", "9007199254740993"];

/// Any schema makes an error or a constraint that is kept to. More of them:
/// `ATTA_FUZZ_SCHEMAS=1000000`, and `ATTA_FUZZ_SEED` for others.
#[test]
fn no_schema_is_a_fault() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(default)
    };
    let n_schemas = number("ATTA_FUZZ_SCHEMAS", 1_500);
    let seed = number("ATTA_FUZZ_SEED", 1);
    let grammars = small().swap_remove(0);
    let mut n_made = 0;
    let mut n_checked = 0;
    for i in 0..n_schemas {
        let mut odd = Odd {
            random: (seed << 40 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        for _ in 0..4 {
            odd.below(2);
        }
        let schema = odd.schema(3);
        let start = std::time::Instant::now();
        let strictness = if i % 2 == 0 {
            Strictness::Strict
        } else {
            Strictness::Loose
        };
        let others = if i % 3 == 0 {
            OtherProperties::Open
        } else {
            OtherProperties::Closed
        };
        let Ok((constraint, remarks)) =
            Constraint::from_schema(&schema.to_string(), SchemaOptions { strictness, others })
        else {
            continue;
        };
        let guide = Guide::new(&grammars, &constraint).map(|_| ());
        assert!(
            start.elapsed().as_secs() < 20,
            "{schema} took {:?}",
            start.elapsed()
        );
        if let Err(error) = guide {
            let error = error.to_string();
            let is_fault = [
                "a fault of",
                "panic",
                "overflow",
                "Failed to",
                "Invalid",
                "unexpected",
                "must be less",
                "Expected",
            ];
            assert!(
                !is_fault.iter().any(|word| error.contains(word)),
                "{schema}\n{constraint:?}\n{error}"
            );
            continue;
        }
        n_made += 1;
        let judge = Judge::of(&schema)
            .filter(|_| remarks.is_empty() && !schema.to_string().contains("\"$ref\""));
        let Some(text) = start_of(&grammars, &constraint, 12, i) else {
            continue;
        };
        if let Some(judge) = judge.filter(|_| {
            !BEYOND_JUDGE
                .iter()
                .any(|what| schema.to_string().contains(what))
        }) {
            n_checked += 1;
            assert!(
                judge.accepts(&text),
                "{schema}\n{constraint:?}\nmade {}",
                String::from_utf8_lossy(&text)
            );
        }
    }
    println!("{n_schemas} schemas, {n_made} constraints, {n_checked} texts checked");
    assert!(n_made > n_schemas / 10 && n_checked > 0);
}

/// A complete text of at most `n` tokens, if one comes of it.
fn start_of(
    grammars: &Arc<Grammars>,
    constraint: &Constraint,
    n: usize,
    seed: u64,
) -> Option<Vec<u8>> {
    let mut guide = Guide::new(grammars, constraint).unwrap();
    let tokenizer = Arc::clone(&grammars.tokenizer);
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = Vec::new();
    for _ in 0..n {
        let mut logits: Vec<f32> = (0..tokenizer.n_vocab())
            .map(|_| noise(&mut random))
            .collect();
        guide.restrict(&mut logits).ok()?;
        if guide.may_end() {
            return Some(text);
        }
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]))?;
        guide.accept(guide.nearest(best as u32)?).ok()?;
        text.extend_from_slice(&tokenizer.token_bytes(best as u32));
    }
    None
}
