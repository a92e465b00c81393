//! Sessions and batchers on a ring write the texts of one machine.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use atta_cluster::{Cut, Ring, RingBackend};
use atta_engine::{
    Batcher, BatcherOptions, Draft, DraftSource, Drafter, Engine, Error, Event, GenerateOptions,
    Job, JobId, LoadOptions, Sampling, Session, SessionOptions, Speculation, SpeculationPolicy,
    SpeculationStats, Update,
};
use atta_kernels::{Kernels, Pool};
use atta_model::{Backend, Executor, ExecutorSize};
use atta_store::Budget;

const N_CTX: usize = 192;

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf")
}

fn ring(n_stages: usize) -> Arc<dyn Backend> {
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let cut = Cut::Even(NonZeroUsize::new(n_stages).unwrap());
    let n_threads = NonZeroUsize::MIN;
    Arc::new(RingBackend::new(Kernels::detect(), pool, n_threads, cut))
}

fn engine(backend: Option<Arc<dyn Backend>>) -> Engine {
    let options = LoadOptions {
        backend,
        ..LoadOptions::default()
    };
    Engine::open(&path(), &options).unwrap()
}

/// Prompts that share beginnings, and their options.
fn wishes(engine: &Engine) -> Vec<(Vec<u32>, GenerateOptions)> {
    let starts = [
        "Once upon a time",
        "Once upon a time there was a",
        "The cat",
        "One day, Tim",
    ];
    (0..8)
        .map(|i| {
            let sampling = Sampling {
                seed: i as u64,
                temperature: if i % 3 == 0 { 0.0 } else { 1.0 },
                ..Sampling::default()
            };
            let options = GenerateOptions {
                n_predict: 12 + 4 * i,
                sampling,
                ..GenerateOptions::default()
            };
            (engine.prompt_ids(starts[i % 4].as_bytes()), options)
        })
        .collect()
}

fn alone(engine: &Engine, prompt: &[u32], options: &GenerateOptions) -> String {
    let session = SessionOptions {
        n_ctx: Some(N_CTX),
        ..SessionOptions::default()
    };
    let mut session = engine.session(&session).unwrap();
    let mut text = String::new();
    let generation = session.generate(prompt, options).unwrap();
    generation
        .run(|event| {
            if let Event::Text(piece) = event {
                text.push_str(&piece);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    text
}

/// The texts of all wishes together, by a batcher with room for four at once.
fn together(engine: &Engine) -> Vec<String> {
    let options = BatcherOptions {
        session: SessionOptions {
            n_ctx: Some(N_CTX),
            n_batch: Some(16),
            n_forks: 4,
            n_contexts: Some(2),
            ..SessionOptions::default()
        },
        n_jobs: 4,
        max_gap: Duration::from_millis(5),
        cache: None,
    };
    let mut batcher = Batcher::new(engine, &options).unwrap();
    let jobs: Vec<JobId> = wishes(engine)
        .into_iter()
        .map(|(prompt, options)| {
            let job = Job::new(engine, prompt, &options).unwrap();
            batcher.submit(job).unwrap()
        })
        .collect();
    let mut texts: HashMap<JobId, String> = HashMap::new();
    while !batcher.is_idle() {
        batcher
            .step(&mut |id, update| {
                match update {
                    Update::Event(Event::Text(piece)) => {
                        texts.entry(id).or_default().push_str(&piece);
                    }
                    Update::Failed(error) => panic!("{error}"),
                    _ => {}
                }
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    jobs.iter().map(|id| texts.remove(id).unwrap()).collect()
}

#[test]
fn texts_on_a_ring_are_those_of_one_machine() {
    let cpu = engine(None);
    let expected: Vec<String> = wishes(&cpu)
        .iter()
        .map(|(prompt, options)| alone(&cpu, prompt, options))
        .collect();
    let distinct: std::collections::HashSet<_> = expected.iter().collect();
    assert!(distinct.len() > 5, "{expected:?}");
    for n_stages in [1, 2, 3] {
        let engine = engine(Some(ring(n_stages)));
        for ((prompt, options), expected) in wishes(&engine).iter().zip(&expected).take(3) {
            assert_eq!(&alone(&engine, prompt, options), expected, "{n_stages}");
        }
        assert_eq!(
            together(&engine),
            expected,
            "{n_stages} stages, several users"
        );
    }
}

/// A session with chunks of 8 tokens, and a prompt of many of them.
fn in_chunks(engine: &Engine) -> (Session, Vec<u32>) {
    let options = SessionOptions {
        n_ctx: Some(N_CTX),
        n_batch: Some(8),
        ..SessionOptions::default()
    };
    let prompt = engine.prompt_ids(
        "The cat saw a dog and a big red ball. "
            .repeat(9)
            .as_bytes(),
    );
    assert!((80..N_CTX - 8).contains(&prompt.len()), "{}", prompt.len());
    (engine.session(&options).unwrap(), prompt)
}

#[test]
fn chunks_of_a_prompt_are_at_several_stages_at_the_same_time() {
    let logits = |engine: &Engine| {
        let (mut session, prompt) = in_chunks(engine);
        let mut progress = Vec::new();
        let go_on = |done| {
            progress.push(done);
            true
        };
        assert_eq!(session.append_with(&prompt, go_on).unwrap(), prompt.len());
        (session.logits().unwrap().to_vec(), progress)
    };
    let (expected, alone) = logits(&engine(None));
    let (found, ring) = logits(&engine(Some(ring(3))));
    assert!(expected == found, "other logits");
    assert_eq!(alone[..4], [0, 8, 16, 24]);
    // Two chunks are behind the first stage when the third is submitted.
    assert_eq!(ring[..4], [0, 0, 0, 8]);
}

#[test]
fn prompts_are_cut_into_the_chunks_of_a_plan() {
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let cut = Cut::Even(NonZeroUsize::new(2).unwrap());
    let ring = RingBackend::new(Kernels::detect(), pool, NonZeroUsize::MIN, cut);
    let model = engine(None).model().clone();
    let size = ExecutorSize {
        n_ctx: 64,
        n_batch: 16,
        ..ExecutorSize::default()
    };
    let (lane, parts) = ring.parts(&model, &size, &Budget::unlimited()).unwrap();
    let mut ring = Ring::new(parts, Box::new(lane)).unwrap();
    assert_eq!(ring.n_chunk(), 16);
    for (wanted, n_chunk) in [(5, 5), (0, 1), (100, 16)] {
        ring.cut_prompts(wanted);
        assert_eq!(ring.n_chunk(), n_chunk);
    }
}

#[test]
fn an_interrupted_prompt_keeps_the_chunks_in_flight() {
    let cpu = engine(None);
    let engine = engine(Some(ring(3)));
    let (mut session, prompt) = in_chunks(&engine);
    let mut generation = session
        .generate(&prompt, &GenerateOptions::default())
        .unwrap();
    // The first event comes before the first chunk.
    for _ in 0..2 {
        let event = generation.next().unwrap().unwrap();
        assert!(matches!(event, Event::Prompt { done: 0, .. }), "{event:?}");
    }
    generation.into_summary().unwrap();
    assert_eq!(session.tokens(), &prompt[..8]);
    let end = &prompt[8..];
    assert_eq!(session.append_with(end, |done| done < 16).unwrap(), 32);
    session.append(&end[32..]).unwrap();
    let (mut alone, _) = in_chunks(&cpu);
    alone.append(&prompt).unwrap();
    assert_eq!(session.logits(), alone.logits());
}

/// Drafts from a known text; every `wrong`th token is another.
#[derive(Clone, Debug)]
struct Oracle {
    text: Arc<[u32]>,
    wrong: usize,
    n_ahead: Arc<AtomicUsize>,
}

impl Oracle {
    /// Always three of its drafts, and how often it was asked for some ahead.
    fn speculation(text: &[u32], wrong: usize) -> (Speculation, Arc<AtomicUsize>) {
        let n_ahead = Arc::default();
        let oracle = Self {
            text: text.into(),
            wrong,
            n_ahead: Arc::clone(&n_ahead),
        };
        let speculation = Speculation {
            n_max: 3,
            policy: SpeculationPolicy::Always,
            ..Speculation::new(oracle)
        };
        (speculation, n_ahead)
    }
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
            right ^ u32::from(at.is_multiple_of(self.wrong))
        }));
        Ok(())
    }

    fn draft_ahead(
        &mut self,
        tokens: &[u32],
        n_max: usize,
        draft: &mut Draft,
    ) -> Result<(), Error> {
        self.n_ahead.fetch_add(1, Ordering::Relaxed);
        self.draft(tokens, n_max, draft)
    }
}

/// The tokens of a text of 40 whose first so many events are taken, and the logits behind one more.
fn written(
    engine: &Engine,
    options: &GenerateOptions,
    n_events: usize,
) -> (Vec<u32>, Vec<f32>, Option<SpeculationStats>) {
    let (mut session, prompt) = in_chunks(engine);
    let mut generation = session.generate(&prompt[..20], options).unwrap();
    for event in generation.by_ref().take(n_events) {
        event.unwrap();
    }
    let summary = generation.into_summary().unwrap();
    let mut tokens = session.tokens().to_vec();
    tokens.extend(&summary.pending);
    let end = [&summary.pending[..], &[50]].concat();
    session.append(&end).unwrap();
    let logits = session.logits().unwrap().to_vec();
    (tokens, logits, summary.speculation)
}

/// A text of 40 tokens by a batcher, and what became of its drafts.
fn served(engine: &Engine, options: &GenerateOptions) -> (Vec<u32>, Option<SpeculationStats>) {
    let batcher = BatcherOptions {
        session: SessionOptions {
            n_ctx: Some(N_CTX),
            n_batch: Some(8),
            n_forks: 2,
            ..SessionOptions::default()
        },
        n_jobs: 2,
        max_gap: Duration::from_millis(5),
        cache: None,
    };
    let mut batcher = Batcher::new(engine, &batcher).unwrap();
    let mut tokens = in_chunks(engine).1[..20].to_vec();
    let job = Job::new(engine, tokens.clone(), options).unwrap();
    batcher.submit(job).unwrap();
    let mut speculation = None;
    while !batcher.is_idle() {
        let on_update = &mut |_, update: Update| {
            match update {
                Update::Event(Event::Token { id, .. }) => tokens.push(id),
                Update::Done(done) => speculation = done.speculation,
                Update::Failed(error) => panic!("{error}"),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        batcher.step(on_update).unwrap();
    }
    (tokens, speculation)
}

#[test]
fn the_only_text_of_a_batcher_has_windows_ahead_and_stays_the_same() {
    let cpu = engine(None);
    let ring = engine(Some(ring(3)));
    let mut options = GenerateOptions {
        n_predict: 40,
        ..GenerateOptions::default()
    };
    let text = served(&cpu, &options).0;
    for wrong in [usize::MAX, 1, 5, 11] {
        let (speculation, n_ahead) = Oracle::speculation(&text, wrong);
        options.speculation = Some(speculation);
        let (found, stats) = served(&ring, &options);
        assert_eq!(found, text, "{wrong}");
        assert!(n_ahead.load(Ordering::Relaxed) > 0);
        let stats = stats.unwrap();
        assert!(
            wrong < 40 || stats.n_accepted == stats.n_drafted,
            "{stats:?}"
        );
    }
}

#[test]
fn windows_ahead_write_the_text_of_one_machine_in_fewer_laps() {
    let cpu = engine(None);
    let ring = engine(Some(ring(3)));
    for temperature in [0.0, 1.0] {
        let mut options = GenerateOptions {
            n_predict: 40,
            sampling: Sampling {
                temperature,
                ..Sampling::default()
            },
            ..GenerateOptions::default()
        };
        for n_events in [usize::MAX, 9] {
            options.speculation = None;
            let text = written(&cpu, &options, usize::MAX).0;
            let part = written(&cpu, &options, n_events);
            for wrong in [usize::MAX, 1, 2, 5, 11] {
                let (speculation, n_ahead) = Oracle::speculation(&text, wrong);
                options.speculation = Some(speculation);
                let found = written(&ring, &options, n_events);
                assert_eq!(found.0, part.0, "{temperature} {wrong}");
                assert!(found.1 == part.1, "other logits: {temperature} {wrong}");
                assert!(n_ahead.load(Ordering::Relaxed) > 0);
                let stats = found.2.unwrap();
                assert!(
                    wrong < 40 || stats.n_accepted == stats.n_drafted,
                    "{stats:?}"
                );
            }
        }
    }
}
