//! Hugging Face directories that are refused, each with a message of one line.

use std::{
    fs,
    path::{Path, PathBuf},
};

use atta_convert::hf;
use serde_json::{Map, Value, json};

/// A changed copy of a golden directory, removed when dropped.
struct Altered(PathBuf);

impl Drop for Altered {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

impl Altered {
    fn of(row: &str, label: &str) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/golden/convert")
            .join(row);
        let label = label.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let to = std::env::temp_dir().join(format!("atta-refusals-{}-{label}", std::process::id()));
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        Self(to)
    }

    fn config(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let path = self.0.join("config.json");
        let mut config: Map<String, Value> =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut config);
        fs::write(path, serde_json::to_vec(&config).unwrap()).unwrap();
    }

    /// Changes the header of the safetensors file.
    fn header(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let path = self.0.join("model.safetensors");
        let file = fs::read(&path).unwrap();
        let n = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
        let mut header: Map<String, Value> = serde_json::from_slice(&file[8..8 + n]).unwrap();
        change(&mut header);
        let header = serde_json::to_vec(&header).unwrap();
        fs::write(
            path,
            [
                &(header.len() as u64).to_le_bytes()[..],
                &header,
                &file[8 + n..],
            ]
            .concat(),
        )
        .unwrap();
    }

    /// Opens the directory. Returns the notes, or the error without the path of the directory.
    fn opened(&self) -> Result<Vec<String>, String> {
        let mut notes = Vec::new();
        let opened = hf::open(&self.0, &mut notes).map(|_| notes);
        let folder = self.0.join("").display().to_string();
        opened.map_err(|e| e.to_string().replace(&folder, ""))
    }
}

/// Opens a golden directory with other configuration fields.
fn with_fields(row: &str, label: &str, fields: &Value) -> Result<Vec<String>, String> {
    let altered = Altered::of(row, label);
    altered.config(|config| config.extend(fields.as_object().unwrap().clone()));
    altered.opened()
}

// long: a table
#[test]
fn fields_that_change_what_is_computed_are_refused_by_name() {
    for (row, fields, why) in [
        (
            "qwen3.bf16",
            json!({"architectures": ["RwkvForCausalLM"]}),
            "architectures is \"RwkvForCausalLM\", which is not supported",
        ),
        (
            "qwen3.bf16",
            json!({"architectures": null}),
            "architectures is missing",
        ),
        (
            "qwen3.bf16",
            json!({"quantization_config": {"quant_method": "bitsandbytes"}}),
            "is quantized by bitsandbytes, which is not supported",
        ),
        (
            "qwen3.bf16",
            json!({"quantization_config": {}}),
            "quantization_config does not say quant_method",
        ),
        (
            "qwen3.bf16",
            json!({"hidden_act": "relu"}),
            "hidden_act is \"relu\", which is not supported",
        ),
        (
            "qwen3.bf16",
            json!({"is_causal": false}),
            "is_causal is false, which is not supported",
        ),
        (
            "qwen3.bf16",
            json!({"layer_types": null, "use_sliding_window": true, "sliding_window": 9,
                "max_window_layers": 1}),
            "layer 1 has a window of 9; this architecture is computed with none",
        ),
        (
            "qwen3.bf16",
            json!({"layer_types": ["full_attention", "linear_attention"]}),
            "layer_types does not say what layer 1 is",
        ),
        (
            "qwen3.bf16",
            json!({"rope_parameters": {"rope_type": "spiral"}}),
            "rope_type is \"spiral\", which is not supported",
        ),
        (
            "qwen3.bf16",
            json!({"rope_parameters": {"rope_type": "longrope"}}),
            "rope_type is longrope, which is not supported for this architecture",
        ),
        (
            "qwen3.bf16",
            json!({"rope_parameters": {"rope_type": "llama3"}}),
            "rope_type is Llama3, which is not supported for this architecture",
        ),
        (
            "qwen3.bf16",
            json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
            "partial_rotary_factor is 0.5, which is not supported",
        ),
        (
            "qwen3.bf16",
            json!({"hidden_size": "large"}),
            "hidden_size is \"large\", expected a count",
        ),
        (
            "qwen3.bf16",
            json!({"num_hidden_layers": 4_000_000_000u64}),
            "num_hidden_layers is 4000000000, expected at most 4096",
        ),
        (
            "gemma2.bf16",
            json!({"query_pre_attn_scalar": 144}),
            "query_pre_attn_scalar is 144.0, which is not supported",
        ),
        (
            "gemma2.bf16",
            json!({"attn_logit_softcapping": null}),
            "attn_logit_softcapping is missing; this architecture is computed with 50",
        ),
        (
            "gemma2.bf16",
            json!({"use_bidirectional_attention": true}),
            "use_bidirectional_attention is true, which is not supported",
        ),
        (
            "gemma2.bf16",
            json!({"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
            "layer 0 has a window of none; this architecture is computed with 11",
        ),
        (
            "gpt-oss.bf16",
            json!({"swiglu_limit": 9.0}),
            "swiglu_limit is 9.0, which is not supported",
        ),
        (
            "gpt-oss.bf16",
            json!({"rope_parameters": {"rope_type": "yarn", "factor": 4.0,
                "original_max_position_embeddings": 40}}),
            "truncate is true, which is not supported",
        ),
        (
            "gpt2.v4.bf16",
            json!({"scale_attn_by_inverse_layer_idx": true}),
            "scale_attn_by_inverse_layer_idx is true, which is not supported",
        ),
        (
            "qwen3moe.bf16",
            json!({"mlp_only_layers": [0]}),
            "mlp_only_layers is [0], which is not supported",
        ),
        (
            "smollm3.bf16",
            json!({"no_rope_layers": [1, 1, 0, 1, 1]}),
            "no_rope_layers is not the pattern of every fourth layer",
        ),
        (
            "phi2.v4.bf16",
            json!({"qk_layernorm": true}),
            "qk_layernorm is true, which is not supported",
        ),
        (
            "llama3-rope.v4.bf16",
            json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
            "low_freq_factor of the rope is missing",
        ),
        (
            "qwen4exp-ngrams.bf16",
            json!({"output_gate_type": null}),
            "output_gate_type is \"silu\", which is not supported",
        ),
        (
            "qwen4exp-ngrams.bf16",
            json!({"indexer_kv_heads": 2}),
            "indexer_kv_heads is 2, which is not supported",
        ),
        (
            "qwen4exp-ngrams.bf16",
            json!({"ple_embed_dim": 35}),
            "ple_embed_dim is 35 for 4 tables",
        ),
        (
            "qwen4exp-ngrams.bf16",
            json!({"eos_token_id": null}),
            "eos_token_id is missing, which ends n-grams",
        ),
        (
            "qwen4exp-ngrams.bf16",
            json!({"ple_layer_ids": [2, 3]}),
            "ple_layer_ids is [2,3], which is not supported",
        ),
    ] {
        match with_fields(row, why, &fields) {
            Err(error) => assert_eq!(error, format!("config.json: {why}")),
            Ok(_) => panic!("{row}: {fields}"),
        }
    }
}

#[test]
fn sizes_without_sense_are_refused() {
    for (field, value) in [
        ("num_attention_heads", json!(0)),
        ("num_attention_heads", json!(7)),
        ("num_key_value_heads", json!(3)),
        ("hidden_size", json!(0)),
        ("hidden_size", json!(u64::MAX)),
        ("head_dim", json!(5)),
        ("vocab_size", json!(1u64 << 40)),
        ("intermediate_size", json!(-1)),
        ("rms_norm_eps", json!(-1.0)),
        ("max_position_embeddings", json!(0)),
        (
            "rope_parameters",
            json!({"rope_theta": 0.0, "rope_type": "linear", "factor": 0}),
        ),
        ("rope_parameters", json!({"rope_theta": -5.0})),
        ("rope_parameters", json!(7)),
        ("layer_types", json!([])),
    ] {
        let error = with_fields(
            "qwen3.bf16",
            &format!("{field}{value}"),
            &json!({field: value}),
        )
        .expect_err(field);
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn what_is_left_out_is_said() {
    let notes = with_fields(
        "qwen3.bf16",
        "notes",
        &json!({"favourite_colour": "blue", "eos_token_id": 3}),
    )
    .unwrap();
    assert_eq!(
        notes,
        ["fields of config.json that were not read: favourite_colour"]
    );
    let notes = Altered::of("gemma3.text.v4.bf16", "text").opened().unwrap();
    assert!(
        notes[0].starts_with("2 tensors of other modalities are left out"),
        "{notes:?}"
    );
}

#[test]
fn codestral_mamba_has_a_prefix() {
    let altered = Altered::of("mamba2.bf16", "codestral");
    altered.header(|header| {
        let renamed = |(name, tensor): (String, Value)| match name.as_str() {
            "__metadata__" => (name, tensor),
            _ => (format!("model.{name}"), tensor),
        };
        *header = std::mem::take(header).into_iter().map(renamed).collect();
    });
    assert_eq!(altered.opened(), Ok(Vec::new()));
}

#[test]
fn modelopt_says_how_it_quantized_in_one_of_two_files() {
    let altered = Altered::of("quantized/nvfp4-modelopt", "two files");
    altered.config(|config| drop(config.remove("quantization_config")));
    let error = altered.opened().unwrap_err();
    assert!(error.contains("expected [64, 64], got [64, 32]"), "{error}");
    let file = altered.0.join("hf_quant_config.json");
    let found = json!({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}});
    fs::write(&file, found.to_string()).unwrap();
    let notes = altered.opened().unwrap();
    assert!(notes[0].contains("scales of activations"), "{notes:?}");
    fs::write(file, "{}").unwrap();
    let error = altered.opened().unwrap_err();
    assert!(error.contains("hf_quant_config.json"), "{error}");
}

/// A tensor of one layer.
const TENSOR: &str = "model.layers.1.mlp.up_proj.weight";

#[test]
fn tensors_that_are_missing_left_over_or_misshapen_are_named() {
    let altered = |label: &str, change: &dyn Fn(&mut Map<String, Value>)| {
        let altered = Altered::of("qwen3.bf16", label);
        altered.header(change);
        altered.opened().unwrap_err()
    };
    let renamed = altered("renamed", &|header| {
        let tensor = header.remove(TENSOR).unwrap();
        header.insert("model.layers.1.mlp.side_proj.weight".into(), tensor);
    });
    assert_eq!(renamed, format!("{TENSOR}: is missing"));
    let transposed = altered("transposed", &|header| {
        header[TENSOR]["shape"].as_array_mut().unwrap().reverse();
    });
    assert_eq!(
        transposed,
        format!("{TENSOR}: expected [44, 48], got [48, 44]")
    );
    let left = altered("left", &|header| {
        let end = header
            .values()
            .filter_map(|e| e["data_offsets"][1].as_u64())
            .max()
            .unwrap();
        header.insert(
            "model.layers.2.x".into(),
            json!({"dtype": "F32", "shape": [0], "data_offsets": [end, end]}),
        );
    });
    assert_eq!(
        left,
        "model.layers.2.x: is in the checkpoint, but this architecture does not use it"
    );
    let overlapping = altered("overlapping", &|header| {
        let other = header["model.layers.0.mlp.up_proj.weight"].clone();
        header[TENSOR] = other;
    });
    assert!(
        overlapping.starts_with("model.safetensors: model.layers.")
            && overlapping.contains("another tensor"),
        "{overlapping}"
    );
    let integers = altered("integers", &|header| header[TENSOR]["dtype"] = "I16".into());
    assert_eq!(
        integers,
        format!("{TENSOR}: elements of type I16, expected floating-point numbers")
    );
}

#[test]
fn layers_that_the_configuration_does_not_have_are_left_over() {
    let error = with_fields(
        "qwen3.bf16",
        "fewer",
        &json!({"num_hidden_layers": 1, "layer_types": ["full_attention"]}),
    )
    .unwrap_err();
    assert_eq!(
        error,
        "model.layers.1.input_layernorm.weight: is in the checkpoint, but this architecture does \
         not use it"
    );
    let error = with_fields(
        "qwen3.bf16",
        "more",
        &json!({"num_hidden_layers": 3, "layer_types": null}),
    )
    .unwrap_err();
    assert_eq!(error, "model.layers.2.input_layernorm.weight: is missing");
    let error = with_fields(
        "qwen3.bf16",
        "untied",
        &json!({"tie_word_embeddings": false}),
    )
    .unwrap_err();
    assert_eq!(error, "lm_head.weight: is missing");
    let error =
        with_fields("gemma3.text.v4.bf16", "whole", &json!({"text_config": {}})).unwrap_err();
    assert!(
        error.contains("model.layers") || error.contains("expected"),
        "{error}"
    );
}

#[test]
fn a_directory_without_weights_or_configuration_is_refused() {
    let altered = Altered::of("qwen3.bf16", "no weights");
    fs::remove_file(altered.0.join("model.safetensors")).unwrap();
    assert!(
        altered
            .opened()
            .unwrap_err()
            .contains("holds no model.safetensors and no pytorch_model.bin")
    );
    let altered = Altered::of("qwen3.bf16", "no config");
    fs::remove_file(altered.0.join("config.json")).unwrap();
    assert!(altered.opened().unwrap_err().starts_with("config.json: "));
}

#[test]
fn shards_must_all_be_there() {
    let altered = Altered::of("qwen2.shards.bf16", "shard");
    fs::remove_file(altered.0.join("model-00002-of-00003.safetensors")).unwrap();
    assert!(
        altered
            .opened()
            .unwrap_err()
            .starts_with("model-00002-of-00003.safetensors: ")
    );
}

/// A directory, and a tensor of its first layer that a quantized one needs.
const NEEDED: &[(&str, &str)] = &[
    ("quantized/mxfp4", "mlp.experts.down_proj_scales"),
    ("quantized/bitnet-offline", "self_attn.q_proj.weight_scale"),
    ("quantized/fp8", "self_attn.q_proj.weight_scale_inv"),
    ("quantized/gptq", "self_attn.q_proj.scales"),
    ("quantized/awq", "mlp.up_proj.qzeros"),
    ("quantized/w4a16", "mlp.up_proj.weight_shape"),
    ("quantized/w8a8", "mlp.up_proj.weight_scale"),
    ("quantized/mlx", "mlp.up_proj.biases"),
];

/// Quantized tensors without scales, and quantized tensors without a quantization_config.
#[test]
fn quantized_tensors_without_their_scales_are_refused() {
    for (row, gone) in NEEDED {
        let altered = Altered::of(row, &format!("{row}-gone"));
        altered.header(|header| {
            let name = format!("model.layers.0.{gone}");
            let tensor = header.remove(&name).unwrap();
            header.insert(format!("{name}_x"), tensor);
        });
        let error = altered.opened().unwrap_err();
        assert!(error.contains("is missing"), "{row}: {error}");
    }
    let altered = Altered::of("quantized/bitnet-offline", "unsaid");
    altered.config(|config| _ = config.remove("quantization_config"));
    assert!(
        altered
            .opened()
            .unwrap_err()
            .starts_with("model.layers.0.self_attn.")
    );
}

/// A directory, a tensor of its first layer, and another shape of as many elements.
const LYING_SHAPES: &[(&str, &str, [u64; 2])] = &[
    ("gptq", "self_attn.q_proj.qweight", [64, 8]),
    ("gptq", "self_attn.q_proj.qzeros", [4, 4]),
    ("gptq", "self_attn.q_proj.scales", [64, 2]),
    ("awq", "self_attn.q_proj.qweight", [8, 64]),
    ("awq", "self_attn.q_proj.scales", [1, 128]),
    ("w4a16", "self_attn.q_proj.weight_packed", [8, 64]),
    ("w4a16", "self_attn.q_proj.weight_scale", [2, 64]),
    ("w8a8", "self_attn.q_proj.weight_scale", [1, 64]),
    ("mlx", "self_attn.q_proj.scales", [2, 64]),
    ("mlx", "self_attn.q_proj.biases", [2, 64]),
];

#[test]
fn quantized_tensors_with_lying_shapes_are_refused() {
    for &(row, name, dims) in LYING_SHAPES {
        let altered = Altered::of(&format!("quantized/{row}"), &format!("{row}-{name}-lies"));
        altered.header(|header| {
            let tensor = &mut header[&format!("model.layers.0.{name}")];
            let n = |dims: &Value| -> u64 {
                dims.as_array()
                    .unwrap()
                    .iter()
                    .map(|d| d.as_u64().unwrap())
                    .product()
            };
            assert_eq!(n(&tensor["shape"]), dims[0] * dims[1], "{row}: {name}");
            tensor["shape"] = json!(dims);
        });
        let error = altered.opened().unwrap_err();
        assert!(
            error.starts_with("model.layers.0.self_attn.q_proj."),
            "{row}: {error}"
        );
    }
}

#[test]
fn columns_in_groups_that_do_not_exist_are_refused() {
    let altered = Altered::of("quantized/gptq", "groups");
    let path = altered.0.join("model.safetensors");
    let mut file = fs::read(&path).unwrap();
    let n = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&file[8..8 + n]).unwrap();
    let listed = &header["model.layers.0.mlp.up_proj.g_idx"]["data_offsets"][0];
    file[8 + n + listed.as_u64().unwrap() as usize] = 2;
    fs::write(path, file).unwrap();
    let error = altered.opened().unwrap_err();
    assert!(
        error.contains("g_idx: has 2 groups of 64 columns"),
        "{error}"
    );
}

#[test]
fn quantizations_that_are_not_supported_are_named() {
    for (row, quantization, why) in [
        ("gptq", json!({"quant_method": "gptq", "bits": 5}), "bits"),
        (
            "gptq",
            json!({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}),
            "marlin",
        ),
        (
            "awq",
            json!({"quant_method": "awq", "bits": 4, "version": "gemv"}),
            "gemv",
        ),
        (
            "w4a16",
            json!({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}),
            "mxfp4-pack-quantized",
        ),
        (
            "nvfp4-modelopt",
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"}),
            "NVFP4_AWQ",
        ),
        (
            "nvfp4-modelopt",
            json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "INT4_AWQ"}}}),
            "INT4_AWQ",
        ),
        (
            "w4a16",
            json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
                "transform_config": {"config_groups": {"a": {}}}}),
            "transform_config",
        ),
        (
            "mlx",
            json!({"bits": 4, "group_size": 32, "mode": "mxfp4"}),
            "mxfp4",
        ),
        (
            "mlx",
            json!({"quant_method": "bitsandbytes"}),
            "bitsandbytes",
        ),
    ] {
        let row = format!("quantized/{row}");
        let fields = json!({"quantization_config": quantization});
        let error = with_fields(&row, &format!("{row}-{why}"), &fields).unwrap_err();
        assert!(error.contains(why), "{row}: {error}");
    }
}

#[test]
fn files_of_weights_are_found_by_any_name_or_named() {
    let altered = Altered::of("qwen2.shards.bf16", "no index");
    fs::remove_file(altered.0.join("model.safetensors.index.json")).unwrap();
    altered.opened().unwrap();
    fs::remove_file(altered.0.join("model-00003-of-00003.safetensors")).unwrap();
    assert!(
        altered
            .opened()
            .unwrap_err()
            .contains("not all shards of one model")
    );

    let altered = Altered::of("qwen3.bf16", "other name");
    let [from, to] = ["model.safetensors", "other.safetensors"].map(|name| altered.0.join(name));
    fs::rename(&from, &to).unwrap();
    altered.opened().unwrap();
    fs::rename(&to, altered.0.join("adapter_model.safetensors")).unwrap();
    assert!(altered.opened().unwrap_err().contains("holds an adapter"));

    let altered = Altered::of("qwen3.bf16", "pointer");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    fs::write(altered.0.join("model.safetensors"), pointer).unwrap();
    assert!(altered.opened().unwrap_err().contains("pointer of Git LFS"));
}

/// A wrapper whose outer configuration ties the head, and whose inner one has the default.
#[test]
fn a_head_that_the_whole_model_ties_is_tied() {
    let altered = Altered::of("qwen3.bf16", "outer tie");
    altered.header(|header| {
        if let Some(head) = header.remove("lm_head.weight") {
            header.insert("model.visual.head".into(), head);
        }
    });
    altered.config(|config| {
        let mut text = std::mem::take(config);
        let architectures = text.remove("architectures").unwrap();
        text.insert("tie_word_embeddings".into(), false.into());
        config.insert("architectures".into(), architectures);
        config.insert("tie_word_embeddings".into(), true.into());
        config.insert("text_config".into(), text.into());
        config.insert("vision_config".into(), json!({}));
    });
    altered.opened().unwrap();
}
