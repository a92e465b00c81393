//! Texts as vectors: those of the oracle, and the same to the last bit whatever they are computed
//! beside.

use std::{
    collections::HashMap,
    fs,
    num::NonZeroUsize,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use atta_engine::{
    Batcher, BatcherOptions, Done, Engine, Error, Event, FinishReason, GenerateOptions, Job, JobId,
    KvType, LoadOptions, ModelFiles, Pooling, Sampling, SessionOptions, Threads, Update, oracle,
};
use atta_formats::Writer;
use atta_model::spec::Outputs;

const ALL: [Pooling; 3] = [Pooling::Mean, Pooling::Cls, Pooling::Last];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

fn engine(name: &str, n_threads: usize) -> Engine {
    let threads = Threads::Count(NonZeroUsize::new(n_threads).unwrap());
    Engine::open(
        &golden(name),
        &LoadOptions {
            threads,
            ..LoadOptions::default()
        },
    )
    .unwrap()
}

/// Of contexts of 128 positions, with room for so many.
fn batcher(engine: &Engine, n_batch: usize, n_contexts: usize) -> Batcher {
    let n_ctx = Some(128);
    let n_batch = Some(n_batch);
    let n_contexts = Some(n_contexts);
    let session = SessionOptions {
        n_ctx,
        n_batch,
        n_contexts,
        n_forks: 3,
        kv: KvType::F32,
        ..Default::default()
    };
    Batcher::new(
        engine,
        &BatcherOptions {
            session,
            n_jobs: 4,
            max_gap: Duration::from_millis(5),
            cache: None,
        },
    )
    .unwrap()
}

/// What came of each job.
#[derive(Default)]
struct Heard {
    vectors: HashMap<JobId, Vec<f32>>,
    done: HashMap<JobId, Done>,
}

impl Heard {
    fn step(&mut self, batcher: &mut Batcher) {
        let on_update = &mut |id, update: Update<'_>| {
            match update {
                Update::Event(_) => {}
                Update::Embedding(vector) => {
                    assert!(self.vectors.insert(id, vector.to_vec()).is_none())
                }
                Update::Done(done) => assert!(self.done.insert(id, done.clone()).is_none()),
                Update::Failed(error) => panic!("{error}"),
            }
            ControlFlow::Continue(())
        };
        batcher.step(on_update).unwrap();
    }

    fn finish(&mut self, batcher: &mut Batcher) {
        while !batcher.is_idle() {
            self.step(batcher);
        }
    }
}

/// The vector of a text alone.
fn alone(batcher: &mut Batcher, ids: &[u32], pooling: Pooling) -> Vec<f32> {
    let id = batcher
        .submit(Job::embedding(ids.to_vec(), pooling))
        .unwrap();
    let mut heard = Heard::default();
    heard.finish(batcher);
    let done = &heard.done[&id];
    assert_eq!(
        (done.finish_reason, done.n_prompt, done.n_generated),
        (FinishReason::Stop, ids.len(), 0)
    );
    heard.vectors.remove(&id).unwrap()
}

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|x| x.to_bits()).collect()
}

/// The same from hidden states of all positions, `[n, d_model]`.
fn naive(normed: &[f32], d_model: usize, pooling: Pooling) -> Vec<f64> {
    let rows: Vec<&[f32]> = normed.chunks_exact(d_model).collect();
    let rows = match pooling {
        Pooling::Mean => &rows[..],
        Pooling::Cls => &rows[..1],
        Pooling::Last => &rows[rows.len() - 1..],
        Pooling::Rank => panic!("scores are no vector"),
    };
    let mean = |i: usize| rows.iter().map(|row| f64::from(row[i])).sum::<f64>() / rows.len() as f64;
    let mean: Vec<f64> = (0..d_model).map(mean).collect();
    let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
    mean.iter().map(|x| x / length).collect()
}

#[test]
fn vectors_are_those_of_the_oracle() {
    let index: serde_json::Value =
        serde_json::from_slice(&fs::read(golden("models/index.json")).unwrap()).unwrap();
    for row in index["models"].as_array().unwrap() {
        let name = row["gguf"].as_str().unwrap();
        let ids: Vec<u32> = row["tokens"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap() as u32)
            .collect();
        let engine = engine(&format!("models/{name}"), 2);
        // `embed.rs` has those with dense modules.
        if matches!(engine.spec().head.outputs, Outputs::Dense(_)) {
            continue;
        }
        let normed = oracle::normed(engine.model(), &ids).unwrap();
        let mut batcher = batcher(&engine, 64, 2);
        for pooling in ALL {
            let vector = alone(&mut batcher, &ids, pooling);
            let expected = naive(&normed, engine.spec().d_model, pooling);
            let error: f64 = vector
                .iter()
                .zip(&expected)
                .map(|(&a, b)| (f64::from(a) - b).powi(2))
                .sum();
            assert!(
                vector.len() == expected.len() && error <= 1e-10,
                "{name} {pooling:?}: {error:e}"
            );
            let square: f64 = vector.iter().map(|&x| f64::from(x).powi(2)).sum();
            assert!((square - 1.0).abs() < 1e-6, "{name} {pooling:?}: {square}");
        }
    }
}

/// Texts of different lengths, some with a common prefix.
fn texts(engine: &Engine) -> Vec<Vec<u32>> {
    let tale = "Once upon a time there was a little fox who lived in a forest. One morning, the fox found a key.";
    let texts = [
        tale,
        "One day",
        "a",
        &tale[..40],
        &format!("{tale} The key was red. {tale}"),
    ];
    let ids = |text: &&str| {
        engine
            .embedding_ids(text.as_bytes())
            .into_iter()
            .take(120)
            .collect()
    };
    texts.iter().map(ids).collect()
}

#[test]
fn chunks_and_threads_do_not_change_a_bit() {
    for model in ["stories.gguf", "models/gemma3.gguf", "models/mixtral.gguf"] {
        let one = engine(model, 1);
        let texts = texts(&one);
        let vectors = |engine: &Engine, n_batch| {
            let mut batcher = batcher(engine, n_batch, 2);
            let all = ALL
                .iter()
                .flat_map(|&pooling| texts.iter().map(move |text| (text, pooling)));
            all.map(|(text, pooling)| bits(&alone(&mut batcher, text, pooling)))
                .collect::<Vec<_>>()
        };
        let expected = vectors(&one, 128);
        for (n_threads, n_batch) in [(1, 2), (1, 7), (2, 3), (3, 48)] {
            let other = engine(model, n_threads);
            assert!(
                vectors(&other, n_batch) == expected,
                "{model}: -j {n_threads} --batch {n_batch}"
            );
        }
    }
}

/// A text that goes on for long after the first `n` tokens of another.
fn written(engine: &Engine, text: &[u32], n: usize) -> Job {
    let logit_bias = vec![(engine.tokenizer().eos().unwrap(), f32::NEG_INFINITY)];
    let sampling = Sampling {
        logit_bias,
        ..Sampling::default()
    };
    let options = GenerateOptions {
        n_predict: 100,
        sampling,
        ..GenerateOptions::default()
    };
    Job::new(engine, text[..text.len().min(n)].to_vec(), &options).unwrap()
}

/// All texts by each pooling beside texts that are written, with room for so many contexts.
fn in_company(n_batch: usize, n_contexts: usize) {
    let engine = engine("stories.gguf", 2);
    let texts = texts(&engine);
    let mut batcher = batcher(&engine, n_batch, n_contexts);
    let mut heard = Heard::default();
    let mut asked = Vec::new();
    for (i, text) in texts.iter().cycle().take(3 * texts.len()).enumerate() {
        batcher.submit(written(&engine, text, 20)).unwrap();
        let pooling = ALL[i / texts.len()];
        asked.push((
            batcher
                .submit(Job::embedding(text.clone(), pooling))
                .unwrap(),
            text,
            pooling,
        ));
        heard.step(&mut batcher);
    }
    heard.finish(&mut batcher);
    assert_eq!(
        (heard.vectors.len(), heard.done.len()),
        (asked.len(), 2 * asked.len())
    );
    let mut fresh = self::batcher(&engine, 128, 4);
    for (id, text, pooling) in asked {
        assert_eq!(
            bits(&heard.vectors[&id]),
            bits(&alone(&mut fresh, text, pooling)),
            "{pooling:?}"
        );
    }
}

#[test]
fn beside_texts_that_are_written_is_as_alone() {
    in_company(16, 4);
    in_company(9, 1);
}

#[test]
fn without_room_texts_are_read_again_and_are_the_same() {
    let engine = engine("stories.gguf", 1);
    let text: Vec<u32> = texts(&engine)[4]
        .iter()
        .copied()
        .cycle()
        .take(120)
        .collect();
    let (mut batcher, mut fresh) = (batcher(&engine, 30, 1), batcher(&engine, 128, 4));
    // The second vector's text is half read when the first one's and the one that is written leave
    // no room for it.
    batcher.submit(written(&engine, &text, 28)).unwrap();
    let poolings = [Pooling::Cls, Pooling::Mean, Pooling::Mean, Pooling::Cls];
    let ids = poolings.map(|pooling| {
        batcher
            .submit(Job::embedding(text.clone(), pooling))
            .unwrap()
    });
    let mut heard = Heard::default();
    heard.finish(&mut batcher);
    assert!(batcher.counts().n_preempted > 0);
    for (id, pooling) in ids.into_iter().zip(poolings) {
        assert_eq!(
            bits(&heard.vectors[&id]),
            bits(&alone(&mut fresh, &text, pooling)),
            "{pooling:?}"
        );
    }
}

/// Whether two texts with this pooling share their common beginning.
const SHARED_BEGINNINGS: [(Pooling, bool); 3] = [
    (Pooling::Last, true),
    (Pooling::Mean, false),
    (Pooling::Cls, false),
];

#[test]
fn a_beginning_is_shared_only_where_its_hidden_states_do_not_count() {
    let engine = engine("stories.gguf", 1);
    let text = texts(&engine).swap_remove(0);
    for (pooling, is_shared) in SHARED_BEGINNINGS {
        let mut batcher = batcher(&engine, 64, 4);
        let ids = [0, 1].map(|_| {
            batcher
                .submit(Job::embedding(text.clone(), pooling))
                .unwrap()
        });
        let mut heard = Heard::default();
        heard.finish(&mut batcher);
        let n_shared = if is_shared { text.len() - 1 } else { 0 };
        assert_eq!(
            ids.map(|id| heard.done[&id].n_cached),
            [0, n_shared],
            "{pooling:?}"
        );
        assert_eq!(
            bits(&heard.vectors[&ids[0]]),
            bits(&heard.vectors[&ids[1]]),
            "{pooling:?}"
        );
    }
}

#[test]
fn who_breaks_or_is_cancelled_hears_no_more_and_whose_time_is_up_gets_no_vector() {
    let engine = engine("stories.gguf", 1);
    let text = texts(&engine).swap_remove(4);
    let mut batcher = batcher(&engine, 8, 4);
    let [broken, cancelled, late] = [0, 1, 2].map(|_| {
        let id = batcher
            .submit(Job::embedding(text.clone(), Pooling::Mean))
            .unwrap();
        batcher.step(&mut |_, _| ControlFlow::Continue(())).unwrap();
        id
    });
    let break_one = &mut |id, update: Update<'_>| match update {
        Update::Event(Event::Prompt { .. }) if id == broken => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    batcher.step(break_one).unwrap();
    batcher.cancel(cancelled);
    let mut heard = Heard::default();
    let note = &mut |id, update: Update<'_>| {
        match update {
            Update::Done(done) => drop(heard.done.insert(id, done.clone())),
            _ => panic!("only its end is told"),
        }
        ControlFlow::Continue(())
    };
    batcher.finish(late, note);
    assert!(batcher.is_idle() && heard.done.len() == 1);
    assert_eq!(heard.done[&late].finish_reason, FinishReason::Length);
}

/// The story model with more metadata.
fn saying(set: impl Fn(&mut Writer)) -> Engine {
    let path = golden("stories.gguf");
    let files = ModelFiles::open(&path).unwrap();
    let old = fs::read(&path).unwrap();
    let mut writer = Writer::new();
    files
        .directory()
        .metadata()
        .iter()
        .for_each(|(key, value)| writer.set_value(key, value));
    set(&mut writer);
    let tensors = files.directory().tensors();
    tensors
        .iter()
        .for_each(|t| writer.add_tensor(&t.name, t.shape.dims(), t.ty).unwrap());
    let layout = writer.finish().unwrap();
    let mut bytes = layout.header;
    bytes.resize(layout.file_bytes as usize, 0);
    for (new, t) in layout.tensors.iter().zip(tensors) {
        let to = new.offset as usize;
        let from = t.offset as usize;
        let n = t.n_bytes as usize;
        bytes[to..to + n].copy_from_slice(&old[from..from + n]);
    }
    Engine::from_static("saying", bytes.leak(), &LoadOptions::default()).unwrap()
}

#[test]
fn a_file_says_how_its_model_makes_vectors() {
    let of = |kind| Pooling::of_model(&saying(|writer| writer.set_u32("llama.pooling_type", kind)));
    assert_eq!(
        Pooling::of_model(&engine("stories.gguf", 1)).unwrap(),
        Pooling::Last
    );
    let kinds = [of(0), of(1), of(2), of(3)].map(Result::unwrap);
    assert_eq!(
        kinds,
        [Pooling::Last, Pooling::Mean, Pooling::Cls, Pooling::Last]
    );
    assert!(matches!(of(4), Err(Error::Pooling(4))) && matches!(of(9), Err(Error::Pooling(9))));
}

#[test]
fn a_text_ends_with_a_mark_where_the_vocabulary_wants_it() {
    let plain = engine("stories.gguf", 1);
    let ids = plain.prompt_ids(b"One day");
    assert_eq!(plain.embedding_ids(b"One day"), ids);
    let marked = saying(|writer| writer.set_bool("tokenizer.ggml.add_eos_token", true));
    assert_eq!(marked.prompt_ids(b"One day"), ids);
    assert_eq!(
        marked.embedding_ids(b"One day"),
        [&ids[..], &[plain.tokenizer().eos().unwrap()]].concat()
    );
}
