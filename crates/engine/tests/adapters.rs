//! Adapters in sessions and batchers: every text is that of its adapters alone, and no state of one
//! is used for another.
#![cfg(all(feature = "batch", feature = "lora"))]

mod adapter_file;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use adapter_file::{stories, write_adapter};
use atta_engine::{
    AdapterFile, AdapterScale, AdapterSet, Batcher, BatcherOptions, Done, Engine, Event,
    GenerateOptions, Job, LoadOptions, PromptCache, Sampling, SessionOptions, Update,
};

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("adapters-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// The model with four adapters; texts have the first one by default.
fn engine(name: &str) -> Engine {
    let folder = folder(name);
    let file = |i: u8| {
        let path = folder.join(format!("a{i}.gguf"));
        write_adapter(&path, 1 + u64::from(i));
        AdapterFile {
            name: String::new(),
            path,
            scale: if i == 0 { 1.0 } else { 0.0 },
        }
    };
    let options = LoadOptions {
        adapters: (0..4).map(file).collect(),
        ..LoadOptions::default()
    };
    Engine::open(&stories(), &options).unwrap()
}

fn set(engine: &Engine, scales: &[(usize, f32)]) -> AdapterSet {
    let scales = scales
        .iter()
        .map(|&(adapter, scale)| AdapterScale { adapter, scale });
    engine.adapter_set(&scales.collect::<Vec<_>>()).unwrap()
}

const N_CTX: usize = 128;

fn greedy(n_predict: usize) -> GenerateOptions {
    GenerateOptions {
        n_predict,
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        ..GenerateOptions::default()
    }
}

fn options(n_jobs: usize, cache: Option<Arc<PromptCache>>) -> BatcherOptions {
    BatcherOptions {
        session: SessionOptions {
            n_ctx: Some(N_CTX),
            n_batch: Some(24),
            n_forks: n_jobs + 3,
            n_contexts: Some(n_jobs + 4),
            ..SessionOptions::default()
        },
        n_jobs,
        max_gap: Duration::from_secs(60),
        cache,
    }
}

const PROMPT: &str = "Once upon a time, there was a fox who lived in a forest with a bear.";

/// The text of a session of its own.
fn alone(engine: &Engine, prompt: &[u32], adapters: AdapterSet) -> String {
    let session = SessionOptions {
        n_ctx: Some(N_CTX),
        ..SessionOptions::default()
    };
    let mut session = engine.session(&session).unwrap();
    session.set_adapters(adapters).unwrap();
    let mut text = String::new();
    for event in session.generate(prompt, &greedy(12)).unwrap() {
        if let Event::Text(piece) = event.unwrap() {
            text.push_str(&piece);
        }
    }
    text
}

/// Texts and ends of jobs with these adapters, in one batcher; `None`: those by default.
fn together(
    batcher: &mut Batcher,
    prompt: &[u32],
    sets: &[Option<AdapterSet>],
) -> Vec<(String, Done)> {
    let ids = sets.iter().map(|&set| {
        let job = Job::new(batcher.engine(), prompt.to_vec(), &greedy(12)).unwrap();
        let job = match set {
            Some(set) => job.with_adapters(set),
            None => job,
        };
        batcher.submit(job).unwrap()
    });
    let ids: Vec<_> = ids.collect();
    let heard = Mutex::new(vec![(String::new(), None); ids.len()]);
    while !batcher.is_idle() {
        batcher
            .step(&mut |id, update| {
                let i = ids.iter().position(|other| *other == id).unwrap();
                let heard = &mut heard.lock().unwrap()[i];
                match update {
                    Update::Event(Event::Text(piece)) => heard.0.push_str(&piece),
                    Update::Done(done) => heard.1 = Some(done.clone()),
                    Update::Failed(error) => panic!("{error}"),
                    _ => {}
                }
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    let heard = heard.into_inner().unwrap().into_iter();
    heard.map(|(text, done)| (text, done.unwrap())).collect()
}

#[test]
fn eight_texts_with_four_adapters_are_those_that_each_is_alone() {
    let engine = engine("eight");
    let prompt = engine.prompt_ids(PROMPT.as_bytes());
    let sets = [
        &[][..],
        &[(0, 1.0)],
        &[(1, 1.0)],
        &[(2, 1.0)],
        &[(3, 1.0)],
        &[(0, 0.5), (1, 0.5)],
        &[(3, -1.0), (2, 0.5)],
        &[(1, 2.0)],
    ];
    let sets = sets.map(|scales| set(&engine, scales));
    let mut batcher = Batcher::new(&engine, &options(8, None)).unwrap();
    let heard = together(&mut batcher, &prompt, &sets.map(Some));
    for ((text, done), &set) in heard.iter().zip(&sets) {
        assert_eq!(*text, alone(&engine, &prompt, set), "{set:?}");
        assert_eq!(done.n_cached, 0, "no state of other adapters is used");
    }
    let texts: std::collections::HashSet<_> = heard.iter().map(|(text, _)| text).collect();
    assert!(texts.len() > 4, "{texts:?}");
}

#[test]
fn a_prefix_is_reused_for_the_same_adapters_only() {
    let engine = engine("prefix");
    let prompt = engine.prompt_ids(PROMPT.as_bytes());
    let [base, half, one] = [&[][..], &[(0, 0.5)], &[(0, 1.0)]].map(|s| set(&engine, s));
    let mut batcher = Batcher::new(&engine, &options(1, None)).unwrap();
    let mut n_cached = |set| together(&mut batcher, &prompt, &[set])[0].1.n_cached;
    assert_eq!(n_cached(Some(base)), 0);
    assert_eq!(n_cached(Some(half)), 0, "another scale is another state");
    assert_eq!(n_cached(Some(one)), 0);
    let whole = prompt.len() - 1;
    assert_eq!(n_cached(Some(half)), whole);
    assert_eq!(n_cached(Some(base)), whole);
    assert_eq!(n_cached(None), whole, "by default as with the first at 1");
}

#[test]
fn a_saved_prompt_is_restored_for_the_same_adapters_only() {
    let engine = engine("saved");
    let cache = PromptCache::open(&folder("saved-cache"), 1 << 30).unwrap();
    let cache = Arc::new(cache);
    let prompt = engine.prompt_ids(PROMPT.as_bytes());
    let [a, b] = [&[(0, 1.0)][..], &[(1, 1.0)]].map(|s| set(&engine, s));
    let mut batcher = Batcher::new(&engine, &options(1, Some(Arc::clone(&cache)))).unwrap();
    together(&mut batcher, &prompt, &[Some(a)]);
    batcher.save_cached_prefixes();
    assert!(batcher.take_notes().is_empty());
    drop(batcher);
    let mut next = Batcher::new(&engine, &options(1, Some(Arc::clone(&cache)))).unwrap();
    let n_cached = |next: &mut Batcher, set| together(next, &prompt, &[Some(set)])[0].1.n_cached;
    assert_eq!(n_cached(&mut next, b), 0);
    assert_eq!(n_cached(&mut next, AdapterSet::EMPTY), 0);
    assert_eq!(n_cached(&mut next, a), prompt.len() - 1);
    let mut session = engine.session(&SessionOptions::default()).unwrap();
    let mut restored = |set| {
        session.set_adapters(set).unwrap();
        session.restore(&cache, &prompt).unwrap().n_tokens
    };
    assert_eq!(restored(b), 0);
    assert_eq!(restored(a), prompt.len() - 1);
}

#[test]
fn a_session_that_gets_other_adapters_is_empty() {
    let engine = engine("session");
    let prompt = engine.prompt_ids(PROMPT.as_bytes());
    let mut session = engine.session(&SessionOptions::default()).unwrap();
    assert_eq!(session.adapters(), set(&engine, &[(0, 1.0)]));
    session.append(&prompt).unwrap();
    session.set_adapters(engine.default_adapters()).unwrap();
    assert_eq!(session.tokens().len(), prompt.len(), "nothing changed");
    session.set_adapters(AdapterSet::EMPTY).unwrap();
    assert!(session.tokens().is_empty());
}

#[test]
fn adapters_are_counted_in_the_budget_and_kept_beside_streamed_weights() {
    let folder = folder("budget");
    let path = folder.join("a.gguf");
    write_adapter(&path, 1);
    let adapter = AdapterFile {
        name: "tale".to_owned(),
        path,
        scale: 1.0,
    };
    let load = |weights| {
        let options = LoadOptions {
            adapters: vec![adapter.clone()],
            weights: Some(weights),
            ..LoadOptions::default()
        };
        Engine::open(&stories(), &options).unwrap()
    };
    let mapped = load(atta_engine::WeightsAt::Mapped);
    let streamed = load(atta_engine::WeightsAt::Streamed);
    let prompt = mapped.prompt_ids(PROMPT.as_bytes());
    let text = |engine: &Engine| alone(engine, &prompt, engine.default_adapters());
    assert_eq!(text(&mapped), text(&streamed));
    for engine in [&mapped, &streamed] {
        let _session = engine.session(&SessionOptions::default()).unwrap();
        let items = engine.budget().items();
        for name in ["adapters", "activations of adapters"] {
            assert!(items.iter().any(|item| item.name == name && item.bytes > 0));
        }
    }
    assert_eq!(mapped.adapter_named("tale").unwrap(), 0);
    let error = mapped.adapter_named("other").unwrap_err().to_string();
    assert_eq!(error, "there is no adapter \"other\": there are tale");
}

#[test]
fn two_adapters_of_one_name_and_a_model_as_an_adapter_are_refused() {
    let folder = folder("refused");
    let path = folder.join("a.gguf");
    write_adapter(&path, 1);
    let open = |paths: &[&Path]| {
        let file = |path: &&Path| AdapterFile {
            name: String::new(),
            path: path.to_path_buf(),
            scale: 1.0,
        };
        let options = LoadOptions {
            adapters: paths.iter().map(file).collect(),
            ..LoadOptions::default()
        };
        Engine::open(&stories(), &options).unwrap_err().to_string()
    };
    let twice = open(&[&path, &path]);
    assert!(twice.contains("another adapter is called \"a\""), "{twice}");
    let model = open(&[&stories()]);
    assert!(model.contains("expected \"adapter\""), "{model}");
}
