//! What a template may say and what it may cost, without goldens.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::system::SystemSupport;

fn render(source: &str) -> Result<String, TemplateError> {
    let messages = [Message::user("hi"), Message::assistant("yes")];
    let texts = SpecialTexts {
        bos: Some("<s>".to_owned()),
        ..SpecialTexts::default()
    };
    Template::new(source, texts)?.render(&Conversation {
        messages: &messages,
        ..Conversation::default()
    })
}

#[test]
fn what_a_template_raises_reaches_the_user_as_it_is() {
    for source in [
        "{{ raise_exception('No {braces} here, please.') }}",
        "{% macro f() %}{{ raise_exception('No {braces} here, please.') }}{% endmacro %}{{ f() }}",
    ] {
        let error = render(source).unwrap_err();
        assert_eq!(
            error,
            TemplateError::Raised("No {braces} here, please.".to_owned())
        );
        assert_eq!(error.to_string(), "No {braces} here, please.");
    }
}

#[test]
fn a_template_that_is_none_says_where() {
    let error = render("a\n{% if x %}\n{{ 1 + }}").unwrap_err();
    assert!(
        matches!(&error, TemplateError::Syntax(_)) && error.to_string().contains(":3"),
        "{error}"
    );
}

#[test]
fn texts_of_tokens_are_variables_where_there_are_such() {
    assert_eq!(
        render("{{ bos_token }}|{{ eos_token }}|{{ eos_token is defined }}").unwrap(),
        "<s>||False"
    );
}

#[test]
fn the_time_is_known_only_if_it_was_said() {
    let template = Template::new(
        "{{ strftime_now('%d %b %Y') if strftime_now is defined else '-' }}",
        SpecialTexts::default(),
    );
    let template = template.unwrap();
    let now = Some(DateTime::from_unix(951_827_696));
    assert_eq!(template.render(&Conversation::default()).unwrap(), "-");
    assert_eq!(
        template
            .render(&Conversation {
                now,
                ..Conversation::default()
            })
            .unwrap(),
        "29 Feb 2000"
    );
    let variable = Template::new("{{ datetime|default('-') }}", SpecialTexts::default()).unwrap();
    assert_eq!(variable.render(&Conversation::default()).unwrap(), "-");
    assert_eq!(
        variable
            .render(&Conversation {
                now,
                ..Conversation::default()
            })
            .unwrap(),
        "Feb 29 2000"
    );
}

#[test]
fn contents_come_as_parts_where_a_template_takes_nothing_else() {
    let parts = "{% for m in messages %}{% for p in m.content %}{{ p.text if p.type == 'text' }}{% endfor %}{% endfor %}";
    assert_eq!(render(parts).unwrap(), "hiyes");
    let both =
        "{% for m in messages %}{{ m.content if m.content is string else 'parts' }}{% endfor %}";
    assert_eq!(render(both).unwrap(), "hiyes");
}

#[test]
fn a_template_that_raises_or_drops_a_system_message_takes_none() {
    for (source, takes) in [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", true),
        (
            "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}",
            true,
        ),
        (
            "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}",
            false,
        ),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}",
            false,
        ),
    ] {
        let template = Template::new(source, SpecialTexts::default()).unwrap();
        let [plain, _] = SystemSupport::of(&template);
        assert_eq!(plain.first, takes, "{source}");
    }
}

#[test]
fn conversations_with_tools_have_a_template_of_their_own() {
    let template = Template::new("plain", SpecialTexts::default())
        .unwrap()
        .with_tool_use("tools")
        .unwrap();
    let tools = [json!({})];
    assert_eq!(template.render(&Conversation::default()).unwrap(), "plain");
    assert_eq!(
        template
            .render(&Conversation {
                tools: &tools,
                ..Conversation::default()
            })
            .unwrap(),
        "tools"
    );
}

#[test]
fn a_template_that_needs_a_list_of_tools_gets_an_empty_one() {
    let source = "{% for t in tools %}{{ t }}{% endfor %}{{ messages[0].content }}";
    let template = Template::new(source, SpecialTexts::default()).unwrap();
    let messages = [Message::user("hi")];
    let conversation = Conversation {
        messages: &messages,
        ..Conversation::default()
    };
    assert!(
        template.render(&conversation).is_err(),
        "as in transformers"
    );
    assert_eq!(
        template.with_empty_tools().render(&conversation).unwrap(),
        "hi"
    );
}

/// With a clock.
fn timed(source: &str) -> (Result<String, TemplateError>, Duration) {
    let start = Instant::now();
    let now = Some(DateTime::from_unix(0));
    let messages = [Message::user("hi"), Message::assistant("yes")];
    let conversation = Conversation {
        messages: &messages,
        now,
        ..Conversation::default()
    };
    let result = Template::new(source, SpecialTexts::default())
        .and_then(|template| template.render(&conversation));
    (result, start.elapsed())
}

/// Fails so, but only when it is run.
fn fails_when_run(what: &str, source: &str) {
    fails(what, source);
    let error = render(source).unwrap_err();
    assert!(matches!(error, TemplateError::Failed(_)), "{what}: {error}");
}

/// Fails within a second, or two on a busy machine, and on the stack of a test, which has 2 MiB.
fn fails(what: &str, source: &str) {
    let (result, time) = timed(source);
    assert!(
        result.is_err(),
        "{what}: {:?} bytes",
        result.map(|text| text.len())
    );
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
    let doubling = "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    let shared = "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}\
                  {% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}";
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    let long = "{% set x = 'a' * 1000000 %}{% set z = 'a' * 1000000 %}\
                {% for i in range(100000) %}{% set y = x == z %}{% endfor %}";
    for (what, source) in [
        (
            "a loop",
            "{% for i in range(100000) %}{% for i in range(100000) %}{% endfor %}{% endfor %}",
        ),
        ("a range", "{% for i in range(1000000000) %}{% endfor %}"),
        ("a macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        (
            "macros",
            "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        ),
        (
            "a macro with lists",
            "{% macro f(x) %}{{ f([[[[[x]]]]]) }}{% endmacro %}{{ f(1) }}",
        ),
        (
            "a recursive loop",
            "{% set x = [[1]] %}{% for i in x recursive %}{{ loop(x) }}{% endfor %}",
        ),
        ("doubling", doubling),
        ("a product", "{{ ('a' * 1000000000)|length }}"),
        (
            "products",
            "{% for i in range(1000) %}{% set x = 'a' * 10000000 %}{% endfor %}",
        ),
        ("a product of lists", "{{ ([1] * 1000000000)|length }}"),
        ("a power", "{{ 2 ** 1000000000 }}"),
        (
            "replace",
            "{% set x = 'a' * 1000000 %}{{ x.replace('a', x)|length }}",
        ),
        (
            "the filter replace",
            "{% set x = 'a' * 1000000 %}{{ x|replace('a', x)|length }}",
        ),
        (
            "join",
            "{% set x = 'a' * 1000000 %}{{ x.join(['a', 'b'] * 1000)|length }}",
        ),
        ("a width", "{{ '%999999999d'|format(1) }}"),
        ("a width by %", "{{ '%999999999d' % 1 }}"),
        ("a width by place", "{{ '%*d' % (999999999, 1) }}"),
        ("a width by format", "{{ '{:999999999d}'.format(1) }}"),
        ("a justified text", "{{ 'a'.ljust(999999999999) }}"),
        (
            "splitting",
            "{% for i in range(100) %}{% set y = ('a' * 1000000).split('a') %}{% endfor %}",
        ),
        (
            "indentation",
            "{{ ('a\n' * 100000)|indent(1000000)|length }}",
        ),
        ("indented json", "{{ [[[[1]]]]|tojson(indent=1000000000) }}"),
        ("shared lists", shared),
        ("nested lists", nested),
        ("long comparisons", long),
        (
            "a namespace in itself",
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        ),
        (
            "a namespace in a list",
            "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}",
        ),
    ] {
        fails(what, source);
    }
}

#[test]
fn fuel_grows_with_pairs_of_messages_up_to_a_cap() {
    let with = |n| {
        fuel(InputSize {
            n_bytes: 0,
            n_pairs: n_pairs(n),
        })
    };
    assert!(with(2001) >= 8 * 2001 * 2001);
    assert_eq!(with(1_000_000), with(usize::MAX));
    assert!(
        with(usize::MAX) < 200_000_000,
        "a few seconds at 10 to 20 ns each, an estimate"
    );
}

#[test]
fn a_template_that_looks_back_at_each_message_takes_a_long_conversation() {
    let looks_back = "{% for m in messages %}{% set ns = namespace(role=none) %}\
                      {% for j in range(loop.index0 - 1, -1, -1) %}{% if ns.role is none and \
                      messages[j]['role'] != 'tool' %}{% set ns.role = messages[j]['role'] %}{% endif %}{% endfor %}\
                      {{ ns.role }}{% endfor %}";
    let turn = |i: usize| {
        if i.is_multiple_of(2) {
            Message::user("hi")
        } else {
            Message::assistant("yes")
        }
    };
    let messages: Vec<Message> = (0..1001).map(turn).collect();
    let template = Template::new(looks_back, SpecialTexts::default()).unwrap();
    let text = template
        .render(&Conversation {
            messages: &messages,
            ..Conversation::default()
        })
        .unwrap();
    assert!(text.ends_with("userassistant"), "{text}");
}

/// A list that doubles thrice with each call of a macro, and a last operation on it.
fn grown(step: &str, end: &str) -> String {
    format!(
        "{{% macro f(x,n) %}}{{% if n %}}{{{{ f({step},n-1) }}}}{{% else %}}{{{{ {end} }}}}{{% endif %}}\
             {{% endmacro %}}{{{{ f([1],15) }}}}"
    )
}

#[test]
fn values_that_share_their_parts_are_refused_when_they_are_made() {
    for end in [
        "x ~ ''",
        "x|string",
        "'%s' % x",
        "'{}'.format(x)",
        "{x:1}",
        "x|upper",
        "x|join",
        "x|replace('a','b')",
        "x|indent",
        "x|tojson",
        "(x,x)|string",
        "raise_exception(x)",
        "strftime_now(x)",
        "x == x",
        "dict(a=x)|string",
    ] {
        fails_when_run(end, &grown("[x,x,x,x,x,x,x,x]", end));
    }
    for step in [
        "(x*8)|batch(8)|list",
        "dict(a=x,b=x,c=x,d=x,e=x,f=x)",
        "(x,x,x,x,x,x,x,x)",
        "{1:x,2:x,3:x,4:x,5:x,6:x}",
        "[y]*8|map('default',x)|list",
    ] {
        fails_when_run(step, &grown(step, "x ~ ''"));
    }
    let with = "{% with x2=[x1,x1] %}{% with x1=[x2,x2] %}".repeat(30);
    let with = format!(
        "{{% set x1=[1] %}}{with}{{{{ x1 ~ '' }}}}{}",
        "{% endwith %}".repeat(60)
    );
    fails_when_run("with", &with);
    let loops = "{% for x in [[x,x]] %}".repeat(35);
    fails_when_run(
        "loops",
        &format!(
            "{{% set x=[1] %}}{loops}{{{{ x ~ '' }}}}{}",
            "{% endfor %}".repeat(35)
        ),
    );
    fails_when_run(
        "a product of shared parts",
        "{% set x=[1]*5000 %}{{ [x]*5000 ~ '' }}",
    );
}

#[test]
fn methods_and_filters_that_would_take_long_are_refused() {
    let d = "{% set ns = namespace(d={}) %}{% for i in range(1300) %}{% set ns.d = dict(ns.d, **{i|string: 1}) %}\
             {% endfor %}{% for i in range(3000) %}{% set n = ns.d|length %}{% endfor %}";
    let (_, time) = timed(d);
    assert!(time < Duration::from_secs(2), "{time:?}");
    for (what, source) in [
        (
            "fields",
            "{% set x='a'*1000000 %}{{ ('{0}'*100000).format(x)|length }}",
        ),
        (
            "fields by %",
            "{% set x='a'*1000000 %}{{ ('%(a)s'*300) % {'a':x} }}",
        ),
        ("strip", "{{ ('a'*1000000).strip('b'*1000000+'a') }}"),
        ("trim", "{{ ('a'*1000000)|trim('b'*1000000+'a') }}"),
        (
            "in by name",
            "{% set y=[1]*5000 %}{% set z=[1]*4999+[2] %}{% for i in range(2000) %}\
                        {% set w = [z]|select('in', [y]*1000)|list %}{% endfor %}",
        ),
        ("json", "{{ (['\\x01'*1000000]*50)|tojson }}"),
        (
            "a loop that has changed",
            "{% for i in [1] %}{{ loop.changed(i) }}{% endfor %}",
        ),
        (
            "looks at each character",
            "{% set x='a'*1000000 %}{% for i in range(9000) %}{% if x.islower() %}{% endif %}\
                                     {% endfor %}",
        ),
    ] {
        fails(what, source);
    }
}

#[test]
fn what_is_allowed_at_most_neither_overflows_the_stack_nor_takes_long() {
    let sum = format!("{{{{ 1{} }}}}", "+1".repeat(490));
    assert_eq!(render(&sum).unwrap(), "491");
    let elifs = format!(
        "{{% if 0 %}}{}{{% else %}}a{{% endif %}}",
        "{% elif 0 %}".repeat(999)
    );
    assert_eq!(render(&elifs).unwrap(), "a");
    let chain = format!("{{{{ 'a'{} }}}}", "|trim".repeat(490));
    assert_eq!(render(&chain).unwrap(), "a");
    let list = "{% set ns = namespace(x=1) %}{% for i in range(90) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x == [ns.x] }}";
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

#[test]
fn lists_in_namespaces_are_queues() {
    let source = "{%- set ns = namespace(ids=[]) -%}{%- for m in messages -%}\
                  {%- set _ = ns.ids.append(m.content + '!') -%}{%- endfor -%}\
                  {%- for m in messages -%}{%- if ns.ids -%}{%- set id = ns.ids.pop(0) -%}{{ id }};{%- endif -%}\
                  {%- endfor -%}{{ ns.ids|length }}";
    let template = Template::new(source, SpecialTexts::default()).unwrap();
    let messages = [Message::user("a"), Message::assistant("b")];
    let text = template.render(&Conversation::probe(&messages));
    assert_eq!(text.unwrap(), "a!;b!;0");
}
