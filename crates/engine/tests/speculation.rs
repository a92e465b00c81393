//! Drafts never change a text: its events, its log-probabilities, and what a session holds
//! afterwards are the bits of plain decoding, whatever is drafted.

#[path = "speculation/heads.rs"]
mod heads;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_engine::{
    Constraint, Draft, DraftModel, DraftSource, Drafter, Engine, Error, Event, FinishReason,
    GenerateOptions, LoadOptions, Ngram, Overflow, Sampling, Session, SessionOptions, Speculation,
    SpeculationOff, SpeculationPolicy, SpeculationStats, WeightsAt,
};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

fn engine(name: &str, options: &LoadOptions) -> Engine {
    Engine::open(&golden(name), options).unwrap()
}

fn stories() -> Engine {
    engine("stories.gguf", &LoadOptions::default())
}

fn session(engine: &Engine) -> Session {
    let options = SessionOptions {
        n_ctx: Some(128),
        n_batch: Some(32),
        ..SessionOptions::default()
    };
    engine.session(&options).unwrap()
}

/// How often drafts are right.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Truth {
    Always,
    Never,
    /// All but every third position of the text.
    Mostly,
}

/// Drafts from the text that plain decoding writes.
#[derive(Clone, Debug)]
struct Oracle {
    text: Arc<[u32]>,
    truth: Truth,
}

impl DraftSource for Oracle {
    fn drafter(&self, _: &Engine) -> Result<Box<dyn Drafter>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Drafter for Oracle {
    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        let places = tokens.len()..tokens.len() + n_max;
        draft.tokens.extend(places.map(|at| {
            let right = self.text.get(at).copied().unwrap_or(7);
            let is_right = match self.truth {
                Truth::Always => true,
                Truth::Never => false,
                Truth::Mostly => !at.is_multiple_of(3),
            };
            if is_right { right } else { right ^ 1 }
        }));
        Ok(())
    }
}

fn speculating(text: &[u32], truth: Truth, n_max: usize) -> Speculation {
    let oracle = Oracle {
        text: text.into(),
        truth,
    };
    Speculation {
        n_max,
        policy: SpeculationPolicy::Always,
        ..Speculation::new(oracle)
    }
}

fn options(temperature: f32) -> GenerateOptions {
    GenerateOptions {
        n_predict: 40,
        sampling: Sampling {
            temperature,
            repeat_penalty: 1.1,
            ..Sampling::default()
        },
        n_logprobs: Some(2),
        ..GenerateOptions::default()
    }
}

/// How a generation went, and what the session holds afterwards.
#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    /// All tokens, including pending ones.
    tokens: Vec<u32>,
    finish_reason: FinishReason,
    n_closing_bytes: usize,
    /// Bits of the logits after one more token.
    next: Vec<u32>,
}

const PROMPT: [u32; 6] = [1, 403, 407, 261, 378, 432];

/// Generates until the text ends, or until `n_events` were taken.
fn outcome(
    session: &mut Session,
    options: &GenerateOptions,
    n_events: usize,
) -> (Outcome, Option<SpeculationStats>) {
    let mut generate = session.generate(&PROMPT, options).unwrap();
    let events: Vec<Event> = generate
        .by_ref()
        .take(n_events)
        .map(|event| event.unwrap())
        .collect();
    let summary = generate.into_summary().unwrap();
    let mut more = summary.pending.clone();
    let tokens = [session.tokens(), &more].concat();
    more.push(50);
    session.append(&more).unwrap();
    let logits = session.logits().unwrap();
    let outcome = Outcome {
        events,
        tokens,
        finish_reason: summary.finish_reason,
        n_closing_bytes: summary.n_closing_bytes,
        next: logits.iter().map(|logit| logit.to_bits()).collect(),
    };
    (outcome, summary.speculation)
}

/// Asserts that drafts change nothing, however right and long they are. Returns the statistics of
/// the drafts that are always right.
fn assert_drafts_change_nothing(
    open: &dyn Fn() -> Session,
    options: &GenerateOptions,
) -> SpeculationStats {
    let (plain, none) = outcome(&mut open(), options, usize::MAX);
    assert_eq!(none, None);
    let mut of_right = SpeculationStats::default();
    for truth in [Truth::Always, Truth::Never, Truth::Mostly] {
        for n_max in [1, 4, 16] {
            let options = GenerateOptions {
                speculation: Some(speculating(&plain.tokens, truth, n_max)),
                ..options.clone()
            };
            let (drafted, stats) = outcome(&mut open(), &options, usize::MAX);
            assert_eq!(drafted, plain, "{truth:?}, {n_max} tokens");
            let stats = stats.unwrap();
            // Of wrong drafts, a constraint may leave nothing.
            let is_cut = truth == Truth::Never && options.constraint.is_some();
            assert!(stats.n_drafted > 0 || is_cut, "{stats:?}");
            assert!(truth != Truth::Never || stats.n_accepted == 0, "{stats:?}");
            if truth == Truth::Always {
                of_right = stats;
            }
        }
    }
    of_right
}

#[test]
fn drafts_change_neither_greedy_nor_sampled_texts_of_mapped_nor_streamed_weights() {
    let streamed = LoadOptions {
        weights: Some(WeightsAt::Streamed),
        ..LoadOptions::default()
    };
    for load in [LoadOptions::default(), streamed] {
        let engine = engine("stories.gguf", &load);
        for temperature in [0.0, 0.9] {
            let options = options(temperature);
            let stats = assert_drafts_change_nothing(&|| session(&engine), &options);
            assert!(stats.n_steps < 8, "{stats:?}");
        }
    }
}

#[test]
fn a_stop_string_a_constraint_and_the_end_of_the_context_may_lie_inside_a_draft() {
    let engine = stories();
    let plain = outcome(&mut session(&engine), &options(0.0), usize::MAX).0;
    let text: String = plain.events.iter().filter_map(text_of).collect();
    let middle: String = text.chars().skip(30).take(5).collect();
    let stopped = GenerateOptions {
        stop: vec![middle],
        ..options(0.0)
    };
    assert_drafts_change_nothing(&|| session(&engine), &stopped);
    let constraint = "(yes, of course|no), [a-z ]{5,40}[.] And (that is the end of it|so on)[.]";
    let constrained = GenerateOptions {
        constraint: Some(Constraint::Regex(constraint.to_owned())),
        on_length: atta_engine::OnLength::Close,
        ..options(0.9)
    };
    assert_drafts_change_nothing(&|| session(&engine), &constrained);
    let small = SessionOptions {
        n_ctx: Some(PROMPT.len() + 21),
        ..SessionOptions::default()
    };
    let full = || engine.session(&small).unwrap();
    let (plain, _) = outcome_of_full(&mut full(), None);
    for n_max in [1, 4, 16] {
        let speculation = speculating(&plain.1, Truth::Always, n_max);
        assert_eq!(outcome_of_full(&mut full(), Some(speculation)).0, plain);
    }
}

/// Drafts one right token, and then what no constraint allows.
#[derive(Clone, Debug)]
struct FirstRight(Arc<[u32]>);

impl DraftSource for FirstRight {
    fn drafter(&self, _: &Engine) -> Result<Box<dyn Drafter>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Drafter for FirstRight {
    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        draft.tokens.extend(self.0.get(tokens.len()));
        draft.tokens.resize(n_max, 0);
        Ok(())
    }
}

#[test]
fn a_draft_ends_where_the_constraint_does_and_has_the_tokens_that_it_forces() {
    let engine = stories();
    let constraint = "(yes, of course|no), (truly|really)[.] And (that is the end of it|so on)[.]";
    let options = GenerateOptions {
        constraint: Some(Constraint::Regex(constraint.to_owned())),
        ..options(0.9)
    };
    let (plain, _) = outcome(&mut session(&engine), &options, usize::MAX);
    let drafted = GenerateOptions {
        speculation: Some(Speculation {
            policy: SpeculationPolicy::Always,
            ..Speculation::new(FirstRight(plain.tokens.as_slice().into()))
        }),
        ..options
    };
    let (drafted, stats) = outcome(&mut session(&engine), &drafted, usize::MAX);
    assert_eq!(drafted, plain);
    let stats = stats.unwrap();
    // Four choices. The first draft is right; the second one, a choice and two forced tokens, has
    // the end of the text in it, and none of it is judged.
    let numbers = [stats.n_steps, stats.n_drafted, stats.n_accepted];
    assert_eq!(numbers, [3, 1 + 3, 1], "{stats:?}");
}

/// Events and tokens of a text that fills the context.
fn outcome_of_full(
    session: &mut Session,
    speculation: Option<Speculation>,
) -> ((Vec<Event>, Vec<u32>), FinishReason) {
    let options = GenerateOptions {
        speculation,
        ..options(0.0)
    };
    let mut generate = session.generate(&PROMPT, &options).unwrap();
    let events = generate.by_ref().map(|event| event.unwrap()).collect();
    let summary = generate.into_summary().unwrap();
    let tokens = [session.tokens(), &summary.pending].concat();
    ((events, tokens), summary.finish_reason)
}

fn text_of(event: &Event) -> Option<&str> {
    match event {
        Event::Text(text) => Some(text),
        _ => None,
    }
}

#[test]
fn a_text_that_is_interrupted_inside_a_draft_ends_where_its_last_event_says() {
    let engine = stories();
    let options = GenerateOptions {
        n_predict: 12,
        ..options(0.9)
    };
    let plain = outcome(&mut session(&engine), &options, usize::MAX).0;
    let drafted = GenerateOptions {
        speculation: Some(speculating(&plain.tokens, Truth::Mostly, 5)),
        ..options.clone()
    };
    for n_events in 1..plain.events.len() {
        let plain = outcome(&mut session(&engine), &options, n_events).0;
        let drafted = outcome(&mut session(&engine), &drafted, n_events).0;
        assert_eq!(drafted, plain, "{n_events} events");
    }
    // One that is dropped leaves no token of a draft either.
    for n_events in 1..plain.events.len() {
        let mut session = session(&engine);
        let mut generate = session.generate(&PROMPT, &drafted).unwrap();
        generate.by_ref().take(n_events).for_each(drop);
        drop(generate);
        assert!(plain.tokens.starts_with(session.tokens()), "{n_events}");
    }
}

#[test]
fn sliding_windows_and_context_shifts_are_where_they_would_be() {
    for name in ["models/gemma3.gguf", "models/mistral.gguf"] {
        let engine = engine(name, &LoadOptions::default());
        let narrow = SessionOptions {
            n_ctx: Some(96),
            n_batch: Some(8),
            ..SessionOptions::default()
        };
        let prompt_ids = |options: GenerateOptions| GenerateOptions {
            n_predict: 60,
            ..options
        };
        let open = || engine.session(&narrow).unwrap();
        assert_small_drafts_change_nothing(&open, &prompt_ids(options(0.9)));
    }
    let engine = stories();
    let shifting = SessionOptions {
        n_ctx: Some(80),
        overflow: Overflow::Shift { n_keep: 4 },
        ..SessionOptions::default()
    };
    let long = GenerateOptions {
        n_predict: 150,
        ..options(0.9)
    };
    assert_drafts_change_nothing(&|| engine.session(&shifting).unwrap(), &long);
}

/// As [`assert_drafts_change_nothing`], with the prompt of a vocabulary of 64 tokens.
fn assert_small_drafts_change_nothing(open: &dyn Fn() -> Session, options: &GenerateOptions) {
    let run = |speculation: Option<Speculation>| {
        let mut session = open();
        let options = GenerateOptions {
            speculation,
            ..options.clone()
        };
        let mut generate = session.generate(&[1, 40, 50, 60], &options).unwrap();
        let events: Vec<Event> = generate.by_ref().map(|event| event.unwrap()).collect();
        let summary = generate.into_summary().unwrap();
        (events, [session.tokens(), &summary.pending].concat())
    };
    let plain = run(None);
    for n_max in [1, 4, 16] {
        for truth in [Truth::Always, Truth::Mostly, Truth::Never] {
            let speculation = speculating(&plain.1, truth, n_max);
            assert_eq!(run(Some(speculation)), plain, "{truth:?}, {n_max} tokens");
        }
    }
}

#[test]
fn recurrent_models_return_to_each_token_of_a_draft() {
    for name in [
        "models/qwen35.gguf",
        "models/falcon-h1.gguf",
        "models/lfm2.gguf",
    ] {
        let engine = engine(name, &LoadOptions::default());
        let session = SessionOptions {
            n_ctx: Some(200),
            n_batch: Some(32),
            n_draft: 16,
            draft_states: true,
            ..SessionOptions::default()
        };
        let open = || engine.session(&session).unwrap();
        let options = GenerateOptions {
            n_predict: 50,
            ..options(0.9)
        };
        assert_small_drafts_change_nothing(&open, &options);
    }
}

#[test]
fn a_recurrent_model_is_not_speculated_by_default_and_says_so() {
    let engine = engine("models/mamba.gguf", &LoadOptions::default());
    let mut session = engine.session(&SessionOptions::default()).unwrap();
    let options = GenerateOptions {
        n_predict: 4,
        speculation: Some(Speculation::default()),
        ..GenerateOptions::default()
    };
    let generate = session.generate(&[1, 40, 50], &options).unwrap();
    let stats = generate.run(|_| std::ops::ControlFlow::Continue(()));
    let stats = stats.unwrap().speculation.unwrap();
    assert_eq!(stats.off, Some(SpeculationOff::Recurrent));
    assert_eq!(stats.n_drafted, 0);
}

#[test]
fn a_text_that_repeats_itself_is_drafted_from_its_context() {
    let engine = stories();
    let run = |speculation: Option<Speculation>| {
        let options = GenerateOptions {
            n_predict: 110,
            sampling: Sampling {
                temperature: 0.0,
                ..Sampling::default()
            },
            speculation,
            ..GenerateOptions::default()
        };
        let mut session = session(&engine);
        let mut generate = session.generate(&PROMPT, &options).unwrap();
        let events: Vec<Event> = generate.by_ref().map(|event| event.unwrap()).collect();
        (events, generate.into_summary().unwrap().speculation)
    };
    let speculation = Speculation {
        policy: SpeculationPolicy::Always,
        ..Speculation::new(Ngram)
    };
    let (plain, _) = run(None);
    let (drafted, stats) = run(Some(speculation));
    assert_eq!(drafted, plain);
    assert!(stats.unwrap().n_drafted > 0);
}

#[test]
fn a_draft_model_that_is_the_model_itself_is_right_wherever_it_is_sure() {
    let engine = stories();
    let source = DraftModel::new(stories(), &SessionOptions::default()).unwrap();
    let plain = outcome(&mut session(&engine), &options(0.0), usize::MAX).0;
    let drafted = GenerateOptions {
        speculation: Some(Speculation {
            policy: SpeculationPolicy::Always,
            ..Speculation::new(source)
        }),
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        ..options(0.0)
    };
    let greedy = GenerateOptions {
        speculation: None,
        ..drafted.clone()
    };
    assert_ne!(plain.tokens, Vec::<u32>::new());
    let plain = outcome(&mut session(&engine), &greedy, usize::MAX).0;
    // The draft model has one session, which the second text finds free again.
    for _ in 0..2 {
        let (drafted, stats) = outcome(&mut session(&engine), &drafted, usize::MAX);
        assert_eq!(drafted, plain);
        let stats = stats.unwrap();
        assert!(stats.n_accepted > 0, "{stats:?}");
        assert_eq!(stats.n_accepted, stats.n_drafted);
    }
}

#[test]
fn a_draft_model_with_another_vocabulary_is_refused_by_the_token_that_differs() {
    let other = engine("models/gemma3.gguf", &LoadOptions::default());
    let source = DraftModel::new(other, &SessionOptions::default()).unwrap();
    let error = source.check(&stories()).unwrap_err();
    assert!(matches!(error, Error::DraftVocabulary { .. }), "{error}");
}

#[cfg(feature = "batch")]
mod batched {
    use std::{collections::HashMap, ops::ControlFlow, time::Duration};

    use atta_engine::{Batcher, BatcherOptions, Done, Job, JobId, Update};

    use super::*;

    /// What each job emitted, and how it ended.
    pub(crate) fn run(batcher: &mut Batcher, jobs: Vec<Job>) -> Vec<(Vec<Event>, Done)> {
        let ids: Vec<JobId> = jobs
            .into_iter()
            .map(|job| batcher.submit(job).unwrap())
            .collect();
        let mut events: HashMap<JobId, Vec<Event>> = HashMap::new();
        let mut ends: HashMap<JobId, Done> = HashMap::new();
        while !batcher.is_idle() {
            let on_update = &mut |id, update: Update<'_>| {
                match update {
                    Update::Event(Event::Prompt { .. }) => {}
                    Update::Event(event) => events.entry(id).or_default().push(event),
                    Update::Done(done) => drop(ends.insert(id, done.clone())),
                    other => panic!("{other:?}"),
                }
                ControlFlow::Continue(())
            };
            batcher.step(on_update).unwrap();
        }
        let outcome = |id| (events.remove(&id).unwrap(), ends.remove(&id).unwrap());
        ids.into_iter().map(outcome).collect()
    }

    #[test]
    fn jobs_with_and_without_drafts_are_what_they_would_be_alone() {
        let engine = stories();
        let options_of = |i: u64| GenerateOptions {
            n_predict: 20 + i as usize,
            sampling: Sampling {
                seed: i,
                ..Sampling::default()
            },
            ..options(0.9)
        };
        let alone = |i: u64| {
            let (outcome, _) = outcome(&mut session(&engine), &options_of(i), usize::MAX);
            let is_text = |event: &Event| !matches!(event, Event::Prompt { .. });
            let events: Vec<Event> = outcome.events.into_iter().filter(is_text).collect();
            (events, outcome.tokens)
        };
        let alone: Vec<(Vec<Event>, Vec<u32>)> = (0..6).map(alone).collect();
        let job = |i: u64| {
            let truth = [Truth::Always, Truth::Mostly, Truth::Never][i as usize % 3];
            let speculation = speculating(&alone[i as usize].1, truth, 8);
            let options = GenerateOptions {
                speculation: (i != 4).then_some(speculation),
                ..options_of(i)
            };
            Job::new(&engine, PROMPT.to_vec(), &options).unwrap()
        };
        for n_jobs in [1, 2, 4] {
            let session = SessionOptions {
                n_ctx: Some(128),
                n_batch: Some(16),
                n_forks: n_jobs,
                ..SessionOptions::default()
            };
            let options = BatcherOptions {
                session,
                n_jobs,
                max_gap: Duration::from_secs(1),
                cache: None,
            };
            let mut batcher = Batcher::new(&engine, &options).unwrap();
            let texts = run(&mut batcher, (0..6).map(job).collect());
            for (i, ((events, done), alone)) in texts.iter().zip(&alone).enumerate() {
                assert_eq!(*events, alone.0, "text {i} of {n_jobs} at once");
                assert_eq!(done.speculation.is_some(), i != 4);
            }
            let counts = batcher.counts();
            let n_generated: usize = texts.iter().map(|(_, done)| done.n_generated).sum();
            assert_eq!(counts.n_written, n_generated as u64);
            assert!(counts.n_accepted > 0 && counts.n_drafted > counts.n_accepted);
        }
    }
}
