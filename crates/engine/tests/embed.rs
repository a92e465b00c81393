//! Vectors and scores of texts as a user of the library computes them, on the tiny models of
//! `tests/golden/models`.

use std::path::Path;

use atta_engine::{
    EmbedOptions, Embedder, Engine, Error, GenerateOptions, Job, KvType, LoadOptions, Pooling,
    SessionOptions, Text,
};

fn engine(name: &str) -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../tests/golden/models/{name}.gguf"));
    Engine::open(&path, &LoadOptions::default()).unwrap()
}

fn options(n_ctx: usize, pooling: Option<Pooling>) -> EmbedOptions {
    EmbedOptions {
        pooling,
        session: SessionOptions {
            n_ctx: Some(n_ctx),
            ..SessionOptions::default()
        },
    }
}

const TEXTS: [&str; 4] = ["ab", "the lamp is on", "b", "a lamp"];

/// Models, and the pooling that is asked for.
const ENCODERS: [(&str, Option<Pooling>); 6] = [
    ("bert", None),
    ("bert", Some(Pooling::Cls)),
    ("modern-bert", None),
    ("gemma-embedding", Some(Pooling::Mean)),
    ("nomic-bert", Some(Pooling::Last)),
    ("qwen3", None),
];

#[test]
fn vectors_have_length_1_and_do_not_depend_on_other_texts() {
    for (name, pooling) in ENCODERS {
        let engine = engine(name);
        let options = options(64, pooling);
        // More than are evaluated at once.
        let texts: Vec<&str> = TEXTS.iter().copied().cycle().take(50).collect();
        let vectors = engine.embed(&texts, &options).unwrap();
        for (text, vector) in texts.iter().zip(&vectors) {
            let alone = &engine.embed(&[text], &options).unwrap()[0];
            assert!(alone == vector, "{name} {pooling:?}: {text}");
            let length: f32 = vector.iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-5, "{name}: {length}");
        }
        assert_ne!(vectors[0], vectors[1], "{name}");
    }
}

#[test]
fn an_encoder_sees_the_end_of_a_text_at_its_start() {
    let engine = engine("bert");
    let of = |text: &str| {
        let options = options(64, Some(Pooling::Cls));
        engine.embed(&[text], &options).unwrap().remove(0)
    };
    assert_ne!(of("the lamp is on"), of("the lamp is of"));
}

#[test]
fn a_text_as_long_as_the_context_is_embedded_and_a_longer_one_is_refused() {
    let engine = engine("bert");
    let mut embedder = Embedder::new(&engine, &options(100, None)).unwrap();
    assert_eq!(embedder.n_ctx(), 100);
    let text = |n: usize| Text::from((0..n as u32).map(|i| 3 + i % 90).collect::<Vec<u32>>());
    let vectors = embedder.embed([text(100), text(3), text(100)]).unwrap();
    assert_eq!(vectors[0], vectors[2]);
    let error = embedder.embed([text(3), text(101)]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::PromptTooLong {
                n_prompt: 101,
                n_ctx: 100
            }
        ),
        "{error}"
    );
    assert!(matches!(embedder.embed([text(0)]), Err(Error::EmptyPrompt)));
    // A call that failed leaves nothing behind.
    assert_eq!(embedder.embed([text(3)]).unwrap()[0], vectors[1]);
}

#[test]
fn documents_have_scores_and_a_query_is_not_a_document() {
    let engine = engine("xlm-roberta-reranker");
    let options = options(64, None);
    let scores = engine.rerank("lamp", &TEXTS, &options).unwrap();
    for (document, score) in TEXTS.iter().zip(&scores) {
        assert_eq!(
            engine.rerank("lamp", &[document], &options).unwrap(),
            [*score]
        );
    }
    let turned = engine.rerank("b", &["lamp"], &options).unwrap();
    assert_ne!(turned, engine.rerank("lamp", &["b"], &options).unwrap());
    assert!(matches!(
        engine.embed(&["a"], &options),
        Err(Error::Pooling(4))
    ));
}

/// The text of a golden, and what its oracle computes.
fn golden(name: &str) -> (Text, Vec<f32>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models");
    let index = std::fs::read(folder.join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let models = index["models"].as_array().unwrap();
    let entry = models.iter().find(|entry| entry["name"] == name).unwrap();
    let tokens = entry["tokens"].as_array().unwrap().iter();
    let tokens: Vec<u32> = tokens.map(|id| id.as_u64().unwrap() as u32).collect();
    let (first, second) = tokens.split_at(entry["first_of_second"].as_u64().unwrap() as usize);
    let mut text = Text::default();
    text.push_tokens(first);
    if !second.is_empty() {
        text.begin_second();
        text.push_tokens(second);
    }
    let bytes = std::fs::read(folder.join(format!("{name}.logits"))).unwrap();
    let (floats, _) = bytes.as_chunks();
    (
        text,
        floats.iter().map(|x| f32::from_le_bytes(*x)).collect(),
    )
}

#[test]
fn heads_give_the_vectors_and_scores_of_their_oracles() {
    for (name, pooling) in [
        ("gemma-embedding-dense", None),
        ("bert-classifier", Some(Pooling::Rank)),
        ("modern-bert-reranker", Some(Pooling::Rank)),
        ("modern-bert-classifier", Some(Pooling::Rank)),
    ] {
        let (text, mut want) = golden(name);
        if pooling.is_none() {
            let length = want.iter().map(|x| x * x).sum::<f32>().sqrt();
            want.iter_mut().for_each(|x| *x /= length);
        }
        let mut options = options(128, pooling);
        options.session.kv = KvType::F32;
        let mut embedder = Embedder::new(&engine(name), &options).unwrap();
        let other = Text::from(vec![1, 5, 7]);
        let got = embedder.embed([other, text]).unwrap();
        assert_eq!(got[1].len(), want.len(), "{name}");
        for (got, want) in got[1].iter().zip(&want) {
            assert!(
                (got - want).abs() < 1e-4 * want.abs().max(0.1),
                "{name}: {got} {want}"
            );
        }
    }
}

#[test]
fn what_a_model_is_not_made_for_is_an_error() {
    let bert = engine("bert");
    let no_scores = bert.rerank("a", &["b"], &options(64, None)).unwrap_err();
    assert!(no_scores.to_string().contains("reranker"), "{no_scores}");
    let session = bert.session(&SessionOptions::default()).unwrap_err();
    assert!(session.to_string().contains("encoder"), "{session}");
    let job = Job::new(&bert, vec![1], &GenerateOptions::default()).unwrap_err();
    assert!(job.to_string().contains("encoder"), "{job}");
}
