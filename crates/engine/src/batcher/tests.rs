//! Hidden states of a step are few, however many a text has.

use std::path::Path;

use super::*;
use crate::{LoadOptions, Pooling};

/// A text of 60 tokens as a vector, in how many steps, with at most `n_hidden` hidden states in each.
fn vector(n_hidden: usize) -> (Vec<f32>, u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    let engine = Engine::open(&path, &LoadOptions::default()).unwrap();
    let session = SessionOptions { n_ctx: Some(128), n_batch: Some(64), n_forks: 1, ..SessionOptions::default() };
    let options = BatcherOptions { session, n_jobs: 2, max_gap: Duration::from_millis(50), cache: None };
    let mut batcher = Batcher::new(&engine, &options).unwrap();
    batcher.n_hidden = n_hidden;
    let ids: Vec<u32> = (10..70).collect();
    for pooling in [Pooling::Mean, Pooling::Last] {
        batcher.submit(Job::embedding(ids.clone(), pooling)).unwrap();
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
        assert!(chunked.iter().map(|x| x.to_bits()).eq(whole.iter().map(|x| x.to_bits())));
        assert!(n_steps >= 60_u64.div_ceil(n_hidden as u64), "{n_steps}");
    }
}
