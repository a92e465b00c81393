//! Adapters: what they compute, and that rows without them do not notice.

mod support;

use std::{collections::HashSet, sync::Arc};

use atta_formats::{TensorType, Writer};
use atta_model::{
    Adapter, AdapterSet, Batch, Cpu, Executor, ExecutorSize, KvType, Model, Output, SeqId, Want,
};
use atta_store::{Budget, ModelFiles};
use support::{
    adapters::{load_adapter, set},
    bits, cpu, cpu_with, forward, golden, nmse,
};

/// The model with adapters.
fn with_adapters(model: Arc<Model>, adapters: Vec<Adapter>) -> Arc<Model> {
    let model = Arc::into_inner(model).unwrap();
    Arc::new(model.with_adapters(adapters))
}

/// A text that is computed beside others.
struct Text {
    ids: Vec<u32>,
    adapters: AdapterSet,
    seq: SeqId,
    logits: Vec<f32>,
}

/// The logits of all positions of texts in one executor, each with its adapters; as many positions
/// a step of each as its place in the list says.
fn logits(cpu: &mut Cpu, texts: &[(Vec<u32>, AdapterSet)]) -> Vec<Vec<f32>> {
    let mut all: Vec<Text> = Vec::new();
    for (ids, adapters) in texts {
        all.push(Text {
            ids: ids.clone(),
            adapters: *adapters,
            seq: cpu.new_seq().unwrap(),
            logits: Vec::new(),
        });
    }
    let mut batch = Batch::default();
    let mut out = Output::default();
    let mut done = vec![0; all.len()];
    loop {
        batch.clear();
        let mut owners = Vec::new();
        for (i, text) in all.iter().enumerate() {
            let end = text.ids.len().min(done[i] + 1 + i % 5);
            for pos in done[i]..end {
                batch.push_token(text.seq, pos, text.ids[pos], Want::Logits);
                batch.set_adapters(text.adapters);
                owners.push(i);
            }
            done[i] = end;
        }
        if batch.rows.is_empty() {
            return all.into_iter().map(|text| text.logits).collect();
        }
        cpu.step(&batch, &mut out).unwrap();
        for (row, &i) in owners.iter().enumerate() {
            all[i].logits.extend_from_slice(out.logits(row));
        }
    }
}

/// The logits of a text alone, in chunks.
fn alone(model: &Arc<Model>, ids: &[u32], adapters: AdapterSet, n_threads: usize) -> Vec<f32> {
    let mut cpu = executor(model, n_threads);
    logits(&mut cpu, &[(ids.to_vec(), adapters)]).remove(0)
}

/// An executor for eight short texts.
fn executor(model: &Arc<Model>, n_threads: usize) -> Cpu {
    let size = ExecutorSize {
        n_ctx: 128,
        n_seqs: 8,
        n_batch: 64,
        kv: KvType::F32,
        ..ExecutorSize::default()
    };
    cpu_with(model, n_threads, size)
}

/// Models with every kind of matrix that adapters may add to, and the largest error. Latent
/// attention and many norms amplify the rounding of the merged weights.
const KINDS: [(&str, f64); 22] = [
    ("llama-plain", 1e-12),
    ("qwen2", 1e-12),
    ("qwen3", 1e-12),
    ("gemma3", 1e-11),
    ("phi3", 1e-12),
    ("gpt2", 1e-12),
    ("bitnet", 1e-12),
    ("olmo2", 1e-12),
    ("qwen2moe", 1e-12),
    ("gpt-oss", 1e-12),
    ("llama4", 1e-12),
    ("gemma3n", 1e-11),
    ("gemma4-moe", 1e-12),
    ("minicpm3", 1e-11),
    ("deepseek3", 3e-11),
    ("lfm2moe", 1e-11),
    ("qwen35moe", 1e-12),
    ("qwen3next", 1e-12),
    ("mamba", 1e-11),
    ("falcon-h1", 1e-12),
    ("nemotron_h_moe", 1e-12),
    ("kimi-linear", 1e-11),
];

/// Tokens of a text of these tests.
const N_TOKENS: usize = 24;

#[test]
fn adapters_compute_what_merged_weights_do() {
    for (name, most) in KINDS {
        let g = golden(name);
        let ids = &g.tokens[..N_TOKENS];
        let made = g.adapter(3, 1);
        assert!(made.pairs.len() > 3, "{name}: {}", made.pairs.len());
        let model = g.merged(&[]);
        let adapter = made.load(&model).unwrap();
        let base = forward(&model, ids);
        let model = with_adapters(model, vec![adapter]);
        let got = alone(&model, ids, set(&[(0, 0.02)]), 2);
        let expected = forward(&g.merged(&[(&made, 0.02)]), ids);
        let error = nmse(&got, &expected);
        assert!(error < most, "{name}: {error:e}");
        let effect = nmse(&got, &base);
        assert!(effect > 1e-6, "{name}: {effect:e}");
    }
}

#[test]
fn a_text_has_the_bits_that_it_has_alone_whatever_the_adapters_beside_it() {
    let sets = [
        set(&[]),
        set(&[(0, 1.0)]),
        set(&[(1, 0.5)]),
        set(&[(2, -1.0), (0, 0.25)]),
        set(&[(0, 0.25), (2, -1.0)]),
        set(&[(0, 0.5)]),
        set(&[(3, 2.0), (2, 1.0), (1, 1.0), (0, 1.0)]),
        set(&[(3, 0.0)]),
    ];
    for name in ["llama-plain", "phi3", "qwen35moe"] {
        let g = golden(name);
        let tokens = &g.tokens[..N_TOKENS];
        let base = bits(&forward(&g.model(), tokens));
        let model = g.model();
        let made = (0..4).map(|i| g.adapter(1 + i, i).load(&model).unwrap());
        let made = made.collect();
        let model = with_adapters(model, made);
        let texts: Vec<_> = sets.iter().map(|&set| (tokens.to_vec(), set)).collect();
        let together = logits(&mut executor(&model, 2), &texts);
        let mut different = HashSet::new();
        for ((ids, set), got) in texts.iter().zip(&together) {
            let expected = alone(&model, ids, *set, 1);
            assert!(bits(got) == bits(&expected), "{name}: {set:?}");
            assert_eq!(bits(got) == base, set.is_empty(), "{name}: {set:?}");
            different.insert(bits(got));
        }
        assert!(different.len() >= 6, "{name}: {}", different.len());
    }
}

#[test]
fn adapters_of_half_precision_and_of_quantized_blocks_work() {
    let g = golden("llama-plain");
    let made = g.adapter(32, 5);
    let of_type = |ty| {
        let model = g.model();
        let adapter = load_adapter(&model, &g.arch, made.file(ty, |_| {})).unwrap();
        let model = with_adapters(model, vec![adapter]);
        alone(&model, &g.tokens, set(&[(0, 0.1)]), 1)
    };
    let expected = of_type(TensorType::F32);
    for (ty, most) in [
        (TensorType::F16, 1e-5),
        (TensorType::BF16, 1e-3),
        (TensorType::Q8_0, 1e-2),
    ] {
        let error = nmse(&of_type(ty), &expected);
        assert!(error < most, "{ty}: {error:e}");
        assert!(error > 0.0, "{ty}");
    }
}

#[test]
fn an_adapter_of_a_tied_embedding_leaves_the_head_alone() {
    let g = golden("qwen2");
    let model = g.model();
    let files = g.files();
    let info = files.directory().tensor("token_embd.weight").unwrap();
    assert!(files.directory().tensor("output.weight").is_none());
    let made = g.adapter_of(info, 2);
    let base = forward(&model, &g.tokens);
    let adapter = made.load(&model).unwrap();
    let model = with_adapters(model, vec![adapter]);
    let got = alone(&model, &g.tokens, set(&[(0, 1.0)]), 1);
    assert!(nmse(&got, &base) > 1e-4, "the embedding is adapted");
    // The embedding is looked up with B A, and the head multiplied without: as with an untied head.
    let untied = g.merged_and_untied(&made);
    let expected = forward(&untied, &g.tokens);
    assert!(nmse(&got, &expected) < 1e-12);
}

#[test]
fn a_row_with_an_adapter_that_is_not_loaded_is_refused() {
    let model = golden("qwen2").model();
    let mut cpu = cpu(&model, 1, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    let mut batch = Batch::default();
    batch.push_token(seq, 0, 1, Want::Logits);
    batch.set_adapters(set(&[(0, 1.0)]));
    let error = cpu.step(&batch, &mut Output::default()).unwrap_err();
    assert_eq!(error.to_string(), "row 0: an adapter that is not loaded");
    assert_eq!(cpu.seqs().len(seq).unwrap(), 0);
}

#[test]
fn metadata_of_other_files_and_models_is_refused() {
    let g = golden("qwen2");
    let model = g.model();
    let made = g.adapter(2, 1);
    let refused = |set: &dyn Fn(&mut Writer)| {
        let bytes = made.file(TensorType::F32, set);
        load_adapter(&model, &g.arch, bytes)
            .unwrap_err()
            .to_string()
    };
    type Set<'a> = &'a dyn Fn(&mut Writer);
    let cases: [(Set<'_>, &str); 5] = [
        (&|w| w.set_str("general.type", "model"), "general.type is"),
        (&|w| w.set_str("adapter.type", "dora"), "adapter.type is"),
        (
            &|w| w.set_str("general.architecture", "llama"),
            "expected \"qwen2\"",
        ),
        (
            &|w| w.set_f32("adapter.lora.alpha", f32::NAN),
            "alpha is NaN",
        ),
        (
            &|w| w.set_u32s("adapter.alora.invocation_tokens", &[1]),
            "adapter.alora.invocation_tokens",
        ),
    ];
    for (set, part) in cases {
        let error = refused(set);
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn tensors_that_do_not_fit_the_model_are_refused_by_name() {
    let g = golden("qwen2");
    let model = g.model();
    let shape = |name: &str, dims: [&[u64]; 2]| {
        let error = g.adapter_of_shapes(name, dims).load(&model);
        error.map_or_else(|error| error.to_string(), |_| "it fits".to_owned())
    };
    let d = model.spec().d_model as u64;
    let attn_output: [&[u64]; 2] = [&[2, d], &[d, 2]];
    assert_eq!(shape("blk.0.attn_output.weight", attn_output), "it fits");
    for (name, dims, part) in [
        ("blk.9.attn_output.weight", attn_output, "no such tensor"),
        ("blk.0.attn_norm.weight", attn_output, "not supported"),
        ("blk.0.attn_output", attn_output, "no such tensor"),
        (
            "blk.0.attn_output.weight",
            [&[2, d + 1], &[d, 2]],
            "lora_a: expected",
        ),
        (
            "blk.0.attn_output.weight",
            [&[2, d], &[d + 1, 2]],
            "lora_b: expected",
        ),
        (
            "blk.0.attn_output.weight",
            [&[3, d], &[d, 2]],
            "lora_a: expected",
        ),
        ("token_embd.weight", [&[2, d], &[d, 2]], "lora_a: expected"),
    ] {
        let error = shape(name, dims);
        assert!(error.contains(part), "{name} {dims:?}: {error}");
    }
    for (other, part) in [
        ("blk.0.attn_q.weight.lora_a", "lora_b is missing"),
        ("blk.0.attn_q.weight.lora_b", "lora_a is missing"),
        (
            "blk.0.attn_q.weight.lora_m",
            "expected NAME.lora_a or NAME.lora_b",
        ),
    ] {
        let mut w = Writer::new();
        w.set_str("general.type", "adapter");
        w.set_str("general.architecture", "qwen2");
        w.set_str("adapter.type", "lora");
        w.add_tensor(other, &[2, d], TensorType::F32).unwrap();
        let layout = w.finish().unwrap();
        let mut bytes = layout.header.clone();
        bytes.resize(layout.file_bytes as usize, 0);
        let error = load_adapter(&model, "qwen2", bytes.leak()).unwrap_err();
        assert!(error.to_string().contains(part), "{other}: {error}");
    }
}

/// A file that says other things of the same bytes is refused, or computed with.
#[test]
fn a_file_with_other_bytes_is_refused_or_computed_with() {
    let g = golden("qwen2");
    let model = g.model();
    let file = g.adapter(2, 3).file(TensorType::F32, |_| {});
    let n_header = file.len().min(3000);
    let mut n_loaded = 0;
    for i in 0..400_usize {
        let mut bytes = file.to_vec();
        let at = i.wrapping_mul(0x9E37_79B1) % n_header;
        bytes[at] = bytes[at].wrapping_add(1 << (i % 8));
        let Ok(files) = ModelFiles::from_static("adapter", bytes.leak()) else {
            continue;
        };
        let budget = Budget::limited(1 << 24);
        let Ok(adapter) = Adapter::load(model.spec(), "qwen2", &files, &budget) else {
            continue;
        };
        n_loaded += 1;
        if n_loaded % 8 == 0 {
            let model = with_adapters(g.model(), vec![adapter]);
            let _ = alone(&model, &g.tokens[..2], set(&[(0, 1.0)]), 1);
        }
    }
    assert!((8..400).contains(&n_loaded), "{n_loaded}");
}
