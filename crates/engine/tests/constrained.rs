//! Constrained generations with models: what a user of the library sees.

#![cfg(feature = "constrain")]

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use atta_engine::{
    Constraint, ConstraintError, Engine, Error, Event, FinishReason, GenerateOptions, LoadOptions,
    OnLength, Sampling, SessionOptions, Summary,
};
use serde_json::Value;

fn engine() -> Engine {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    Engine::open(&path, &LoadOptions::default()).unwrap()
}

fn options(constraint: Constraint, n_predict: usize) -> GenerateOptions {
    GenerateOptions {
        n_predict,
        constraint: Some(constraint),
        ..GenerateOptions::default()
    }
}

fn generate(engine: &Engine, options: &GenerateOptions) -> Result<(String, Summary), Error> {
    let mut session = engine
        .session(&SessionOptions {
            n_ctx: Some(256),
            ..SessionOptions::default()
        })
        .unwrap();
    let mut text = String::new();
    let prompt = engine.prompt_ids(b"Once upon a time");
    let summary = session.generate(&prompt, options).unwrap().run(|event| {
        if let Event::Text(piece) = event {
            text.push_str(&piece);
        }
        ControlFlow::Continue(())
    })?;
    Ok((text, summary))
}

fn schema() -> Constraint {
    let text = r#"{"type":"object","properties":{"animal":{"enum":["ant","owl"]},"says":{"type":"string"}},
        "required":["animal","says"],"additionalProperties":false}"#;
    Constraint::Schema(text.to_owned())
}

#[test]
fn every_sampler_setting_and_length_gives_valid_json() {
    let engine = engine();
    let samplings = [
        Sampling::default(),
        Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        Sampling {
            temperature: 3.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            ..Sampling::default()
        },
        Sampling {
            top_n_sigma: 1.0,
            typical: 0.5,
            top_k: 5,
            ..Sampling::default()
        },
        Sampling {
            repeat_penalty: 1.5,
            presence_penalty: 1.0,
            ..Sampling::default()
        },
        Sampling {
            logit_bias: (0..200).map(|id| (id, 1e30)).collect(),
            ..Sampling::default()
        },
        Sampling {
            logit_bias: (0..900).map(|id| (id, f32::NEG_INFINITY)).collect(),
            ..Sampling::default()
        },
    ];
    for sampling in samplings {
        for n_predict in [0, 1, 2, 5, 17, 60, 1000] {
            let options = GenerateOptions {
                sampling: sampling.clone(),
                ..options(schema(), n_predict)
            };
            let (text, summary) = generate(&engine, &options).unwrap();
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|e| panic!("{e}: {text:?} {sampling:?}"));
            assert!(
                value["animal"] == "ant" || value["animal"] == "owl",
                "{text}"
            );
            assert!(
                value["says"].is_string() && summary.n_generated <= n_predict,
                "{text}"
            );
            assert_eq!(
                summary.n_closing_bytes > 0,
                summary.finish_reason == FinishReason::Length && !text.is_empty()
            );
        }
    }
}

#[test]
fn a_text_that_is_cut_is_closed_left_or_an_error() {
    let engine = engine();
    let with = |on_length| {
        generate(
            &engine,
            &GenerateOptions {
                on_length,
                ..options(schema(), 9)
            },
        )
    };
    let (closed, summary) = with(OnLength::Close).unwrap();
    let (cut, other) = with(OnLength::Cut).unwrap();
    assert_eq!(closed.len(), cut.len() + summary.n_closing_bytes);
    assert!(
        closed.starts_with(&cut) && other.n_closing_bytes == 0,
        "{closed} {cut}"
    );
    let failed = with(OnLength::Fail).unwrap_err();
    assert!(
        matches!(
            failed,
            Error::Constraint(ConstraintError::Unfinished { n_tokens: 9 })
        ),
        "{failed}"
    );
    let whole = GenerateOptions {
        on_length: OnLength::Fail,
        ..options(Constraint::Regex("ants?".to_owned()), 9)
    };
    assert!(generate(&engine, &whole).unwrap().0.starts_with("ant"));
}

#[test]
fn a_text_that_is_cut_within_a_character_ends_before_it() {
    let engine = engine();
    let regex = Constraint::Regex("漢字".to_owned());
    for n in 0..7 {
        let options = GenerateOptions {
            on_length: OnLength::Cut,
            ..options(regex.clone(), n)
        };
        let (text, _) = generate(&engine, &options).unwrap();
        assert!("漢字".starts_with(&text), "{n}: {text:?}");
    }
}

#[test]
fn a_token_that_ends_generations_ends_no_text_that_is_not_complete() {
    let engine = engine();
    let eos = engine.tokenizer().eos().unwrap();
    let lark = Constraint::Lark(format!(
        "start: (\"yes\" | \"so\") (<[{eos}]> | \"x\") \"no\""
    ));
    let sampling = Sampling {
        logit_bias: vec![(eos, 1e30)],
        ..Sampling::default()
    };
    let options = GenerateOptions {
        sampling,
        on_length: OnLength::Fail,
        ..options(lark, 64)
    };
    let (text, summary) = generate(&engine, &options).unwrap();
    assert!(text == "yesno" || text == "sono", "{text}");
    assert_eq!(summary.finish_reason, FinishReason::Stop);
}

#[test]
fn what_must_follow_is_not_chosen() {
    let engine = engine();
    let mut session = engine.session(&SessionOptions::default()).unwrap();
    let regex =
        Constraint::Regex("The little dog ran to the house\\. (Then|But) he slept\\.".to_owned());
    let mut text = String::new();
    let mut n_chosen = 0;
    let mut n_forced = 0;
    let options = GenerateOptions {
        n_logprobs: Some(1),
        ..options(regex, 64)
    };
    let summary = session
        .generate(&engine.prompt_ids(b"Once"), &options)
        .unwrap()
        .run(|event| {
            match event {
                Event::Text(piece) => text.push_str(&piece),
                Event::Token {
                    logprobs: Some(_), ..
                } => n_chosen += 1,
                Event::Token { logprobs: None, .. } => n_forced += 1,
                _ => {}
            }
            ControlFlow::Continue(())
        });
    assert!(
        text.starts_with("The little dog ran to the house. ") && text.ends_with(" he slept."),
        "{text}"
    );
    assert!(
        n_chosen < 5 && n_forced > 7,
        "{n_chosen} chosen, {n_forced} forced"
    );
    let summary = summary.unwrap();
    assert_eq!(summary.n_generated, n_chosen + n_forced);
    // Tokens that came with the first took none of the time that a rate is made of.
    assert!(
        (2..summary.n_generated).contains(&summary.n_first),
        "{}",
        summary.n_first
    );
    let n = summary.n_generated - summary.n_first;
    let time = summary.decode_time - summary.first_token_time;
    assert!((summary.decode_tok_s() * time.as_secs_f64() - n as f64).abs() < 1e-6);
}

#[test]
fn the_context_may_be_full_at_any_place() {
    let engine = engine();
    for n_ctx in 8..40 {
        let mut session = engine
            .session(&SessionOptions {
                n_ctx: Some(n_ctx),
                ..SessionOptions::default()
            })
            .unwrap();
        let mut text = String::new();
        let prompt = engine.prompt_ids(b"Once upon a time");
        let options = options(schema(), 1000);
        session
            .generate(&prompt, &options)
            .unwrap()
            .run(|event| {
                if let Event::Text(piece) = event {
                    text.push_str(&piece);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(
            serde_json::from_str::<Value>(&text).is_ok(),
            "{n_ctx}: {text:?}"
        );
        assert!(session.tokens().len() <= n_ctx);
    }
}

#[test]
fn a_constraint_that_is_wrong_is_found_before_the_prompt_is_read() {
    let engine = engine();
    let mut session = engine.session(&SessionOptions::default()).unwrap();
    let wrong = options(Constraint::Regex("(".to_owned()), 5);
    let prompt = engine.prompt_ids(b"a");
    let failed = session.generate(&prompt, &wrong).unwrap_err();
    assert!(matches!(
        failed,
        Error::Constraint(ConstraintError::Regex(_))
    ));
    assert!(session.tokens().is_empty());
}

#[test]
fn memory_for_constraints_is_reserved_and_the_budget_refuses_it() {
    let engine = engine();
    let grammar = |engine: &Engine| {
        engine
            .budget()
            .items()
            .iter()
            .find(|i| i.name == "grammar")
            .map(|i| i.bytes)
    };
    assert_eq!(grammar(&engine), None);
    let guide = engine.guide(&Constraint::JsonValue).unwrap();
    let with_guide = grammar(&engine).unwrap();
    drop(guide);
    assert!(grammar(&engine).unwrap() < with_guide);
    engine.budget().set_limit(engine.budget().used());
    assert!(matches!(
        engine.guide(&Constraint::JsonValue),
        Err(Error::Store(_))
    ));
}
