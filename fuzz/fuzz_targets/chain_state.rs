//! A state that is divided between the parts of a chain: a valid one, whose bytes the input
//! changes, is appended or refused. Nothing of a refused one is left.
#![no_main]

use std::{cell::RefCell, num::NonZeroUsize, path::Path, sync::Arc};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    Batch, Chain, Cpu, Error, Executor, ExecutorSize, KvType, Model, Output, Share, Want,
};
use atta_store::{Budget, ModelFiles};
use libfuzzer_sys::fuzz_target;

const N: usize = 40;

/// A chain of two parts, and the state of a text in it.
fn made() -> Result<(Chain, Vec<u8>), Error> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/models");
    let files = ModelFiles::open(&folder.join("gemma3.gguf"))?;
    let budget = Budget::unlimited();
    let model = Arc::new(Model::load(files, &budget)?);
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let size = ExecutorSize {
        n_ctx: 64,
        n_batch: N,
        n_seqs: 2,
        kv: KvType::F16,
        ..ExecutorSize::default()
    };
    let n_layers = model.spec().layers.len();
    let part = |layers| -> Result<Box<dyn Executor>, Error> {
        let part = Some(Share::of_layers(model.spec(), layers));
        let size = ExecutorSize {
            part,
            ..size.clone()
        };
        let model = Arc::clone(&model);
        let pool = Arc::clone(&pool);
        Ok(Box::new(Cpu::new(
            model,
            Kernels::detect(),
            pool,
            &budget,
            size,
        )?))
    };
    let parts = vec![part(0..1)?, part(1..n_layers)?];
    let mut chain = Chain::new(Arc::new(model.spec().clone()), &size, parts, &budget)?;
    let seq = chain.new_seq()?;
    let mut batch = Batch::default();
    (0..N).for_each(|pos| batch.push_token(seq, pos, pos as u32, Want::Nothing));
    chain.step(&batch, &mut Output::default())?;
    let mut state = Vec::new();
    chain.export(seq, 0..N, &mut state)?;
    Ok((chain, state))
}

thread_local! {
    static MADE: RefCell<(Chain, Vec<u8>)> = RefCell::new(made().expect("a golden can be cut"));
}

/// The state, with as many bytes cut as the first one of the input says, and others changed: of
/// each three a place and a value.
fn altered(state: &[u8], input: &[u8]) -> Vec<u8> {
    let mut state = state.to_vec();
    if let Some((&n, changes)) = input.split_first() {
        state.truncate(state.len() - usize::from(n));
        for change in changes.as_chunks::<3>().0 {
            let at = usize::from(change[0]) + 256 * usize::from(change[1] & 1);
            if let Some(byte) = state.get_mut(at) {
                *byte = change[2];
            }
        }
    }
    state
}

fuzz_target!(|input: &[u8]| {
    MADE.with_borrow_mut(|(chain, state)| {
        let state = altered(state, input);
        let seq = chain.new_seq().expect("there is room for two");
        let appended = chain.append_state(seq, &state, N);
        let n = chain.seqs().len(seq).expect("it is there");
        assert_eq!(n, if appended.is_ok() { N } else { 0 });
        chain.drop_seq(seq).expect("it is there");
    });
});
