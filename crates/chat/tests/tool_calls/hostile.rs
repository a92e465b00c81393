//! Texts that would take long if the parser looked back.

use std::time::{Duration, Instant};

use atta_chat::tools::{CallFormat, Parser, TextEnd, Thinking};

/// Texts of a length in proportion to `n` that would be read over and over by a parser that looks
/// back.
fn hostile(n: usize) -> Vec<(CallFormat, String)> {
    let hermes = [
        "<tool_call>".repeat(n),
        "<tool_call>{\"".repeat(n),
        " ".repeat(10 * n),
        format!(
            "<tool_call>{{\"name\":\"f\",\"arguments\":{{\"a\":{}",
            "[".repeat(10 * n)
        ),
        format!("<tool_call>{{\"name\":\"{}", "<tool_call>{".repeat(n)),
    ];
    let tagged = [
        "<tool_call><function=f><parameter=a>\"</parameter>".repeat(n),
        format!(
            "<tool_call><function=f><parameter=a>x{}",
            "\n</paramete".repeat(n)
        ),
        format!(
            "<tool_call><function=f>{}",
            "<parameter=a>\\\"</parameter>".repeat(n)
        ),
    ]
    .map(|text| (CallFormat::Tagged, text));
    let braced = [
        "<|tool_call>call:f{a:<|\"|>".repeat(n),
        format!("<|tool_call>call:f{{a:<|\"|>{}", "<|\"|".repeat(n)),
        "<|tool_call>call:f{a:[".repeat(n),
    ]
    .map(|text| (CallFormat::Braced, text));
    let taken: String = (0..n)
        .map(|i| format!("[TOOL_CALLS]f[CALL_ID]{:09}[ARGS]{{}}", 2 * i + 2))
        .collect();
    let others = [
        (
            CallFormat::Section,
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f".repeat(n),
        ),
        (
            CallFormat::Harmony,
            "<|channel|>commentary to=functions.".repeat(n),
        ),
        (
            CallFormat::Harmony,
            "<|end|><|channel|>commentary".repeat(n),
        ),
        (
            CallFormat::Harmony,
            format!("<|channel|>{}", "commentary<|channel|>".repeat(n)),
        ),
        (CallFormat::MarkedList, "[TOOL_CALLS]a[".repeat(n)),
        (
            CallFormat::Generic,
            format!("{{\"response\":\"{}", "\\u0041".repeat(n)),
        ),
        (CallFormat::MarkedName, taken),
    ];
    hermes
        .map(|text| (CallFormat::Hermes, text))
        .into_iter()
        .chain(tagged)
        .chain(braced)
        .chain(others)
        .collect()
}

/// The least of three measurements.
fn time_of(format: CallFormat, text: &str) -> Duration {
    let once = || {
        let start = Instant::now();
        let mut parser = Parser::new(format, Thinking::Maybe);
        parser.push(text);
        parser.finish(TextEnd::Whole);
        start.elapsed()
    };
    (0..3).map(|_| once()).min().unwrap()
}

#[test]
fn hostile_text_is_read_in_linear_time() {
    for ((format, few), (_, many)) in hostile(10_000).into_iter().zip(hostile(80_000)) {
        let short = time_of(format, &few);
        let long = time_of(format, &many);
        // Eight times as much; a parser that looked back would take 64 times as long.
        let most = 40 * short + Duration::from_millis(100);
        assert!(long < most, "{:.40} took {short:?} and {long:?}", few);
    }
}
