//! Tests of the scheduler with a fake executor, and of the limit of hidden states per batch.

mod scripted;

use std::{
    collections::HashMap,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use atta_model::spec::Retention;
use scripted::{N_BATCH, N_CTX, Scripted};

use super::*;
use crate::{
    Draft, DraftSource, Drafter, GenerateOptions, LoadOptions, Pooling, Sampling, Speculation,
    SpeculationPolicy,
};

/// A text of 60 tokens as a vector, in how many steps, with at most `n_hidden` hidden states in
/// each.
fn vector(n_hidden: usize) -> (Vec<f32>, u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    let engine = Engine::open(&path, &LoadOptions::default()).unwrap();
    let session = SessionOptions {
        n_ctx: Some(128),
        n_batch: Some(64),
        n_forks: 1,
        ..SessionOptions::default()
    };
    let options = BatcherOptions {
        session,
        n_jobs: 2,
        max_gap: Duration::from_millis(50),
        cache: None,
    };
    let mut batcher = Batcher::new(&engine, &options).unwrap();
    batcher.n_hidden = n_hidden;
    let ids: Vec<u32> = (10..70).collect();
    for pooling in [Pooling::Mean, Pooling::Last] {
        batcher
            .submit(Job::embedding(ids.clone(), pooling))
            .unwrap();
    }
    let mut vectors = Vec::new();
    while !batcher.is_idle() {
        let on_update = &mut |_, update: Update<'_>| {
            if let Update::Embedding(vector) = update {
                vectors.extend_from_slice(vector);
            }
            ControlFlow::Continue(())
        };
        batcher.step(on_update).unwrap();
    }
    (vectors, batcher.counts().n_steps)
}

#[test]
fn a_text_of_which_many_hidden_states_are_wanted_is_read_in_chunks() {
    let (whole, _) = vector(1000);
    for n_hidden in [1, 7] {
        let (chunked, n_steps) = vector(n_hidden);
        assert!(
            chunked
                .iter()
                .map(|x| x.to_bits())
                .eq(whole.iter().map(|x| x.to_bits()))
        );
        assert!(n_steps >= 60_u64.div_ceil(n_hidden as u64), "{n_steps}");
    }
}

/// A test job: a prompt of common and own tokens, and the number of tokens to generate.
#[derive(Clone, Copy)]
struct Wish {
    n_common: u32,
    own: u32,
    n_own: u32,
    n_predict: usize,
}

impl Wish {
    fn prompt(&self) -> Vec<u32> {
        (0..self.n_common)
            .map(|i| 100 + i)
            .chain((0..self.n_own).map(|i| 300 + self.own * 20 + i))
            .collect()
    }

    /// The expected tokens. The last token of a full context is sampled but not evaluated.
    fn expected(&self, n_vocab: usize) -> Vec<u32> {
        let mut text = self.prompt();
        let n_prompt = text.len();
        while text.len() < (n_prompt + self.n_predict).min(N_CTX + 1) {
            text.push(scripted::next(&text, n_vocab));
        }
        text.split_off(n_prompt)
    }
}

fn stories() -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    Engine::open(&path, &LoadOptions::default()).unwrap()
}

/// A batcher on the fake executor.
fn scripted(engine: &Engine, n_jobs: usize, depth: usize, fails_at: Option<u64>) -> Batcher {
    pooled(engine, n_jobs, depth, fails_at, None)
}

/// A batcher on the fake executor, with a KV pool of `n_shared` positions.
fn pooled(
    engine: &Engine,
    n_jobs: usize,
    depth: usize,
    fails_at: Option<u64>,
    n_shared: Option<usize>,
) -> Batcher {
    let executor = Scripted::new(engine.spec().n_vocab, n_jobs + 2, depth, fails_at, n_shared);
    on(executor, engine, n_jobs)
}

fn on(executor: Scripted, engine: &Engine, n_jobs: usize) -> Batcher {
    let session = SessionOptions {
        n_ctx: Some(N_CTX),
        n_batch: Some(N_BATCH),
        n_forks: n_jobs + 1,
        ..SessionOptions::default()
    };
    let options = BatcherOptions {
        session,
        n_jobs,
        max_gap: Duration::from_secs(1),
        cache: None,
    };
    Batcher::on(Box::new(executor), engine, &options).unwrap()
}

/// Drafts what the fake executor writes; every `wrong`th token of a text is wrong.
#[derive(Clone, Debug)]
struct ScriptedDrafts {
    n_vocab: usize,
    wrong: usize,
    n_ahead: Arc<AtomicUsize>,
}

/// Speculation of any length with such drafts, and the number of those ahead of others.
fn scripted_drafts(n_vocab: usize, wrong: usize) -> (Speculation, Arc<AtomicUsize>) {
    let drafts = ScriptedDrafts {
        n_vocab,
        wrong,
        n_ahead: Arc::default(),
    };
    let n_ahead = Arc::clone(&drafts.n_ahead);
    let speculation = Speculation {
        policy: SpeculationPolicy::Always,
        ..Speculation::new(drafts)
    };
    (speculation, n_ahead)
}

impl DraftSource for ScriptedDrafts {
    fn drafter(&self, _: &Engine) -> Result<Box<dyn Drafter>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Drafter for ScriptedDrafts {
    fn draft(&mut self, tokens: &[u32], n_max: usize, draft: &mut Draft) -> Result<(), Error> {
        let mut text = tokens.to_vec();
        for _ in 0..n_max {
            let next = scripted::next(&text, self.n_vocab);
            text.push(next);
            let is_right = !text.len().is_multiple_of(self.wrong);
            draft.tokens.push(if is_right { next } else { 5 });
        }
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

fn submit(batcher: &mut Batcher, wish: &Wish) -> JobId {
    submit_with(batcher, wish, None)
}

fn submit_with(batcher: &mut Batcher, wish: &Wish, speculation: Option<Speculation>) -> JobId {
    let sampling = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let options = GenerateOptions {
        n_predict: wish.n_predict,
        sampling,
        speculation,
        ..GenerateOptions::default()
    };
    let job = Job::new(batcher.engine(), wish.prompt(), &options).unwrap();
    batcher.submit(job).unwrap()
}

/// Runs jobs that arrive over time, cancels some, and returns the tokens of each.
fn run(batcher: &mut Batcher, wishes: &[Wish], cancelled: &[usize]) -> Vec<Vec<u32>> {
    run_with(batcher, wishes, cancelled, None)
}

/// As [`run`], with drafts.
fn run_with(
    batcher: &mut Batcher,
    wishes: &[Wish],
    cancelled: &[usize],
    speculation: Option<&Speculation>,
) -> Vec<Vec<u32>> {
    let mut ids = HashMap::new();
    let mut texts = vec![Vec::new(); wishes.len()];
    let mut coming = wishes.iter().enumerate();
    let mut n_steps = 0;
    loop {
        if n_steps % 3 == 0
            && let Some((i, wish)) = coming.next()
        {
            ids.insert(submit_with(batcher, wish, speculation.cloned()), i);
        }
        if batcher.is_idle() && ids.len() == wishes.len() {
            return texts;
        }
        for &i in cancelled.iter().filter(|&&i| n_steps == 3 * i + 5) {
            let id = ids.iter().find(|&(_, &job)| job == i).map(|(&id, _)| id);
            id.into_iter().for_each(|id| batcher.cancel(id));
        }
        let on_update = &mut |id, update: Update<'_>| {
            if let Update::Event(Event::Token { id: token, .. }) = update {
                texts[ids[&id]].push(token);
            }
            ControlFlow::Continue(())
        };
        // A failed step is retried.
        let _ = batcher.step(on_update);
        n_steps += 1;
        assert!(n_steps < 10_000, "it comes to an end");
    }
}

#[test]
fn texts_do_not_depend_on_the_number_of_batches_in_flight() {
    let engine = stories();
    let n_vocab = engine.spec().n_vocab;
    let wish = |i: u32| Wish {
        n_common: 40 * (i % 2),
        own: i,
        n_own: 1 + i * 7 % 19,
        n_predict: [1, 5, 30, 120][i as usize % 4],
    };
    let wishes: Vec<Wish> = (0..14).map(wish).collect();
    let expected: Vec<Vec<u32>> = wishes.iter().map(|wish| wish.expected(n_vocab)).collect();
    let mut n_evicted = 0;
    for depth in 1..5 {
        for n_jobs in [1, 2, 5] {
            for fails_at in [None, Some(3), Some(40)] {
                let mut batcher = scripted(&engine, n_jobs, depth, fails_at);
                assert_eq!(
                    run(&mut batcher, &wishes, &[]),
                    expected,
                    "depth {depth}, {n_jobs} jobs, {fails_at:?}"
                );
            }
            // Room for a few contexts only: cached texts are evicted, and some jobs preempted.
            let mut batcher = pooled(&engine, n_jobs, depth, Some(9), Some(N_CTX));
            assert_eq!(
                run(&mut batcher, &wishes, &[]),
                expected,
                "depth {depth}, {n_jobs} jobs, a small pool"
            );
            n_evicted += batcher.counts().n_evicted;
            let mut batcher = scripted(&engine, n_jobs, depth, None);
            let texts = run(&mut batcher, &wishes, &[1, 3, 8]);
            for (i, (text, expected)) in texts.iter().zip(&expected).enumerate() {
                match [1, 3, 8].contains(&i) {
                    true => assert!(expected.starts_with(text), "{i}"),
                    false => assert_eq!(text, expected, "{i}"),
                }
            }
        }
    }
    assert!(n_evicted > 0);
}

#[test]
fn drafts_change_no_text_whatever_fails_and_is_cancelled_or_preempted() {
    let engine = stories();
    let n_vocab = engine.spec().n_vocab;
    let wish = |i: u32| Wish {
        n_common: 30 * (i % 2),
        own: i,
        n_own: 1 + i * 7 % 19,
        n_predict: [5, 30, 120][i as usize % 3],
    };
    let wishes: Vec<Wish> = (0..9).map(wish).collect();
    let expected: Vec<Vec<u32>> = wishes.iter().map(|wish| wish.expected(n_vocab)).collect();
    for (depth, n_jobs) in [(1, 1), (1, 3), (2, 1), (3, 1), (3, 3)] {
        for wrong in [4, 30] {
            let speculation = scripted_drafts(n_vocab, wrong).0;
            let drafts = Some(&speculation);
            let mut failing = scripted(&engine, n_jobs, depth, Some(20));
            assert_eq!(run_with(&mut failing, &wishes, &[], drafts), expected);
            assert!(failing.counts().n_accepted > 0);
            let mut small = pooled(&engine, n_jobs, depth, None, Some(N_CTX));
            assert_eq!(run_with(&mut small, &wishes, &[], drafts), expected);
            let mut batcher = scripted(&engine, n_jobs, depth, None);
            let texts = run_with(&mut batcher, &wishes, &[1, 3], drafts);
            for (i, (text, expected)) in texts.iter().zip(&expected).enumerate() {
                match [1, 3].contains(&i) {
                    true => assert!(expected.starts_with(text), "{i}"),
                    false => assert_eq!(text, expected, "{i}"),
                }
            }
        }
    }
}

#[test]
fn the_only_job_has_windows_ahead_where_batches_are_in_flight_together() {
    let engine = stories();
    let n_vocab = engine.spec().n_vocab;
    let wishes = [0, 1].map(|own| Wish {
        n_common: 0,
        own,
        n_own: 4,
        n_predict: 100,
    });
    let n_ahead = |depth: usize, wishes: &[Wish]| {
        let (speculation, n_ahead) = scripted_drafts(n_vocab, usize::MAX);
        let mut batcher = scripted(&engine, 2, depth, None);
        let texts = run_with(&mut batcher, wishes, &[], Some(&speculation));
        let expected: Vec<_> = wishes.iter().map(|wish| wish.expected(n_vocab)).collect();
        assert_eq!(texts, expected);
        let counts = batcher.counts();
        assert_eq!(counts.n_accepted, counts.n_drafted, "{counts:?}");
        n_ahead.load(Ordering::Relaxed)
    };
    assert_eq!(n_ahead(1, &wishes[..1]), 0);
    let alone = n_ahead(3, &wishes[..1]);
    assert!(alone > 9, "{alone}");
    // Of two, each is alone for some steps only.
    let beside = n_ahead(3, &wishes);
    assert!(beside < alone + alone / 2, "{beside} beside {alone}");
}

#[test]
fn a_draft_saves_steps_and_no_draft_preempts_a_job() {
    let engine = stories();
    let n_vocab = engine.spec().n_vocab;
    let long = Wish {
        n_common: 0,
        own: 0,
        n_own: 4,
        n_predict: 100,
    };
    let speculation = scripted_drafts(n_vocab, 4).0;
    let mut batcher = scripted(&engine, 1, 1, None);
    let texts = run_with(&mut batcher, &[long], &[], Some(&speculation));
    assert_eq!(texts, [long.expected(n_vocab)]);
    assert!(batcher.counts().n_steps < 40, "{:?}", batcher.counts());
    // A pool that holds two texts, but not always a draft beside them.
    let wishes = [0, 1].map(|own| Wish {
        own,
        n_predict: 60,
        ..long
    });
    let mut batcher = pooled(&engine, 2, 1, None, Some(N_CTX));
    let texts = run_with(&mut batcher, &wishes, &[], Some(&speculation));
    assert_eq!(texts, wishes.map(|wish| wish.expected(n_vocab)));
    assert_eq!(batcher.counts().n_preempted, 0);
}

#[test]
fn prompt_chunks_are_in_flight_together_and_a_decoding_job_only_once() {
    let engine = stories();
    let long = Wish {
        n_common: 0,
        own: 0,
        n_own: 60,
        n_predict: 4,
    };
    let mut n_steps = Vec::new();
    for depth in [1, 3] {
        let mut batcher = scripted(&engine, 2, depth, None);
        submit(&mut batcher, &long);
        batcher.step(&mut |_, _| ControlFlow::Continue(())).unwrap();
        // One was collected.
        assert_eq!(batcher.flights.len(), depth - 1);
        n_steps.push(0);
        while !batcher.is_idle() {
            batcher.step(&mut |_, _| ControlFlow::Continue(())).unwrap();
            *n_steps.last_mut().unwrap() += 1;
        }
    }
    assert_eq!(n_steps[0], n_steps[1]);
}

#[test]
fn a_job_that_is_finished_or_cancelled_in_flight_leaves_a_usable_slot() {
    let engine = stories();
    let n_vocab = engine.spec().n_vocab;
    let long = Wish {
        n_common: 0,
        own: 0,
        n_own: 60,
        n_predict: 4,
    };
    for depth in 1..4 {
        for finishes in [true, false] {
            let mut batcher = scripted(&engine, 1, depth, None);
            let first = submit(&mut batcher, &long);
            let mut n_done = 0;
            let on_update = &mut |_, update: Update<'_>| {
                n_done += usize::from(matches!(update, Update::Done(_)));
                ControlFlow::Continue(())
            };
            batcher.step(on_update).unwrap();
            if finishes {
                batcher.finish(first, on_update);
            } else {
                batcher.cancel(first);
            }
            assert_eq!(n_done, usize::from(finishes));
            let wishes = [long, Wish { own: 1, ..long }];
            let expected: Vec<Vec<u32>> =
                wishes.iter().map(|wish| wish.expected(n_vocab)).collect();
            assert_eq!(run(&mut batcher, &wishes, &[]), expected, "depth {depth}");
        }
    }
}

#[test]
fn preempted_jobs_write_the_same_texts() {
    let engine = stories();
    let wish = |own: u32| Wish {
        n_common: 0,
        own,
        n_own: 19,
        n_predict: 100,
    };
    let wishes: Vec<Wish> = (0..8).map(wish).collect();
    let expected: Vec<Vec<u32>> = wishes
        .iter()
        .map(|wish| wish.expected(engine.spec().n_vocab))
        .collect();
    for depth in 1..4 {
        let mut batcher = pooled(&engine, 5, depth, None, Some(N_CTX));
        assert_eq!(run(&mut batcher, &wishes, &[]), expected, "depth {depth}");
        assert!(batcher.counts().n_preempted > 0, "depth {depth}");
    }
}

/// Makes `n` steps and returns how many tokens of their prompts the jobs have evaluated by then.
fn steps(batcher: &mut Batcher, n: usize) -> HashMap<JobId, usize> {
    let mut n_done = HashMap::new();
    for _ in 0..n {
        let on_update = &mut |id, update: Update<'_>| {
            if let Update::Event(Event::Prompt { done, .. }) = update {
                n_done.insert(id, done);
            }
            ControlFlow::Continue(())
        };
        batcher.step(on_update).unwrap();
    }
    n_done
}

#[test]
fn a_job_waits_for_the_common_prefix_of_a_running_one_and_forks_it() {
    let engine = stories();
    let wish = |own: u32| Wish {
        n_common: 40,
        own,
        n_own: 60,
        n_predict: 4,
    };
    let mut batcher = scripted(&engine, 2, 1, None);
    let first = submit(&mut batcher, &wish(0));
    assert_eq!(steps(&mut batcher, 2)[&first], 2 * N_BATCH);
    submit(
        &mut batcher,
        &Wish {
            n_own: 19,
            ..wish(3)
        },
    );
    assert_eq!(steps(&mut batcher, 3)[&first], 40);
    assert_eq!((batcher.n_running(), batcher.n_waiting()), (1, 1));
    steps(&mut batcher, 1);
    assert_eq!((batcher.n_running(), batcher.n_waiting()), (2, 0));
    assert_eq!(batcher.counts().n_reused, 40);
}

#[test]
fn a_job_does_not_wait_for_a_running_one_whose_window_has_passed_the_common_prefix() {
    let engine = stories();
    let wish = |own: u32| Wish {
        n_common: 16,
        own,
        n_own: 100,
        n_predict: 4,
    };
    let executor = Scripted::new(engine.spec().n_vocab, 4, 1, None, None);
    let mut batcher = on(executor.with_retention(Retention::Window(8)), &engine, 2);
    let first = submit(&mut batcher, &wish(0));
    assert_eq!(steps(&mut batcher, 9)[&first], 9 * N_BATCH);
    submit(
        &mut batcher,
        &Wish {
            n_own: 9,
            ..wish(6)
        },
    );
    assert!(
        steps(&mut batcher, 1)[&first] < 116,
        "it is still prefilling"
    );
    assert_eq!((batcher.n_running(), batcher.n_waiting()), (2, 0));
    assert_eq!(batcher.counts().n_reused, 0);
}

#[test]
fn no_prefix_is_evicted_for_a_job_that_has_to_wait_all_the_same() {
    let engine = stories();
    let n_vocab = engine.spec().n_vocab;
    let wish = |own: u32, n_own: u32, n_predict: usize| Wish {
        n_common: 0,
        own,
        n_own,
        n_predict,
    };
    // A pool of 8 blocks.
    let mut batcher = pooled(&engine, 2, 1, None, Some(N_CTX));
    let cached = wish(0, 19, 4);
    run(&mut batcher, &[cached], &[]);
    let running = wish(1, 100, 20);
    submit(&mut batcher, &running);
    steps(&mut batcher, 14);
    let waiting = wish(7, 120, 4);
    let id = submit(&mut batcher, &waiting);
    steps(&mut batcher, 2);
    assert_eq!((batcher.n_running(), batcher.n_waiting()), (1, 1));
    assert_eq!(batcher.counts().n_evicted, 0);
    // Once no other job runs, the prefixes are evicted.
    let mut text = Vec::new();
    while !batcher.is_idle() {
        let on_update = &mut |job, update: Update<'_>| {
            if let (Update::Event(Event::Token { id: token, .. }), true) = (update, job == id) {
                text.push(token);
            }
            ControlFlow::Continue(())
        };
        batcher.step(on_update).unwrap();
    }
    assert_eq!(text, waiting.expected(n_vocab));
    assert!(batcher.counts().n_evicted > 0);
}
