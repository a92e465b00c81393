//! Encoders in the server: vectors and scores of texts, and no answers.

use std::path::Path;

use atta_engine::{EmbedOptions, Engine, LoadOptions, SessionOptions, chat::TemplateChoice};
use atta_server::{ModelSource, ServerOptions};
use serde_json::{Value, json};

use crate::running::{Running, options};

/// A tiny encoder of the goldens.
fn source(name: &'static str) -> ModelSource {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../tests/golden/models/{name}.gguf"));
    let load = LoadOptions {
        session: session(),
        ..LoadOptions::default()
    };
    ModelSource {
        names: vec![name.to_owned()],
        template: TemplateChoice::Model,
        talk_window: None,
        open: Box::new(move |beside| {
            Engine::open(
                &path,
                &LoadOptions {
                    beside,
                    ..load.clone()
                },
            )
        }),
    }
}

fn session() -> SessionOptions {
    SessionOptions {
        n_ctx: Some(128),
        ..options().batcher.session
    }
}

fn server() -> Running {
    let mut options: ServerOptions = options();
    options.batcher.session = session();
    Running::with(
        vec![
            source("bert"),
            source("xlm-roberta-reranker"),
            source("modern-bert-reranker"),
            source("gemma-embedding-dense"),
        ],
        options,
    )
}

/// The status of an answer, and its body.
fn ask(server: &Running, path: &str, body: &Value) -> (u16, Value) {
    let answer = server.ask(path, &body.to_string());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head[9..12].parse().unwrap(),
        serde_json::from_str(body).unwrap(),
    )
}

#[test]
fn a_list_of_texts_is_what_each_is_alone() {
    let server = server();
    let of = |input: Value| {
        let (status, answer) = ask(
            &server,
            "/v1/embeddings",
            &json!({ "model": "bert", "input": input }),
        );
        assert_eq!(status, 200, "{answer}");
        let data = answer["data"].as_array().unwrap().clone();
        data.into_iter()
            .map(|one| one["embedding"].clone())
            .collect::<Vec<Value>>()
    };
    let texts = ["ab", "the lamp is on", "b"];
    let alone: Vec<Value> = texts.iter().flat_map(|text| of(json!(text))).collect();
    let many: Vec<&str> = texts.iter().copied().cycle().take(60).collect();
    let together = of(json!(many));
    assert!(together.iter().eq(alone.iter().cycle().take(60)));
    assert_ne!(alone[0], alone[1]);
    server.stop();
}

#[test]
fn documents_are_ranked_best_first() {
    let server = server();
    let documents = ["ab", "the lamp is on", "b", "on"];
    let body = json!({ "model": "xlm-roberta-reranker", "query": "lamp", "documents": documents });
    let (status, answer) = ask(&server, "/v1/rerank", &body);
    assert_eq!(status, 200, "{answer}");
    let results = answer["results"].as_array().unwrap();
    let scores: Vec<f64> = results
        .iter()
        .map(|r| r["relevance_score"].as_f64().unwrap())
        .collect();
    assert!(
        scores.is_sorted_by(|a, b| a >= b) && scores.len() == 4,
        "{answer}"
    );
    let mut body = body;
    body["top_n"] = json!(2);
    body["return_documents"] = json!(true);
    body["documents"][1] = json!({ "text": documents[1] });
    let (_, best) = ask(&server, "/rerank", &body);
    let best = best["results"].as_array().unwrap();
    assert_eq!(best.len(), 2);
    for (best, result) in best.iter().zip(results) {
        assert_eq!(
            (&best["index"], &best["relevance_score"]),
            (&result["index"], &result["relevance_score"])
        );
        let index = best["index"].as_u64().unwrap() as usize;
        assert_eq!(best["document"]["text"], documents[index]);
    }
    server.stop();
}

#[test]
fn heads_behind_the_mean_of_a_text_give_its_vector_and_its_score() {
    let server = server();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models");
    let engine = |name: &str| {
        let path = path.join(format!("{name}.gguf"));
        Engine::open(&path, &LoadOptions::default()).unwrap()
    };
    let options = EmbedOptions {
        session: session(),
        ..EmbedOptions::default()
    };
    let body = json!({ "model": "gemma-embedding-dense", "input": "the lamp" });
    let (_, answer) = ask(&server, "/v1/embeddings", &body);
    let want = engine("gemma-embedding-dense").embed(&["the lamp"], &options);
    let got = answer["data"][0]["embedding"].as_array().unwrap().iter();
    let got: Vec<f32> = got.map(|x| x.as_f64().unwrap() as f32).collect();
    assert_eq!(got, want.unwrap()[0]);
    let body = json!({ "model": "modern-bert-reranker", "query": "on", "documents": ["a lamp"] });
    let (_, answer) = ask(&server, "/v1/rerank", &body);
    let want = engine("modern-bert-reranker").rerank("on", &["a lamp"], &options);
    let got = answer["results"][0]["relevance_score"].as_f64().unwrap();
    assert_eq!(got as f32, want.unwrap()[0]);
    server.stop();
}

#[test]
fn what_a_model_is_not_made_for_is_refused() {
    let server = server();
    let long = "a ".repeat(200);
    for (path, body, expected, why) in [
        (
            "/v1/rerank",
            json!({ "model": "bert", "query": "a", "documents": ["b"] }),
            501,
            "reranker",
        ),
        (
            "/v1/rerank",
            json!({ "model": "xlm-roberta-reranker", "query": "a", "documents": [] }),
            400,
            "documents",
        ),
        (
            "/v1/rerank",
            json!({ "model": "xlm-roberta-reranker", "query": "a", "documents": [long] }),
            400,
            "context",
        ),
        (
            "/v1/embeddings",
            json!({ "model": "xlm-roberta-reranker", "input": "a" }),
            400,
            "pooling",
        ),
        (
            "/v1/embeddings",
            json!({ "model": "bert", "input": long }),
            400,
            "context",
        ),
        (
            "/v1/completions",
            json!({ "model": "bert", "prompt": "a" }),
            400,
            "encoder",
        ),
    ] {
        let (status, answer) = ask(&server, path, &body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(
            status == expected && message.contains(why),
            "{path}: {status} {answer}"
        );
    }
    server.stop();
}
