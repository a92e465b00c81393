//! The story model against the PyTorch model that it was exported from: the same tokens, the same
//! next words.
//!
//! `tools/builtin-model/stories/golden.json` holds greedy continuations by the float32 model on the
//! dequantized weights of the file.

use std::{fs, ops::ControlFlow, path::PathBuf};

use atta_engine::{
    Engine, Event, FinishReason, GenerateOptions, LoadOptions, Sampling, SessionOptions, oracle,
};
use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn engine() -> Engine {
    Engine::open(
        &root().join("tests/golden/stories.gguf"),
        &LoadOptions::default(),
    )
    .unwrap()
}

fn cases() -> Vec<Value> {
    let golden = fs::read(root().join("tools/builtin-model/stories/golden.json")).unwrap();
    let golden: Value = serde_json::from_slice(&golden).unwrap();
    golden["cases"].as_array().unwrap().clone()
}

fn ids(case: &Value, key: &str) -> Vec<u32> {
    case[key]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

/// The best token, lowest id on ties.
fn argmax(logits: &[f32]) -> u32 {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
    best.unwrap() as u32
}

#[test]
fn prompts_become_the_tokens_that_sentencepiece_makes() {
    let engine = engine();
    for case in cases() {
        assert_eq!(
            engine.prompt_ids(case["prompt"].as_str().unwrap().as_bytes()),
            ids(&case, "ids")
        );
    }
}

#[test]
fn the_oracle_chooses_every_word_that_pytorch_chose() {
    let engine = engine();
    for case in cases() {
        let prompt = ids(&case, "ids");
        let greedy = ids(&case, "greedy_ids");
        let logits = oracle::logits(
            engine.model(),
            &[prompt.as_slice(), greedy.as_slice()].concat(),
        )
        .unwrap();
        let rows: Vec<_> = logits.chunks_exact(engine.spec().n_vocab).collect();
        for (i, id) in greedy.iter().enumerate() {
            assert_eq!(
                argmax(rows[prompt.len() - 1 + i]),
                *id,
                "{} at {i}",
                case["prompt"]
            );
        }
    }
}

#[test]
fn the_forward_pass_chooses_the_same_words_until_two_are_nearly_equal() {
    let engine = engine();
    for case in cases() {
        let margins = case["margins"].as_array().unwrap();
        // int8 activations may turn a choice between two words that are closer than this.
        let n = margins
            .iter()
            .position(|m| m.as_f64().unwrap() < 0.1)
            .unwrap_or(margins.len());
        let mut session = engine.session(&SessionOptions::default()).unwrap();
        let mut next = ids(&case, "ids");
        for (i, id) in ids(&case, "greedy_ids").into_iter().take(n).enumerate() {
            session.append(&next).unwrap();
            assert_eq!(
                argmax(session.logits().unwrap()),
                id,
                "{} at {i}",
                case["prompt"]
            );
            next = vec![id];
        }
    }
}

#[test]
fn a_story_is_whole_sentences_and_comes_to_an_end() {
    let engine = engine();
    for temperature in [0.0, 0.8] {
        let options = GenerateOptions {
            n_predict: 500,
            sampling: Sampling {
                temperature,
                ..Sampling::default()
            },
            ..GenerateOptions::default()
        };
        let mut text = String::from("Once upon a time");
        let mut session = engine.session(&SessionOptions::default()).unwrap();
        let prompt = engine.prompt_ids(text.as_bytes());
        let summary = session.generate(&prompt, &options).unwrap().run(|event| {
            if let Event::Text(piece) = event {
                text.push_str(&piece);
            }
            ControlFlow::Continue(())
        });
        assert_eq!(summary.unwrap().finish_reason, FinishReason::Stop, "{text}");
        assert!(text.split_whitespace().count() > 40, "{text}");
        assert!(text.trim_end().ends_with(['.', '!', '?', '"']), "{text}");
    }
}
