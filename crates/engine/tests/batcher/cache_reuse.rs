//! Later parts of cached prompts are reused where that is allowed, and nowhere else.

use std::fs;

use atta_engine::{Batcher, Counts, Done, Engine, Job, JobId};

use super::{Heard, Wish, alone, engine, options, shelf, wish, wishes};

const N_MIN: usize = 24;

/// The prompt of an agent whose second line changes every turn.
fn prompt(engine: &Engine, line: &str, more: &str) -> Wish {
    let rest = "The little fox lived in a forest and looked for a key every morning. ".repeat(5);
    let text = format!("Once upon a time.\n{line}\n{rest}{more}");
    wish(engine, &text, 6, 3)
}

fn reusing(batcher: &mut Batcher, wish: &Wish) -> JobId {
    let job = Job::new(batcher.engine(), wish.prompt.clone(), &wish.options).unwrap();
    batcher.submit(job.with_cache_reuse(N_MIN)).unwrap()
}

/// What came of one job of the batcher.
fn done(batcher: &mut Batcher, id: JobId) -> (String, Done) {
    let mut heard = Heard::default();
    heard.finish(batcher);
    let text = heard.texts.remove(&id).unwrap_or_default();
    (text, heard.done.remove(&id).unwrap())
}

fn exactly(batcher: &mut Batcher, wish: &Wish) -> Done {
    let id = super::submit(batcher, wish);
    let (text, done) = done(batcher, id);
    assert_eq!(text, alone(batcher.engine(), wish).0);
    assert_eq!(done.n_approximate, 0);
    done
}

fn approximately(batcher: &mut Batcher, wish: &Wish) -> Done {
    let id = reusing(batcher, wish);
    done(batcher, id).1
}

#[test]
fn behind_a_changed_line_little_is_evaluated_turn_after_turn() {
    for model in ["stories.gguf", "models/gemma3.gguf"] {
        let engine = engine(model);
        let mut batcher = Batcher::new(&engine, &options(1, 1, 4)).unwrap();
        let lines = [
            "Day one.",
            "It was the second day.",
            "Three",
            "It was the day.",
        ];
        let mut more = String::new();
        for (i, line) in lines.into_iter().enumerate() {
            let wish = prompt(&engine, line, &more);
            let n_prompt = wish.prompt.len();
            let before = batcher.counts();
            let done = approximately(&mut batcher, &wish);
            let n_read = batcher.counts().n_read - before.n_read;
            assert_eq!(n_read as usize + done.n_cached, n_prompt, "{model}");
            assert!(done.n_approximate <= done.n_cached);
            if i > 0 {
                assert!(
                    3 * n_read < n_prompt as u64,
                    "{model} {i}: {n_read} of {n_prompt}"
                );
            }
            more.push_str("Yes. ");
        }
    }
}

#[test]
fn an_unchanged_prompt_is_reused_exactly() {
    let engine = engine("stories.gguf");
    let mut batcher = Batcher::new(&engine, &options(1, 1, 4)).unwrap();
    let first = prompt(&engine, "Day one.", "");
    exactly(&mut batcher, &first);
    let done = approximately(&mut batcher, &first);
    assert_eq!(
        (done.n_cached, done.n_approximate),
        (first.prompt.len() - 1, 0)
    );
}

#[test]
fn no_exact_text_starts_from_an_approximate_state() {
    let engine = engine("stories.gguf");
    let mut batcher = Batcher::new(&engine, &options(1, 2, 4)).unwrap();
    exactly(&mut batcher, &prompt(&engine, "Day one.", ""));
    let second = prompt(&engine, "It was the second day.", "");
    let n_approximate = approximately(&mut batcher, &second).n_approximate;
    assert!(n_approximate > 0);
    let n_cached = exactly(&mut batcher, &second).n_cached;
    assert!(n_cached <= second.prompt.len() - n_approximate);
    let whole = exactly(&mut batcher, &second).n_cached;
    assert_eq!(whole, second.prompt.len() - 1, "it is exact now");
}

#[test]
fn no_approximate_state_is_saved() {
    let engine = engine("stories.gguf");
    let (path, cache) = shelf("approximate");
    let options = super::BatcherOptions {
        cache,
        ..options(1, 1, 4)
    };
    let second = prompt(&engine, "It was the second day.", "");
    let mut batcher = Batcher::new(&engine, &options).unwrap();
    exactly(&mut batcher, &prompt(&engine, "Day one.", ""));
    assert!(approximately(&mut batcher, &second).n_approximate > 0);
    batcher.save_cached_prefixes();
    drop(batcher);
    assert!(fs::read_dir(path).unwrap().count() > 0);
    let mut next = Batcher::new(&engine, &options).unwrap();
    let done = exactly(&mut next, &second);
    assert!(done.n_cached < 30, "{}", done.n_cached);
}

#[test]
fn a_model_whose_keys_cannot_move_says_so_and_stays_exact() {
    let engine = engine("models/gpt2.gguf");
    let n_ctx = engine.spec().n_ctx_train;
    let mut options = options(1, 1, 4);
    options.session.n_ctx = Some(n_ctx);
    let mut batcher = Batcher::new(&engine, &options).unwrap();
    let error = batcher.check_cache_reuse().unwrap_err().to_string();
    assert!(error.contains("learned"), "{error}");
    for line in ["Day one.", "Day two."] {
        let mut wish = prompt(&engine, line, "");
        wish.prompt.truncate(n_ctx - 8);
        let id = reusing(&mut batcher, &wish);
        assert_eq!(done(&mut batcher, id).1.n_approximate, 0);
    }
}

/// Exact and approximate texts come in at random and some are cancelled; the exact ones are what
/// each is alone.
fn mixed(model: &str, options: super::BatcherOptions) -> Counts {
    let engine = engine(model);
    let wishes = wishes(&engine);
    let mut batcher = Batcher::new(&engine, &options).unwrap();
    let mut heard = Heard::default();
    let mut random = 5u64;
    let mut asked = Vec::new();
    for i in 0..16 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let line = ["One.", "Two and a half.", "Three!"][(random >> 33) as usize % 3];
        let changing = prompt(&engine, line, ["", "So", "But"][i % 3]);
        let id = reusing(&mut batcher, &changing);
        if random >> 40 & 7 == 0 {
            heard.step(&mut batcher);
            batcher.cancel(id);
        }
        let exact = match i % 4 {
            0 => wishes[i % wishes.len()].clone(),
            _ => changing,
        };
        asked.push((super::submit(&mut batcher, &exact), exact));
        for _ in 0..random >> 62 {
            heard.step(&mut batcher);
        }
    }
    heard.finish(&mut batcher);
    for (id, wish) in asked {
        let text = heard.texts.get(&id).map_or("", String::as_str);
        assert_eq!(text, alone(&engine, &wish).0);
        assert_eq!(heard.done[&id].n_approximate, 0);
    }
    batcher.counts()
}

#[test]
fn exact_texts_beside_approximate_ones_are_as_alone() {
    let counts = mixed("stories.gguf", options(4, 4, 8));
    assert!(counts.n_approximate > 0, "{counts:?}");
}

#[test]
fn without_room_moves_are_given_up_and_texts_end_all_the_same() {
    for (n_jobs, n_kept, n_contexts) in [(4, 0, 1), (1, 1, 1)] {
        mixed("stories.gguf", options(n_jobs, n_kept, n_contexts));
    }
    let (_, cache) = shelf("mixed");
    let options = super::BatcherOptions {
        cache,
        ..options(2, 1, 2)
    };
    mixed("models/gemma3.gguf", options);
}
