//! The grammars of tool calls, in the library that they are written for: accepted texts, reading
//! them back, and random walks that make only valid calls.

mod braced;
mod harmony;
mod python;
mod samples;
mod section;
mod tagged;
mod vocabulary;

use std::collections::HashMap;

use atta_chat::tools::{
    CallFormat, Outcome, Parser, Rules, TextEnd, Thinking, ToolCall, ToolChoice, ToolError, ToolSet,
};
use atta_constrain::Constraint;
use boon::{Compiler, SchemaIndex, Schemas};
use llguidance::api::TopLevelGrammar;
use samples::{behind_thinking, samples, think_tags};
use serde_json::json;
use vocabulary::{EOS, Vocabulary};

fn tools() -> ToolSet {
    let tools = json!([
        {"name": "get_weather", "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string"}, "unit": {"enum": ["C", "F"]}}}},
        {"name": "get", "parameters": {"properties": {"n": {"type": "integer"}}}},
        {"name": "a.b-c", "parameters": {"type": "object", "$defs": {"node": {"type": "object", "properties": {
            "id": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}, "additionalProperties": false}},
            "properties": {"head": {"$ref": "#/$defs/node"}, "tags": {"type": "array", "items": {"type": "boolean"}}}}},
        {"name": "now"},
        {"name": "open", "parameters": {"type": "object", "properties": {"o": {"type": "object",
            "properties": {"n": {"type": "integer"}}, "additionalProperties": {"type": "string"}}},
            "required": ["o"]}},
    ]);
    ToolSet::parse(&tools.to_string()).unwrap()
}

/// Another implementation's verdict on arguments, by tool.
struct Judge {
    schemas: Schemas,
    by_tool: HashMap<String, SchemaIndex>,
}

impl Judge {
    fn new(tools: &ToolSet) -> Self {
        let mut schemas = Schemas::new();
        let mut compiler = Compiler::new();
        let by_tool = tools.definitions().iter().map(|definition| {
            let name = definition["function"]["name"].as_str().unwrap().to_owned();
            compiler
                .add_resource(&name, definition["function"]["parameters"].clone())
                .unwrap();
            let index = compiler.compile(&name, &mut schemas).unwrap();
            (name, index)
        });
        let by_tool = by_tool.collect();
        Self { schemas, by_tool }
    }

    fn accepts(&self, call: &ToolCall) -> bool {
        let index = self.by_tool.get(&call.name);
        index.is_some_and(|&index| self.schemas.validate(&call.arguments, index).is_ok())
    }
}

fn read(format: CallFormat, thinking: Thinking, text: &str) -> Outcome {
    finished(Parser::new(format, thinking), text)
}

fn finished(mut parser: Parser, text: &str) -> Outcome {
    parser.push(text);
    parser.finish(TextEnd::Whole).1
}

fn rules<'a>(format: CallFormat, tools: &'a ToolSet, choice: &'a ToolChoice) -> Rules<'a> {
    Rules {
        format,
        tools,
        choice,
        parallel: true,
        thinking: Thinking::Never,
        reply: None,
    }
}

/// Each format with its markers as control tokens and as text.
fn each(mut check: impl FnMut(&Vocabulary, CallFormat, bool)) {
    let vocabulary = Vocabulary::new();
    for format in CallFormat::ALL {
        for control in [false, true] {
            check(&vocabulary, format, control);
        }
    }
}

fn grammar(vocabulary: &Vocabulary, rules: &Rules<'_>, control: bool) -> String {
    rules
        .grammar(&|marker| vocabulary.control_id(marker).filter(|_| control))
        .unwrap()
        .expect("a tool can be called")
}

#[test]
fn calls_are_let_through_as_models_write_them_and_read_back() {
    let tools = tools();
    let choices = [
        ToolChoice::Auto,
        ToolChoice::Required,
        ToolChoice::Named("get_weather".into()),
    ];
    each(|vocabulary, format, control| {
        let [one, two] = samples(format);
        for choice in &choices {
            let lark = grammar(vocabulary, &rules(format, &tools, choice), control);
            assert!(vocabulary.accepts(&lark, &one, control), "{one}\n{lark}");
            let is_single = matches!(format, CallFormat::Bare | CallFormat::Harmony);
            let may_repeat = !is_single && !matches!(choice, ToolChoice::Named(_));
            assert_eq!(
                vocabulary.accepts(&lark, &two, control),
                may_repeat,
                "{two}\n{lark}"
            );
            let single = grammar(
                vocabulary,
                &Rules {
                    parallel: false,
                    ..rules(format, &tools, choice)
                },
                control,
            );
            assert!(
                vocabulary.accepts(&single, &one, control)
                    && !vocabulary.accepts(&single, &two, control),
                "{single}"
            );
        }
        let outcome = read(format, Thinking::Never, &two);
        let names: Vec<&str> = outcome
            .calls
            .iter()
            .map(|call| call.name.as_str())
            .collect();
        assert_eq!(
            (names, outcome.text.as_str()),
            (vec!["get_weather", "get"], "")
        );
        assert!(
            outcome
                .calls
                .iter()
                .all(|call| Judge::new(&tools).accepts(call))
        );
    });
}

#[test]
fn text_is_let_through_where_it_may_be_and_cannot_begin_a_call() {
    let tools = tools();
    each(|vocabulary, format, control| {
        let [one, _] = samples(format);
        let accepts = |choice: &ToolChoice, text: &str| {
            vocabulary.accepts(
                &grammar(vocabulary, &rules(format, &tools, choice), control),
                text,
                control,
            )
        };
        let texts = ["Hello.\n\n日本", "", "a < b [TOOL <tool_", "{\"a\": [1]}"];
        for text in texts {
            assert_eq!(
                accepts(&ToolChoice::Auto, text),
                format != CallFormat::Generic,
                "{format:?} {text}"
            );
            assert!(!accepts(&ToolChoice::Required, text), "{format:?} {text}");
        }
        // Half a call, from behind its marker, or its key.
        let n = one
            .find("\"get_weather")
            .unwrap_or(one.find("get_").unwrap());
        assert!(!accepts(&ToolChoice::Auto, &one[..n]), "{format:?}");
        assert!(
            !accepts(&ToolChoice::Auto, &one.replace("get_weather", "get_wether")),
            "{format:?}"
        );
        assert!(!accepts(&ToolChoice::Auto, &format!("{one} and more")));
        let may_follow_text = matches!(
            format,
            CallFormat::Hermes
                | CallFormat::Tagged
                | CallFormat::TaggedKeys
                | CallFormat::TaggedInline
                | CallFormat::Invokes
                | CallFormat::NamedSection
                | CallFormat::Braced
                | CallFormat::Python
                | CallFormat::MarkedList
                | CallFormat::MarkedName
                | CallFormat::Section
        );
        let is_text = format == CallFormat::Bare || format == CallFormat::Harmony && !control;
        assert_eq!(
            accepts(&ToolChoice::Auto, &format!("I look.\n{one}")),
            may_follow_text || is_text
        );
    });
}

#[test]
fn arguments_belong_to_their_tool_and_have_at_most_one_space() {
    let tools = tools();
    each(|vocabulary, format, control| {
        if matches!(
            format,
            CallFormat::Tagged
                | CallFormat::TaggedKeys
                | CallFormat::TaggedInline
                | CallFormat::Invokes
                | CallFormat::Braced
                | CallFormat::Python
        ) {
            return;
        }
        let [one, _] = samples(format);
        let lark = grammar(
            vocabulary,
            &rules(format, &tools, &ToolChoice::Required),
            control,
        );
        let other_tool = one.replace("get_weather", "get");
        let other_field = one.replace("unit", "town");
        let other_value = one.replace("\"C\"", "\"K\"");
        let no_city = one.replace("\"city\": \"Kyiv \\\"}\", ", "");
        for text in [
            other_tool,
            other_field,
            other_value,
            no_city,
            one.replace("\"city\": ", "\"city\":  "),
        ] {
            assert!(!vocabulary.accepts(&lark, &text, control), "{text}");
        }
        assert!(
            vocabulary.accepts(
                &lark,
                &one.replace("\": ", "\":").replace("\", \"", "\",\""),
                control
            ),
            "{one}"
        );
    });
}

#[test]
fn thoughts_stand_in_front_where_they_may() {
    let tools = tools();
    let call = |format| samples(format)[0].clone();
    each(|vocabulary, format, control| {
        let accepts = |choice: &ToolChoice, thinking: Thinking, text: &str| {
            let rules = Rules {
                thinking,
                ..rules(format, &tools, choice)
            };
            vocabulary.accepts(&grammar(vocabulary, &rules, control), text, control)
        };
        let [open, close] = think_tags(format);
        let gap = behind_thinking(format);
        let rest = format!("\nhm {{\"name\" [TOOL\n{close}{gap}{}", call(format));
        let thought = format!("{open}{rest}");
        for choice in [
            ToolChoice::Auto,
            ToolChoice::Required,
            ToolChoice::Named("get_weather".into()),
        ] {
            assert!(
                accepts(&choice, Thinking::Maybe, &thought),
                "{format:?} {choice:?} {control}"
            );
            assert!(
                accepts(&choice, Thinking::Maybe, &call(format)),
                "{format:?} {choice:?} {control}"
            );
            assert!(
                accepts(&choice, Thinking::Open, &rest),
                "{format:?} {choice:?} {control}"
            );
            assert!(
                !accepts(&choice, Thinking::Open, &call(format)),
                "{format:?} {choice:?} {control}"
            );
            assert!(
                !accepts(&choice, Thinking::Never, &thought),
                "{format:?} {choice:?} {control}"
            );
        }
        assert_eq!(
            read(format, Thinking::Maybe, &thought).reasoning,
            "hm {\"name\" [TOOL"
        );
        assert_eq!(read(format, Thinking::Open, &rest).calls.len(), 1);
    });
}

#[test]
fn a_call_of_mistral_may_have_an_id_of_nine_characters() {
    let vocabulary = Vocabulary::new();
    let tools = tools();
    let lark = grammar(
        &vocabulary,
        &rules(CallFormat::MarkedList, &tools, &ToolChoice::Auto),
        false,
    );
    let with = |id: &str| {
        format!("[TOOL_CALLS] [{{\"name\": \"now\", \"arguments\": {{}}, \"id\": \"{id}\"}}]")
    };
    assert!(vocabulary.accepts(&lark, &with("abcDEF123"), false));
    assert!(!vocabulary.accepts(&lark, &with("abcDEF12"), false));
    assert!(!vocabulary.accepts(&lark, &with("abcDEF12-"), false));
}

#[test]
fn a_python_tag_may_stand_in_front_where_the_vocabulary_has_one() {
    let vocabulary = Vocabulary::new();
    let tools = tools();
    let tagged = format!("<|python_tag|>{}", samples(CallFormat::Bare)[0]);
    let accepts = |control| {
        let lark = grammar(
            &vocabulary,
            &rules(CallFormat::Bare, &tools, &ToolChoice::Auto),
            control,
        );
        vocabulary.accepts(&lark, &tagged, control)
    };
    assert!(accepts(true) && !accepts(false));
}

#[test]
fn whatever_order_a_parser_reads_is_no_text_for_a_grammar() {
    let vocabulary = Vocabulary::new();
    let tools = tools();
    let lark = grammar(
        &vocabulary,
        &rules(CallFormat::Bare, &tools, &ToolChoice::Auto),
        false,
    );
    let texts = [
        "{\"parameters\": {}, \"name\": \"now\"}",
        "{\"arguments\": {}, \"name\": \"now\"}",
        " {\n\"type\" : \"function\", \"name\": \"f\", \"parameters\": {}}",
        "\t{ \"name\": \"now\", \"parameters\": {\"no\": 1}}",
    ];
    for text in texts {
        assert_eq!(
            read(CallFormat::Bare, Thinking::Never, text).calls.len(),
            1,
            "{text}"
        );
        assert!(!vocabulary.accepts(&lark, text, false), "{text}");
    }
    let escaped = "{\"\\u006eame\": \"now\", \"parameters\": {}}";
    assert_eq!(
        read(CallFormat::Bare, Thinking::Never, escaped).text,
        escaped
    );
    assert!(vocabulary.accepts(&lark, escaped, false));
}

#[test]
fn a_tool_that_is_not_there_is_an_error() {
    let tools = tools();
    let none = ToolSet::default();
    let error = |tools: &ToolSet, choice: ToolChoice| {
        rules(CallFormat::Hermes, tools, &choice)
            .grammar(&|_| None)
            .unwrap_err()
    };
    let message = error(&tools, ToolChoice::Named("f".into())).to_string();
    assert_eq!(
        message,
        "there is no tool \"f\", only get_weather, get, a.b-c, now, open"
    );
    assert_eq!(error(&none, ToolChoice::Required), ToolError::NoTools);
    assert_eq!(
        error(&none, ToolChoice::Named("f".into())),
        ToolError::NoTools
    );
}

#[test]
fn where_nothing_can_be_called_nothing_is_held_to_anything_or_read_as_a_call() {
    let tools = tools();
    let none = ToolSet::default();
    for format in CallFormat::ALL {
        let [open, close] = think_tags(format);
        for (tools, choice) in [
            (&none, ToolChoice::Auto),
            (&none, ToolChoice::None),
            (&tools, ToolChoice::None),
        ] {
            let rules = Rules {
                thinking: Thinking::Maybe,
                ..rules(format, tools, &choice)
            };
            assert_eq!(rules.grammar(&|_| Some(1)).unwrap(), None);
            for text in [
                &samples(format)[0],
                "{\"name\": \"Ann\"}",
                "{\"tool_calls\": []}",
                "a <tool_call> b\n",
            ] {
                let expected = Outcome {
                    reasoning: "hm".into(),
                    text: text.into(),
                    ..Outcome::default()
                };
                assert_eq!(
                    finished(rules.parser(), &format!("{open}hm{close}{text}")),
                    expected
                );
                assert_eq!(finished(rules.parser(), text).text, text);
            }
        }
    }
}

#[test]
fn a_reply_is_read_where_the_model_was_told_to_write_one() {
    let tools = tools();
    let none = ToolSet::default();
    let reply = "{\"response\": \"a\\nb\"}";
    let read =
        |format, tools| finished(rules(format, tools, &ToolChoice::None).parser(), reply).text;
    assert_eq!(read(CallFormat::Generic, &tools), "a\nb");
    assert_eq!(read(CallFormat::Generic, &none), reply);
    assert_eq!(read(CallFormat::Hermes, &tools), reply);
}

#[test]
fn a_call_of_llama_may_say_that_it_is_one_and_other_objects_with_a_type_are_text() {
    let vocabulary = Vocabulary::new();
    let tools = tools();
    let choice = ToolChoice::Auto;
    let lark = grammar(
        &vocabulary,
        &rules(CallFormat::Bare, &tools, &choice),
        false,
    );
    for call in [
        "{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}",
        "{ \"type\":\"function\",\"name\":\"now\",\"parameters\":{}}",
    ] {
        assert!(vocabulary.accepts(&lark, call, false), "{call}");
        assert_eq!(
            read(CallFormat::Bare, Thinking::Never, call).calls.len(),
            1,
            "{call}"
        );
    }
    for text in [
        "{\"type\": \"object\"}",
        "{\"type\": \"functional\", \"name\": 1}",
        "{\"type\": 5}",
        "{\"types\": []}",
        "{\"type\": \"func",
    ] {
        assert!(vocabulary.accepts(&lark, text, false), "{text}");
        assert_eq!(read(CallFormat::Bare, Thinking::Never, text).text, text);
    }
    assert!(!vocabulary.accepts(&lark, "{\"type\": \"function\"}", false));
}

#[test]
fn a_name_cannot_be_written_a_second_time_in_another_way() {
    let vocabulary = Vocabulary::new();
    let tools = tools();
    let lark = grammar(
        &vocabulary,
        &rules(CallFormat::Bare, &tools, &ToolChoice::Required),
        false,
    );
    let call = |o: &str| format!("{{\"name\": \"open\", \"parameters\": {{\"o\": {o}}}}}");
    let accepts = |o: &str| vocabulary.accepts(&lark, &call(o), false);
    assert!(accepts("{\"n\": 1, \"m\": \"x\"}"));
    assert!(!accepts("{\"n\": 1, \"n\": \"x\"}") && !accepts("{\"n\": 1, \"\\u006e\": \"x\"}"));
}

#[test]
fn a_tool_whose_schema_is_refused_can_be_found() {
    let bad = r#"{"properties": {"a": {"oneOf": [{}, {"type": "null"}]}}}"#;
    let text =
        format!(r#"[{{"name": "good"}}, {{"name": "bad", "strict": true, "parameters": {bad}}}]"#);
    let vocabulary = Vocabulary::new();
    let tools = ToolSet::parse(&text).unwrap();
    let compiles = |lark: String| {
        vocabulary
            .factory
            .create_parser(TopLevelGrammar::from_lark(lark))
            .is_ok()
    };
    let found: Vec<(&str, bool)> = Rules::arguments(&tools)
        .map(|(name, lark)| (name, compiles(lark)))
        .collect();
    assert_eq!(found, [("good", true), ("bad", false)]);
}

/// A small generator of numbers (SplitMix64), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// One of the tokens, those that lead somewhere more often.
    fn choose(&mut self, allowed: &[u32]) -> u32 {
        let weight = |id: u32| match id {
            EOS => 8,
            _ if id > EOS => 30,
            0x22 | 0x7d | 0x5d | 0x2c | 0x30 => 40,
            0x20..0x7f => 4,
            _ => 1,
        };
        let mut left = self.next() % allowed.iter().map(|&id| weight(id)).sum::<u64>();
        let found = allowed.iter().find(|&&id| {
            left.checked_sub(weight(id))
                .inspect(|n| left = *n)
                .is_none()
        });
        *found.expect("the number is less than the sum")
    }
}

/// Follows a grammar at random; says whether it came to an end.
fn walk(vocabulary: &Vocabulary, lark: &str, random: &mut Random) -> (Vec<u8>, bool) {
    let mut matcher = vocabulary.matcher(lark);
    let mut bytes = Vec::new();
    for _ in 0..250 {
        let mask = matcher.compute_mask_or_eos().unwrap();
        let allowed: Vec<u32> = mask.iter().collect();
        assert!(!allowed.is_empty(), "no way on\n{lark}");
        let id = random.choose(&allowed);
        if id == EOS {
            return (bytes, true);
        }
        matcher.consume_token(id).unwrap();
        bytes.extend(vocabulary.bytes(id));
    }
    (bytes, false)
}

/// Walks through the grammars of a call format, and checks each text; the number of calls in them.
fn n_random_calls(
    format: CallFormat,
    choice: &ToolChoice,
    tools: &ToolSet,
    n_walks: usize,
    random: &mut Random,
) -> usize {
    let vocabulary = Vocabulary::new();
    let judge = Judge::new(tools);
    let rules = rules(format, tools, choice);
    let mut n_calls = 0;
    for control in [false, true] {
        let lark = grammar(&vocabulary, &rules, control);
        for _ in 0..n_walks {
            let (bytes, finished) = walk(&vocabulary, &lark, random);
            let text = String::from_utf8_lossy(&bytes);
            n_calls += check(&rules, &judge, &text, finished).calls.len();
        }
    }
    n_calls
}

/// What must be true of everything that a grammar lets through.
fn check(rules: &Rules<'_>, judge: &Judge, text: &str, is_whole: bool) -> Outcome {
    let outcome = finished(rules.parser(), text);
    let context = || format!("{rules:?}\n{text:?}\n{outcome:?}");
    assert!(
        outcome.calls.iter().all(|call| judge.accepts(call)),
        "{}",
        context()
    );
    let n = outcome.calls.len();
    if let ToolChoice::Named(name) = rules.choice {
        assert!(
            outcome.calls.iter().all(|call| call.name == *name),
            "{}",
            context()
        );
    }
    assert!(
        n <= 1 || rules.parallel && !matches!(rules.choice, ToolChoice::Named(_)),
        "{}",
        context()
    );
    if is_whole {
        assert_eq!(outcome.n_broken, 0, "{}", context());
        let must_call = matches!(rules.choice, ToolChoice::Required | ToolChoice::Named(_));
        assert!(
            !must_call || n > 0 && outcome.text.is_empty(),
            "{}",
            context()
        );
    }
    outcome
}

#[test]
fn whoever_follows_a_grammar_at_random_makes_only_valid_calls() {
    let tools = tools();
    let names = ["a.b-c", "open"].map(|name| ToolChoice::Named(name.into()));
    let choices: Vec<ToolChoice> = [ToolChoice::Auto, ToolChoice::Required]
        .into_iter()
        .chain(names)
        .collect();
    let judge = Judge::new(&tools);
    let mut random = Random(1);
    let mut n_finished = 0;
    let mut n_calls = 0;
    let mut n_thoughts = 0;
    let mut n_texts = 0;
    each(|vocabulary, format, control| {
        for choice in &choices {
            for thinking in [Thinking::Never, Thinking::Maybe, Thinking::Open] {
                let rules = Rules {
                    parallel: !random.next().is_multiple_of(4),
                    thinking,
                    ..rules(format, &tools, choice)
                };
                let lark = grammar(vocabulary, &rules, control);
                for _ in 0..10 {
                    let (bytes, finished) = walk(vocabulary, &lark, &mut random);
                    let outcome = check(&rules, &judge, &String::from_utf8_lossy(&bytes), finished);
                    n_finished += usize::from(finished);
                    n_calls += outcome.calls.len();
                    n_thoughts += usize::from(!outcome.reasoning.is_empty());
                    n_texts += usize::from(!outcome.text.is_empty());
                }
            }
        }
    });
    println!(
        "{n_finished} finished of 2640, {n_calls} calls, {n_thoughts} thoughts, {n_texts} texts"
    );
    assert!(
        n_finished > 400 && n_calls > 300 && n_thoughts > 200 && n_texts > 200,
        "the walks lead nowhere"
    );
}

#[test]
fn an_answer_is_calls_or_a_text_of_its_constraint() {
    let tools = tools();
    let choice = ToolChoice::Auto;
    let schema = json!({"type": "object", "properties": {"name": {"$ref": "#/$defs/s"}, "n": {"type": "integer"}},
        "required": ["name", "n"], "additionalProperties": false, "$defs": {"s": {"type": "string"}}});
    for constraint in [
        Constraint::Schema(schema.to_string()),
        Constraint::JsonObject,
    ] {
        each(|vocabulary, format, control| {
            let rules = Rules {
                reply: Some(&constraint),
                ..rules(format, &tools, &choice)
            };
            let lark = grammar(vocabulary, &rules, control);
            let accepts = |text: &str| vocabulary.accepts(&lark, text, control);
            let [one, _] = samples(format);
            let reply = r#"{"name": "get_weather", "n": 7}"#;
            let written = |reply: &str| match format {
                CallFormat::Generic => format!("{{\"response\": {reply}}}"),
                _ => reply.to_owned(),
            };
            assert!(
                accepts(&written(reply)) && accepts(&one),
                "{format:?} {control}\n{lark}"
            );
            for other in [
                "Hello.",
                "",
                "7",
                "[]",
                &written("{\"name\": \"a\", \"n\": 7"),
                &format!("a{one}"),
            ] {
                assert!(!accepts(other), "{format:?} {control} {other}\n{lark}");
            }
            assert!(
                !accepts(&one.replace("get_weather", "get_wether")),
                "{format:?} {control}\n{lark}"
            );
            assert!(
                !accepts(&one.replace("city", "town")),
                "{format:?} {control}\n{lark}"
            );
            assert_eq!(
                accepts(&written(&reply.replace('n', "m"))),
                constraint == Constraint::JsonObject
            );
            let thinks = Rules {
                thinking: Thinking::Maybe,
                ..rules
            };
            let lark = grammar(vocabulary, &thinks, control);
            let [open, close] = think_tags(format);
            let header = match format {
                CallFormat::Harmony => "<|channel|>final <|constrain|>json<|message|>",
                _ => "",
            };
            let gap = behind_thinking(format);
            let thought = format!("{open}hm{close}{gap}{header}{}", written(reply));
            assert!(
                vocabulary.accepts(&lark, &thought, control),
                "{format:?} {control}\n{lark}"
            );
            let outcome = finished(thinks.parser(), &thought);
            assert_eq!(
                (outcome.reasoning.as_str(), outcome.text.trim_start()),
                ("hm", reply),
                "{format:?}"
            );
        });
    }
}

#[test]
fn a_text_of_a_constraint_is_no_call_whatever_it_says() {
    let tools = tools();
    let choice = ToolChoice::Auto;
    for format in CallFormat::ALL {
        let rules = Rules {
            reply: Some(&Constraint::JsonObject),
            ..rules(format, &tools, &choice)
        };
        let texts = [
            r#"{"name": "Ann", "parameters": {}, "n": [1, {"a": -0.5e3}, "<tool_call>{}[TOOL_CALLS]é\"}"]}"#,
            r#"{"a": "<tool_call>{\"name\": \"get\", \"arguments\": {}}</tool_call>"}"#,
            "{}",
        ];
        for text in texts {
            let written = if format == CallFormat::Generic {
                format!(r#"{{"response": {text} }}"#)
            } else {
                text.into()
            };
            let outcome = finished(rules.parser(), &written);
            assert_eq!(
                outcome,
                Outcome {
                    text: text.into(),
                    ..Outcome::default()
                },
                "{format:?}"
            );
        }
        assert_eq!(
            finished(rules.parser(), &samples(format)[0]).calls.len(),
            1,
            "{format:?}"
        );
    }
}

#[test]
fn only_json_may_stand_beside_calls() {
    let tools = tools();
    let regex = Constraint::Regex("a".into());
    let with = |choice| {
        Rules {
            reply: Some(&regex),
            ..rules(CallFormat::Hermes, &tools, choice)
        }
        .grammar(&|_| None)
    };
    let error = with(&ToolChoice::Auto).unwrap_err().to_string();
    assert_eq!(
        error,
        "regular expression: it cannot be combined with tools; a schema can"
    );
    assert!(
        with(&ToolChoice::Required).is_ok(),
        "such an answer has no text"
    );
}
