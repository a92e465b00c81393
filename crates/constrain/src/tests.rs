//! Texts of random tokens: what a model that has learnt nothing would write, if it wrote by the
//! rules.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_formats::{Gguf, SharedBytes};
use atta_store::Budget;
use atta_tokenizer::{Special, Tokenizer};
use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};

use crate::{Closing, Constraint, Grammars, Guide};

mod endings;
mod guesses;
mod odd;

/// Texts per constraint, over all vocabularies.
const N_TEXTS: usize = 600;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The vocabularies that are in the repository: byte-level, two kinds of SentencePiece, and that of
/// the story model.
fn small() -> Vec<Arc<Grammars>> {
    let names = [
        "tests/golden/tokenizer/bpe.gguf",
        "tests/golden/tokenizer/spm.gguf",
    ];
    let more = [
        "tests/golden/tokenizer/gemma4.gguf",
        "tests/golden/stories.gguf",
    ];
    names
        .iter()
        .chain(&more)
        .map(|name| grammars(&repository().join(name)))
        .collect()
}

/// Vocabularies of real models, where they are at hand.
fn real() -> Vec<Arc<Grammars>> {
    let folder = repository().join("../shared/data/vocab");
    let names = ["llama-spm", "llama-bpe", "qwen2", "gpt-2", "deepseek-coder"];
    let paths = names
        .iter()
        .map(|name| folder.join(format!("ggml-vocab-{name}.gguf")));
    paths
        .filter(|path| path.exists())
        .map(|path| grammars(&path))
        .collect()
}

fn grammars(path: &Path) -> Arc<Grammars> {
    let bytes = std::fs::read(path).unwrap();
    let n_bytes = bytes.len() as u64;
    let gguf = Gguf::parse(Arc::new(bytes) as SharedBytes, n_bytes).unwrap();
    let tokenizer = Tokenizer::from_metadata(&gguf.metadata).unwrap();
    Arc::new(Grammars::new(&Arc::new(tokenizer), &Budget::unlimited()).unwrap())
}

/// A text of random tokens.
struct Draw {
    text: Vec<u8>,
    is_complete: bool,
    /// What makes it complete.
    closing: Vec<u8>,
}

/// Writes `n` tokens at most, at temperature 2.
fn draw(grammars: &Arc<Grammars>, constraint: &Constraint, n: usize, seed: u64) -> Draw {
    let mut guide = Guide::new(grammars, constraint).unwrap();
    let tokenizer = Arc::clone(&grammars.tokenizer);
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = Vec::new();
    let mut is_complete = false;
    for _ in 0..n {
        let mut logits: Vec<f32> = (0..tokenizer.n_vocab())
            .map(|_| noise(&mut random))
            .collect();
        guide.restrict(&mut logits).unwrap();
        let Some(token) = guide.nearest(greatest(&logits)) else {
            break;
        };
        is_complete = tokenizer.is_eog(token);
        if is_complete {
            break;
        }
        guide.accept(token).unwrap();
        text.extend_from_slice(&tokenizer.token_bytes(token));
        for token in guide.forced(n).unwrap() {
            text.extend_from_slice(&tokenizer.token_bytes(token));
        }
        is_complete = guide.is_complete();
        if is_complete {
            break;
        }
    }
    let closing = guide.closing().unwrap_or_else(|e| {
        panic!(
            "{constraint:?}: {e} after {:?}",
            String::from_utf8_lossy(&text)
        )
    });
    Draw {
        text,
        is_complete,
        closing: closing.into_iter().flat_map(bytes).collect(),
    }
}

fn bytes(part: Closing) -> Vec<u8> {
    match part {
        Closing::Bytes(bytes) => bytes,
        Closing::Token(id) => panic!("a token without text: {id}"),
    }
}

/// A logit, roughly normal, with a few that are far from all others.
/// The token with the greatest logit; of random logits, a random one.
fn greatest(logits: &[f32]) -> u32 {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    best.expect("a vocabulary has tokens") as u32
}

fn noise(random: &mut u64) -> f32 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let sum: u32 = random
        .to_le_bytes()
        .iter()
        .map(|&byte| u32::from(byte))
        .sum();
    (sum as f32 - 1020.0) / 100.0
}

/// Draws texts from every vocabulary, and has each of them, complete or closed, looked at. How many
/// were complete.
fn check_all(
    constraint: &Constraint,
    vocabularies: &[Arc<Grammars>],
    n_texts: usize,
    accepts: impl Fn(&[u8]) -> bool,
) -> usize {
    let mut n_complete = 0;
    for (i, grammars) in (0..n_texts).zip(vocabularies.iter().cycle()) {
        let n = 4 + i % 40;
        let Draw {
            text,
            is_complete,
            closing,
        } = draw(grammars, constraint, n, i as u64);
        assert!(
            !is_complete || closing.is_empty(),
            "{constraint:?}: a complete text is closed"
        );
        let whole = [&text[..], &closing].concat();
        let shown = format!(
            "{:?} + {:?}",
            String::from_utf8_lossy(&text),
            String::from_utf8_lossy(&closing)
        );
        assert!(accepts(&whole), "{constraint:?}: text {i}: {shown}");
        n_complete += usize::from(is_complete);
    }
    n_complete
}

/// Another implementation's verdict on a value.
struct Judge {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Judge {
    fn new(schema: &Value) -> Self {
        Self::of(schema).unwrap()
    }

    fn of(schema: &Value) -> Option<Self> {
        let mut schemas = Schemas::new();
        let mut compiler = Compiler::new();
        compiler.add_resource("test.json", schema.clone()).ok()?;
        let index = compiler.compile("test.json", &mut schemas).ok()?;
        Some(Self { schemas, index })
    }

    /// A number that does not fit into a double is JSON, but not to our parser: a schema says
    /// nothing about it.
    fn accepts(&self, text: &[u8]) -> bool {
        match serde_json::from_slice(text) {
            Ok(value) => self.schemas.validate(&value, self.index).is_ok(),
            Err(error) => error.to_string().contains("number out of range"),
        }
    }
}

/// No two spaces, nor any other white space, outside of strings.
fn is_terse(text: &[u8]) -> bool {
    let mut in_string = false;
    let mut escaped = false;
    let mut before = 0;
    for &byte in text {
        if !in_string && (matches!(byte, b'\n' | b'\r' | b'\t') || (byte == b' ' && before == b' '))
        {
            return false;
        }
        in_string ^= byte == b'"' && !escaped;
        escaped = in_string && byte == b'\\' && !escaped;
        before = byte;
    }
    true
}

fn schemas() -> Vec<Value> {
    let person = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "minLength": 2, "maxLength": 20 },
            "age": { "type": "integer", "minimum": 0, "maximum": 130 },
            "email": { "type": "string", "format": "email" },
            "tags": { "type": "array", "items": { "enum": ["a", "b", "ça", "\"q\"\\"] }, "maxItems": 3 },
        },
        "required": ["name", "age"],
        "additionalProperties": false,
    });
    let tree = json!({
        "$defs": { "node": {
            "type": "object",
            "properties": {
                "value": { "type": "number" },
                "children": { "type": "array", "items": { "$ref": "#/$defs/node" } },
            },
            "required": ["value", "children"],
            "additionalProperties": false,
        } },
        "$ref": "#/$defs/node",
    });
    let long = json!({ "type": "string", "minLength": 60, "pattern": "^[a-zé]+$" });
    let choice = json!({ "anyOf": [
        { "type": "null" },
        { "type": "array", "items": { "type": "boolean" }, "minItems": 4 },
        { "const": { "kind": "x", "n": [1, 2.5, "three"] } },
        { "type": "string", "format": "date-time" },
    ] });
    let open = json!({ "type": "object", "minProperties": 1, "additionalProperties": { "type": ["string", "null"] } });
    let mixed = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" }, "o": { "properties": { "n": { "type": "boolean" } } } },
        "patternProperties": { "^[xy]": { "type": "number" } },
        "additionalProperties": { "type": ["string", "object"] },
    });
    vec![person, tree, long, choice, open, mixed]
}

#[test]
fn any_object_and_any_value_are_json() {
    let is_object = |text: &[u8]| {
        is_terse(text) && serde_json::from_slice::<Value>(text).is_ok_and(|value| value.is_object())
    };
    assert!(check_all(&Constraint::JsonObject, &small(), N_TEXTS, is_object) > N_TEXTS / 5);
    let is_json = |text: &[u8]| is_terse(text) && serde_json::from_slice::<Value>(text).is_ok();
    assert!(check_all(&Constraint::JsonValue, &small(), N_TEXTS, is_json) > N_TEXTS / 5);
}

#[test]
fn whatever_a_schema_lets_through_is_valid() {
    let vocabularies = small();
    let mut n_complete = 0;
    for schema in schemas() {
        let judge = Judge::new(&schema);
        let constraint = Constraint::Schema(schema.to_string());
        n_complete += check_all(&constraint, &vocabularies, N_TEXTS, |text| {
            is_terse(text) && judge.accepts(text)
        });
    }
    assert!(n_complete > N_TEXTS);
}

#[test]
fn regular_expressions_and_grammars_are_kept_to() {
    let vocabularies = small();
    let is_date = |text: &[u8]| {
        let text = str::from_utf8(text).unwrap();
        let parts: Vec<&str> = text.split('-').collect();
        parts.iter().map(|part| part.len()).eq([4, 2, 2])
            && text.bytes().all(|b| b == b'-' || b.is_ascii_digit())
    };
    check_all(
        &Constraint::Regex("[0-9]{4}-[0-9]{2}-[0-9]{2}".to_owned()),
        &vocabularies,
        N_TEXTS,
        is_date,
    );
    let is_kana = |text: &[u8]| {
        let text = str::from_utf8(text).unwrap();
        text.strip_suffix('。').is_some_and(|kana| {
            kana.chars().count() > 2 && kana.chars().all(|c| ('ぁ'..='ん').contains(&c))
        })
    };
    check_all(
        &Constraint::Regex("[ぁ-ん]{3,}。".to_owned()),
        &vocabularies,
        N_TEXTS,
        is_kana,
    );
    let sums =
        "start: term (\" + \" term)*\nterm: NUMBER | \"(\" start \")\"\nNUMBER: /[1-9][0-9]{0,3}/";
    let is_sum = |text: &[u8]| {
        let text = str::from_utf8(text).unwrap();
        let opened = text.matches('(').count();
        let closed = text.matches(')').count();
        opened == closed
            && !text.contains("()")
            && text.ends_with(|c: char| c == ')' || c.is_ascii_digit())
    };
    check_all(
        &Constraint::Lark(sums.to_owned()),
        &vocabularies,
        N_TEXTS,
        is_sum,
    );
}

#[test]
fn real_vocabularies_keep_to_them_too() {
    let vocabularies = real();
    let judges: Vec<(Value, Judge)> = schemas()
        .into_iter()
        .map(|s| {
            let judge = Judge::new(&s);
            (s, judge)
        })
        .collect();
    if !vocabularies.is_empty() {
        for (schema, judge) in &judges {
            check_all(
                &Constraint::Schema(schema.to_string()),
                &vocabularies,
                20,
                |text| judge.accepts(text),
            );
        }
    }
}

#[test]
fn what_cannot_be_kept_to_says_what_and_why() {
    let grammars = &small()[0];
    let error = |constraint| {
        Guide::new(grammars, &constraint)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let schema = |text: &str| error(Constraint::Schema(text.to_owned()));
    let unsupported = |at: &str, keyword: &str| {
        format!("schema: {at}the keyword \"{keyword}\" is not supported: ")
    };
    assert!(
        schema(r#"{"type": "array", "uniqueItems": true}"#)
            .starts_with(&unsupported("", "uniqueItems"))
    );
    assert!(
        schema(r#"{"items": {"not": {"type": "null"}}}"#)
            .starts_with(&unsupported("/items: ", "not"))
    );
    let overlapping =
        r#"{"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 2}]}"#;
    assert!(schema(overlapping).contains("\"oneOf\" is supported only where"));
    assert!(
        schema(r#"{"$ref": "https://example.com/schema"}"#).contains("https://example.com/schema")
    );
    assert!(
        schema(r#"{"type": "string", "format": "klingon"}"#).contains("\"klingon\" is unknown")
    );
    assert!(schema(r#"{"type": "integer", "minimum": 3, "maximum": 2}"#).contains("minimum (3)"));
    let regex = |text: &str| error(Constraint::Regex(text.to_owned()));
    assert_eq!(regex("(a"), "regular expression: unclosed group");
    assert!(regex("(?=a)b").contains("look-around"));
    let lark = |text: &str| error(Constraint::Lark(text.to_owned()));
    assert_eq!(lark("start: a"), "grammar: at 1(8): unknown name: \"a\"");
}

/// Whether it is not refused; then the first masks and an end are looked for.
fn is_over_within_a_second(grammars: &Arc<Grammars>, constraint: &Constraint) -> bool {
    let start = std::time::Instant::now();
    let made = Guide::new(grammars, constraint);
    let is_made = made.is_ok();
    if let Ok(mut guide) = made {
        let mut logits = vec![0.0; grammars.tokenizer.n_vocab()];
        for _ in 0..8 {
            if guide.restrict(&mut logits).is_err() {
                break;
            }
            let Some(token) = guide
                .nearest(0)
                .filter(|&id| !grammars.tokenizer.is_eog(id))
            else {
                break;
            };
            if guide.accept(token).is_err() || guide.is_complete() {
                break;
            }
            logits.fill(0.0);
        }
        let _ = guide.closing();
    }
    // Ten times what it takes on a machine that has nothing else to do.
    assert!(
        start.elapsed().as_secs() < 10,
        "{constraint:?} took {:?}",
        start.elapsed()
    );
    is_made
}

#[test]
fn hostile_constraints_cost_little() {
    let grammars = small().swap_remove(0);
    let nested = |n: usize, open: &str, close: &str, inner: &str| {
        [&open.repeat(n), inner, &close.repeat(n)].concat()
    };
    let regexes = [
        "((a{1,1000}){1,1000}){1,1000}".to_owned(),
        "(.*a){30}[ab]{30}|(x+x+)+y".to_owned(),
        "(a|aa|aaa|b*)*c".to_owned(),
        ".*".repeat(500),
        nested(60_000, "(", ")", "a"),
        nested(60_000, "(", ")*", "a"),
        "[a-z]{1,60000}".to_owned(),
        "a?".repeat(3000) + &"a".repeat(3000),
    ];
    let larks = [
        format!("start: {}", nested(60_000, "(", ")", "\"a\"")),
        "start: start start | \"a\" | \"\"".to_owned(),
        "start: a*\na: b*\nb: start*".to_owned(),
        format!("start: {}", "\"a\"? ".repeat(20_000)),
        "start: /(a|b)*a(a|b){40}/".to_owned(),
        (0..5000)
            .map(|i| format!("r{i}: r{} r{} \"x\" | \"y\"\n", i + 1, i + 1))
            .collect::<String>()
            + "r5000: \"z\"\nstart: r0",
        (0..17_000)
            .map(|i| format!("r{i}: r{}\n", i + 1))
            .collect::<String>()
            + "r17000: \"z\"\nstart: r0",
        (0..12_000)
            .map(|i| format!("R{i}: \"x\" R{}\n", i + 1))
            .collect::<String>()
            + "R12000: \"z\"\nstart: R0",
    ];
    let wide: Vec<String> = (0..3000)
        .map(|i| format!("\"p{i}\":{{\"type\":\"string\",\"maxLength\":{i}}}"))
        .collect();
    let schemas = [
        nested(60_000, "{\"items\":", "}", "{}"),
        nested(100, "{\"items\":", "}", "{}"),
        nested(100, "{\"anyOf\":[{},", "]}", "{}"),
        format!("{{\"type\":\"object\",\"properties\":{{{}}}}}", wide.join(",")),
        "{\"type\":\"string\",\"minLength\":100000}".to_owned(),
        "{\"type\":\"array\",\"minItems\":100000,\"items\":{}}".to_owned(),
        "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/$defs/a\"}".to_owned(),
        "{\"type\":\"string\",\"pattern\":\"^(([a-z])+.)+[A-Z]([a-z])+$\"}".to_owned(),
    ];
    let made = |list: Vec<Constraint>| -> Vec<bool> {
        list.iter()
            .map(|constraint| is_over_within_a_second(&grammars, constraint))
            .collect()
    };
    let regexes = made(regexes.into_iter().map(Constraint::Regex).collect());
    let larks = made(larks.into_iter().map(Constraint::Lark).collect());
    let schemas = made(schemas.into_iter().map(Constraint::Schema).collect());
    assert_eq!(regexes, [true, true, true, false, false, false, true, true]);
    assert_eq!(larks, [false, true, true, false, true, false, true, true]);
    assert_eq!(
        schemas,
        [false, true, false, false, true, true, false, true]
    );
}

/// What became of the cases of a test suite.
#[derive(Debug, Default)]
struct Tally {
    n_schemas: usize,
    n_refused: usize,
    n_texts: usize,
    n_valid: usize,
    /// Valid values that we would not write: fewer is better, none would be a wonder.
    n_valid_missed: usize,
    n_invalid: usize,
}

/// Cases of the JSON Schema Test Suite: `[{schema, tests: [{data, valid}]}]`. Returns what went
/// wrong.
fn run_suite(grammars: &Arc<Grammars>, cases: &Value, tally: &mut Tally) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in cases.as_array().unwrap() {
        tally.n_schemas += 1;
        let schema = &case["schema"];
        let constraint = Constraint::Schema(schema.to_string());
        if let Err(error) = Guide::new(grammars, &constraint) {
            assert!(error.to_string().len() > 12, "{error}");
            tally.n_refused += 1;
            continue;
        }
        // Not where it needs the network, nor where a remainder of doubles decides.
        let judge = Judge::of(schema).filter(|_| !schema.to_string().contains("\"multipleOf\":0."));
        for seed in 0..10 {
            let Draw {
                mut text, closing, ..
            } = draw(grammars, &constraint, 20, seed);
            text.extend(closing);
            tally.n_texts += 1;
            if judge.as_ref().is_some_and(|judge| !judge.accepts(&text)) {
                wrong.push(format!("{schema} made {}", String::from_utf8_lossy(&text)));
            }
        }
        for test in case["tests"].as_array().unwrap() {
            let taken = takes(grammars, &constraint, test["data"].to_string().as_bytes());
            match test["valid"] == true {
                true => {
                    tally.n_valid += 1;
                    tally.n_valid_missed += usize::from(!taken);
                }
                false => {
                    tally.n_invalid += 1;
                    if taken {
                        wrong.push(format!("{schema} takes {}", test["data"]));
                    }
                }
            }
        }
    }
    wrong
}

/// Whether a text is one that may be written.
fn takes(grammars: &Arc<Grammars>, constraint: &Constraint, text: &[u8]) -> bool {
    let mut guide = Guide::new(grammars, constraint).unwrap();
    let mut logits = vec![0.0; grammars.tokenizer.n_vocab()];
    for &byte in text {
        logits.fill(0.0);
        let token = grammars
            .tokenizer
            .token_id(atta_tokenizer::bytes::to_char(byte).to_string())
            .unwrap();
        if guide.restrict(&mut logits).is_err()
            || logits[token as usize] != 0.0
            || guide.accept(token).is_err()
        {
            return false;
        }
    }
    guide.closing().is_ok_and(|closing| closing.is_empty())
}

#[test]
fn a_name_cannot_be_written_a_second_time_in_another_way() {
    let grammars = small().swap_remove(0);
    let schema = json!({"properties": {"n": {"type": "integer"}, "a\nb": {"type": "integer"}}, "required": ["n"]});
    let constraint = Constraint::Schema(schema.to_string());
    let taken = |text: &str| takes(&grammars, &constraint, text.as_bytes());
    assert!(taken(r#"{"n": 1, "a\nb": 2, "m": "x"}"#));
    assert!(!taken(r#"{"n": 1, "n": "x"}"#) && !taken(r#"{"n": 1, "\u006e": "x"}"#));
    assert!(!taken(r#"{"n": 1, "a\nb": "x"}"#) && !taken(r#"{"n": 1, "a\u000ab": "x"}"#));
}

#[test]
fn a_value_that_cannot_be_written_is_an_error() {
    let grammars = small().swap_remove(0);
    let made = |text: &str| Guide::new(&grammars, &Constraint::Schema(text.to_owned())).map(|_| ());
    assert!(made(r#"{"const": "\u0001"}"#).is_ok() && made(r#"{"enum": ["\u007f"]}"#).is_ok());
    assert!(made(r#"{"type": "object", "properties": {"a": {"const": "\u0001"}}}"#).is_err());
    assert!(made(r#"{"items": {"enum": [["\u007f"]]}}"#).is_err());
    assert!(
        made(r#"{"enum": ["\u0001", "a"]}"#).is_ok()
            && made(r#"{"const": "\n\u0008\u00ff"}"#).is_ok()
    );
    assert!(
        made(r#"{"minProperties": 2}"#)
            .unwrap_err()
            .to_string()
            .contains("of 2 where 0 are required")
    );
}

/// A chain of `n` definitions, each with a link to the next.
fn chain(n: usize, link: impl Fn(String) -> String) -> String {
    let one = |i: usize| {
        format!(
            "\"d{i}\":{},",
            link(format!("{{\"$ref\":\"#/$defs/d{}\"}}", i + 1))
        )
    };
    let definitions: String = (0..n).map(one).collect();
    format!(
        "{{\"$defs\":{{{definitions}\"d{n}\":{{\"type\":\"object\"}}}},\"$ref\":\"#/$defs/d0\"}}"
    )
}

#[test]
fn chains_of_references_are_followed_to_their_end_or_refused() {
    let grammars = small().swap_remove(0);
    let all_of =
        |next: String| format!("{{\"allOf\":[{next},{{\"properties\":{{\"a\":{next}}}}}]}}");
    let any_of = |next: String| {
        format!("{{\"allOf\":[{next},{{\"anyOf\":[{{\"minItems\":1}},{{\"maxItems\":2}}]}}]}}")
    };
    let deep = |next: String| format!("{}{next}{}", "{\"items\":".repeat(8), "}".repeat(8));
    let schemas = [
        chain(498, |next| next),
        chain(498, deep),
        chain(25_000, |next| next),
        chain(498, all_of),
        chain(25_000, all_of),
        chain(498, any_of),
        chain(25_000, any_of),
    ];
    let outcome = |schema: &String| {
        let start = std::time::Instant::now();
        let made = Guide::new(&grammars, &Constraint::Schema(schema.clone())).map(|_| ());
        assert!(
            start.elapsed().as_secs() < 10,
            "{made:?} took {:?}",
            start.elapsed()
        );
        made.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let outcomes: Vec<String> = schemas.iter().map(outcome).collect();
    let refused = "\"$ref\" to more than 500 different places";
    assert!(
        outcomes[0].is_empty() && outcomes[1].contains("grammar size"),
        "{outcomes:?}"
    );
    assert!(
        outcomes[3].contains("stack level") && outcomes[5].contains("too large"),
        "{outcomes:?}"
    );
    assert!(
        [2, 4, 6].iter().all(|&i| outcomes[i].ends_with(refused)),
        "{outcomes:?}"
    );
}

/// By hand, because the suite is not ours: `JSON_SCHEMA_TEST_SUITE=…/tests/draft2020-12 cargo test
/// -p atta-engine --lib suite -- --ignored --nocapture`.
#[test]
#[ignore = "needs the JSON Schema Test Suite"]
fn the_json_schema_test_suite() {
    let folder = std::env::var("JSON_SCHEMA_TEST_SUITE").expect("the folder of a draft");
    let grammars = small().swap_remove(0);
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
    {
        let cases = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let found = run_suite(&grammars, &cases, &mut tally);
        found
            .iter()
            .for_each(|what| println!("{}: {what}", path.file_stem().unwrap().display()));
        wrong.extend(found);
    }
    println!("{tally:?}, {} wrong", wrong.len());
    assert!(wrong.is_empty());
}

/// A vocabulary of our own tests with other metadata.
fn patched(change: impl FnOnce(&mut atta_formats::Writer)) -> Arc<Grammars> {
    let bytes = std::fs::read(repository().join("tests/golden/stories.gguf")).unwrap();
    let n_bytes = bytes.len() as u64;
    let gguf = Gguf::parse(Arc::new(bytes) as SharedBytes, n_bytes).unwrap();
    let mut writer = atta_formats::Writer::new();
    gguf.metadata
        .iter()
        .for_each(|(key, value)| writer.set_value(key, value));
    change(&mut writer);
    let header = writer.finish().unwrap().header;
    let n_bytes = header.len() as u64;
    let gguf = Gguf::parse(Arc::new(header) as SharedBytes, n_bytes).unwrap();
    let tokenizer = Tokenizer::from_metadata(&gguf.metadata).unwrap();
    Arc::new(Grammars::new(&Arc::new(tokenizer), &Budget::unlimited()).unwrap())
}

#[test]
fn a_token_that_ends_generations_is_no_text() {
    let letter = 1989;
    let grammars = patched(|writer| writer.set_u32("tokenizer.ggml.eos_token_id", letter));
    assert!(grammars.tokenizer.is_eog(letter) && !grammars.tokenizer.token_text(letter).is_empty());
    let mut guide = Guide::new(&grammars, &Constraint::JsonObject).unwrap();
    let mut logits = vec![0.0; grammars.tokenizer.n_vocab()];
    for byte in ["{", "\""] {
        guide
            .accept(grammars.tokenizer.encode_after(byte, Special::Plain)[0])
            .unwrap();
        logits.fill(0.0);
        guide.restrict(&mut logits).unwrap();
        assert!(logits[letter as usize] == f32::NEG_INFINITY && !guide.may_end());
    }
}

#[test]
fn a_grammar_may_ask_for_a_token_that_ends_generations_in_its_middle() {
    let grammars = small().swap_remove(3);
    let eos = grammars.tokenizer.eos().unwrap();
    let lark = Constraint::Lark(format!("start: \"yes\" <[{eos}]> \"no\""));
    let mut guide = Guide::new(&grammars, &lark).unwrap();
    let mut logits = vec![0.0; grammars.tokenizer.n_vocab()];
    for token in grammars.tokenizer.encode_after("yes", Special::Plain) {
        guide.accept(token).unwrap();
    }
    guide.restrict(&mut logits).unwrap();
    assert!(logits[eos as usize] == 0.0 && !guide.may_end());
    guide.accept(eos).unwrap();
    assert_eq!(guide.closing().unwrap(), [Closing::Bytes(b"no".to_vec())]);
}

#[test]
fn words_that_occur_twice_cost_no_time() {
    let texts: Vec<&[u8]> = std::iter::repeat_n(&b"ab"[..], 100_000)
        .chain([&b"c"[..]])
        .collect();
    let start = std::time::Instant::now();
    let grammars = patched(|writer| {
        writer.set_strs("tokenizer.ggml.tokens", &texts);
        writer.set_i32s("tokenizer.ggml.token_type", &vec![1; texts.len()]);
        writer.set_f32s("tokenizer.ggml.scores", &vec![0.0; texts.len()]);
    });
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    assert!(Guide::new(&grammars, &Constraint::Regex("(ab)+c".to_owned())).is_ok());
}
