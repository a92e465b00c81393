//! Adapters of requests: by the field `lora`, by the name of the model, and for all.

use std::{fs, path::Path};

use atta_engine::{AdapterFile, Engine, LoadOptions, chat::TemplateChoice};
use atta_server::ModelSource;

use crate::{
    adapter_file::{stories, write_adapter},
    running::{Running, options},
};

/// A server of the story model with two adapters, which requests have to ask for.
fn server(name: &str) -> Running {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("adapters-{name}"));
    fs::create_dir_all(&folder).unwrap();
    let adapter = |(name, seed): (&str, u64)| {
        let path = folder.join(format!("{name}.gguf"));
        write_adapter(&path, seed);
        AdapterFile {
            name: name.to_owned(),
            path,
            scale: 0.0,
        }
    };
    let load = LoadOptions {
        adapters: [("tale", 1), ("song", 2)].map(adapter).to_vec(),
        session: options().batcher.session,
        ..LoadOptions::default()
    };
    let open = move |beside| {
        let load = load.clone();
        Engine::open(&stories(), &LoadOptions { beside, ..load })
    };
    let source = ModelSource {
        names: vec!["stories".to_owned()],
        template: TemplateChoice::Model,
        talk_window: None,
        open: Box::new(open),
    };
    Running::with(vec![source], options())
}

/// The body of an answer.
fn ask(server: &Running, path: &str, body: &str) -> serde_json::Value {
    let answer = server.ask(path, body);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

/// The text of a completion with these further fields.
fn text(server: &Running, fields: &str) -> String {
    let body = format!(
        r#"{{"prompt": "Once upon a time, there was a fox", "max_tokens": 12, "temperature": 0{fields}}}"#
    );
    let answer = ask(server, "/v1/completions", &body);
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_request_gets_the_adapters_that_it_asks_for() {
    let server = server("requests");
    let base = text(&server, "");
    let tale = text(&server, r#", "lora": [{"name": "tale"}]"#);
    let song = text(&server, r#", "lora": [{"id": 1, "scale": 1.0}]"#);
    assert!(base != tale && tale != song, "{base:?} {tale:?} {song:?}");
    assert_eq!(text(&server, r#", "model": "stories:tale""#), tale);
    assert_eq!(text(&server, r#", "lora": []"#), base);
    assert_eq!(text(&server, r#", "lora": [{"id": 1, "scale": 0}]"#), base);
    let by_llama = r#"{"prompt": "Once upon a time, there was a fox", "n_predict": 12, "temperature": 0, "lora": [{"id": 0, "scale": 1}]}"#;
    assert_eq!(ask(&server, "/completion", by_llama)["content"], *tale);
    server.stop();
}

#[test]
fn scales_for_all_are_shown_and_set() {
    let server = server("scales");
    let tale = text(&server, r#", "lora": [{"name": "tale", "scale": 0.5}]"#);
    let shown = ask(&server, "/lora-adapters", "");
    assert_eq!(shown[0]["name"], "tale");
    assert_eq!(
        (&shown[0]["scale"], &shown[1]["id"]),
        (&0.0.into(), &1.into())
    );
    let done = ask(&server, "/lora-adapters", r#"[{"id": 0, "scale": 0.5}]"#);
    assert_eq!(done["success"], true);
    assert_eq!(ask(&server, "/lora-adapters", "")[0]["scale"], 0.5);
    assert_eq!(text(&server, ""), tale);
    ask(&server, "/lora-adapters", "[]");
    assert!(text(&server, "") != tale);
    let models = ask(&server, "/v1/models", "").to_string();
    assert!(models.contains("stories:tale") && models.contains("stories:song"));
    server.stop();
}

#[test]
fn adapters_that_are_not_there_are_refused_by_name() {
    let server = server("refused");
    let refused = |path: &str, body: &str| {
        let answer = server.ask(path, body);
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        answer
    };
    let prompt = |fields: &str| format!(r#"{{"prompt": "A", "max_tokens": 1, {fields}}}"#);
    for (fields, part) in [
        (r#""lora": [{"id": 2}]"#, "there is no adapter 2"),
        (r#""lora": [{"name": "x"}]"#, "there are tale, song"),
        (r#""lora": [{"scale": 1}]"#, "expected an id or a name"),
        (r#""lora": [{"id": 0}, {"id": 0}]"#, "named twice"),
        (r#""model": "stories:x""#, "there is no adapter"),
        (r#""model": "stories:tale", "lora": [{"id": 0}]"#, "already"),
    ] {
        let answer = refused("/v1/completions", &prompt(fields));
        assert!(answer.contains(part), "{fields}: {answer}");
    }
    refused("/lora-adapters", r#"[{"id": 7, "scale": 1}]"#);
    refused("/lora-adapters", r#"{"id": 0}"#);
    server.stop();
}
