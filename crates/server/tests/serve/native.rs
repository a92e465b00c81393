//! The interfaces of Ollama and of llama.cpp's server, as their clients use them.

use atta_engine::{DryOptions, Sampling};
use atta_server::{Answer, Defaults, Server, ServerOptions};
use serde_json::{Value, json};

use crate::{
    running::{Running, options},
    tiny,
};

fn ask(server: &Server, path: &'static str, body: Value) -> Answer {
    server.answer(path, body.to_string().into_bytes())
}

/// The answer, which is none of an error.
fn ok(server: &Server, path: &'static str, body: Value) -> Value {
    let answer = ask(server, path, body.clone());
    assert_eq!(
        answer.status,
        200,
        "{path} {body}: {}",
        String::from_utf8_lossy(&answer.body)
    );
    serde_json::from_slice(&answer.body).unwrap()
}

/// The message of a refusal with that status.
fn refused(server: &Server, path: &'static str, status: u16, body: Value) -> String {
    let answer = ask(server, path, body.clone());
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, status, "{path} {body}: {text}");
    text
}

#[test]
fn ollamas_embeddings_are_those_of_openai() {
    let server = tiny::server();
    let theirs = ok(
        &server,
        "/v1/embeddings",
        json!({ "input": "One day", "model": "tools" }),
    )["data"][0]
        .clone();
    let list = ok(
        &server,
        "/api/embed",
        json!({ "model": "tools", "input": ["a cat", "One day"] }),
    );
    assert_eq!(list["embeddings"][1], theirs["embedding"]);
    assert!(
        list["prompt_eval_count"].as_u64() > Some(2) && list["model"] == "tools",
        "{list}"
    );
    let one = ok(
        &server,
        "/api/embeddings",
        json!({ "model": "tools", "prompt": "One day" }),
    );
    assert_eq!(one["embedding"], theirs["embedding"]);
    assert_eq!(
        ok(&server, "/api/embed", json!({ "model": "tools" }))["embeddings"],
        json!([])
    );
}

#[test]
fn a_text_that_is_too_long_for_a_vector_is_cut_unless_that_is_refused() {
    let server = tiny::server();
    let long = "One day a cat ".repeat(300);
    ok(
        &server,
        "/api/embed",
        json!({ "model": "tools", "input": long }),
    );
    refused(
        &server,
        "/api/embed",
        400,
        json!({ "model": "tools", "input": long, "truncate": false }),
    );
}

#[test]
fn a_model_is_shown_by_either_name_of_the_field_and_pulled_if_it_is_here() {
    let server = tiny::server();
    for field in ["name", "model"] {
        let shown = ok(
            &server,
            "/api/show",
            json!({ field: "tools:latest", "verbose": true }),
        );
        assert_eq!(shown["details"]["format"], "gguf");
    }
    assert_eq!(
        ok(
            &server,
            "/api/pull",
            json!({ "model": "tools", "stream": false })
        ),
        json!({ "status": "success" })
    );
    let streamed = ask(&server, "/api/pull", json!({ "name": "tools" }));
    assert_eq!(
        (streamed.kind.as_str(), streamed.body.as_slice()),
        ("application/x-ndjson", &b"{\"status\":\"success\"}\n"[..])
    );
    let message = refused(&server, "/api/pull", 404, json!({ "model": "gpt-0" }));
    assert!(
        message.contains("gpt-0") && message.contains("atta pull"),
        "{message}"
    );
    assert!(refused(&server, "/api/show", 400, json!({})).contains("model"));
}

#[test]
fn tools_and_a_format_may_come_together() {
    let server = tiny::server();
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } });
    let body = json!({
        "model": "tools", "messages": [{ "role": "user", "content": "Hello!" }], "tools": [tool], "format": "json",
        "stream": false, "options": { "num_predict": 8 },
    });
    assert_eq!(ok(&server, "/api/chat", body)["done"], true);
}

#[test]
fn a_completion_tells_why_it_ended_and_how_long_it_took() {
    let server = tiny::server();
    let body = json!({ "prompt": "One day", "n_predict": 5, "seed": 7, "ignore_eos": true });
    let answer = ok(&server, "/completion", body.clone());
    assert_eq!(
        (&answer["stop_type"], &answer["tokens_predicted"]),
        (&json!("limit"), &json!(5))
    );
    assert!(
        answer["timings"]["prompt_n"].as_u64() > Some(0) && answer["truncated"] == false,
        "{answer}"
    );
    assert_eq!(answer["generation_settings"]["seed"], 7);
    assert_eq!(
        ok(&server, "/completion", body)["content"],
        answer["content"]
    );
}

#[test]
fn a_completion_is_streamed_as_events_of_which_the_last_one_stops() {
    let server = tiny::server();
    let body = json!({ "prompt": "One day", "n_predict": 6, "temperature": 0, "ignore_eos": true });
    let whole = ok(&server, "/completion", body.clone());
    for more in [
        json!({}),
        json!({ "return_tokens": true }),
        json!({ "n_probs": 2 }),
    ] {
        let mut streamed = body.clone();
        streamed["stream"] = true.into();
        streamed
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let answer = ask(&server, "/completion", streamed);
        let text = String::from_utf8(answer.body).unwrap();
        let events: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
            .collect();
        let (last, parts) = events.split_last().unwrap();
        let content: String = parts
            .iter()
            .map(|part| part["content"].as_str().unwrap())
            .collect();
        assert_eq!(content, whole["content"].as_str().unwrap(), "{text}");
        assert!(
            last["stop"] == true
                && last["tokens_predicted"] == 6
                && parts.iter().all(|part| part["stop"] == false)
        );
        if more != json!({}) {
            let n_tokens: usize = parts
                .iter()
                .map(|part| part["tokens"].as_array().unwrap().len())
                .sum();
            assert_eq!(n_tokens, 6, "{text}");
        }
    }
}

#[test]
fn prompts_are_texts_tokens_both_or_lists_of_them() {
    let server = tiny::server();
    let ids = ok(
        &server,
        "/tokenize",
        json!({ "content": "One day", "add_special": true }),
    )["tokens"]
        .clone();
    let of = |prompt: Value| {
        ok(
            &server,
            "/completion",
            json!({ "prompt": prompt, "n_predict": 3, "temperature": 0 }),
        )
    };
    let one = of(json!("One day"));
    assert_eq!(of(ids.clone())["content"], one["content"]);
    let two = of(json!([ids, "One day"]));
    assert_eq!(
        (
            &two[0]["content"],
            &two[1]["content"],
            two[1]["index"].as_u64()
        ),
        (&one["content"], &one["content"], Some(1))
    );
    assert!(of(json!([1, "One day", 5]))["content"].is_string());
    for wrong in [
        json!([]),
        json!([99_999_999]),
        json!(true),
        json!([[true]]),
        json!({ "multimodal_data": ["x"] }),
    ] {
        refused(&server, "/completion", 400, json!({ "prompt": wrong }));
    }
}

#[test]
fn a_completion_keeps_to_a_schema_or_a_grammar_and_tells_what_is_asked_for() {
    let server = tiny::server();
    let schema = json!({ "enum": ["red", "blue"] });
    let answer = ok(
        &server,
        "/completion",
        json!({ "prompt": "a", "json_schema": schema, "n_predict": 20 }),
    );
    assert!(
        ["\"red\"", "\"blue\""].contains(&answer["content"].as_str().unwrap()),
        "{answer}"
    );
    let fields = json!(["content", "timings/predicted_n"]);
    let body = json!({ "prompt": "a", "grammar": "root ::= \"yes\"", "n_predict": 20, "response_fields": fields });
    let answer = ok(&server, "/completion", body);
    assert!(
        answer["content"] == "yes" && answer.as_object().unwrap().len() == 2,
        "{answer}"
    );
    assert!(
        refused(
            &server,
            "/completion",
            400,
            json!({ "prompt": "a", "grammar": "root ::= nothing" })
        )
        .contains("grammar")
    );
}

#[test]
fn probabilities_come_with_ids_and_bytes() {
    let server = tiny::server();
    let answer = ok(
        &server,
        "/completion",
        json!({ "prompt": "One day", "n_probs": 3, "n_predict": 2, "temperature": 0 }),
    );
    let first = &answer["completion_probabilities"][0];
    assert!(
        first["id"].is_u64() && first["bytes"].is_array() && first["logprob"].as_f64() <= Some(0.0),
        "{answer}"
    );
    assert_eq!(first["top_logprobs"].as_array().unwrap().len(), 3);
    assert_eq!(answer["tokens"], json!([]));
}

#[test]
fn what_a_model_cannot_do_is_501_with_the_reason() {
    let server = tiny::server();
    assert!(
        refused(
            &server,
            "/infill",
            501,
            json!({ "input_prefix": "a", "input_suffix": "b" })
        )
        .contains("FIM")
    );
    assert!(
        refused(
            &server,
            "/reranking",
            501,
            json!({ "query": "a", "documents": ["b"] })
        )
        .contains("reranker")
    );
    let body = json!({ "model": "stories", "prompt": "a", "suffix": "b" });
    assert!(refused(&server, "/api/generate", 501, body).contains("FIM"));
}

#[test]
fn a_template_is_applied_and_pieces_of_tokens_are_told() {
    let server = tiny::server();
    let body = json!({ "model": "tools", "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hello!" }] }] });
    let prompt = ok(&server, "/apply-template", body)["prompt"].clone();
    assert_eq!(
        prompt,
        "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
    );
    let closed = json!({
        "model": "tools", "messages": [{ "role": "user", "content": "Hello!" }], "add_generation_prompt": false,
    });
    assert_eq!(
        ok(&server, "/apply-template", closed)["prompt"],
        "<|im_start|>user\nHello!<|im_end|>\n"
    );
    let tokens = ok(
        &server,
        "/tokenize",
        json!({ "content": "One day", "with_pieces": true }),
    )["tokens"]
        .clone();
    let pieces: String = tokens
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token["piece"].as_str().unwrap())
        .collect();
    assert_eq!(pieces.trim(), "One day");
}

#[test]
fn what_a_request_does_not_say_is_as_the_server_was_told() {
    let sampling = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let variables = json!({ "enable_thinking": false })
        .as_object()
        .cloned()
        .unwrap();
    let defaults = Defaults {
        sampling,
        n_predict: Some(3),
        seed: Some(7),
        variables,
        ..Defaults::default()
    };
    let server = tiny::server_with(ServerOptions {
        defaults,
        ..tiny::options()
    });
    let settings = ok(
        &server,
        "/completion",
        json!({ "model": "stories", "prompt": "One day" }),
    );
    let told = &settings["generation_settings"];
    assert!(
        told["temperature"] == 0.0 && told["seed"] == 7 && told["n_predict"] == 3,
        "{told}"
    );
    let given =
        json!({ "model": "stories", "prompt": "One day", "n_predict": 5, "temperature": 0.5 });
    let settings = ok(&server, "/completion", given);
    assert!(
        settings["generation_settings"]["temperature"] == 0.5 && settings["tokens_predicted"] == 5,
        "{settings}"
    );
    let messages = json!([{ "role": "user", "content": "Hello!" }]);
    let apply = |more: Value| {
        let body = json!({ "model": "tools", "messages": messages, "chat_template_kwargs": more });
        ok(&server, "/apply-template", body)["prompt"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(apply(json!({})).ends_with("</think>\n\n"));
    assert!(!apply(json!({ "enable_thinking": true })).contains("think"));
}

#[test]
fn defaults_of_dry_and_of_biases_hold_on_completion_unless_a_request_sets_them() {
    let dry = DryOptions {
        multiplier: 0.5,
        base: 2.0,
        allowed_length: 3,
        ..DryOptions::default()
    };
    let defaults = Defaults {
        sampling: Sampling {
            dry,
            logit_bias: vec![(2, -100.0)],
            ..Sampling::default()
        },
        n_predict: Some(2),
        ..Defaults::default()
    };
    let server = tiny::server_with(ServerOptions {
        defaults,
        ..tiny::options()
    });
    let settings = |fields: Value| {
        let mut body = json!({ "model": "stories", "prompt": "One day" });
        let fields = fields.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        ok(&server, "/completion", body)["generation_settings"].clone()
    };
    let of_server = settings(json!({}));
    assert_eq!(of_server["dry_multiplier"], 0.5);
    assert_eq!(of_server["dry_base"], 2.0);
    assert_eq!(of_server["dry_allowed_length"], 3);
    let bias = json!([{ "token": 2, "bias": -100.0 }]);
    assert_eq!(of_server["logit_bias"], bias);
    let of_request = settings(json!({ "dry_multiplier": 0.25, "logit_bias": [] }));
    assert_eq!(of_request["dry_multiplier"], 0.25);
    assert_eq!(of_request["dry_allowed_length"], 3);
    assert_eq!(of_request["logit_bias"], json!([]));
}

#[test]
fn completions_of_openai_have_16_tokens_unless_the_server_or_a_request_says_otherwise() {
    let n_tokens = |n_predict: Option<usize>, max_tokens: Value| {
        let defaults = Defaults {
            n_predict,
            ..Defaults::default()
        };
        let server = tiny::server_with(ServerOptions {
            defaults,
            ..tiny::options()
        });
        let body = json!({
            "model": "stories", "prompt": "One day", "max_tokens": max_tokens, "logit_bias": { "2": -100 },
        });
        ok(&server, "/v1/completions", body)["usage"]["completion_tokens"].clone()
    };
    assert_eq!(n_tokens(None, Value::Null), 16);
    assert_eq!(n_tokens(Some(3), Value::Null), 3);
    assert_eq!(n_tokens(Some(3), json!(5)), 5);
}

#[test]
fn an_embedding_of_a_text_has_the_end_token_and_one_of_tokens_alone_has_not() {
    let server = tiny::server();
    for (input, n_end) in [
        (json!("One day"), 1),
        (json!([5, "One day"]), 1),
        (json!(["One day", 5]), 1),
        (json!([[5, "One day", 6]]), 1),
        (json!([5, 6]), 0),
    ] {
        let n_prompt = |path, field: &str| {
            let body = json!({ "model": "stories", field: input, "max_tokens": 1 });
            ok(&server, path, body)["usage"]["prompt_tokens"]
                .as_u64()
                .unwrap()
        };
        let n_plain = n_prompt("/v1/completions", "prompt");
        let n_embedded = n_prompt("/v1/embeddings", "input");
        assert_eq!(n_embedded, n_plain + n_end, "{input}");
    }
}

#[test]
fn a_conversation_that_is_shortened_for_a_token_count_gives_a_warning() {
    let server = tiny::server();
    let text = "Is the lamp of the room on, or is it off?";
    let message = |i: usize| {
        let role = ["user", "assistant"][i % 2];
        json!({ "role": role, "content": text })
    };
    for n_messages in [1, 41] {
        let messages: Vec<Value> = (0..n_messages).map(message).collect();
        for (path, field) in [
            ("/v1/chat/completions/input_tokens", "messages"),
            ("/v1/messages/count_tokens", "messages"),
            ("/v1/responses/input_tokens", "input"),
        ] {
            let answer = ask(&server, path, json!({ "model": "tools", field: messages }));
            assert_eq!(answer.status, 200, "{path}");
            let is_dropped = |warning: &String| warning.contains("messages were dropped");
            let has_warning = answer.warnings.iter().any(is_dropped);
            assert_eq!(has_warning, n_messages > 1, "{path}: {:?}", answer.warnings);
        }
    }
}

#[test]
fn a_json_object_beside_tools_is_not_wrapped_where_the_model_has_no_format_for_calls() {
    let server = tiny::server();
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } });
    let mut n_replies = 0;
    for seed in 0..24 {
        let body = json!({
            "model": "stories", "messages": [{ "role": "user", "content": "Hello!" }], "tools": [tool], "seed": seed,
            "response_format": { "type": "json_object" }, "max_tokens": 8 + seed, "temperature": 1.5,
        });
        let message = ok(&server, "/v1/chat/completions", body)["choices"][0]["message"].clone();
        // Without text, the answer is a call, perhaps one that was cut.
        let text = message["content"].as_str().unwrap_or_default();
        if !text.is_empty() {
            assert!(!text.starts_with("{\"response\""), "{text}");
            assert!(serde_json::from_str::<Value>(text).is_ok(), "{text}");
            n_replies += 1;
        }
    }
    assert!(n_replies > 0);
}

#[test]
fn an_answer_continues_a_message_of_the_assistant() {
    let server = tiny::server();
    let messages = json!([{ "role": "user", "content": "Hello!" }, { "role": "assistant", "content": "Good  " }]);
    let body = json!({
        "model": "tools", "messages": messages, "continue_final_message": true, "max_tokens": 1, "temperature": 0,
    });
    let n_prompt = |body: &Value| {
        ok(&server, "/v1/chat/completions/input_tokens", body.clone())["input_tokens"].clone()
    };
    let prompt = json!({ "content": "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\nGood  ", "model": "tools" });
    let n_expected = ok(&server, "/tokenize", prompt)["tokens"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(n_prompt(&body), n_expected + 1, "with the begin of text");
    ok(&server, "/v1/chat/completions", body.clone());
    let mut held = body.clone();
    held["response_format"] = json!({ "type": "json_object" });
    assert!(refused(&server, "/v1/chat/completions", 400, held).contains("cannot be continued"));
    let mut user = body;
    user["messages"].as_array_mut().unwrap().pop();
    assert!(refused(&server, "/v1/chat/completions", 400, user).contains("continue_final_message"));
}

#[test]
fn the_only_model_answers_to_any_name_but_ollamas() {
    let server = Running::start(options());
    let answer = server.ask(
        "/v1/completions",
        r#"{"model": "gpt-4o", "prompt": "a", "max_tokens": 1}"#,
    );
    assert!(
        answer.starts_with("HTTP/1.1 200")
            && answer.contains("gpt-4o")
            && answer.contains("\r\nwarning: 299"),
        "{answer}"
    );
    assert!(answer.contains(r#""model":"stories""#), "{answer}");
    let refused = server.ask("/api/generate", r#"{"model": "gpt-4o", "prompt": "a"}"#);
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    server.stop();
    assert_eq!(
        ask(
            &tiny::server(),
            "/v1/completions",
            json!({ "model": "gpt-4o", "prompt": "a" })
        )
        .status,
        404
    );
}

#[test]
fn a_format_beside_tools_is_kept_to_at_the_length_limit_and_a_call_stays_cut() {
    let server = tiny::server();
    let properties = json!({ "name": { "type": "string" }, "age": { "type": "integer" } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["name", "age"] });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": schema } });
    let mut n_replies = 0;
    for seed in 0..24 {
        let body = json!({
            "model": "tools", "messages": [{ "role": "user", "content": "Hello!" }], "tools": [tool], "seed": seed,
            "response_format": { "type": "json_schema", "json_schema": { "name": "p", "schema": schema } },
            "max_tokens": 4 + seed % 9, "temperature": 1.5,
        });
        let choice = ok(&server, "/v1/chat/completions", body)["choices"][0].clone();
        let text = choice["message"]["content"].as_str().unwrap_or_default();
        if choice["message"]["tool_calls"].is_null()
            && choice["finish_reason"] == "length"
            && !text.is_empty()
        {
            let reply: Value =
                serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(
                reply["name"].is_string() && reply["age"].is_number(),
                "{text}"
            );
            n_replies += 1;
        }
    }
    assert!(n_replies > 0);
}

#[test]
fn a_model_that_long_talks_confuse_is_shown_the_last_turns() {
    let server = tiny::server();
    let turn = |i: usize| {
        let [user, said] = [
            format!("Is the lamp of room {i} on, or is it off?"),
            "It is on, and so it stays.".to_owned(),
        ];
        [
            json!({ "role": "user", "content": user }),
            json!({ "role": "assistant", "content": said }),
        ]
    };
    let mut messages: Vec<Value> = [json!({ "role": "system", "content": "A house." })].into();
    messages.extend((0..40).flat_map(turn));
    messages.push(json!({ "role": "user", "content": "And now?" }));
    let body = json!({ "model": "tools", "messages": messages, "max_tokens": 1 });
    let prompt = ok(
        &server,
        "/apply-template",
        json!({ "model": "tools", "messages": messages }),
    )["prompt"]
        .clone();
    let prompt = prompt.as_str().unwrap();
    assert!(
        prompt.starts_with(
            "<|im_start|>system\nA house.<|im_end|>\n<|im_start|>user\nIs the lamp of room "
        ),
        "{prompt}"
    );
    assert!(
        prompt.ends_with("And now?<|im_end|>\n<|im_start|>assistant\n")
            && !prompt.contains("room 9 "),
        "{prompt}"
    );
    let n = ok(&server, "/v1/chat/completions/input_tokens", body.clone())["input_tokens"]
        .as_u64()
        .unwrap();
    assert!((200..=300).contains(&n), "{n}");
    assert_eq!(
        ok(&server, "/v1/chat/completions", body)["usage"]["prompt_tokens"],
        n
    );
}
