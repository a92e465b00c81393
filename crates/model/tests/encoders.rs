//! Encoders: a text is evaluated whole, its results depend on nothing but the text, and what only
//! decoders do is refused.

mod support;

use std::sync::Arc;

use atta_kernels::Kernels;
use atta_model::{
    Batch, Cpu, Error, Executor, ExecutorSize, KvType, Model, Output, Share, Want,
    spec::{Mask, Outputs},
};
use support::{Golden, bits, cpu, cpu_by, encoders, golden, quantized::Blocks, tokens};

/// The results of a golden by an executor, as bits.
fn encode(g: &Golden, cpu: &mut Cpu, model: &Model) -> Vec<u32> {
    bits(&g.encode(Kernels::detect(), cpu, model))
}

#[test]
fn threads_do_not_change_a_bit() {
    for g in encoders() {
        let model = g.model();
        for kv in [KvType::F32, KvType::F16, KvType::Q8] {
            let expected = encode(&g, &mut cpu(&model, 1, kv), &model);
            for n_threads in [2, 3, 4] {
                let got = encode(&g, &mut cpu(&model, n_threads, kv), &model);
                assert!(got == expected, "{} {kv:?}: -j {n_threads}", g.name);
            }
        }
    }
}

#[test]
fn instruction_sets_do_not_change_a_bit_of_quantized_models() {
    for (i, mut g) in encoders().into_iter().enumerate() {
        let model = g.quantized([Blocks::Of32, Blocks::Of256][i % 2]);
        g.tokens = tokens(&model, 40);
        let run = |isa| {
            let size = ExecutorSize {
                n_ctx: 64,
                ..ExecutorSize::default()
            };
            let kernels = Kernels::named(isa).unwrap();
            bits(&g.encode(kernels, &mut cpu_by(kernels, &model, 1, size), &model))
        };
        let expected = run("scalar");
        for isa in Kernels::available() {
            assert!(run(isa) == expected, "{}: {isa}", g.name);
        }
    }
}

#[test]
fn other_texts_in_the_batch_do_not_change_a_bit() {
    for g in encoders() {
        let model = g.model();
        let expected = encode(&g, &mut cpu(&model, 1, KvType::F32), &model);
        let size = ExecutorSize {
            n_ctx: 128,
            n_seqs: 3,
            n_batch: 256,
            kv: KvType::F32,
            ..ExecutorSize::default()
        };
        let mut cpu = cpu_by(Kernels::detect(), &model, 2, size);
        let [before, seq, behind] = [(); 3].map(|()| cpu.new_seq().unwrap());
        let mut batch = Batch::default();
        for pos in 0..37 {
            batch.push_token(before, pos, g.tokens[36 - pos], Want::Nothing);
        }
        g.push_rows(&mut batch, seq);
        batch.push_token(behind, 0, 5, Want::Hidden);
        let mut out = Output::default();
        cpu.step(&batch, &mut out).unwrap();
        let got = bits(&g.results(Kernels::detect(), &model, &out, 37));
        assert!(got == expected, "{}", g.name);
    }
}

#[test]
fn every_token_sees_what_is_behind_it() {
    for g in encoders() {
        let model = g.model();
        let is_whole = model.spec().attentions().any(|a| a.mask == Mask::Full);
        assert!(is_whole, "{}", g.name);
        let first = |tokens: &[u32]| {
            let mut cpu = cpu(&model, 1, KvType::F32);
            let seq = cpu.new_seq().unwrap();
            let mut batch = Batch::default();
            for (pos, &id) in tokens.iter().enumerate() {
                batch.push_token(seq, pos, id, Want::Hidden);
            }
            let mut out = Output::default();
            cpu.step(&batch, &mut out).unwrap();
            bits(out.hidden(0))
        };
        let mut changed = g.tokens.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_ne!(first(&g.tokens), first(&changed), "{}", g.name);
        assert_eq!(first(&g.tokens), first(&g.tokens), "{}", g.name);
    }
}

#[test]
fn the_segment_of_a_token_changes_the_result() {
    let g = golden("xlm-roberta-reranker");
    let model = g.model();
    let mut whole = golden("xlm-roberta-reranker");
    whole.first_of_second = Some(g.tokens.len());
    let of = |g: &Golden| encode(g, &mut cpu(&model, 1, KvType::F32), &model);
    assert_ne!(of(&g), of(&whole));
}

/// The error of one step on a new executor, by rows of `(position, wanted result)`.
fn refused(model: &Arc<Model>, steps: &[&[(usize, Want)]]) -> Error {
    let mut cpu = cpu(model, 1, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    let mut out = Output::default();
    let mut results = steps.iter().map(|rows| {
        let mut batch = Batch::default();
        for &(pos, want) in *rows {
            batch.push_token(seq, pos, 5, want);
        }
        cpu.step(&batch, &mut out)
    });
    results.find_map(Result::err).expect("a step is refused")
}

#[test]
fn a_part_of_a_text_is_refused_and_leaves_the_sequence_as_it_was() {
    for g in encoders() {
        let model = g.model();
        let rows: [(usize, Want); 3] = [0, 1, 2].map(|pos| (pos, Want::Hidden));
        let error = refused(&model, &[&rows[..2], &rows[2..]]);
        assert!(matches!(error, Error::Row { row: 0, .. }), "{error}");
        let mut cpu = cpu(&model, 1, KvType::F32);
        let [a, b] = [(); 2].map(|()| cpu.new_seq().unwrap());
        let mut batch = Batch::default();
        batch.push_token(a, 0, 5, Want::Hidden);
        batch.push_token(b, 0, 5, Want::Hidden);
        batch.push_token(a, 1, 5, Want::Hidden);
        let error = cpu.step(&batch, &mut Output::default()).unwrap_err();
        assert!(matches!(error, Error::Row { row: 2, .. }), "{error}");
        assert_eq!([a, b].map(|seq| cpu.seqs().len(seq).unwrap()), [0, 0]);
    }
}

#[test]
fn a_text_is_removed_whole_or_not_at_all() {
    for g in encoders() {
        let model = g.model();
        let mut cpu = cpu(&model, 1, KvType::F32);
        let seq = cpu.new_seq().unwrap();
        let mut batch = Batch::default();
        g.push_rows(&mut batch, seq);
        cpu.step(&batch, &mut Output::default()).unwrap();
        let n = g.tokens.len();
        assert_eq!(cpu.truncate(seq, n).unwrap(), n, "{}", g.name);
        assert_eq!(cpu.truncate(seq, n - 1).unwrap(), 0, "{}", g.name);
        let expected = encode(&g, &mut self::cpu(&model, 1, KvType::F32), &model);
        let mut out = Output::default();
        cpu.step(&batch, &mut out).unwrap();
        let again = bits(&g.results(Kernels::detect(), &model, &out, 0));
        assert!(again == expected, "{}", g.name);
    }
}

#[test]
fn what_only_decoders_do_is_refused() {
    for g in encoders() {
        let model = g.model();
        let error = refused(&model, &[&[(0, Want::Logits)]]);
        assert!(matches!(error, Error::NoLogits), "{}: {error}", g.name);
        let size = ExecutorSize {
            n_ctx: 128,
            n_recent: Some(16),
            ..ExecutorSize::default()
        };
        let pool = Arc::new(atta_kernels::Pool::new(std::num::NonZeroUsize::MIN));
        let budget = atta_store::Budget::unlimited();
        let shifting = Cpu::new(Arc::clone(&model), Kernels::detect(), pool, &budget, size);
        let error = shifting.unwrap_err().to_string();
        assert!(error.contains("an encoder"), "{}: {error}", g.name);
        let hidden = vec![0.5; model.spec().d_model];
        let scores = model.scores(Kernels::detect(), &hidden);
        match model.spec().head.outputs {
            Outputs::Scores(head) => assert_eq!(scores.unwrap().len(), head.n),
            _ => assert!(matches!(scores, Err(Error::NoScores)), "{}", g.name),
        }
    }
}

#[test]
fn parts_of_a_model_compute_what_the_whole_does() {
    for g in encoders() {
        let model = g.model();
        let expected = encode(&g, &mut cpu(&model, 1, KvType::F32), &model);
        let n = model.spec().layers.len();
        let mut batch = Batch::default();
        let mut out = Output::default();
        for layers in [0..1, 1..n] {
            let share = Share::of_layers(model.spec(), layers.clone());
            let part = Arc::new(g.part(share.clone()));
            let size = ExecutorSize {
                n_ctx: 128,
                kv: KvType::F32,
                part: Some(share),
                ..ExecutorSize::default()
            };
            let mut cpu = cpu_by(Kernels::detect(), &part, 1, size);
            let seq = cpu.new_seq().unwrap();
            batch.clear();
            match layers.start {
                0 => g.push_rows(&mut batch, seq),
                _ => (0..g.tokens.len())
                    .for_each(|row| batch.push_hidden(seq, row, out.hidden(row), Want::Hidden)),
            }
            let mut next = Output::default();
            cpu.step(&batch, &mut next).unwrap();
            out = next;
        }
        let got = bits(&g.results(Kernels::detect(), &model, &out, 0));
        assert!(got == expected, "{}", g.name);
    }
}
