//! Arbitrary text as the output of a model, in every chat format: splitting it into pieces does not
//! change the result, and parsed calls are valid; and arbitrary text as definitions of tools. See
//! README.md for how to run.
#![no_main]

use atta_chat::tools::{
    CallFormat, Outcome, Parser, Piece, Rules, TextEnd, Thinking, ToolChoice, ToolSet,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    // The first byte says whether reasoning is open, and the number of characters per piece.
    let open = first & 1 == 1;
    let every = usize::from(first >> 1 & 15) + 2;
    for format in CallFormat::ALL {
        let whole = read(format, open, text, usize::MAX);
        assert_eq!(read(format, open, text, 1), whole);
        assert_eq!(read(format, open, text, every), whole);
        for call in &whole.calls {
            assert!(call.arguments.is_object() && is_name(&call.name) && is_id(&call.id));
            assert_eq!(
                whole
                    .calls
                    .iter()
                    .filter(|other| other.id == call.id)
                    .count(),
                1
            );
        }
    }
    define(text);
});

/// Parses a text, a fixed number of characters at a time.
fn read(format: CallFormat, open: bool, text: &str, n_chars: usize) -> Outcome {
    let mut parser = Parser::new(
        format,
        if open {
            Thinking::Open
        } else {
            Thinking::Maybe
        },
    );
    let mut pieces = Vec::new();
    let chars: Vec<char> = text.chars().collect();
    for chunk in chars.chunks(n_chars.min(chars.len().max(1))) {
        pieces.extend(parser.push(&chunk.iter().collect::<String>()));
    }
    let (rest, outcome) = parser.finish(TextEnd::Whole);
    pieces.extend(rest);
    check(&pieces, &outcome);
    outcome
}

/// Whether a text is a valid call id, perhaps with an index.
fn is_id(text: &str) -> bool {
    let (name, index) = text.split_once(':').unwrap_or((text, "0"));
    is_name(name) && index.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a text is a valid tool name.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

/// The streamed pieces equal the final result, and arguments belong to their call.
fn check(pieces: &[Piece], outcome: &Outcome) {
    let mut text = String::new();
    let mut reasoning = String::new();
    let mut arguments = String::new();
    let mut n_broken = 0;
    for piece in pieces {
        match piece {
            Piece::Text(more) => text += more,
            Piece::Reasoning(more) => reasoning += more,
            Piece::CallBegin { .. } => arguments.clear(),
            Piece::CallArguments { fragment, .. } => arguments += fragment,
            Piece::Call(call) => {
                assert_eq!(
                    serde_json::from_str::<serde_json::Value>(&arguments)
                        .ok()
                        .as_ref(),
                    Some(&call.arguments)
                );
            }
            Piece::CallBroken { .. } => n_broken += 1,
        }
    }
    assert_eq!(
        (&text, &reasoning, n_broken),
        (&outcome.text, &outcome.reasoning, outcome.n_broken)
    );
}

fn define(text: &str) {
    let Ok(tools) = ToolSet::parse(text) else {
        return;
    };
    assert_eq!(tools.definitions().len(), tools.names().count());
    for format in CallFormat::ALL {
        let choice = ToolChoice::Auto;
        let rules = Rules {
            format,
            tools: &tools,
            choice: &choice,
            parallel: true,
            thinking: Thinking::Maybe,
            reply: None,
        };
        // These list the parameters of a tool one by one, which not every schema does.
        let lists_parameters = matches!(
            format,
            CallFormat::Tagged
                | CallFormat::TaggedInline
                | CallFormat::TaggedKeys
                | CallFormat::Invokes
                | CallFormat::Python
        );
        assert!(rules.grammar(&|_| None).is_ok() || lists_parameters);
    }
}
