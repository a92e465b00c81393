//! LoRA adapters of peft: as GGUF files, beside their base and merged into it, they compute what
//! transformers and peft do (`tests/oracles/lora_golden.py`).

use std::{
    fs,
    num::NonZeroUsize,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_convert::{Checkpoint, ConvertOptions, Existing, convert, gguf, hf::lora, merge};
use atta_formats::Metadata;
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Adapter, AdapterScale, AdapterSet, Batch, Cpu, Executor, ExecutorSize, KvType, Model, Output,
    Want,
};
use atta_store::{Budget, ModelFiles};

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// An adapter with its base and the logits of both together.
struct Golden {
    name: String,
    tokens: Vec<u32>,
    logits: Vec<f32>,
}

impl Golden {
    fn all() -> Vec<Self> {
        let index = fs::read(goldens().join("models/index.json")).unwrap();
        let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
        let rows = index["models"].as_array().unwrap().iter();
        let rows = rows.filter_map(|row| {
            let name = row["name"].as_str().unwrap().to_owned();
            let logits = fs::read(goldens().join("lora").join(&name).join("logits")).ok()?;
            let tokens = row["tokens"].as_array().unwrap().iter();
            Some(Self {
                name,
                tokens: tokens.map(|t| t.as_u64().unwrap() as u32).collect(),
                logits: logits
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&b| f32::from_le_bytes(b))
                    .collect(),
            })
        });
        rows.collect()
    }

    fn base(&self) -> PathBuf {
        goldens().join(format!("models/{}.gguf", self.name))
    }

    fn folder(&self) -> PathBuf {
        goldens().join("lora").join(&self.name)
    }

    /// The adapter as a GGUF file.
    fn converted(&self) -> PathBuf {
        let metadata = metadata(&self.base());
        let checkpoint = lora::open(&self.folder(), &metadata, &mut Vec::new()).unwrap();
        written(&checkpoint, &format!("{}-adapter.gguf", self.name))
    }
}

fn metadata(path: &Path) -> Metadata {
    gguf::open(path).unwrap().describe().unwrap().metadata
}

fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lora-{name}"))
}

fn written(checkpoint: &Checkpoint, name: &str) -> PathBuf {
    let path = temporary(name);
    let options = ConvertOptions {
        existing: Existing::Replace,
        ..ConvertOptions::default()
    };
    convert(checkpoint, &path, &options, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    path
}

/// The logits of a text with a file, and with an adapter at scale 1.
fn logits(path: &Path, adapter: Option<&Path>, tokens: &[u32]) -> Vec<f32> {
    let budget = Budget::unlimited();
    let files = ModelFiles::open(path).unwrap();
    let architecture = files.directory().metadata().shown("general.architecture");
    let architecture = architecture.into_owned();
    let model = Model::load(files, &budget).unwrap();
    let mut set = AdapterSet::EMPTY;
    let mut adapters = Vec::new();
    if let Some(path) = adapter {
        let files = ModelFiles::open(path).unwrap();
        adapters.push(Adapter::load(model.spec(), &architecture, &files, &budget).unwrap());
        let first = AdapterScale {
            adapter: 0,
            scale: 1.0,
        };
        set.push(first).unwrap();
    }
    let model = Arc::new(model.with_adapters(adapters));
    let size = ExecutorSize {
        n_ctx: 128,
        n_seqs: 1,
        n_batch: 128,
        kv: KvType::F32,
        ..ExecutorSize::default()
    };
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let mut cpu = Cpu::new(model, Kernels::detect(), pool, &budget, size).unwrap();
    let seq = cpu.new_seq().unwrap();
    let mut batch = Batch::default();
    for (pos, &id) in tokens.iter().enumerate() {
        batch.push_token(seq, pos, id, Want::Logits);
        batch.set_adapters(set);
    }
    let mut out = Output::default();
    cpu.step(&batch, &mut out).unwrap();
    out.all_logits_mut().to_vec()
}

/// `Σ (a - b)² / Σ b²`.
fn nmse(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let difference = |(&a, &b): (&f32, &f32)| square(f64::from(a) - f64::from(b));
    let error: f64 = a.iter().zip(b).map(difference).sum();
    error / b.iter().map(|&b| square(f64::from(b))).sum::<f64>()
}

#[test]
fn adapters_of_peft_compute_what_peft_does_beside_the_base_and_merged() {
    let all = Golden::all();
    assert_eq!(all.len(), 6);
    for g in all {
        let adapter = g.converted();
        let got = logits(&g.base(), Some(&adapter), &g.tokens);
        let error = nmse(&got, &g.logits);
        assert!(error < 1e-9, "{}: {error:e}", g.name);
        let mut checkpoint = gguf::open(&g.base()).unwrap();
        let merged = merge(&mut checkpoint, &adapter, 1.0, &mut Vec::new());
        if g.name == "gemma3" {
            let error = merged.unwrap_err().to_string();
            assert!(
                error.contains("the model's head is its embedding"),
                "{error}"
            );
            continue;
        }
        merged.unwrap();
        let merged = written(&checkpoint, &format!("{}-merged.gguf", g.name));
        let by_weights = logits(&merged, None, &g.tokens);
        let error = nmse(&by_weights, &got);
        assert!(error < 5e-12, "{}: {error:e}", g.name);
        let said = metadata(&merged).strs("atta.merged").unwrap().unwrap();
        let expected = format!("lora-{}-adapter.gguf:1", g.name);
        assert_eq!(said.get(0), Some(expected.as_bytes()));
    }
}

/// The error of an adapter of qwen2 with this field of its configuration.
fn refused(field: &str, value: serde_json::Value) -> String {
    let g = Golden::all().remove(1);
    assert_eq!(g.name, "qwen2");
    let folder = temporary(&format!("refused-{field}"));
    fs::create_dir_all(&folder).unwrap();
    let config = fs::read(g.folder().join(lora::CONFIG)).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    config[field] = value;
    fs::write(folder.join(lora::CONFIG), config.to_string()).unwrap();
    let weights = "adapter_model.safetensors";
    fs::copy(g.folder().join(weights), folder.join(weights)).unwrap();
    let error = lora::open(&folder, &metadata(&g.base()), &mut Vec::new()).unwrap_err();
    error.to_string()
}

#[test]
fn other_kinds_of_adapters_are_refused_by_the_field_that_says_so() {
    use serde_json::json;
    for (field, value) in [
        ("peft_type", json!("IA3")),
        ("use_dora", json!(true)),
        ("modules_to_save", json!(["lm_head"])),
        ("bias", json!("all")),
        ("alpha_pattern", json!({ "^model.*q_proj": 3 })),
        ("alora_invocation_tokens", json!([1, 2])),
        ("target_parameters", json!(["experts.down_proj"])),
    ] {
        let error = refused(field, value);
        assert!(error.contains(field), "{field}: {error}");
        assert!(error.contains("not supported"), "{field}: {error}");
    }
}

#[test]
fn an_adapter_of_another_model_is_refused_by_the_name_of_a_tensor() {
    let all = Golden::all();
    let [llama, gpt2] =
        ["llama-plain", "gpt2"].map(|name| all.iter().find(|g| g.name == name).unwrap());
    let open = |adapter: &Golden, base: &Golden| {
        let error = lora::open(&adapter.folder(), &metadata(&base.base()), &mut Vec::new());
        error.unwrap_err().to_string()
    };
    let error = open(gpt2, llama);
    assert!(error.contains("transformer.h.0.attn.c_attn"), "{error}");
    let qwen2 = all.iter().find(|g| g.name == "qwen2").unwrap();
    let qwen3 = all.iter().find(|g| g.name == "qwen3").unwrap();
    let error = open(qwen2, qwen3);
    assert!(error.contains("layers.0"), "{error}");
}
