//! Many texts at once are the texts that each would have been alone, whatever comes and goes beside
//! it.
#![cfg(feature = "batch")]

#[path = "batcher/cache_reuse.rs"]
mod cache_reuse;
#[path = "batcher/first_parts.rs"]
mod first_parts;

use std::{
    collections::HashMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use atta_engine::{
    Batcher, BatcherOptions, Constraint, Counts, Done, Engine, Event, FinishReason,
    GenerateOptions, Job, JobId, LoadOptions, Pooling, PromptCache, Sampling, SessionOptions,
    Update,
};

const N_CTX: usize = 256;

fn engine(model: &str) -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(model);
    Engine::open(&path, &LoadOptions::default()).unwrap()
}

/// With room for so many contexts.
fn options(n_jobs: usize, n_kept: usize, n_contexts: usize) -> BatcherOptions {
    let n_forks = n_jobs + n_kept - 1;
    let n_ctx = Some(N_CTX);
    let n_batch = Some(48);
    let n_contexts = Some(n_contexts);
    let session = SessionOptions {
        n_ctx,
        n_batch,
        n_forks,
        n_contexts,
        ..SessionOptions::default()
    };
    BatcherOptions {
        session,
        n_jobs,
        max_gap: Duration::from_millis(5),
        cache: None,
    }
}

/// A job, before it is made.
#[derive(Clone)]
struct Wish {
    prompt: Vec<u32>,
    options: GenerateOptions,
}

fn wish(engine: &Engine, text: &str, n_predict: usize, seed: u64) -> Wish {
    let sampling = Sampling {
        seed,
        temperature: 1.0,
        repeat_penalty: 1.1,
        ..Sampling::default()
    };
    let options = GenerateOptions {
        n_predict,
        sampling,
        ..GenerateOptions::default()
    };
    let mut prompt = engine.prompt_ids(text.as_bytes());
    // Small vocabularies have a token for each letter.
    prompt.truncate(N_CTX - 50);
    Wish { prompt, options }
}

/// The text of a session of its own, and why it ended.
fn alone(engine: &Engine, wish: &Wish) -> (String, FinishReason) {
    let mut session = engine
        .session(&SessionOptions {
            n_ctx: Some(N_CTX),
            ..SessionOptions::default()
        })
        .unwrap();
    let mut text = String::new();
    let summary = session
        .generate(&wish.prompt, &wish.options)
        .unwrap()
        .run(|event| {
            if let Event::Text(piece) = event {
                text.push_str(&piece);
            }
            ControlFlow::Continue(())
        });
    (text, summary.unwrap().finish_reason)
}

/// What came of each job.
#[derive(Default)]
struct Heard {
    texts: HashMap<JobId, String>,
    done: HashMap<JobId, Done>,
    /// In the order in which they ended.
    order: Vec<JobId>,
}

impl Heard {
    fn step(&mut self, batcher: &mut Batcher) {
        batcher
            .step(&mut |id, update| {
                match update {
                    Update::Event(Event::Text(piece)) => {
                        self.texts.entry(id).or_default().push_str(&piece)
                    }
                    Update::Event(_) => {}
                    Update::Done(done) => {
                        self.order.push(id);
                        assert!(
                            self.done.insert(id, done.clone()).is_none(),
                            "nothing ends twice"
                        );
                    }
                    Update::Embedding(_) => panic!("nobody has asked for a vector"),
                    Update::Failed(error) => panic!("{error}"),
                }
                ControlFlow::Continue(())
            })
            .unwrap();
    }

    fn finish(&mut self, batcher: &mut Batcher) {
        while !batcher.is_idle() {
            self.step(batcher);
        }
    }
}

fn submit(batcher: &mut Batcher, wish: &Wish) -> JobId {
    let job = Job::new(batcher.engine(), wish.prompt.clone(), &wish.options).unwrap();
    batcher.submit(job).unwrap()
}

/// Prompts that share beginnings, of different lengths.
fn wishes(engine: &Engine) -> Vec<Wish> {
    let tale = "Once upon a time there was a little fox who lived in a forest. One morning, the fox found a key. ";
    let long = tale.repeat(4);
    let mut wishes = Vec::new();
    for (i, end) in ["", "It", "The key was", "\"Look!\" said the fox."]
        .into_iter()
        .enumerate()
    {
        for (j, start) in [tale, &long, "The little ant", "One day"]
            .into_iter()
            .enumerate()
        {
            wishes.push(wish(
                engine,
                &format!("{start}{end}"),
                20 + 40 * j,
                (4 * i + j) as u64,
            ));
        }
    }
    if engine.spec().n_vocab > 1000 {
        // The smallest vocabularies lack the characters.
        let options = GenerateOptions {
            constraint: Some(Constraint::JsonObject),
            ..wishes[3].options.clone()
        };
        wishes.push(Wish {
            options,
            ..wishes[3].clone()
        });
    }
    wishes[7].options.stop = vec![" the".to_owned()];
    wishes[8].options.n_predict = 0;
    wishes
}

/// All of them, coming in at random, with some cancelled; compared with what each is alone.
fn all_at_once(model: &str, options: BatcherOptions) -> Counts {
    let engine = engine(model);
    let wishes = wishes(&engine);
    let mut batcher = Batcher::new(&engine, &options).unwrap();
    let mut heard = Heard::default();
    let mut random = 7u64;
    let mut asked = Vec::new();
    for wish in wishes.iter().chain(&wishes) {
        let id = submit(&mut batcher, wish);
        asked.push((id, wish));
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        for _ in 0..random >> 62 {
            heard.step(&mut batcher);
        }
        if random >> 40 & 7 == 0 {
            let extra = submit(&mut batcher, &wishes[5]);
            heard.step(&mut batcher);
            batcher.cancel(extra);
        }
    }
    heard.finish(&mut batcher);
    for (id, wish) in asked {
        let (text, reason) = alone(&engine, wish);
        assert_eq!(heard.texts.get(&id).map_or("", String::as_str), text);
        let done = &heard.done[&id];
        assert_eq!(
            (done.finish_reason, done.n_prompt),
            (reason, wish.prompt.len())
        );
    }
    batcher.counts()
}

#[test]
fn beside_others_is_as_alone() {
    let counts = all_at_once("stories.gguf", options(8, 8, 16));
    assert!(counts.n_reused > counts.n_read, "{counts:?}");
    assert_eq!(counts.n_preempted, 0);
}

#[test]
fn without_room_texts_are_read_again_and_are_the_same() {
    let counts = all_at_once("stories.gguf", options(8, 0, 1));
    assert!(counts.n_preempted > 0, "{counts:?}");
}

#[test]
fn windows_are_as_alone_too() {
    for model in ["models/gemma2.gguf", "models/gemma3.gguf"] {
        all_at_once(model, options(4, 4, 2));
    }
}

/// A directory for a test, empty.
fn shelf(name: &str) -> (PathBuf, Option<Arc<PromptCache>>) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shelf-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    let cache = PromptCache::open(&path, 1 << 30).unwrap();
    (path, Some(Arc::new(cache)))
}

#[test]
fn texts_that_come_and_go_by_the_disk_are_the_same() {
    for (model, name) in [("stories.gguf", "all"), ("models/gemma3.gguf", "windows")] {
        let (_, cache) = shelf(name);
        // One sequence is kept at most, so that most beginnings are found on disk or nowhere.
        let counts = all_at_once(
            model,
            BatcherOptions {
                cache,
                ..options(2, 1, 2)
            },
        );
        assert!(counts.n_restored > 0 || name == "windows", "{counts:?}");
    }
}

#[test]
fn what_made_room_comes_back_and_outlives_the_batcher() {
    let engine = engine("stories.gguf");
    let (path, cache) = shelf("comes-back");
    let options = BatcherOptions {
        cache,
        ..options(1, 0, 1)
    };
    let tale = |animal: &str| {
        format!("Once upon a time, there was a {animal} who lived in a forest. ").repeat(6)
    };
    let [fox, bear] = ["fox", "bear"].map(|animal| wish(&engine, &tale(animal), 20, 3));
    let write = |batcher: &mut Batcher, wish: &Wish| {
        let mut heard = Heard::default();
        let id = submit(batcher, wish);
        heard.finish(batcher);
        assert_eq!(heard.texts[&id], alone(&engine, wish).0);
        heard.done[&id].n_cached
    };
    let mut batcher = Batcher::new(&engine, &options).unwrap();
    assert_eq!(write(&mut batcher, &fox), 0);
    assert!(write(&mut batcher, &bear) < 10, "they begin alike");
    let n_cached = write(&mut batcher, &fox);
    assert_eq!(
        n_cached,
        fox.prompt.len() - 1,
        "all but the token whose logits are wanted"
    );
    assert_eq!(batcher.counts().n_restored as usize, n_cached);
    batcher.save_cached_prefixes();
    drop(batcher);

    let mut next = Batcher::new(&engine, &options).unwrap();
    assert_eq!(write(&mut next, &bear), bear.prompt.len() - 1);
    assert!(next.take_notes().is_empty());
    drop(next);

    for file in fs::read_dir(&path).unwrap() {
        let file = file.unwrap().path();
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
    }
    let mut last = Batcher::new(&engine, &options).unwrap();
    assert!(write(&mut last, &bear) < bear.prompt.len() - 1);
    assert!(
        last.take_notes()
            .iter()
            .any(|note| note.contains("not used"))
    );
}

#[test]
fn what_could_not_be_kept_is_tried_again_at_the_end() {
    let engine = engine("stories.gguf");
    let (path, cache) = shelf("tried-again");
    let mut batcher = Batcher::new(
        &engine,
        &BatcherOptions {
            cache,
            ..options(1, 0, 1)
        },
    )
    .unwrap();
    fs::remove_dir(&path).unwrap();
    for animal in ["fox", "bear"] {
        submit(
            &mut batcher,
            &wish(
                &engine,
                &format!("The {animal} went into the forest. ").repeat(8),
                2,
                3,
            ),
        );
        Heard::default().finish(&mut batcher);
    }
    let notes = batcher.take_notes();
    assert!(
        notes
            .iter()
            .filter(|note| note.contains("cannot be kept"))
            .count()
            == 1,
        "{notes:?}"
    );
    fs::create_dir(&path).unwrap();
    batcher.save_cached_prefixes();
    assert!(fs::read_dir(&path).unwrap().count() > 0);
}

#[test]
fn texts_that_are_only_read_have_no_place_on_disk() {
    let engine = engine("stories.gguf");
    let (path, cache) = shelf("only-read");
    let mut batcher = Batcher::new(
        &engine,
        &BatcherOptions {
            cache,
            ..options(1, 0, 1)
        },
    )
    .unwrap();
    for animal in ["fox", "bear", "owl"] {
        let prompt = engine.prompt_ids(
            format!("The {animal} went into the forest. ")
                .repeat(8)
                .as_bytes(),
        );
        batcher
            .submit(Job::embedding(prompt, Pooling::Mean))
            .unwrap();
        while !batcher.is_idle() {
            batcher.step(&mut |_, _| ControlFlow::Continue(())).unwrap();
        }
    }
    batcher.save_cached_prefixes();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn a_file_is_no_place_for_many_texts() {
    let engine = engine("stories.gguf");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-shelf");
    let cache = Some(Arc::new(PromptCache::open(&file, 1 << 20).unwrap()));
    assert!(
        Batcher::new(
            &engine,
            &BatcherOptions {
                cache,
                ..options(1, 0, 1)
            }
        )
        .is_err()
    );
}

#[test]
fn one_place_is_enough() {
    all_at_once("stories.gguf", options(1, 0, 1));
}

#[test]
fn what_many_begin_with_is_read_once() {
    let engine = engine("stories.gguf");
    let mut batcher = Batcher::new(&engine, &options(16, 0, 16)).unwrap();
    let start =
        "The old mill stood by the stream, and nobody had lived in it for a hundred years. "
            .repeat(5);
    let wishes: Vec<Wish> = (0..16)
        .map(|i| wish(&engine, &format!("{start}User {i}:"), 8, i))
        .collect();
    let mut heard = Heard::default();
    for wish in &wishes {
        submit(&mut batcher, wish);
    }
    heard.finish(&mut batcher);
    let n_start = engine.prompt_ids(start.as_bytes()).len() as u64;
    let n_first = wishes[0].prompt.len() as u64;
    let counts = batcher.counts();
    assert!(
        n_start > 80 && counts.n_read < n_first + 15 * (n_first - n_start + 3),
        "{n_start} {counts:?}"
    );
    assert_eq!(heard.done.len(), 16);
}

#[test]
fn equals_get_the_same_share() {
    let engine = engine("stories.gguf");
    // More writers than rows.
    let mut few = options(7, 0, 8);
    few.session.n_batch = Some(3);
    let mut batcher = Batcher::new(&engine, &few).unwrap();
    let mut heard = HashMap::new();
    for i in 0..7 {
        let mut wish = wish(&engine, "One day", 200, i);
        wish.options.sampling.logit_bias =
            vec![(engine.tokenizer().eos().unwrap(), f32::NEG_INFINITY)];
        heard.insert(submit(&mut batcher, &wish), 0);
    }
    let mut step = |heard: &mut HashMap<JobId, usize>| {
        let mut count = |id, update: Update<'_>| {
            if let Update::Event(Event::Token { n, .. }) = update {
                heard.insert(id, n);
            }
            ControlFlow::Continue(())
        };
        batcher.step(&mut count).unwrap();
    };
    while heard.values().any(|&n| n == 0) {
        step(&mut heard);
    }
    let before = heard.clone();
    (0..100).for_each(|_| step(&mut heard));
    let written: Vec<usize> = heard.iter().map(|(id, n)| n - before[id]).collect();
    // 300 rows for seven.
    assert!(written.iter().all(|n| (42..=43).contains(n)), "{written:?}");
}

#[test]
fn who_has_priority_goes_first() {
    let engine = engine("stories.gguf");
    let mut batcher = Batcher::new(&engine, &options(1, 0, 1)).unwrap();
    let wish = wish(&engine, "One day", 3, 1);
    let job = |priority| {
        Job::new(&engine, wish.prompt.clone(), &wish.options)
            .unwrap()
            .with_priority(priority)
    };
    let ids: Vec<JobId> = [0, 0, 2, 1]
        .into_iter()
        .map(|priority| batcher.submit(job(priority)).unwrap())
        .collect();
    let mut heard = Heard::default();
    heard.finish(&mut batcher);
    assert_eq!(heard.order, [ids[2], ids[3], ids[0], ids[1]]);
}

#[test]
fn who_breaks_or_is_cancelled_hears_no_more() {
    let engine = engine("stories.gguf");
    let mut batcher = Batcher::new(&engine, &options(2, 0, 2)).unwrap();
    let wishes: Vec<Wish> = (0..3).map(|i| wish(&engine, "One day", 100, i)).collect();
    let ids: Vec<JobId> = wishes
        .iter()
        .map(|wish| submit(&mut batcher, wish))
        .collect();
    let mut n_heard = 0;
    while n_heard == 0 {
        let mut once = |id, update: Update<'_>| match (id == ids[0], update) {
            (true, Update::Event(Event::Token { .. })) => {
                n_heard += 1;
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        };
        batcher.step(&mut once).unwrap();
    }
    batcher.cancel(ids[2]);
    let mut heard = Heard::default();
    heard.finish(&mut batcher);
    assert_eq!(heard.order, [ids[1]]);
    assert_eq!((batcher.n_running(), batcher.n_waiting()), (0, 0));
}

#[test]
fn what_cannot_begin_is_refused() {
    let engine = engine("stories.gguf");
    let mut batcher = Batcher::new(&engine, &options(1, 0, 1)).unwrap();
    let job = |prompt| Job::new(&engine, prompt, &GenerateOptions::default()).unwrap();
    assert!(batcher.submit(job(Vec::new())).is_err());
    assert!(batcher.submit(job(vec![1; N_CTX + 1])).is_err());
    assert!(batcher.submit(job(vec![1, u32::MAX])).is_err());
    assert!(Batcher::new(&engine, &options(0, 1, 1)).is_err());
    let mut one_row = options(2, 0, 2);
    one_row.session.n_batch = Some(1);
    assert!(Batcher::new(&engine, &one_row).is_err());
    assert!(batcher.is_idle());
}
