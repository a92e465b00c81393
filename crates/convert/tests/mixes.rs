//! Every mix gives every tensor the type that llama-quantize gives it.

use std::sync::Arc;

use atta_convert::{Checkpoint, ImportanceMatrix, MappedRows, Mix, Plan, Tensor, TypeSelection};
use atta_formats::{TensorType, Writer};
use serde_json::Value;

/// Mixes that require an importance matrix.
const NEED_IMPORTANCE: [&str; 7] = [
    "Q2_K_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS",
];

/// The sizes of a model with F16 matrices in `tests/oracles/mixes_golden.py`.
struct ModelShape {
    n_layers: u64,
    n_heads: u64,
    n_kv_heads: u64,
    d: u64,
    d_ff: u64,
    n_experts: u64,
    is_tied: bool,
}

impl ModelShape {
    fn of(row: &Value) -> Self {
        let n = |i: usize| row["shape"][i].as_u64().unwrap();
        let n_layers = n(0);
        let n_heads = n(1);
        let n_kv_heads = n(2);
        let d = n(3);
        let d_ff = n(4);
        Self {
            n_layers,
            n_heads,
            n_kv_heads,
            d,
            d_ff,
            n_experts: n(5),
            is_tied: n(6) == 1,
        }
    }

    fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        let Self {
            d, d_ff, n_experts, ..
        } = *self;
        let d_kv = d * self.n_kv_heads / self.n_heads;
        let mut all = vec![
            ("token_embd".to_owned(), vec![64, d]),
            ("output_norm".to_owned(), vec![d]),
        ];
        all.extend((!self.is_tied).then(|| ("output".to_owned(), vec![64, d])));
        let attention = [
            ("attn_norm", vec![d]),
            ("ffn_norm", vec![d]),
            ("attn_q", vec![d, d]),
        ];
        let more = [
            ("attn_k", vec![d_kv, d]),
            ("attn_v", vec![d_kv, d]),
            ("attn_output", vec![d, d]),
        ];
        let dense = [
            ("ffn_gate", vec![d_ff, d]),
            ("ffn_up", vec![d_ff, d]),
            ("ffn_down", vec![d, d_ff]),
        ];
        let experts = [
            ("ffn_gate_inp", vec![n_experts, d]),
            ("ffn_gate_exps", vec![n_experts, d_ff, d]),
            ("ffn_up_exps", vec![n_experts, d_ff, d]),
            ("ffn_down_exps", vec![n_experts, d, d_ff]),
        ];
        let ffn = if n_experts > 0 {
            &experts[..]
        } else {
            &dense[..]
        };
        for l in 0..self.n_layers {
            let layer = attention.iter().chain(&more).chain(ffn);
            all.extend(layer.map(|(name, dims)| (format!("blk.{l}.{name}"), dims.clone())));
        }
        all.into_iter()
            .map(|(name, dims)| (format!("{name}.weight"), dims))
            .collect()
    }

    fn checkpoint(&self) -> Checkpoint {
        let mut metadata = Writer::new();
        metadata.set_str("general.architecture", "llama");
        metadata.set_u32("llama.block_count", self.n_layers as u32);
        metadata.set_u32("llama.attention.head_count", self.n_heads as u32);
        metadata.set_u32("llama.attention.head_count_kv", self.n_kv_heads as u32);
        metadata.set_u32("llama.expert_count", self.n_experts as u32);
        let tensors = self
            .tensors()
            .into_iter()
            .map(|(name, dims)| tensor(name, dims))
            .collect();
        Checkpoint {
            metadata,
            tensors,
            files: Vec::new(),
        }
    }

    /// An importance matrix with entries for the matrices of all layers.
    fn importance(&self) -> ImportanceMatrix {
        let mut importance = ImportanceMatrix::default();
        for (name, dims) in self
            .tensors()
            .into_iter()
            .filter(|(name, dims)| name.starts_with("blk") && dims.len() > 1)
        {
            let n = if dims.len() > 2 { dims[0] as usize } else { 1 };
            let d = *dims.last().unwrap() as usize;
            importance
                .entry_mut(&name)
                .add_expert(0, n, &vec![1.0; d], d);
        }
        importance
    }
}

fn tensor(name: String, dims: Vec<u64>) -> Tensor {
    let is_matrix = dims.len() > 1 && !name.contains("gate_inp");
    let ty = if is_matrix {
        TensorType::F16
    } else {
        TensorType::F32
    };
    let n_bytes = dims.iter().product::<u64>() as usize * ty.block_bytes();
    let rows = MappedRows::new(Arc::new(vec![0u8; n_bytes]), 0, &dims, ty).unwrap();
    Tensor {
        name,
        dims,
        ty,
        rows: Box::new(rows),
    }
}

/// Types of the matrices, run-length encoded: `3*Q4_K 1*Q6_K`.
fn runs(checkpoint: &Checkpoint, plan: &Plan) -> String {
    let mut runs: Vec<(usize, TensorType)> = Vec::new();
    for step in plan
        .steps
        .iter()
        .filter(|step| checkpoint.tensors[step.tensor].ty == TensorType::F16)
    {
        match runs.last_mut() {
            Some((n, ty)) if *ty == step.ty => *n += 1,
            _ => runs.push((1, step.ty)),
        }
    }
    runs.iter()
        .map(|(n, ty)| format!("{n}*{ty}"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn every_tensor_gets_the_type_that_llama_cpp_gives_it() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/convert/mixes.json"
    );
    let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut n = 0;
    for row in golden.as_array().unwrap() {
        let shape = ModelShape::of(row);
        let checkpoint = shape.checkpoint();
        let importance = shape.importance();
        let mixes = row["mixes"].as_object().unwrap();
        for key in mixes.keys().filter(|key| !key.ends_with(" imatrix")) {
            let types = TypeSelection {
                mix: Mix::named(key),
                ..TypeSelection::default()
            };
            let alike = &mixes[key];
            for (using, want) in [
                (None, alike),
                (
                    Some(&importance),
                    mixes.get(&format!("{key} imatrix")).unwrap_or(alike),
                ),
            ] {
                let with = if using.is_some() {
                    " with an importance matrix"
                } else {
                    ""
                };
                match Plan::new(&checkpoint, &types, using) {
                    Ok(plan) => assert_eq!(
                        runs(&checkpoint, &plan),
                        *want,
                        "{} {key}{with}",
                        row["name"]
                    ),
                    // llama-quantize reports the types with `--dry-run`, but refuses to quantize.
                    Err(error) => assert!(
                        using.is_none() && NEED_IMPORTANCE.contains(&key.as_str()),
                        "{error}"
                    ),
                }
                n += 1;
            }
        }
    }
    assert_eq!(n, 2 * 31 * 7);
}
