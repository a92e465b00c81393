//! Drafts of heads that read the model's hidden states: they change nothing, and they are what the
//! head gives for the whole text.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use atta_engine::{Draft, DraftHead, DraftSource, Drafter, HeadFile, HiddenSink, Kernels, Pool};
use atta_model::{
    Batch, Cpu, DraftHeadFile, Executor, ExecutorSize, Model, Output, Want, spec::Tap,
};
use atta_store::{Budget, ModelFiles};

use super::*;

/// A model and the head for it.
struct Pair {
    engine: Engine,
    head: DraftHead,
}

fn of_eagle(load: &LoadOptions) -> Pair {
    let engine = engine("models/qwen3-untied.gguf", load);
    Pair {
        engine,
        head: eagle(),
    }
}

fn of_model(name: &str) -> Pair {
    let engine = engine(&format!("draft/{name}-mtp.gguf"), &LoadOptions::default());
    let head = DraftHead::new(HeadFile::Model, &small());
    Pair { engine, head }
}

fn eagle() -> DraftHead {
    let file = HeadFile::Apart(golden("draft/eagle3.gguf"));
    DraftHead::new(file, &small())
}

fn small() -> SessionOptions {
    SessionOptions {
        n_ctx: Some(160),
        n_batch: Some(16),
        n_draft: 4,
        draft_states: true,
        ..SessionOptions::default()
    }
}

fn speculation(source: impl DraftSource + 'static, n_max: usize) -> Speculation {
    Speculation {
        n_max,
        policy: SpeculationPolicy::Always,
        ..Speculation::new(source)
    }
}

/// Text and statistics behind a prompt of some tokens.
fn text_of(
    session: &mut Session,
    prompt: &[u32],
    temperature: f32,
    speculation: Option<Speculation>,
) -> (Vec<Event>, Option<SpeculationStats>) {
    let options = GenerateOptions {
        speculation,
        ..options(temperature)
    };
    let mut generate = session.generate(prompt, &options).unwrap();
    let events = generate.by_ref().map(|event| event.unwrap()).collect();
    (events, generate.into_summary().unwrap().speculation)
}

/// A prompt that does not fit one batch.
fn prompt() -> Vec<u32> {
    (0..40).map(|i| 3 + (i * 29) % 90).collect()
}

#[test]
fn heads_change_neither_greedy_nor_sampled_texts() {
    let streamed = LoadOptions {
        weights: Some(WeightsAt::Streamed),
        ..LoadOptions::default()
    };
    let pairs = [
        of_eagle(&LoadOptions::default()),
        of_eagle(&streamed),
        of_model("bigrams"),
        of_model("qwen35"),
    ];
    for Pair { engine, head } in pairs {
        let open = || engine.session(&small()).unwrap();
        for temperature in [0.0, 0.9] {
            let (plain, _) = text_of(&mut open(), &prompt(), temperature, None);
            for n_max in [1, 4] {
                let drafts = Some(speculation(head.clone(), n_max));
                let (drafted, stats) = text_of(&mut open(), &prompt(), temperature, drafts);
                assert_eq!(drafted, plain, "{n_max} tokens");
                let stats = stats.unwrap();
                assert!(stats.n_drafted > 0 && stats.off.is_none(), "{stats:?}");
            }
        }
    }
}

#[test]
fn a_layer_that_knows_the_next_tokens_is_always_right() {
    let Pair { engine, head } = of_model("bigrams");
    let greedy = GenerateOptions {
        n_predict: 40,
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        speculation: Some(speculation(head, 4)),
        ..GenerateOptions::default()
    };
    let mut session = engine.session(&small()).unwrap();
    let prompt = prompt();
    let generate = session.generate(&prompt, &greedy).unwrap();
    let summary = generate
        .run(|_| std::ops::ControlFlow::Continue(()))
        .unwrap();
    let stats = summary.speculation.unwrap();
    assert_eq!(stats.n_accepted, stats.n_drafted);
    assert!(stats.n_steps <= 10, "{stats:?}");
}

/// Compares the drafts of a head with those that it gives for the whole text.
#[derive(Clone, Debug)]
struct Compared {
    head: DraftHead,
    target: Arc<Model>,
    whole: Arc<Model>,
    file: Arc<DraftHeadFile>,
    n_compared: Arc<Mutex<usize>>,
}

struct ComparedDrafter(Box<dyn Drafter>, Compared);

impl DraftSource for Compared {
    fn drafter(&self, target: &Engine) -> Result<Box<dyn Drafter>, Error> {
        let drafter = self.head.drafter(target)?;
        Ok(Box::new(ComparedDrafter(drafter, self.clone())))
    }
}

impl Drafter for ComparedDrafter {
    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        self.0.draft(tokens, n_max, draft)?;
        let whole = self.1.by_whole_text(tokens, draft.tokens.len());
        assert_eq!(draft.tokens, whole, "behind {} tokens", tokens.len());
        *self.1.n_compared.lock().unwrap() += draft.tokens.len();
        Ok(())
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn hidden_sink(&self) -> Option<Arc<dyn HiddenSink>> {
        self.0.hidden_sink()
    }
}

impl Compared {
    fn new(Pair { engine, head }: &Pair, name: &str) -> Self {
        let files = || ModelFiles::open(&golden(name)).unwrap();
        let file = match name {
            "draft/eagle3.gguf" => DraftHeadFile::read(&files()).unwrap(),
            _ => DraftHeadFile::of_model(&files()).unwrap(),
        };
        let whole = Model::with_spec(file.spec.clone(), files(), &Budget::unlimited()).unwrap();
        Self {
            head: head.clone(),
            target: Arc::clone(engine.model()),
            whole: Arc::new(whole.with_embedding_of(engine.model())),
            file: Arc::new(file),
            n_compared: Arc::default(),
        }
    }

    /// The best `n` tokens behind a text, whose last token the target has not evaluated.
    fn by_whole_text(&self, text: &[u32], n: usize) -> Vec<u32> {
        let join = self.file.spec.join.as_ref().unwrap();
        let states = hidden_states(&self.target, &text[..text.len() - 1], &join.taps);
        let mut cpu = cpu(&self.whole);
        let mut out = Output::default();
        let seq = cpu.new_seq().unwrap();
        let mut batch = Batch::default();
        for (pos, states) in states.iter().enumerate() {
            batch.push_tapped(seq, pos, text[pos + 1], states, Want::Logits);
        }
        let mut tokens: Vec<u32> = Vec::new();
        while tokens.len() < n {
            batch.taps = vec![join.own_tap(1)];
            cpu.step(&batch, &mut out).unwrap();
            let last = batch.rows.len() - 1;
            let best = argmax(out.logits(last));
            tokens.push(
                self.file
                    .guessed
                    .as_ref()
                    .map_or(best as u32, |ids| ids[best]),
            );
            batch.clear();
            let pos = states.len() - 1 + tokens.len();
            let token = tokens[tokens.len() - 1];
            batch.push_carried(seq, pos, token, out.tapped(last), Want::Logits);
        }
        tokens
    }
}

fn argmax(logits: &[f32]) -> usize {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    best.unwrap()
}

fn cpu(model: &Arc<Model>) -> Cpu {
    let size = ExecutorSize {
        n_ctx: 160,
        n_batch: 160,
        ..ExecutorSize::default()
    };
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let budget = Budget::unlimited();
    Cpu::new(Arc::clone(model), Kernels::detect(), pool, &budget, size).unwrap()
}

fn hidden_states(model: &Arc<Model>, text: &[u32], taps: &[Tap]) -> Vec<Vec<f32>> {
    let mut cpu = cpu(model);
    let mut out = Output::default();
    let seq = cpu.new_seq().unwrap();
    let mut batch = Batch::default();
    for (pos, &id) in text.iter().enumerate() {
        batch.push_token(seq, pos, id, Want::Nothing);
    }
    batch.taps = taps.to_vec();
    cpu.step(&batch, &mut out).unwrap();
    (0..text.len())
        .map(|row| out.tapped(row).to_vec())
        .collect()
}

#[test]
fn drafts_are_those_of_the_whole_text_over_batches_and_turns() {
    let eagle = of_eagle(&LoadOptions::default());
    let bigrams = of_model("bigrams");
    for (pair, name) in [
        (eagle, "draft/eagle3.gguf"),
        (bigrams, "draft/bigrams-mtp.gguf"),
    ] {
        let compared = Compared::new(&pair, name);
        let mut session = pair.engine.session(&small()).unwrap();
        // The second turn continues the first one, and is followed by one that goes back.
        for prompt in [prompt(), vec![7, 50, 9]] {
            let drafts = Some(speculation(compared.clone(), 3));
            text_of(&mut session, &prompt, 0.9, drafts);
        }
        let n_compared = *compared.n_compared.lock().unwrap();
        assert!(n_compared > 20, "{n_compared}");
    }
}

#[test]
fn a_text_that_goes_back_or_whose_beginning_was_not_shown_is_drafted_from_there() {
    let Pair { engine, head } = of_eagle(&LoadOptions::default());
    let run = |drafts: Option<Speculation>| {
        let mut session = engine.session(&small()).unwrap();
        session.append(&prompt()[..20]).unwrap();
        let mut all = Vec::new();
        for n_left in [45, 10] {
            all.extend(text_of(&mut session, &prompt()[20..], 0.9, drafts.clone()).0);
            session.truncate(n_left).unwrap();
        }
        all
    };
    assert_eq!(run(Some(speculation(head, 4))), run(None));
}

#[test]
fn a_second_text_beside_the_one_that_has_the_head_is_plain() {
    let Pair { engine, head } = of_model("bigrams");
    let speculating = GenerateOptions {
        speculation: Some(speculation(head.clone(), 4)),
        ..options(0.0)
    };
    let mut one = engine.session(&small()).unwrap();
    let mut two = engine.session(&small()).unwrap();
    let prompt = prompt();
    let mut first = one.generate(&prompt, &speculating).unwrap();
    first.by_ref().take(8).for_each(drop);
    let drafts = Some(speculation(head.clone(), 4));
    let (_, stats) = text_of(&mut two, &prompt, 0.0, drafts.clone());
    assert_eq!(stats.unwrap().n_drafted, 0);
    drop(first);
    let (_, stats) = text_of(&mut two, &[5, 6], 0.0, drafts);
    assert!(stats.unwrap().n_drafted > 0);
}

#[test]
fn heads_of_other_models_and_files_without_one_are_refused() {
    let open = |name: &str| {
        let engine = engine(name, &LoadOptions::default());
        eagle().check(&engine).unwrap_err().to_string()
    };
    let error = open("stories.gguf");
    assert!(error.contains("another vocabulary"), "{error}");
    let error = open("models/qwen35.gguf");
    assert!(
        error.contains("its hidden states are 40, the model's 32"),
        "{error}"
    );
    let engine = engine("models/qwen3.gguf", &LoadOptions::default());
    let layer = DraftHead::new(HeadFile::Model, &small());
    let error = layer.check(&engine).unwrap_err().to_string();
    assert!(
        error.contains("no layers of multi-token prediction"),
        "{error}"
    );
    let model = HeadFile::Apart(golden("models/qwen3.gguf"));
    let error = DraftHead::new(model, &small()).check(&engine).unwrap_err();
    assert!(error.to_string().contains("known: eagle3"), "{error}");
}

#[cfg(feature = "batch")]
#[test]
fn one_of_several_jobs_has_the_head_and_all_are_what_they_would_be_alone() {
    use atta_engine::{Batcher, BatcherOptions, Job};

    for pair in [of_model("bigrams"), of_model("qwen35")] {
        let Pair { engine, head } = pair;
        let job = |i: usize, drafts: Option<Speculation>| {
            let options = GenerateOptions {
                speculation: drafts,
                ..options(0.9)
            };
            let prompt = prompt()[..40 - 3 * i].to_vec();
            Job::new(&engine, prompt, &options).unwrap()
        };
        let run = |drafts: Option<Speculation>| {
            let options = BatcherOptions {
                session: SessionOptions {
                    n_forks: 3,
                    ..small()
                },
                n_jobs: 2,
                max_gap: std::time::Duration::from_secs(1),
                cache: None,
            };
            let mut batcher = Batcher::new(&engine, &options).unwrap();
            let jobs = (0..3).map(|i| job(i, drafts.clone())).collect();
            let texts = batched::run(&mut batcher, jobs);
            let events = texts.into_iter().map(|(events, _)| events);
            (events.collect::<Vec<_>>(), batcher.counts().n_drafted)
        };
        let (plain, none) = run(None);
        let (drafted, n_drafted) = run(Some(speculation(head, 4)));
        assert_eq!(drafted, plain);
        assert!(none == 0 && n_drafted > 0, "{n_drafted}");
    }
}
