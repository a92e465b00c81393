//! Generation as a user of the library sees it, on the tiny models of `tests/golden/models`.

use std::{num::NonZeroUsize, ops::ControlFlow, path::PathBuf};

use atta_engine::{
    Breakers, DryOptions, Engine, Error, Event, FinishReason, GenerateOptions, LoadOptions,
    Overflow, Sampling, Session, SessionOptions, Summary, Threads,
};

fn engine(name: &str, options: &LoadOptions) -> Engine {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models")
        .join(name);
    Engine::open(&path, options).unwrap()
}

fn session(n_ctx: usize) -> Session {
    let engine = engine("llama-plain.gguf", &LoadOptions::default());
    engine
        .session(&SessionOptions {
            n_ctx: Some(n_ctx),
            ..SessionOptions::default()
        })
        .unwrap()
}

const PROMPT: [u32; 4] = [1, 40, 50, 60];

/// Tokens that a random model hardly ends by itself.
fn options(n_predict: usize) -> GenerateOptions {
    GenerateOptions {
        n_predict,
        sampling: Sampling {
            seed: 7,
            ..Sampling::default()
        },
        ..GenerateOptions::default()
    }
}

fn run(session: &mut Session, options: &GenerateOptions) -> (String, Summary) {
    let mut text = String::new();
    let mut events = session.generate(&PROMPT, options).unwrap();
    for event in &mut events {
        if let Event::Text(piece) = event.unwrap() {
            text.push_str(&piece);
        }
    }
    (text, events.into_summary().unwrap())
}

#[test]
fn the_same_seed_gives_the_same_text_on_every_run_thread_count_and_chunking() {
    let mut texts = Vec::new();
    for (n_threads, n_batch) in [(1, 512), (2, 512), (3, 1), (1, 3)] {
        let load = LoadOptions {
            threads: Threads::Count(NonZeroUsize::new(n_threads).unwrap()),
            ..LoadOptions::default()
        };
        let mut session = engine("qwen3.gguf", &load)
            .session(&SessionOptions {
                n_batch: Some(n_batch),
                ..SessionOptions::default()
            })
            .unwrap();
        texts.push(run(&mut session, &options(24)).0);
    }
    assert!(!texts[0].is_empty());
    assert!(texts.iter().all(|t| *t == texts[0]), "{texts:?}");
    let other = Sampling {
        seed: 8,
        temperature: 2.0,
        ..Sampling::default()
    };
    let other = run(
        &mut session(64),
        &GenerateOptions {
            sampling: other,
            ..options(24)
        },
    );
    assert_ne!(other.0, texts[0]);
}

#[test]
fn length_is_the_number_of_tokens_asked_for() {
    let (text, summary) = run(&mut session(64), &options(0));
    assert_eq!(
        (text.as_str(), summary.n_generated, summary.finish_reason),
        ("", 0, FinishReason::Length)
    );
    let (_, summary) = run(&mut session(64), &options(5));
    assert_eq!(
        (summary.n_prompt, summary.n_generated, summary.finish_reason),
        (4, 5, FinishReason::Length)
    );
}

#[test]
fn a_full_context_ends_with_length_and_never_writes_past_it() {
    let mut session = session(10);
    let (_, summary) = run(&mut session, &options(100));
    // Ten positions hold the prompt and six tokens; a seventh can be chosen, but not continued.
    assert_eq!(
        (summary.n_generated, summary.finish_reason),
        (7, FinishReason::Length)
    );
    assert_eq!(session.tokens().len(), 10);
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_before_anything_is_computed() {
    let mut session = session(3);
    let error = session.generate(&PROMPT, &options(1)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::PromptTooLong {
                n_prompt: 4,
                n_ctx: 3
            }
        ),
        "{error}"
    );
    assert!(session.tokens().is_empty());
}

#[test]
fn an_empty_prompt_is_refused_in_an_empty_session_only() {
    let mut session = session(32);
    assert!(matches!(
        session.generate(&[], &options(1)),
        Err(Error::EmptyPrompt)
    ));
    session.append(&PROMPT).unwrap();
    let events = session.generate(&[], &options(2)).unwrap();
    let tokens = events.filter(|event| matches!(event, Ok(Event::Token { .. })));
    assert_eq!(tokens.count(), 2);
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let (whole, _) = run(&mut session(64), &options(30));
    let middle: String = whole
        .chars()
        .skip(whole.chars().count() / 2)
        .take(3)
        .collect();
    let stop = GenerateOptions {
        stop: vec![middle.clone()],
        ..options(30)
    };
    let (text, summary) = run(&mut session(64), &stop);
    assert_eq!(summary.finish_reason, FinishReason::Stop);
    assert_eq!(text, whole[..whole.find(&middle).unwrap()]);
}

#[test]
fn a_stop_string_that_is_a_control_token_ends_the_text_at_that_token() {
    let engine = engine("llama-plain.gguf", &LoadOptions::default());
    let begin = engine.tokenizer().bos().unwrap();
    let spelled = String::from_utf8(engine.tokenizer().token_text(begin).to_vec()).unwrap();
    // The model writes nothing but that token, which has no text.
    let sampling = Sampling {
        logit_bias: vec![(begin, 1e9)],
        ..Sampling::default()
    };
    let endless = GenerateOptions {
        sampling,
        ..options(9)
    };
    let mut session = session(64);
    assert_eq!(
        run(&mut session, &endless).1.finish_reason,
        FinishReason::Length
    );
    session.truncate(0).unwrap();
    let (text, summary) = run(
        &mut session,
        &GenerateOptions {
            stop: vec![spelled],
            ..endless
        },
    );
    assert_eq!(
        (text.as_str(), summary.n_generated, summary.finish_reason),
        ("", 1, FinishReason::Stop)
    );
}

#[test]
fn a_prompt_that_begins_with_the_begin_of_sequence_token_gets_no_second_one() {
    let engine = engine("llama-plain.gguf", &LoadOptions::default());
    let begin = String::from_utf8(engine.tokenizer().token_text(1).to_vec()).unwrap();
    let ids = |text: &str| engine.prompt_ids(text.as_bytes());
    let n_begin = |ids: Vec<u32>| ids.into_iter().take_while(|&id| id == 1).count();
    assert_eq!(n_begin(ids("the king")), 1);
    assert_eq!(n_begin(ids(&format!("{begin}the king"))), 1);
    assert_eq!(n_begin(ids("")), 1);
    // Two that are typed stay two.
    assert_eq!(n_begin(ids(&format!("{begin}{begin}the king"))), 2);
}

#[test]
fn a_caller_can_stop_while_the_prompt_is_read_and_after_any_text() {
    let engine = engine("llama-plain.gguf", &LoadOptions::default());
    let mut session = engine
        .session(&SessionOptions {
            n_batch: Some(2),
            ..SessionOptions::default()
        })
        .unwrap();
    let summary = session
        .generate(&PROMPT, &options(9))
        .unwrap()
        .run(|event| match event {
            Event::Prompt { done: 2, .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
    let summary = summary.unwrap();
    assert_eq!(
        (
            summary.finish_reason,
            summary.n_prompt,
            session.tokens().len()
        ),
        (FinishReason::Interrupted, 2, 2)
    );

    let mut session = engine.session(&SessionOptions::default()).unwrap();
    let mut n_pieces = 0;
    let summary = session
        .generate(&PROMPT, &options(9))
        .unwrap()
        .run(|event| {
            n_pieces += usize::from(matches!(event, Event::Text(_)));
            if n_pieces == 2 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    assert_eq!(
        (summary.unwrap().finish_reason, n_pieces),
        (FinishReason::Interrupted, 2)
    );
}

#[test]
fn generation_goes_on_where_it_ended() {
    let greedy = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let greedy = |n_predict| GenerateOptions {
        n_predict,
        sampling: greedy.clone(),
        ..GenerateOptions::default()
    };
    let (whole, _) = run(&mut session(64), &greedy(12));
    let mut session = session(64);
    let (mut text, summary) = run(&mut session, &greedy(5));
    let rest = session
        .generate(&summary.pending, &greedy(7))
        .unwrap()
        .run(|event| {
            if let Event::Text(piece) = event {
                text.push_str(&piece);
            }
            ControlFlow::Continue(())
        });
    assert_eq!(rest.unwrap().n_generated, 7);
    assert_eq!(text, whole);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let mut session = session(32);
    let bad = GenerateOptions {
        sampling: Sampling {
            top_p: 1.5,
            ..Sampling::default()
        },
        ..options(1)
    };
    assert!(matches!(
        session.generate(&PROMPT, &bad),
        Err(Error::Sampling(_))
    ));
    let bad = GenerateOptions {
        stop: vec![String::new()],
        ..options(1)
    };
    assert!(matches!(
        session.generate(&PROMPT, &bad),
        Err(Error::Stop(_))
    ));
    let engine = session.engine();
    assert!(matches!(
        engine.session(&SessionOptions {
            n_ctx: Some(0),
            ..SessionOptions::default()
        }),
        Err(Error::Context(0))
    ));
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models/qwen2.gguf");
    let no_isa = LoadOptions {
        isa: Some("mmx".into()),
        ..LoadOptions::default()
    };
    assert!(matches!(
        Engine::open(&path, &no_isa),
        Err(Error::Kernels(_))
    ));
}

#[test]
fn forks_share_a_past_and_go_their_own_ways() {
    let engine = engine("llama-plain.gguf", &LoadOptions::default());
    let options = SessionOptions {
        n_ctx: Some(64),
        n_forks: 1,
        ..SessionOptions::default()
    };
    let logits_of = |ids: &[u32]| {
        let mut alone = engine.session(&options).unwrap();
        alone.append(ids).unwrap();
        alone.logits().unwrap().to_vec()
    };
    let mut trunk = engine.session(&options).unwrap();
    trunk.append(&PROMPT).unwrap();
    let mut branch = trunk.fork().unwrap();
    assert!(branch.logits().is_none());
    assert!(trunk.fork().is_err(), "it was made for one fork");
    trunk.append(&[7, 8]).unwrap();
    branch.append(&[9]).unwrap();
    assert_eq!(trunk.logits().unwrap(), logits_of(&[1, 40, 50, 60, 7, 8]));
    assert_eq!(branch.logits().unwrap(), logits_of(&[1, 40, 50, 60, 9]));
    drop(trunk);
    let mut again = branch.fork().unwrap();
    again.append(&[3]).unwrap();
    assert_eq!(again.logits().unwrap(), logits_of(&[1, 40, 50, 60, 9, 3]));
}

#[test]
fn the_budget_knows_what_a_session_takes_and_gets_it_back() {
    let engine = engine("llama-plain.gguf", &LoadOptions::default());
    let budget = engine.budget();
    let before = budget.used();
    let session = engine
        .session(&SessionOptions {
            n_ctx: Some(64),
            ..SessionOptions::default()
        })
        .unwrap();
    let kv = budget
        .items()
        .iter()
        .find(|i| i.name == "kv cache")
        .unwrap()
        .bytes;
    // Two layers, two heads of 10, keys and values with codes of 2 bytes and a scale, 64 positions.
    assert_eq!(kv, 2 * 2 * (10 * 2 + 4) * 2 * 64);
    drop(session);
    assert_eq!(budget.used(), before);
    let absurd = SessionOptions {
        n_ctx: Some(1 << 40),
        ..SessionOptions::default()
    };
    assert!(matches!(
        engine.session(&absurd),
        Err(Error::TooLittleMemory { .. })
    ));
}

#[test]
fn penalties_do_not_change_the_logits_of_the_session() {
    let mut session = session(64);
    session.append(&PROMPT).unwrap();
    let before = session.logits().unwrap().to_vec();
    let sampling = Sampling {
        repeat_penalty: 1.5,
        presence_penalty: 1.0,
        ..Sampling::default()
    };
    let options = GenerateOptions {
        sampling,
        ..options(1)
    };
    session
        .generate(&[], &options)
        .unwrap()
        .run(|_| ControlFlow::Continue(()))
        .unwrap();
    assert!(session.logits().unwrap() == before);
    session.truncate(99).unwrap();
    assert!(session.logits().is_some(), "nothing was taken away");
}

#[test]
fn log_probabilities_are_those_of_the_model_whatever_the_sampler_does() {
    let sampling = Sampling {
        temperature: 0.0,
        logit_bias: vec![(5, 1000.0)],
        ..Sampling::default()
    };
    let options = GenerateOptions {
        sampling,
        n_logprobs: Some(3),
        ..options(4)
    };
    let mut seen = Vec::new();
    let mut session = session(64);
    session.append(&PROMPT[..3]).unwrap();
    let go_on = |event: Event| {
        if let Event::Token { id, logprobs, .. } = event {
            let logprobs = logprobs.unwrap();
            seen.push((id, logprobs.chosen, logprobs.top));
        }
        ControlFlow::Continue(())
    };
    session
        .generate(&PROMPT[3..], &options)
        .unwrap()
        .run(go_on)
        .unwrap();
    assert_eq!(seen.len(), 4);
    for (id, chosen, top) in seen {
        assert_eq!((id, chosen.id, top.len()), (5, 5, 3));
        assert!(
            top[0].logprob >= top[1].logprob
                && top[1].logprob >= top[2].logprob
                && top[0].logprob < 0.0
        );
        assert!(
            top[0].id != 5 && chosen.logprob < top[0].logprob,
            "the bias is none of the model's"
        );
    }
}

#[test]
fn dry_sees_repetitions_up_to_the_breakers_in_the_vocabulary() {
    let greedy = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let (plain, _) = run(
        &mut session(128),
        &GenerateOptions {
            sampling: greedy.clone(),
            ..options(100)
        },
    );
    let text = |sequence_breakers| {
        let dry = DryOptions {
            multiplier: 50.0,
            allowed_length: 1,
            sequence_breakers,
            ..DryOptions::default()
        };
        run(
            &mut session(128),
            &GenerateOptions {
                sampling: Sampling {
                    dry,
                    ..greedy.clone()
                },
                ..options(100)
            },
        )
        .0
    };
    assert_ne!(text(Vec::new()), plain);
    // Where everything breaks repetitions, there are none.
    assert_eq!(text((' '..='~').map(String::from).collect()), plain);
}

#[test]
fn breakers_are_found_in_every_token_that_holds_them() {
    let engine = engine("llama-plain.gguf", &LoadOptions::default());
    let tokenizer = engine.tokenizer();
    let none = Breakers::find(tokenizer, &[]);
    assert_eq!(none, Breakers::default());
    assert_ne!(Breakers::find(tokenizer, &["e".to_owned()]), none);
}

#[test]
fn a_session_keeps_what_begins_the_same_way_and_leaves_a_token_to_evaluate() {
    let mut session = session(64);
    session.append(&[1, 40, 50, 60]).unwrap();
    assert_eq!(session.keep_common(&[1, 40, 50, 60, 70]).unwrap(), 4);
    assert_eq!(session.keep_common(&[1, 40, 50, 60]).unwrap(), 3);
    assert_eq!(
        (session.tokens(), session.logits()),
        (&[1, 40, 50][..], None)
    );
    assert_eq!(session.keep_common(&[1, 41, 50]).unwrap(), 1);
    assert_eq!(
        (session.keep_common(&[]).unwrap(), session.tokens().len()),
        (0, 0)
    );
}

/// A session that forgets, and the tokens that were appended to it.
fn shifting(n_ctx: usize, n_batch: usize, n_keep: usize) -> Session {
    let engine = engine("llama-plain.gguf", &LoadOptions::default());
    let overflow = Overflow::Shift { n_keep };
    let options = SessionOptions {
        n_ctx: Some(n_ctx),
        n_batch: Some(n_batch),
        overflow,
        ..SessionOptions::default()
    };
    engine.session(&options).unwrap()
}

#[test]
fn a_text_may_be_longer_than_a_context_that_shifts() {
    let ids: Vec<u32> = (0..300).map(|i| i * 7 % 60 + 3).collect();
    let logits = |n_batch| {
        let mut session = shifting(100, n_batch, 4);
        session.append(&ids).unwrap();
        assert_eq!((session.tokens(), session.n_evicted()), (&ids[..], 7 * 32));
        session.logits().unwrap().to_vec()
    };
    assert_eq!(logits(1), logits(64));
    let mut session = shifting(100, 64, 4);
    let mut options = options(250);
    options.sampling.logit_bias = vec![(2, f32::NEG_INFINITY)];
    let summary = session
        .generate(&PROMPT, &options)
        .unwrap()
        .run(|_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(
        (summary.n_generated, session.tokens().len()),
        (250, PROMPT.len() + 249)
    );
}

#[test]
fn going_back_never_goes_into_what_was_forgotten() {
    let ids: Vec<u32> = (0..150).map(|i| i * 7 % 60 + 3).collect();
    let after = |n: usize| {
        let mut session = shifting(100, 16, 4);
        session.append(&ids).unwrap();
        let left = session.truncate(n).unwrap();
        session.append(&ids[left..]).unwrap();
        (
            left,
            session.n_evicted(),
            session.logits().unwrap().to_vec(),
        )
    };
    // 64 tokens were forgotten, from the fifth on.
    let whole = after(150);
    assert_eq!((whole.0, whole.1), (150, 64));
    assert_eq!(after(140), (140, 64, whole.2.clone()));
    // There it was 32 that were forgotten when the token came first.
    assert_eq!((after(120).0, after(120).1), (120, 64));
    for n in [0, 3, 4, 5, 68] {
        assert_eq!(after(n), (n.min(4), 64, whole.2.clone()), "back to {n}");
    }
    assert!(matches!(
        engine("llama-plain.gguf", &LoadOptions::default()).session(&SessionOptions {
            n_ctx: Some(67),
            overflow: Overflow::Shift { n_keep: 4 },
            ..SessionOptions::default()
        }),
        Err(Error::ShortWindow { min: 68, .. })
    ));
}
