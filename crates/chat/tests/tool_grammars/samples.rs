//! Calls and thinking as models write them.

use atta_chat::tools::CallFormat;

/// A call of [`CallFormat::Tagged`].
pub(crate) fn tagged(name: &str, parameters: &[(&str, &str)]) -> String {
    let parameters: String = parameters
        .iter()
        .map(|(key, value)| format!("<parameter={key}>\n{value}\n</parameter>\n"))
        .collect();
    format!("<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
}

/// As models write a call, and two calls in a row.
// long: a table
pub(crate) fn samples(format: CallFormat) -> [String; 2] {
    let hermes = |call: &str| format!("<tool_call>\n{call}\n</tool_call>");
    let with =
        |key: &str, name: &str, args: &str| format!("{{\"name\": \"{name}\", \"{key}\": {args}}}");
    let weather = "{\"city\": \"Kyiv \\\"}\", \"unit\": \"C\"}";
    let get = "{\"n\": 7}";
    let a = with("arguments", "get_weather", weather);
    let b = with("arguments", "get", get);
    match format {
        CallFormat::Hermes => [hermes(&a), format!("{}\n{}", hermes(&a), hermes(&b))],
        CallFormat::Tagged => {
            let a = tagged("get_weather", &[("city", "Kyiv \"}"), ("unit", "C")]);
            let b = tagged("get", &[("n", "7")]);
            [a.clone(), format!("{a}\n{b}")]
        }
        CallFormat::TaggedKeys => {
            let pair = |key: &str, value: &str| {
                format!("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n")
            };
            let call = |name: &str, pairs: &str| format!("<tool_call>{name}\n{pairs}</tool_call>");
            let a = pair("city", "Kyiv \"}") + &pair("unit", "C");
            let a = call("get_weather", &a);
            [a.clone(), format!("{a}\n{}", call("get", &pair("n", "7")))]
        }
        CallFormat::TaggedInline => {
            let pair = |key: &str, value: &str| format!("<parameter={key}>{value}</parameter>\n");
            let call = |name: &str, pairs: &str| {
                let function = format!("<function={name}>\n{pairs}</function>");
                format!("<seed:tool_call>\n{function}\n</seed:tool_call>")
            };
            let a = pair("city", "Kyiv \"}") + &pair("unit", "C");
            let a = call("get_weather", &a);
            [a.clone(), format!("{a}\n{}", call("get", &pair("n", "7")))]
        }
        CallFormat::Invokes => {
            let pair =
                |key: &str, value: &str| format!("<parameter name=\"{key}\">{value}</parameter>\n");
            let call =
                |name: &str, pairs: &str| format!("<invoke name=\"{name}\">\n{pairs}</invoke>\n");
            let a = call(
                "get_weather",
                &(pair("city", "Kyiv \"}") + &pair("unit", "C")),
            );
            let all = |calls: &str| format!("<minimax:tool_call>\n{calls}</minimax:tool_call>");
            [all(&a), all(&(a.clone() + &call("get", &pair("n", "7"))))]
        }
        CallFormat::Braced => {
            let a = "<|tool_call>call:get_weather{city:<|\"|>Kyiv \"}<|\"|>,unit:<|\"|>C<|\"|>}<tool_call|>";
            let b = "<|tool_call>call:get{n:7}<tool_call|>";
            [a.to_owned(), format!("{a}{b}")]
        }
        CallFormat::Python => {
            let a = "get_weather(city=\"Kyiv \\\"}\", unit=\"C\")";
            let list = |calls: &str| format!("<|tool_call_start|>[{calls}]<|tool_call_end|>");
            [list(a), list(&format!("{a}, get(n=7)"))]
        }
        CallFormat::Bare => {
            let a = with("parameters", "get_weather", weather);
            let b = with("parameters", "get", get);
            [a.clone(), format!("{a}; {b}")]
        }
        CallFormat::MarkedList => [
            format!("[TOOL_CALLS] [{a}]"),
            format!("[TOOL_CALLS] [{a}, {b}]"),
        ],
        CallFormat::MarkedName => {
            let a = format!("[TOOL_CALLS]get_weather[ARGS]{weather}");
            let b = format!("[TOOL_CALLS]get[ARGS]{get}");
            [a.clone(), a + &b]
        }
        CallFormat::Section => {
            let call = |id: &str, args: &str| {
                format!(
                    "<|tool_call_begin|>functions.{id}<|tool_call_argument_begin|>{args}<|tool_call_end|>"
                )
            };
            let section = |calls: &str| {
                format!("<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>")
            };
            let a = call("get_weather:0", weather);
            [section(&a), section(&(a + &call("get:1", get)))]
        }
        CallFormat::NamedSection => {
            let call = |name: &str, args: &str| {
                format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{args}<｜tool▁call▁end｜>")
            };
            let section =
                |calls: &str| format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>");
            let a = call("get_weather", weather);
            [section(&a), section(&(a + &call("get", get)))]
        }
        CallFormat::Harmony => {
            let a = format!(
                "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{weather}"
            );
            let b = format!(
                "<|start|>assistant to=functions.get<|channel|>commentary json<|message|>{get}"
            );
            [a.clone(), format!("{a}<|call|>{b}")]
        }
        _ => [
            format!("{{\"tool_calls\": [{a}]}}"),
            format!("{{\"tool_calls\": [{a}, {b}]}}"),
        ],
    }
}

/// The tags around thinking.
pub(crate) fn think_tags(format: CallFormat) -> [&'static str; 2] {
    match format {
        CallFormat::Braced => ["<|channel>thought", "<channel|>"],
        CallFormat::Harmony => ["<|channel|>analysis<|message|>", "<|end|>"],
        CallFormat::MarkedName => ["[THINK]", "[/THINK]"],
        CallFormat::TaggedInline => ["<seed:think>", "</seed:think>"],
        _ => ["<think>", "</think>"],
    }
}

/// The text between thinking and the rest of an answer.
pub(crate) fn behind_thinking(format: CallFormat) -> &'static str {
    match format {
        CallFormat::Harmony => "<|start|>assistant",
        _ => "\n\n",
    }
}
