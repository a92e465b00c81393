//! What an answer must look like, whatever was asked: the form of its interface, and no mistake of
//! the server's. The fuzz target has this file too.

use atta_server::Answer;
use serde_json::Value;

/// Panics if a client of the interface could not read an answer, or if the server is to blame for a
/// refusal. Whether it is none.
pub(crate) fn check(path: &str, answer: &Answer) -> bool {
    let text = std::str::from_utf8(&answer.body).expect("answers are text");
    let kind = answer.kind.split(';').next().unwrap_or_default();
    let is_right = match (answer.status, kind) {
        (200, "application/json") => json(text).is_some_and(|object| is_whole(path, &object)),
        (200, "text/event-stream") => is_stream(path, text),
        (200, "application/x-ndjson") if path == "/api/pull" => {
            text == "{\"status\":\"success\"}\n"
        }
        (200, "application/x-ndjson") => are_lines(text),
        // Embeddings are useless unless complete.
        (503, "application/json") if path.contains("embed") => text.contains("time enough"),
        // What this server, or its model, cannot do.
        (501, "application/json") => json(text).is_some_and(|object| is_refusal(path, &object)),
        (400 | 404 | 413, "application/json") => {
            json(text).is_some_and(|object| is_refusal(path, &object))
        }
        _ => false,
    };
    assert!(
        is_right,
        "{path}: {} {}: {text}",
        answer.status, answer.kind
    );
    answer.status == 200
}

/// Parses JSON; `None` for other text. Repeated fields of a request may be nested deeper than the
/// parser's limit.
fn json(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(error) if error.to_string().starts_with("recursion limit") => Some(Value::Null),
        Err(_) => None,
    }
}

/// A refusal in the words of an interface.
fn is_refusal(path: &str, object: &Value) -> bool {
    let is_said = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let error = &object["error"];
    let n_fields = object.as_object().map_or(0, serde_json::Map::len);
    let has_only = |names: &[&str]| {
        error
            .as_object()
            .is_some_and(|fields| fields.keys().eq(names.iter()))
    };
    match path {
        _ if path.starts_with("/api/") => n_fields == 1 && is_said(error),
        _ if path.starts_with("/v1/messages") => {
            let is_error = object["type"] == "error" && is_said(&object["request_id"]);
            let is_known =
                has_only(&["type", "message"]) || is_said(&error["details"]["error_code"]);
            n_fields == 3 && is_error && is_known && is_said(&error["message"])
        }
        _ => {
            n_fields == 1
                && has_only(&["message", "type", "param", "code"])
                && is_said(&error["message"])
        }
    }
}

/// A complete answer; what could not be read is believed.
fn is_whole(path: &str, object: &Value) -> bool {
    let is = |field: &str, value: &str| object[field] == value;
    object.is_null()
        || match path {
            "/v1/chat/completions" => is("object", "chat.completion") && has_reasons(object),
            "/v1/completions" => is("object", "text_completion") && has_reasons(object),
            "/v1/responses" => {
                is("object", "response")
                    && (is("status", "completed") || is("status", "incomplete"))
            }
            "/v1/embeddings" => is("object", "list") && object["data"].is_array(),
            "/v1/messages" => is("type", "message") && object["stop_reason"].is_string(),
            "/v1/messages/count_tokens" => object["input_tokens"].is_u64(),
            "/v1/chat/completions/input_tokens" | "/v1/responses/input_tokens" => {
                object["input_tokens"].is_u64()
            }
            "/api/chat" | "/api/generate" => object["done"] == true && object["error"].is_null(),
            "/api/show" => object["details"].is_object(),
            "/tokenize" => object["tokens"].is_array(),
            "/detokenize" => object["content"].is_string(),
            "/api/embed" => object["embeddings"].is_array(),
            "/api/embeddings" => object["embedding"].is_array(),
            "/api/pull" => is("status", "success"),
            "/completion" | "/infill" => {
                object.is_array() || object["stop"] == true || object["stop"].is_null()
            }
            "/apply-template" => object["prompt"].is_string(),
            _ => false,
        }
}

fn has_reasons(object: &Value) -> bool {
    object["choices"]
        .as_array()
        .is_some_and(|all| all.iter().all(|one| one["finish_reason"].is_string()))
}

/// Whether a text is a complete stream of server-sent events without an error.
fn is_stream(path: &str, text: &str) -> bool {
    let Some(text) = text.strip_suffix("\n\n") else {
        return false;
    };
    let blocks: Vec<&str> = text
        .split("\n\n")
        .filter(|block| !block.starts_with(':'))
        .collect();
    let Some((last, rest)) = blocks.split_last() else {
        return false;
    };
    let is_last = match path {
        "/v1/chat/completions" | "/v1/completions" => *last == "data: [DONE]",
        "/v1/responses" => named(last)
            .is_some_and(|name| name.ends_with(".completed") || name.ends_with(".incomplete")),
        "/v1/messages" => named(last) == Some("message_stop"),
        // With `response_fields`, an answer has the fields that are asked for, and these may be
        // none.
        "/completion" | "/infill" => last
            .strip_prefix("data: ")
            .and_then(json)
            .is_some_and(|data| data["error"].is_null()),
        _ => false,
    };
    let is_event = |block: &&str| match path {
        "/v1/responses" | "/v1/messages" => named(block).is_some_and(|name| name != "error"),
        "/completion" | "/infill" => block
            .strip_prefix("data: ")
            .and_then(json)
            .is_some_and(|data| data["error"].is_null()),
        _ => block
            .strip_prefix("data: ")
            .and_then(json)
            .is_some_and(|data| data["choices"].is_array()),
    };
    is_last && rest.iter().all(is_event)
}

/// The name of an event, if its data can be read and say the same.
fn named(block: &str) -> Option<&str> {
    let (name, data) = block.strip_prefix("event: ")?.split_once("\ndata: ")?;
    let data = json(data)?;
    (data.is_null() || data["type"] == name).then_some(name)
}

/// Whether a text is lines of JSON, and only the last one is marked as the end.
fn are_lines(text: &str) -> bool {
    let all: Option<Vec<Value>> = text.lines().map(json).collect();
    let Some((last, rest)) = all.as_deref().and_then(<[Value]>::split_last) else {
        return false;
    };
    let is_done = |line: &Value, done: bool| line["error"].is_null() && line["done"] == done;
    text.ends_with('\n') && is_done(last, true) && rest.iter().all(|line| is_done(line, false))
}
