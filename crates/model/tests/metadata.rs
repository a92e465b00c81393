//! Files that lie, for every architecture: metadata that is missing, of another type or absurd,
//! tensors that are missing, left over or misshapen. Each is refused with an error that names the
//! key or the tensor, and nothing panics.

mod support;

use atta_formats::{Metadata, Value, Writer};
use atta_model::{
    Cpu, Error, ExecutorSize, Model, arch,
    spec::{Activation, Factors, Mask, Pairing, QkNorm, Wiring},
};
use atta_store::{Budget, ModelFiles};
use support::{Golden, Told, golden, goldens_and_encoders};

/// Keys without which no model is described.
const DEMANDED: [&str; 5] = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
];

/// Keys that hold counts and widths; none may be 0, but for one architecture one 0 means that there
/// is no window.
const SIZES: [&str; 11] = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.scaling.original_context_length",
];

/// Keys that may be any number, or where 0 means that there is none.
const SIGNED: [&str; 4] = [
    "attention.temperature_scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "rope.scaling.yarn_log_multiplier",
];

fn has_attention(g: &Golden) -> bool {
    g.model().spec().attentions().next().is_some()
}

fn lower(metadata: &Metadata) -> Result<(), Error> {
    let spec = arch::lower(metadata)?;
    // An accepted model can be planned: none of this may panic or take long.
    spec.tensors();
    for rope in spec
        .layers
        .iter()
        .filter_map(|l| l.attention()?.rope.as_ref())
        .take(3)
    {
        rope.inv_freq(Factors::default(), 1 << 20);
    }
    Ok(())
}

/// The error of metadata in which one key is something else.
fn with_key(g: &Golden, key: &str, set: impl Fn(&mut Writer, &str)) -> Option<String> {
    let key = format!("{}.{key}", g.arch);
    lower(&g.metadata("", |w| set(w, &key)))
        .err()
        .map(|e| e.to_string())
}

fn must_name(error: Option<String>, g: &Golden, key: &str, what: &str) {
    let error = error.unwrap_or_else(|| panic!("{}: {key} that is {what} is taken", g.name));
    assert!(
        error.contains(key),
        "{}: {key} that is {what}: {error}",
        g.name
    );
}

/// Whether a key matters: the width of dense layers does not where all layers have experts that say
/// theirs, an interval does not beside a list of layers, ModernBERT has no RMS norms, a Mamba has
/// neither heads nor MLPs, and a Granite without experts may say their sizes.
fn is_read(g: &Golden, key: &str) -> bool {
    match key {
        "feed_forward_length" => {
            !["qwen35moe", "qwen3next", "qwen4exp", "mamba", "mamba2"].contains(&g.arch.as_str())
        }
        "attention.head_count" => !["mamba", "mamba2"].contains(&g.arch.as_str()),
        "expert_used_count" | "expert_shared_feed_forward_length" => {
            g.arch != "granitehybrid" && g.name != "jamba-dense"
        }
        "full_attention_interval" => !g.keys().iter().any(|k| k == "attention.recurrent_layers"),
        "attention.layer_norm_rms_epsilon" => {
            !["modern-bert", "nemotron"].contains(&g.arch.as_str())
        }
        _ => true,
    }
}

#[test]
fn a_missing_key_is_named() {
    for g in goldens_and_encoders() {
        let eps = g
            .keys()
            .into_iter()
            .find(|key| key.contains("layer_norm") && is_read(&g, key))
            .unwrap();
        let demanded = DEMANDED.into_iter().filter(|key| is_read(&g, key));
        for key in demanded.chain([eps.as_str()]) {
            let full = format!("{}.{key}", g.arch);
            must_name(
                lower(&g.metadata(&full, |_| {}))
                    .err()
                    .map(|e| e.to_string()),
                &g,
                &full,
                "missing",
            );
        }
    }
}

#[test]
fn counts_and_widths_of_nothing_are_refused() {
    for g in goldens_and_encoders() {
        for key in g.keys().iter().filter(|key| SIZES.contains(&key.as_str())) {
            if g.name.starts_with("phi") && key == "attention.sliding_window" || !is_read(&g, key) {
                continue;
            }
            must_name(with_key(&g, key, |w, key| w.set_u32(key, 0)), &g, key, "0");
        }
    }
}

#[test]
fn keys_of_another_type_are_refused() {
    for g in goldens_and_encoders() {
        // Keys about the file or for another program are not read.
        let unread = [
            "vocab_size",
            "rope.scaling.finetuned",
            "rope.dimension_sections",
            "classifier.pooling_type",
            "n_deepstack_layers",
        ];
        for key in g
            .keys()
            .iter()
            .filter(|key| !unread.contains(&key.as_str()) && is_read(&g, key))
        {
            let is_text = key == "rope.scaling.type";
            let error = match is_text {
                true => with_key(&g, key, |w, key| w.set_u32(key, 1)),
                false => with_key(&g, key, |w, key| w.set_str(key, "7")),
            };
            must_name(error, &g, key, "of another type");
        }
    }
}

#[test]
fn numbers_that_are_none_are_refused() {
    for g in goldens_and_encoders() {
        let files = g.files();
        for key in g.keys().into_iter().filter(|key| is_read(&g, key)) {
            let value = files
                .directory()
                .metadata()
                .get(&format!("{}.{key}", g.arch))
                .unwrap();
            let Value::F32(_) = value else { continue };
            for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                must_name(
                    with_key(&g, &key, |w, key| w.set_f32(key, number)),
                    &g,
                    &key,
                    &number.to_string(),
                );
            }
            for number in [0.0, -1.0, -0.0]
                .into_iter()
                .filter(|_| !SIGNED.contains(&key.as_str()))
            {
                must_name(
                    with_key(&g, &key, |w, key| w.set_f32(key, number)),
                    &g,
                    &key,
                    &number.to_string(),
                );
            }
        }
    }
}

#[test]
fn absurd_values_never_panic() {
    for g in goldens_and_encoders() {
        for key in g.keys() {
            for number in [1, 2, 3, 5, 1 << 12, 1 << 24, (1 << 24) + 1, u32::MAX] {
                let _ = with_key(&g, &key, |w, key| w.set_u32(key, number));
            }
            for number in [
                f32::MIN_POSITIVE,
                1e-45,
                f32::MAX,
                f32::MIN,
                1e-3,
                0.999,
                1.0,
                1e9,
            ] {
                let _ = with_key(&g, &key, |w, key| w.set_f32(key, number));
            }
            let _ = with_key(&g, &key, |w, key| w.set_u64(key, u64::MAX));
            let _ = with_key(&g, &key, |w, key| w.set_i32(key, -1));
            let _ = with_key(&g, &key, |w, key| w.set_bools(key, &[true; 3]));
            let _ = with_key(&g, &key, |w, key| w.set_f32s(key, &[]));
        }
    }
}

#[test]
fn heads_that_do_not_divide_are_refused() {
    for g in goldens_and_encoders().into_iter().filter(has_attention) {
        let more_keys = with_key(&g, "attention.head_count_kv", |w, key| w.set_u32(key, 7));
        assert!(
            more_keys.is_some_and(|e| e.contains("share 7 key-value heads")),
            "{}",
            g.name
        );
        let odd = |w: &mut Writer| w.set_u32(&format!("{}.attention.head_count", g.arch), 31);
        let error = load(g.altered(odd, as_it_is)).err().map(|e| e.to_string());
        assert!(
            error.is_some_and(|e| e.contains("31 heads") || e.contains("blk.0.attn_q")),
            "{}",
            g.name
        );
    }
}

#[test]
fn layers_without_key_value_heads_are_convolutions() {
    let g = golden("lfm2");
    let key = "attention.head_count_kv";
    let with = |counts: &'static [i32]| with_key(&g, key, |w, key| w.set_i32s(key, counts));
    assert_eq!(with(&[0, 2, 0, 2]), None);
    for counts in [
        &[0, 2, 0][..],
        &[0; 4],
        &[0, 2, 0, -2],
        &[0, 1 << 25, 0, 0],
        &[],
    ] {
        must_name(with(counts), &g, key, &format!("{counts:?}"));
    }
}

#[test]
fn a_mask_of_another_kind_of_model_is_refused() {
    for g in goldens_and_encoders() {
        let is_decoder = g.first_of_second.is_none();
        let with =
            |causal: bool| with_key(&g, "attention.causal", |w, key| w.set_bool(key, causal));
        let other = (!is_decoder).to_string();
        must_name(with(!is_decoder), &g, "attention.causal", &other);
        assert_eq!(with(is_decoder), None, "{}", g.name);
    }
}

#[test]
fn layers_with_a_window_are_not_stretched_where_others_are() {
    let g = golden("gemma3");
    let stretched = g.metadata("", |w| {
        w.set_str("gemma3.rope.scaling.type", "yarn");
        w.set_f32("gemma3.rope.scaling.factor", 8.0);
        w.set_u32("gemma3.rope.scaling.original_context_length", 64);
    });
    let spec = arch::lower(&stretched).unwrap();
    for attention in spec.attentions() {
        let is_stretched = attention.rope.as_ref().unwrap().magnitude > 1.0;
        assert_eq!(
            is_stretched,
            matches!(attention.mask, Mask::Causal),
            "{attention:?}"
        );
    }
}

#[test]
fn patterns_of_windows_fit_the_layers() {
    let g = golden("gemma3");
    let key = "attention.sliding_window_pattern";
    for list in [&[][..], &[true; 6], &[false; 8]] {
        must_name(
            with_key(&g, key, |w, key| w.set_bools(key, list)),
            &g,
            key,
            "of another length",
        );
    }
    must_name(with_key(&g, key, |w, key| w.set_u32(key, 0)), &g, key, "0");
    must_name(
        with_key(&g, key, |w, key| w.set_f32s(key, &[0.5; 7])),
        &g,
        key,
        "of fractions",
    );
    let written_out = [true, true, true, true, true, false, true];
    let metadata = g.metadata("", |w| w.set_bools(&format!("gemma3.{key}"), &written_out));
    assert_eq!(arch::lower(&metadata).unwrap(), *g.model().spec());
}

#[test]
fn llama_4_has_the_usual_chunks_and_norms_unless_its_file_is_another() {
    let g = golden("llama4");
    let lowered = |left_out: &str, n_experts: u32| {
        let set = |w: &mut Writer| w.set_u32("llama4.expert_count", n_experts);
        arch::lower(&g.metadata(left_out, set)).unwrap()
    };
    let first = |spec: &atta_model::spec::ModelSpec| spec.attentions().next().unwrap().clone();
    let usual = first(&lowered("llama4.attention.sliding_window", 6));
    assert_eq!(usual.mask, Mask::Chunk(8192));
    assert!(matches!(usual.qk_norm, QkNorm::Unit { .. }));
    assert_eq!(first(&lowered("", 128)).qk_norm, QkNorm::None);
    let key = "rope.scaling.attn_factor";
    let stretched = with_key(&g, key, |w, key| w.set_f32(key, 1.5));
    must_name(stretched, &g, key, "1.5");
}

#[test]
fn streams_and_sparse_gates_fit_the_model() {
    let g = golden("gemma3n");
    let key = "activation_sparsity_scale";
    for list in [&[][..], &[0.5; 5], &[f32::NAN; 6], &[f32::INFINITY; 6]] {
        let error = with_key(&g, key, |w, key| w.set_f32s(key, list));
        must_name(error, &g, key, &format!("{list:?}"));
    }
    let key = "altup.active_idx";
    must_name(with_key(&g, key, |w, key| w.set_u32(key, 4)), &g, key, "4");
    for n in [1, 9] {
        let error = with_key(&g, "altup.num_inputs", |w, key| w.set_u32(key, n));
        assert!(error.is_some_and(|e| e.contains(&format!("stream 0 of {n}"))));
    }
    let error = with_key(&g, "embedding_length_per_layer_input", |w, key| {
        w.set_u32(key, 0)
    });
    assert!(error.is_some_and(|e| e.contains("streams without embeddings")));
}

#[test]
fn granite_does_not_rotate_where_its_file_says_so() {
    let g = golden("granite");
    let rotates = |yes| {
        let metadata = g.metadata("", |w| w.set_bool("granite.rope.scaling.finetuned", yes));
        arch::lower(&metadata)
            .unwrap()
            .layers
            .iter()
            .all(|l| l.attention().unwrap().rope.is_some())
    };
    assert!(rotates(true) && !rotates(false));
}

#[test]
fn bitnets_that_share_key_value_heads_gate_with_a_squared_relu() {
    for (name, activation) in [
        ("bitnet", Activation::Relu2),
        ("bitnet-silu", Activation::Silu),
    ] {
        assert!(
            golden(name)
                .model()
                .spec()
                .layers
                .iter()
                .all(|l| l.mlp().unwrap().activation == activation),
            "{name}"
        );
    }
}

#[test]
fn a_norm_may_go_by_another_name_if_that_is_not_taken() {
    let rename = |name: &str, from: &str, to: &str| {
        let renamed = |t: &atta_formats::TensorInfo| {
            Some((t.name.replace(from, to), t.shape.dims().to_vec()))
        };
        load(golden(name).altered(|_| {}, renamed))
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    assert_eq!(rename("gpt-oss", "post_attention_norm", "ffn_norm"), Ok(()));
    assert_eq!(
        rename("llama-plain", "ffn_norm", "post_attention_norm"),
        Ok(())
    );
    assert_eq!(rename("lfm2", "token_embd_norm", "output_norm"), Ok(()));
    let taken = rename("gemma2", "ffn_norm", "attn_sub_norm").unwrap_err();
    assert!(taken.contains("blk.0.ffn_norm.weight"), "{taken}");
}

fn load(files: ModelFiles) -> Result<Model, Error> {
    Model::load(files, &Budget::unlimited())
}

fn as_it_is(t: &atta_formats::TensorInfo) -> Told {
    Some((t.name.clone(), t.shape.dims().to_vec()))
}

#[test]
fn sections_of_a_rope_tell_the_order_of_its_rows() {
    let pairing = |sections: [i32; 4]| {
        let set = |w: &mut Writer| w.set_i32s("glm4.rope.dimension_sections", &sections);
        let spec = arch::lower(&golden("glm4").metadata("", set)).unwrap();
        let rope = spec.layers[0].attention().unwrap().rope.clone();
        rope.unwrap().pairing
    };
    assert_eq!(pairing([8, 12, 12, 0]), Pairing::Halves);
    assert_eq!(pairing([0; 4]), Pairing::Adjacent);
}

#[test]
fn a_budget_of_an_indexer_is_whole_blocks_and_at_least_one() {
    let g = golden("qwen4exp-streams");
    let budget = "attention.indexer.top_k";
    let error = with_key(&g, budget, |w, key| w.set_u32(key, 3));
    must_name(error, &g, budget, "3");
    let set = |w: &mut Writer| w.set_u32(&format!("qwen4exp.{budget}"), 11);
    let spec = arch::lower(&g.metadata("", set)).unwrap();
    let indexer = spec.layers[1].attention().unwrap().indexer.unwrap();
    assert_eq!((indexer.n_blocks, indexer.block_len), (2, 4));
}

#[test]
fn embeddings_of_n_grams_fit_the_model() {
    let g = golden("qwen4exp-ngrams");
    for layers in [&[3][..], &[-1], &[1, 2]] {
        let error = with_key(&g, "ple.layers", |w, key| w.set_i32s(key, layers));
        must_name(error, &g, "ple.layers", &format!("{layers:?}"));
    }
    for (key, n) in [
        ("ple.layer_multipliers", 2),
        ("ple.head_offsets", 5),
        ("ple.head_vocab_sizes", 3),
    ] {
        let error = with_key(&g, key, |w, key| w.set_u64s(key, &vec![9; n]));
        must_name(error, &g, key, &format!("a list of {n}"));
    }
    let sizes = "ple.head_vocab_sizes";
    let error = with_key(&g, sizes, |w, key| w.set_u64s(key, &[1 << 32; 4]));
    must_name(error, &g, sizes, "too many rows");
}

#[test]
fn small_stablelms_are_sequential_whatever_their_files_say() {
    let is_parallel = |n_layers: u32| {
        let set = |w: &mut Writer| w.set_u32("stablelm.block_count", n_layers);
        let spec = arch::lower(&golden("stablelm-parallel").metadata("", set)).unwrap();
        matches!(spec.layers[0].wiring, Wiring::Parallel { .. })
    };
    assert_eq!([24, 32, 40].map(is_parallel), [false, false, true]);
}

#[test]
fn exaone_of_64_layers_has_a_window_if_its_file_does_not_say_one() {
    let masks = |n_layers: u32| {
        let set = |w: &mut Writer| w.set_u32("exaone4.block_count", n_layers);
        let spec = arch::lower(&golden("exaone4-global").metadata("", set)).unwrap();
        let of_layer = |l: usize| {
            let a = spec.layers[l].attention().unwrap();
            (a.mask, a.rope.is_some())
        };
        [of_layer(0), of_layer(3)]
    };
    assert_eq!(
        masks(64),
        [(Mask::Window(4096), true), (Mask::Causal, false)]
    );
    assert_eq!(masks(30), [(Mask::Causal, true); 2]);
}

#[test]
fn old_minicpms_have_the_usual_multipliers() {
    let without = |key: &str| arch::lower(&golden("minicpm").metadata(key, |_| {})).unwrap();
    assert_eq!(without("minicpm.embedding_scale").embed_scale, 12.0);
    assert_eq!(without("minicpm.logit_scale").head.logit_scale, 8.0);
    let residual = without("minicpm.residual_scale").layers[0].residual_scale;
    assert_eq!(residual, 1.4 / 2f32.sqrt());
}

#[test]
fn numbers_of_layers_are_checked() {
    let error = |key: &str, numbers: &[f32]| {
        let set = |w: &mut Writer| w.set_f32s(key, numbers);
        let error = arch::lower(&golden("apertus").metadata("", set)).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    };
    error("xielu.alpha_p", &[1.0; 2]);
    error("xielu.alpha_n", &[1.0, f32::NAN, 1.0]);
    error("xielu.beta", &[]);
    error("xielu.eps", &[f32::INFINITY; 3]);
    let missing = golden("apertus").metadata("xielu.beta", |_| {});
    let error = arch::lower(&missing).unwrap_err();
    assert!(error.to_string().contains("xielu.beta"), "{error}");
}

#[test]
fn a_missing_tensor_is_named() {
    for g in goldens_and_encoders() {
        for dropped in g.files().directory().tensors() {
            let files = g.altered(|_| {}, |t| as_it_is(t).filter(|_| t.name != dropped.name));
            let error = load(files).err().map(|e| e.to_string());
            // One that holds several is missed by the name of the first of them.
            let first = dropped
                .name
                .replace("attn_qkv", "attn_q")
                .replace("ffn_gate_up_exps", "ffn_gate_exps")
                .replace("ffn_up.", "ffn_gate.");
            // And one that goes by another name by the usual one.
            let first = first
                .replace("post_attention_norm", "ffn_norm")
                .replace("token_embd_norm", "output_norm");
            match error {
                Some(e) => assert!(
                    e.contains(&dropped.name) || e.contains(&first),
                    "{}: {first}: {e}",
                    g.name
                ),
                None => assert!(
                    is_optional(&g, &dropped.name),
                    "{}: {} is not missed",
                    g.name,
                    dropped.name
                ),
            }
        }
    }
}

/// Only a head and rope factors may be there or not; and biases where an architecture allows them,
/// factors of matrices, and a projection of values where keys may take their place. Norms of
/// queries and keys, or of state spaces, are there in all layers or in none.
fn is_optional(g: &Golden, name: &str) -> bool {
    let is_value = g.arch == "gemma4" && name.ends_with("attn_v.weight");
    let is_factor = name.ends_with("exps.scale");
    let is_global = ["output.weight", "rope_freqs.weight"].contains(&name);
    is_global || name.ends_with(".bias") || is_factor || is_value
}

#[test]
fn a_tensor_too_many_is_named() {
    for g in goldens_and_encoders() {
        let one_layer_less = |w: &mut Writer| w.set_u32(&format!("{}.block_count", g.arch), 1);
        let error = load(g.altered(one_layer_less, as_it_is))
            .err()
            .map(|e| e.to_string());
        // A list that says which layers have windows or attention is then too long, and n-grams
        // have embeddings in a layer that there is not.
        let named = ["blk.1.", "window_pattern", "head_count_kv", "ple.layers"];
        assert!(
            error.is_some_and(|e| named.iter().any(|name| e.contains(name))),
            "{}",
            g.name
        );
    }
}

#[test]
fn layers_that_predict_further_tokens_are_left_out() {
    let g = golden("llama-plain");
    let with_nextn = |n: u32| {
        let set = move |w: &mut Writer| w.set_u32("llama.nextn_predict_layers", n);
        load(g.altered(set, as_it_is))
    };
    assert_eq!(with_nextn(1).unwrap().spec().layers.len(), 1);
    let error = with_nextn(2).unwrap_err().to_string();
    assert!(error.contains("block_count"), "{error}");
}

/// A dimension that a tensor may have no more of: the table of n-grams may have more rows.
fn wider(g: &Golden, name: &str) -> usize {
    usize::from(g.arch == "qwen4exp" && name == "per_layer_token_embd.weight")
}

#[test]
fn a_misshapen_tensor_is_named() {
    for g in goldens_and_encoders() {
        let files = g.files();
        let tensors = files.directory().tensors().iter();
        for changed in tensors {
            let files = g.altered(
                |_| {},
                |t| {
                    let mut dims = t.shape.dims().to_vec();
                    dims[wider(&g, &t.name)] += u64::from(t.name == changed.name);
                    Some((t.name.clone(), dims))
                },
            );
            let error = load(files).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(
                error.contains(&changed.name),
                "{}: {}: {error}",
                g.name,
                changed.name
            );
        }
    }
}

#[test]
fn a_vocabulary_of_another_length_than_the_embedding_is_refused() {
    for g in goldens_and_encoders() {
        let fewer = |w: &mut Writer| w.set_strs("tokenizer.ggml.tokens", &["a", "b"]);
        let error = load(g.altered(fewer, as_it_is))
            .err()
            .map(|e| e.to_string());
        // N-grams end with a token of the list.
        let named = ["token_embd.weight", "n-grams that end with tokens 90"];
        assert!(
            error.is_some_and(|e| named.iter().any(|name| e.contains(name))),
            "{}",
            g.name
        );
    }
}

#[test]
fn no_context_is_longer_than_the_learned_positions() {
    let model = golden("gpt2").model();
    let make = |n_ctx| {
        let pool = std::sync::Arc::new(atta_kernels::Pool::new(std::num::NonZeroUsize::MIN));
        let kernels = atta_kernels::Kernels::detect();
        let options = ExecutorSize {
            n_ctx,
            ..ExecutorSize::default()
        };
        Cpu::new(model.clone(), kernels, pool, &Budget::unlimited(), options)
    };
    assert!(make(128).is_ok());
    assert!(make(129).is_err_and(|e| e.to_string().contains("learned 128")));
}
