//! Tests against recorded results of llama.cpp's samplers.

use std::{fs, path::PathBuf};

use atta_store::ModelFiles;
use atta_tokenizer::Tokenizer;
use serde_json::Value;

use super::{
    Breakers, DryOptions, candidates::Candidates, candidates::tests::left, dry::Dry, filters, sigma,
};

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn golden() -> Value {
    serde_json::from_str(&fs::read_to_string(file("tests/golden/sampling/llama.json")).unwrap())
        .unwrap()
}

fn number(value: &Value) -> f32 {
    value.as_f64().unwrap() as f32
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

#[test]
fn typical_and_top_n_sigma_leave_what_llama_cpp_leaves() {
    for case in golden()["filters"].as_array().unwrap() {
        let logits: Vec<f32> = case["logits"]
            .as_array()
            .unwrap()
            .iter()
            .map(number)
            .collect();
        let mut candidates = Candidates::new(logits.len(), logits.len());
        candidates.gather(&logits, logits.len());
        filters::typical(&mut candidates, number(&case["p"]));
        let mut typical: Vec<u32> = left(&mut candidates)
            .iter()
            .map(|candidate| candidate.id)
            .collect();
        typical.sort_unstable();
        assert_eq!(typical, ids(&case["typical"]), "typical {}", case["p"]);

        let mut logits = logits;
        sigma::top_n_sigma(&mut logits, number(&case["n"]));
        let kept: Vec<u32> = (0..logits.len() as u32)
            .filter(|&i| logits[i as usize] > f32::NEG_INFINITY)
            .collect();
        assert_eq!(kept, ids(&case["top_n_sigma"]), "top-n-sigma {}", case["n"]);
    }
}

#[test]
fn dry_penalises_what_llama_cpp_penalises_with_breakers_in_a_real_vocabulary() {
    let stories = ModelFiles::open(&file("tests/golden/stories.gguf")).unwrap();
    let tokenizer = Tokenizer::from_metadata(stories.directory().metadata()).unwrap();
    let golden = golden();
    let history = ids(&golden["history"]);
    for case in golden["dry"].as_array().unwrap() {
        let texts = case["breakers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap().to_owned());
        let count = |key: &str| case[key].as_u64().unwrap() as usize;
        let options = DryOptions {
            multiplier: number(&case["multiplier"]),
            base: number(&case["base"]),
            allowed_length: count("allowed_length"),
            penalty_last_n: count("penalty_last_n"),
            sequence_breakers: texts.collect(),
        };
        let mut dry = Dry::new(&options, tokenizer.n_vocab());
        dry.set_breakers(Breakers::find(&tokenizer, &options.sequence_breakers));
        let mut logits = vec![0.0; tokenizer.n_vocab()];
        dry.apply(&mut logits, &history[..count("n_history")]);
        let penalties = case["penalties"].as_object().unwrap();
        for (id, logit) in logits.iter().enumerate() {
            let want = penalties.get(&id.to_string()).map_or(0.0, number);
            assert!(
                (logit + want).abs() <= 1e-5 * want.max(1.0),
                "token {id}: {logit}, expected -{want}: {case}"
            );
        }
    }
}
