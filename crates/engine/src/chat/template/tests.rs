//! What a template may say and what it may cost, without goldens.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn render(source: &str) -> Result<String, TemplateError> {
    let messages = [Message::user("hi"), Message::assistant("yes")];
    let texts = SpecialTexts { bos: Some("<s>".to_owned()), ..SpecialTexts::default() };
    Template::new(source, texts)?.render(&Conversation { messages: &messages, ..Conversation::default() })
}

#[test]
fn what_a_template_raises_reaches_the_user_as_it_is() {
    for source in [
        "{{ raise_exception('No {braces} here, please.') }}",
        "{% macro f() %}{{ raise_exception('No {braces} here, please.') }}{% endmacro %}{{ f() }}",
    ] {
        let error = render(source).unwrap_err();
        assert_eq!(error, TemplateError::Raised("No {braces} here, please.".to_owned()));
        assert_eq!(error.to_string(), "No {braces} here, please.");
    }
}

#[test]
fn a_template_that_is_none_says_where() {
    let error = render("a\n{% if x %}\n{{ 1 + }}").unwrap_err();
    assert!(matches!(&error, TemplateError::Syntax(_)) && error.to_string().contains(":3"), "{error}");
}

#[test]
fn texts_of_tokens_are_variables_where_there_are_such() {
    assert_eq!(render("{{ bos_token }}|{{ eos_token }}|{{ eos_token is defined }}").unwrap(), "<s>||False");
}

#[test]
fn the_time_is_known_only_if_it_was_said() {
    let template =
        Template::new("{{ strftime_now('%d %b %Y') if strftime_now is defined else '-' }}", SpecialTexts::default());
    let (template, now) = (template.unwrap(), Some(DateTime::from_unix(951_827_696)));
    assert_eq!(template.render(&Conversation::default()).unwrap(), "-");
    assert_eq!(template.render(&Conversation { now, ..Conversation::default() }).unwrap(), "29 Feb 2000");
}

#[test]
fn contents_come_as_parts_where_a_template_takes_nothing_else() {
    let parts =
        "{% for m in messages %}{% for p in m.content %}{{ p.text if p.type == 'text' }}{% endfor %}{% endfor %}";
    assert_eq!(render(parts).unwrap(), "hiyes");
    let both = "{% for m in messages %}{{ m.content if m.content is string else 'parts' }}{% endfor %}";
    assert_eq!(render(both).unwrap(), "hiyes");
}

#[test]
fn a_template_that_raises_or_drops_a_system_message_takes_none() {
    for (source, takes) in [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", true),
        ("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", false),
        ("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}", false),
    ] {
        assert_eq!(Template::new(source, SpecialTexts::default()).unwrap().takes_system(), takes, "{source}");
    }
}

#[test]
fn conversations_with_tools_have_a_template_of_their_own() {
    let template = Template::new("plain", SpecialTexts::default()).unwrap().with_tool_use("tools").unwrap();
    let tools = [json!({})];
    assert_eq!(template.render(&Conversation::default()).unwrap(), "plain");
    assert_eq!(template.render(&Conversation { tools: &tools, ..Conversation::default() }).unwrap(), "tools");
}

/// Fails within a second, or two on a busy machine, and on the stack of a test, which has 2 MiB.
fn fails(what: &str, source: &str) {
    let start = Instant::now();
    let result = render(source);
    let time = start.elapsed();
    assert!(result.is_err(), "{what}: {:?} bytes", result.map(|text| text.len()));
    assert!(time < Duration::from_secs(2), "{what}: {time:?}");
}

#[test]
fn sixty_thousand_of_anything_are_refused() {
    for (what, before, repeated, after) in [
        ("sums", "{{ 1", "+x", " }}"),
        ("filters", "{{ 1", "|int", " }}"),
        ("attributes", "{{ a", ".b", " }}"),
        ("parentheses", "{{ ", "(", " }}"),
        ("lists", "{{ ", "[", " }}"),
        ("negations", "{{ ", "not ", "1 }}"),
        ("signs", "{{ ", "-", "1 }}"),
        ("powers", "{{ 1", "**1", " }}"),
        ("choices", "{{ 1", " if 1 else 1", " }}"),
        ("conjunctions", "{{ 1", " and x", " }}"),
        ("tests", "{{ 1", " is defined", " }}"),
        ("calls", "{{ x", "()", " }}"),
        ("remainders", "{{ x", " % x", " }}"),
        ("comparisons", "{{ x", " == x", " }}"),
        ("elifs", "{% if x %}", "{% elif x %}", "{% endif %}"),
        ("ifs", "", "{% if x %}", ""),
        ("loops", "", "{% for x in y %}", ""),
        ("blocks", "", "{% generation %}", ""),
        ("macros", "", "{% macro a() %}", ""),
        ("sets", "", "{% set x %}", ""),
        ("with", "", "{% with %}", ""),
        ("filter blocks", "", "{% filter upper %}", ""),
    ] {
        // So many that they fit into what a template may be long, and so many that they do not.
        for n in [8_000, 60_000] {
            fails(what, &format!("{before}{}{after}", repeated.repeat(n)));
        }
    }
}

#[test]
fn what_would_never_end_or_would_fill_the_memory_fails() {
    let doubling =
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    let shared = "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}\
                  {% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}";
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    let long = "{% set x = 'a' * 1000000 %}{% set z = 'a' * 1000000 %}\
                {% for i in range(100000) %}{% set y = x == z %}{% endfor %}";
    for (what, source) in [
        ("a loop", "{% for i in range(100000) %}{% for i in range(100000) %}{% endfor %}{% endfor %}"),
        ("a range", "{% for i in range(1000000000) %}{% endfor %}"),
        ("a macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        ("macros", "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}"),
        ("a macro with lists", "{% macro f(x) %}{{ f([[[[[x]]]]]) }}{% endmacro %}{{ f(1) }}"),
        ("a recursive loop", "{% set x = [[1]] %}{% for i in x recursive %}{{ loop(x) }}{% endfor %}"),
        ("doubling", doubling),
        ("a product", "{{ ('a' * 1000000000)|length }}"),
        ("products", "{% for i in range(1000) %}{% set x = 'a' * 10000000 %}{% endfor %}"),
        ("a product of lists", "{{ ([1] * 1000000000)|length }}"),
        ("a power", "{{ 2 ** 1000000000 }}"),
        ("replace", "{% set x = 'a' * 1000000 %}{{ x.replace('a', x)|length }}"),
        ("the filter replace", "{% set x = 'a' * 1000000 %}{{ x|replace('a', x)|length }}"),
        ("join", "{% set x = 'a' * 1000000 %}{{ x.join(['a', 'b'] * 1000)|length }}"),
        ("a width", "{{ '%999999999d'|format(1) }}"),
        ("a width by %", "{{ '%999999999d' % 1 }}"),
        ("a width by place", "{{ '%*d' % (999999999, 1) }}"),
        ("a width by format", "{{ '{:999999999d}'.format(1) }}"),
        ("a justified text", "{{ 'a'.ljust(999999999999) }}"),
        ("splitting", "{% for i in range(100) %}{% set y = ('a' * 1000000).split('a') %}{% endfor %}"),
        ("indentation", "{{ ('a\n' * 100000)|indent(1000000)|length }}"),
        ("indented json", "{{ [[[[1]]]]|tojson(indent=1000000000) }}"),
        ("shared lists", shared),
        ("nested lists", nested),
        ("long comparisons", long),
        ("a namespace in itself", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"),
        ("a namespace in a list", "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}"),
    ] {
        fails(what, source);
    }
}

#[test]
fn what_is_allowed_at_most_neither_overflows_the_stack_nor_takes_long() {
    let sum = format!("{{{{ 1{} }}}}", "+1".repeat(490));
    assert_eq!(render(&sum).unwrap(), "491");
    let elifs = format!("{{% if 0 %}}{}{{% else %}}a{{% endif %}}", "{% elif 0 %}".repeat(999));
    assert_eq!(render(&elifs).unwrap(), "a");
    let chain = format!("{{{{ 'a'{} }}}}", "|trim".repeat(490));
    assert_eq!(render(&chain).unwrap(), "a");
    let list =
        "{% set ns = namespace(x=1) %}{% for i in range(90) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x == [ns.x] }}";
    assert_eq!(render(list).unwrap(), "False");
}

/// Pieces of templates, whole statements and halves.
const PIECES: [&str; 60] = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{%-",
    "-%}",
    "{#",
    "#}",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    "\\",
    ",",
    ":",
    ".",
    "|",
    "~",
    "%",
    "=",
    "==",
    "<",
    "-",
    "*",
    "**",
    "//",
    " ",
    "\n",
    "é",
    "\u{FDD0}",
    "x",
    "1",
    "1.5e9",
    "999999999",
    "'a'",
    "messages",
    "ns.x",
    "in",
    "not",
    "is",
    "if",
    "else",
    "for",
    "set",
    "endfor",
    "generation",
    "raw",
    "tojson",
    "{% set ns = namespace(x=[1]) %}",
    "{% for x in range(9999) %}",
    "{% set ns.x = [ns.x, ns.x] %}",
    "{% set ns.x = ns.x ~ ns.x %}",
    "{% endfor %}",
    "{% for m in messages %}",
    "{{ m.content % x.split(m.role)|sort }}",
    "{{ ns.x == ns.x }}",
];

fn pieces() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40)
}

proptest! {
    #[test]
    fn any_text_is_a_template_or_an_error_and_soon(pieces in pieces()) {
        let start = Instant::now();
        let rendered = render(&pieces.concat());
        prop_assert!(start.elapsed() < Duration::from_secs(2));
        prop_assert!(rendered.is_err() || rendered.is_ok_and(|text| text.len() < 16 << 20));
    }
}
