//! Files whose matrices have factors of their own, `NAME.scale` beside `NAME.weight`, as those of
//! NVFP4 have.

mod support;

use atta_kernels::Kernels;
use atta_model::{Executor, ExecutorSize, oracle};
use support::{append, bits, cpu_by, forward, golden, nmse, quantized::Blocks, tokens};

/// Dense, with q, k and v in one tensor and a bias, and with experts.
const MODELS: [&str; 4] = ["llama-plain", "phi3", "qwen2", "mixtral"];

#[test]
fn a_factor_multiplies_the_weights_that_it_belongs_to() {
    for g in MODELS.map(golden) {
        let model = g.quantized(Blocks::Nvfp4);
        let decoded = g.decoded(Blocks::Nvfp4);
        let tokens = tokens(&model, 9);
        let want = oracle::logits(&decoded, &tokens).unwrap();
        let by_oracle = nmse(&oracle::logits(&model, &tokens).unwrap(), &want);
        assert!(by_oracle < 1e-9, "{}: {by_oracle:e}", g.name);
        let by_forward = nmse(&forward(&model, &tokens), &want);
        assert!(by_forward < 2e-3, "{}: {by_forward:e}", g.name);
    }
}

#[test]
fn every_instruction_set_and_chunk_makes_the_same_bits() {
    for g in MODELS.map(golden) {
        let model = g.quantized(Blocks::Nvfp4);
        let tokens = tokens(&model, 40);
        let run = |isa, n_batch| {
            let kernels = Kernels::named(isa).unwrap();
            let mut cpu = cpu_by(kernels, &model, 2, ExecutorSize::default());
            let seq = cpu.new_seq().unwrap();
            bits(&append(&mut cpu, seq, &tokens, n_batch))
        };
        // Routers of floats may be rounded otherwise by each instruction set.
        let is_dense = g.name != "mixtral";
        for isa in Kernels::available() {
            let want = run(if is_dense { "scalar" } else { isa }, 40);
            for n_batch in [1, 7, 40] {
                assert!(run(isa, n_batch) == want, "{}: {isa}, {n_batch}", g.name);
            }
        }
    }
}
