//! Requests as Anthropic's clients send them: Claude Code, the SDKs, agents.

use std::io::Write;

use atta_server::Server;
use serde_json::{Value, json};

use crate::{
    form::check,
    running::{Running, options, read_all},
    tiny,
};

const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";

/// A request of a user who says hi, with more fields.
fn hi(more: &Value) -> Value {
    let mut request = json!({ "model": "tools", "max_tokens": 4, "messages": [{ "role": "user", "content": "Hi" }] });
    for (name, value) in more.as_object().unwrap() {
        request[name] = value.clone();
    }
    request
}

/// The JSON of an answer that is no refusal.
fn answered(server: &Server, path: &'static str, request: &Value) -> Value {
    let answer = server.answer(path, request.to_string().into_bytes());
    assert!(
        check(path, &answer),
        "{request}: {}",
        String::from_utf8_lossy(&answer.body)
    );
    serde_json::from_slice(&answer.body).unwrap()
}

/// The message of a refusal.
fn refused(server: &Server, path: &'static str, request: &Value) -> String {
    let answer = server.answer(path, request.to_string().into_bytes());
    assert!(!check(path, &answer), "{request}");
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    answer["error"]["message"].as_str().unwrap().to_owned()
}

/// The data of the events of a streamed answer.
fn events(server: &Server, request: &Value) -> Vec<Value> {
    let mut request = request.clone();
    request["stream"] = true.into();
    let answer = server.answer(MESSAGES, request.to_string().into_bytes());
    assert!(check(MESSAGES, &answer), "{request}");
    let text = String::from_utf8(answer.body).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

fn tool(more: &Value) -> Value {
    let schema = json!({
        "type": "object", "properties": { "room": { "type": "string", "minLength": 600 } }, "required": ["room"],
    });
    let mut tool =
        json!({ "name": "light", "description": "Lights a room", "input_schema": schema });
    for (name, value) in more.as_object().unwrap() {
        tool[name] = value.clone();
    }
    tool
}

/// Fields that Claude Code and the SDKs send beside those that are kept.
fn fields_of_clients() -> Vec<Value> {
    let tool_with = |more: Value| json!({ "tools": [tool(&more)] });
    let search = json!({ "type": "web_search_20250305", "name": "web_search", "max_uses": 5 });
    let called = json!({
        "type": "tool_use", "id": "1", "name": "light", "input": { "room": "attic" }, "caller": { "type": "direct" },
    });
    let result =
        json!({ "type": "tool_result", "tool_use_id": "1", "content": "on", "cache_control": {} });
    vec![
        json!({ "messages": [{ "role": "user", "content": "Hi" }, { "role": "system", "content": "Types: none" }] }),
        json!({ "context_management": { "edits": [{ "type": "clear_thinking_20251015", "keep": "all" }] } }),
        json!({ "output_config": { "effort": "high", "task_budget": { "total": 5 } } }),
        json!({ "thinking": { "type": "adaptive", "display": "omitted" } }),
        json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } }),
        json!({ "thinking": { "type": "disabled" } }),
        json!({ "thread": { "type": "create" } }),
        json!({ "metadata": { "user_id": "me" }, "service_tier": "auto", "speed": "fast", "inference_geo": "eu" }),
        json!({ "mcp_servers": [{ "type": "url", "url": "https://x", "name": "x" }], "container": "c" }),
        json!({ "betas": ["x"], "anthropic_beta": ["x"], "cache_control": { "type": "ephemeral" } }),
        json!({ "stop_sequences": ["\n\nHuman:"], "temperature": 1, "top_k": 5, "top_p": 0.9 }),
        json!({ "unheard_of": 1 }),
        json!({ "system": [{ "type": "text", "text": "Be kind.", "cache_control": { "type": "ephemeral" } }] }),
        tool_with(
            json!({ "eager_input_streaming": true, "cache_control": { "type": "ephemeral" } }),
        ),
        tool_with(
            json!({ "defer_loading": false, "input_examples": [{ "room": "a" }], "type": "custom" }),
        ),
        tool_with(
            json!({ "allowed_callers": ["direct"], "name": format!("mcp__{}", "a".repeat(95)) }),
        ),
        json!({ "tools": [search, tool(&json!({}))] }),
        json!({ "tools": [tool(&json!({}))], "messages": [
            { "role": "user", "content": "Hi" },
            { "role": "assistant", "content": [called] },
            { "role": "user", "content": [result] },
        ] }),
    ]
}

#[test]
fn requests_of_clients_are_answered_and_counted() {
    let server = tiny::server();
    for model in ["tools", "stories"] {
        for fields in fields_of_clients() {
            let mut request = hi(&fields);
            request["model"] = model.into();
            let message = answered(&server, MESSAGES, &request);
            let usage = &message["usage"];
            let n_read = usage["input_tokens"].as_u64().unwrap()
                + usage["cache_read_input_tokens"].as_u64().unwrap();
            assert_eq!(
                answered(&server, COUNT, &request)["input_tokens"],
                n_read,
                "{fields}"
            );
        }
    }
}

#[test]
fn what_would_change_the_answer_is_refused_by_its_name() {
    let server = tiny::server();
    let user = |block: Value| json!({ "messages": [{ "role": "user", "content": [block] }] });
    let search = json!({ "type": "web_search_20250305", "name": "web_search" });
    for (fields, expected) in [
        (
            json!({ "thread": { "type": "continue", "id": "x" } }),
            "thread",
        ),
        (json!({ "thinking": { "type": "fish" } }), "thinking"),
        (
            json!({ "output_config": { "format": { "type": "xml", "schema": {} } } }),
            "output_config",
        ),
        (
            json!({ "output_format": { "type": "json_schema" } }),
            "output_format",
        ),
        (
            json!({ "output_config": { "format": { "type": "json_schema", "schema": 1 } } }),
            "output_config.format",
        ),
        (
            json!({ "tools": [search], "tool_choice": { "type": "tool", "name": "web_search" } }),
            "tool_choice",
        ),
        (
            user(json!({ "type": "image", "source": { "type": "url" } })),
            "messages[0].content[0]",
        ),
        (user(json!({ "type": "text" })), "messages[0].content[0]"),
    ] {
        let message = refused(&server, MESSAGES, &hi(&fields));
        assert!(message.contains(expected), "{fields}: {message}");
    }
}

#[test]
fn an_answer_is_held_to_the_schema_of_its_format() {
    let server = tiny::server();
    let schema = json!({
        "type": "object", "properties": { "on": { "enum": ["yes", "no"] } }, "required": ["on"],
        "additionalProperties": false,
    });
    let format = json!({ "type": "json_schema", "schema": schema });
    for fields in [
        json!({ "output_config": { "format": format } }),
        json!({ "output_format": format }),
    ] {
        let mut request = hi(&fields);
        request["max_tokens"] = 60.into();
        let message = answered(&server, MESSAGES, &request);
        let said: Value =
            serde_json::from_str(message["content"][0]["text"].as_str().unwrap()).unwrap();
        assert!(said["on"] == "yes" || said["on"] == "no", "{message}");
    }
}

#[test]
fn a_call_that_is_cut_is_no_text_and_its_conversation_goes_on() {
    let server = tiny::server();
    let thinking = json!({ "type": "disabled" });
    let tools = json!({ "tools": [tool(&json!({}))], "tool_choice": { "type": "any" }, "thinking": thinking });
    for n in [3, 6, 12, 24] {
        for model in ["tools", "stories"] {
            let mut request = hi(&tools);
            (request["model"], request["max_tokens"]) = (model.into(), n.into());
            let whole = answered(&server, MESSAGES, &request);
            assert!(
                whole["content"] == json!([]) && whole["stop_reason"] == "max_tokens",
                "{whole}"
            );
            let events = events(&server, &request);
            assert!(
                events
                    .iter()
                    .all(|event| event["content_block"]["type"] != "text"),
                "{events:?}"
            );
            let Some(call) = events
                .iter()
                .find(|event| event["content_block"]["type"] == "tool_use")
            else {
                continue;
            };
            let mut call = call["content_block"].clone();
            let input: String = events
                .iter()
                .filter_map(|event| event["delta"]["partial_json"].as_str())
                .collect();
            (call["input"], request["max_tokens"]) = (input.into(), 4.into());
            let result =
                json!({ "type": "tool_result", "tool_use_id": call["id"], "is_error": true });
            let messages = request["messages"].as_array_mut().unwrap();
            messages.push(json!({ "role": "assistant", "content": [call] }));
            messages.push(json!({ "role": "user", "content": [result] }));
            answered(&server, MESSAGES, &request);
        }
    }
}

#[test]
fn ids_of_calls_differ_between_conversations() {
    let server = tiny::server();
    let mut request = hi(
        &json!({ "tools": [{ "name": "f", "input_schema": { "type": "object", "properties": {} } }] }),
    );
    request["tool_choice"] = json!({ "type": "any", "disable_parallel_tool_use": true });
    (request["thinking"], request["max_tokens"]) = (json!({ "type": "disabled" }), 80.into());
    let id = || {
        let events = events(&server, &request);
        let id = events
            .iter()
            .find_map(|event| event["content_block"]["id"].as_str().map(str::to_owned));
        id.unwrap_or_else(|| panic!("{events:?}"))
    };
    let first = id();
    let second = id();
    assert!(
        first.starts_with("toolu_") && first != second,
        "{first}, {second}"
    );
}

#[test]
fn a_prompt_that_is_too_long_is_refused_in_the_words_that_claude_code_looks_for() {
    let server = tiny::server();
    let long = json!({ "messages": [{ "role": "user", "content": "many words ".repeat(600) }] });
    let message = refused(&server, MESSAGES, &hi(&long));
    let numbers = message.split_once("prompt is too long: ").unwrap().1;
    let (n_prompt, rest) = numbers.split_once(" tokens > ").unwrap();
    assert!(
        n_prompt.parse::<usize>().unwrap() > 512 && rest.starts_with("512 maximum"),
        "{message}"
    );
}

/// Sends a request with these headers, and returns the head and the body of the answer.
fn get(server: &Running, path: &str, headers: &str) -> (String, Value) {
    let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let text = read_all(stream);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), serde_json::from_str(body).unwrap())
}

#[test]
fn models_and_errors_have_the_form_of_the_interface_whose_headers_come() {
    let server = Running::start(options());
    for headers in ["anthropic-version: 2023-06-01\r\n", "x-api-key: none\r\n"] {
        let (_, list) = get(&server, "/v1/models?limit=1000", headers);
        let model = &list["data"][0];
        assert!(
            list["has_more"] == false
                && list["first_id"] == "stories"
                && list["last_id"] == "stories",
            "{list}"
        );
        assert!(
            model["type"] == "model" && model["display_name"] == "stories",
            "{list}"
        );
        assert!(
            model["created_at"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z')),
            "{list}"
        );
        assert_eq!(get(&server, "/v1/models/stories", headers).1, *model);
        let (head, error) = get(&server, "/v1/models/nobody", headers);
        assert!(
            head.contains("404") && head.contains("\r\nrequest-id: "),
            "{head}"
        );
        assert!(
            error["type"] == "error" && error["error"]["type"] == "not_found_error",
            "{error}"
        );
    }
    assert_eq!(
        get(&server, "/v1/models", "").1["data"][0]["object"],
        "model"
    );
    let (_, error) = get(&server, "/v1/nowhere", "anthropic-version: 2023-06-01\r\n");
    assert!(
        error["type"] == "error" && error["request_id"].is_string(),
        "{error}"
    );
    server.stop();
}

#[test]
fn what_changes_nothing_is_named_in_headers() {
    let server = Running::start(options());
    let mut request =
        hi(&json!({ "context_management": {}, "colour": 1, "thinking": { "type": "adaptive" } }));
    request.as_object_mut().unwrap().remove("model");
    let answer = server.ask("/v1/messages?beta=true", &request.to_string());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for warning in [
        "context_management changes nothing",
        "unknown field colour",
        "thinking.type changes nothing",
    ] {
        assert!(
            answer.contains(&format!("warning: 299 atta \"{warning}"))
                || answer.contains(&format!("warning: 299 atta \"the {warning}")),
            "{warning}: {answer}"
        );
    }
    server.stop();
}
